// SPDX-License-Identifier: Apache-2.0

package meter

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"sync"
	"time"
)

// Options say how to measure.
type Options struct {
	Time     time.Duration  // of all phases together
	Conns    int            // bulk connections in each direction
	CC       string         // congestion control of the bulk senders; "": each host's own
	Both     bool           // both directions at once, after each alone
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
	Probe    string    `json:"probe"`    // "udp", "https" or "ssh"
	Interval float64   `json:"interval"` // ms between two probes
	Samples  []Sample  `json:"samples"`
	Spans    []Span    `json:"spans"`
	Notes    []string  `json:"notes,omitempty"`
}

// Span is a phase: when it was, in seconds since the beginning, and its flows as both ends saw them.
type Span struct {
	Name  string  `json:"name"`
	From  float64 `json:"from"`
	To    float64 `json:"to"`
	Local []Flow  `json:"local,omitempty"`
	Far   []Flow  `json:"far,omitempty"`
}

// rest lies between two phases, so that the queue of one is gone before the next.
const rest = 500 * time.Millisecond

// Phases are what is done, and for how long. A fifth of the time is idle.
func (o Options) Phases() (names []string, idle, load time.Duration) {
	names = []string{Idle, Download, Upload}
	if o.Both {
		names = append(names, Both)
	}
	loads := time.Duration(len(names) - 1)
	idle = o.Time / 5
	return names, idle, (o.Time-idle)/loads - rest
}

// meter is a measurement that runs.
type meter struct {
	Options
	target Target
	ask    *http.Client
	query  url.Values
	probe  *probe
	rec    *Recording
	seen   int // flows that the server has told of
}

// Measure measures the way to a weir serve. When the context ends it gives what there is.
func Measure(ctx context.Context, t Target, o Options) (*Recording, error) {
	transport := t.transport("", nil)
	defer transport.CloseIdleConnections()
	m := &meter{Options: o, target: t, ask: &http.Client{Transport: transport, Timeout: 15 * time.Second},
		rec: &Recording{Target: t.Addr, Time: time.Now().UTC().Truncate(time.Second)}}
	if err := t.ask(ctx, m.ask, http.MethodPost, PathSession, nil, &m.rec.Remote); err != nil {
		return nil, err
	}
	hello := m.rec.Remote
	if hello.Version != 1 {
		return nil, &Problem{fmt.Sprintf("%s speaks version %d, and this is 1", t.Addr, hello.Version),
			"the same version of weir there and here"}
	}
	if o.Time.Seconds() > hello.Seconds {
		return nil, &Problem{fmt.Sprintf("%s lets a test take %.0f s", t.Addr, hello.Seconds),
			fmt.Sprintf("--time %.0fs", hello.Seconds)}
	}
	m.query = url.Values{"session": {hello.Session}}
	if o.CC != "" {
		m.query.Set("cc", o.CC)
	}
	m.probe = &probe{began: time.Now()}
	probing, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	run := m.prober(ctx)
	m.probe.began = time.Now()
	done := make(chan struct{})
	go func() { defer close(done); run(probing) }()
	err := m.all(ctx)
	stop()
	<-done
	m.rec.Samples = m.probe.samples
	return m.rec, err
}

// prober chooses how to ask.
func (m *meter) prober(ctx context.Context) func(context.Context) {
	const ms = float64(time.Millisecond)
	if port := m.rec.Remote.UDP; port > 0 && port < 1<<16 {
		u, err := openUDP(ctx, m.target.udpAddr(port), []byte(m.target.Token), m.probe, m.Time+time.Minute)
		if err == nil {
			m.rec.Probe, m.rec.Interval = "udp", max(float64(u.params.Interval), float64(Interval))/ms
			return u.run
		}
		m.rec.Notes = append(m.rec.Notes, fmt.Sprintf("UDP port %d does not answer, so probes go by HTTPS: their RTTs "+
			"hold the servers' own time, and losses show as waits.", port))
	}
	m.rec.Probe, m.rec.Interval = "https", 2*float64(Interval)/ms
	return (&webProbe{m.probe, m.target}).run
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
		flows, err := m.open(ctx, name)
		if err != nil {
			return err
		}
		m.span(ctx, name, load, flows)
		m.collect(flows)
	}
	return nil
}

func wait(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

// span lets a phase last, and tells how it goes.
func (m *meter) span(ctx context.Context, name string, d time.Duration, flows []*bulk) {
	s := Span{Name: name, From: m.probe.now()}
	last, tick := int64(0), time.NewTicker(200*time.Millisecond)
	defer tick.Stop()
	before := time.Now()
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
			Elapsed: time.Since(m.probe.began), Goodput: float64(sum-last) * 8 / 1e6 / time.Since(before).Seconds()}
		last, before = sum, time.Now()
		m.Progress(p)
	}
	s.To = m.probe.now()
	m.rec.Spans = append(m.rec.Spans, s)
}

