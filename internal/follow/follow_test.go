// SPDX-License-Identifier: Apache-2.0

package follow

import (
	"fmt"
	"math"
	"testing"
	"time"

	"weir/internal/stats"
	"weir/internal/units"
)

const mbit = 1e6

// steps is a rate that changes: rate, until, rate, until, … rate.
func steps(rates ...float64) func(float64) float64 {
	return func(t float64) float64 {
		for i := 1; i < len(rates); i += 2 {
			if t < rates[i] {
				return rates[i-1]
			}
		}
		return rates[len(rates)-1]
	}
}

// same are connections of one base RTT.
func same(n int, base float64) []float64 {
	all := make([]float64, n)
	for i := range all {
		all[i] = base
	}
	return all
}

func ms(x float64) float64 { return 1e3 * x }

// From 100 to 60 to 90 Mbit/s, by paths. The bounds of the first row are those that results/follow.md promises.
func TestTheRateMoves(t *testing.T) {
	for _, c := range []struct {
		name                       string
		bases                      []float64
		look, jitter               float64
		forwarded                  bool
		own                        int     // of the forwarded ones
		cut, worst, calm           float64 // ms, ms, s
		usedLow, usedHigh, p99Calm float64
	}{
		{"four, 48 ms", same(4, .048), .02, 0, false, 0, 144, 90, .6, .99, .97, 2},
		{"one, 48 ms", same(1, .048), .02, 0, false, 0, 144, 90, .6, .985, .97, 2},
		{"sixteen, 48 ms", same(16, .048), .02, 0, false, 0, 144, 120, .8, .98, .97, 5},
		{"four, 5 ms", same(4, .005), .02, 0, false, 0, 62, 90, .6, .98, .97, 3},
		{"four, 150 ms", same(4, .15), .02, 0, false, 0, 450, 150, 1.2, .99, .97, 4},
		{"12 to 150 ms", []float64{.012, .03, .048, .15}, .02, 0, false, 0, 450, 180, .9, .97, .96, 9},
		{"a look every 50 ms", same(4, .048), .05, 0, false, 0, 200, 120, .7, .99, .97, 4},
		{"a look every 100 ms", same(4, .048), .1, 0, false, 0, 250, 165, .9, .98, .94, 7},
		{"a look every 103 ms", same(4, .048), .103, 0, false, 0, 250, 175, .9, .98, .94, 7},
		{"a look every 115 ms", same(4, .048), .115, 0, false, 0, 300, 190, 1, .98, .94, 7},
		{"jitter 1 ms", same(4, .048), .02, .001, false, 0, 144, 90, .6, .98, .97, 2},
		{"jitter 5 ms", same(4, .048), .02, .005, false, 0, 200, 110, .8, .98, .965, 5},
		{"jitter 10 ms", same(4, .048), .02, .01, false, 0, 200, 110, .8, .92, .92, 8},
		// TCP alone leaves this much free in the simulator: what it sends in bursts is dropped here.
		{"forwarded", same(4, .048), .02, 0, true, 0, 144, 60, .8, .99, .88, 2},
		{"one, forwarded", same(1, .048), .02, 0, true, 0, 144, 60, .8, .93, .66, 2},
		{"fifty, forwarded", same(50, .048), .02, 0, true, 0, 144, 80, .8, .98, .97, 2},
		{"forwarded, jitter 10 ms", same(4, .048), .02, .01, true, 0, 200, 110, .8, .92, .92, 8},
		{"two of four forwarded", same(4, .048), .02, 0, true, 2, 144, 90, 1.1, .98, .97, 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := world{rate: steps(100*mbit, 10, 60*mbit, 25, 90*mbit), buffer: .2, bases: c.bases, look: c.look,
				jitter: c.jitter, forwarded: c.forwarded, own: c.own,
				set: follower(99.75*mbit, 20*mbit, 400*mbit)}
			s := w.run(40)
			// It has looked for a queue that was there before, and learnt anew.
			if p99 := ms(stats.QuantileAbove(s.between(s.added, 5, 10), .99)); p99 > c.p99Calm {
				t.Errorf("before the change, packets wait %.1f ms at p99, at most %g", p99, c.p99Calm)
			}
			if cut := ms(s.first(10, func(rate float64) bool { return rate < 90*mbit })); cut > c.cut {
				t.Errorf("cut after %.0f ms, at most %g", cut, c.cut)
			}
			if worst := ms(stats.QuantileAbove(s.between(s.added, 10, 25), 1)); worst > c.worst {
				t.Errorf("packets wait for up to %.0f ms, at most %g", worst, c.worst)
			}
			if calm := s.calm(10, 25); calm > c.calm {
				t.Errorf("calm after %.2f s, at most %g", calm, c.calm)
			}
			if used := s.used(12, 25, 60*mbit); used < c.usedLow {
				t.Errorf("%.3f of 60 Mbit/s is used, at least %g", used, c.usedLow)
			}
			if used := s.used(30, 40, 90*mbit); used < c.usedHigh {
				t.Errorf("%.3f of 90 Mbit/s is used from 5 s after the change on, at least %g", used, c.usedHigh)
			}
		})
	}
}

