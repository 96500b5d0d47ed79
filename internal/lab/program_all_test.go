// SPDX-License-Identifier: Apache-2.0

//go:build all

package lab_test

// In make test-all: it runs programs that are to be installed.

import (
	"os"
	"slices"
	"strings"
	"testing"
)

// Programs of this host run in the guest, each where it is to; what they print is kept, and who does not end is ended.
func TestPrograms(t *testing.T) {
	r := runner(t)
	for _, path := range []string{"/bin/sh", "/bin/sleep", "/usr/bin/ss"} {
		if _, err := os.Stat(path); err != nil {
			t.Skipf("skipped, not passed: %s needs %s (scripts/need test)", t.Name(), path)
		}
	}
	report := run(t, r, load(t, calm+`
[[candidate.program]]
name = "status"
run = ["weir", "status"]
start = "1s"
[[program]]
name = "address"
client = "client"
run = ["/bin/sh", "-c", "echo {client} {server}; exit 3"]
[[program]]
name = "sockets"
run = ["/usr/bin/ss", "-tin"]
start = "10s"
find = ' rtt:([0-9.]+)/'
[[program]]
name = "endless"
run = ["/bin/sleep", "1000"]
start = "14900ms"
`))
	p := &report.Points[0]
	programs := p.Cells[0].Runs[0].Programs
	want := []struct {
		name, output string
		exit         int
	}{{"address", "10.1.0.1 10.0.0.1", 3}, {"sockets", "10.0.0.1:5201", 0}, {"endless", "", -1},
		{"status", "In force", 0}}
	for i, w := range want {
		if i >= len(programs) {
			t.Fatalf("%d programs", len(programs))
		}
		got := programs[i]
		if got.Program != w.name || got.Exit != w.exit ||
			w.output != "" && !slices.ContainsFunc(got.Output, func(line string) bool { return strings.Contains(line, w.output) }) {
			t.Errorf("%s: exit %d, want %d; it printed %q, want %q", got.Program, got.Exit, w.exit, got.Output, w.output)
		}
	}
	if rtt := metric(t, p, &p.Cells[0], "program.sockets"); rtt < 48 || rtt > 80 {
		t.Errorf("ss says that a download's RTT is %v ms", rtt)
	}
}
