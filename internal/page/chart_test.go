// SPDX-License-Identifier: Apache-2.0

package page

import (
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// Ticks are at round values, the first and the last hold all between them, and no two have the same label.
func TestScale(t *testing.T) {
	for _, c := range []struct {
		low, high float64
		most      int
		whole     bool
		want      string
	}{
		{0.1, 20, 10, false, "0 2 4 6 8 10 12 14 16 18 20"},
		{0, 247.5, 6, false, "0 50 100 150 200 250"},
		{0, 0.24, 6, false, "0.00 0.05 0.10 0.15 0.20 0.25"},
		{1, 4, 10, true, "1 2 3 4"},
		{1, 16, 10, true, "0 2 4 6 8 10 12 14 16"},
		{0, 0, 6, false, "0.0 0.2 0.4 0.6 0.8 1.0"},
		{48.42, 48.54, 10, false, "48.42 48.44 48.46 48.48 48.50 48.52 48.54"},
		{9.9, 10.1, 10, false, "9.90 9.92 9.94 9.96 9.98 10.00 10.02 10.04 10.06 10.08 10.10"},
	} {
		_, labels := newScale(c.low, c.high, c.most, c.whole).ticks()
		if got := strings.Join(labels, " "); got != c.want {
			t.Errorf("%v to %v: %s, want %s", c.low, c.high, got, c.want)
		}
	}
	random := rand.New(rand.NewPCG(1, 2))
	for range 10_000 {
		low := math.Floor(1000*random.Float64()) * math.Pow(10, float64(random.IntN(9)-4))
		high := low + random.Float64()*math.Pow(10, float64(random.IntN(9)-4))
		if high-low < low*1e-9 {
			continue
		}
		s := newScale(low, high, 10, false)
		values, labels := s.ticks()
		slack := s.step * 1e-6
		if len(values) > 11 || len(values) < 2 || values[0] > low+slack || values[len(values)-1] < high-slack {
			t.Fatalf("%v to %v: %v", low, high, labels)
		}
		if slices.Sort(labels); len(slices.Compact(labels)) != len(values) {
			t.Fatalf("%v to %v: one label twice: %v", low, high, labels)
		}
	}
}