func TestOtherChanges(t *testing.T) {
	starlink := func(t float64) float64 { return []float64{100, 130, 80, 110, 60}[int(t/15)%5] * mbit }
	often := func(t float64) float64 { return []float64{100, 60, 90, 50, 80, 95, 55}[int(t/2)%7] * mbit }
	for _, c := range []struct {
		name             string
		w                world
		begin            float64 // Mbit/s, set at first
		worst, calm, p95 float64 // ms, s, ms
		used             float64
	}{
		{"100 to 30", world{rate: steps(100*mbit, 10, 30*mbit), buffer: .2}, 99.75, 220, .95, 10, .98},
		{"100 to 30, a second of buffer", world{rate: steps(100*mbit, 10, 30*mbit), buffer: 1},
			99.75, 275, 1.2, 50, .98},
		{"100 to 95 to 90", world{rate: steps(100*mbit, 10, 95*mbit, 20, 90*mbit), buffer: .2}, 99.75, 10, .5, 3, .98},
		{"1000 to 600", world{rate: steps(1000*mbit, 10, 600*mbit), buffer: .2}, 997.5, 90, .6, 3, .98},
		{"5 to 3", world{rate: steps(5*mbit, 10, 3*mbit), buffer: .2, bases: same(2, .048)}, 4.98, 120, 2.5, 40, .93},
		{"set too high at first", world{rate: steps(60 * mbit), buffer: 1}, 100, 10, .1, 4, .98},
		{"a neighbour", world{rate: steps(100 * mbit), neighbour: steps(0, 10, 30*mbit, 20, 0), buffer: .2},
			99.75, 60, 2, 10, .7},
		{"every 15 s", world{rate: starlink, buffer: .2, bases: same(4, .04), jitter: .005}, 99.75, 140, 15, 30, .94},
		{"every 2 s", world{rate: often, buffer: .2}, 99.75, 150, 60, 60, .8},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.w.bases == nil {
				c.w.bases = same(4, .048)
			}
			c.w.look, c.w.set = .02, follower(c.begin*mbit, c.begin/10*mbit, 4*c.begin*mbit)
			const from, to = 10., 70.
			s := c.w.run(to)
			if worst := ms(stats.QuantileAbove(s.between(s.added, from, to), 1)); worst > c.worst {
				t.Errorf("packets wait for up to %.0f ms, at most %g", worst, c.worst)
			}
			if p95 := ms(stats.QuantileAbove(s.between(s.added, from, to), .95)); p95 > c.p95 {
				t.Errorf("packets wait %.1f ms at p95, at most %g", p95, c.p95)
			}
			if calm := s.calm(from, to); calm > c.calm {
				t.Errorf("calm after %.2f s, at most %g", calm, c.calm)
			}
			mean := 0.
			for t := from; t < to; t += .01 {
				mean += c.w.rate(t) * .01 / (to - from)
			}
			if used := s.used(from, to, mean); used < c.used {
				t.Errorf("%.3f is used, at least %g", used, c.used)
			}
		})
	}
}

