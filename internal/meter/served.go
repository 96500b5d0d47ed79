// SPDX-License-Identifier: Apache-2.0

package meter

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"weir/internal/hint"
	"weir/internal/meter/irtt"
)

// served is a weir serve.
type served struct {
	Options
	target Target
	ask    *http.Client
	query  url.Values
	hello  Hello
	seen   int // flows that it has told of
}

// Measure measures the way to a weir serve. When the context ends it gives what there is.
func Measure(ctx context.Context, t Target, o Options) (*Recording, error) {
	if err := TryCC(o.CC); err != nil {
		return nil, err
	}
	t, other, err := t.settled(ctx)
	if err != nil {
		return nil, err
	}
	transport := t.transport("", nil)
	defer transport.CloseIdleConnections()
	s := &served{Options: o, target: t, ask: newHTTPClient(transport, 15*time.Second)}
	rec := &Recording{Target: t.Addr}
	wants := url.Values{}
	if o.CC != "" {
		wants.Set("cc", o.CC)
	}
	if err := t.ask(ctx, s.ask, http.MethodPost, PathSession, wants, &s.hello); err != nil {
		return nil, err
	}
	if s.hello.NoCC {
		return nil, noCC(fmt.Sprintf("%s has no congestion control %q for weir serve", t.Addr, o.CC), s.hello.CCs)
	}
	rec.Remote, rec.Plain = s.hello, o.Plain
	if s.hello.Version != 1 {
		return nil, hint.New(fmt.Sprintf("%s speaks version %d, and this is 1", t.Addr, s.hello.Version),
			"the same version of weir there and here")
	}
	if o.Time.Seconds() > s.hello.Seconds {
		return nil, hint.New(fmt.Sprintf("%s lets a test take %.0f s", t.Addr, s.hello.Seconds),
			fmt.Sprintf("--time %.0fs", s.hello.Seconds))
	}
	if o.Plain && !s.hello.Plain {
		return nil, hint.New(t.Addr+" knows no loads without TLS", "the same version of weir there, or no --plain")
	}
	s.query = wants
	s.query.Set("session", s.hello.Session)
	began := time.Now()
	rec.Paths = s.look(ctx, other)
	if left := time.Duration(s.hello.Seconds*float64(time.Second)) - time.Since(began); o.Time > left {
		o.Time = left // else the server would end the last load
	}
	m := &meter{Options: o, peer: s, probe: &probe{began: time.Now()}, rec: rec, to: t.at("")}
	return rec, m.run(ctx, s.prober(ctx, m))
}

// prober chooses how to ask.
func (s *served) prober(ctx context.Context, m *meter) func(context.Context) {
	const ms = float64(time.Millisecond)
	if port := s.hello.UDP; port > 0 && port < 1<<16 {
		u, err := openUDP(ctx, s.target.at(strconv.Itoa(port)), []byte(s.target.Token), m.probe,
			irtt.Params{Duration: int64(m.Time + time.Minute), Interval: int64(Interval)})
		if err == nil {
			m.rec.Probe, m.rec.Interval = "udp", max(float64(u.params.Interval), float64(Interval))/ms
			return u.run
		}
		m.rec.Notes = append(m.rec.Notes, fmt.Sprintf("UDP port %d does not answer, so probes go by HTTPS: their RTTs "+
			"hold the servers' own time, and losses show as waits.", port))
	}
	m.rec.Probe, m.rec.Interval = "https", 2*float64(Interval)/ms
	return (&webProbe{m.probe, s.target, &url.URL{Path: PathSmall}}).run
}

