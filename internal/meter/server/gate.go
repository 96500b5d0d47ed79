// SPDX-License-Identifier: Apache-2.0

package server

import (
	"cmp"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"weir/internal/text"
	"weir/internal/units"
)

// gate lets so many clients test at once. A client is in from its first bulk transfer until a while after its last.
type gate struct {
	mu      sync.Mutex
	limits  Limits
	now     func() time.Time
	event   func(string)
	clients map[string]*tester
	turned  time.Time            // when somebody found no place
	shown   map[string]time.Time // when a client has shown the token
}

// tokenMemory is for how long a client is known that has shown the token.
const tokenMemory = 10 * time.Minute

// show notes that a client has the token.
func (g *gate) show(client string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := g.now()
	maps.DeleteFunc(g.shown, func(_ string, at time.Time) bool { return now.Sub(at) > tokenMemory })
	g.shown[client] = now
}

// hasShownToken reports whether a client has shown the token of late.
func (g *gate) hasShownToken(client string) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	since, shown := g.shown[client]
	return shown && g.now().Sub(since) <= tokenMemory
}

// linger is how long a client keeps its place between two transfers.
const linger = 10 * time.Second

// first is how much sooner others may come then, who were told when.
const first = 2 * time.Second

type tester struct {
	running     int
	began, last time.Time
	bytes       int64
	idle        bool // there has been no transfer yet
}

// noteProbe notes a probe of a client's. In an idle phase it keeps the place by these, for as long as a test may take.
func (g *gate) noteProbe(client string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if t, now := g.clients[client], g.now(); t != nil && t.idle && now.Sub(t.began) < g.limits.Duration {
		t.last = now
	}
}

func newGate(l Limits, now func() time.Time, event func(string)) *gate {
	return &gate{limits: l, now: now, event: event, clients: map[string]*tester{},
		shown: map[string]time.Time{}}
}

// hasPlace reports whether a client has a place.
func (g *gate) hasPlace(client string) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.clients[client] != nil
}

// admission is one transfer that the gate has let in.
type admission struct {
	gate   *gate
	client string
	tester *tester
	End    time.Time // when it must be over
}

// enter begins a transfer; without a place it gives none, and how long to wait.
func (g *gate) enter(client string) (*admission, time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.take(client)
}

// begin is a client's wish for a new test: how long it may last or, if it may not begin, how long to wait. Who has just
// ended one may begin again, with all that is allowed, unless somebody else has come meanwhile.
func (g *gate) begin(client string) (left, wait time.Duration, ok bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := g.now()
	if t := g.clients[client]; t != nil && t.running == 0 {
		if rest := t.last.Add(linger + first).Sub(now); rest > 0 && g.turned.After(t.began) {
			return 0, rest, false
		}
		g.end(client, t)
	}
	h, wait := g.take(client)
	if h == nil {
		return 0, wait, false
	}
	h.tester.running--
	h.tester.idle = h.tester.running == 0
	return h.End.Sub(now), 0, true
}

// end gives a client's place away.
func (g *gate) end(client string, t *tester) {
	g.event(fmt.Sprintf("%s: done, %s in %.0f s", client, text.Bytes(float64(t.bytes)), t.last.Sub(t.began).Seconds()))
	delete(g.clients, client)
}

// take is enter, for who has the lock.
func (g *gate) take(client string) (*admission, time.Duration) {
	now := g.now()
	wait := g.limits.Duration
	for name, t := range g.clients {
		left := max(t.last.Add(linger).Sub(now), 0)
		if t.running > 0 {
			left = max(t.began.Add(g.limits.Duration).Sub(now), 0) + linger
		} else if left == 0 {
			g.end(name, t)
			continue
		}
		wait = min(wait, left)
	}
	t := g.clients[client]
	if t == nil {
		if len(g.clients) >= g.limits.Tests {
			g.turned = now
			return nil, wait
		}
		t = &tester{began: now, last: now}
		g.clients[client] = t
		g.event(client + ": begins")
	}
	if now.Sub(t.began) >= g.limits.Duration || t.bytes >= g.limits.Bytes {
		return nil, linger
	}
	t.running++
	t.last, t.idle = now, false
	return &admission{gate: g, client: client, tester: t, End: t.began.Add(g.limits.Duration)}, 0
}

// Test is one that runs.
type Test struct {
	Client  string
	Seconds float64 // since it began
	Bytes   int64   // both directions together
}

