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
	begin, from float64   // of all, and of the second that goes on
	until       float64   // nothing counts before
	now         []float64 // of the second that goes on
	medians     []float64 // of the last seconds
	spreads     []float64 // beside them
	fresh       int       // of the last seconds, those at the rate of now
}

func (f *floor) add(at, q float64) {
	if f.begin == 0 {
		f.begin, f.from = at, at
	}
	if at < f.until {
		return
	}
	if at-f.from >= 1 && len(f.now) >= 5 {
		f.medians, f.spreads = append(f.medians, stats.QuantileAbove(f.now, 0.5)), append(f.spreads, scatter(f.now))
		if len(f.medians) > floorSeconds {
			f.medians, f.spreads = slices.Delete(f.medians, 0, 1), slices.Delete(f.spreads, 0, 1)
		}
		f.now, f.from, f.fresh = f.now[:0], at, min(f.fresh+1, len(f.medians))
	}
	f.now = append(f.now, q)
}

// ready reports whether enough was seen to judge by.
func (f *floor) ready(at float64) bool {
	return f.begin > 0 && at-f.begin >= learnTime && len(f.medians) > 0
}

// skip leaves out what is seen before a time.
func (f *floor) skip(until float64) { f.until, f.now = until, f.now[:0] }

// raise takes a level for the floor, and what is seen beside it for its spread.
func (f *floor) raise(at, level, spread float64) {
	f.medians, f.spreads, f.now, f.from, f.fresh = []float64{level}, []float64{spread}, f.now[:0], at, 0
}

// moved reports another rate. What is seen at it counts alone, as soon as that is enough: what this host's own queue
// holds depends on it.
func (f *floor) moved() { f.fresh = 0 }

// counting are those of the last seconds that count.
func (f *floor) counting(x []float64) []float64 {
	const enough = 3 // seconds
	if f.fresh < enough {
		return x
	}
	return x[len(x)-f.fresh:]
}

// level is in seconds.
func (f *floor) level() float64 {
	switch {
	case len(f.medians) > 0:
		return stats.QuantileAbove(f.counting(f.medians), 0.1)
	case len(f.now) > 0:
		return stats.QuantileAbove(f.now, 0.5)
	}
	return 0
}

// spread is the median deviation within a second, in seconds.
func (f *floor) spread() float64 {
	if len(f.spreads) == 0 {
		return 0
	}
	return stats.QuantileAbove(f.counting(f.spreads), 0.5)
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
