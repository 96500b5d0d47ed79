// SPDX-License-Identifier: Apache-2.0

package stats

import (
	"math"
	"testing"
)

func TestDist(t *testing.T) {
	var hundred []float64
	for i := 100; i >= 1; i-- {
		hundred = append(hundred, float64(i))
	}
	d := NewDist(hundred)
	want := Dist{N: 100, Min: 1, P50: 50, P90: 90, P99: 99, Max: 100, Mean: 50.5, MAD: 25}
	if d != want {
		t.Errorf("got %+v, want %+v", d, want)
	}
	if hundred[0] != 100 {
		t.Error("the caller's samples were reordered")
	}
	if d := NewDist([]float64{7}); d.P50 != 7 || d.P99 != 7 || d.MAD != 0 {
		t.Errorf("one sample: %+v", d)
	}
	if d := NewDist(nil); d != (Dist{}) {
		t.Errorf("no samples: %+v", d)
	}
}

func TestJain(t *testing.T) {
	for _, c := range []struct {
		shares []float64
		want   float64
	}{
		{[]float64{5, 5, 5, 5}, 1},
		{[]float64{1, 0, 0, 0}, 0.25},
		{[]float64{9, 1}, 100.0 / 164},
		{nil, 0},
		{[]float64{0, 0}, 0},
	} {
		if got := Jain(c.shares); math.Abs(got-c.want) > 1e-12 {
			t.Errorf("Jain(%v) = %v, want %v", c.shares, got, c.want)
		}
	}
}

func TestSpread(t *testing.T) {
	for _, c := range []struct {
		values  []float64
		missing int
		want    Spread
		ok      bool
	}{
		{[]float64{3, 1, 2}, 0, Spread{2, 1, 3, 0}, true},
		{[]float64{4, 1, 2, 3}, 0, Spread{2.5, 1, 4, 0}, true},
		{[]float64{3, 1, 2}, 2, Spread{3, 1, 3, 2}, true}, // 1 2 3 never never
		{[]float64{3, 1}, 2, Spread{Missing: 2}, false},   // between 3 and never
		{[]float64{1}, 2, Spread{Missing: 2}, false},
		{nil, 0, Spread{}, false},
	} {
		if s, ok := NewSpread(c.values, c.missing); s != c.want || ok != c.ok {
			t.Errorf("NewSpread(%v, %d) = %+v, %v; want %+v, %v", c.values, c.missing, s, ok, c.want, c.ok)
		}
	}
}
