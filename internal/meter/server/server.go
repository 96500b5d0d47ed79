// SPDX-License-Identifier: Apache-2.0

// Package server is the other end of a measurement: one TLS port and one UDP port that speak Weir's own protocol,
// responsiveness (RPM), ndt7, LibreSpeed, Cloudflare's two paths, and irtt.
//
// It needs no privileges, and keeps nothing but what its limits allow. It never sends to an address that has not asked.
// By UDP it never sends more than it was sent, but for a few bytes to who has the token, or is this host.
package server

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"log"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"time"

	"weir/internal/meter"
	"weir/internal/meter/irtt"
	"weir/internal/units"
)

// Limits bound what clients may do.
type Limits struct {
	Tests    int           // clients that test at once; others get 429
	Duration time.Duration // of a client's test
	Bytes    int64         // of a client's test, both directions
	Rate     units.Rate    // of all loads together, each direction; 0: none
	Conns    int           // connections at once
	PerHost  int           // of those, of one client
}

// DefaultLimits let one client test a gigabit link for as long as any client here takes.
func DefaultLimits() Limits {
	return Limits{Tests: 1, Duration: time.Minute, Bytes: 20e9, Conns: 256, PerHost: 80}
}

// Config is what a server needs. The zero Limits let nobody in.
type Config struct {
	Limits
	Token       string // that clients must show; "": none
	Certificate tls.Certificate
	Domain      *Domain           // nil: its own certificate is all that it has
	Name        string            // of this host
	Version     string            // of this program
	Kernel      string            // that it runs on
	Event       func(says string) // a line for each test; may be nil
	now         func() time.Time  // for tests
	patience    time.Duration     // for tests: how long a request's body and its answer may take, but for bulk data
	wait        waiter            // for tests: pause
}

// waiter waits, and reports whether the client is still there.
type waiter func(gone <-chan struct{}, wait time.Duration) bool

// Server is a running server.
type Server struct {
	Config
	gate      *gate
	strangers strangers
	down, up  pacer                           // of loads
	echoes    struct{ inside, outside pacer } // of UDP beside them, of who has a place, and of others
	sessions  sessions
	summing   sync.Mutex // a summary takes memory
	noise     []byte     // what downloads are made of: nothing that could be compressed
	udp       int
	path      bool // this host's kernel says what the path did to a packet
}

// chunk is what is read and written at once, in bytes.
const chunk = 64 << 10

// New makes a server; Serve runs it.
func New(c Config) *Server {
	if c.now == nil {
		c.now = time.Now
	}
	if c.wait == nil {
		c.wait = pause
	}
	if c.patience == 0 {
		c.patience = stall
	}
	if c.Event == nil {
		c.Event = func(string) {}
	}
	s := &Server{Config: c, noise: make([]byte, meter.PlainChunk)}
	rand.Read(s.noise)
	s.gate = newGate(c.Limits, c.now, c.Event)
	s.down.rate, s.up.rate = c.Rate, c.Rate
	if c.Rate > 0 {
		const share, least = 8, 256_000 // bit/s of a test: a probe of 100 bytes each 10 ms takes a third of that
		s.echoes.inside.rate = min(c.Rate, max(c.Rate/share, least*units.Rate(max(c.Tests, 1))))
		s.echoes.outside.rate = s.echoes.inside.rate
	}
	return s
}

// Running are the tests that run now, the longest first.
func (s *Server) Running() []Test { return s.gate.running() }

