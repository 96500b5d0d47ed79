// SPDX-License-Identifier: Apache-2.0

package follow

import (
	"testing"
)

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