func (s *served) open(ctx context.Context, phase string) ([]*bulk, error) {
	if !s.Plain {
		return together(ctx, phase, s.Conns, s.start)
	}
	tickets := map[string]chan string{}
	for _, direction := range []string{Download, Upload} {
		if phase != direction && phase != Both {
			continue
		}
		query := maps.Clone(s.query)
		query.Set("direction", direction)
		query.Set("n", strconv.Itoa(s.Conns))
		var given Tickets
		if err := s.target.ask(ctx, s.ask, http.MethodPost, PathTickets, query, &given); err != nil {
			return nil, err
		}
		if len(given.Tickets) != s.Conns {
			return nil, hint.New(fmt.Sprintf("%s gives %d tickets of %d", s.target.Addr, len(given.Tickets), s.Conns),
				"without --plain")
		}
		tickets[direction] = make(chan string, s.Conns)
		for _, t := range given.Tickets {
			tickets[direction] <- t
		}
	}
	return together(ctx, phase, s.Conns, func(ctx context.Context, direction string) (*bulk, error) {
		return s.startPlain(ctx, direction, <-tickets[direction])
	})
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
func (s *served) start(ctx context.Context, direction string) (*bulk, error) {
	b := &bulk{direction: direction, done: make(chan error, 1)}
	cc := ""
	if direction == Upload {
		cc = s.CC
	}
	conn, err := s.target.connect(ctx, cc)
	if err != nil {
		return nil, err
	}
	b.conn = conn
	SetUnsent(conn, 128<<10)
	b.rec = Record(conn, direction, direction == Upload)
	going, cancel := context.WithCancel(context.WithoutCancel(ctx))
	b.cancel = cancel
	defer context.AfterFunc(ctx, cancel)() // the wait for an answer ends with the measurement
	transport := s.target.transport("", nil)
	transport.DialTLSContext = func(context.Context, string, string) (net.Conn, error) { return conn, nil }
	c := newHTTPClient(transport, 0)
	if direction == Upload {
		// Over TLS nothing can be compressed on the way, so the block's content does not matter.
		body := &endless{going, b.rec, make([]byte, 64<<10)}
		r, err := s.target.request(going, http.MethodPost, PathUp, s.query, body)
		if err != nil {
			return nil, err
		}
		go func() { b.done <- transfer(c, r, nil) }()
		return b, nil
	}
	r, err := s.target.request(going, http.MethodGet, PathDown, s.query, nil)
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
		return nil, refused(s.target.Addr, answer, answer.Body)
	}
	go func() { b.done <- drain(answer.Body, b.rec) }()
	return b, nil
}

// Of a flow without TLS: bytes that are written or read at once, and that wait in the sender's buffer.
const (
	PlainChunk  = 256 << 10
	PlainUnsent = 512 << 10
)

// startPlain opens one flow without TLS.
func (s *served) startPlain(ctx context.Context, direction, ticket string) (*bulk, error) {
	cc := ""
	if direction == Upload {
		cc = s.CC
	}
	conn, err := s.target.dial(ctx, cc)
	if err != nil {
		return nil, err
	}
	if _, err := io.WriteString(conn, PlainMagic+ticket+"\n"); err != nil {
		conn.Close()
		return nil, err
	}
	b := &bulk{direction: direction, conn: conn, done: make(chan error, 1), cancel: func() {}}
	b.rec = Record(conn, direction, direction == Upload)
	if direction == Download {
		go func() { b.done <- discard(conn, b.rec) }()
		return b, nil
	}
	SetUnsent(conn, PlainUnsent)
	noise := make([]byte, PlainChunk) // nothing that could be compressed on the way
	rand.Read(noise)
	go func() {
		for err == nil {
			var n int
			n, err = conn.Write(noise)
			b.rec.Add(n)
		}
		b.done <- err
	}()
	return b, nil
}

func discard(c net.Conn, rec *Recorder) error {
	b := make([]byte, PlainChunk)
	for {
		n, err := Discard(c, b)
		rec.Add(n)
		if err != nil {
			return err
		}
	}
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

// close ends the flows, and asks the server what it saw of them.
func (s *served) close(_ context.Context, phase string, flows []*bulk) (local, far []Flow, note string) {
	for _, b := range flows {
		local = append(local, b.end())
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	for range 20 {
		var f Flows
		if err := s.target.ask(ctx, s.ask, http.MethodGet, PathFlows, s.query, &f); err != nil {
			return local, nil, "The server does not say what it saw: " + err.Error()
		}
		if len(f.Flows) >= s.seen+len(flows) {
			far = f.Flows[s.seen:]
			s.seen = len(f.Flows)
			return local, far, ""
		}
		wait(ctx, 100*time.Millisecond)
	}
	return local, nil, "The server has not ended all flows of the phase " + phase + "."
}
