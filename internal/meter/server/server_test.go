// SPDX-License-Identifier: Apache-2.0

package server

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"weir/internal/hint"
	"weir/internal/meter"
)

// running is a server on loopback, and a client of each version of HTTP.
type running struct {
	addr, udp string
	h1, h2    *http.Client
	token     string
	server    *Server
}

func start(t *testing.T, change func(*Config)) *running {
	t.Helper()
	kept, err := Keep(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	c := Config{Limits: DefaultLimits(), Certificate: kept.Certificate, Name: "here", Version: "test"}
	if change != nil {
		change(&c)
	}
	tcp, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	udp, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	server := New(c)
	go func() { done <- server.Serve(ctx, tcp, udp) }()
	r := &running{addr: tcp.Addr().String(), udp: udp.LocalAddr().String(), token: c.Token, server: server}
	for _, to := range []**http.Client{&r.h1, &r.h2} {
		transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true},
			ForceAttemptHTTP2: to == &r.h2, DisableCompression: true}
		*to = &http.Client{Transport: transport}
		t.Cleanup(transport.CloseIdleConnections)
	}
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return r
}

// do makes a request; it reads so many bytes of the answer at most.
func (r *running) do(t *testing.T, c *http.Client, method, path string, body io.Reader, most int64) (*http.Response,
	[]byte) {
	t.Helper()
	url := path
	if strings.HasPrefix(path, "/") {
		url = "https://" + r.addr + path
	}
	request, err := http.NewRequest(method, url, body)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := c.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(io.LimitReader(answer.Body, most))
	if err != nil {
		t.Errorf("%s %s: %v", method, path, err)
	}
	return answer, text
}

// Each of the paths that other programs' clients know answers as they want it, over both versions of HTTP.
func TestPaths(t *testing.T) {
	r := start(t, nil)
	for version, c := range map[string]*http.Client{"HTTP/1.1": r.h1, "HTTP/2.0": r.h2} {
		answer, text := r.do(t, c, "GET", "/.well-known/nq", nil, 1e4)
		var nq struct {
			Version int
			URLs    map[string]string
		}
		if err := json.Unmarshal(text, &nq); err != nil || nq.Version != 1 || len(nq.URLs) != 6 ||
			answer.Proto != version || answer.Header.Get("Content-Type") != "application/json" {
			t.Fatalf("%s: %s %v", answer.Proto, text, err)
		}
		for _, name := range []string{"small_download_url", "small_https_download_url"} {
			if _, text := r.do(t, c, "GET", nq.URLs[name], nil, 10); len(text) != 1 {
				t.Errorf("%s: %d bytes", name, len(text))
			}
		}
		for _, name := range []string{"large_download_url", "large_https_download_url"} {
			answer, text := r.do(t, c, "GET", nq.URLs[name], nil, 1e6)
			if len(text) != 1e6 || answer.ContentLength < 8e9 || answer.Header.Get("Content-Encoding") != "" {
				t.Errorf("%s: %d bytes of %d", name, len(text), answer.ContentLength)
			}
		}
		blob := func() io.Reader { return io.LimitReader(zeros{}, 3e6) } // of no known length
		for _, path := range []string{nq.URLs["upload_url"], nq.URLs["https_upload_url"], "/backend/empty.php?r=1",
			"/__up"} {
			if answer, text := r.do(t, c, "POST", path, blob(), 10); answer.StatusCode != 200 || len(text) != 0 {
				t.Errorf("POST %s: %s %q", path, answer.Status, text)
			}
		}
		for path, want := range map[string]int{"/backend/garbage.php?ckSize=2&r=1": 2 << 20,
			"/backend/garbage.php": 4 << 20,
			"/__down?bytes=12345":  12345, "/__down?bytes=0": 0, "/backend/empty.php": 0} {
			if answer, text := r.do(t, c, "GET", path, nil, 1e8); answer.StatusCode != 200 || len(text) != want {
				t.Errorf("GET %s: %s, %d bytes, want %d", path, answer.Status, len(text), want)
			}
		}
		if _, text := r.do(t, c, "GET", "/backend/getIP.php", nil, 1e4); !bytes.Contains(text, []byte(`"127.0.0.1"`)) {
			t.Errorf("%s", text)
		}
		if answer, _ := r.do(t, c, "GET", "/nothing", nil, 1e4); answer.StatusCode != http.StatusNotFound {
			t.Error(answer.Status)
		}
		if answer, _ := r.do(t, c, "GET", "/__down?bytes=-1", nil, 1e4); answer.StatusCode != http.StatusBadRequest {
			t.Error(answer.Status)
		}
	}
}

