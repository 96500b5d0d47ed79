// SPDX-License-Identifier: Apache-2.0

package meter

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"weir/internal/calibrate"
	"weir/internal/hint"
	"weir/internal/wire"
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
	Peer  string    `json:"peer"` // or several, with commas
	Time  time.Time `json:"time"`
	Local string    `json:"local"` // this host's name
	CC    string    `json:"cc"`    // what has filled the link
	Probe string    `json:"probe"` // what was asked by: udp, https, tcp (handshakes) or ssh
}

// step is the time between two looks at all connections.
const step = 10 * time.Millisecond

// probeInterval is the time between two probes of a calibration: on a slow link they are part of the load.
const probeInterval = 20 * time.Millisecond

// filler is a calibration's link to its peers: connections that send for ever, to each peer in turn.
type filler struct {
	cc     string
	peers  []*Peer
	device func() (Counters, bool)
	prober *Prober // of the first peer

	first   Counters
	load    calibrate.Load
	conns   []*filledConn
	gone    calibrate.Sample // of connections that were closed
	samples []calibrate.Sample
}

// filledConn is a connection to the peer of a number.
type filledConn struct {
	*Filling
	peer int
}

// Send brings a load into force.
func (f *filler) Send(ctx context.Context, l calibrate.Load) error {
	if f.prober.flood != nil {
		f.prober.flood.end()
	}
	if l.Datagrams {
		for _, c := range f.conns {
			f.close(c)
		}
		f.conns, f.load = nil, l
		f.prober.flood.begin(l.Segment, l.Rate)
		return nil
	}
	var old []*filledConn
	if l.Segment != f.load.Segment {
		old, f.conns = f.conns, nil
	} else if n := max(l.Connections, 0); n < len(f.conns) {
		old, f.conns = slices.Clone(f.conns[n:]), f.conns[:n]
	}
	err := f.grow(ctx, l)
	f.load = l
	for i, c := range f.conns {
		if e := c.pace(l, i); e != nil && err == nil {
			err = fmt.Errorf("SO_MAX_PACING_RATE: %w", e)
		}
	}
	for _, c := range old {
		f.close(c)
	}
	return err
}

// Datagrams reports whether they are counted by the peer. Of several, none alone takes what the link does.
func (f *filler) Datagrams() bool { return f.prober.flood != nil && len(f.peers) == 1 }

// loadSpread is how much more than its part of a load the last connection may send, and the first less. Were the parts
// the same, one's packets would meet those of another all the time or never, by chance.
const loadSpread = 0.05

// payload is what the ith connection may send of a load, in bytes a second. Packets have headers of some bytes.
func payload(l calibrate.Load, i int, headers float64) float64 {
	if l.Rate == 0 || l.Connections == 0 {
		return 0
	}
	packet := float64(wire.EthernetMTU)
	if l.Segment > 0 {
		packet = float64(l.Segment)
	}
	part := 1 / float64(l.Connections)
	if l.Connections > 1 {
		part *= 1 + loadSpread*(2*float64(i)/float64(l.Connections-1)-1)
	}
	return l.Rate / 8 * (packet - headers) / packet * part
}

// pace has the ith connection send its part of a load.
func (c *filledConn) pace(l calibrate.Load, i int) error {
	headers, err := headersOf(c.Conn)
	if err == nil {
		err = pace(c.Conn, payload(l, i, headers))
	}
	return err
}

// grow connects as many as a load lacks, all at once.
func (f *filler) grow(ctx context.Context, l calibrate.Load) error {
	var mu sync.Mutex
	var group sync.WaitGroup
	var failed error
	for i := len(f.conns); i < l.Connections; i++ {
		peer := i % len(f.peers)
		group.Go(func() {
			c, err := f.peers[peer].Fill(ctx, f.cc, l.Segment)
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				f.conns = append(f.conns, &filledConn{c, peer})
				err = f.conns[len(f.conns)-1].pace(l, len(f.conns)-1)
			}
			if err != nil {
				failed = err
				return
			}
			go c.Send()
		})
	}
	group.Wait()
	return failed
}

// close ends a connection at once: what is still queued is not sent.
func (f *filler) close(c *filledConn) {
	readSending(c.Conn, &f.gone)
	if c.End != nil {
		c.End()
		return
	}
	if t, ok := rawConn(c.Conn).(*net.TCPConn); ok {
		t.SetLinger(0)
		t.Close()
	}
	c.Conn.Close()
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
		rtt, err := readSending(c.Conn, &s)
		if err != nil {
			return hint.New("the peer ended a connection of the test", "its log: a limit of its own may be reached")
		}
		if c.peer == 0 { // the probes' way: other peers are nearer or farther
			rtts = append(rtts, rtt)
		}
	}
	if sent, again, ok := segmentsSent(); ok {
		s.OtherSegments, s.OtherRetransmitted = sent-s.Segments, again-s.Retransmitted
	}
	if f.prober.flood != nil {
		f.prober.flood.look(&s)
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
	s.At = time.Since(f.prober.began)
	f.samples = append(f.samples, s)
	return nil
}

// Seen is all that was seen.
func (f *filler) Seen() ([]calibrate.Sample, []calibrate.Probe) {
	asked := f.prober.Seen()
	probes := make([]calibrate.Probe, len(asked))
	const ms = float64(time.Millisecond)
	for i, s := range asked {
		p := &probes[i]
		*p = calibrate.Probe{At: time.Duration(s.At * float64(time.Second)), RTT: -1}
		if s.RTT >= 0 {
			p.RTT, p.There = time.Duration(s.RTT*ms), p.At+time.Duration(s.Up*ms)
			p.Arrived = float64(s.counted)
		}
	}
	return f.samples, probes
}

// Calibrate finds what the way to some peers carries, from here to there. Several are for a link that no one of them
// can take all of; the first is the one that is asked how long packets wait.
func Calibrate(ctx context.Context, peers []*Peer, o CalibrateOptions) (*Calibrated, error) {
	prober, err := peers[0].Ask(ctx)
	if err != nil {
		return nil, err
	}
	probing, stop := context.WithCancel(context.WithoutCancel(ctx))
	done := make(chan struct{})
	go func() { defer close(done); prober.Run(probing) }()
	defer func() { stop(); <-done }()
	f := &filler{cc: o.CC, peers: peers, device: o.Device, prober: prober}
	found, err := calibrate.Run(ctx, f, o.Options)
	if err != nil {
		return nil, err
	}
	result := &Calibrated{Result: *found, Time: time.Now().UTC().Truncate(time.Second), CC: o.CC, Probe: prober.By}
	var names []string
	for _, p := range peers {
		names = append(names, p.Name)
		if p.Note != "" && !slices.Contains(result.Notes, p.Note) {
			result.Notes = append(result.Notes, p.Note)
		}
	}
	result.Peer = strings.Join(names, ", ")
	return result, nil
}
