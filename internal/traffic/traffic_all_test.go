// SPDX-License-Identifier: Apache-2.0

//go:build all

package traffic

// In make test-all: loads run over this machine's loopback for real time.

import (
	"net/netip"
	"runtime"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// All of it over the loopback of this machine. Nothing depends on how fast that is: what is waited for ends the run.
func loop(t *testing.T) *Loop {
	t.Helper()
	runtime.LockOSThread()
	t.Cleanup(runtime.UnlockOSThread)
	l, err := NewLoop()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.Close)
	return l
}

var local = Host{Addr: netip.MustParseAddr("127.0.0.1")}

// patience is when a run that should have ended is given up.
const patience = 30 * time.Second

// port finds one that is free.
func port(t *testing.T, kind int) int {
	t.Helper()
	fd, err := unix.Socket(unix.AF_INET, kind, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if err := unix.Bind(fd, sockaddr(local.Addr, 0)); err != nil {
		t.Fatal(err)
	}
	sa, err := unix.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	return portOf(sa)
}

func TestTimersComeInOrder(t *testing.T) {
	l := loop(t)
	var came []int
	now := l.Now()
	for i, after := range []time.Duration{3, 1, 2, 1, 0} {
		l.At(now+after*time.Millisecond, func() { came = append(came, i) })
	}
	ticks := 0
	l.Every(now, time.Millisecond, func() bool { ticks++; return ticks < 4 })
	l.At(now+10*time.Millisecond, l.End)
	if err := l.Run(now + patience); err != nil {
		t.Fatal(err)
	}
	if want := []int{4, 1, 3, 2, 0}; !slices.Equal(came, want) || ticks != 4 {
		t.Errorf("came %v, want %v; %d ticks", came, want, ticks)
	}
}

func TestBulk(t *testing.T) {
	for name, sourceDials := range map[string]bool{"the sink connects": false, "the source connects": true} {
		t.Run(name, func(t *testing.T) {
			l := loop(t)
			const bytes, count = 3_000_001, 3
			done := 0
			flows, err := l.StartBulk(BulkSpec{
				Source: local, Sink: local, SourceDials: sourceDials, Port: port(t, unix.SOCK_STREAM), Count: count,
				CC: "cubic", NotsentLowat: 65536, Bytes: bytes, Start: l.Now(),
			}, func(f *Flow) {
				if done++; done == count {
					l.End()
				}
			})
			if err != nil {
				t.Fatal(err)
			}
			if err := l.Run(l.Now() + patience); err != nil {
				t.Fatal(err)
			}
			for _, f := range flows {
				info, ok := f.Info()
				if f.Received != bytes || f.Finished < f.Started || f.Err != nil || !ok || info.Bytes_acked == 0 {
					t.Errorf("received %d of %d, started %v, finished %v, %v, TCP_INFO %v", f.Received, bytes,
						f.Started, f.Finished, f.Err, ok)
				}
			}
		})
	}
}

func TestBulkStops(t *testing.T) {
	l := loop(t)
	flows, err := l.StartBulk(BulkSpec{Source: local, Sink: local, Port: port(t, unix.SOCK_STREAM), Count: 1,
		Start: l.Now(), Stop: l.Now() + 50*time.Millisecond}, nil)
	if err != nil {
		t.Fatal(err)
	}
	var before int64
	l.At(l.Now()+500*time.Millisecond, func() { flows[0].Catch(); before = flows[0].Received })
	l.At(l.Now()+600*time.Millisecond, l.End)
	if err := l.Run(l.Now() + patience); err != nil {
		t.Fatal(err)
	}
	flows[0].Catch()
	if before == 0 || flows[0].Received != before {
		t.Errorf("received %d, and %d later", before, flows[0].Received)
	}
}

func TestBulkRefused(t *testing.T) {
	l := loop(t)
	if _, err := l.StartBulk(BulkSpec{Source: local, Sink: local, Port: port(t, unix.SOCK_STREAM), Count: 1,
		CC: "no_such"}, nil); err == nil {
		t.Error("an unknown congestion control was accepted")
	}
}

func TestProbesAndSessions(t *testing.T) {
	l := loop(t)
	begin, stop := l.Now(), l.Now()+200*time.Millisecond
	echo, err := l.StartProbe(ProbeSpec{From: local, To: local, Port: port(t, unix.SOCK_DGRAM),
		Interval: 5 * time.Millisecond, Size: 64, Start: begin, Stop: stop})
	if err != nil {
		t.Fatal(err)
	}
	stream, err := l.StartProbe(ProbeSpec{OneWay: true, From: local, To: local, Port: port(t, unix.SOCK_DGRAM),
		Interval: 5 * time.Millisecond, Size: 1200, Start: begin, Stop: stop})
	if err != nil {
		t.Fatal(err)
	}
	typing, err := l.StartSession(SessionSpec{From: local, To: local, Port: port(t, unix.SOCK_STREAM), Request: 48,
		Reply: 96, Interval: 10 * time.Millisecond, Start: begin, Stop: stop})
	if err != nil {
		t.Fatal(err)
	}
	// A reply of many packets, and a request that arrives in several.
	asking, err := l.StartSession(SessionSpec{From: local, To: local, Port: port(t, unix.SOCK_STREAM), Request: 100_000,
		Reply: 700_001, Wait: true, Start: begin, Stop: stop})
	if err != nil {
		t.Fatal(err)
	}
	l.At(stop+200*time.Millisecond, l.End)
	if err := l.Run(begin + patience); err != nil {
		t.Fatal(err)
	}
	for name, s := range map[string]*Samples{"echo": echo, "stream": stream, "typing": typing, "asking": asking} {
		if len(s.List) < 2 || s.Err != nil {
			t.Errorf("%s: %d samples, %v", name, len(s.List), s.Err)
		}
		for i, sample := range s.List[:max(0, len(s.List)-1)] { // the last may have been cut off
			if sample.Delay < 0 {
				t.Errorf("%s: no answer to number %d", name, i)
			}
		}
	}
}

func TestECN(t *testing.T) {
	l := loop(t)
	for _, c := range []struct {
		name          string
		host          Host
		level, option int
	}{
		{"IPv4", local, unix.IPPROTO_IP, unix.IP_TOS},
		{"IPv6", Host{Addr: netip.MustParseAddr("::1")}, unix.IPPROTO_IPV6, unix.IPV6_TCLASS},
	} {
		t.Run(c.name, func(t *testing.T) {
			fd, err := l.socket(c.host, unix.SOCK_DGRAM)
			if err != nil {
				t.Skipf("skipped, not passed: this machine has no %s: %v", c.name, err)
			}
			defer unix.Close(fd)
			if err := setECN(fd, c.host, 1); err != nil {
				t.Fatal(err)
			}
			if ecn, err := unix.GetsockoptInt(fd, c.level, c.option); err != nil || ecn != 1 {
				t.Errorf("the field is %d, %v; want 1", ecn, err)
			}
		})
	}
}

func TestLostIsNotAnswered(t *testing.T) {
	l := loop(t)
	// Nobody listens there.
	out, err := l.connect(local, local, unix.SOCK_DGRAM, port(t, unix.SOCK_DGRAM), noPreparation)
	if err != nil {
		t.Fatal(err)
	}
	s := &Samples{}
	l.sendDatagrams(out, s, l.Now(), l.Now()+20*time.Millisecond, 5*time.Millisecond, 64)
	l.At(l.Now()+50*time.Millisecond, l.End)
	if err := l.Run(l.Now() + patience); err != nil {
		t.Fatal(err)
	}
	if len(s.List) != 4 || slices.ContainsFunc(s.List, func(x sample) bool { return x.Delay >= 0 }) {
		t.Errorf("%+v", s.List)
	}
}

// Connections of a source begin when each is to, and carry what each is to.
func TestBulkEach(t *testing.T) {
	l := loop(t)
	var each []Fetch
	for i := range 5 {
		each = append(each, Fetch{l.Now() + time.Duration(5-i)*10*time.Millisecond, int64(1000*i + 1)})
	}
	done := 0
	flows, err := l.StartBulk(BulkSpec{Source: local, Sink: local, Port: port(t, unix.SOCK_STREAM), Each: each},
		func(*Flow) {
			if done++; done == len(each) {
				l.End()
			}
		})
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Run(l.Now() + patience); err != nil || done != len(each) {
		t.Fatalf("%d of %d done, %v", done, len(each), err)
	}
	for i, f := range flows {
		if f.Received != each[i].Bytes || f.Started < each[i].Start {
			t.Errorf("%d: %d of %d bytes, started at %v, wanted %v", i, f.Received, each[i].Bytes, f.Started,
				each[i].Start)
		}
	}
}

// An application that has a chunk to send at a time sends no more.
func TestBulkChunks(t *testing.T) {
	l := loop(t)
	const chunk, interval = 1000, 20 * time.Millisecond
	begin := l.Now()
	flows, err := l.StartBulk(BulkSpec{Source: local, Sink: local, Port: port(t, unix.SOCK_STREAM), Count: 1,
		Chunk: chunk, Interval: interval, Start: begin}, nil)
	if err != nil {
		t.Fatal(err)
	}
	enough := false
	l.Every(begin, time.Millisecond, func() bool {
		flows[0].Catch()
		if most := (int64((l.Now()-begin)/interval) + 1) * chunk; flows[0].Received > most {
			t.Errorf("%d bytes after %v", flows[0].Received, l.Now()-begin)
		}
		if enough = flows[0].Received >= 4*chunk; enough {
			l.End()
		}
		return !enough
	})
	if err := l.Run(begin + patience); err != nil || !enough {
		t.Errorf("received %d, %v", flows[0].Received, err)
	}
}
