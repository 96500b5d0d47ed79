// SPDX-License-Identifier: Apache-2.0

package follow

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"weir/internal/stats"
	"weir/internal/units"
)

// front is a provider's queue in front of a shaper, and senders whose surplus over the shaper's rate changes in cubic's
// way: it grows until the shaper drops. Times are in seconds, rates in bit/s.
type front struct {
	link    func(t float64) float64 // what the provider delivers
	surplus float64                 // by how much more than the shaper lets go comes at most
	bursts  float64                 // as a share of the rate, for 50 ms in 400: BBR's
	starts  float64                 // until then as much comes as goes through
	told    float64
	size    float64                 // with a tunnel: what the link delivers for each bit that comes to the shaper
	seldom  bool                    // the card counts once a second
	beside  func(t float64) float64 // what a neighbour's packets add to what comes in by the card
}

type course struct{ rate, queue []float64 } // each look; the queue is in seconds

func (w front) run(low, high, length float64) (c course) {
	const look = 0.02
	rng := rand.New(rand.NewPCG(1, 2))
	begin, size := NewInward, 1.
	if w.size != 0 {
		begin, size = NewTunnels, w.size
	}
	f := begin(units.Rate(low), Told{units.Rate(w.told), units.Rate(low), units.Rate(low), units.Rate(high)})
	var came, counted, shown, waits, here float64 // bits; in front, and in the shaper
	for n := 0; float64(n)*look < length; n++ {
		t, r := float64(n)*look, float64(f.Rate())*size // as the link delivers it
		phase := math.Mod(t, 5) / 5
		in := r * (1 + w.surplus*(2*phase-1) + 0.002*(2*rng.Float64()-1))
		switch {
		case t < w.starts:
			in = 2 * w.link(t)
		case math.Mod(t, .4) < .05:
			in += w.bursts * r
		}
		if waits > 0 && t >= w.starts && w.link(t) > r {
			in = min(in, r-waits/.5) // senders see the shaper's queue
		}
		out := min(w.link(t)*look, waits+in*look)
		waits = max(0, min(.2*w.link(t), waits+in*look-out))
		came, counted = came+out, counted+out
		if w.beside != nil {
			counted += w.beside(t) * look
		}
		if here = min(here+out-r*look, .05*r); here < 0 {
			here = 0
		}
		backlog := here
		if w.link(t) > r && t >= w.starts {
			backlog = 1 // between two drops
		}
		if !w.seldom || n%50 == 0 {
			shown = counted
		}
		f.Look(Look{At: time.Duration((t + 1) * 1e9), Came: shown / 8, Here: came / size / 8, Backlog: backlog})
		c.rate, c.queue = append(c.rate, r/size), append(c.queue, waits/w.link(t))
	}
	return c
}

// The rate comes near the link's, whatever that is told to be, and stays below it.
func TestInward(t *testing.T) {
	steady := func(r float64) func(float64) float64 { return steps(r * mbit) }
	for _, c := range []struct {
		name        string
		w           front
		least, most float64 // Mbit/s, at the end
		p99         float64 // ms, in the second half
	}{
		{"even", front{link: steady(50), surplus: .01, told: 50 * mbit}, 48, 49.875, 1},
		{"uneven", front{link: steady(50), surplus: .03, told: 50 * mbit}, 46, 49, 1},
		{"bursts", front{link: steady(50), surplus: .01, bursts: .25, told: 50 * mbit}, 42.5, 49.5, 10},
		{"a start that fills the link", front{link: steady(50), surplus: .01, starts: 4, told: 50 * mbit}, 48, 49.875,
			1},
		{"the link delivers less than is told", front{link: steady(47), surplus: .01, starts: 4, told: 50 * mbit}, 45,
			46.9, 1},
		{"downloads in a tunnel", front{link: steady(50), surplus: .01, told: 50 * mbit, size: 1 / 1.04},
			48.9, 49.5, 1},
		{"uploads in a tunnel", front{link: steady(50), surplus: .01, told: 50 * mbit, size: 1.04}, 45, 45.7, 1},
		{"a tunnel, and less than is told", front{link: steady(45), surplus: .01, starts: 4, told: 50 * mbit,
			size: 1.04}, 42.5, 43.2, 1},
		{"a tunnel, and it falls", front{link: steps(50*mbit, 150, 46*mbit), surplus: .01, told: 50 * mbit,
			size: 1 / 1.04}, 43, 45.5, 10},
		{"it falls", front{link: steps(50*mbit, 150, 46*mbit), surplus: .01, told: 50 * mbit}, 43, 45.9, 10},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := c.w.run(42.5*mbit, 49.875*mbit, 600)
			end := s.rate[len(s.rate)*9/10:]
			low, high := stats.QuantileAbove(end, .03)/mbit, stats.QuantileAbove(end, .97)/mbit
			if low < c.least || high > c.most {
				t.Errorf("from %.2f to %.2f Mbit/s at the end, not %g to %g", low, high, c.least, c.most)
			}
			if p99 := ms(stats.QuantileAbove(s.queue[len(s.queue)/2:], .99)); p99 > c.p99 {
				t.Errorf("packets wait %.1f ms at p99, at most %g", p99, c.p99)
			}
		})
	}
}

