// SPDX-License-Identifier: Apache-2.0

package meter

import (
	"math"
	"testing"
)

// The numbers are worked out by hand from the draft's formula.
func TestRPM(t *testing.T) {
	var probes []RPMProbe
	for i := range 20 {
		foreign, self := RPMProbe{Foreign: true, TCP: 50, TLS: 60, HTTP: 70}, RPMProbe{HTTP: 200}
		if i == 7 { // one in twenty is the slowest 5 %
			foreign, self = RPMProbe{Foreign: true, TCP: 5000, TLS: 6000, HTTP: 7000}, RPMProbe{HTTP: 9000}
		}
		probes = append(probes, foreign, self)
	}
	r, ok := RPM(probes)
	if !ok || math.Abs(r.Foreign-1000) > 1e-6 || math.Abs(r.Loaded-300) > 1e-6 || math.Abs(r.RPM-650) > 1e-6 ||
		r.Probes != 40 {
		t.Errorf("%+v %v", r, ok)
	}
	for _, few := range [][]RPMProbe{nil, {{Foreign: true, TCP: 1, TLS: 1, HTTP: 1}}, {{HTTP: 1}},
		{{HTTP: 0}, {Foreign: true}}} {
		if r, ok := RPM(few); ok {
			t.Errorf("of %v: %+v", few, r)
		}
	}
}

func TestSteady(t *testing.T) {
	for _, c := range []struct {
		values []float64
		want   bool
	}{
		{[]float64{10, 10, 10, 10, 10, 10}, false}, // four averages take seven values
		{[]float64{10, 10, 10, 10, 10, 10, 10}, true},
		{[]float64{1, 2, 4, 8, 16, 32, 64}, false},
		{[]float64{1, 1, 1, 10, 10, 10, 10, 10, 10, 10}, true},
		{[]float64{10, 10.2, 9.9, 10.1, 10, 10.3, 9.8}, true},
		{[]float64{0, 0, 0, 0, 0, 0, 0}, false},
	} {
		if got := steady(c.values); got != c.want {
			t.Errorf("%v: %v", c.values, got)
		}
	}
	for rpm, want := range map[float64]string{299: "poor", 300: "fair", 1000: "good", 6000: "excellent"} {
		if got := class(rpm); got != want {
			t.Errorf("%v: %s", rpm, got)
		}
	}
}
