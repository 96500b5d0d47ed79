// SPDX-License-Identifier: Apache-2.0

package lab_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"weir/internal/lab/scenario"
)

// inStep has 128 connections of one client, in eight flows, beside an echo that is seldom and one that is rare.
func inStep(rtt string, sizes ...int) string {
	var flows strings.Builder
	for i := range 8 {
		fmt.Fprintf(&flows, "[[flow]]\nname = \"f%d\"\ncount = 16\nmss = \"%db\"\n", i, sizes[i%len(sizes)])
	}
	return strings.NewReplacer("48.3ms", rtt, "50mbit", "3mbit", `warmup = "5s"`, `warmup = "6s"`,
		"[[flow]]\nname = \"downloads\"\n", flows.String(), "[[probe]]\nname = \"echo\"\nkind = \"udp\"\n", `[[probe]]
name = "seldom"
kind = "udp"
interval = "100ms"
[[probe]]
name = "rare"
kind = "udp"
interval = "699ms"
`).Replace(calm)
}

// What makes a seldom echo wait is that connections pay in step: with packets of several sizes it does not wait so
// long, and neither does one that comes less often than all connections have their turn.
func TestSeldomEcho(t *testing.T) {
	const bound = 2.5 * 1514 * 8 / 3e3 // ms
	wait := func(sizes ...int) float64 {
		report := run(t, runner(t), load(t, inStep("5ms", sizes...)))
		p := &report.Points[0]
		if rare := metric(t, p, &p.Cells[0], "added.rare.p99"); rare > bound {
			t.Errorf("packets of %v bytes: a rare echo waits %.1f ms, want ≤ %.1f", sizes, rare, bound)
		}
		return metric(t, p, &p.Cells[0], "added.seldom.p99")
	}
	one, eight := wait(1448), wait(1448, 1388, 1328, 1268, 1208, 1148, 1088, 1028)
	if one < 4*bound || eight > one/3 {
		t.Errorf("a seldom echo waits %.1f ms beside packets of one size, and %.1f of eight", one, eight)
	}
}

// What is read in a time may have come before it. What arrives in it is never more than the link carries.
func TestArrived(t *testing.T) {
	report := run(t, runner(t), load(t, inStep("250ms", 1448)))
	p := &report.Points[0]
	read, arrived := metric(t, p, &p.Cells[0], "utilisation"), metric(t, p, &p.Cells[0], "arrived")
	if read < 101 || arrived > 100 || arrived < 95 {
		t.Errorf("%.1f %% of the link are read, and %.1f arrive", read, arrived)
	}
}

// The table of promises has a row for each point of its scenario.
func TestPromise(t *testing.T) {
	text, err := os.ReadFile("../../results/rules.md")
	if err != nil {
		t.Fatal(err)
	}
	s, err := scenario.Load("../../scenarios/rules/promise.toml")
	if err != nil {
		t.Fatal(err)
	}
	points, _ := s.Points()
	for _, p := range points {
		value := func(i int) string { return p.Labels[i][strings.LastIndex(p.Labels[i], " ")+1:] }
		row := fmt.Sprintf("\n| %s, %s | %s | ", value(0), value(1), value(2))
		if !strings.Contains(string(text), row) {
			t.Errorf("results/rules.md lacks %q (make results-rules SECTION=promise)", row)
		}
	}
}

// A provider that counts more than it is said to has the queue: the scenario's key is no ornament.
func TestFramingUntold(t *testing.T) {
	report := run(t, runner(t), load(t, strings.NewReplacer("[provider]", "[provider]\noverhead = 24",
		`name = "downloads"`, "name = \"downloads\"\ncount = 4").Replace(calm)))
	p := &report.Points[0]
	if p99 := metric(t, p, &p.Cells[0], "added.p99"); p99 < 100 {
		t.Errorf("an echo waits %.3f ms at p99; want the provider's buffer, 200", p99)
	}
}