type zeros struct{}

func (zeros) Read(b []byte) (int, error) { clear(b); return len(b), nil }

// Without the token nobody gets in; it may be in the path, the query or a header, and the URLs of a test have it.
func TestToken(t *testing.T) {
	var waited atomic.Int64
	r := start(t, func(c *Config) {
		c.Token = "secret"
		c.wait = func(_ <-chan struct{}, wait time.Duration) bool { return waited.Add(int64(wait)) > 0 }
	})
	for path, want := range map[string]int{"/small": 403, "/small?token=wrong": 403, "/t/wrong/small": 403,
		"/t/small": 200, "/t//small": 403, "/config": 403, "/t/wrong/config": 403, "/ndt/v7/download": 403,
		"/small?token=secret": 200, "/t/secret/small": 200,
		// The page is everybody's, under whatever token; it can do nothing without the right one.
		"/": 200, "/t/": 200, "/t/secret/": 200, "/t/secret": 200, "/t/wrong/": 200, "/page.js": 200,
		"/page/index.html": 403} {
		if answer, text := r.do(t, r.h2, "GET", path, nil, 1e4); answer.StatusCode != want {
			t.Errorf("%s: %s %s", path, answer.Status, text)
		}
	}
	if n := time.Duration(waited.Load()); n != 3*refusalPause { // not of who says none
		t.Errorf("who says a wrong token waits %s of 3", n)
	}
	if _, text := r.do(t, r.h2, "GET", "/t/secret/config", nil, 1e4); strings.Count(string(text), "/t/secret/") != 6 {
		t.Errorf("%s", text)
	}
	request, _ := http.NewRequest("GET", "https://"+r.addr+"/small", nil)
	request.Header.Set("Authorization", "Bearer secret")
	answer, err := r.h2.Do(request)
	if err != nil || answer.StatusCode != 200 || answer.Header.Get("Timing-Allow-Origin") != "*" {
		t.Errorf("%v %v", answer, err)
	}
}

// A congestion control that is not here is said where the session would begin.
func TestNoCC(t *testing.T) {
	r := start(t, nil)
	for cc, want := range map[string]bool{"nosuch": true, "reno": false, "": false} {
		var hello meter.Hello
		_, text := r.do(t, r.h1, "POST", meter.PathSession+"?cc="+cc, nil, 1e4)
		if err := json.Unmarshal(text, &hello); err != nil || hello.NoCC != want || (hello.Session == "") != want ||
			len(hello.CCs) == 0 {
			t.Errorf("%q: %s %v", cc, text, err)
		}
	}
}