// How soon it is calm depends on where between two looks and two probes the rate falls.
func TestTheRateFallsFar(t *testing.T) {
	for _, c := range []struct {
		name             string
		to               float64 // Mbit/s
		forwarded        bool
		onAverage, worst float64 // s
	}{
		{"to 30", 30, false, .7, .95},
		{"to 60, forwarded", 60, true, .7, .95},
	} {
		t.Run(c.name, func(t *testing.T) {
			calm := []float64{}
			for at := 10.; at < 13; at += .25 {
				w := world{rate: steps(100*mbit, at, c.to*mbit), buffer: .2, bases: same(4, .048), look: .02,
					forwarded: c.forwarded,
					set:       follower(99.75*mbit, 9.975*mbit, 400*mbit)}
				calm = append(calm, w.run(at+15).calm(at, at+15))
			}
			if worst := stats.QuantileAbove(calm, 1); stats.Mean(calm) > c.onAverage || worst > c.worst {
				t.Errorf("calm after %.2f s on average, at most %g; in the worst of %d cases after %.2f, at most %g",
					stats.Mean(calm), c.onAverage, len(calm), worst, c.worst)
			}
		})
	}
}

// On a slow link the turns of this host's queue are long, and a sample is seldom.
func TestSlowLinks(t *testing.T) {
	for _, c := range []struct {
		rate        float64 // Mbit/s
		connections int
		p99, used   float64 // ms, and the share of the rate
	}{
		{.5, 1, 40, .97},
		{1, 1, 15, .99},
		{1, 4, 90, .97},
		{2, 4, 25, .985},
		{5, 4, 9, .99},
	} {
		t.Run(fmt.Sprint(c.rate, " Mbit/s, ", c.connections), func(t *testing.T) {
			w := world{rate: steps(c.rate * mbit), buffer: .5, bases: same(c.connections, .048), look: .02,
				set: follower(.9975*c.rate*mbit, .2*c.rate*mbit, 4*c.rate*mbit)}
			s := w.run(120)
			if p99 := ms(stats.QuantileAbove(s.between(s.added, 10, 120), .99)); p99 > c.p99 {
				t.Errorf("packets wait %.1f ms at p99, at most %g", p99, c.p99)
			}
			if used := s.used(10, 120, c.rate*mbit); used < c.used {
				t.Errorf("%.3f is used, at least %g", used, c.used)
			}
		})
	}
}

// The floor is a calm second of those at the rate of now, once there are some.
func TestFloor(t *testing.T) {
	f, at := floor{}, 0.
	learn := func(seconds int, q float64) {
		for range seconds * 10 {
			at += .1
			f.add(at, q)
		}
	}
	for _, c := range []struct {
		moved   bool
		seconds int
		q, want float64 // ms
	}{{false, 20, 2, 2}, {false, 20, 5, 2}, {true, 2, 4, 2}, {false, 4, 4, 4}, {false, 70, 1, 1}} {
		if c.moved {
			f.noteNewRate()
		}
		if learn(c.seconds, c.q/1e3); math.Abs(ms(f.level())-c.want) > 1e-9 {
			t.Errorf("after %.0f s, with %g ms of late: %.3f ms, and not %g", at, c.q, ms(f.level()), c.want)
		}
	}
}

// A queue that stood before the follower began is seen, though no connection has ever been without it.
func TestBeginsInAQueue(t *testing.T) {
	const begins = 10 // seconds, until which nothing is shaped
	w := world{rate: steps(60 * mbit), buffer: .2, bases: []float64{.02, .02, .048, .048}, begin: []float64{0, 0, 4, 4},
		look: .02}
	set := follower(59.85*mbit, 15*mbit, 240*mbit)
	w.set = func(l Look) float64 {
		if l.At < begins*time.Second {
			return 1000 * mbit
		}
		return set(l)
	}
	s := w.run(40)
	if calm := s.calm(begins, 40); calm > 6 {
		t.Errorf("calm after %.2f s, at most 6", calm)
	}
	if used := s.used(begins+10, 40, 60*mbit); used < .97 {
		t.Errorf("%.3f is used, at least 0.97", used)
	}
}

