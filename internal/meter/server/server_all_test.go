// SPDX-License-Identifier: Apache-2.0

//go:build all

package server

// In make test-all: a server's patience is real time.

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptrace"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"weir/internal/meter"
)

// Whoever promises a body and does not send it is waited for so long, with a token and without, and then sent away.
func TestBodyThatDoesNotCome(t *testing.T) {
	r := start(t, func(c *Config) { c.Token, c.Bytes, c.patience = "secret", 1000, 100*time.Millisecond })
	for _, request := range []string{"POST /x", "POST /t/secret", "GET /?x", "OPTIONS *", "POST /t/secret/x",
		"OPTIONS /t/secret/x", "GET /t/secret/large", "POST /t/secret/slurp"} {
		c, err := tls.Dial("tcp", r.addr, &tls.Config{InsecureSkipVerify: true})
		if err != nil {
			t.Fatal(err)
		}
		c.SetDeadline(time.Now().Add(8 * time.Second)) // less than a transfer may stand still
		io.WriteString(c, request+" HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n"+strings.Repeat("x", 2000))
		if _, err := io.Copy(io.Discard, c); errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("%s holds its connection", request)
		}
		c.Close()
	}
}

// A body that comes is waited for as long as it comes, and what is asked next on its connection is answered.
func TestBodyThatTakesLong(t *testing.T) {
	const patience = 50 * time.Millisecond
	r := start(t, func(c *Config) { c.patience, c.Rate = patience, 50e6 })
	for version, c := range map[string]*http.Client{"HTTP/1.1": r.h1, "HTTP/2.0": r.h2} {
		c.Transport.(*http.Transport).MaxConnsPerHost = 1
		var conns []string
		traced := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{
			GotConn: func(i httptrace.GotConnInfo) { conns = append(conns, i.Conn.LocalAddr().String()) }})
		for _, ask := range []struct {
			method, path string
			body         io.Reader
		}{
			{"POST", "/slurp", &slow{left: 5, each: patience}},
			{"GET", "/small", nil},
			{"GET", "/__down?bytes=1000000", nil},
			{"GET", "/__down?bytes=1000000", strings.NewReader("x")}, // a body that nobody wants
			{"POST", "/slurp", &slow{left: 5, each: patience}},
			{"GET", "/small", nil},
		} {
			request, _ := http.NewRequestWithContext(traced, ask.method, "https://"+r.addr+ask.path, ask.body)
			answer, err := c.Do(request)
			if err != nil {
				t.Fatalf("%s %s: %v", version, ask.path, err)
			}
			n, err := io.Copy(io.Discard, answer.Body)
			if answer.Body.Close(); err != nil || answer.StatusCode != 200 || answer.Proto != version {
				t.Errorf("%s %s: %s, %d bytes, %v", answer.Proto, ask.path, answer.Status, n, err)
			}
			time.Sleep(2 * patience) // the connection waits for longer, too
		}
		if len(slices.Compact(conns)) != 1 {
			t.Errorf("%s: connections from %q", version, conns)
		}
		var hello meter.Hello
		if _, text := r.do(t, c, "POST", meter.PathSession, nil, 1e4); json.Unmarshal(text, &hello) != nil {
			t.Fatalf("%s", text)
		}
		if answer, text := r.do(t, c, "POST", meter.PathSummary+"?session="+hello.Session,
			&slow{left: 5, each: patience}, 1e4); answer.StatusCode != http.StatusBadRequest {
			t.Errorf("a recording that comes slowly, and is none: %s %s", answer.Status, text)
		}
	}
}

// ndt7 as a client sees it: binary messages one way, and what the kernel knows.
func TestNDT7(t *testing.T) {
	r := start(t, func(c *Config) { c.Token = "secret" })
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	for _, test := range []string{"download", "upload"} {
		c, _, err := websocket.Dial(ctx, "wss://"+r.addr+"/t/secret/ndt/v7/"+test+"?client_name=test",
			&websocket.DialOptions{HTTPClient: r.h1, Subprotocols: []string{ndt7Protocol}})
		if err != nil {
			t.Fatal(err)
		}
		c.SetReadLimit(ndt7Accept)
		if test == "upload" {
			for range 200 {
				if err := c.Write(ctx, websocket.MessageBinary, make([]byte, 1<<13)); err != nil {
					t.Fatal(err)
				}
				time.Sleep(2 * time.Millisecond)
			}
		}
		var m ndt7Measurement
		binary := 0
		for m.Origin == "" {
			kind, b, err := c.Read(ctx)
			if err != nil {
				t.Fatalf("%s: %v", test, err)
			}
			if kind == websocket.MessageText {
				if err := json.Unmarshal(b, &m); err != nil {
					t.Fatalf("%s: %s", err, b)
				}
			} else if binary += len(b); len(b) < ndt7Least || len(b)&(len(b)-1) != 0 {
				t.Errorf("a message of %d bytes", len(b))
			}
		}
		if m.Test != test || m.Origin != "server" || m.AppInfo.NumBytes < ndt7Least || m.AppInfo.ElapsedTime <= 0 ||
			m.ConnectionInfo.Client == "" || m.ConnectionInfo.Server != r.addr || m.ConnectionInfo.UUID == "" ||
			m.TCPInfo == nil || m.TCPInfo.RTT <= 0 || (binary > 0) != (test == "download") {
			t.Errorf("%+v, %d bytes", m, binary)
		}
		c.CloseNow()
	}
	if _, _, err := websocket.Dial(ctx, "wss://"+r.addr+"/t/secret/ndt/v7/download",
		&websocket.DialOptions{HTTPClient: r.h1}); err == nil {
		c, _, _ := websocket.Dial(ctx, "wss://"+r.addr+"/t/secret/ndt/v7/download",
			&websocket.DialOptions{HTTPClient: r.h1})
		if _, _, err := c.Read(ctx); websocket.CloseStatus(err) != websocket.StatusProtocolError {
			t.Errorf("without the subprotocol: %v", err)
		}
	}
}
