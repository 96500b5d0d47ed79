// SPDX-License-Identifier: Apache-2.0

package follow

import (
	"fmt"
	"math"
	"os"
	"strings"
	"testing"
)

// autorate is the rule that cake-autorate 3.3 publishes (github.com/lynxthecat/cake-autorate, the defaults in its
// defaults.sh), with a reflector that answers at once and never lies: a look every 50 ms, and half of what an echo waits
// beyond the host. Rates are in bit/s, times in seconds.
type autorate struct {
	w               *world
	low, base, high float64
	rate            float64
	delays          []float64
	bloat, up, down float64 // when it last acted
	before          Look
}

func (a *autorate) set(l Look) float64 {
	const (
		threshold, mostUp, mostDown = 30e-3, 10e-3, 60e-3 // of the delay one way
		window, enough              = 6, 3
		refractory, rise, decay     = 0.3, 0.2, 1.
		loaded                      = 0.75
	)
	if a.rate == 0 {
		a.rate = a.base
	}
	now := l.At.Seconds()
	if now == 0 {
		return a.rate
	}
	sent := 8 * (l.Sent - a.before.Sent) / (l.At - a.before.At).Seconds()
	a.before = l
	a.delays = append(a.delays, a.w.stood/2)
	a.delays = a.delays[max(0, len(a.delays)-window):]
	long, mean := 0, 0.
	for _, d := range a.delays {
		mean += d / float64(len(a.delays))
		if d > threshold {
			long++
		}
	}
	// between is from one factor at a delay to another at a longer one.
	between := func(short, at, other, until float64) float64 {
		return short + (other-short)*math.Max(0, math.Min(1, (mean-at)/(until-at)))
	}
	switch {
	case now < a.bloat+refractory:
	case long >= enough:
		a.rate, a.bloat = a.rate*between(0.99, threshold, 0.75, mostDown), now
	case sent > loaded*a.rate && now >= a.up+rise:
		a.rate, a.up = a.rate*between(1.04, mostUp, 1, threshold), now
	case sent <= loaded*a.rate && now >= a.down+decay:
		if a.down = now; a.rate > a.base {
			a.rate = math.Max(a.base, a.rate*0.99)
		} else {
			a.rate = math.Min(a.base, a.rate*1.01)
		}
	}
	a.rate = math.Max(a.low, math.Min(a.high, a.rate))
	return a.rate
}

// Beside the rule of cake-autorate packets wait less, and are calm sooner, while more of the link is used. A neighbour's
// traffic costs no more.
func TestBesideAutorate(t *testing.T) {
	doc, err := os.ReadFile("../../docs/follow.md")
	if err != nil {
		t.Fatal(err)
	}
	for name, w := range map[string]world{
		"100, 60, 90 Mbit/s": {rate: steps(100*mbit, 10, 60*mbit, 25, 90*mbit)},
		"100, 30 Mbit/s":     {rate: steps(100*mbit, 10, 30*mbit)},
		"a neighbour":        {rate: steps(100 * mbit), neighbour: steps(0, 10, 30*mbit, 20, 0)},
	} {
		t.Run(name, func(t *testing.T) {
			w.buffer, w.bases = .2, same(4, .048)
			theirs := w
			theirs.look = .05
			a := autorate{w: &theirs, low: 10 * mbit, base: 60 * mbit, high: 120 * mbit}
			theirs.set = a.set
			ours := w
			ours.look, ours.set = .02, follower(99.75*mbit, 10*mbit, 400*mbit)
			them, us := theirs.run(40), ours.run(40)
			worst := func(s seen) float64 { return ms(quantile(s.between(s.added, 10, 25), 1)) }
			p99 := func(s seen) float64 { return ms(quantile(s.between(s.added, 5, 40), .99)) }
			used := func(s seen) float64 { return s.used(5, 40, 100*mbit) }
			for who, s := range map[string]seen{"weir follow": us, "cake-autorate": them} {
				row := fmt.Sprintf("| %s | %s | %.0f | %.0f | %.1f | %.0f |\n", name, who, worst(s), p99(s),
					s.calm(10, 25), 100*used(s))
				if t.Log(row); !strings.Contains(string(doc), row) {
					t.Errorf("docs/follow.md does not have this row:\n%s", row)
				}
			}
			if worst(us) > worst(them) || p99(us) > p99(them) || us.calm(10, 25) > them.calm(10, 25) {
				t.Error("packets wait longer than with cake-autorate's rule")
			}
			if used(us) < used(them) {
				t.Error("less is sent than with cake-autorate's rule")
			}
		})
	}
}
