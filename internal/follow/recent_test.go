// SPDX-License-Identifier: Apache-2.0

package follow

import (
	"math"
	"testing"
	"time"
)

// A connection had 50 ms for long, and has 150 since the look before. Its smoothed RTT is between these for many
// samples, and what it took of late is known at once.
func TestRecent(t *testing.T) {
	for _, c := range []struct {
		name string
		acks int           // that come, evenly
		gap  time.Duration // between looks
		from uint32        // of the counter
		data uint32        // packets that the client sends meanwhile, and that acknowledge nothing new
	}{
		{"one sample", 1, 100 * time.Millisecond, 7, 0},
		{"a few", 5, 100 * time.Millisecond, 7, 0},
		{"many", 100, 100 * time.Millisecond, 7, 0},
		{"the counter wraps", 20, 100 * time.Millisecond, math.MaxUint32 - 10, 0},
		{"looks far apart", 20, time.Second, 7, 0},
		{"a client that sends", 3, 100 * time.Millisecond, 7, 500},
	} {
		t.Run(c.name, func(t *testing.T) {
			const old, now = 50e-3, 150e-3
			r, at := recent{}, 10.
			look := func(srtt float64, acks uint32, delivered int) (rtt, lag float64) {
				micros := time.Duration(math.Round(srtt * 1e6))
				return r.rtt(at, 1e9, Connection{ID: 1, RTT: micros * time.Microsecond, Acks: acks,
					Delivered: float64(delivered)})
			}
			look(old, c.from, 1)
			// The age of each sample, weighted by what the smoothed RTT has of it.
			srtt, age, weights := old, 0., 0.
			for i := range c.acks {
				srtt += (now - srtt) / 8
				weight := math.Pow(7./8, float64(c.acks-1-i))
				age += weight * (float64(c.acks-1-i) + 0.5) * c.gap.Seconds() / float64(c.acks)
				weights += weight
			}
			at += c.gap.Seconds()
			rtt, lag := look(srtt, c.from+uint32(c.acks)+c.data, c.acks)
			if math.Abs(rtt-now) > 10e-6 { // the kernel tells whole microseconds, and one sample is an eighth
				t.Errorf("%.6f s, and every sample since was %.6f", rtt, now)
			}
			if math.Abs(lag-age/weights) > 1e-9 {
				t.Errorf("late by %.6f s, and the samples are %.6f s old on average", lag, age/weights)
			}
		})
	}
}

// Where nothing was seen before, or nothing since, the smoothed RTT is all that is known, and it is late.
func TestRecentUnknown(t *testing.T) {
	c := Connection{ID: 1, RTT: 80 * time.Millisecond, Acks: 100, Rate: 160}
	for name, looks := range map[string][]float64{
		"the first look":        {5},
		"no sample since":       {5, 5.1},
		"after a long silence":  {5, 5 + 2*stale},
		"the clock stands":      {5, 5},
		"the clock goes back":   {5, 4},
		"no sample, many looks": {5, 5.02, 5.04, 5.06, 5.3},
	} {
		t.Run(name, func(t *testing.T) {
			r := recent{}
			for _, at := range looks {
				if rtt, lag := r.rtt(at, 1e9, c); rtt != 0.08 || lag != 0.1 {
					t.Errorf("at %g s it took %g s, late by %g; want 0.08 and 0.1", at, rtt, lag)
				}
			}
		})
	}
	r := recent{}
	r.rtt(5, 1e9, c)
	r.forget(5 + 2*stale)
	if len(r) > 0 {
		t.Error("a connection of which nothing is heard is kept")
	}
	if r.rtt(5, 1e9, Connection{RTT: time.Second}); len(r) > 0 {
		t.Error("a connection that has no name is kept")
	}
}
