// SPDX-License-Identifier: Apache-2.0

//go:build all

package follow

// In make test-all: ten minutes of many links take a minute of CPU time.

import (
	"testing"
	"weir/internal/stats"
)

// A rate that does not move is left in peace: for ten minutes nothing spirals, and packets hardly wait.
func TestTheRateStands(t *testing.T) {
	for _, c := range []struct {
		name             string
		bases            []float64
		jitter           float64
		p99, used, least float64 // ms, and shares of the rate
		forwarded        bool
	}{
		{"four", same(4, .048), 0, 2, .99, .97, false},
		{"jitter 10 ms", same(4, .048), .01, 6, .975, .75, false},
		{"one, jitter 10 ms", same(1, .048), .01, 18, .985, .65, false}, // docs/follow.md: what it does not know
		{"jitter 5 ms at 150 ms", same(4, .15), .005, 4, .98, .85, false},
		{"sixteen", same(16, .048), 0, 4.5, .99, .95, false},
		{"fifty", same(50, .048), 0, 15, .95, .6, false},
		{"four, forwarded", same(4, .048), 0, 2, .99, .97, true},
		{"forwarded, jitter 10 ms", same(4, .048), .01, 6, .975, .75, true},
		{"one, forwarded, jitter 10 ms", same(1, .048), .01, 18, .94, .65, true},
		{"fifty, forwarded", same(50, .048), 0, 2, .99, .95, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := world{rate: steps(100 * mbit), buffer: .2, bases: c.bases, look: .02, jitter: c.jitter,
				forwarded: c.forwarded, set: follower(99.75*mbit, 20*mbit, 400*mbit)}
			s := w.run(600)
			p99, used := ms(stats.QuantileAbove(s.between(s.added, 5, 600), .99)), s.used(5, 600, 100*mbit)
			if t.Logf("packets wait %.1f ms at p99, and %.3f is used", p99, used); p99 > c.p99 {
				t.Errorf("packets wait %.1f ms at p99, at most %g", p99, c.p99)
			}
			if used < c.used {
				t.Errorf("%.3f is used, at least %g", used, c.used)
			}
			if least := stats.QuantileAbove(s.between(s.set, 5, 600), 0); least < c.least*100*mbit {
				t.Errorf("down to %.1f Mbit/s, at least %g", least/mbit, 100*c.least)
			}
		})
	}
}

// Clients that send, too, give no samples by that.
func TestClientsThatSend(t *testing.T) {
	for _, extra := range []float64{0, 5, 20, 100} {
		w := world{rate: steps(100*mbit, 10, 60*mbit, 25, 90*mbit), buffer: .2, bases: same(50, .048), look: .02,
			sends: extra, set: follower(99.75*mbit, 20*mbit, 400*mbit)}
		s := w.run(40)
		calm, used := s.calm(10, 25), s.used(12, 25, 60*mbit)
		if calm > 1 || used < .97 {
			t.Errorf("%g packets with each acknowledgement: calm after %.2f s, at most 1; %.3f is used, at least 0.97",
				extra, calm, used)
		}
	}
}
