// SPDX-License-Identifier: Apache-2.0

// Package stats is what samples become: means, quantiles, distributions, lines through points, and how far an estimate
// may be off. It is pure, and knows neither units nor what was measured.
package stats

import (
	"math"
	"slices"
	"sort"
)

// Mean of values; NaN of none.
func Mean(values []float64) float64 {
	var sum float64
	for _, v := range values {
		sum += v
	}
	return sum / float64(len(values))
}

// Deviation is the standard deviation of values, all of them being known (divided by n); 0 of none.
func Deviation(values []float64) float64 {
	var squares float64
	mean := Mean(values)
	for _, v := range values {
		squares += (v - mean) * (v - mean) / float64(len(values))
	}
	return math.Sqrt(squares)
}

// MeanDeviation is the mean absolute deviation from the mean; 0 of none.
func MeanDeviation(values []float64) float64 {
	var mean, deviation float64
	for _, v := range values {
		mean += v / float64(len(values))
	}
	for _, v := range values {
		deviation += math.Abs(v-mean) / float64(len(values))
	}
	return deviation
}

// Correlation of two series of equal length, from -1 to 1; 0 where one of them does not change.
func Correlation(x, y []float64) float64 {
	mx, my, xy := Mean(x), Mean(y), 0.
	for i := range x {
		xy += (x[i] - mx) * (y[i] - my) / float64(len(x))
	}
	if both := Deviation(x) * Deviation(y); both > 0 {
		return xy / both
	}
	return 0
}

// Line is the straight line through points by least squares.
type Line struct {
	Slope    float64
	Off      float64 // root mean square of the points' distances from it, along y
	SlopeErr float64 // standard error of the slope; 0 of fewer than three points
}

// Fit fits a line to points of equal number. Of points above each other, or none, it is the zero Line.
func Fit(x, y []float64) Line {
	n := float64(len(x))
	var mx, my, xx, xy, yy float64
	for i := range x {
		mx, my = mx+x[i]/n, my+y[i]/n
	}
	for i := range x {
		dx, dy := x[i]-mx, y[i]-my
		xx, xy, yy = xx+dx*dx, xy+dx*dy, yy+dy*dy
	}
	if xx == 0 {
		return Line{}
	}
	l := Line{Slope: xy / xx}
	squares := max(0, yy-l.Slope*xy)
	l.Off = math.Sqrt(squares / n)
	if n > 2 {
		l.SlopeErr = math.Sqrt(squares / (n - 2) / xx)
	}
	return l
}

// Between is what straight lines from point to point have at x. The points are in the order of their x, of which there
// are n. It is false outside of them: up to the first, and beyond the last.
func Between(n int, point func(i int) (x, y float64), x float64) (y float64, inside bool) {
	i := sort.Search(n, func(i int) bool { at, _ := point(i); return at >= x })
	if i == 0 || i == n {
		return 0, false
	}
	xa, ya := point(i - 1)
	xb, yb := point(i)
	return ya + (yb-ya)*(x-xa)/(xb-xa), true
}

// Quantile is the nearest-rank quantile: the least of the values that a share q of them does not exceed; 0 of none.
func Quantile(values []float64, q float64) float64 {
	if len(values) == 0 {
		return 0
	}
	return Rank(slices.Sorted(slices.Values(values)), q)
}

// QuantileAbove is the least of the values that a share q of them lies below, which of few values is one higher than
// Quantile; 0 of none.
func QuantileAbove(values []float64, q float64) float64 {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	return sorted[min(len(sorted)-1, int(q*float64(len(sorted))))]
}
