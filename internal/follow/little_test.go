// SPDX-License-Identifier: Apache-2.0

package follow

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"weir/internal/stats"
	"weir/internal/units"
)

// every is true for the first seconds of each period.
func every(period, first, t float64) bool { return math.Mod(t, period) < first }

// A host that sends little learns nothing of its link, whatever its packets wait for elsewhere.
func TestLittleToSend(t *testing.T) {
	for _, offered := range []float64{.02, .1, .3, 1, 5} {
		for _, jitter := range []float64{0, .002, .005, .01} {
			for seed := range uint64(3) {
				name := fmt.Sprintf("%g mbit, jitter %g ms, seed %d", offered, ms(jitter), seed)
				t.Run(name, func(t *testing.T) {
					w := world{rate: steps(50 * mbit), buffer: .2, bases: same(2, .048), look: .25, jitter: jitter,
						offered: steps(offered * mbit), rng: rand.New(rand.NewPCG(seed, 2)),
						set: follower(49.875*mbit, 12.5*mbit, 200*mbit)}
					s := w.run(60)
					set := s.between(s.set, 20, 60) // before, it may look for a queue that has stood from the start
					least, low := stats.QuantileAbove(set, 0), lower(set, 45*mbit)
					if low > .02 || set[len(set)-1] < 49*mbit {
						t.Errorf("%.1f %% of the time the rate is low, %.1f Mbit/s at least, and %.1f at the end",
							100*low, least/mbit, set[len(set)-1]/mbit)
					}
				})
			}
		}
	}
}

// lower is the share of x that is less.
func lower(x []float64, than float64) float64 {
	n := 0.
	for _, v := range x {
		if v < than {
			n++
		}
	}
	return n / float64(len(x))
}

// Downloads come now and then. What a calm host sends between them is not taken for the link's rate.
func TestDownloadsNowAndThen(t *testing.T) {
	for _, jitter := range []float64{0, .003, .01} {
		w := world{rate: steps(50 * mbit), buffer: .2, bases: same(4, .048), look: .02, jitter: jitter,
			offered: func(t float64) float64 {
				if every(10, 3, t) {
					return 200 * mbit
				}
				return .1 * mbit
			}, set: follower(49.875*mbit, 2.5*mbit, 200*mbit)}
		s := w.run(120)
		if used := s.used(20, 120, .3*50*mbit); used < .9 {
			t.Errorf("jitter %g ms: %.1f %% of three seconds in ten are used", ms(jitter), 100*used)
		}
	}
}

// Something on the way makes packets late for a moment. What an application sends then is not the link's rate.
func TestLateForAMoment(t *testing.T) {
	for _, c := range []struct {
		offered, late, length float64
		least                 float64 // of 99.75 Mbit/s, on average
	}{
		{20, .02, .15, .97}, {20, .02, .3, .97}, {20, .02, 1, .94}, {20, .008, .3, .97}, {20, .1, .1, .97},
		{1, .02, .3, .97}, {60, .02, .15, .65}, // where much is sent, it is soon what the rate is
	} {
		w := world{rate: steps(100 * mbit), buffer: .2, bases: same(4, .048), look: .02,
			offered: steps(c.offered * mbit), longer: func(t float64) float64 {
				if t > 10 && every(20, c.length, t) {
					return c.late
				}
				return 0
			}, set: follower(99.75*mbit, 10*mbit, 400*mbit)}
		s := w.run(100)
		set := s.between(s.set, 10, 100)
		if m := stats.Mean(set) / (99.75 * mbit); m < c.least || s.used(10, 100, c.offered*framed*mbit) < .97 {
			t.Errorf("%g Mbit/s, %g ms for %g s: the rate is %.1f %% on average and %.1f Mbit/s at the end, and "+
				"%.1f %% is carried", c.offered, ms(c.late), c.length, 100*m, set[len(set)-1]/mbit,
				100*s.used(10, 100, c.offered*framed*mbit))
		}
	}
}

// An application sends a fifth of what the shaper lets through, and the link falls below that: the queue is seen.
func TestFallsBelowLittle(t *testing.T) {
	for _, c := range []struct{ offered, link float64 }{{20, 15}, {20, 10}, {40, 30}, {8, 5}} {
		w := world{rate: steps(100*mbit, 10, c.link*mbit), buffer: .4, bases: same(4, .048), look: .02,
			offered: steps(c.offered * mbit), set: follower(99.75*mbit, 2.5*mbit, 400*mbit)}
		s := w.run(40)
		cut := s.first(10, func(rate float64) bool { return rate < c.link*mbit })
		late, used := s.between(s.added, 15, 40), s.used(15, 40, c.link*mbit)
		if p99 := ms(stats.QuantileAbove(late, .99)); cut > 1.2 || p99 > 25 || used < .96 {
			t.Errorf("%g to %g Mbit/s: cut after %.2f s; from 5 s on packets wait %.1f ms at p99, and %.1f %% is used",
				c.offered, c.link, cut, p99, 100*used)
		}
	}
}

// Between two looks nothing leaves, and RTTs are long: no rate follows from that.
func TestNothingHasLeft(t *testing.T) {
	for still := 95; still < 115; still++ {
		f := New(units.Rate(100*mbit), units.Rate(25*mbit), units.Rate(400*mbit))
		sent := 0.
		for i := range 400 {
			rtt := 50 * time.Millisecond
			if i >= 100 && i < 110 {
				rtt = 90 * time.Millisecond
			}
			if i != still {
				sent += 200
			}
			rate, _ := f.Look(Look{At: time.Duration(i+1) * 250 * time.Millisecond, Sent: sent,
				Connections: []Connection{{ID: 1, RTT: rtt, Acks: uint32(i), Base: 48 * time.Millisecond, Delivered: 1,
					Rate: 4}}})
			if rate != 100*mbit {
				t.Fatalf("nothing left before look %d: at look %d the rate is %s", still, i, rate)
			}
		}
	}
}

// Somebody else's bursts make the rate fall far, since their packets are in the queue, too. It is soon what it was.
func TestBurstsOfOthers(t *testing.T) {
	for _, c := range []struct{ period, length, used float64 }{{10, .3, .85}, {5, .3, .7}, {5, .1, .87}, {2, .1, .7}} {
		w := world{rate: steps(50 * mbit), buffer: .2, bases: same(4, .048), look: .02,
			neighbour: func(t float64) float64 {
				if every(c.period, c.length, t) {
					return 60 * mbit
				}
				return 0
			}, set: follower(49.875*mbit, 2.5*mbit, 200*mbit)}
		s := w.run(100)
		used := s.used(20, 100, 50*mbit)
		t.Logf("60 Mbit/s for %g s, each %g s: %.1f %% of the link is used", c.length, c.period, 100*used)
		if used < c.used {
			t.Errorf("that is less than %g %%", 100*c.used)
		}
	}
}
