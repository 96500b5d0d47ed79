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

// found is the first rate that a finder gives on a host with no shaper, in bit/s, and why it gives none at the end.
func found(w world, length float64) (rate float64, why string) {
	f := NewFinder()
	w.look = .1
	w.set = func(l Look) float64 {
		if l.At > 0 {
			f.Look(l)
		}
		if r, ok := f.Found(); ok && rate == 0 {
			rate = float64(r)
		}
		return 10e9
	}
	w.run(length)
	return rate, f.Why()
}

// chance draws worlds.
type chance struct{ *rand.Rand }

func (c chance) of(x ...float64) float64 { return x[c.IntN(len(x))] }

// downloads are some that begin one after the other, to near and far.
func (c chance) downloads(w *world, n int, within float64) {
	for range n {
		w.bases = append(w.bases, c.of(.005, .012, .03, .048, .15))
		w.begin = append(w.begin, within*c.Float64())
	}
}

// finds draws links, and fails if more than one in so many is not found.
func finds(t *testing.T, cases int, unknown bool, oneIn int) {
	const length = 90
	c := chance{rand.New(rand.NewPCG(21, 22))}
	none, off := 0, []float64{}
	for i := range cases {
		w := world{rate: steps(mbit * c.of(5, 20, 50, 100, 500)), buffer: c.of(.02, .05, .2, 1), unknown: unknown,
			rng: rand.New(rand.NewPCG(uint64(i), 5))}
		c.downloads(&w, 2+c.IntN(8), 20)
		if c.IntN(3) == 0 {
			w.jitter = c.of(.001, .005)
		}
		rate, why := found(w, length)
		wrong := math.Abs(rate/w.rate(0) - 1)
		switch {
		case rate == 0:
			t.Logf("%d: %g Mbit/s, %g s of buffer: %s", i, w.rate(0)/mbit, w.buffer, why)
			none++
			continue
		case wrong > .015:
			t.Errorf("%d: %g Mbit/s, and %g was found", i, w.rate(0)/mbit, rate/mbit)
		}
		off = append(off, wrong)
	}
	if p95 := stats.QuantileAbove(off, .95); p95 > .005 {
		t.Errorf("nineteen in twenty rates are found within %.2f %%, at most 0.5", 100*p95)
	}
	if none > cases/oneIn {
		t.Errorf("of %d rates %d are not found", cases, none)
	}
}

// Where no rate is found it is said what is missing.
func TestFindsReasons(t *testing.T) {
	four := same(4, .048)
	alone := Alone.String() + ". It gets 50 Mbit/s"
	for want, w := range map[string]world{
		Quiet.String():  {bases: same(2, .048), offered: steps(.1 * mbit)},
		Asleep.String(): {bases: four, offered: steps(20 * mbit)},
		Empty.String():  {rate: steps(500 * mbit), bases: four, loss: .003},
		Lossy.String():  {bases: four, policed: .02},
		alone:           {bases: four, clients: 1},
		Apart.String():  {bases: four, access: []float64{5e6, 5e6, 10e6, 10e6}, accessed: .2},
	} {
		if w.buffer = .2; w.rate == nil {
			w.rate = steps(50 * mbit)
		}
		if rate, why := found(w, 40); rate != 0 || why != want {
			t.Errorf("%s: found %g, said %q", want, rate, why)
		}
	}
	home := world{rate: steps(50 * mbit), buffer: .2, bases: four, begin: []float64{1, 2, 3, 4}, clients: 2, dual: true}
	if rate, why := found(home, 40); rate != 0 || why != alone {
		t.Errorf("one client, by IPv4 and IPv6: found %g, said %q", rate, why)
	}
	rate, why := found(world{rate: steps(50 * mbit), buffer: .2, bases: four, begin: []float64{1, 2, 3, 4}}, 8)
	if want := fmt.Sprintf("%s: %d of %d s", Measured, 4, neededSeconds); rate != 0 || why != want {
		t.Errorf("after 8 s: found %g, said %q, not %q", rate, why, want)
	}
}

// Odd looks are survived, and nothing is found in them.
func TestFinderOddLooks(t *testing.T) {
	f := NewFinder()
	for i, l := range []Look{
		{}, {At: time.Hour}, {At: time.Minute}, {At: time.Hour + 1, Sent: 1e9}, {At: time.Hour + 2},
		{At: 2 * time.Hour, Sent: math.MaxFloat64, Connections: []Connection{{}}},
		{At: 2*time.Hour + 1, Connections: []Connection{{RTT: -1, Base: math.MaxInt64, Delivered: -1}}},
		{At: 2*time.Hour + 2, Connections: []Connection{{RTT: math.MaxInt64, Rate: math.Inf(1), Delivered: math.NaN()}}},
	} {
		f.Look(l)
		if rate, ok := f.Found(); ok || rate != units.Rate(0) || f.Why() == "" {
			t.Errorf("look %d: %s, %q", i, rate, f.Why())
		}
	}
}

// One client alone never tells the link's rate. What it gets is known all the same, be that the link or its own line;
// and what an application or loss leaves over is not taken for it.
func TestLone(t *testing.T) {
	const length = 9.5 // s, of a download of weir try
	c := chance{rand.New(rand.NewPCG(41, 42))}
	none, off := 0, []float64{}
	for i := range 80 {
		w := world{rate: steps(mbit * c.of(5, 20, 50, 100)), buffer: c.of(.05, .2, 1), clients: 1,
			rng: rand.New(rand.NewPCG(uint64(i), 7))}
		base := c.of(.005, .012, .03, .048, .15)
		w.bases = []float64{base, base, base, base}
		w.begin = []float64{0, .1, .2, .3}
		said := i%4 > 0
		switch i % 8 {
		case 0:
			w.offered = steps(w.rate(0) * c.of(.5, .7, .9))
		case 4:
			w.buffer, w.loss = 1, c.of(.01, .03)
			w.rate = steps(1000 * mbit)
		}
		rate, why := lone(w, length)
		switch {
		case !said && rate != 0:
			t.Errorf("%d: %g Mbit/s of %g: %s", i, rate/mbit, w.rate(0)/mbit, why)
		case said && rate == 0:
			t.Logf("%d: %g Mbit/s, %g s of buffer, %g s: %s", i, w.rate(0)/mbit, w.buffer, base, why)
			none++
		case said:
			off = append(off, math.Abs(rate/w.rate(0)-1))
		}
	}
	t.Logf("%d of %d, p95 of the error %.2f %%", len(off), len(off)+none, 100*stats.QuantileAbove(off, .95))
	if p95 := stats.QuantileAbove(off, .95); p95 > .005 || none > 4 {
		t.Errorf("nineteen in twenty are within %.2f %%, at most 0.5; %d are not known, at most 4", 100*p95, none)
	}
}

// lone is what is known of one client at the end of a time.
func lone(w world, length float64) (rate float64, why string) {
	f := NewFinder()
	w.look = .1
	w.set = func(l Look) float64 {
		if l.At > 0 {
			f.Look(l)
		}
		if r, ok := f.Lone(); ok {
			rate = float64(r)
		}
		if _, ok := f.Found(); ok {
			why = "found: "
		}
		return 10e9
	}
	w.run(length)
	return rate, why + f.Why()
}
