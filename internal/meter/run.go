// SPDX-License-Identifier: Apache-2.0

package meter

import (
	"context"
	"net"
	"sync"
	"time"
)

// Options say how to measure.
type Options struct {
	Time     time.Duration  // of all phases together
	Conns    int            // bulk connections in each direction
	CC       string         // congestion control of the bulk senders; "": each host's own
	Both     bool           // both directions at once, after each alone
	Down     bool           // downloads only
	Plain    bool           // bulk data goes without TLS
	Progress func(Progress) // may be nil
}

// Progress is how far a measurement is.
type Progress struct {
	Phase        string
	Elapsed, All time.Duration
	Goodput      float64 // Mbit/s in the last while
	RTT          float64 // ms, the newest
}

// Recording is all that was seen; Summarize makes a Result of it.
type Recording struct {
	Target   string    `json:"target"`
	Time     time.Time `json:"time"`
	Local    string    `json:"local"` // this host's name
	Remote   Hello     `json:"remote"`
	Probe    string    `json:"probe"`    // "udp", "https", "ssh" or "tcp"
	Interval float64   `json:"interval"` // ms between two probes
	Samples  []Sample  `json:"samples"`
	Spans    []Span    `json:"spans"`
	Notes    []string  `json:"notes,omitempty"`

	Plain bool       `json:"plain,omitempty"` // bulk data went without TLS
	Paths []PathSeen `json:"paths,omitempty"` // before the first phase
	Hop   *HopSeen   `json:"hop,omitempty"`   // nil: not known
}

// Span is a phase: when it was, in seconds since the beginning, and its flows as both ends saw them.
type Span struct {
	Name  string   `json:"name"`
	From  float64  `json:"from"`
	To    float64  `json:"to"`
	Local flowList `json:"local,omitempty"`
	Far   flowList `json:"far,omitempty"`
	// meanwhile, by the device to the other end; nil: not known
	Passed *Passed `json:"passed,omitempty"`
}

// rest lies between two phases, so that the queue of one is gone before the next.
const rest = 500 * time.Millisecond

// Phases are what is done, and for how long. A fifth of the time is idle.
func (o Options) Phases() (names []string, idle, load time.Duration) {
	names = []string{Idle, Download}
	if !o.Down {
		names = append(names, Upload)
	}
	if o.Both {
		names = append(names, Both)
	}
	loads := time.Duration(len(names) - 1)
	idle = o.Time / 5
	return names, idle, (o.Time-idle)/loads - rest
}

// peer is the other end of a measurement, in one protocol.
type peer interface {
	// open starts the flows of a phase. Data is under way, or asked for, when it returns.
	open(ctx context.Context, phase string) ([]*bulk, error)
	// close ends a phase's flows. It gives what this end and the other one saw of them, and a note where the other
	// does not tell.
	close(ctx context.Context, phase string, flows []*bulk) (local, far []Flow, note string)
}

// meter is a measurement that runs.
type meter struct {
	Options
	peer  peer
	probe *probe
	rec   *Recording

	to     string // host:port of the other end
	device string // to it; "": not known
}

// run measures, while a probe runs. When the context ends it keeps what there is.
func (m *meter) run(ctx context.Context, run func(context.Context)) error {
	probing, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	m.device = deviceTo(m.to)
	m.probe.began = time.Now()
	m.rec.Time = m.probe.began.UTC().Truncate(time.Millisecond)
	done := make(chan struct{})
	go func() { defer close(done); run(probing) }()
	hop := AskHop(probing, m.to, m.probe.began)
	err := m.all(ctx)
	stop()
	<-done
	m.rec.Hop = hop()
	m.rec.Samples = m.probe.samples
	return err
}

func (m *meter) all(ctx context.Context) error {
	names, idle, load := m.Phases()
	for _, name := range names {
		if name == Idle {
			m.span(ctx, name, idle, nil)
			continue
		}
		wait(ctx, rest)
		if ctx.Err() != nil {
			break
		}
		flows, err := m.peer.open(ctx, name)
		if err != nil && ctx.Err() != nil {
			break // it failed because somebody ended it
		}
		if err != nil {
			return err
		}
		m.span(ctx, name, load, flows)
		s := &m.rec.Spans[len(m.rec.Spans)-1]
		var note string
		if s.Local, s.Far, note = m.peer.close(ctx, name, flows); note != "" {
			m.rec.Notes = append(m.rec.Notes, note)
		}
		s.align(flows, m.probe.began, m.probe.least())
	}
	return nil
}

// align has the bins begin with the span, and not with the flows. Those were opened before, and had to come and go once
// more until data came. The other end has seen a flow half of an RTT after this one.
func (s *Span) align(flows []*bulk, began time.Time, rtt float64) {
	mean := 0.0
	for i, b := range flows {
		lead := s.From - b.rec.Began().Sub(began).Seconds()
		mean += lead / float64(len(flows))
		if len(s.Local) == len(flows) {
			s.Local[i].Shift(lead)
		}
	}
	for i := range s.Far {
		s.Far[i].Shift(mean - rtt/1e3/2)
	}
}

func wait(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

// span lets a phase last, and says how it goes.
func (m *meter) span(ctx context.Context, name string, d time.Duration, flows []*bulk) {
	s := Span{Name: name, From: m.probe.now()}
	passed := readPassed(m.device)
	var lately Lately
	lately.Goodput(time.Now(), 0)
	for end := time.Now().Add(d); time.Now().Before(end) && ctx.Err() == nil; {
		wait(ctx, min(time.Until(end), 200*time.Millisecond))
		if m.Progress == nil {
			continue
		}
		sum := int64(0)
		for _, f := range flows {
			sum += f.rec.Bytes()
		}
		p := Progress{Phase: name, RTT: m.probe.newest(), All: m.Time,
			Elapsed: time.Since(m.probe.began), Goodput: lately.Goodput(time.Now(), sum)}
		m.Progress(p)
	}
	s.To, s.Passed = m.probe.now(), readPassed(m.device).since(passed)
	m.rec.Spans = append(m.rec.Spans, s)
}

// bulk is a bulk connection.
type bulk struct {
	direction string
	conn      net.Conn // nil: the context alone ends it
	rec       *Recorder
	cancel    context.CancelFunc
	done      chan error
}

// together starts n flows of each direction that a phase has; one that fails ends them all.
func together(ctx context.Context, phase string, n int, start func(context.Context, string) (*bulk, error)) (
	all []*bulk, err error) {
	var mu sync.Mutex
	var group sync.WaitGroup
	for _, direction := range []string{Download, Upload} {
		if phase != direction && phase != Both {
			continue
		}
		for range n {
			group.Go(func() {
				b, e := start(ctx, direction)
				mu.Lock()
				defer mu.Unlock()
				if e != nil {
					err = e
					return
				}
				all = append(all, b)
			})
		}
	}
	group.Wait()
	if err != nil {
		for _, b := range all {
			b.end()
		}
		return nil, err
	}
	return all, nil
}

// end stops a flow at once: what is still queued is not sent.
func (b *bulk) end() Flow {
	f := b.stop()
	b.shut()
	return f
}

// stop ends the counting. A flow that has ended before anybody asked it to says why.
func (b *bulk) stop() Flow {
	said := ""
	select {
	case err := <-b.done:
		said = err.Error()
	default:
	}
	return b.rec.Stop(said)
}

func (b *bulk) shut() {
	b.cancel()
	if b.conn == nil {
		return
	}
	if c, ok := rawConn(b.conn).(*net.TCPConn); ok {
		c.SetLinger(0)
		c.Close()
	}
	b.conn.Close()
}
