// SPDX-License-Identifier: Apache-2.0

package stats

import (
	"math"
	"math/rand/v2"
	"testing"
)

// correlated is a series of normal deviates, each of which resembles the one before.
func correlated(random *rand.Rand, n int) []float64 {
	const like = 0.9
	s := make([]float64, n)
	v := random.NormFloat64()
	for i := range s {
		s[i] = v
		v = like*v + math.Sqrt(1-like*like)*random.NormFloat64()
	}
	return s
}

// The interval holds the truth about as often as it says, though neighbours are alike. As if they were not, it would
// hold it in fewer than half of the trials.
func TestBootstrapHoldsTheTruth(t *testing.T) {
	figures := func(s [][]float64) []float64 { return []float64{Quantile(s[0], 0.5), Quantile(s[0], 0.9)} }
	truth := []float64{0, 1.2816}
	const trials = 40
	hits := map[int][]int{}
	for _, block := range []int{1, 60} {
		random := rand.New(rand.NewPCG(3, 4))
		hits[block] = make([]int, len(truth))
		for range trials {
			for i, e := range Bootstrap([][]float64{correlated(random, 900)}, block, figures) {
				if e.Low <= truth[i] && truth[i] <= e.High {
					hits[block][i]++
				}
			}
		}
	}
	for i := range truth {
		if hits[60][i] < trials*80/100 || hits[1][i] > trials*60/100 {
			t.Errorf("figure %d: the truth is held in %d of %d trials, with single samples in %d", i, hits[60][i],
				trials,
				hits[1][i])
		}
	}
}

func TestBootstrap(t *testing.T) {
	mean := func(s [][]float64) []float64 { return []float64{NewDist(s[0]).Mean - NewDist(s[1]).Mean} }
	flat, zero := make([]float64, 100), make([]float64, 100)
	for i := range flat {
		flat[i] = 7
	}
	if got := Bootstrap([][]float64{flat, zero}, 10, mean); len(got) != 1 || got[0] != (Estimate{7, 7, 7}) {
		t.Errorf("%v", got)
	}
	if got := Bootstrap([][]float64{flat, zero[:19]}, 10, mean); got != nil {
		t.Errorf("of too little: %v", got)
	}
}

func TestRatio(t *testing.T) {
	for _, c := range []struct {
		k, n      int
		low, high float64
	}{{0, 100, 0, 0.037}, {1, 100, 0.0018, 0.0545}, {50, 100, 0.404, 0.596}, {100, 100, 0.963, 1}, {0, 0, 0, 1}} {
		got := Ratio(c.k, c.n)
		if math.Abs(got.Low-c.low) > 0.001 || math.Abs(got.High-c.high) > 0.001 || got.Value < got.Low ||
			got.Value > got.High {
			t.Errorf("%d of %d: %v", c.k, c.n, got)
		}
	}
}
