// SPDX-License-Identifier: Apache-2.0

// Package autorate is the rule that cake-autorate 3.3 publishes (github.com/lynxthecat/cake-autorate, the defaults in
// its defaults.sh), so that Weir can be compared with it. The program that servers run knows nothing of it.
//
// It is pure, and does not ask reflectors: who uses it says what an echo took.
package autorate

// Rule says a rate between two others, in bit/s. Times are in seconds.
type Rule struct {
	low, base, high float64
	rate            float64
	delays          []float64
	bloat, up, down float64 // when it last acted
}

const (
	threshold, maxUp, maxDown = 30e-3, 10e-3, 60e-3 // of the delay one way
	window, enough            = 6, 3
	refractory, rise, decay   = 0.3, 0.2, 1.
	loaded                    = 0.75
)

// New begins with the rate that it falls back to while little is sent.
func New(low, base, high float64) *Rule {
	return &Rule{low: low, base: base, high: high, rate: base, bloat: -refractory}
}

// Rate is what is to be set, in bit/s.
func (r *Rule) Rate() float64 { return r.rate }

// Echo takes what an echo waited one way, and how much was sent of late, in bit/s. It says what is to be set.
func (r *Rule) Echo(now, delay, sent float64) float64 {
	r.delays = append(r.delays, delay)
	r.delays = r.delays[max(0, len(r.delays)-window):]
	long, mean := 0, 0.
	for _, d := range r.delays {
		mean += d / float64(len(r.delays))
		if d > threshold {
			long++
		}
	}
	// between is from one factor at a delay to another at a longer one.
	between := func(short, at, other, until float64) float64 {
		return short + (other-short)*max(0, min(1, (mean-at)/(until-at)))
	}
	switch {
	case now < r.bloat+refractory:
	case long >= enough:
		r.rate, r.bloat = r.rate*between(0.99, threshold, 0.75, maxDown), now
	case sent > loaded*r.rate && now >= r.up+rise:
		r.rate, r.up = r.rate*between(1.04, maxUp, 1, threshold), now
	case sent <= loaded*r.rate && now >= r.down+decay:
		if r.down = now; r.rate > r.base {
			r.rate = max(r.base, r.rate*0.99)
		} else {
			r.rate = min(r.base, r.rate*1.01)
		}
	}
	r.rate = max(r.low, min(r.high, r.rate))
	return r.rate
}
