// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/coder/websocket"

	"weir/internal/meter"
)

// ndt7 is M-Lab's test (github.com/m-lab/ndt-server, spec/ndt7-protocol.md, 0.11.0): binary messages as fast as they
// go, in one direction, and now and then a text message with what this host's kernel knows.
const (
	ndt7Protocol = "net.measurementlab.ndt.v7"
	ndt7Time     = 10 * time.Second // of a test
	ndt7Hard     = 13 * time.Second // after which nobody waits any more
	ndt7Every    = 250 * time.Millisecond
	ndt7Least    = 1 << 13 // bytes of a message
	ndt7Most     = 1 << 20 // likewise; the specification allows 16 times that
	ndt7Accept   = 1 << 24 // of a client's message, which is never kept whole
)

// ndt7Measurement is what the specification names.
type ndt7Measurement struct {
	AppInfo        ndt7App
	ConnectionInfo ndt7Conn
	Origin         string
	Test           string
	TCPInfo        *meter.TCPInfo `json:",omitempty"`
}

type ndt7App struct {
	ElapsedTime int64 // µs
	NumBytes    int64
}

type ndt7Conn struct{ Client, Server, UUID string }

// ndt7 is a test that runs.
type ndt7 struct {
	*websocket.Conn
	hold  *admission
	under net.Conn
	began time.Time
	last  time.Time
	says  ndt7Measurement
}

func (s *Server) ndt7Open(w http.ResponseWriter, r *http.Request, test string) *ndt7 {
	h := s.enter(w, r)
	if h == nil {
		return nil
	}
	c, err := websocket.Accept(w, r, &websocket.AcceptOptions{Subprotocols: []string{ndt7Protocol},
		InsecureSkipVerify: s.Token != "", CompressionMode: websocket.CompressionDisabled})
	if err != nil {
		h.leave()
		return nil
	}
	if c.Subprotocol() != ndt7Protocol {
		c.Close(websocket.StatusProtocolError, "the subprotocol is "+ndt7Protocol)
		h.leave()
		return nil
	}
	c.SetReadLimit(ndt7Accept)
	now := time.Now()
	n := &ndt7{Conn: c, hold: h, under: connOf(r), began: now, last: now}
	n.says = ndt7Measurement{Origin: "server", Test: test, ConnectionInfo: ndt7Conn{Client: r.RemoteAddr,
		UUID: "weir-" + now.UTC().Format("20060102T150405.000000")}}
	if n.under != nil {
		n.says.ConnectionInfo.Server = n.under.LocalAddr().String()
	}
	return n
}

// measure sends a measurement if it is time for one.
func (n *ndt7) measure(ctx context.Context, now bool) error {
	if !now && time.Since(n.last) < ndt7Every {
		return nil
	}
	n.last = time.Now()
	n.says.AppInfo.ElapsedTime = time.Since(n.began).Microseconds()
	n.says.TCPInfo = meter.ReadTCPInfo(n.under, time.Since(n.began))
	text, err := json.Marshal(n.says)
	if err != nil {
		return err
	}
	return n.Write(ctx, websocket.MessageText, text)
}

func (n *ndt7) end(ctx context.Context) {
	n.measure(ctx, true)
	n.Close(websocket.StatusNormalClosure, "")
	n.hold.leave()
}

func (s *Server) ndt7Download(w http.ResponseWriter, r *http.Request) {
	n := s.ndt7Open(w, r, "download")
	if n == nil {
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), ndt7Hard)
	defer cancel()
	defer n.end(ctx)
	// A client may send measurements of its own, and says goodbye; neither changes anything but this.
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		for n.discard(ctx) == nil {
		}
	}()
	message := make([]byte, ndt7Most)
	for i := 0; i < len(message); i += len(s.noise) {
		copy(message[i:], s.noise)
	}
	for size := ndt7Least; time.Since(n.began) < ndt7Time; {
		select {
		case <-gone:
			return
		default:
		}
		wait, ok := s.down.take(s.now(), n.hold.End, size)
		if !ok || !pause(r.Context().Done(), wait) ||
			n.Write(ctx, websocket.MessageBinary, message[:size]) != nil {
			return
		}
		n.says.AppInfo.NumBytes += int64(size)
		if !n.hold.add(size) || n.measure(ctx, false) != nil {
			return
		}
		const part = 16 // of what was sent: a message is to be small beside that
		if int64(size) < n.says.AppInfo.NumBytes/part && 2*size <= s.atOnce(ndt7Most) {
			size *= 2
		}
	}
}

// discard reads a message, and keeps none of it.
func (n *ndt7) discard(ctx context.Context) error {
	_, from, err := n.Reader(ctx)
	if err == nil {
		_, err = io.Copy(io.Discard, from)
	}
	return err
}

func (s *Server) ndt7Upload(w http.ResponseWriter, r *http.Request) {
	n := s.ndt7Open(w, r, "upload")
	if n == nil {
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), ndt7Hard)
	defer cancel()
	defer n.end(ctx)
	b := make([]byte, chunk)
	for time.Since(n.began) < ndt7Hard {
		kind, from, err := n.Reader(ctx)
		for err == nil {
			var got int
			got, err = from.Read(b)
			if kind == websocket.MessageBinary {
				n.says.AppInfo.NumBytes += int64(got)
			}
			wait, ok := s.up.take(s.now(), n.hold.End, got)
			if !n.hold.add(got) || !ok || !pause(r.Context().Done(), wait) || n.measure(ctx, false) != nil {
				return
			}
		}
		if err != io.EOF { // a message has ended, and not the test
			return
		}
	}
}
