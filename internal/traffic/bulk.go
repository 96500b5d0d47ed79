// SPDX-License-Identifier: Apache-2.0

package traffic

import (
	"fmt"
	"net/netip"
	"slices"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// BulkSpec is a group of TCP connections that carry bulk data one way.
type BulkSpec struct {
	Source, Sink Host
	SourceDials  bool       // else the sink connects and the source accepts, as in a download
	Port         int        // of the side that accepts
	Via          netip.Addr // where the dialling side finds it
	Count        int        // connections
	CC           string     // congestion control of the source; empty: the system's default
	NotsentLowat int        // TCP_NOTSENT_LOWAT in bytes; 0: the system's default
	MSS          int        // TCP_MAXSEG in bytes; 0: what fits
	Pace         uint64     // SO_MAX_PACING_RATE, bytes per second; 0: none
	Bytes        int64      // per connection; 0: until Stop
	Start, Stop  time.Duration

	Each []Fetch // one a connection, instead of Count, Bytes, Start and Stop; not nil, perhaps empty

	// What the source has to send at a time, in bytes, and when it has as much again; 0: more than fits, always.
	Chunk    int64
	Interval time.Duration
}

// Fetch is a connection with a beginning and an end of its own.
type Fetch struct {
	Start time.Duration
	Bytes int64
}

// Flow is one connection of a bulk group.
type Flow struct {
	Received int64         // bytes that the sink has read: see Catch
	Started  time.Duration // when the connection was asked for
	Finished time.Duration // when the last of BulkSpec.Bytes was read; 0 until then
	Wakeups  uint64        // how often the source was told that it may write
	Err      error         // what ended the connection early

	bulk         *bulk
	source, sink int
	bytes        int64 // to be sent in all; 0: no end
	handed       int64 // by the application, of chunks
	sent         int64
	stopped      bool
	look         int64 // the next Received at which the window is looked at
}

// CC is the congestion control that the source uses.
func (f *Flow) CC() string {
	if f.source < 0 {
		return ""
	}
	name, _ := unix.GetsockoptString(f.source, unix.IPPROTO_TCP, unix.TCP_CONGESTION)
	return name
}

// Catch reads what has come and waits for more to read it with: what Received lacks then is less than maxLowat.
func (f *Flow) Catch() {
	if f.sink >= 0 {
		f.bulk.read(f)
	}
}

// Info is the source's TCP_INFO; false before the connection is there.
func (f *Flow) Info() (unix.TCPInfo, bool) {
	if f.source < 0 {
		return unix.TCPInfo{}, false
	}
	return tcpInfo(f.source)
}

type bulk struct {
	*Loop
	spec     BulkSpec
	zeros    int // what is sent: a sparse file, so that sendfile copies nothing
	flows    []*Flow
	byPort   map[int]*Flow // port of the dialling side → flow
	sinkDone func(*Flow)
}

// Reading each packet by itself would be most of a run's cost: a sink sleeps until some have come. Reading late must
// not show, though. TCP acknowledges less while data waits that nobody has asked for; a program that has set
// SO_RCVLOWAT has asked for that much, so that up to it every second packet is acknowledged as ever
// (net/ipv4/tcp_input.c, __tcp_ack_snd_check). And what waits is missing from the window: it has to stay a small part
// of it.
const (
	windowParts = 32       // lowat is this part of the window,
	maxLowat    = 64 << 10 // and no more than this, in bytes
	// bytes received after which the window is looked at for the first time; then each time that they have doubled
	firstLook = 64 << 10
)

// maxSendfile is how much one sendfile call may take at most.
const maxSendfile = 1 << 20

// StartBulk arranges the group; connections are made at spec.Start. onDone, when not nil, is called when a flow
// finishes its Bytes.
func (l *Loop) StartBulk(spec BulkSpec, onDone func(*Flow)) ([]*Flow, error) {
	zeros, err := unix.MemfdCreate("zeros", unix.MFD_CLOEXEC)
	if err == nil {
		err = unix.Ftruncate(zeros, maxSendfile)
	}
	if err != nil {
		return nil, fmt.Errorf("memfd: %w", err)
	}
	b := &bulk{Loop: l, spec: spec, zeros: zeros, byPort: map[int]*Flow{}, sinkDone: onDone}
	listener, dialler := spec.Source, spec.Sink
	if spec.SourceDials {
		listener, dialler = spec.Sink, spec.Source
	}
	accepting, err := l.bound(listener, unix.SOCK_STREAM, spec.Port)
	if err != nil {
		return nil, err
	}
	if !spec.SourceDials {
		if err := b.prepareSource(accepting); err != nil { // inherited by what it accepts
			return nil, err
		}
	}
	l.Watch(accepting, unix.EPOLLIN, func() { b.accept(accepting) })
	each := spec.Each
	if each == nil {
		each = slices.Repeat([]Fetch{{spec.Start, spec.Bytes}}, spec.Count)
	}
	for _, fetch := range each {
		f := &Flow{bulk: b, source: -1, sink: -1, bytes: fetch.Bytes}
		b.flows = append(b.flows, f)
		l.At(fetch.Start, func() { b.dial(f, dialler, listener) })
	}
	if spec.Stop > 0 && spec.Each == nil {
		l.At(spec.Stop, b.stop)
	}
	return b.flows, nil
}

func (b *bulk) prepareSource(fd int) error {
	if err := setCC(fd, b.spec.CC); err != nil {
		return err
	}
	if b.spec.NotsentLowat > 0 {
		if err := unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NOTSENT_LOWAT, b.spec.NotsentLowat); err != nil {
			return fmt.Errorf("TCP_NOTSENT_LOWAT: %w", err)
		}
	}
	if b.spec.MSS > 0 {
		if err := unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_MAXSEG, b.spec.MSS); err != nil {
			return fmt.Errorf("TCP_MAXSEG: %w", err)
		}
	}
	if b.spec.Pace > 0 {
		err := unix.SetsockoptUint64(fd, unix.SOL_SOCKET, unix.SO_MAX_PACING_RATE, b.spec.Pace)
		if err != nil {
			return fmt.Errorf("SO_MAX_PACING_RATE: %w", err)
		}
	}
	return nil
}