// What comes from beside is no provider's, and raises nothing: a neighbour's backup, or a copy by the same network.
func TestCopiedFromBeside(t *testing.T) {
	copied := steps(0, 60, 900*mbit, 90, 0, 150, 900*mbit, 150.5, 0, 200, 20*mbit, 230, 0, 300, 3*mbit, 330, 0)
	hidden := front{link: steps(50 * mbit), surplus: .01, told: 50 * mbit, size: 1 / 1.04, beside: steps(900 * mbit)}
	if most := stats.QuantileAbove(hidden.run(42.5*mbit, 49.875*mbit, 60).rate, 1); most != 42.5*mbit {
		t.Errorf("up to %.2f Mbit/s, though nothing can be seen", most/mbit)
	}
	hidden.seldom, hidden.beside = true, nil
	if most := stats.QuantileAbove(hidden.run(42.5*mbit, 49.875*mbit, 60).rate, 1); most != 42.5*mbit {
		t.Errorf("up to %.2f Mbit/s by a card that counts seldom", most/mbit)
	}
	for name, size := range map[string]float64{"downloads": 1 / 1.04, "uploads": 1.04} {
		w := front{link: steps(47 * mbit), surplus: .01, told: 50 * mbit, size: size, starts: 4, beside: copied}
		s := w.run(42.5*mbit, 49.875*mbit, 600)
		// a probe a minute or two may be more
		if most, may := stats.QuantileAbove(s.rate, .98)/mbit, .951*50/size; most > may {
			t.Errorf("%s: up to %.2f Mbit/s, of %.2f", name, most, may)
		}
		if end := s.rate[len(s.rate)-1] / mbit; end < .94*47/size {
			t.Errorf("%s: %.2f Mbit/s at the end", name, end)
		}
		if p98 := ms(stats.QuantileAbove(s.queue[len(s.queue)/20:], .98)); p98 > 1 {
			t.Errorf("%s: packets wait %.1f ms at p98", name, p98)
		}
	}
}

// What says nothing of the link changes nothing, and bounds hold whatever is seen.
func TestInwardOddLooks(t *testing.T) {
	const low, high = 42.5 * mbit, 49.875 * mbit
	look := func(at time.Duration, came, backlog float64) Look {
		return Look{At: at, Came: came, Here: came, Backlog: backlog}
	}
	every := func(i int) time.Duration { return time.Duration(i+1) * 20 * time.Millisecond }
	for name, c := range map[string]struct {
		look  func(i int) Look
		moves bool
	}{
		"idle":             {func(i int) Look { return look(every(i), 0, 0) }, false},
		"little is sent":   {func(i int) Look { return look(every(i), float64(i)*50e3, 0) }, false},
		"the clock stands": {func(i int) Look { return look(time.Second, float64(i)*1e5, 1) }, false},
		"the clock goes back": {func(i int) Look {
			return look(time.Hour-every(i), float64(i)*1e5, 1)
		}, false},
		"asleep between looks": {func(i int) Look { return look(every(i)*1000, float64(i)*1e5, 1) }, false},
		"the counter begins anew": {func(i int) Look {
			return look(every(i), float64(i%4)*1e5, 1)
		}, false},
		"a counter of 32 bits wraps": {func(i int) Look {
			return look(every(i), math.Mod(float64(i)*1e5+4.29e9, 1<<32), 1)
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			f, moved := NewInward(low, Told{50 * mbit, low, low, high}), false
			for i := range 5000 {
				rate, _ := f.Look(c.look(i))
				if rate < low || float64(rate) > high {
					t.Fatalf("look %d: %s", i, rate)
				}
				moved = moved || rate != low
			}
			if moved != c.moves {
				t.Errorf("it moves: %v", moved)
			}
		})
	}
}
