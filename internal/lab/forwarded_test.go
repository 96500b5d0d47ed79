// SPDX-License-Identifier: Apache-2.0

package lab_test

import (
	"math"
	"strings"
	"testing"
)

// A router without a connection of its own finds a rate that nobody knows, by those that it forwards. Where clients
// wait for lines of their own it finds none.
func TestForwarded(t *testing.T) {
	r := runner(t)
	report := run(t, r, load(t, `title = "t"
warmup = "3s"
duration = "65s"
[server]
relay = true
[path]
rtt = "48ms"
[provider]
rate = "60mbit"
[[client]]
name = "near"
rtt = "20ms"
[[client]]
name = "far"
[[flow]]
name = "near"
client = "near"
count = 2
[[flow]]
name = "far"
client = "far"
count = 2
start = "4s"
[[candidate]]
name = "up"
[[candidate.program]]
name = "up"
run = ["weir", "up", "--rate", "auto", "--yes"]
find = 'carries ([0-9.]+)mbit'
[[sweep]]
key = "client.near.rate, client.far.rate"
values = [["1gbit", "1gbit"], ["20mbit", "15mbit"]]
`))
	shared, apart := &report.Points[0], &report.Points[1]
	if found := metric(t, shared, &shared.Cells[0], "program.up"); math.Abs(found/60-1) > 0.01 {
		t.Errorf("of 60 Mbit/s it finds %v", found)
	}
	up := apart.Cells[0].Runs[0].Programs[0]
	said := strings.Join(up.Output, "\n")
	if up.Exit != 0 || !strings.Contains(said, "not known yet") || strings.Contains(said, "carries") {
		t.Errorf("of clients' own lines it says, with status %d: %s", up.Exit, said)
	}
	t.Log(said)
}
