// SPDX-License-Identifier: Apache-2.0

package meter

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"weir/internal/hint"
)

// nqConfig is a responsiveness server's configuration.
type nqConfig struct {
	Version int               `json:"version"`
	URLs    map[string]string `json:"urls"`
}

// urls are the three that matter. The draft has one set of names, and servers before it another.
func (c nqConfig) urls() (small, large, upload string, err error) {
	pick := func(names ...string) string {
		for _, n := range names {
			if c.URLs[n] != "" {
				return c.URLs[n]
			}
		}
		return ""
	}
	small = pick("small_download_url", "small_https_download_url")
	large = pick("large_download_url", "large_https_download_url")
	upload = pick("upload_url", "https_upload_url")
	host := ""
	for _, s := range []string{small, large, upload} {
		u, e := url.Parse(s)
		if e != nil || u.Scheme != "https" || host != "" && u.Host != host || c.Version != 1 {
			return "", "", "", hint.New("the configuration there is none of a responsiveness test, version 1",
				"the URL of one")
		}
		host = u.Host
	}
	return small, large, upload, nil
}

// rpmTest is a direction under way.
type rpmTest struct {
	target    Target
	small     string
	load      string
	direction string
	began     time.Time
	bytes     atomic.Int64
	mu        sync.Mutex
	conns     []*http.Client
	probes    []RPMProbe
	failed    error
}

// responsive asks the server of an https URL for its configuration, and gives where it tests.
func responsive(ctx context.Context, at, pin string) (t Target, small, large, upload string, err error) {
	u, err := parseURL(at, "https://HOST/.well-known/nq")
	if err != nil {
		return t, "", "", "", err
	}
	if u.Path == "" || u.Path == "/" {
		u.Path = "/.well-known/nq"
	}
	t = targetOf(u, pin)
	transport := t.transport()
	defer transport.CloseIdleConnections()
	var config nqConfig
	// It stands for itself: a redirect is a failure.
	client := newHTTPClient(transport, 15*time.Second)
	if err := t.ask(ctx, client, http.MethodGet, u.Path, u.Query(), &config); err != nil {
		return t, "", "", "", err
	}
	if small, large, upload, err = config.urls(); err != nil {
		return t, "", "", "", err
	}
	to, _ := url.Parse(small)
	if t.Addr = to.Host; to.Port() == "" {
		t.Addr = net.JoinHostPort(to.Hostname(), "443")
	}
	t, _, err = t.resolve(ctx)
	return t, small, large, upload, err
}

// MeasureRPM tests the responsiveness of the way to an https URL's server, downloads first, then uploads, each for half
// of the time at most.
func MeasureRPM(ctx context.Context, at, pin string, o Options) (*RPMResult, error) {
	t, small, large, upload, err := responsive(ctx, at, pin)
	if err != nil {
		return nil, err
	}
	r := &RPMResult{Version: 1, Target: at, Interval: rpmInterval}
	for _, d := range [][2]string{{Download, large}, {Upload, upload}} {
		test := &rpmTest{target: t, small: small, direction: d[0], load: d[1]}
		if found, err := test.run(ctx, o); err != nil {
			return nil, err
		} else if ctx.Err() == nil || found.Probes > 0 {
			r.Directions = append(r.Directions, found)
		}
	}
	r.Says = r.sentence()
	return r, nil
}

func (r *RPMResult) sentence() string {
	var words []string
	for _, d := range r.Directions {
		switch {
		case d.Probes == 0:
			words = append(words, fmt.Sprintf("no probe was answered during %ss", d.Direction))
		case d.Goodput == 0:
			words = append(words, fmt.Sprintf("no data moved during %ss", d.Direction))
		default:
			words = append(words, fmt.Sprintf("%.0f round trips a minute during %ss (%s, confidence %s)", d.RPM,
				d.Direction, class(d.RPM), d.Confidence))
		}
	}
	if len(words) == 0 {
		return "No probe was answered."
	}
	return strings.ToUpper(words[0][:1]) + strings.Join(words, ", ")[1:] + "."
}

// run adds a connection each interval. Once goodput has settled it probes, until responsiveness has settled or the time
// is over.
func (t *rpmTest) run(ctx context.Context, o Options) (d RPMDirection, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	t.began = time.Now()
	d = RPMDirection{Direction: t.direction, Confidence: Low}
	var goodputs, rpms []float64
	probing, last := false, int64(0)
	end := t.began.Add(o.Time / 2)
	for n := 1; ctx.Err() == nil && time.Now().Before(end); n++ {
		if len(t.conns) < rpmMost {
			t.addLoad(ctx)
		}
		wait(ctx, time.Until(t.began.Add(time.Duration(float64(n)*rpmInterval*float64(time.Second)))))
		now := t.bytes.Load()
		goodputs = append(goodputs, float64(now-last)*8/1e6/rpmInterval)
		last = now
		t.mu.Lock()
		failed := t.failed
		recent := t.since(time.Since(t.began).Seconds() - rpmDistance*rpmInterval)
		t.mu.Unlock()
		if failed != nil && now == 0 {
			return d, failed
		}
		if o.Progress != nil {
			o.Progress(Progress{Phase: t.direction, Elapsed: time.Since(t.began), All: o.Time / 2,
				Goodput: goodputs[n-1]})
		}
		// A test that would end before goodput has settled probes at least for its last intervals.
		if !probing && (hasSettled(goodputs) || time.Until(end).Seconds() < (rpmDistance+1)*rpmInterval) {
			probing = true
			go t.probe(ctx)
		}
		if r, ok := RPM(recent); ok && probing {
			d.Responsiveness, d.Samples = r, recent
			rpms = append(rpms, r.RPM)
		}
		d.Goodput = 0
		for _, g := range goodputs[max(len(goodputs)-rpmDistance, 0):] {
			d.Goodput += g / float64(min(len(goodputs), rpmDistance))
		}
		if len(rpms) >= rpmDistance {
			d.Confidence = Medium
		}
		if hasSettled(rpms) && hasSettled(goodputs) {
			d.Confidence = High
			break
		}
	}
	d.Conns = len(t.conns)
	return d, nil
}

