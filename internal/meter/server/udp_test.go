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

var testKey = []byte("secret")

// udpServer is a server that answers without sockets, at a time of its own.
func udpServer(change func(*Config)) (*Server, *time.Time) {
	now := time.Unix(1_800_000_000, 0)
	c := Config{Limits: DefaultLimits(), Token: string(testKey), now: func() time.Time { return now }}
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

// Echoes are part of the rate: who asks for more gets no more, and later as much again.
func TestEchoesKeepTheRate(t *testing.T) {
	const home, rate, size, many = "192.0.2.1:5", 80_000, 1400, 150
	for _, c := range []struct {
		rate units.Rate
		want int // 2.02 s of the rate, and the last is whole
	}{{rate, 15}, {0, many}} {
		s, now := udpServer(func(config *Config) { config.Rate = c.rate })
		r := s.responder()
		token, p, err := openedAt(t, s, r, home, size)
		if err != nil {
			t.Fatal(err)
		}
		l := irtt.NewLayout(p, true)
		for range 2 {
			*now = now.Add(time.Minute)
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

// A client of IPv6 has one number of connections, however many addresses; and where many may test, all have room.
func TestEchoesOfManyClients(t *testing.T) {
	s, _ := udpServer(func(c *Config) { c.Tests = 40 })
	r := s.responder()
	for host := range s.Tests {
		for n := range irtt.PerClient + 1 {
			from := fmt.Sprintf("[2001:db8:0:%x::%x]:5", host, n)
			if _, _, err := openedAt(t, s, r, from, 0); (err == nil) != (n < irtt.PerClient) {
				t.Errorf("%s: %v", from, err)
			}
		}
	}
}