// Forwarded downloads see a queue of 12 ms. An ssh of this host's own has seen nothing since it came, and does not hide
// it. A download of this host's own that waits less in both queues knows better.
func TestOwnBesideForwarded(t *testing.T) {
	for name, c := range map[string]struct {
		acks uint32        // of the own connection, at each look
		rtt  time.Duration // smoothed, of that
		want float64       // ms
	}{
		"an ssh":                {0, 48 * time.Millisecond, 12},
		"a download that waits": {10, 60 * time.Millisecond, 12},
		"one that does not":     {10, 50 * time.Millisecond, 2},
	} {
		t.Run(name, func(t *testing.T) {
			const base = 48 * time.Millisecond
			f := New(100*units.Rate(mbit), 20*units.Rate(mbit), 200*units.Rate(mbit))
			var p point
			for i := range uint32(20) {
				l := Look{At: time.Duration(i) * 20 * time.Millisecond, Sent: float64(i) * 2.5e5}
				for id := range uint64(4) {
					l.Connections = append(l.Connections, Connection{ID: id + 1, Base: base, Delivered: 40,
						Past: true, Samples: 5 * i, Sum: 5 * time.Duration(i) * (base + 12*time.Millisecond)})
				}
				l.Connections = append(l.Connections, Connection{ID: 9, RTT: c.rtt, Base: base,
					Acks: c.acks * i, Delivered: float64(max(1, c.acks))})
				p, _ = f.point(l)
			}
			if math.Abs(ms(p.q)-c.want) > 0.1 {
				t.Errorf("a queue of %.1f ms is seen, and it is %g", ms(p.q), c.want)
			}
		})
	}
}

// What the shaper drops is lost to this host's own connections, and not to what is seen behind it.
func TestDroppedHere(t *testing.T) {
	for _, behind := range []bool{false, true} {
		f := New(100*units.Rate(mbit), 20*units.Rate(mbit), 200*units.Rate(mbit))
		for i := range 20 {
			f.Look(Look{At: time.Duration(i) * 20 * time.Millisecond, Sent: float64(i) * 100 * packetBits / 8,
				Dropped: 3 * float64(i), Connections: []Connection{{ID: 1, RTT: 48 * time.Millisecond,
					Base: 48 * time.Millisecond, Rate: 5000, Delivered: 97, Lost: 3, Acks: uint32(50 * i),
					Past: behind, Samples: uint32(5 * i), Sum: 5 * time.Duration(i) * 48 * time.Millisecond}}})
		}
		if beyond, _, _ := f.countMissing(.18, .38); beyond > 0 != behind || behind && math.Abs(beyond-30) > 1 {
			t.Errorf("behind %v: %.1f packets were lost beyond this host, of 30", behind, beyond)
		}
	}
}

// What applications do not send says nothing of the link.
func TestNobodyAsksForMore(t *testing.T) {
	w := world{rate: steps(100 * mbit), buffer: .2, bases: same(4, .048), look: .02, offered: steps(50 * mbit),
		set: follower(99.75*mbit, 20*mbit, 400*mbit)}
	s := w.run(60)
	for i, rate := range s.set {
		if math.Abs(rate-99.75*mbit) > 1*mbit {
			t.Fatalf("after %.1f s the rate is %.1f Mbit/s", s.at[i], rate/mbit)
		}
	}
}

// Bounds hold whatever is seen, and what cannot be seen changes nothing.
func TestOddLooks(t *testing.T) {
	at := func(d time.Duration, sent float64, rtt, base time.Duration) Look {
		return Look{At: d, Sent: sent, Backlog: 1, Connections: []Connection{{RTT: rtt, Base: base, Rate: 1000}}}
	}
	const low, high = 20 * units.Rate(mbit), 200 * units.Rate(mbit)
	for name, looks := range map[string]func(i int) Look{
		"the clock stands": func(int) Look { return at(time.Second, 1e6, 50*time.Millisecond, 48*time.Millisecond) },
		"the clock jumps": func(i int) Look {
			return at(time.Duration(i*i)*time.Second, float64(i)*1e6, 50*time.Millisecond, 48*time.Millisecond)
		},
		"the clock goes back": func(i int) Look {
			return at(time.Duration(1000-i)*20*time.Millisecond, float64(i)*1e5, 300*time.Millisecond,
				48*time.Millisecond)
		},
		"the counter begins anew": func(i int) Look {
			return at(time.Duration(i)*20*time.Millisecond, float64(i%10)*1e5, 50*time.Millisecond, 48*time.Millisecond)
		},
		"nothing is sent": func(i int) Look { return Look{At: time.Duration(i) * 20 * time.Millisecond} },
		"no RTT":          func(i int) Look { return at(time.Duration(i)*20*time.Millisecond, float64(i)*1e5, 0, 0) },
		"the base is above the RTT": func(i int) Look {
			return at(time.Duration(i)*20*time.Millisecond, float64(i)*1e5, time.Millisecond, time.Second)
		},
		"hours": func(i int) Look {
			return at(time.Duration(i)*20*time.Millisecond, float64(i)*1e5, 5*time.Hour, time.Millisecond)
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := New(100*units.Rate(mbit), low, high)
			for i := range 2000 {
				if rate, _ := f.Look(looks(i)); rate < low || rate > high {
					t.Fatalf("look %d: %s", i, rate)
				}
			}
		})
	}
}