func (b *bulk) dial(f *Flow, from, to Host) {
	f.Started = b.now
	prepare := noPreparation
	if b.spec.SourceDials {
		prepare = b.prepareSource
	}
	fd, err := b.connect(from, to.via(b.spec.Via), unix.SOCK_STREAM, b.spec.Port, prepare)
	if err != nil {
		b.Fail(err)
		return
	}
	if local, err := unix.Getsockname(fd); err == nil {
		b.byPort[portOf(local)] = f
	}
	if b.spec.SourceDials {
		b.startSource(f, fd)
	} else {
		b.startSink(f, fd)
	}
}

func (b *bulk) accept(listener int) {
	for {
		fd, peer, err := unix.Accept4(listener, unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK)
		if err == unix.EAGAIN {
			return
		}
		if err == unix.ECONNABORTED || err == unix.EINTR { // gone before it was taken
			continue
		}
		if err != nil {
			b.Fail(fmt.Errorf("accept: %w", err))
			return
		}
		f := b.byPort[portOf(peer)]
		switch {
		case f == nil:
			unix.Close(fd)
		case b.spec.SourceDials:
			b.startSink(f, fd)
		default:
			b.startSource(f, fd)
		}
	}
}

func (b *bulk) startSource(f *Flow, fd int) {
	f.source = fd
	if b.spec.Chunk > 0 {
		b.Every(b.now, b.spec.Interval, func() bool { return b.hand(f) })
		return
	}
	b.Watch(fd, unix.EPOLLOUT, func() { b.write(f) })
}

// hand gives a source the next chunk to send. What it could not send of the last ones waits before it, as an
// application's own queue does.
func (b *bulk) hand(f *Flow) bool {
	if f.Err != nil || f.stopped || f.bytes > 0 && f.sent == f.bytes {
		return false
	}
	f.handed += b.spec.Chunk
	b.Watch(f.source, unix.EPOLLOUT, func() { b.write(f) })
	return true
}

func (b *bulk) write(f *Flow) {
	f.Wakeups++
	for {
		want := int64(maxSendfile)
		if f.bytes > 0 {
			want = min(want, f.bytes-f.sent)
			if want == 0 {
				_ = unix.Shutdown(f.source, unix.SHUT_WR)
				b.Forget(f.source)
				return
			}
		}
		if b.spec.Chunk > 0 {
			if want = min(want, f.handed-f.sent); want == 0 {
				b.Forget(f.source)
				return
			}
		}
		var offset int64
		n, _, err := unix.RawSyscall6(unix.SYS_SENDFILE, uintptr(f.source), uintptr(b.zeros),
			uintptr(unsafe.Pointer(&offset)), uintptr(want), 0, 0)
		switch err {
		case 0:
			f.sent += int64(n)
		case unix.EINTR:
		case unix.EAGAIN:
			return
		default:
			f.Err = err
			b.Forget(f.source)
			return
		}
	}
}

func (b *bulk) startSink(f *Flow, fd int) {
	f.sink, f.look = fd, firstLook
	b.Watch(fd, unix.EPOLLIN, func() { b.read(f) })
}

// read throws away all that has come: MSG_TRUNC on TCP copies nothing (tcp(7)).
func (b *bulk) read(f *Flow) {
	var nothing [8]byte
	for {
		n, _, err := unix.RawSyscall6(unix.SYS_RECVFROM, uintptr(f.sink), uintptr(unsafe.Pointer(&nothing[0])), 64<<20,
			unix.MSG_TRUNC, 0, 0)
		switch {
		case err == unix.EINTR:
			continue
		case err == unix.EAGAIN:
		case err != 0 || n == 0:
			if err != 0 {
				f.Err = err
			}
			b.Forget(f.sink)
		default:
			f.Received += int64(n)
			if f.Received >= f.look {
				f.look = 2 * f.Received
				b.sleepLonger(f)
			}
			if f.bytes > 0 && f.Received >= f.bytes && f.Finished == 0 {
				f.Finished = b.now
				if b.sinkDone != nil {
					b.sinkDone(f)
				}
			}
		}
		return
	}
}

// sleepLonger lets the sink sleep for as long as its window allows.
func (b *bulk) sleepLonger(f *Flow) {
	info, ok := tcpInfo(f.sink)
	if !ok {
		return
	}
	lowat := max(1, min(int(info.Rcv_wnd)/windowParts, maxLowat))
	if err := unix.SetsockoptInt(f.sink, unix.SOL_SOCKET, unix.SO_RCVLOWAT, lowat); err != nil {
		b.Fail(fmt.Errorf("SO_RCVLOWAT: %w", err))
	}
}

func (b *bulk) stop() {
	for _, f := range b.flows {
		f.stopped = true
		if f.source >= 0 {
			b.Forget(f.source)
			_ = unix.Shutdown(f.source, unix.SHUT_WR)
		}
	}
}
