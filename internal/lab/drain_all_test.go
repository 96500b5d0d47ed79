// SPDX-License-Identifier: Apache-2.0

//go:build all

package lab_test

// In make test-all: it runs programs that are to be installed.

import (
	"os"
	"strings"
	"testing"
)

// Weir is brought up on a full link, and killed while it sends less: told to end it sets the whole rate first. Else
// status names the drift, and down takes the queue for weir's. What another run sets meanwhile is left.
func TestKilledWhileItDrains(t *testing.T) {
	r := runner(t)
	for _, path := range []string{"/bin/sh", "/bin/sleep", "/usr/sbin/tc"} {
		if _, err := os.Stat(path); err != nil {
			t.Skipf("skipped, not passed: %s needs %s (scripts/need test)", t.Name(), path)
		}
	}
	for meanwhile, want := range map[string][]string{
		"kill -TERM $!": {"bandwidth 49875Kbit", "In force", "qdisc fq_codel"},
		"kill -HUP $!":  {"bandwidth 49875Kbit", "In force", "qdisc fq_codel"}, // as the end of an ssh session
		"kill -KILL $!": {"bandwidth 34912Kbit", "Not in force", "qdisc fq_codel"},
		"/bin/weir up --dev eth0 --rate 20mbit --yes": {"bandwidth 19950Kbit", "In force:  --dev eth0 --rate 20mbit",
			"qdisc fq_codel"},
	} {
		report := run(t, r, load(t, strings.Replace(calm, "weir = {}\n", "", 1)+`
[[candidate.program]]
name = "up"
run = ["/bin/sh", "-c", "/bin/weir up --dev eth0 --rate 50mbit --yes & /bin/sleep 0.4; `+meanwhile+`; wait"]
files = ["/bin/sleep"]
start = "4s"
[[candidate.program]]
name = "tc"
run = ["/usr/sbin/tc", "qdisc", "show", "dev", "eth0"]
start = "8s"
[[candidate.program]]
name = "status"
run = ["weir", "status"]
start = "9s"
[[candidate.program]]
name = "down"
run = ["/bin/sh", "-c", "/bin/weir down && /usr/sbin/tc qdisc show dev eth0"]
start = "10s"
`))
		programs := report.Points[0].Cells[0].Runs[0].Programs
		for i, w := range want {
			if all := strings.Join(programs[i+1].Output, "\n"); !strings.Contains(all, w) {
				t.Errorf("%s: %s says %q, and no %q; up said %q", meanwhile, programs[i+1].Program, all, w,
					programs[0].Output)
			}
		}
	}
}
