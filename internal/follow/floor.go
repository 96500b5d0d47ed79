// SPDX-License-Identifier: Apache-2.0

package follow

import (
	"math"
	"slices"

	"weir/internal/stats"
)

// floor is what is seen while no queue stands: jitter, what clients take to answer, and what this host's own queue
// holds more than it says. It may not follow a queue that grows slowly, so it is a calm second of the last minute: in a
// tenth of them packets wait less.
type floor struct {
	beganAt, secondFrom float64   // of all, and of the second that goes on
	ignoredUntil        float64   // nothing counts before
	current             []float64 // of the second that goes on
	medians             []float64 // of the last seconds
	spreads             []float64 // beside them
	freshSeconds        int       // of the last seconds, those at the rate of now
}

func (f *floor) add(at, q float64) {
	if f.beganAt == 0 {
		f.beganAt, f.secondFrom = at, at
	}
	if at < f.ignoredUntil {
		return
	}
	if at-f.secondFrom >= 1 && len(f.current) >= 5 {
		f.medians = append(f.medians, stats.QuantileAbove(f.current, 0.5))
		f.spreads = append(f.spreads, scatter(f.current))
		if len(f.medians) > floorSeconds {
			f.medians, f.spreads = slices.Delete(f.medians, 0, 1), slices.Delete(f.spreads, 0, 1)
		}
		f.current, f.secondFrom, f.freshSeconds = f.current[:0], at, min(f.freshSeconds+1, len(f.medians))
	}
	f.current = append(f.current, q)
}

// ready reports whether enough was seen to judge by.
func (f *floor) ready(at float64) bool {
	return f.beganAt > 0 && at-f.beganAt >= learnTime && len(f.medians) > 0
}

// skip leaves out what is seen before a time.
func (f *floor) skip(until float64) { f.ignoredUntil, f.current = until, f.current[:0] }

// raiseTo takes a level for the floor, and what is seen beside it for its spread.
func (f *floor) raiseTo(at, level, spread float64) {
	f.medians, f.spreads, f.freshSeconds = []float64{level}, []float64{spread}, 0
	f.current, f.secondFrom = f.current[:0], at
}

// noteNewRate reports another rate. What is seen at it counts alone, as soon as that is enough: what this host's own
// queue holds depends on it.
func (f *floor) noteNewRate() { f.freshSeconds = 0 }

// recentOnes are the values of the last seconds that count.
func (f *floor) recentOnes(x []float64) []float64 {
	const enough = 3 // seconds
	if f.freshSeconds < enough {
		return x
	}
	return x[len(x)-f.freshSeconds:]
}

// level is in seconds.
func (f *floor) level() float64 {
	switch {
	case len(f.medians) > 0:
		return stats.QuantileAbove(f.recentOnes(f.medians), 0.1)
	case len(f.current) > 0:
		return stats.QuantileAbove(f.current, 0.5)
	}
	return 0
}

// spread is the median deviation within a second, in seconds.
func (f *floor) spread() float64 {
	if len(f.spreads) == 0 {
		return 0
	}
	return stats.QuantileAbove(f.recentOnes(f.spreads), 0.5)
}

// scatter is how far values lie from their median: in the middle, or a third of how far the highest tenth does. Of
// values that cannot be below 0 the middle may say nothing.
func scatter(x []float64) float64 {
	m := stats.QuantileAbove(x, 0.5)
	off := make([]float64, len(x))
	for i, v := range x {
		off[i] = math.Abs(v - m)
	}
	return max(stats.QuantileAbove(off, 0.5), (stats.QuantileAbove(x, 0.9)-m)/3)
}
