// SPDX-License-Identifier: Apache-2.0

package follow

import (
	"math"
	"slices"
)

// slope is that of the straight line through points, and how far from it they lie (root mean square).
func slope(x, y []float64) (rise, off float64) {
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
		return 0, 0
	}
	rise = xy / xx
	return rise, math.Sqrt(max(0, yy-rise*xy) / n)
}

func mean(x []float64) float64 {
	var sum float64
	for _, v := range x {
		sum += v
	}
	return sum / float64(len(x))
}

// deviation is how far values lie from their mean (root mean square).
func deviation(x []float64) float64 {
	var squares float64
	m := mean(x)
	for _, v := range x {
		squares += (v - m) * (v - m) / float64(len(x))
	}
	return math.Sqrt(squares)
}

// correlation is how much of two values' changes is common to both: from -1 to 1, and about 0 where one has nothing to
// do with the other.
func correlation(x, y []float64) float64 {
	mx, my, xy := mean(x), mean(y), 0.
	for i := range x {
		xy += (x[i] - mx) * (y[i] - my) / float64(len(x))
	}
	if both := deviation(x) * deviation(y); both > 0 {
		return xy / both
	}
	return 0
}

func quantile(x []float64, q float64) float64 {
	x = slices.Sorted(slices.Values(x))
	return x[min(len(x)-1, int(q*float64(len(x))))]
}

// aside is how far values lie from their median: in the middle, or a third of how far the highest tenth does. Of values
// that cannot be below 0 the middle may say nothing.
func aside(x []float64) float64 {
	m := quantile(x, 0.5)
	off := make([]float64, len(x))
	for i, v := range x {
		off[i] = math.Abs(v - m)
	}
	return max(quantile(off, 0.5), (quantile(x, 0.9)-m)/3)
}