// running are the tests that run, the longest first.
func (g *gate) running() (tests []Test) {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := g.now()
	for name, t := range g.clients {
		if t.running > 0 {
			tests = append(tests, Test{name, now.Sub(t.began).Seconds(), t.bytes})
		}
	}
	slices.SortFunc(tests, func(a, b Test) int {
		return cmp.Or(cmp.Compare(b.Seconds, a.Seconds), cmp.Compare(a.Client, b.Client))
	})
	return tests
}

// add counts bytes, and reports whether more may follow.
func (h *admission) add(n int) bool {
	h.gate.mu.Lock()
	defer h.gate.mu.Unlock()
	h.tester.bytes += int64(n)
	return h.tester.bytes < h.gate.limits.Bytes && h.gate.now().Before(h.End)
}

func (h *admission) leave() {
	h.gate.mu.Lock()
	defer h.gate.mu.Unlock()
	h.tester.running--
	h.tester.last = h.gate.now()
}

// client is who is counted as one, of a connection's other end.
func client(remote string) string {
	at, err := netip.ParseAddrPort(remote)
	if err != nil {
		return "unknown"
	}
	return clientAt(at.Addr())
}

// clientAt is who is counted as one: an address of IPv4, a /64 of IPv6.
func clientAt(a netip.Addr) string {
	a = a.Unmap().WithZone("")
	if a.Is4() || a.IsLoopback() {
		return a.String()
	}
	p, _ := a.Prefix(64)
	return p.String()
}

// pacer spreads bytes so that together they keep to a rate. The zero pacer has none.
type pacer struct {
	mu   sync.Mutex
	rate units.Rate
	next time.Time
}

// take books n bytes, and says how long to wait before they may go. What could not go before the end is not booked:
// that would be others' time.
func (p *pacer) take(now, end time.Time, n int) (wait time.Duration, ok bool) {
	if p.rate == 0 {
		return 0, true
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	const slack = 20 * time.Millisecond // who was woken late may catch up for so long
	if least := now.Add(-slack); p.next.Before(least) {
		p.next = least
	}
	if wait = max(p.next.Sub(now), 0); now.Add(wait).After(end) {
		return 0, false
	}
	p.next = p.next.Add(time.Duration(float64(n) * 8 / float64(p.rate) * float64(time.Second)))
	return wait, true
}

// limitListener is a listener that has so many connections open at once. One that comes beyond takes the place of
// another. A client that tests, or has shown the token, may have as many as a host may; its own are left alone.
type limitListener struct {
	net.Listener
	gate *gate
	mu   sync.Mutex
	open []*countedConn // the oldest first
}

func newLimited(l net.Listener, g *gate) *limitListener { return &limitListener{Listener: l, gate: g} }

func (l *limitListener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		held := &countedConn{Conn: c, of: l, who: client(c.RemoteAddr().String()), since: l.gate.now()}
		if l.admit(held) {
			return held, nil
		}
		c.Close()
	}
}

// Connections that speak HTTP/2 at once, and what each may have received that is not read yet, in bytes: at 50 ms that
// is 335 Mbit/s. Together they are what uploads can fill, where a rate is kept.
const (
	maxHTTP2    = 48
	http2Buffer = 2 << 20
)

// MemoryLimit is what a process that serves should tell its garbage collector (debug.SetMemoryLimit), in bytes: half of
// its unit's MemoryMax.
const MemoryLimit = 128 << 20

// replaceableAge is how old a connection is of which no test has come, though one request follows the other.
const replaceableAge = 30 * time.Second

// admit reports whether there is room for one more, or for one instead of another.
func (l *limitListener) admit(c *countedConn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	known, own := l.knownClients(c), 0
	for _, o := range l.open {
		if o.who == c.who {
			own++
		}
	}
	switch limits := l.gate.limits; {
	case own >= limits.PerHost:
		o := l.replaceable(c)
		if o == nil {
			return false
		}
		l.drop(o)
	case len(l.open) >= limits.Conns && !known[c.who]:
		if !l.makeRoom(c, l.open, known) {
			return false
		}
	}
	l.open = append(l.open, c)
	return true
}

// knownClients are the clients that test, or have shown the token, of those that are here and of one that comes.
func (l *limitListener) knownClients(c *countedConn) map[string]bool {
	known := map[string]bool{}
	for _, o := range append(slices.Clone(l.open), c) {
		known[o.who] = known[o.who] || o.shown || l.gate.hasPlace(o.who)
	}
	return known
}

// makeRoom closes one of some connections for a newcomer, and reports whether it has: one of who holds more of them, or
// any of a client that is not known, for one that is.
func (l *limitListener) makeRoom(c *countedConn, among []*countedConn, known map[string]bool) bool {
	held := map[string]int{} // connections of clients that are not known, by client and by network
	for _, o := range among {
		if !known[o.who] {
			held[o.who]++
			held[o.network()]++
		}
	}
	o := surplusConn(among, held, known)
	if o == nil || !known[c.who] && !holdsMore(held, o, c) {
		return false
	}
	l.drop(o)
	return true
}

