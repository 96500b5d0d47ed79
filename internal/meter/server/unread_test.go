// SPDX-License-Identifier: Apache-2.0

package server

import (
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"strings"
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

func deaf(t *testing.T, addr string) h2 {
	t.Helper()
	c, err := tls.Dial("tcp", addr, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	c.SetDeadline(time.Now().Add(time.Minute))
	io.WriteString(c, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
	const initialWindow = 4
	h2{c}.send(frameSettings, 0, 0, []byte{0, initialWindow, 0, 0, 0, 0})
	return h2{c}
}

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

// Who does not read an answer loses the connection, or the stream, with or without a token.
func TestAnswersThatNobodyReads(t *testing.T) {
	const get = 0x82
	for _, path := range []string{"/", "/small"} {
		t.Run("HTTP/2 "+path, func(t *testing.T) {
			r := start(t, func(c *Config) { c.Token, c.patience = "secret", 50*time.Millisecond })
			c := deaf(t, r.addr)
			c.ask(endStream, get, path)
			if err := c.wait(frameReset); err != nil {
				t.Errorf("it is open: %v", err)
			}
		})
	}
	t.Run("HTTP/1", func(t *testing.T) {
		r := start(t, func(c *Config) { c.Token, c.patience = "secret", 50*time.Millisecond })
		raw, err := net.Dial("tcp", r.addr)
		if err != nil {
			t.Fatal(err)
		}
		defer raw.Close()
		raw.(*net.TCPConn).SetReadBuffer(4 << 10)
		c := tls.Client(raw, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"http/1.1"}})
		c.SetDeadline(time.Now().Add(time.Minute))
		for err == nil { // until neither side takes more
			_, err = io.WriteString(c, strings.Repeat("GET /page.js HTTP/1.1\r\nHost: x\r\n\r\n", 100))
		}
		if errors.Is(err, os.ErrDeadlineExceeded) {
			t.Error("it is open")
		}
	})
}

// What a refused request sends on is not kept while its answer waits.
func TestBodyOfARefusal(t *testing.T) {
	const get, post, conns, size = 0x82, 0x83, 16, 3 << 20
	for _, c := range []struct {
		method byte
		path   string
	}{{get, "/"}, {post, "/"}, {post, "/slurp"}, {post, "/t/secret/slurp"}, {post, "/t/secret/weir/1/session"}} {
		t.Run(fmt.Sprintf("%#x %s", c.method, c.path), func(t *testing.T) {
			r := start(t, func(c *Config) { c.Token, c.Tests, c.patience = "secret", 0, time.Hour })
			before := heap()
			for range conns {
				conn := deaf(t, r.addr)
				conn.ask(0, c.method, c.path)
				for range size / maxFrame {
					conn.send(frameData, 0, 1, make([]byte, maxFrame))
				}
				conn.send(framePing, 0, 0, make([]byte, 8))
				if err := conn.wait(framePing); err != nil {
					t.Fatal(err)
				}
			}
			if kept := heap() - before; kept > conns*size/4 {
				t.Errorf("%d of %d bytes are kept", kept, conns*size)
			}
		})
	}
}

// heap is what is in use of it, in bytes.
func heap() int {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc)
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
