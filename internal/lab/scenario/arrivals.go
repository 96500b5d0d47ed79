// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"weir/internal/units"
)

// How the sizes of a Poisson source's connections are distributed around their mean.
const (
	fixedSizes       = "fixed"
	exponentialSizes = "exponential"
	paretoSizes      = "pareto" // bounded
)

func sizeNames() []string { return []string{fixedSizes, exponentialSizes, paretoSizes} }

// Web transfers are heavy-tailed: Crovella and Bestavros (IEEE/ACM Transactions on Networking 5(6), 1997) found shapes
// around 1.2. The largest is this many times the least, so that a run of a minute comes near the mean.
const (
	paretoShape = 1.2
	paretoRange = 1000
)

// minFetch is what a connection carries at least, in bytes.
const minFetch = 64

// Arrival is one connection of a Poisson source.
type Arrival struct {
	At    time.Duration // since the beginning of the run
	Bytes int64
}

// Arrivals are the connections of a Poisson source, in the order of their beginning: at random times between start and
// stop, or end where it has none, count of them at each. The same seed gives the same.
func (f *Flow) Arrivals(seed uint64, end time.Duration) []Arrival {
	random := rand.NewPCG(seed, 0)
	uniform := func() float64 { return float64(random.Uint64()>>11) / (1 << 53) } // from 0 to below 1
	exponential := func(mean float64) float64 { return -mean * math.Log1p(-uniform()) }
	if f.Stop != 0 {
		end = min(end, time.Duration(f.Stop))
	}
	var all []Arrival
	for at := float64(f.Start); ; {
		at += exponential(float64(f.Every))
		if at >= float64(end) {
			return all
		}
		for range f.Count {
			all = append(all, Arrival{time.Duration(at), f.size(uniform())})
		}
	}
}

// size is what a uniform number between 0 and 1 becomes in the distribution of a source's sizes.
func (f *Flow) size(u float64) int64 {
	mean := float64(f.Bytes)
	switch f.Sizes {
	case exponentialSizes:
		mean *= -math.Log1p(-u)
	case paretoSizes:
		// The inverse of the bounded Pareto's distribution function, with the least size that gives the mean.
		const a, r = paretoShape, paretoRange
		least := mean * (a - 1) / a * (1 - math.Pow(r, -a)) / (1 - math.Pow(r, 1-a))
		mean = least * math.Pow(1-u*(1-math.Pow(r, -a)), -1/a)
	}
	return max(minFetch, int64(mean))
}

// expected is how many connections a flow has at most, but for one run in many thousands: of a Poisson source the mean
// and five standard deviations.
func (f *Flow) expected(end units.Duration) int {
	if f.Every == 0 {
		return f.Count
	}
	if f.Stop != 0 {
		end = min(end, f.Stop)
	}
	mean := float64(end-f.Start) / float64(f.Every)
	return f.Count * int(math.Ceil(mean+5*math.Sqrt(mean)))
}

// checkSource finds what is wrong with how a flow comes: at random, or a piece at a time.
func (s *Scenario) checkSource(f Flow) *problem {
	at := func(k string) []string { return []string{"flow", f.Name, k} }
	switch {
	case f.Sizes != "" && f.Every == 0:
		return errAt(`every = "200ms"`, at("sizes"), "flow %q: sizes are of connections that come at random", f.Name)
	case f.Every != 0 && f.Bytes == 0:
		return errAt(`bytes = "30kb"`, at("every"), "flow %q: what comes at random needs bytes, the mean size", f.Name)
	case f.Sizes != "" && !slices.Contains(sizeNames(), f.Sizes):
		return errAt("one of "+strings.Join(sizeNames(), ", "), at("sizes"), "flow %q: sizes %q", f.Name, f.Sizes)
	case (f.Chunk == 0) != (f.Interval == 0):
		return errAt(`chunk = "500kb" and interval = "1s"`, at("chunk"),
			"flow %q: a chunk and its interval go together", f.Name)
	case f.Chunk != 0 && f.Every != 0:
		return errAt("", at("chunk"), "flow %q: either connections come at random, or one sends by and by", f.Name)
	case f.Interval != 0 && f.Interval < units.Duration(time.Millisecond):
		return errAt("", at("interval"), "flow %q: interval %v is too short (1ms at least)", f.Name, f.Interval)
	}
	return nil
}
