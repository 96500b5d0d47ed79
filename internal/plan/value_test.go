// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"slices"
	"testing"
)

// A card's whole speed can be asked for, and no more.
func TestUpToTheSpeed(t *testing.T) {
	f := with(t, kernelWith("cake", "ifb", "act_mirred"))
	for _, c := range []struct {
		goal Goal
		fits bool
	}{
		{Goal{Rate: 1e9, RTT: 1000}, true}, {Goal{Rate: 1001e6}, false}, {Goal{Rate: 1e8, Ingress: 1e9}, true},
		{Goal{Rate: 1e8, Ingress: 1001e6}, false}, {Goal{Rate: 1e8, Ingress: 1001e6, Role: "relay"}, false},
	} {
		if _, err := planFor(c.goal, f); (err == nil) != c.fits {
			t.Errorf("%s: %v", c.goal.Flags(), err)
		}
	}
}

// The program and the journal must be seen from inside, wherever they are; all else of a home and of /tmp is hidden.
func TestSandboxSeesItsOwn(t *testing.T) {
	for _, c := range []struct{ program, state, home, tmp string }{
		{"/usr/bin/weir", "/var/lib/weir", "yes", "yes"},
		{"/home/me/weir", "/var/lib/weir", "read-only", "yes"},
		{"/root/weir", "/root/state", "read-only", "yes"},
		{"/usr/bin/weir", "/run/user/1000/weir", "read-only", "yes"},
		{"/tmp/weir", "/var/lib/weir", "yes", "no"},
		{"/usr/bin/weir", "/var/tmp/weir", "yes", "no"},
		{"/homes/weir", "/tmpfs/weir", "yes", "yes"},
	} {
		lines := Sandbox(c.program, c.state)
		for _, want := range []string{"ProtectHome=" + c.home, "PrivateTmp=" + c.tmp} {
			if !slices.Contains(lines, want) {
				t.Errorf("%s, %s: no %s", c.program, c.state, want)
			}
		}
	}
}