// Serve answers until the context ends. It closes both.
func (s *Server) Serve(ctx context.Context, tcp net.Listener, udp net.PacketConn) error {
	datagrams, err := s.datagrams(udp)
	if err != nil {
		return err
	}
	limited := newLimited(tcp, s.gate)
	web := &http.Server{
		Handler:           s.routes(),
		TLSConfig:         withHTTP2(s.tls(), limited),
		ReadHeaderTimeout: 5 * time.Second, // of the TLS handshake, too
		IdleTimeout:       20 * time.Second,
		MaxHeaderBytes:    8 << 10,
		ConnContext:       withConn,
		ConnState:         limited.state,
		ErrorLog:          log.New(discard{}, "", 0),
		// Its own answer to "OPTIONS *" waits for a body without end.
		DisableGeneralOptionsHandler: true,
		HTTP2: &http.HTTP2Config{MaxReceiveBufferPerConnection: http2Buffer, MaxReceiveBufferPerStream: http2Buffer,
			MaxConcurrentStreams: 32, SendPingTimeout: stall, WriteByteTimeout: stall},
	}
	failed := make(chan error, 2)
	go func() { failed <- s.answerUDP(datagrams) }()
	go func() { failed <- web.ServeTLS(tlsOrPlainListener{limited, s}, "", "") }()
	select {
	case <-ctx.Done():
	case err = <-failed:
	}
	udp.Close()
	if e := web.Close(); err == nil {
		err = e
	}
	if errors.Is(err, http.ErrServerClosed) || errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

type discard struct{}

func (discard) Write(b []byte) (int, error) { return len(b), nil }

// datagrams is a UDP socket that says how packets arrive, where the kernel does.
func (s *Server) datagrams(udp net.PacketConn) (*meter.Marked, error) {
	conn, ok := udp.(*net.UDPConn)
	if !ok {
		return nil, errors.New("the second socket is not of UDP")
	}
	if a, ok := conn.LocalAddr().(*net.UDPAddr); ok {
		s.udp = a.Port
	}
	const burst = 4 << 20 // bytes, that may come before they are read; the kernel grants what it allows
	conn.SetReadBuffer(burst)
	marked, err := meter.Mark(conn)
	if err == nil {
		s.path = marked.Tells()
	}
	return marked, err
}

// responder is irtt. Without a token only this host may ask, since the answer to its first packet is a little longer.
func (s *Server) responder() *irtt.Responder {
	const most = 64 // connections, or as many as a client's for each that may test at once
	return &irtt.Responder{Key: irtt.Key(s.Token), Open: netip.Addr.IsLoopback, Client: clientAt,
		Known: func(a netip.Addr) bool { return s.gate.hasShownToken(clientAt(a)) },
		Heard: func(a netip.Addr) { s.gate.noteProbe(clientAt(a)) }, Now: s.now,
		Most: max(most, irtt.PerClient*s.Tests), MinInterval: 5 * time.Millisecond, MaxDuration: s.Duration,
		Token: func() uint64 {
			var b [8]byte
			rand.Read(b[:])
			return binary.LittleEndian.Uint64(b[:])
		}}
}

// answer returns the reply to a datagram, or none if the client is more than two seconds ahead of its rate. It never
// blocks.
func (s *Server) answer(r *irtt.Responder, from netip.AddrPort, tos byte, b []byte) irtt.Answer {
	const ahead = 2 * time.Second
	of := &s.echoes.outside
	if s.Rate > 0 && s.gate.hasPlace(clientAt(from.Addr())) { // before the answer has its time stamp
		of = &s.echoes.inside
	}
	a, now := r.Handle(from, tos, b), s.now()
	if _, ok := of.take(now, now.Add(ahead), len(a.Bytes)); !ok {
		return irtt.Answer{}
	}
	return a
}

// answerUDP answers what comes.
func (s *Server) answerUDP(udp *meter.Marked) error {
	r := s.responder()
	b := make([]byte, irtt.MaxPath+1)
	missed := uint32(0)
	for {
		n, tos, from, err := udp.Read(b)
		if errors.Is(err, net.ErrClosed) {
			return nil
		}
		if err != nil {
			continue // such as "connection refused", of an answer before
		}
		r.Missed(udp.Missed() - missed)
		missed = udp.Missed()
		answer := s.answer(r, netip.AddrPortFrom(from.Addr().Unmap(), from.Port()), tos, b[:n])
		if answer.Bytes == nil {
			continue
		}
		if answer.Whole { // of all others the kernel decides
			udp.Whole(true)
		}
		udp.Write(answer.Bytes, answer.TOS, from)
		if answer.Whole {
			udp.Whole(false)
		}
	}
}

type connKey struct{}

func withConn(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, connKey{}, c)
}

func connOf(r *http.Request) net.Conn {
	c, _ := r.Context().Value(connKey{}).(net.Conn)
	return c
}

// refusalPause is how long who says a wrong token waits for the answer. Since a client has strangers.enter's few
// requests at once, it can try as many tokens in a second.
const refusalPause = time.Second

// tokenPath comes before any path, for clients that know nothing of tokens: /t/TOKEN/.well-known/nq
const tokenPath = "/t/"

