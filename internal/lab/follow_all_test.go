// SPDX-License-Identifier: Apache-2.0

//go:build all

package lab_test

// In make test-all: it runs programs that are to be installed.

import (
	"os"
	"strings"
	"testing"
)

// A goal that is brought up while weir follow is at work holds: it sets nothing more by the goal before, and follows
// the new one if that says so.
func TestGoalUnderFollower(t *testing.T) {
	r := runner(t)
	if _, err := os.Stat("/usr/sbin/tc"); err != nil {
		t.Skipf("skipped, not passed: %s needs tc (scripts/need test)", t.Name())
	}
	scenario := strings.Replace(calm, "weir = {}\n", `weir = { follow = "10mbit..200mbit" }`+"\n", 1)
	report := run(t, r, load(t, strings.Replace(scenario, `duration = "10s"`, `duration = "20s"`, 1)+`
[[candidate.program]]
name = "follow"
run = ["weir", "follow"]
[[candidate.program]]
name = "another"
run = ["weir", "up", "--rate", "20mbit", "--yes"]
start = "5s"
[[candidate.program]]
name = "tc"
run = ["/usr/sbin/tc", "qdisc", "show", "dev", "eth0"]
start = "11s"
[[candidate.program]]
name = "followed"
run = ["weir", "up", "--rate", "8mbit..12mbit", "--yes"]
start = "12s"
[[candidate.program]]
name = "at last"
run = ["/usr/sbin/tc", "qdisc", "show", "dev", "eth0"]
start = "24s"
`))
	programs := report.Points[0].Cells[0].Runs[0].Programs
	for i, want := range map[int]string{0: "another goal", 2: "bandwidth 19950Kbit", 4: "bandwidth 11970Kbit"} {
		if all := strings.Join(programs[i].Output, "\n"); !strings.Contains(all, want) {
			t.Errorf("%s says %q, and no %q", programs[i].Program, all, want)
		}
	}
}
