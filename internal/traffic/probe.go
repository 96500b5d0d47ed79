// SPDX-License-Identifier: Apache-2.0

package traffic

import (
	"encoding/binary"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"
)

// sample is one timed exchange.
type sample struct {
	At    time.Duration // when it was sent
	Delay time.Duration // round trip, or one way for a stream; negative while it is outstanding or when it was lost
}

// Samples is what a probe, session or stream has seen, in the order sent.
type Samples struct {
	List []sample
	Err  error // what ended it early
}

const unanswered = -1

// udp carries a sequence number and is filled up to the wanted size.
const udpHeader = 8

// ProbeSpec is UDP datagrams from From to To, which answers each unless they go one way.
type ProbeSpec struct {
	From, To    Host
	Port        int
	Via         netip.Addr    // where From finds To
	Interval    time.Duration // between datagrams
	Size        int           // UDP payload in bytes, at least 8
	ECN         int           // the ECN field of every datagram, 0 to 3
	OneWay      bool          // time the way there: both ends read the same clock
	Start, Stop time.Duration
}

// StartProbe sends one datagram every interval and times it.
func (l *Loop) StartProbe(spec ProbeSpec) (*Samples, error) {
	far, err := l.bound(spec.To, unix.SOCK_DGRAM, spec.Port)
	if err != nil {
		return nil, err
	}
	if !spec.OneWay {
		buf := make([]byte, 65536)
		l.Watch(far, unix.EPOLLIN, func() {
			for {
				n, from, err := unix.Recvfrom(far, buf, 0)
				if err != nil {
					return
				}
				_ = unix.Sendto(far, buf[:n], 0, from)
			}
		})
		if err := setECN(far, spec.To, spec.ECN); err != nil {
			return nil, err
		}
	}
	out, err := l.connect(spec.From, spec.To.via(spec.Via), unix.SOCK_DGRAM, spec.Port,
		func(fd int) error { return setECN(fd, spec.From, spec.ECN) })
	if err != nil {
		return nil, err
	}
	in := out
	if spec.OneWay {
		in = far
	}
	s := &Samples{}
	l.Watch(in, unix.EPOLLIN, func() { l.receive(in, s) })
	l.sendDatagrams(out, s, spec.Start, spec.Stop, spec.Interval, spec.Size)
	return s, nil
}

// setECN sets the ECN field of what a UDP socket sends, which TCP would not let anybody.
func setECN(fd int, h Host, ecn int) error {
	if h.Addr.Is6() {
		return unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_TCLASS, ecn)
	}
	return unix.SetsockoptInt(fd, unix.IPPROTO_IP, unix.IP_TOS, ecn)
}

func (l *Loop) sendDatagrams(fd int, s *Samples, start, stop, interval time.Duration, size int) {
	payload := make([]byte, max(size, udpHeader))
	l.Every(start, interval, func() bool {
		if l.now >= stop {
			return false
		}
		binary.LittleEndian.PutUint64(payload, uint64(len(s.List)))
		s.List = append(s.List, sample{l.now, unanswered})
		_, _ = write(fd, payload) // a full socket buffer is a lost datagram, and counted as one
		return true
	})
}

func (l *Loop) receive(fd int, s *Samples) {
	var buf [4096]byte
	for {
		n, err := read(fd, buf[:])
		if err != 0 || n < udpHeader {
			return
		}
		seq := binary.LittleEndian.Uint64(buf[:])
		if seq < uint64(len(s.List)) && s.List[seq].Delay == unanswered {
			s.List[seq].Delay = l.now - s.List[seq].At
		}
	}
}

// SessionSpec is a TCP connection of requests and replies, with Nagle's algorithm off as in ssh.
type SessionSpec struct {
	From, To       Host
	Port           int
	Via            netip.Addr    // where From finds To
	Request, Reply int           // bytes
	Interval       time.Duration // between requests, or from a reply to the next request
	CC             string        // congestion control of who answers; "": the sysctl's
	Wait           bool          // wait for a reply before asking again; a person typing does not
	Start, Stop    time.Duration
}

type session struct {
	*Loop
	spec     SessionSpec
	s        *Samples
	client   int
	received int // bytes of replies
	answered int
}

// StartSession connects at spec.Start and times each request until the last byte of its reply.
func (l *Loop) StartSession(spec SessionSpec) (*Samples, error) {
	listener, err := l.bound(spec.To, unix.SOCK_STREAM, spec.Port)
	if err != nil {
		return nil, err
	}
	if err := setCC(listener, spec.CC); err != nil { // what is accepted has its listener's
		return nil, err
	}
	ss := &session{Loop: l, spec: spec, s: &Samples{}}
	l.Watch(listener, unix.EPOLLIN, func() {
		fd, _, err := unix.Accept4(listener, unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK)
		if err == nil {
			ss.serve(fd)
		}
	})
	l.At(spec.Start, ss.connect)
	return ss.s, nil
}

func (ss *session) connect() {
	fd, err := ss.Loop.connect(ss.spec.From, ss.spec.To.via(ss.spec.Via), unix.SOCK_STREAM, ss.spec.Port, noPreparation)
	if err != nil {
		ss.Fail(err)
		return
	}
	ss.client = fd
	_ = unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1)
	ss.Watch(fd, unix.EPOLLOUT, func() { // established
		ss.Watch(fd, unix.EPOLLIN, ss.read)
		if ss.spec.Wait {
			ss.ask()
			return
		}
		ss.Every(ss.now, ss.spec.Interval, ss.ask)
	})
}

func (ss *session) ask() bool {
	if ss.now >= ss.spec.Stop || ss.s.Err != nil {
		return false
	}
	ss.s.List = append(ss.s.List, sample{ss.now, unanswered})
	if n, err := write(ss.client, make([]byte, ss.spec.Request)); err != 0 || n != ss.spec.Request {
		ss.s.Err = unix.ENOBUFS // a session that cannot even queue its keystrokes has stopped
		if err != 0 {
			ss.s.Err = err
		}
		return false
	}
	return true
}

func (ss *session) read() {
	var buf [4096]byte
	for {
		n, err := read(ss.client, buf[:])
		if err == unix.EAGAIN || err == unix.EINTR {
			break
		}
		if err != 0 || n == 0 {
			ss.s.Err = unix.ECONNRESET
			ss.Forget(ss.client)
			return
		}
		ss.received += n
	}
	for ss.answered < len(ss.s.List) && ss.received >= (ss.answered+1)*ss.spec.Reply {
		ss.s.List[ss.answered].Delay = ss.now - ss.s.List[ss.answered].At
		ss.answered++
		if ss.spec.Wait {
			ss.At(ss.now+ss.spec.Interval, func() { ss.ask() })
		}
	}
}

// serve answers every whole request with a reply, however the bytes are cut.
func (ss *session) serve(fd int) {
	_ = unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1)
	var got, owed int
	reply := make([]byte, 65536)
	var pump func()
	pump = func() {
		for {
			n, err := read(fd, reply)
			if err == unix.EAGAIN || err == unix.EINTR {
				break
			}
			if err != 0 || n == 0 {
				ss.Forget(fd)
				return
			}
			got += n
			owed += got / ss.spec.Request * ss.spec.Reply
			got %= ss.spec.Request
		}
		for owed > 0 {
			n, err := write(fd, reply[:min(owed, len(reply))])
			if err != 0 {
				break
			}
			owed -= n
		}
		events := uint32(unix.EPOLLIN)
		if owed > 0 {
			events |= unix.EPOLLOUT
		}
		ss.Watch(fd, events, pump)
	}
	ss.Watch(fd, unix.EPOLLIN, pump)
}