// While one client tests, another is told to come back; and nobody stays for longer than is allowed.
func TestGate(t *testing.T) {
	now := time.Unix(1000, 0)
	var said []string
	l := Limits{Tests: 1, Duration: time.Minute, Bytes: 1000}
	g := newGate(l, func() time.Time { return now }, func(s string) { said = append(said, s) })
	a, _ := g.enter("a")
	if a == nil {
		t.Fatal("nobody is in, and there is no place")
	}
	if b, wait := g.enter("b"); b != nil || wait <= 0 || wait > l.Duration {
		t.Errorf("a second one is in, or is to wait %v", wait)
	}
	if again, _ := g.enter("a"); again == nil {
		t.Error("the same client has one connection only")
	} else if !again.add(999) || again.add(1) {
		t.Error("the limit of bytes is not 1000")
	} else {
		again.leave()
	}
	if more, _ := g.enter("a"); more != nil {
		t.Error("it may go on beyond the limit of bytes")
	}
	a.leave()
	now = now.Add(linger - 1)
	if b, wait := g.enter("b"); b != nil || wait != 1 {
		t.Errorf("a place is lost between two transfers, or to wait %v", wait)
	}
	now = now.Add(1)
	b, _ := g.enter("b")
	if b == nil {
		t.Fatal("who has gone keeps the place")
	}
	now = now.Add(l.Duration)
	if b.add(1) {
		t.Error("it lasts longer than allowed")
	}
	if b, _ := g.enter("b"); b != nil {
		t.Error("it begins again at once")
	}
	if want := []string{"a: begins", "a: done, 1 kB in 0 s", "b: begins"}; !slices.Equal(said, want) {
		t.Errorf("%q", said)
	}
}

// Who measures again and again has each time all that is allowed, unless others have come. Two behind one address
// share.
func TestBegin(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	l := DefaultLimits()
	g := newGate(l, func() time.Time { return now }, func(string) {})
	test := func(left time.Duration) *admission {
		t.Helper()
		got, wait, ok := g.begin("a")
		if !ok || wait != 0 || got != left {
			t.Fatalf("%v of %v, to wait %v", got, left, wait)
		}
		h, _ := g.enter("a")
		if h == nil || !h.End.Equal(now.Add(left)) || !h.add(int(l.Bytes)-1) && left == l.Duration {
			t.Fatalf("%+v", h)
		}
		return h
	}
	for range 3 {
		h := test(l.Duration)
		now = now.Add(l.Duration / 2)
		h.leave()
	}
	h := test(l.Duration)
	now = now.Add(l.Duration / 2)
	test(l.Duration / 2).leave()
	if _, _, ok := g.begin("b"); ok {
		t.Error("two test at once")
	}
	h.leave()
	now = now.Add(linger / 2)
	if _, wait, ok := g.begin("a"); ok || wait != linger/2+first {
		t.Errorf("it keeps its place although somebody came; to wait %v", wait)
	}
	if _, _, ok := g.begin("b"); ok {
		t.Error("a place is lost between two transfers")
	}
	now = now.Add(linger / 2)
	if _, _, ok := g.begin("b"); !ok {
		t.Error("who came has no place")
	}
}

// In an idle phase probes keep the place, however long the test, and not for longer than a test.
func TestIdlePhase(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	l := Limits{Tests: 1, Duration: 10 * time.Minute, Bytes: 1e9}
	g := newGate(l, func() time.Time { return now }, func(string) {})
	probe := func(long time.Duration) {
		for end := now.Add(long); now.Before(end); now = now.Add(time.Second) {
			g.noteProbe("a")
			g.noteProbe("nobody")
		}
	}
	begins := func(client string, want bool) {
		t.Helper()
		if _, _, ok := g.begin(client); ok != want {
			t.Errorf("%s begins: %v", client, ok)
		}
	}
	begins("a", true)
	probe(l.Duration / 5)
	begins("b", false)
	now = now.Add(linger) // it has gone
	begins("b", true)
	now = now.Add(linger)
	begins("a", true)
	probe(l.Duration + linger)
	begins("b", true)
	now = now.Add(linger)
	begins("a", true)
	h, _ := g.enter("a")
	h.leave()
	probe(linger) // which is not of an idle phase any more
	begins("b", true)
}

// Who measures again and again is let in each time, however long a test may take.
func TestManySessions(t *testing.T) {
	began, passed := time.Now(), atomic.Int64{}
	r := start(t, func(c *Config) {
		c.now = func() time.Time { return began.Add(time.Duration(passed.Load())) }
		c.Duration = 10 * time.Minute
	})
	for n := range 2 * maxSessions {
		if answer, text := r.do(t, r.h1, "POST", meter.PathSession, nil, 1e4); answer.StatusCode != 200 {
			t.Fatalf("measurement %d: %s %s", n, answer.Status, text)
		}
		passed.Add(int64(time.Minute))
	}
}

