// SPDX-License-Identifier: Apache-2.0

//go:build all

package follow

// In make test-all: they take a quarter of a minute of CPU time each.

import (
	"slices"
	"testing"
)

// A policer goes from 100 to 60 to 90 Mbit/s. Beside it, the shaper that stays where it was.
func TestPolicerMoves(t *testing.T) {
	for _, c := range []struct {
		connections, credit      int     // credit in kB
		before, low, high, fewer float64 // shares of the rate that arrive, and of the packets that the fixed one loses
	}{
		{1, 32, .95, .73, .72, 1.05}, // one connection alone is not believed
		{4, 32, .98, .95, .95, .25},
		{16, 32, .98, .97, .95, .1},
		{1, 256, .95, .82, .9, .7},
		{4, 256, .98, .97, .95, .25},
		{16, 256, .98, .98, .95, .1},
	} {
		world := func(set func(Look) float64) seen {
			w := &world{rate: steps(100*mbit, 20, 60*mbit, 60, 90*mbit), buffer: 1, look: .02, set: set,
				policed: float64(c.credit) * 8e3 / (100 * mbit), bases: same(c.connections, .048)}
			return w.run(120)
		}
		fixed := world(func(Look) float64 { return 99.75 * mbit })
		s := world(follower(99.75*mbit, 25*mbit, 400*mbit))
		before, low, high := s.arrived(5, 20, 100*mbit), s.arrived(22, 60, 60*mbit), s.arrived(65, 119, 90*mbit)
		fewer := float64(s.drops) / float64(fixed.drops)
		t.Logf("%2d, %3d kB: %.1f, %.1f and %.1f %% of the link (fixed %.1f, %.1f, %.1f), %d drops (fixed %d)",
			c.connections, c.credit, 100*before, 100*low, 100*high, 100*fixed.arrived(5, 20, 100*mbit),
			100*fixed.arrived(22, 60, 60*mbit), 100*fixed.arrived(65, 119, 90*mbit), s.drops, fixed.drops)
		if before < c.before || low < c.low || high < c.high || fewer > c.fewer {
			t.Errorf("%d connections, %d kB: %.3f, %.3f and %.3f of the link, %.2f of the drops; promised %v",
				c.connections, c.credit, before, low, high, fewer, c)
		}
	}
}

// Packets that are lost whatever is sent, on a path that lost none before, are no policer's.
func TestLossIsNoPolicer(t *testing.T) {
	for _, loss := range []float64{.001, .01, .05, .2} {
		for _, n := range []int{1, 4, 16} {
			w := &world{rate: steps(100 * mbit), buffer: .2, bases: same(n, .048), look: .02,
				loss: loss, since: 15, stubborn: true, set: follower(99.75*mbit, 25*mbit, 400*mbit)}
			s := w.run(60)
			if low := slices.Min(s.between(s.set, 20, 60)); low < 90*mbit {
				t.Errorf("%d connections that lose %g %%: the rate fell to %.1f Mbit/s of 100", n, 100*loss, low/mbit)
			}
			if used := s.used(20, 60, 100*mbit); used < .97 {
				t.Errorf("%d connections that lose %g %%: %.1f %% of the link was used", n, 100*loss, 100*used)
			}
		}
	}
}

// Bursts of loss that come again and again do not lower the rate further and further.
func TestLossInBursts(t *testing.T) {
	for _, every := range []float64{2, 4, 8, 16} {
		for _, stubborn := range []bool{false, true} {
			world := func(set func(Look) float64) seen {
				w := &world{rate: steps(100 * mbit), buffer: .2, bases: same(4, .048), look: .05, stubborn: stubborn,
					loss: .15, since: 15, until: 15.3, every: every, set: set}
				return w.run(120)
			}
			fixed := world(func(Look) float64 { return 99.75 * mbit }).used(30, 120, 100*mbit)
			used := world(follower(99.75*mbit, 25*mbit, 400*mbit)).used(30, 120, 100*mbit)
			t.Logf("every %2g s, stubborn %5v: %.1f %% of the link (fixed %.1f)", every, stubborn, 100*used, 100*fixed)
			if used < fixed-.04 {
				t.Errorf("every %g s, stubborn %v: %.1f %% of the link was used, by a fixed rate %.1f", every, stubborn,
					100*used, 100*fixed)
			}
		}
	}
}

// What is lost for a moment, as a radio does, costs a few seconds.
func TestLossForAMoment(t *testing.T) {
	for _, c := range []struct{ loss, used float64 }{{.05, .98}, {.3, .97}, {.8, .96}} {
		for _, n := range []int{1, 4, 16} {
			w := &world{rate: steps(100 * mbit), buffer: .2, bases: same(n, .048), look: .02,
				loss: c.loss, since: 15, until: 15.5, set: follower(99.75*mbit, 25*mbit, 400*mbit)}
			s := w.run(60)
			back, used := 3+s.first(18, func(rate float64) bool { return rate > 97*mbit }), s.used(20, 60, 100*mbit)
			t.Logf("%2d connections, %g %%: back after %.1f s, %.1f %% of the link (promised 8 s, %g %%)",
				n, 100*c.loss, back, 100*used, 100*c.used)
			if back > 8 || used < c.used {
				t.Errorf("%d connections, %g %% for half a second: back after %.1f s, %.1f %% of the link was used", n,
					100*c.loss, back, 100*used)
			}
		}
	}
}
