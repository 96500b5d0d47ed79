// SPDX-License-Identifier: Apache-2.0

package measure

import (
	"slices"
	"testing"
	"time"

	"weir/internal/dualpi2"
	"weir/internal/stats"
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
			{Probe: "L", Kind: "udp", Base: 10, Sent: 4,
				Delay: stats.Dist{N: 4, P50: 10.5, P99: 11, Max: 12, Mean: 10.25}},
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
		m, err := ParseMetric(c.name)
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		if got, ok := m.read(Setup{}, &run); ok != c.there || ok && got != c.want {
			t.Errorf("%s = %v, %v", c.name, got, ok)
		}
	}
	for _, name := range []string{"probe.L.max", "added.L.lost", "ratio.cubic", "probe.L"} {
		if _, err := ParseMetric(name); err == nil {
			t.Errorf("%s is a metric", name)
		}
	}
}

// Of fetches, those that were not done took longer than every other.
func TestFetches(t *testing.T) {
	var run Run
	for i := range 100 {
		run.Flows = append(run.Flows, Flow{Flow: "pages", Fetch: float64(100 - i)}, Flow{Flow: "bulk"})
	}
	for _, c := range []struct {
		unfinished int
		p50, p99   float64 // 0: none
	}{{0, 50, 99}, {1, 51, 100}, {2, 51, 0}, {200, 0, 0}} {
		r := Run{Flows: append(slices.Clone(run.Flows), slices.Repeat([]Flow{{Flow: "pages"}}, c.unfinished)...)}
		for name, want := range map[string]float64{"fetch.pages.p50": c.p50, "fetch.pages.p99": c.p99} {
			m, err := ParseMetric(name)
			if err != nil {
				t.Fatal(err)
			}
			if got, ok := m.read(Setup{Fetching: []string{"pages"}}, &r); ok != (want > 0) || ok && got != want {
				t.Errorf("%d unfinished: %s = %v, %v", c.unfinished, name, got, ok)
			}
		}
	}
}
