// SPDX-License-Identifier: Apache-2.0

package meter

import (
	"context"
	"net"
	"sync"
	"time"

	"weir/internal/stats"
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
	browser  bool      // a page made it, which has no kernel to ask
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

// phasePause lies between two phases, so that the queue of one is gone before the next.
const phasePause = 500 * time.Millisecond

// phases are what is done, and for how long. A fifth of the time is idle.
func (o Options) phases() (names []string, idle, load time.Duration) {
	names = []string{Idle, Download}
	if !o.Down {
		names = append(names, Upload)
	}
	if o.Both {
		names = append(names, Both)
	}
	loads := time.Duration(len(names) - 1)
	idle = o.Time / 5
	return names, idle, (o.Time-idle)/loads - phasePause
}

// Transport carries the flows of a measurement, in one protocol.
type Transport interface {
	// Open starts the flows of a phase. Data is under way, or asked for, when it returns.
	Open(ctx context.Context, phase string) ([]*Bulk, error)
	// Close ends a phase's flows. It returns what this end and the other one saw of them, and a note where the other
	// does not tell.
	Close(ctx context.Context, phase string, flows []*Bulk) (local, far []Flow, note string)
}

// Session is a measurement over a transport, while a prober asks how long packets take.
type Session struct {
	Options
	Transport Transport
	Prober    *Prober
	Recording *Recording // what is seen is added to it

	To     string // host:port of the other end; "": not known
	Device string // by which packets go there, whose counters are read; "": not known
}

// Run measures. When the context ends it keeps what there is. It is an error if the prober cannot go on.
func (m *Session) Run(ctx context.Context) error {
	rec, began := m.Recording, time.Now()
	probing, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	going, end := context.WithCancel(ctx)
	defer end()
	m.Prober.began = began
	rec.Probe, rec.Interval = m.Prober.By, float64(m.Prober.Interval)/float64(time.Millisecond)
	rec.Time = began.UTC().Truncate(time.Millisecond)
	ended := make(chan error, 1)
	go func() { ended <- m.Prober.Run(probing); end() }()
	hop := AskHop(probing, m.To, began)
	err := m.all(going)
	stop()
	if broken := <-ended; broken != nil && ctx.Err() == nil {
		err = broken // the rest would say that the other end is slow
	}
	rec.Hop, rec.Samples = hop(), m.Prober.samples
	return err
}

func (m *Session) all(ctx context.Context) error {
	names, idle, load := m.phases()
	for _, name := range names {
		if name == Idle {
			m.span(ctx, name, idle, nil)
			continue
		}
		wait(ctx, phasePause)
		if ctx.Err() != nil {
			break
		}
		flows, err := m.Transport.Open(ctx, name)
		if err != nil && ctx.Err() != nil {
			break // it failed because somebody ended it
		}
		if err != nil {
			return err
		}
		m.span(ctx, name, load, flows)
		s := &m.Recording.Spans[len(m.Recording.Spans)-1]
		var note string
		if s.Local, s.Far, note = m.Transport.Close(ctx, name, flows); note != "" {
			m.Recording.Notes = append(m.Recording.Notes, note)
		}
		s.align(m.Prober.began, m.Prober.minRTT())
	}
	return nil
}

// align has the bins begin with the span, and not with the flows. Those were opened before, and had to come and go once
// more until data came. The other end has seen a flow half of an RTT, in ms, after this one.
func (s *Span) align(began time.Time, rtt float64) {
	leads, all := []float64{}, [][]Flow{s.Local, s.Far}
	for _, flows := range all {
		for i := range flows {
			if f := &flows[i]; !f.began.IsZero() {
				leads = append(leads, s.From-f.began.Sub(began).Seconds())
				f.Shift(leads[len(leads)-1])
			}
		}
	}
	if len(leads) == 0 {
		return
	}
	for _, flows := range all {
		for i := range flows {
			if f := &flows[i]; f.began.IsZero() && len(f.Bins) > 0 {
				f.Shift(stats.Mean(leads) - rtt/1e3/2)
			}
		}
	}
}

func wait(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

// span lets a phase last, and says how it goes.
func (m *Session) span(ctx context.Context, name string, d time.Duration, flows []*Bulk) {
	s := Span{Name: name, From: m.Prober.now()}
	passed := readPassed(m.Device)
	var speed goodputMeter
	speed.look(time.Now(), 0)
	for end := time.Now().Add(d); time.Now().Before(end) && ctx.Err() == nil; {
		wait(ctx, min(time.Until(end), 200*time.Millisecond))
		if m.Progress == nil {
			continue
		}
		sum := int64(0)
		for _, f := range flows {
			sum += f.rec.Bytes()
		}
		p := Progress{Phase: name, RTT: m.Prober.newestRTT(), All: m.Time,
			Elapsed: time.Since(m.Prober.began), Goodput: speed.look(time.Now(), sum)}
		m.Progress(p)
	}
	s.To, s.Passed = m.Prober.now(), readPassed(m.Device).since(passed)
	m.Recording.Spans = append(m.Recording.Spans, s)
}

// Bulk is a bulk connection under way.
type Bulk struct {
	direction string
	conn      net.Conn // nil: cancel alone ends it
	rec       *Recorder
	cancel    func()
	done      chan error // why it has ended
}

// NewBulk returns a flow that ends when cancel is called. Its connection is not known here.
func NewBulk(direction string, cancel func()) *Bulk {
	return newBulk(direction, nil, cancel)
}

func newBulk(direction string, conn net.Conn, cancel func()) *Bulk {
	return &Bulk{direction: direction, conn: conn, rec: Record(conn, direction, direction == Upload), cancel: cancel,
		done: make(chan error, 1)}
}

// OpenFlows starts n flows of each direction that a phase has, all at once. One that fails ends them all.
func OpenFlows(ctx context.Context, phase string, n int, start func(context.Context, string) (*Bulk, error)) (
	all []*Bulk, err error) {
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
			b.End()
		}
		return nil, err
	}
	return all, nil
}

// Carry moves block after block, each by a Read or a Write, until that fails. That is why the flow has ended.
func (b *Bulk) Carry(move func([]byte) (int, error), block []byte) {
	b.done <- b.carry(move, block)
}

func (b *Bulk) carry(move func([]byte) (int, error), block []byte) error {
	for {
		n, err := move(block)
		b.rec.Add(n)
		if err != nil {
			return err
		}
	}
}

// End stops a flow at once: what is still queued is not sent.
func (b *Bulk) End() Flow {
	f := b.Stop()
	b.Shut()
	return f
}

// Stop ends the counting. A flow that has ended before anybody asked it to says why.
func (b *Bulk) Stop() Flow {
	said := ""
	select {
	case err := <-b.done:
		said = err.Error()
	default:
	}
	return b.rec.Stop(said)
}

// Shut closes the connection of a flow that was stopped.
func (b *Bulk) Shut() {
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
