// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"testing"
	"time"

	"weir/internal/lab/measure"
	"weir/internal/units"
)

func TestExpectation(t *testing.T) {
	for _, c := range []struct {
		text, unit string
		yes, no    float64
	}{
		{"15..24", "", 20, 25},
		{"<= 0.25ms", "ms", 0.25, 0.26},
		{"-1ms..1ms", "ms", -0.5, -2},
		{">= 99%", "%", 99.5, 98},
		{"54.78ms ±10%", "ms", 50, 61},
		{"47.5mbit..48mbit", "mbit", 47.7, 48.1},
		{"<= 4s", "s", 3.9, 4.1},
		{"100kb ±50%", "kb", 140, 160},
	} {
		e, err := parseExpectation(c.text, c.unit)
		if err != nil {
			t.Errorf("%q: %v", c.text, err)
			continue
		}
		if !e.holds(c.yes) || e.holds(c.no) {
			t.Errorf("%q: holds(%v) = %v, holds(%v) = %v", c.text, c.yes, e.holds(c.yes), c.no, e.holds(c.no))
		}
	}
	for _, c := range [][2]string{{"15", ""}, {"5..4", ""}, {"<= 5", "ms"}, {"", ""}, {">= NaN", ""},
		{"1mbit..", "mbit"}, {"50%", "%"}} {
		if e, err := parseExpectation(c[0], c[1]); err == nil {
			t.Errorf("%q was accepted: %v", c[0], e)
		}
	}
}

// A metric is about something that the scenario has.
func TestMeasures(t *testing.T) {
	second := units.Duration(time.Second)
	s := Scenario{Flow: []Flow{{Name: "cubic"}, {Name: "pages", Bytes: 1}, {Name: "late", Start: 7 * second}},
		Probe:  []Probe{{Name: "L", Kind: "udp"}},
		Warmup: 5 * second, Duration: 10 * second,
		Provider: Provider{Change: []newRate{{At: 2 * second}, {At: 9 * second}}}}
	early := s
	early.Provider.Change = s.Provider.Change[:1]
	if m, err := measure.ParseMetric("calm.after.change.5ms"); err != nil || early.measures(m) == nil {
		t.Errorf("a change in the warm-up: %v", err)
	}
	for name, good := range map[string]bool{"calm.after.change.5ms": true, "calm.after.flow.late.5ms": true,
		"calm.after.flow.cubic.5ms": false, "calm.after.flow.none.5ms": false, "utilisation.5s-15s": true,
		"fetch.pages.p99": true, "fetch.cubic.p99": false, "fetch.none.p50": false,
		"utilisation.4s-10s": false, "utilisation.5s-16s": false, "ratio.cubic.cubic": true, "ratio.cubic.dctcp": false,
		"ratio.dctcp.cubic": false, "added.L.p99": true, "added.C.p99": false, "added.p99": true} {
		m, err := measure.ParseMetric(name)
		if err == nil {
			err = s.measures(m)
		}
		if good != (err == nil) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
