// SPDX-License-Identifier: Apache-2.0

package irtt

import (
	"encoding/binary"
	"net/netip"
	"time"
)

// Responder answers packets. It is no amplifier and no reflector. It answers an open only to who has the key or may do
// without, and a connection only at the address that opened it. It never answers with more bytes than it was sent, but
// to an open. That answer adds a token of 8 bytes, and parameters that were not asked for. These are of 9 bytes at
// most, where the interval is below 134 ms; see [Responder.Open].
type Responder struct {
	Key []byte // of the HMAC; without one, only those are answered whom Open names
	// may this address open a connection without a key? Its answer is longer than its request, so a forged address
	// would be sent more than was spent on it. The zero Responder answers nobody.
	Open   func(netip.Addr) bool
	Client func(netip.Addr) string // who is counted as one
	// has this address shown that it has the key, by more than an open? That can be recorded, and sent again from a
	// forged address. So few others are answered in a second. Nil: none has.
	Known       func(netip.Addr) bool
	Heard       func(netip.Addr) // of who opens a connection, or is answered on one; may be nil
	Now         func() time.Time // with a monotonic reading
	Token       func() uint64    // cannot be guessed
	MinInterval time.Duration    // of a connection's packets, on average
	MaxDuration time.Duration    // of a connection
	Most        int              // connections at once, and PerClient of one client

	began  time.Time
	conns  map[uint64]*conn
	opens  time.Duration // that may be answered at once to who is not known, each of openInterval
	opened time.Time     // when such a one came last
	missed uint32        // packets that had come and could not be handled, since the last bulk packet
}

// Missed reports packets that had come and found no room. So many can only be bulk, and count with the next of these.
func (r *Responder) Missed(packets uint32) { r.missed += packets }

type conn struct {
	from   netip.AddrPort
	layout Layout
	params Params
	opened time.Time
	heard  time.Time
	count  uint32
	last   uint32
	window uint64
	budget time.Duration // packets that may come at once, each an interval
}

// PerClient is how many connections a client may have at once.
const PerClient = 4

const (
	openInterval, openBurst = time.Second / 2, 4 * time.Second // between opens of who is not known

	burst   = 2 * time.Second  // of packets that may come at once: a link or a host may have stood still
	silence = 30 * time.Second // after which a connection is forgotten
	maxTOS  = 48 << 2          // from here on it is network control (RFC 2474, section 4.2.2), which no client needs
)

// Answer is what is sent back; without bytes, nothing is.
type Answer struct {
	Bytes []byte
	TOS   byte // DSCP and ECN that it shall have
	Whole bool // it may not be fragmented on its way
}

// Handle gives the answer to a packet that arrived with a byte of DSCP and ECN. The packet is overwritten, and the
// answer may be part of it.
func (r *Responder) Handle(from netip.AddrPort, tos byte, b []byte) Answer {
	now := r.Now()
	if r.conns == nil {
		r.conns, r.began, r.opened, r.opens = map[uint64]*conn{}, now, now, openBurst
	}
	flags, ok := check(b, r.Key)
	switch {
	case !ok || flags&flagReply != 0 || flags&flagOpen != 0 && len(b) > MaxLength:
		return Answer{}
	case flags&flagOpen != 0:
		return Answer{Bytes: r.open(now, from, flags, b)}
	}
	at := body(flags)
	if len(b) < at+tokenLen {
		return Answer{}
	}
	token := binary.LittleEndian.Uint64(b[at:])
	c := r.conns[token]
	if c == nil || c.from != from {
		return Answer{}
	}
	if flags&flagClose != 0 {
		delete(r.conns, token)
		return Answer{}
	}
	if now.Sub(c.opened) > r.MaxDuration+silence {
		delete(r.conns, token)
		return Answer{}
	}
	return r.echo(now, c, tos, b)
}