// A new session takes the place of its client's oldest, or else of the oldest of those who do not test.
func TestSessionsAreFull(t *testing.T) {
	began := time.Unix(1000, 0)
	all := func(string) bool { return true }
	full := func() *sessions {
		a := &sessions{}
		for i := range maxSessions { // c0 has the oldest and the newest but one
			name := fmt.Sprintf("c%d", i%(maxSessions-2))
			a.add(fmt.Sprint(i), &session{client: name, began: began.Add(time.Duration(i))}, began, all, maxSessions)
		}
		return a
	}
	for _, c := range []struct {
		client string
		tests  func(string) bool
		goes   string
	}{
		{"c0", all, "0"},
		{"c2", all, "2"},
		{"c2", func(string) bool { return false }, "2"},
		{"new", func(client string) bool { return client == "c0" || client == "c1" }, "2"},
		{"new", func(client string) bool { return client != "c5" }, "5"},
		{"new", all, "0"}, // c0 and c1 have two each
	} {
		a := full()
		x := &session{client: c.client, began: began.Add(time.Minute)}
		a.add("x", x, began, c.tests, maxSessions)
		if _, there := a.all[c.goes]; there || a.all["x"] != x || len(a.all) != maxSessions {
			t.Errorf("%s: %d sessions, and that which should have gone is there: %v", c.client, len(a.all), there)
		}
	}
}

// Who begins again and again keeps nobody else's session away.
func TestSessionsOfOne(t *testing.T) {
	s := New(Config{Limits: Limits{Tests: 2, Duration: time.Minute, Bytes: 1e9}})
	for i := range 40 {
		w, r := httptest.NewRecorder(), httptest.NewRequest("POST", meter.PathSession, nil)
		if r.RemoteAddr = "192.0.2.1:5"; i == 39 {
			r.RemoteAddr = "192.0.2.2:5"
		}
		if s.routes().ServeHTTP(w, r); w.Code != http.StatusOK {
			t.Errorf("%s: %d %s", r.RemoteAddr, w.Code, w.Body)
		}
	}
}

// Where many may test at once, each has a session.
func TestSessionsOfMany(t *testing.T) {
	s := New(Config{Limits: Limits{Tests: 32, Duration: time.Minute, Bytes: 1e9}})
	for i := range s.Tests {
		w, r := httptest.NewRecorder(), httptest.NewRequest("POST", meter.PathSession, nil)
		r.RemoteAddr = fmt.Sprintf("192.0.2.%d:5", i)
		if s.routes().ServeHTTP(w, r); w.Code != http.StatusOK {
			t.Errorf("client %d: %d %s", i, w.Code, w.Body)
		}
	}
}

func TestBusy(t *testing.T) {
	r := start(t, func(c *Config) { c.Tests = 0 })
	for _, path := range []string{"/.well-known/nq", "/large", "/__down?bytes=9", "/backend/garbage.php",
		"/ndt/v7/download"} {
		answer, _ := r.do(t, r.h1, "GET", path, nil, 1e4)
		if answer.StatusCode != http.StatusTooManyRequests || answer.Header.Get("Retry-After") == "" {
			t.Errorf("%s: %s, Retry-After %q", path, answer.Status, answer.Header.Get("Retry-After"))
		}
	}
	for _, path := range []string{"/slurp", meter.PathSession} {
		if answer, _ := r.do(t, r.h1, "POST", path, nil, 1e4); answer.StatusCode != http.StatusTooManyRequests {
			t.Errorf("%s: %s", path, answer.Status)
		}
	}
}

// No more than the limit of bytes leaves.
func TestBytes(t *testing.T) {
	r := start(t, func(c *Config) { c.Bytes = 1 << 20 })
	request, _ := http.NewRequest("GET", "https://"+r.addr+"/large", nil)
	answer, err := r.h1.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	if n, err := io.Copy(io.Discard, answer.Body); err == nil || n > 1<<20+chunk {
		t.Errorf("%d bytes, %v", n, err)
	}
}

