// SPDX-License-Identifier: Apache-2.0

package measure

import (
	"testing"
	"time"

	"weir/internal/dualpi2"
	"weir/internal/units"
)

// What metrics by name read of a run.
func TestNamedMetrics(t *testing.T) {
	counted := dualpi2.Stats{StepMissed: 2, StepEarly: 1}
	counted.SojournL.Packets = 200
	counted.SojournC.Mean = units.Duration(15 * time.Millisecond)
	run := Run{
		Flows: []Flow{{Flow: "cubic", Goodput: 10}, {Flow: "cubic", Goodput: 20}, {Flow: "dctcp", Goodput: 30}},
		Probes: []Probe{
			{Probe: "L", Kind: "udp", Base: 10, Sent: 4, Delay: Dist{N: 4, P50: 10.5, P99: 11, Max: 12, Mean: 10.25}},
			{Probe: "C", Kind: "udp", Base: 10, Sent: 4, Lost: 4},
		},
		Uplink: Queue{DualPI2: &counted},
	}
	for _, c := range []struct {
		name  string
		want  float64
		there bool
	}{
		{"ratio.cubic.dctcp", 0.5, true},
		{"ratio.dctcp.none", 0, false},
		{"probe.L.p50", 10.5, true},
		{"probe.L.lost", 0, true},
		{"probe.C.lost", 100, true},
		{"probe.C.p50", 0, false},
		{"added.L.mean", 0.25, true},
		{"added.L.max", 2, true},
		{"sojourn.c.mean", 15, true},
		{"step.missed", 1, true},
		{"step.early", 0.5, true},
	} {
		m, err := parseMetric(c.name)
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		if got, ok := m.read(Setup{}, &run); ok != c.there || ok && got != c.want {
			t.Errorf("%s = %v, %v", c.name, got, ok)
		}
	}
	for _, name := range []string{"probe.L.max", "added.L.lost", "ratio.cubic", "probe.L"} {
		if _, err := parseMetric(name); err == nil {
			t.Errorf("%s is a metric", name)
		}
	}
}
