// SPDX-License-Identifier: Apache-2.0

package follow

import (
	"math"
	"time"
)

// recent says what connections' RTTs are of late. A smoothed RTT keeps seven eighths of what it was at each sample. So
// it is late where many connections share a link, and each has few samples. From two of them, and how many samples lie
// in between, follows the mean of these samples alone, in which the last ones weigh most.
type recent map[uint64][]smoothedRTT

// smoothedRTT is a connection's RTT at one time.
type smoothedRTT struct {
	at, srtt  float64 // seconds
	acks      uint32
	delivered float64       // packets
	sum       time.Duration // of samples, and how many: of connections that are Past
	samples   uint32
}

// recentRTT is what packets of a connection took of late, and by how much later than that this is known, in seconds.
type recentRTT struct {
	rtt, lag float64
	enough   bool // there were enough of them
}

// rtt is what packets of a connection took of late, if that is known. The link has a rate, in bit/s.
func (r recent) rtt(at, rate float64, c Connection) (t recentRTT, known bool) {
	now := smoothedRTT{at, c.RTT.Seconds(), c.Acks, c.Delivered, c.Sum, c.Samples}
	seen, enough := r[c.ID], float64(minSamples)
	if c.Past {
		enough = minExactSamples
	}
	if n := len(seen); n > 0 && (at <= seen[n-1].at || at-seen[n-1].at > staleTime || c.Sum < seen[n-1].sum ||
		c.Samples < seen[n-1].samples) {
		seen = nil // nothing was heard for long, or it is another connection
	} else if n > 0 {
		now.delivered += seen[n-1].delivered
	}
	long := min(maxSpan, maxSpanPackets*packetBits/rate)
	least := minSpan
	if c.Past {
		least = minExactSpan
	}
	for len(seen) > 1 && at-seen[1].at >= least &&
		(now.samplesSince(seen[1], c.Past) >= enough || at-seen[1].at >= long) {
		seen = seen[1:]
	}
	if c.ID != 0 {
		r[c.ID] = append(seen, now)
	}
	then, n := now, 0.
	if len(seen) > 0 {
		then = seen[0]
		n = now.samplesSince(then, c.Past)
	}
	switch {
	case n == 0 && c.Past:
		return recentRTT{}, false
	case n == 0:
		return recentRTT{now.srtt, c.lag(), false}, true
	case c.Past:
		return recentRTT{max(0, (now.sum-then.sum).Seconds()/n), min(maxSRTTLag, (at-then.at)/2), n >= enough}, true
	}
	old := math.Pow(srttKeeps, n)
	age := 0.5 + srttKeeps/(1-srttKeeps) - n*old/(1-old) // samples
	return recentRTT{max(0, (now.srtt-old*then.srtt)/(1-old)), min(maxSRTTLag, age*(at-then.at)/n), n >= enough}, true
}

// samplesSince is how many samples came in between: one with each packet that came, but none where nothing new was
// acknowledged. What the client sends is no sample.
func (s smoothedRTT) samplesSince(then smoothedRTT, counted bool) float64 {
	if counted {
		return float64(s.samples - then.samples)
	}
	acks := s.acks - then.acks // which may have wrapped
	return min(float64(acks), math.Ceil(s.delivered-then.delivered))
}

// forget leaves out connections of which nothing was heard for long.
func (r recent) forget(at float64) {
	for id, seen := range r {
		if at-seen[len(seen)-1].at > staleTime {
			delete(r, id)
		}
	}
}
