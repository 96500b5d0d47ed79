// SPDX-License-Identifier: Apache-2.0

package measure

import "testing"

// A link is calm from the first whole second on in which nothing waits, and nothing is lost.
func TestCalmAfter(t *testing.T) {
	// Samples every 0.1 s from 0 to 5 s: 10 ms of base RTT, and what is added at some times.
	probe := func(added map[int]float64) Probe {
		p := Probe{Probe: "echo", Kind: "udp", Base: 10}
		for i := range 50 {
			p.At = append(p.At, float64(i)/10)
			delay := p.Base + added[i]
			if added[i] < 0 {
				delay = -1
			}
			p.Series = append(p.Series, delay)
		}
		return p
	}
	for name, c := range map[string]struct {
		added map[int]float64
		want  float64
		there bool
	}{
		"nothing waits":                    {nil, 0, true},
		"before the event":                 {map[int]float64{9: 50}, 0, true},
		"half a second":                    {map[int]float64{10: 50, 15: 50}, 0.6, true},
		"as much as the limit":             {map[int]float64{15: 5}, 0, true},
		"a loss":                           {map[int]float64{15: -1}, 0.6, true},
		"after a calm second":              {map[int]float64{12: 50, 23: 50}, 0.3, true},
		"again before a second is over":    {map[int]float64{12: 50, 22: 50}, 1.3, true},
		"less than a second at the end":    {map[int]float64{19: 50, 29: 50, 39: 50, 42: 50}, 0, false},
		"exactly a second at the end":      {map[int]float64{19: 50, 29: 50, 39: 50}, 3, true},
		"from the event on, until it ends": {map[int]float64{10: 9, 19: 9, 28: 9, 37: 9, 46: 9}, 0, false},
	} {
		r := Run{Seconds: 5, Probes: []Probe{probe(c.added)}}
		m, err := ParseMetric("calm.after.change.5ms")
		if err != nil {
			t.Fatal(err)
		}
		got, ok := m.read(Setup{Changes: []Change{{At: 0.5}, {At: 1}}}, &r)
		if ok != c.there || ok && (got < c.want-1e-9 || got > c.want+1e-9) {
			t.Errorf("%s: %v, %v", name, got, ok)
		}
	}
}

// A run that never became calm counts as later than every other.
func TestNeverCalm(t *testing.T) {
	calm := Run{Seconds: 2, Probes: []Probe{{Kind: "udp", At: []float64{0, 1}, Series: []float64{1, 1}}}}
	never := Run{Seconds: 2, Probes: []Probe{{Kind: "udp", At: []float64{0, 1}, Series: []float64{1, 99}}}}
	m, err := ParseMetric("calm.after.flow.late.5ms")
	if err != nil {
		t.Fatal(err)
	}
	s := Setup{Starts: map[string]float64{"late": 0.5}}
	if v, ok := m.Of(s, []Run{calm, calm, never}); !ok || v.Missing != 1 || v.Median != 0 {
		t.Errorf("%+v, %v", v, ok)
	}
	if v, ok := m.Of(s, []Run{calm, never, never}); ok {
		t.Errorf("%+v", v)
	}
}

// Utilisation in a window is of the rate that is enforced then.
func TestWindow(t *testing.T) {
	r := Run{Series: Series{Step: 0.5, Goodput: []FlowSeries{
		{Flow: "a", Values: []float64{4, 4, 8, 8}}, {Flow: "b", Values: []float64{1, 3, 2, 0}}}}}
	s := Setup{Capacity: 10, Warmup: 5, Changes: []Change{{At: 1, Capacity: 20}}}
	for name, want := range map[string]float64{
		"utilisation.5s-6s":     60,
		"utilisation.6s-7s":     45,
		"utilisation.5500ms-6s": 70,
		"utilisation.5s-7s":     50,
		"utilisation.5s-8s":     -1, // of which it has two seconds
	} {
		m, err := ParseMetric(name)
		if err != nil {
			t.Fatal(err)
		}
		if got, ok := m.read(s, &r); ok != (want >= 0) || ok && got != want {
			t.Errorf("%s = %v, %v", name, got, ok)
		}
	}
	for _, name := range []string{"utilisation.5s", "utilisation.7s-5s", "utilisation.5-7", "calm.after.change",
		"calm.after.5ms", "calm.after.flow.a", "calm.after.change.5"} {
		if _, err := ParseMetric(name); err == nil {
			t.Errorf("%s is a metric", name)
		}
	}
}
