// SPDX-License-Identifier: Apache-2.0

package meter

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"maps"
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
	t, other, err := t.resolve(ctx)
	if err != nil {
		return nil, err
	}
	transport := t.transport()
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
		return nil, ccError(fmt.Sprintf("%s has no congestion control %q for weir serve", t.Addr, o.CC), s.hello.CCs)
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
	port := s.hello.UDP
	prober := t.prober(ctx, port, irtt.Params{Duration: int64(o.Time + time.Minute), Interval: int64(Interval)})
	if prober.By != "udp" && port > 0 && port < 1<<16 {
		rec.Notes = append(rec.Notes, fmt.Sprintf("UDP port %d does not answer, so probes go by HTTPS: their RTTs "+
			"hold the servers' own time, and losses show as waits.", port))
	}
	to := t.portAddr("")
	m := &Session{Options: o, Transport: s, Prober: prober, Recording: rec, To: to, Device: deviceTo(to)}
	return rec, m.Run(ctx)
}

// Open starts a connection for each flow.
func (s *served) Open(ctx context.Context, phase string) ([]*Bulk, error) {
	if !s.Plain {
		return OpenFlows(ctx, phase, s.Conns, s.start)
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
	return OpenFlows(ctx, phase, s.Conns, func(ctx context.Context, direction string) (*Bulk, error) {
		return s.startPlain(ctx, direction, <-tickets[direction])
	})
}

// zeros is a body without end, until its context does. Over TLS nothing can be compressed on the way, so it does not
// matter what is in it.
type zeros struct {
	context.Context
	count func(bytes int) // nil: nobody counts
}

func (z zeros) Read(b []byte) (int, error) {
	if z.Err() != nil {
		return 0, z.Err()
	}
	clear(b)
	if z.count != nil {
		z.count(len(b))
	}
	return len(b), nil
}

// senderCC is the congestion control of this end, which sends uploads alone; "": the host's own.
func (s *served) senderCC(direction string) string {
	if direction == Upload {
		return s.CC
	}
	return ""
}

// start opens one flow. It has begun when this returns: an answer has come, or data is on its way.
func (s *served) start(ctx context.Context, direction string) (*Bulk, error) {
	conn, err := s.target.connect(ctx, s.senderCC(direction), 0)
	if err != nil {
		return nil, err
	}
	SetUnsent(conn, 128<<10)
	going, cancel := context.WithCancel(context.WithoutCancel(ctx))
	b := newBulk(direction, conn, cancel)
	defer context.AfterFunc(ctx, cancel)() // the wait for an answer ends with the measurement
	c := s.target.clientOver(conn)
	if direction == Upload {
		r, err := s.target.request(going, http.MethodPost, PathUp, s.query, zeros{going, b.rec.Add})
		if err != nil {
			return nil, err
		}
		go func() { b.done <- post(c, r) }()
		return b, nil
	}
	r, err := s.target.request(going, http.MethodGet, PathDown, s.query, nil)
	if err != nil {
		return nil, err
	}
	answer, err := c.Do(r)
	if err != nil {
		b.End()
		return nil, withoutURL(err)
	}
	if answer.StatusCode != http.StatusOK {
		defer answer.Body.Close()
		defer b.End()
		return nil, statusError(s.target.Addr, answer, answer.Body)
	}
	go func() { b.done <- b.drain(answer.Body) }()
	return b, nil
}

// Of a flow without TLS: bytes that are written or read at once, and that wait in the sender's buffer.
const (
	PlainChunk  = 256 << 10
	PlainUnsent = 512 << 10
)

// startPlain opens one flow without TLS.
func (s *served) startPlain(ctx context.Context, direction, ticket string) (*Bulk, error) {
	conn, err := s.target.dial(ctx, s.senderCC(direction), 0)
	if err != nil {
		return nil, err
	}
	if _, err := io.WriteString(conn, PlainMagic+ticket+"\n"); err != nil {
		conn.Close()
		return nil, err
	}
	b := newBulk(direction, conn, func() {})
	block := make([]byte, PlainChunk)
	if direction == Download {
		go b.Carry(func(block []byte) (int, error) { return Discard(conn, block) }, block)
		return b, nil
	}
	SetUnsent(conn, PlainUnsent)
	rand.Read(block) // nothing that could be compressed on the way
	go b.Carry(conn.Write, block)
	return b, nil
}

// post sends a request whose body has no end.
func post(c *http.Client, r *http.Request) error {
	answer, err := c.Do(r)
	if err != nil {
		return withoutURL(err)
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return statusError(r.Host, answer, answer.Body)
	}
	return errors.New("the server ended it")
}

// drain reads a body to its end, and returns why it is that.
func (b *Bulk) drain(body io.ReadCloser) error {
	defer body.Close()
	return b.carry(body.Read, make([]byte, 64<<10))
}

// Close ends the flows, and asks the server what it saw of them.
func (s *served) Close(_ context.Context, phase string, flows []*Bulk) (local, far []Flow, note string) {
	for _, b := range flows {
		local = append(local, b.End())
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
