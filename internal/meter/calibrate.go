// SPDX-License-Identifier: Apache-2.0

package meter

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"sync"
	"time"

	"weir/internal/calibrate"
)

// Counters are those of the queue of the device by which packets leave.
type Counters struct{ Bytes, Packets, Drops uint64 }

// CalibrateOptions say how to calibrate the way to a peer.
type CalibrateOptions struct {
	calibrate.Options
	CC     string                       // congestion control that fills the link; "": this host's own
	Device func() (c Counters, ok bool) // of the device to the peer; nil: not known
}

// Calibrated is a calibration's result, and how it was made.
type Calibrated struct {
	calibrate.Result
	Peer  string    `json:"peer"`
	Time  time.Time `json:"time"`
	Local string    `json:"local"` // this host's name
	CC    string    `json:"cc"`    // what has filled the link
	Probe string    `json:"probe"` // what was asked by: "udp" or "https"
}

// step is the time between two looks at all connections.
const step = 10 * time.Millisecond

// sparse is the time between two probes of a calibration: on a slow link they are part of the load.
const sparse = 20 * time.Millisecond

// filler is a calibration's link to a peer: connections that send for ever.
type filler struct {
	dial   func(ctx context.Context, packet int) (net.Conn, func(), error) // the second starts the sending
	device func() (Counters, bool)
	probe  *probe

	began   time.Time
	first   Counters
	load    calibrate.Load
	conns   []net.Conn
	gone    calibrate.Sample // of connections that were closed
	samples []calibrate.Sample
}

// Send brings a load into force.
func (f *filler) Send(ctx context.Context, l calibrate.Load) error {
	var old []net.Conn
	if l.Segment != f.load.Segment {
		old, f.conns = f.conns, nil
	} else if n := max(l.Connections, 0); n < len(f.conns) {
		old, f.conns = slices.Clone(f.conns[n:]), f.conns[:n]
	}
	err := f.grow(ctx, l)
	f.load = l
	for _, c := range f.conns {
		if e := pace(c, payload(l)); e != nil && err == nil {
			err = fmt.Errorf("SO_MAX_PACING_RATE: %w", e)
		}
	}
	for _, c := range old {
		f.close(c)
	}
	return err
}

// payload is what one connection may send of it, in bytes a second.
func payload(l calibrate.Load) float64 {
	if l.Rate == 0 || l.Connections == 0 {
		return 0
	}
	const headers = 52 // of IPv4 and TCP with its time stamps
	packet := float64(calibrate.IPPacket)
	if l.Segment > 0 {
		packet = float64(l.Segment)
	}
	return l.Rate / 8 * (packet - headers) / packet / float64(l.Connections)
}

// grow connects as many as a load lacks, all at once.
func (f *filler) grow(ctx context.Context, l calibrate.Load) error {
	var mu sync.Mutex
	var group sync.WaitGroup
	var failed error
	for range l.Connections - len(f.conns) {
		group.Go(func() {
			c, start, err := f.dial(ctx, l.Segment)
			if err == nil {
				if err = pace(c, payload(l)); err != nil {
					c.Close()
				}
			}
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				failed = err
				return
			}
			f.conns = append(f.conns, c)
			go start()
		})
	}
	group.Wait()
	return failed
}

// close ends a connection at once: what is still queued is not sent.
func (f *filler) close(c net.Conn) {
	readSending(c, &f.gone)
	if t, ok := beneath(c).(*net.TCPConn); ok {
		t.SetLinger(0)
		t.Close()
	}
	c.Close()
}

// Watch lets a time pass, and looks at all connections meanwhile.
func (f *filler) Watch(ctx context.Context, d time.Duration) error {
	tick := time.NewTicker(step)
	defer tick.Stop()
	for end := time.Now().Add(d); time.Now().Before(end); {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
		if err := f.look(); err != nil {
			return err
		}
	}
	return nil
}

