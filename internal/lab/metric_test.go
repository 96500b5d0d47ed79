// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"testing"
	"time"

	"weir/internal/dualpi2"
	"weir/internal/measure"
	"weir/internal/qdisc"
	"weir/internal/units"
)

// What metrics by name read of a run.
func TestNamedMetrics(t *testing.T) {
	counted := qdisc.BPFDualPI2Stats{StepMissed: 2, StepEarly: 1}
	counted.SojournL.Packets = 200
	counted.SojournC.Mean = units.Duration(15 * time.Millisecond)
	run := Run{
		Flows: []FlowResult{{Flow: "cubic", Goodput: 10}, {Flow: "cubic", Goodput: 20}, {Flow: "dctcp", Goodput: 30}},
		Probes: []ProbeResult{
			{Probe: "L", Kind: "udp", Base: 10, Sent: 4, Delay: measure.Dist{N: 4, P50: 10.5, P99: 11, Max: 12, Mean: 10.25}},
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
		if got, ok := m.read(&PointResult{}, &run); ok != c.there || ok && got != c.want {
			t.Errorf("%s = %v, %v", c.name, got, ok)
		}
	}
	s := Scenario{Flow: []Flow{{Name: "cubic"}}, Probe: []Probe{{Name: "L", Kind: "udp"}}}
	for name, good := range map[string]bool{"ratio.cubic.cubic": true, "ratio.cubic.dctcp": false, "ratio.dctcp.cubic": false, "added.L.p99": true, "added.C.p99": false, "added.p99": true} {
		m, err := parseMetric(name)
		if err == nil {
			err = m.of(&s)
		}
		if good != (err == nil) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, name := range []string{"probe.L.max", "added.L.lost", "ratio.cubic", "probe.L"} {
		if _, err := parseMetric(name); err == nil {
			t.Errorf("%s is a metric", name)
		}
	}
}

// Since leaves what came after an earlier look.
func TestSince(t *testing.T) {
	stats := func(packets ...uint64) (s qdisc.BPFDualPI2Stats) {
		var h dualpi2.Histogram
		for i, n := range packets {
			h.Count[1+8*i] = n
			h.Packets += n
			h.Sum += time.Duration(n) * time.Duration(i+1) * time.Microsecond
			h.Max = time.Second
		}
		s.PacketsL, s.ECNMarks, s.SojournL.Histogram = h.Packets, h.Packets/2, h
		return s
	}
	got := stats(100, 4).Since(stats(100, 0))
	if got.PacketsL != 4 || got.ECNMarks != 2 || got.SojournL.Packets != 4 || got.SojournL.Mean != units.Duration(2*time.Microsecond) {
		t.Errorf("%+v", got)
	}
	if p := got.SojournL.P50; p < units.Duration(2*time.Microsecond) || p > units.Duration(3*time.Microsecond) {
		t.Errorf("median %v", p)
	}
}
