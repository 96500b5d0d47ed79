// SPDX-License-Identifier: Apache-2.0

package server

import (
	"encoding/json"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"weir/internal/meter"
)

// given is what a session gets of tickets.
func (r *running) given(t *testing.T, query string) (int, []string) {
	t.Helper()
	answer, b := r.do(t, r.h1, http.MethodPost, meter.PathSession+"?token="+r.token, nil, 1<<16)
	var hello meter.Hello
	if err := json.Unmarshal(b, &hello); err != nil || !hello.Plain {
		t.Fatalf("%s: %s, %v", answer.Status, b, err)
	}
	answer, b = r.do(t, r.h1, http.MethodPost, meter.PathTickets+"?token="+r.token+"&session="+hello.Session+"&"+query,
		nil, 1<<16)
	var given meter.Tickets
	json.Unmarshal(b, &given)
	return answer.StatusCode, given.Tickets
}

// said is how many bytes come, of 1 MB at most, after something was said on a connection of its own.
func (r *running) said(t *testing.T, line string) int64 {
	t.Helper()
	c, err := net.Dial("tcp", r.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(20 * time.Second))
	io.WriteString(c, line)
	c.(*net.TCPConn).CloseWrite()
	n, _ := io.Copy(io.Discard, io.LimitReader(c, 1e6))
	return n
}

// A ticket opens one flow, in its direction. Whoever has none gets nothing, and hears nothing.
func TestTickets(t *testing.T) {
	began, passed := time.Now(), atomic.Int64{}
	now := func() time.Time { return began.Add(time.Duration(passed.Load())) }
	r := start(t, func(c *Config) { c.Token, c.now = "secret", now })
	for query, want := range map[string]int{"n=2&direction=upload": 200, "n=16&direction=download": 200,
		"n=17&direction=upload": 400, "n=0&direction=upload": 400, "n=1&direction=both": 400, "n=x": 400, "": 400} {
		if status, all := r.given(t, query); status != want || status == 200 && len(all) == 0 {
			t.Errorf("%s: %d, %q", query, status, all)
		}
	}
	line := func(ticket string) string { return meter.PlainMagic + ticket + "\n" }
	_, all := r.given(t, "n=3&direction=download")
	for _, said := range []string{line(strings.Repeat("0", meter.TicketLen)), line(""), "w", "weir/2 " + all[0] + "\n",
		"wget / HTTP/1.1\r\nHost: " + strings.Repeat("x", 4000), line(all[0])[:meter.PlainLen-1]} {
		if n := r.said(t, said); n != 0 {
			t.Errorf("%.20q is answered by %d bytes", said, n)
		}
	}
	if n := r.said(t, line(all[0])); n != 1e6 {
		t.Errorf("a ticket gives %d bytes", n)
	}
	if n := r.said(t, line(all[0])); n != 0 {
		t.Errorf("used again it gives %d bytes", n)
	}
	passed.Store(int64(ticketLife + time.Second))
	if n := r.said(t, line(all[1])); n != 0 {
		t.Errorf("too late it gives %d bytes", n)
	}
	if _, all = r.given(t, "n=1&direction=upload"); len(all) != 1 || r.said(t, line(all[0])+"data") != 0 {
		t.Errorf("%q: an upload is answered", all)
	}
	if x, ok := r.server.sessions.redeem(all[0], "127.0.0.1", now()); ok {
		t.Errorf("%+v is still there", x)
	}
	_, all = r.given(t, "n=1&direction=download")
	if _, ok := r.server.sessions.redeem(all[0], "192.0.2.1", now()); ok {
		t.Error("another address has used it")
	}
	// Who asks again has none of those before.
	x, a := &session{client: "192.0.2.1"}, &sessions{}
	for range 5 {
		a.issue(x, meter.Download, "", maxTickets, now())
	}
	if len(a.tickets) != maxTickets {
		t.Errorf("%d tickets are kept", len(a.tickets))
	}
}