// open grants a connection, with its parameters cut down to what is allowed.
func (r *Responder) open(now time.Time, from netip.AddrPort, flags byte, b []byte) []byte {
	p, err := parseParams(b[body(flags):])
	if err != nil || len(r.Key) == 0 && (r.Open == nil || !r.Open(from.Addr())) || !r.mayOpen(now, from.Addr()) {
		return nil
	}
	p.Fill, p.DSCP = "", 0
	p.Interval = max(p.Interval, int64(r.MinInterval))
	p.Duration = min(p.Duration, int64(r.MaxDuration))
	p.Length = min(p.Length, MaxLength)
	p.Received &= CountReceived | Window
	if p.StampAt > stampMidpoint {
		p.StampAt = 0
	}
	p.Clock &= clockBoth
	p.Path &= 1
	if p.Bulk &= 1; p.Bulk != 0 { // the count is theirs
		p.Path, p.Length, p.Received = 0, 0, CountReceived
	}
	answer := start(flagOpen|flagReply, r.Key)
	token := uint64(0)
	switch {
	case p.Version != Protocol:
		p.Version = Protocol
		answer[flagsAt] |= flagClose
	case flags&flagClose != 0: // only asking whether somebody is here
	case !r.hasRoom(now, from):
		answer[flagsAt] |= flagClose
	default:
		r.noteHeard(from)
		token = r.Token()
		r.conns[token] = &conn{from: from, params: p, layout: NewLayout(p, len(r.Key) > 0), opened: now, heard: now,
			budget: burst}
	}
	answer = binary.LittleEndian.AppendUint64(answer, token)
	return sign(p.Append(answer), r.Key)
}

// mayOpen reports whether an open is answered: of who is known always, and of others a few in a second.
func (r *Responder) mayOpen(now time.Time, from netip.Addr) bool {
	if r.Known != nil && r.Known(from) || len(r.Key) == 0 {
		return true
	}
	r.opens, r.opened = min(r.opens+now.Sub(r.opened), openBurst), now
	if r.opens < openInterval {
		return false
	}
	r.opens -= openInterval
	return true
}

func (r *Responder) noteHeard(from netip.AddrPort) {
	if r.Heard != nil {
		r.Heard(from.Addr())
	}
}

// hasRoom forgets who has been silent, and reports whether there is place for one more.
func (r *Responder) hasRoom(now time.Time, from netip.AddrPort) bool {
	same, client := 0, r.Client(from.Addr())
	for token, c := range r.conns {
		switch {
		case now.Sub(c.heard) > silence:
			delete(r.conns, token)
		case r.Client(c.from.Addr()) == client:
			same++
		}
	}
	return len(r.conns) < r.Most && same < PerClient
}

// echo answers in the packet's own bytes, so an answer is never longer.
func (r *Responder) echo(now time.Time, c *conn, tos byte, b []byte) Answer {
	l, most := c.layout, MaxLength
	if c.params.Path != 0 {
		most = MaxPath
	}
	if len(b) < l.Size || len(b) > most {
		return Answer{}
	}
	if c.params.Bulk != 0 && len(b) > l.Size {
		c.count += 1 + r.missed
		r.missed = 0
		return Answer{}
	}
	c.budget = min(c.budget+now.Sub(c.heard), burst)
	c.heard = now
	if c.params.Bulk == 0 {
		c.received(binary.LittleEndian.Uint32(b[l.seq:]))
	}
	if c.budget < r.MinInterval {
		return Answer{}
	}
	c.budget -= r.MinInterval
	r.noteHeard(c.from)

	b[flagsAt] |= flagReply
	le := binary.LittleEndian
	put := func(at int, v int64) {
		if at != 0 {
			le.PutUint64(b[at:], uint64(v))
		}
	}
	if l.count != 0 {
		le.PutUint32(b[l.count:], c.count)
	}
	put(l.window, int64(c.window))
	put(l.recvWall, now.UnixNano())
	put(l.recvMono, int64(now.Sub(r.began)))
	put(l.midWall, now.UnixNano())
	put(l.midMono, int64(now.Sub(r.began)))
	clear(b[l.Size:])
	answer := Answer{Bytes: b, Whole: l.seen != 0}
	if l.seen != 0 {
		b[l.seen] = tos
		if b[l.asked] < maxTOS {
			answer.TOS = b[l.asked]
		}
	}
	sent := r.Now()
	put(l.sendWall, sent.UnixNano())
	put(l.sendMono, int64(sent.Sub(r.began)))
	sign(b, r.Key)
	return answer
}

// received notes a packet. The lowest bit of the window is the highest number that has arrived.
func (c *conn) received(seq uint32) {
	c.count++
	switch ahead := int32(seq - c.last); {
	case c.count == 1:
		c.window, c.last = 1, seq
	case ahead >= 64:
		c.window, c.last = 1, seq
	case ahead > 0:
		c.window, c.last = c.window<<ahead|1, seq
	case ahead > -64:
		c.window |= 1 << -ahead
	}
}
