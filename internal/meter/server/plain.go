// SPDX-License-Identifier: Apache-2.0

package server

import (
	"crypto/rand"
	"encoding/hex"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"weir/internal/meter"
)

// Bulk data may go without TLS, whose cipher is slower than a fast link. What is sent so has no meaning. Who may send
// or receive it has asked by TLS for a ticket.

// ticket lets a session open one flow.
type ticket struct {
	session       *session
	direction, cc string
	until         time.Time
}

const (
	ticketLife = 10 * time.Second
	maxTickets = 16 // at once, of a request and of a session
)

// tickets answers a request for some.
func (s *Server) tickets(w http.ResponseWriter, r *http.Request) {
	x := s.sessions.of(w, r)
	if x == nil {
		return
	}
	q := r.URL.Query()
	n, err := strconv.Atoi(q.Get("n"))
	direction := q.Get("direction")
	if err != nil || n < 1 || n > maxTickets || direction != meter.Download && direction != meter.Upload {
		http.Error(w, "n=1 to 16 and direction=download or upload are needed", http.StatusBadRequest)
		return
	}
	if wait, ok := s.gate.tryPlace(x.client); !ok {
		busy(w, wait)
		return
	}
	noStore(w)
	writeJSON(w, meter.Tickets{Tickets: s.sessions.issue(x, direction, q.Get("cc"), n, s.now())})
}

func (a *sessions) issue(x *session, direction, cc string, n int, now time.Time) (names []string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.tickets == nil {
		a.tickets = map[string]ticket{}
	}
	for name, t := range a.tickets {
		if t.until.Before(now) || t.session == x && t.direction == direction {
			delete(a.tickets, name)
		}
	}
	for range n {
		b := make([]byte, meter.TicketLen/2)
		rand.Read(b)
		name := hex.EncodeToString(b)
		a.tickets[name] = ticket{x, direction, cc, now.Add(ticketLife)}
		names = append(names, name)
	}
	return names
}

// redeem takes a ticket from the address that it was given to.
func (a *sessions) redeem(name, client string, now time.Time) (ticket, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	t, there := a.tickets[name]
	if !there || t.session.client != client || t.until.Before(now) {
		return ticket{}, false
	}
	delete(a.tickets, name)
	return t, true
}

// tlsOrPlainListener is a listener whose connections speak TLS, or begin with a ticket.
type tlsOrPlainListener struct {
	net.Listener
	server *Server
}

func (l tlsOrPlainListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &tlsOrPlainConn{Conn: c, server: l.server}, nil
}

// tlsOrPlainConn finds out at its first read, which is TLS's, on that one's goroutine and within its time. No record of
// TLS begins as a ticket does.
type tlsOrPlainConn struct {
	net.Conn
	server *Server
	known  bool
}

func (e *tlsOrPlainConn) Read(b []byte) (int, error) {
	n, err := e.Conn.Read(b)
	if e.known || n == 0 {
		return n, err
	}
	e.known = true
	if b[0] != meter.PlainMagic[0] {
		return n, err
	}
	e.server.plain(e.Conn, b[:n])
	return 0, io.EOF
}

// NetConn is the connection that the kernel knows.
func (e *tlsOrPlainConn) NetConn() net.Conn { return e.Conn }

// plain is a flow without TLS. Whatever is wrong ends it without a word.
func (s *Server) plain(c net.Conn, first []byte) {
	said := make([]byte, meter.PlainLen)
	n := copy(said, first)
	if _, err := io.ReadFull(c, said[n:]); err != nil {
		return
	}
	name, magic := strings.CutPrefix(string(said), meter.PlainMagic)
	who := client(c.RemoteAddr().String())
	t, ok := s.sessions.redeem(strings.TrimSuffix(name, "\n"), who, s.now())
	if !magic || !ok || t.direction == meter.Download && meter.SetCC(c, t.cc) != nil {
		return
	}
	h, _ := s.gate.enter(who)
	if h == nil {
		return
	}
	defer h.leave()
	rec := meter.Record(c, t.direction, t.direction == meter.Download)
	defer func() { t.session.add(rec.Stop("")) }()
	if t.direction == meter.Download {
		meter.SetUnsent(c, meter.PlainUnsent)
		s.pour(c, h, rec)
		return
	}
	rec.Add(len(first) - n)
	s.drain(c, h, rec)
}

// pour sends until the client goes, or the limits are reached.
func (s *Server) pour(c net.Conn, h *admission, rec *meter.Recorder) {
	b := s.noise[:s.atOnce(meter.PlainChunk)]
	for {
		wait, ok := s.down.take(s.now(), h.End, len(b))
		if !ok || !pause(nil, wait) {
			return
		}
		c.SetWriteDeadline(time.Now().Add(stall))
		n, err := c.Write(b)
		rec.Add(n)
		if !h.add(n) || err != nil {
			return
		}
	}
}

// atOnce is how many bytes are written or read at once, of those that may be: few where they are paced. What a client
// that goes has booked is lost to the others.
func (s *Server) atOnce(most int) int {
	const least, perSecond = 1 << 10, 50
	if s.Rate == 0 {
		return most
	}
	return min(most, chunk, max(least, int(s.Rate/8/perSecond)))
}

// drain takes what comes, likewise.
func (s *Server) drain(c net.Conn, h *admission, rec *meter.Recorder) {
	b := make([]byte, s.atOnce(meter.PlainChunk))
	for {
		c.SetReadDeadline(time.Now().Add(stall))
		n, err := meter.Discard(c, b)
		rec.Add(n)
		wait, ok := s.up.take(s.now(), h.End, n)
		if !h.add(n) || err != nil || !ok || !pause(nil, wait) {
			return
		}
	}
}