// drop closes a connection for others. Whoever serves it closes it then.
func (l *limitListener) drop(o *countedConn) {
	o.Conn.Close()
	l.open = slices.DeleteFunc(l.open, func(x *countedConn) bool { return x == o })
}

// replaceable is a connection of the same client that waits for its next request, or is old; nil if there is none.
func (l *limitListener) replaceable(c *countedConn) *countedConn {
	i := slices.IndexFunc(l.open, func(o *countedConn) bool { return o.who == c.who && o.idle })
	if i < 0 && !l.gate.hasPlace(c.who) {
		old := c.since.Add(-replaceableAge)
		i = slices.IndexFunc(l.open, func(o *countedConn) bool { return o.who == c.who && o.since.Before(old) })
	}
	if i < 0 {
		return nil
	}
	return l.open[i]
}

// surplusConn is the connection that goes for a newcomer's: of the network, and in that of the client, that has most;
// an idle one first, and then the oldest. It is nil if all are of clients that are known. It bounds what a few can
// take, however often they come: who has fewer gets a place.
func surplusConn(among []*countedConn, held map[string]int, known map[string]bool) (found *countedConn) {
	for _, o := range among {
		if known[o.who] {
			continue
		}
		if found == nil || holdsMore(held, o, found) || o.idle && !found.idle && !holdsMore(held, found, o) {
			found = o
		}
	}
	return found
}

// holdsMore reports whether a connection's client holds more than another's, its network's counted first.
func holdsMore(held map[string]int, a, b *countedConn) bool {
	return cmp.Or(cmp.Compare(held[a.network()], held[b.network()]), cmp.Compare(held[a.who], held[b.who])) > 0
}

// networkOf is what a client is probably one of many in: a /24 of IPv4, a /48 of IPv6.
func networkOf(client string) string {
	address, _, wide := strings.Cut(client, "/")
	bits := 24
	if wide {
		bits = 48
	}
	at, _ := netip.ParseAddr(address)
	network, _ := at.Prefix(bits)
	return network.String()
}

// show notes that the client of a connection has the token.
func (l *limitListener) show(c net.Conn) {
	if held := countedConnOf(c); held != nil {
		l.mu.Lock()
		held.shown = true
		l.mu.Unlock()
	}
}

// mayUseHTTP2 reports whether a new connection may speak HTTP/2, of which each has a receive buffer, and counts it. It
// may instead of another.
func (l *limitListener) mayUseHTTP2(c net.Conn) bool {
	held := countedConnOf(c)
	if held == nil {
		return true
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	var all []*countedConn
	for _, o := range l.open {
		if o.h2 {
			all = append(all, o)
		}
	}
	held.h2 = len(all) < maxHTTP2 || l.makeRoom(held, all, l.knownClients(held))
	return held.h2
}

// state hears from the web server whether a connection waits for its next request.
func (l *limitListener) state(c net.Conn, state http.ConnState) {
	if held := countedConnOf(c); held != nil {
		l.mu.Lock()
		held.idle = state == http.StateIdle
		l.mu.Unlock()
	}
}

// countedConnOf is the connection below those of TLS and of protocols; nil if a listener of another kind has let it in.
func countedConnOf(c net.Conn) *countedConn {
	for c != nil {
		if held, is := c.(*countedConn); is {
			return held
		}
		outer, is := c.(interface{ NetConn() net.Conn })
		if !is {
			return nil
		}
		c = outer.NetConn()
	}
	return nil
}

// countedConn is a connection that is counted until it is closed.
type countedConn struct {
	net.Conn
	of    *limitListener
	who   string
	since time.Time
	idle  bool // it waits for its next request
	shown bool // the token

	in string // networkOf who, once it is known
	h2 bool   // it may speak HTTP/2
}

// network is that of its client. The caller has the lock.
func (c *countedConn) network() string {
	if c.in == "" {
		c.in = networkOf(c.who)
	}
	return c.in
}

func (c *countedConn) Close() error {
	c.of.mu.Lock()
	if i := slices.Index(c.of.open, c); i >= 0 {
		c.of.open = slices.Delete(c.of.open, i, i+1)
	}
	c.of.mu.Unlock()
	return c.Conn.Close()
}

// NetConn is the connection that the kernel knows.
func (c *countedConn) NetConn() net.Conn { return c.Conn }