// authorized lets nobody in without the token: as the beginning of the path, in the query, or as a bearer's.
func (s *Server) authorized(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// After any answer net/http waits for the body. Where there is none it waits for the client to go, as long as
		// the answer takes.
		to := http.NewResponseController(w)
		if r.ContentLength != 0 {
			to.SetReadDeadline(time.Now().Add(s.patience))
		}
		// Who does not read an answer would have its connection for ever; of HTTP/2 also what it has sent meanwhile.
		to.SetWriteDeadline(time.Now().Add(s.patience))
		switch {
		case r.ProtoMajor < 2: // that does not keep what nobody reads
		case r.Method == http.MethodPost:
			defer r.Body.Close()
		default:
			r.Body.Close()
		}
		said := r.URL.Query().Get("token")
		if bearer, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer "); ok {
			said = bearer
		}
		if rest, ok := strings.CutPrefix(r.URL.Path, tokenPath); ok {
			token, path, whole := strings.Cut(rest, "/")
			if !whole && token != "" { // the page's own addresses are relative to a folder
				http.Redirect(w, r, r.URL.Path+"/", http.StatusMovedPermanently)
				return
			}
			r = r.Clone(r.Context())
			r.URL.Path, r.URL.RawPath, said = "/"+path, "", token
		}
		known := s.Token != "" && subtle.ConstantTimeCompare([]byte(said), []byte(s.Token)) == 1
		if !known && !s.strangers.enter(r, s.gate) {
			panic(http.ErrAbortHandler)
		}
		if s.open(w, r) || s.Token == "" {
			next.ServeHTTP(w, r)
			return
		}
		if !known {
			if said != "" {
				s.wait(r.Context().Done(), refusalPause)
			}
			w.Header().Set("Connection", "close")
			http.Error(w, "a token is needed: weir serve prints it", http.StatusForbidden)
			return
		}
		s.gate.show(client(r.RemoteAddr))
		if c := countedConnOf(connOf(r)); c != nil {
			c.of.show(c)
		}
		// Who has the token may be a page of another origin.
		w.Header().Set("Access-Control-Allow-Origin", "*")
		w.Header().Set("Access-Control-Allow-Methods", "GET, POST")
		w.Header().Set("Access-Control-Allow-Headers", "Content-Encoding, Content-Type")
		w.Header().Set("Timing-Allow-Origin", "*")
		if r.Method == http.MethodOptions {
			w.WriteHeader(http.StatusNoContent)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// strangers counts the requests under way of clients that neither test nor show the token. Who does not read the answer
// to one keeps all that its request has said in memory. What fits into a buffer is answered, and not counted any more,
// though it may not have left: of that there is as much as HTTP/2's bounds allow.
type strangers struct {
	mu    sync.Mutex
	all   int
	those map[string]int // by client
}

// enter counts a request until it has been handled, and reports whether there is room for it: for one of each client
// always.
func (s *strangers) enter(r *http.Request, g *gate) bool {
	const all, perClient = 256, 32
	who := client(r.RemoteAddr)
	if g.hasPlace(who) {
		return true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if own := s.those[who]; own >= perClient || s.all >= all && own > 0 {
		return false
	}
	if s.those == nil {
		s.those = map[string]int{}
	}
	s.all++
	s.those[who]++
	context.AfterFunc(r.Context(), func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.all--
		if s.those[who]--; s.those[who] == 0 {
			delete(s.those, who)
		}
	})
	return true
}

// base is the address of a path of this server as the client wrote it, with the token.
func (s *Server) base(r *http.Request) (string, error) {
	if r.Host == "" || strings.Trim(strings.ToLower(r.Host), "abcdefghijklmnopqrstuvwxyz0123456789.-:[]") != "" {
		return "", errors.New("a Host is needed")
	}
	if s.Token == "" {
		return "https://" + r.Host, nil
	}
	return "https://" + r.Host + tokenPath + s.Token, nil
}

func (s *Server) routes() http.Handler {
	m := http.NewServeMux()
	for _, path := range []string{"/.well-known/nq", "/config"} {
		m.HandleFunc("GET "+path, s.nq)
	}
	m.HandleFunc("GET /small", s.small)
	m.HandleFunc("GET /large", func(w http.ResponseWriter, r *http.Request) { s.download(w, r, 8<<30, nil) })
	for _, path := range []string{"/slurp", "/__up", "/backend/empty.php"} {
		m.HandleFunc("POST "+path, func(w http.ResponseWriter, r *http.Request) { s.upload(w, r, nil) })
	}
	m.HandleFunc("GET /__down", s.cloudflareDown)
	m.HandleFunc("GET /backend/empty.php", func(w http.ResponseWriter, _ *http.Request) { noStore(w) })
	m.HandleFunc("GET /backend/garbage.php", s.garbage)
	m.HandleFunc("GET /backend/getIP.php", func(w http.ResponseWriter, r *http.Request) {
		noStore(w)
		writeJSON(w, map[string]string{"processedString": client(r.RemoteAddr), "rawIspInfo": ""})
	})
	m.HandleFunc("GET /ndt/v7/download", s.ndt7Download)
	m.HandleFunc("GET /ndt/v7/upload", s.ndt7Upload)
	s.own(m)
	s.page(m)
	return s.authorized(m)
}

// enter takes a place among those who test, or answers that there is none.
func (s *Server) enter(w http.ResponseWriter, r *http.Request) *admission {
	h, wait := s.gate.enter(client(r.RemoteAddr))
	if h == nil {
		busy(w, wait)
	}
	return h
}

func busy(w http.ResponseWriter, wait time.Duration) {
	w.Header().Set("Retry-After", strconv.Itoa(max(int((wait+time.Second-1)/time.Second), 1)))
	http.Error(w, "another test runs: try again later", http.StatusTooManyRequests)
}
