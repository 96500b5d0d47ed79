// SPDX-License-Identifier: Apache-2.0

// Package traffic makes network traffic and times it: bulk TCP flows, latency probes, sessions, constant-rate UDP.
//
// One goroutine, locked to its thread, drives every socket through one Loop. It may not configure a host (no qdisc, no
// sysctl, no route) and draws no conclusions: it hands out samples and TCP_INFO.
package traffic

import (
	"container/heap"
	"fmt"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Loop waits for sockets and for points in time. Its methods may be called only from the goroutine that runs it, which
// must have locked its OS thread: sockets are made by entering a network namespace and coming back.
//
// It waits with raw system calls, which the Go scheduler does not see. In virtual time that is the difference between
// one wake-up and fifty: the runtime's monitor thread polls every 20 µs while a goroutine sits in a system call that it
// knows of.
type Loop struct {
	ep     int
	home   int // the namespace of the thread that made the loop
	now    time.Duration
	timers timers
	seq    uint64
	onFD   map[int32]func()
	ended  bool
	err    error
}

// NewLoop makes a loop; Close it.
func NewLoop() (*Loop, error) {
	ep, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("epoll: %w", err)
	}
	home, err := unix.Open("/proc/thread-self/ns/net", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		unix.Close(ep)
		return nil, fmt.Errorf("this thread's network namespace: %w", err)
	}
	// The default slack of 50 µs would be added to every wait.
	_ = unix.Prctl(unix.PR_SET_TIMERSLACK, 1, 0, 0, 0)
	l := &Loop{ep: ep, home: home, onFD: map[int32]func(){}}
	l.now = clock()
	return l, nil
}

// Close releases the loop; sockets stay open until their owner closes them.
func (l *Loop) Close() {
	unix.Close(l.ep)
	unix.Close(l.home)
}

// Now is CLOCK_MONOTONIC when the loop last woke up.
func (l *Loop) Now() time.Duration { return l.now }

// At calls f once, at t or as soon after as the loop gets to it. Calls for one time come in the order they were asked
// for.
func (l *Loop) At(t time.Duration, f func()) {
	l.seq++
	heap.Push(&l.timers, timer{t, l.seq, f})
}

// Every calls f at start, start + interval, … until it returns false. A late loop catches up: no tick is left out.
func (l *Loop) Every(start, interval time.Duration, f func() bool) {
	l.At(start, func() {
		if f() {
			l.Every(start+interval, interval, f)
		}
	})
}

// Watch calls f whenever one of events (EPOLLIN, EPOLLOUT, …) is true of fd. It replaces an earlier Watch of fd.
func (l *Loop) Watch(fd int, events uint32, f func()) {
	op := unix.EPOLL_CTL_ADD
	if _, ok := l.onFD[int32(fd)]; ok {
		op = unix.EPOLL_CTL_MOD
	}
	l.onFD[int32(fd)] = f
	if err := unix.EpollCtl(l.ep, op, fd, &unix.EpollEvent{Events: events, Fd: int32(fd)}); err != nil {
		l.Fail(fmt.Errorf("epoll_ctl: %w", err))
	}
}

// Forget ends a Watch.
func (l *Loop) Forget(fd int) {
	if _, ok := l.onFD[int32(fd)]; ok {
		delete(l.onFD, int32(fd))
		_ = unix.EpollCtl(l.ep, unix.EPOLL_CTL_DEL, fd, nil)
	}
}

// End makes Run return after the current callback.
func (l *Loop) End() { l.ended = true }

// Fail ends the run with an error; the first one is kept.
func (l *Loop) Fail(err error) {
	if l.err == nil {
		l.err = err
	}
	l.ended = true
}

// Run serves sockets and timers until End, Fail or the time until.
func (l *Loop) Run(until time.Duration) error {
	l.At(until, l.End)
	var events [256]unix.EpollEvent
	for !l.ended {
		timeout := l.timers[0].at - l.now
		n, err := epollWait(l.ep, events[:], max(0, timeout))
		if err != 0 && err != unix.EINTR {
			return fmt.Errorf("epoll_pwait2: %w", err)
		}
		l.now = clock()
		for i := range n {
			if f, ok := l.onFD[events[i].Fd]; ok && !l.ended {
				f()
			}
		}
		for len(l.timers) > 0 && l.timers[0].at <= l.now && !l.ended {
			heap.Pop(&l.timers).(timer).f()
		}
	}
	return l.err
}

type timer struct {
	at  time.Duration
	seq uint64
	f   func()
}

type timers []timer

func (t timers) Len() int { return len(t) }
func (t timers) Less(i, j int) bool {
	return t[i].at < t[j].at || t[i].at == t[j].at && t[i].seq < t[j].seq
}
func (t timers) Swap(i, j int) { t[i], t[j] = t[j], t[i] }
func (t *timers) Push(x any)   { *t = append(*t, x.(timer)) }
func (t *timers) Pop() any {
	old := *t
	last := old[len(old)-1]
	*t = old[:len(old)-1]
	return last
}

func clock() time.Duration {
	var ts unix.Timespec
	unix.RawSyscall(unix.SYS_CLOCK_GETTIME, unix.CLOCK_MONOTONIC, uintptr(unsafe.Pointer(&ts)), 0)
	return time.Duration(ts.Nano())
}

// epollWait is epoll_pwait2(2): epoll_wait's milliseconds are too coarse. Linux 5.11.
func epollWait(ep int, events []unix.EpollEvent, timeout time.Duration) (int, unix.Errno) {
	ts := unix.NsecToTimespec(int64(timeout))
	n, _, err := unix.RawSyscall6(unix.SYS_EPOLL_PWAIT2, uintptr(ep), uintptr(unsafe.Pointer(&events[0])),
		uintptr(len(events)),
		uintptr(unsafe.Pointer(&ts)), 0, 0)
	if err != 0 {
		return 0, err
	}
	return int(n), 0
}