func (f *filler) look() error {
	s := f.gone
	var rtts []time.Duration
	for _, c := range f.conns {
		rtt, err := readSending(c, &s)
		if err != nil {
			return &Problem{"the peer ended a connection of the test", "its log: a limit of its own may be reached"}
		}
		rtts = append(rtts, rtt)
	}
	if n := len(rtts); n > 0 {
		slices.Sort(rtts)
		s.RTT = rtts[n/2]
	}
	if f.device != nil {
		if c, ok := f.device(); ok {
			if len(f.samples) == 0 {
				f.first = c
			}
			s.DeviceBytes, s.DevicePackets = float64(c.Bytes-f.first.Bytes), float64(c.Packets-f.first.Packets)
			s.DeviceDrops = float64(c.Drops - f.first.Drops)
		}
	}
	s.At = time.Since(f.began)
	f.samples = append(f.samples, s)
	return nil
}

// Seen is all that was seen.
func (f *filler) Seen() ([]calibrate.Sample, []calibrate.Probe) {
	f.probe.mu.Lock()
	defer f.probe.mu.Unlock()
	probes := make([]calibrate.Probe, len(f.probe.samples))
	for i, s := range f.probe.samples {
		probes[i] = calibrate.Probe{At: time.Duration(s.At * float64(time.Second)), RTT: -1}
		if s.RTT >= 0 {
			probes[i].RTT = time.Duration(s.RTT * float64(time.Millisecond))
		}
	}
	return f.samples, probes
}

// Calibrate finds what the way to a weir serve carries, from here to there.
func Calibrate(ctx context.Context, t Target, o CalibrateOptions) (*Calibrated, error) {
	const most = 40 * time.Second
	t, _, err := t.settled(ctx)
	if err != nil {
		return nil, err
	}
	transport := t.transport("", nil)
	defer transport.CloseIdleConnections()
	s := &served{target: t, ask: &http.Client{Transport: transport, Timeout: 15 * time.Second}}
	if err := t.ask(ctx, s.ask, http.MethodPost, PathSession, nil, &s.hello); err != nil {
		return nil, err
	}
	if s.hello.Rate > 0 {
		return nil, &Problem{t.Addr + " takes no more than a rate of its own", "weir serve without --rate there"}
	}
	s.query = url.Values{"session": {s.hello.Session}}
	f := &filler{device: o.Device, began: time.Now()}
	f.probe = &probe{began: f.began}
	f.dial = func(ctx context.Context, packet int) (net.Conn, func(), error) { return s.fill(ctx, o.CC, packet) }
	result := &Calibrated{Peer: t.Addr, Time: time.Now().UTC().Truncate(time.Second), CC: o.CC}

	probing, stop := context.WithCancel(context.WithoutCancel(ctx))
	run := (&webProbe{f.probe, t}).run
	result.Probe = "https"
	if port := s.hello.UDP; port > 0 && port < 1<<16 {
		if u, err := openUDP(ctx, t.at(strconv.Itoa(port)), []byte(t.Token), f.probe, most, sparse); err == nil {
			run, result.Probe = u.run, "udp"
		}
	}
	done := make(chan struct{})
	go func() { defer close(done); run(probing) }()
	defer func() { stop(); <-done }()
	found, err := calibrate.Run(ctx, f, o.Options)
	if err != nil {
		return nil, err
	}
	result.Result = *found
	return result, nil
}

// fill connects, and gives what then sends for ever.
func (s *served) fill(ctx context.Context, cc string, packet int) (net.Conn, func(), error) {
	raw, err := s.target.dialSized(ctx, cc, packet)
	if err != nil {
		return nil, nil, err
	}
	conn, err := s.target.secure(ctx, raw, []string{"http/1.1"})
	if err != nil {
		return nil, nil, err
	}
	SetUnsent(conn, 128<<10)
	ctx = context.WithoutCancel(ctx)
	transport := s.target.transport("", nil)
	transport.DialTLSContext = func(context.Context, string, string) (net.Conn, error) { return conn, nil }
	r, err := s.target.request(ctx, http.MethodPost, PathUp, s.query, zeros{})
	if err != nil {
		conn.Close()
		return nil, nil, err
	}
	return conn, func() { transfer(&http.Client{Transport: transport}, r, nil) }, nil
}

// zeros is a body without end. Over TLS nothing can be compressed on the way.
type zeros struct{}

func (zeros) Read(b []byte) (int, error) {
	clear(b)
	return len(b), nil
}

var _ io.Reader = zeros{}
