// SPDX-License-Identifier: Apache-2.0

package follow

import (
	"math"

	"weir/internal/stats"
)

// aside is how far values lie from their median: in the middle, or a third of how far the highest tenth does. Of values
// that cannot be below 0 the middle may say nothing.
func aside(x []float64) float64 {
	m := stats.QuantileAbove(x, 0.5)
	off := make([]float64, len(x))
	for i, v := range x {
		off[i] = math.Abs(v - m)
	}
	return max(stats.QuantileAbove(off, 0.5), (stats.QuantileAbove(x, 0.9)-m)/3)
}
