// SPDX-License-Identifier: Apache-2.0

package stats

import (
	"math"
	"testing"
)

func TestSums(t *testing.T) {
	values := []float64{4, 1, 3, 2}
	line := Fit([]float64{0, 1, 2, 3}, []float64{1, 3, 5, 8})
	for name, c := range map[string]struct{ got, want float64 }{
		"mean":                     {Mean(values), 2.5},
		"deviation":                {Deviation(values), math.Sqrt(1.25)},
		"mean deviation":           {MeanDeviation(values), 1},
		"deviation of none":        {Deviation(nil), 0},
		"correlation":              {Correlation(values, []float64{8, 2, 6, 4}), 1},
		"against each other":       {Correlation(values, []float64{1, 4, 2, 3}), -1},
		"with what stands still":   {Correlation(values, []float64{7, 7, 7, 7}), 0},
		"slope":                    {line.Slope, 2.3},
		"off the line":             {line.Off, math.Sqrt(0.3 / 4)},
		"slope's error":            {line.SlopeErr, math.Sqrt(0.3 / 2 / 5)},
		"points above each other":  {Fit([]float64{1, 1}, []float64{1, 2}).Slope, 0},
		"two points have no error": {Fit([]float64{0, 1}, []float64{0, 2}).SlopeErr, 0},
		"median":                   {Quantile(values, 0.5), 2},
		"median, the one above":    {QuantileAbove(values, 0.5), 3},
		"highest":                  {Quantile(values, 1), 4},
		"highest, above":           {QuantileAbove(values, 1), 4},
		"lowest":                   {Quantile(values, 0), 1},
		"of none":                  {Quantile(nil, 0.5) + QuantileAbove(nil, 0.5), 0},
	} {
		if math.Abs(c.got-c.want) > 1e-12 {
			t.Errorf("%s: %v, want %v", name, c.got, c.want)
		}
	}
	if values[0] != 4 {
		t.Error("what was given is sorted")
	}
}

func TestBetween(t *testing.T) {
	x, y := []float64{1, 2, 4}, []float64{10, 20, 0}
	for at, want := range map[float64]float64{0: 0, 1: 0, 1.5: 15, 2: 20, 3: 10, 4: 0, 5: 0} {
		got, inside := Between(len(x), func(i int) (float64, float64) { return x[i], y[i] }, at)
		if math.Abs(got-want) > 1e-12 || inside != (at > 1 && at <= 4) {
			t.Errorf("at %g: %g, %t, want %g", at, got, inside, want)
		}
	}
}
