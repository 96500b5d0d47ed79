// SPDX-License-Identifier: Apache-2.0

package change

import (
	"testing"
	"time"

	"weir/internal/plan"
)

// What is left until all reverts counts from when the timer was armed, and not from when that had worked.
func TestArmingTakesTime(t *testing.T) {
	s, m := newFake(t)
	m.arming = func() { m.clock += minute / 3 }
	out := must[Outcome](t)(s.Up(plan.Goal{Dev: "eth0", Rate: 50e6}, minute))
	if left := time.Duration(out.RevertsIn); left != minute-minute/3 {
		t.Errorf("it reverts in %v", left)
	}
}
