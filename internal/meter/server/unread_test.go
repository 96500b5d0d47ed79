// SPDX-License-Identifier: Apache-2.0

package server

import (
	"crypto/tls"
	"encoding/binary"
	"fmt"
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

// Connections on which one request follows the other, and that no test has come of, give way when there are too many.
func TestConnectionsThatAreOld(t *testing.T) {
	now := time.Unix(0, 0)
	g := newGate(Limits{Tests: 1, Duration: time.Minute, Bytes: 1e9, Conns: 2, PerHost: 2},
		func() time.Time { return now }, func(string) {})
	l := newLimited(nil, g)
	dead, other := net.Pipe()
	defer other.Close()
	come := func(who int) bool {
		return l.admit(&counted{Conn: dead, of: l, who: fmt.Sprint(who), since: now})
	}
	if !come(1) || !come(2) || come(3) {
		t.Error("two at once are not the limit")
	}
	if now = now.Add(aged + time.Second); !come(3) || !come(4) || come(5) {
		t.Error("the old do not give way, or the new do")
	}
	l.open[1].idle = true
	if now = now.Add(aged + time.Second); !come(4) || l.open[0].who != "3" {
		t.Error("the old has given way before the idle")
	}
	g.enter("3")
	if now = now.Add(aged + time.Second); !come(5) || l.open[0].who != "3" {
		t.Error("who tests has given way")
	}
}