// bulk is a bulk connection.
type bulk struct {
	direction string
	conn      net.Conn
	rec       *Recorder
	cancel    context.CancelFunc
	done      chan error
}

// open starts the flows of a phase.
func (m *meter) open(ctx context.Context, phase string) (all []*bulk, err error) {
	var mu sync.Mutex
	var group sync.WaitGroup
	for _, direction := range []string{Download, Upload} {
		if phase != direction && phase != Both {
			continue
		}
		for range m.Conns {
			group.Go(func() {
				b, e := m.start(ctx, direction)
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

// endless is an upload's body: the same block again and again, until nobody wants it.
type endless struct {
	ctx context.Context
	rec *Recorder
	b   []byte
}

func (e *endless) Read(b []byte) (int, error) {
	if e.ctx.Err() != nil {
		return 0, e.ctx.Err()
	}
	n := copy(b, e.b)
	e.rec.Add(n)
	return n, nil
}

// start opens one flow. It has begun when this returns: an answer has come, or data is on its way.
func (m *meter) start(ctx context.Context, direction string) (*bulk, error) {
	b := &bulk{direction: direction, done: make(chan error, 1)}
	cc := ""
	if direction == Upload {
		cc = m.CC
	}
	conn, err := m.target.connect(ctx, cc)
	if err != nil {
		return nil, err
	}
	b.conn = conn
	SetUnsent(conn, 128<<10)
	b.rec = Record(conn, direction, direction == Upload)
	ctx, b.cancel = context.WithCancel(context.WithoutCancel(ctx))
	transport := m.target.transport("", nil)
	transport.DialTLSContext = func(context.Context, string, string) (net.Conn, error) { return conn, nil }
	c := &http.Client{Transport: transport}
	if direction == Upload {
		// Over TLS nothing can be compressed on the way, so the block's content does not matter.
		r, err := m.target.request(ctx, http.MethodPost, PathUp, m.query, &endless{ctx, b.rec, make([]byte, 64<<10)})
		if err != nil {
			return nil, err
		}
		go func() { b.done <- transfer(c, r, nil) }()
		return b, nil
	}
	r, err := m.target.request(ctx, http.MethodGet, PathDown, m.query, nil)
	if err != nil {
		return nil, err
	}
	answer, err := c.Do(r)
	if err != nil {
		b.end()
		return nil, plainly(err)
	}
	if answer.StatusCode != http.StatusOK {
		defer answer.Body.Close()
		defer b.end()
		return nil, refused(m.target.Addr, answer, answer.Body)
	}
	go func() { b.done <- drain(answer.Body, b.rec) }()
	return b, nil
}

func transfer(c *http.Client, r *http.Request, rec *Recorder) error {
	answer, err := c.Do(r)
	if err != nil {
		return plainly(err)
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return refused(r.Host, answer, answer.Body)
	}
	return errors.New("the server ended it")
}

func drain(body io.ReadCloser, rec *Recorder) error {
	defer body.Close()
	b := make([]byte, 64<<10)
	for {
		n, err := body.Read(b)
		rec.Add(n)
		if err != nil {
			return err
		}
	}
}

// end stops a flow at once: what is still queued is not sent.
func (b *bulk) end() Flow {
	said := ""
	select {
	case err := <-b.done: // before anybody asked it to
		said = err.Error()
	default:
	}
	f := b.rec.Stop(said)
	if c, ok := beneath(b.conn).(*net.TCPConn); ok {
		c.SetLinger(0)
		c.Close()
	}
	b.cancel()
	b.conn.Close()
	return f
}

// collect ends the flows of the last phase, and asks the server what it saw of them.
func (m *meter) collect(flows []*bulk) {
	s := &m.rec.Spans[len(m.rec.Spans)-1]
	for _, b := range flows {
		s.Local = append(s.Local, b.end())
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	for range 20 {
		var f Flows
		if err := m.target.ask(ctx, m.ask, http.MethodGet, PathFlows, m.query, &f); err != nil {
			m.rec.Notes = append(m.rec.Notes, "The server does not say what it saw: "+err.Error())
			return
		}
		if len(f.Flows) >= m.seen+len(flows) {
			s.Far = f.Flows[m.seen:]
			m.seen = len(f.Flows)
			return
		}
		wait(ctx, 100*time.Millisecond)
	}
	m.rec.Notes = append(m.rec.Notes, "The server has not ended all flows of the phase "+s.Name+".")
}
