// SPDX-License-Identifier: Apache-2.0

package server

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"weir/internal/meter/irtt"
	"weir/internal/units"
)

const testToken = "sixteen letters!"

var testKey = irtt.Key(testToken)

// udpServer is a server that answers without sockets, at a time of its own.
func udpServer(change func(*Config)) (*Server, *time.Time) {
	now := time.Unix(1_800_000_000, 0)
	c := Config{Limits: DefaultLimits(), Token: testToken, now: func() time.Time { return now }}
	change(&c)
	return New(c), &now
}

func openedAt(t *testing.T, s *Server, r *irtt.Responder, from string, length int64) (token uint64, p irtt.Params,
	err error) {
	t.Helper()
	a := s.answer(r, netip.MustParseAddrPort(from), 0, irtt.Open(irtt.Params{Version: irtt.Protocol,
		Duration: int64(time.Minute), Length: length}, testKey))
	return irtt.ParseOpened(a.Bytes, testKey)
}

// Echoes have an eighth of the rate, and some in any case, whatever the loads have booked: who asks for more gets no
// more, and later as much again.
func TestEchoesKeepTheRate(t *testing.T) {
	const home, size, many = "192.0.2.1:5", 1400, 150
	for _, c := range []struct {
		rate units.Rate
		want int // 2.02 s, and the last is whole
	}{{80_000, 15}, {400_000, 47}, {4_800_000, 109}, {80_000_000, many}, {0, many}} {
		s, now := udpServer(func(config *Config) { config.Rate = c.rate })
		r := s.responder()
		token, p, err := openedAt(t, s, r, home, size)
		if err != nil {
			t.Fatal(err)
		}
		l := irtt.NewLayout(p, true)
		for range 2 {
			*now = now.Add(10 * time.Second)
			s.down.take(*now, now.Add(time.Hour), 1e9)
			answered := 0
			for seq := range uint32(many) {
				if s.answer(r, netip.MustParseAddrPort(home), 0, l.Request(p, token, seq, testKey)).Bytes != nil {
					answered++
				}
			}
			if answered != c.want {
				t.Errorf("at %v %d of %d are answered, and not %d", c.rate, answered, many, c.want)
			}
		}
	}
}

// An open that was recorded is answered at few of a hundred other addresses. Who has shown the token is answered.
func TestRecordedOpens(t *testing.T) {
	s, now := udpServer(func(c *Config) { c.Limits.Tests = 64 })
	r := s.responder()
	answered := func(from string) bool {
		_, _, err := openedAt(t, s, r, from, 100)
		return err == nil
	}
	n := 0
	for i := range 100 {
		if answered(fmt.Sprintf("203.0.113.%d:5", i)) {
			n++
		}
		*now = now.Add(20 * time.Millisecond)
	}
	if n > 12 {
		t.Errorf("a recorded open is answered at %d other addresses in 2 s", n)
	}
	const home = "192.0.2.1"
	if answered("203.0.113.100:5") && answered("203.0.113.101:5") {
		t.Error("who has not shown the token is answered beyond the limit")
	}
	s.gate.show(home)
	for port := range irtt.PerClient {
		if !answered(fmt.Sprintf("%s:%d", home, 6+port)) {
			t.Error("who has shown the token is not answered")
		}
	}
	*now = now.Add(tokenMemory + time.Second)
	if s.gate.hasShownToken(home) {
		t.Error("it is still known")
	}
}

// Who has no place takes no echo of whoever tests.
func TestEchoesOfStrangers(t *testing.T) {
	const home, other, size = "192.0.2.1:5", "192.0.2.2:5", 1400
	s, _ := udpServer(func(c *Config) { c.Rate = 80_000 })
	r := s.responder()
	s.gate.begin("192.0.2.1")
	answered := map[string]int{}
	for _, from := range []string{other, home} {
		token, p, err := openedAt(t, s, r, from, size)
		if err != nil {
			t.Fatal(err)
		}
		for seq := range uint32(100) {
			request := irtt.NewLayout(p, true).Request(p, token, seq, testKey)
			if s.answer(r, netip.MustParseAddrPort(from), 0, request).Bytes != nil {
				answered[from]++
			}
		}
	}
	if answered[other] == 0 || answered[home] != answered[other] {
		t.Errorf("%v", answered)
	}
}

// What a client of UDP asks keeps its place in an idle phase.
func TestEchoesKeepThePlace(t *testing.T) {
	s, now := udpServer(func(*Config) {})
	r := s.responder()
	s.gate.begin("192.0.2.1")
	token, p, err := openedAt(t, s, r, "192.0.2.1:5", 0)
	if err != nil {
		t.Fatal(err)
	}
	for seq := range uint32(3) {
		*now = now.Add(linger - time.Second)
		request := irtt.NewLayout(p, true).Request(p, token, seq, testKey)
		s.answer(r, netip.MustParseAddrPort("192.0.2.1:5"), 0, request)
		if _, _, ok := s.gate.begin("192.0.2.2"); ok {
			t.Error("another has the place")
		}
	}
}

// A client of IPv6 has one number of connections, however many addresses; and where many may test, all have room.
func TestEchoesOfManyClients(t *testing.T) {
	s, _ := udpServer(func(c *Config) { c.Tests = 40 })
	r := s.responder()
	for host := range s.Tests {
		for n := range irtt.PerClient + 1 {
			from := fmt.Sprintf("[2001:db8:0:%x::%x]:5", host, n)
			s.gate.show(client(from))
			if _, _, err := openedAt(t, s, r, from, 0); (err == nil) != (n < irtt.PerClient) {
				t.Errorf("%s: %v", from, err)
			}
		}
	}
}
