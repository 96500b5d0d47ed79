// SPDX-License-Identifier: Apache-2.0

package follow

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"weir/internal/follow/autorate"
	"weir/internal/stats"
)

// reflected is cake-autorate's rule with a reflector that answers at once and never lies: a look every 50 ms, and half
// of what an echo waits beyond the host.
func reflected(w *world, low, base, high float64) func(Look) float64 {
	rule, before := autorate.New(low, base, high), Look{}
	return func(l Look) float64 {
		if l.At == 0 {
			return rule.Rate()
		}
		sent := 8 * (l.Sent - before.Sent) / (l.At - before.At).Seconds()
		before = l
		return rule.Echo(l.At.Seconds(), w.stood/2, sent)
	}
}

// Beside the rule of cake-autorate packets wait less, and are calm sooner, while more of the link is used. A
// neighbour's traffic costs no more.
func TestBesideAutorate(t *testing.T) {
	doc, err := os.ReadFile("../../results/follow.md")
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
			theirs.set = reflected(&theirs, 10*mbit, 60*mbit, 120*mbit)
			ours := w
			ours.look, ours.set = .02, follower(99.75*mbit, 10*mbit, 400*mbit)
			them, us := theirs.run(40), ours.run(40)
			worst := func(s seen) float64 { return ms(stats.QuantileAbove(s.between(s.added, 10, 25), 1)) }
			p99 := func(s seen) float64 { return ms(stats.QuantileAbove(s.between(s.added, 5, 40), .99)) }
			used := func(s seen) float64 { return s.used(5, 40, 100*mbit) }
			for who, s := range map[string]seen{"weir follow": us, "cake-autorate": them} {
				row := fmt.Sprintf("| %s | %s | %.0f | %.0f | %.1f | %.0f |\n", name, who, worst(s), p99(s),
					s.calm(10, 25), 100*used(s))
				if t.Log(row); !strings.Contains(string(doc), row) {
					t.Errorf("results/follow.md does not have this row:\n%s", row)
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