// since are the probes from a time on.
func (t *rpmTest) since(at float64) (all []RPMProbe) {
	for _, p := range t.probes {
		if p.At >= at {
			all = append(all, p)
		}
	}
	return all
}

// client is HTTP over one connection of its own, of version 2 if the server has it.
func (t *rpmTest) client() (*http.Client, *http.Transport) {
	transport := t.target.transport()
	transport.ForceAttemptHTTP2 = true
	transport.DialTLSContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
		raw, err := t.target.dial(ctx, "", 0)
		if err != nil {
			return nil, err
		}
		return t.target.startTLS(ctx, raw, "h2", "http/1.1")
	}
	return newHTTPClient(transport, 0), transport
}

func (t *rpmTest) addLoad(ctx context.Context) {
	c, transport := t.client()
	transport.MaxConnsPerHost = 0 // self probes share a connection of version 2; with 1.1 they get their own
	t.mu.Lock()
	t.conns = append(t.conns, c)
	t.mu.Unlock()
	go func() {
		defer transport.CloseIdleConnections()
		var err error
		for ctx.Err() == nil && err == nil {
			err = t.transfer(ctx, c)
		}
		t.mu.Lock()
		defer t.mu.Unlock()
		if ctx.Err() == nil {
			t.failed = withoutURL(err)
		}
	}()
}

// transfer loads until it ends.
func (t *rpmTest) transfer(ctx context.Context, c *http.Client) error {
	method, body := http.MethodGet, io.Reader(nil)
	if t.direction == Upload {
		method, body = http.MethodPost, zeros{ctx, func(n int) { t.bytes.Add(int64(n)) }}
	}
	r, err := http.NewRequestWithContext(ctx, method, t.load, body)
	if err != nil {
		return err
	}
	answer, err := c.Do(r)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return statusError(t.target.Addr, answer, answer.Body)
	}
	b := make([]byte, 64<<10)
	for {
		n, err := answer.Body.Read(b)
		if t.direction == Download {
			t.bytes.Add(int64(n))
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// probe asks of both kinds in turn, evenly. What is not answered in 5 s is given up.
func (t *rpmTest) probe(ctx context.Context) {
	tick := time.NewTicker(time.Second / rpmProbes)
	defer tick.Stop()
	open := make(chan struct{}, rpmProbes)
	for n := 0; ctx.Err() == nil; n++ {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		select {
		case open <- struct{}{}:
		default:
			continue // too many are without an answer
		}
		go func() {
			defer func() { <-open }()
			ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
			defer cancel()
			p := RPMProbe{Foreign: n%2 == 0}
			ask := t.self
			if p.Foreign {
				ask = t.foreign
			}
			if ask(ctx, &p) != nil {
				return
			}
			p.At = time.Since(t.began).Seconds()
			t.mu.Lock()
			defer t.mu.Unlock()
			t.probes = append(t.probes, p)
		}()
	}
}

func since(t time.Time) float64 { return float64(time.Since(t)) / float64(time.Millisecond) }

// self asks over a connection that carries load.
func (t *rpmTest) self(ctx context.Context, p *RPMProbe) error {
	t.mu.Lock()
	c := t.conns[rand.IntN(len(t.conns))]
	t.mu.Unlock()
	return t.get(ctx, c, p)
}

// foreign asks over a new one.
func (t *rpmTest) foreign(ctx context.Context, p *RPMProbe) error {
	began := time.Now()
	raw, err := t.target.dial(ctx, "", 0)
	if err != nil {
		return err
	}
	defer raw.Close()
	p.TCP = since(began)
	config := t.target.tls()
	config.NextProtos = []string{"h2", "http/1.1"}
	c := tls.Client(raw, config)
	began = time.Now()
	if err := c.HandshakeContext(ctx); err != nil {
		return err
	}
	p.TLS = since(began)
	if c.ConnectionState().Version < tls.VersionTLS13 {
		p.TLS /= 2 // its handshake takes two round trips
	}
	client, transport := t.client()
	defer transport.CloseIdleConnections()
	transport.DialTLSContext = func(context.Context, string, string) (net.Conn, error) { return c, nil }
	return t.get(ctx, client, p)
}

// get asks for the small object, from the request's last byte to the answer's first.
func (t *rpmTest) get(ctx context.Context, c *http.Client, p *RPMProbe) error {
	var wrote time.Time
	var mu sync.Mutex
	trace := &httptrace.ClientTrace{
		WroteRequest: func(httptrace.WroteRequestInfo) { mu.Lock(); wrote = time.Now(); mu.Unlock() },
		GotFirstResponseByte: func() {
			mu.Lock()
			defer mu.Unlock()
			if !wrote.IsZero() {
				p.HTTP = since(wrote)
			}
		},
	}
	r, err := http.NewRequestWithContext(httptrace.WithClientTrace(ctx, trace), http.MethodGet, t.small, nil)
	if err != nil {
		return err
	}
	r.Header.Set("Accept-Encoding", "identity")
	answer, err := c.Do(r)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if _, err := io.Copy(io.Discard, io.LimitReader(answer.Body, 1<<10)); err != nil {
		return err
	}
	mu.Lock()
	defer mu.Unlock()
	if answer.StatusCode != http.StatusOK || p.HTTP <= 0 {
		return io.ErrUnexpectedEOF
	}
	return nil
}
