// SPDX-License-Identifier: Apache-2.0

//go:build all

package server

// In make test-all: a server's patience with a kernel's buffers is real time.

import (
	"crypto/tls"
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
