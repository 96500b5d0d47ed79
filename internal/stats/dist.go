// SPDX-License-Identifier: Apache-2.0

package stats

import (
	"cmp"
	"math"
	"slices"
)

// Dist is a distribution in the unit of its samples. A Dist of no samples has N = 0 and zeros.
type Dist struct {
	N    int     `json:"n"`
	Min  float64 `json:"min"`
	P50  float64 `json:"p50"`
	P90  float64 `json:"p90"`
	P99  float64 `json:"p99"`
	Max  float64 `json:"max"`
	Mean float64 `json:"mean"`
	MAD  float64 `json:"mad"` // mean absolute deviation from the mean
}

// NewDist sorts a copy of samples. Percentiles are nearest-rank: each is a value that was measured.
func NewDist(samples []float64) Dist {
	n := len(samples)
	if n == 0 {
		return Dist{}
	}
	s := slices.Clone(samples)
	slices.Sort(s)
	var sum, dev float64
	for _, v := range s {
		sum += v
	}
	mean := sum / float64(n)
	for _, v := range s {
		dev += math.Abs(v - mean)
	}
	return Dist{N: n, Min: s[0], P50: Rank(s, 0.5), P90: Rank(s, 0.9), P99: Rank(s, 0.99), Max: s[n-1], Mean: mean,
		MAD: dev / float64(n)}
}

// Rank is the nearest-rank quantile of what is sorted and not empty.
func Rank(sorted []float64, p float64) float64 {
	i := int(math.Ceil(p*float64(len(sorted)))) - 1
	return sorted[max(0, i)]
}

// Jain is Jain's fairness index of shares: 1 when all are equal, 1/n when one has everything, 0 without any.
// R. Jain, D. Chiu, W. Hawe, DEC TR-301 (1984).
func Jain(shares []float64) float64 {
	var sum, squares float64
	for _, v := range shares {
		sum += v
		squares += v * v
	}
	if squares == 0 {
		return 0
	}
	return sum * sum / (float64(len(shares)) * squares)
}

// Spread is what repeats with different seeds gave.
type Spread struct {
	Median float64 `json:"median"`
	Min    float64 `json:"min"`
	Max    float64 `json:"max"` // of those that have a value
	// repeats without a value, because it never came: they count as above every other
	Missing int `json:"missing,omitempty"`
}

// NewSpread returns the median and range; the median of an even number of values is the mean of the middle two. It is
// false when there is no value, or so many are missing that the median would be one of those.
func NewSpread(values []float64, missing int) (Spread, bool) {
	all := len(values) + missing
	if len(values) <= all/2 {
		return Spread{Missing: missing}, false
	}
	s := slices.Clone(values)
	slices.SortFunc(s, cmp.Compare[float64])
	median := s[all/2]
	if all%2 == 0 {
		median = (s[all/2-1] + s[all/2]) / 2
	}
	return Spread{Median: median, Min: s[0], Max: s[len(s)-1], Missing: missing}, true
}

// Median of values; 0 without any.
func Median(values []float64) float64 {
	s, _ := NewSpread(values, 0)
	return s.Median
}