func TestPacer(t *testing.T) {
	p := pacer{rate: 8e6}
	now := time.Unix(1000, 0)
	end := now.Add(time.Minute)
	for i, want := range []time.Duration{0, 44, 108} {
		if got, ok := p.take(now, end, 64000); got != want*time.Millisecond || !ok {
			t.Errorf("%d: %v", i, got)
		}
	}
	if got, ok := p.take(now.Add(time.Second), end, 64000); got != 0 || !ok {
		t.Errorf("after a pause: %v", got)
	}
	if got, ok := (&pacer{}).take(now, end, 1e9); got != 0 || !ok {
		t.Errorf("without a rate: %v", got)
	}
	// Who asks for more than there is time for takes none of it from others.
	now = now.Add(time.Second)
	for range 100 {
		p.take(now, now.Add(time.Second), 500_000)
	}
	if got, ok := p.take(now, end, 1); got > 2*time.Second || !ok {
		t.Errorf("after who asks for too much: %v", got)
	}
}

// Connections beyond the limit are closed at once, and those within it work.
func TestConnections(t *testing.T) {
	const all, limit = 10, 3
	r := start(t, func(c *Config) { c.PerHost = limit })
	greeted := make(chan error, all)
	for range all {
		c, err := net.Dial("tcp", r.addr)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		c.SetDeadline(time.Now().Add(time.Minute))
		go func() { greeted <- tls.Client(c, &tls.Config{InsecureSkipVerify: true}).Handshake() }()
	}
	open := 0
	for range all {
		switch err := <-greeted; {
		case err == nil:
			open++
		case errors.Is(err, os.ErrDeadlineExceeded):
			t.Error("a connection is neither closed nor answered")
		}
	}
	if open != limit {
		t.Errorf("%d of %d are open, want %d", open, all, limit)
	}
}

// Who comes beyond the limit takes the place of a connection that waits for its next request, and of no other.
func TestConnectionsThatWait(t *testing.T) {
	const limit = 2
	r := start(t, func(c *Config) { c.PerHost = limit })
	open := func() *http.Client {
		c := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
		t.Cleanup(c.CloseIdleConnections)
		return c
	}
	for n := range 5 * limit { // each keeps its connection
		if _, text := r.do(t, open(), "GET", "/small", nil, 9); len(text) != 1 {
			t.Fatalf("connection %d is not served", n)
		}
	}
}

// A stranger takes no place of who tests, not even that of a connection which waits.
func TestConnectionsOfWhoTests(t *testing.T) {
	g := newGate(Limits{Tests: 1, Duration: time.Minute, Bytes: 1e9, Conns: 2, PerHost: 2}, time.Now, func(string) {})
	l := newLimited(nil, g)
	if h, why := g.enter("192.0.2.1"); h == nil {
		t.Fatal(why)
	}
	dead, other := net.Pipe()
	defer other.Close()
	for range 2 {
		if !l.admit(&countedConn{Conn: dead, of: l, who: "192.0.2.1", idle: true}) {
			t.Fatal("who tests is not admitted")
		}
	}
	if l.admit(&countedConn{Conn: dead, of: l, who: "192.0.2.2"}) {
		t.Error("a stranger has taken the place of who tests")
	}
	if !l.admit(&countedConn{Conn: dead, of: l, who: "192.0.2.1"}) || len(l.open) != 2 {
		t.Error("who tests gets no place of its own that waits")
	}
}

// Who sends garbage is sent away, and who comes next is served.
func TestGarbage(t *testing.T) {
	r := start(t, nil)
	for _, text := range []string{"GET / HTTP/1.1\r\n\r\n", "\x16\x03\x01\xff\xff", strings.Repeat("A", 100_000)} {
		c, err := net.Dial("tcp", r.addr)
		if err != nil {
			t.Fatal(err)
		}
		io.WriteString(c, text)
		c.(*net.TCPConn).CloseWrite()
		io.Copy(io.Discard, c)
		c.Close()
	}
	if _, text := r.do(t, r.h1, "GET", "/small", nil, 9); len(text) != 1 {
		t.Error("nobody is served any more")
	}
}

