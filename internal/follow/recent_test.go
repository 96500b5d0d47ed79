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
				took, _ := r.rtt(at, 1e9, Connection{ID: 1, RTT: micros * time.Microsecond, Acks: acks,
					Delivered: float64(delivered)})
				return took.rtt, took.lag
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

// Of a connection whose samples are counted the mean of the last ones is known, however many acknowledgements came.
func TestRecentCounted(test *testing.T) {
	r, c := recent{}, Connection{ID: 1, Past: true, Acks: 1000, RTT: time.Hour}
	look := func(at float64, samples uint32, each time.Duration) (recentRTT, bool) {
		c.Samples, c.Sum = c.Samples+samples, c.Sum+time.Duration(samples)*each
		return r.rtt(at, 1e9, c)
	}
	for i, step := range []struct {
		at      float64
		samples uint32
		each    time.Duration
		want    float64 // ms; 0: nothing is known
		firm    bool
	}{
		{5, 7, 50 * time.Millisecond, 0, false}, // of before
		{5.02, 0, 0, 0, false},
		{5.04, 1, 50 * time.Millisecond, 50, false},
		{5.06, 3, 90 * time.Millisecond, 80, true},
		{5.1, 4, 90 * time.Millisecond, 90, true},
		{5.12, 0, 0, 90, true},
		{9, 4, 90 * time.Millisecond, 0, false}, // after a long silence
	} {
		t, known := look(step.at, step.samples, step.each)
		if known != (step.want > 0) || math.Abs(ms(t.rtt)-step.want) > 1e-6 || t.enough != step.firm {
			test.Errorf("look %d: %+v, and %g ms is wanted", i, t, step.want)
		}
	}
	c.Samples, c.Sum = 3, 30*time.Millisecond // another connection with its name
	if took, known := r.rtt(9.1, 1e9, c); known {
		test.Errorf("of one that begins anew: %+v", took)
	}
}

// Where nothing was seen before, or nothing since, the smoothed RTT is all that is known, and it is late.
func TestRecentUnknown(t *testing.T) {
	c := Connection{ID: 1, RTT: 80 * time.Millisecond, Acks: 100, Rate: 160}
	for name, looks := range map[string][]float64{
		"the first look":        {5},
		"no sample since":       {5, 5.1},
		"after a long silence":  {5, 5 + 2*staleTime},
		"the clock stands":      {5, 5},
		"the clock goes back":   {5, 4},
		"no sample, many looks": {5, 5.02, 5.04, 5.06, 5.3},
	} {
		t.Run(name, func(t *testing.T) {
			r := recent{}
			for _, at := range looks {
				if took, _ := r.rtt(at, 1e9, c); took.rtt != 0.08 || took.lag != 0.1 || took.enough {
					t.Errorf("at %g s it took %g s, late by %g; want 0.08 and 0.1", at, took.rtt, took.lag)
				}
			}
		})
	}
	r := recent{}
	r.rtt(5, 1e9, c)
	r.forget(5 + 2*staleTime)
	if len(r) > 0 {
		t.Error("a connection of which nothing is heard is kept")
	}
	if r.rtt(5, 1e9, Connection{RTT: time.Second}); len(r) > 0 {
		t.Error("a connection that has no name is kept")
	}
}
