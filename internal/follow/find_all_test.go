// SPDX-License-Identifier: Apache-2.0

//go:build all

package follow

// In make test-all: hundreds of links take half a minute of CPU time.

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"
)

// Downloads that share a link tell its rate, whatever the link, its buffer and their paths are.
func TestFinds(t *testing.T) { finds(t, 100, false, 15) }

// What is not the link's rate is not taken for it: clients' own lines, applications, loss and jitter.
func TestFindsNothing(t *testing.T) {
	const cases, length = 240, 60
	c := chance{rand.New(rand.NewPCG(31, 32))}
	for i := range cases {
		w := world{rate: steps(1000 * mbit), buffer: .2, rng: rand.New(rand.NewPCG(uint64(i), 6)), unknown: i%2 > 0}
		what := []string{"own lines", "own lines", "own lines", "applications", "loss", "a policer", "one client"}[i%7]
		switch what {
		case "own lines":
			c.downloads(&w, 1+c.IntN(6), 5)
			w.accessed = c.of(.01, .03, .1, .3, 1)
			for range w.bases {
				w.access = append(w.access, mbit*c.of(5, 10, 10, 20, 50, 100))
			}
			if c.IntN(3) == 0 {
				w.loss = c.of(.0001, .001, .01)
			}
		case "applications":
			c.downloads(&w, 2+c.IntN(6), 5)
			w.rate = steps(mbit * c.of(5, 20, 100))
			w.offered = steps(w.rate(0) * c.of(.5, .6, .7, .8, .9, .95))
		case "loss":
			c.downloads(&w, 2+c.IntN(6), 5)
			w.loss = c.of(.001, .003, .01, .03)
		case "a policer":
			c.downloads(&w, 2+c.IntN(6), 5)
			w.rate, w.policed = steps(mbit*c.of(5, 20, 100)), c.of(.005, .02, .1)
		case "one client":
			c.downloads(&w, 1+c.IntN(6), 5)
			w.rate, w.clients = steps(mbit*c.of(5, 20, 100)), 1
		}
		if c.IntN(3) == 0 {
			w.jitter = c.of(.001, .005, .01)
		}
		rate, _ := found(w, length)
		right := what != "own lines" && math.Abs(rate/w.rate(0)-1) < .01
		if rate != 0 && !right {
			t.Errorf("%d, %s: %g Mbit/s was found, of %+v", i, what, rate/mbit, w)
		}
	}
}

// So they do if others send them, or it is not known.
func TestFindsForwarded(t *testing.T) { finds(t, 60, true, 2) }

// What others send through a limit before this host is the same all the time, too. Its clients' RTTs vary by
// themselves, as those of radio do: that is no queue.
func TestFindsNoUpstream(t *testing.T) {
	said := map[string]int{}
	for i := range 100 {
		rng := rand.New(rand.NewPCG(uint64(i), 8))
		n := 2 + rng.IntN(8)
		f := NewFinder()
		level, spread := .004+.02*rng.Float64(), .001+.01*rng.Float64()
		slow := []float64{.02, .05, .1, .2, .4}[i%5] // of what is off, that comes back in a tenth of a second
		q, share := make([]float64, n), make([]float64, n)
		for j := range q {
			q[j], share[j] = level, rng.Float64()
		}
		sent := 0.
		for at := 0; at < 600; at++ {
			l := Look{At: time.Duration(at) * 100 * time.Millisecond, Sent: sent}
			all := 0.
			for j := range q {
				q[j] += slow*(level-q[j]) + math.Sqrt(2*slow)*spread*rng.NormFloat64()
				share[j] = math.Max(.05, share[j]+.1*rng.NormFloat64())
				all += share[j]
			}
			for j := range q {
				base := 10 * time.Millisecond * time.Duration(j+1)
				rtt := base + time.Duration(1e9*math.Max(0, q[j]))
				l.Connections = append(l.Connections, Connection{RTT: rtt, Base: base, Rate: 1000, Size: 1514,
					To: (&world{}).to(j), Delivered: 300 * share[j] / all, Forwarded: true})
			}
			sent += 300 * 1514
			f.Look(l)
			if r, ok := f.Found(); ok {
				t.Errorf("%d: slow %g, %d clients, level %g, spread %g, at %d: found %s",
					i, slow, n, level, spread, at, r)
				break
			}
		}
		if why := f.Why(); why != Scattered.String() {
			said[why]++
		}
	}
	if len(said) > 0 {
		t.Logf("not for that reason: %v", said)
	}
}