// slow gives a byte each so often.
type slow struct {
	left int
	each time.Duration
}

func (s *slow) Read(b []byte) (int, error) {
	if s.left--; s.left < 0 {
		return 0, io.EOF
	}
	time.Sleep(s.each)
	return copy(b, "x"), nil
}

// What is kept stays the same, and what is secret is its owner's alone.
func TestKeep(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "serve")
	a, err := Keep(dir)
	if err != nil {
		t.Fatal(err)
	}
	b, err := Keep(dir)
	if err != nil || a.Fingerprint != b.Fingerprint || a.Token != b.Token || len(a.Token) != 24 {
		t.Errorf("%s %s, %s %s: %v", a.Fingerprint, b.Fingerprint, a.Token, b.Token, err)
	}
	for name, mode := range map[string]os.FileMode{".": 0o700, keyFile: 0o600, tokenFile: 0o600} {
		if info, err := os.Stat(filepath.Join(dir, name)); err != nil || info.Mode().Perm() != mode {
			t.Errorf("%s: %v %v", name, info.Mode(), err)
		}
	}
	cert, key := filepath.Join(dir, certificateFile), filepath.Join(dir, keyFile)
	for _, spoilt := range []func() error{
		func() error { return os.WriteFile(cert, nil, 0o600) },
		func() error { return os.WriteFile(key, []byte("nonsense"), 0o600) },
		func() error { return os.Remove(cert) },
	} {
		if err := spoilt(); err != nil {
			t.Fatal(err)
		}
		var problem *hint.Error
		if _, err := Keep(dir); !errors.As(err, &problem) || !strings.Contains(problem.Try, "rm "+key) {
			t.Errorf("a damaged certificate or key: %v", err)
		}
		os.Remove(key) // as it says
		if _, err := Keep(dir); err != nil {
			t.Error(err)
		}
	}
}

// What a full disk or a power cut has left empty is as good as not there: no token would let in everybody.
func TestKeepEmpty(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{tokenFile, keyFile} {
		for _, left := range []string{"", "\n"} {
			a, err := Keep(dir)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(dir, name), []byte(left), 0o600); err != nil {
				t.Fatal(err)
			}
			b, err := Keep(dir)
			if err != nil || len(b.Token) != 24 || (a.Token == b.Token) != (name == keyFile) ||
				(a.Fingerprint == b.Fingerprint) != (name == tokenFile) {
				t.Errorf("%s of %q: the token %q, %v", name, left, b.Token, err)
			}
			if c, err := Keep(dir); err != nil || c.Token != b.Token || c.Fingerprint != b.Fingerprint {
				t.Errorf("%s of %q is made, and not kept: %v", name, left, err)
			}
		}
	}
}

// A file that cannot be made whole leaves what was there, and no part of itself.
func TestWriteWhole(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "file")
	for _, text := range []string{"a", "b"} {
		if err := writeWhole(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(path); string(got) != text {
			t.Errorf("%q, %v", got, err)
		}
	}
	if err := os.Mkdir(filepath.Join(dir, "folder"), 0o700); err != nil {
		t.Fatal(err)
	}
	if writeWhole(filepath.Join(dir, "folder"), []byte("a"), 0o600) == nil {
		t.Error("a folder is written over")
	}
	if all, err := os.ReadDir(dir); err != nil || len(all) != 2 {
		t.Errorf("%v is left, %v", all, err)
	}
}

func TestClient(t *testing.T) {
	for remote, want := range map[string]string{"192.0.2.1:5": "192.0.2.1", "[2001:db8::1:2:3:4]:5": "2001:db8::/64",
		"[::ffff:192.0.2.1]:5": "192.0.2.1", "[::1]:5": "::1", "[fe80::1%eth0]:5": "fe80::/64", "nonsense": "unknown"} {
		if got := client(remote); got != want {
			t.Errorf("%s: %s, want %s", remote, got, want)
		}
	}
}
