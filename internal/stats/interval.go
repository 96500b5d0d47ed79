// SPDX-License-Identifier: Apache-2.0

package stats

import (
	"math"
	"math/rand/v2"
	"slices"
)

// Estimate is a figure and an interval that is to hold the truth in 95 of 100 repeats. See Bootstrap for how near it
// comes to that.
type Estimate struct {
	Value float64 `json:"value"`
	Low   float64 `json:"low"`
	High  float64 `json:"high"`
}

// Bootstrap estimates figures of time series by a moving-block bootstrap (H. R. Künsch, Annals of Statistics 17,
// 1989). A resample puts together blocks of each series that begin anywhere, as long as one block is for how long
// neighbours resemble each other. The interval is what lies between the 2.5th and the 97.5th percentile of the
// resamples' figures. It is the same each time.
//
// Of few blocks it holds the truth less often than it is to, and of a rare quantile such as p99 clearly less: what was
// never seen cannot be drawn again.
//
// It gives an estimate for each figure of f; none, if a series holds fewer than two blocks.
func Bootstrap(series [][]float64, block int, f func([][]float64) []float64) []Estimate {
	const resamples = 200
	block = max(block, 1)
	for _, s := range series {
		if len(s) < 2*block {
			return nil
		}
	}
	// Few blocks vary less among themselves than the truth does: Student's factor over the normal one's, of so many.
	const z = 1.96
	free := float64(len(series[0])/block - 1)
	wider := math.Sqrt((free+1)/free) * (1 + (z*z+1)/(4*free))
	values := f(series)
	spread := make([][]float64, len(values))
	random := rand.New(rand.NewPCG(1, 2))
	again := make([][]float64, len(series))
	for range resamples {
		for i, s := range series {
			again[i] = again[i][:0]
			for len(again[i]) < len(s) {
				at := random.IntN(len(s) - block + 1)
				again[i] = append(again[i], s[at:at+min(block, len(s)-len(again[i]))]...)
			}
		}
		for i, v := range f(again) {
			spread[i] = append(spread[i], v)
		}
	}
	all := make([]Estimate, len(values))
	for i, s := range spread {
		slices.Sort(s)
		low, high := values[i]-Rank(s, 0.025), Rank(s, 0.975)-values[i]
		all[i] = Estimate{values[i], values[i] - wider*max(low, 0), values[i] + wider*max(high, 0)}
	}
	return all
}

// Ratio estimates the share of n trials that k of them were (E. B. Wilson, J. Am. Stat. Assoc. 22, 1927). It holds for
// trials that do not depend on each other; losses come in bursts, so the truth may lie further off.
func Ratio(k, n int) Estimate {
	if n <= 0 {
		return Estimate{0, 0, 1}
	}
	const z = 1.96
	p, m := float64(k)/float64(n), float64(n)
	middle := (p + z*z/(2*m)) / (1 + z*z/m)
	half := z / (1 + z*z/m) * math.Sqrt(p*(1-p)/m+z*z/(4*m*m))
	return Estimate{p, max(min(middle-half, p), 0), min(max(middle+half, p), 1)}
}

// Apart reports whether two estimates differ by more than what is not known of them.
func (e Estimate) Apart(other Estimate) bool { return e.High < other.Low || other.High < e.Low }
