// SPDX-License-Identifier: Apache-2.0

package server

import (
	"crypto/tls"
	"encoding/binary"
	"io"
	"net"
	"testing"
	"time"
)

// Frames of HTTP/2 (RFC 9113, section 6).
const (
	frameData     = 0
	frameHeaders  = 1
	frameReset    = 3
	frameSettings = 4
	framePing     = 6
	maxFrame      = 16 << 10
	endStream     = 0x1
	endHeaders    = 0x4
)

// h2 is a connection of HTTP/2 that takes no data: the window of its streams is 0.
type h2 struct{ *tls.Conn }

func (c h2) send(kind, flags byte, stream uint32, payload []byte) {
	head := binary.BigEndian.AppendUint32(nil, uint32(len(payload))<<8|uint32(kind))
	head = binary.BigEndian.AppendUint32(append(head, flags), stream)
	c.Write(append(head, payload...))
}

// ask begins a request for a path, by the static table of HPACK (RFC 7541, appendix A).
func (c h2) ask(flags, method byte, path string) {
	const authority, pathName, https = 0x41, 0x44, 0x87
	block := append([]byte{method, https, authority, 1, 'x', pathName, byte(len(path))}, path...)
	c.send(frameHeaders, flags|endHeaders, 1, block)
}

// wait reads frames until one of a kind comes.
func (c h2) wait(kind byte) error {
	for {
		head := make([]byte, 9)
		if _, err := io.ReadFull(c, head); err != nil {
			return err
		}
		size := int64(binary.BigEndian.Uint32(head) >> 8)
		if _, err := io.CopyN(io.Discard, c, size); err != nil {
			return err
		}
		if head[3] == kind {
			return nil
		}
	}
}

// When there are too many connections, one goes of the client that has most, the idle and the old first; and none of a
// client that tests, or has shown the token.
func TestTooManyConnections(t *testing.T) {
	now := time.Unix(0, 0)
	g := newGate(Limits{Tests: 1, Duration: time.Minute, Bytes: 1e9, Conns: 4, PerHost: 3},
		func() time.Time { return now }, func(string) {})
	l := newLimited(nil, g)
	dead, other := net.Pipe()
	defer other.Close()
	come := func(who string, want bool, open string) {
		t.Helper()
		now = now.Add(time.Second)
		if got := l.admit(&countedConn{Conn: dead, of: l, who: who, since: now}); got != want {
			t.Errorf("%s is let in: %v", who, got)
		}
		var all string
		for _, c := range l.open {
			all += c.who
		}
		if all != open {
			t.Errorf("after %s: %s, want %s", who, all, open)
		}
	}
	for _, c := range []string{"a", "aa", "aaa"} {
		come("a", true, c)
	}
	come("a", false, "aaa") // as many as one may have
	come("b", true, "aaab")
	come("c", true, "aabc") // of the one who has most
	come("d", true, "abcd")
	come("b", false, "abcd") // who has as many as any
	come("e", true, "bcde")
	l.open[2].idle = true
	come("f", true, "bcef")
	l.open[0].shown = true
	come("g", true, "befg")
	come("b", true, "befgb")
	come("b", true, "befgbb")
	g.enter("e")
	come("h", true, "begbbh")
	come("b", false, "begbbh")
	now = now.Add(replaceableAge)
	come("b", true, "egbbhb") // for its own that is old
}

// Nor does a client without the token keep others from HTTP/2, by all the connections of which there is memory for.
func TestPlacesOfHTTP2(t *testing.T) {
	const many = 3 * maxHTTP2
	l := newLimited(nil, newGate(Limits{Tests: 1, Duration: time.Minute, Bytes: 1e9, Conns: many, PerHost: many},
		func() time.Time { return time.Unix(0, 0) }, func(string) {}))
	dead, other := net.Pipe()
	defer other.Close()
	come := func(who string) (c *countedConn, may bool) {
		c = &countedConn{Conn: dead, of: l, who: who}
		l.admit(c)
		return c, l.mayUseHTTP2(c)
	}
	held := func(who string) (n int) {
		for _, c := range l.open {
			if c.who == who && c.h2 {
				n++
			}
		}
		return n
	}
	const hoarder, reader, tester = "192.0.2.1", "198.51.100.1", "203.0.113.1"
	for i := range maxHTTP2 {
		if _, may := come(hoarder); !may {
			t.Fatalf("connection %d may not", i)
		}
	}
	if _, may := come(hoarder); may || held(hoarder) != maxHTTP2 {
		t.Errorf("one more of the same client may: %v, with %d", may, held(hoarder))
	}
	for range maxHTTP2 {
		come(reader)
	}
	if held(hoarder) != maxHTTP2/2 || held(reader) != maxHTTP2/2 {
		t.Errorf("%d and %d places, want as many each", held(hoarder), held(reader))
	}
	// Who has shown the token takes as many as it needs, and loses none.
	c, may := come(tester)
	if c.shown = true; !may {
		t.Error("a newcomer may not")
	}
	for i := range maxHTTP2 - 1 {
		if _, may := come(tester); !may {
			t.Errorf("connection %d with the token may not", i)
		}
	}
	if _, may := come(reader); may || held(tester) != maxHTTP2 {
		t.Errorf("a stranger may instead of it: %v, with %d", may, held(tester))
	}
}