// After a sleep what was learnt is not used.
func TestForgets(t *testing.T) {
	f := New(100*units.Rate(mbit), 20*units.Rate(mbit), 200*units.Rate(mbit))
	i := 0
	look := func(rtt time.Duration, gap time.Duration) units.Rate {
		i++
		r, _ := f.Look(Look{At: time.Duration(i)*20*time.Millisecond + gap, Sent: float64(i) * 2.5e5, Backlog: 1,
			Connections: []Connection{{RTT: rtt, Base: 48 * time.Millisecond, Rate: 1000}}})
		return r
	}
	for range 100 {
		look(48*time.Millisecond, 0)
	}
	for range 5 {
		if r := look(148*time.Millisecond, time.Hour); r != 100*units.Rate(mbit) {
			t.Fatalf("%s after an hour's sleep, for what was seen before it", r)
		}
	}
}

// Whenever it ends, a rate stays that the link carries, and nearly all of it.
func TestSettled(t *testing.T) {
	f := New(units.Rate(49.875*mbit), units.Rate(12.5*mbit), units.Rate(200*mbit))
	link := steps(50*mbit, 30, 30*mbit)
	above, below, under := 0, 0, 0 // looks
	w := world{rate: link, buffer: .2, bases: same(4, .048), look: .02}
	w.set = func(l Look) float64 {
		if l.At == 0 {
			return float64(f.Rate())
		}
		rate, _ := f.Look(l)
		if at := l.At.Seconds(); at > 5 && (at < 30 || at > 30.3) { // by then a fall has been measured
			carries := link(at)
			switch settled := float64(f.Settled()); {
			case settled > carries, settled < .97*carries:
				under++
			case float64(rate) > carries:
				above++
			case float64(rate) < .97*carries:
				below++
			}
		}
		return float64(rate)
	}
	w.run(60)
	if under > 0 || above == 0 || below == 0 {
		t.Errorf("at %d looks it would leave too much or too little, and %d and %d were at such a rate", under, above,
			below)
	}
}

// A queue that begins here while an RTT is measured is this host's, and not one beyond it.
func TestOwnQueueBegins(t *testing.T) {
	waits := func(own ...float64) (seen []point) {
		for i, own := range own {
			seen = append(seen, point{departure: departure{at: 1 + float64(i)/10}, own: own})
		}
		return seen
	}
	begins := waits(0, 0, .01, .02)
	stands := waits(.01, .01, .02, .03)
	for name, c := range map[string]struct {
		seen            []point
		t, around, want float64
	}{
		"nothing waits":         {begins, 1.05, .05, 0},
		"it begins":             {begins, 1.15, .15, .02},
		"it has stood before":   {stands, 1.15, .05, .015},
		"it has stood for long": {stands, 1.2, .1, .02},
	} {
		f := &Follower{seen: c.seen}
		if got := f.ownWaitAround(c.t, c.around, .02); math.Abs(got-c.want) > 1e-9 {
			t.Errorf("%s: %g s, want %g", name, got, c.want)
		}
	}
}

// What was sent while a queue drained says nothing of the link, if the rate was far below it then.
func TestQueueStartAfterDraining(t *testing.T) {
	for name, c := range map[string]struct {
		deep bool
		want float64
	}{"far below": {true, 10.4}, "little below": {false, 10.3}} {
		f := New(60e6, 10e6, 400e6)
		f.phase, f.wasCutFar, f.queueSeenAt, f.setAt = calm, c.deep, 10.1, 10.25
		for i := range 5 {
			at := 10.1 + float64(i)/10
			f.seen = append(f.seen, point{departure: departure{at: at}, crossing: crossing{crossedAt: at - .05}, q: .01,
				known: true})
		}
		if got := f.queueStart(point{departure: departure{at: 10.5}, rtt: .15}); math.Abs(got-c.want) > 1e-9 {
			t.Errorf("%s: since %g s, want %g", name, got, c.want)
		}
	}
}
