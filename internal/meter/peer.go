// SPDX-License-Identifier: Apache-2.0

package meter

import (
	"context"
	"net"
	"net/http"
	"net/url"
	"time"

	"weir/internal/hint"
	"weir/internal/meter/irtt"
)

// Peer is the other end of a calibration: what takes data without end, and answers sparse packets.
type Peer struct {
	Name string
	Addr string // where its connections go: host:port
	Note string // what its own part in the result may be; "": none
	// Fill connects. Packets have at most so many bytes of IP; 0: what fits.
	Fill func(ctx context.Context, cc string, packet int) (*Filling, error)
	// Ask makes ready to send sparse packets.
	Ask   func(context.Context) (*Prober, error)
	Close func() // frees what was opened; nil: nothing was
}

// Filling is a connection that can send for ever.
type Filling struct {
	Conn net.Conn // whose sender is this host
	Send func()   // sends until the connection ends
	End  func()   // ends it; nil: the connection is closed, and what waits in it is not sent
}

// longest is what a calibration may take.
const longest = 60 * time.Second

// OpenServed begins a session with a weir serve.
func OpenServed(ctx context.Context, t Target) (*Peer, error) {
	t, _, err := t.resolve(ctx)
	if err != nil {
		return nil, err
	}
	transport := t.transport()
	ask := newHTTPClient(transport, 15*time.Second)
	var hello Hello
	if err := t.ask(ctx, ask, http.MethodPost, PathSession, nil, &hello); err != nil {
		transport.CloseIdleConnections()
		return nil, err
	}
	p := &Peer{Name: t.Addr, Addr: t.portAddr(""), Close: transport.CloseIdleConnections}
	if hello.Rate > 0 {
		p.Close()
		return nil, hint.New(t.Addr+" takes no more than a rate of its own", "weir serve without --rate there")
	}
	query := url.Values{"session": {hello.Session}}
	p.Fill = func(ctx context.Context, cc string, packet int) (*Filling, error) {
		return t.fill(ctx, cc, packet, PathUp, query)
	}
	want := irtt.Params{Duration: int64(longest), Interval: int64(probeInterval)}
	if hello.Bulk {
		want.Bulk = 1
	}
	p.Ask = func(ctx context.Context) (*Prober, error) { return t.prober(ctx, hello.UDP, want), nil }
	return p, nil
}

// OpenResponsive asks a responsiveness server, by the URL of its configuration, where it takes uploads.
func OpenResponsive(ctx context.Context, at, pin string) (*Peer, error) {
	t, small, _, upload, err := responsive(ctx, at, pin)
	if err != nil {
		return nil, err
	}
	to, _ := url.Parse(upload) // responsive has read both
	ask, _ := url.Parse(small)
	return &Peer{Name: at, Addr: t.Addr,
		Fill: func(ctx context.Context, cc string, packet int) (*Filling, error) {
			return t.fill(ctx, cc, packet, to.Path, to.Query())
		},
		Ask: func(context.Context) (*Prober, error) { return t.webProber(ask), nil }}, nil
}

// fill connects, and posts zeros to a path for ever.
func (t Target) fill(ctx context.Context, cc string, packet int, path string, query url.Values) (*Filling, error) {
	conn, err := t.connect(ctx, cc, packet)
	if err != nil {
		return nil, err
	}
	SetUnsent(conn, 128<<10)
	ctx = context.WithoutCancel(ctx)
	r, err := t.request(ctx, http.MethodPost, path, query, zeros{Context: ctx})
	if err != nil {
		conn.Close()
		return nil, err
	}
	return &Filling{Conn: conn, Send: func() { post(t.clientOver(conn), r) }}, nil
}
