// SPDX-License-Identifier: Apache-2.0

package follow

import "math"

// recent says what connections' RTTs are of late. A smoothed RTT keeps seven eighths of what it was at each sample. So
// it is late where many connections share a link, and each has few samples. From two of them, and how many samples lie
// in between, follows the mean of these samples alone, in which the last ones weigh most.
type recent map[uint64][]smoothed

// smoothed is a connection's RTT at one time.
type smoothed struct {
	at, srtt  float64 // seconds
	acks      uint32
	delivered float64 // packets
}

const (
	// keeps is what a smoothed RTT keeps of itself at each sample (RFC 6298 §2; tcp_rtt_estimator() in
	// net/ipv4/tcp_input.c).
	keeps = 7. / 8
	// A mean of a few samples follows jitter, and on a slow link the turns of this host's queue. So it is of at least
	// span, in seconds, and of so many samples; but of no more than the time that so many packets of the link take,
	// nor of more than longestSpan, in seconds.
	span, samples, packets, longestSpan = 0.1, 8, 80, 1.
	// stale is after how long without a word a connection begins anew, in seconds.
	stale = 2
)

// rtt is what packets of a connection took of late, and by how much later than that this is known, in seconds. The link
// has a rate, in bit/s.
func (r recent) rtt(at, rate float64, c Connection) (rtt, lag float64) {
	now := smoothed{at, c.RTT.Seconds(), c.Acks, c.Delivered}
	seen := r[c.ID]
	if n := len(seen); n > 0 && (at <= seen[n-1].at || at-seen[n-1].at > stale) {
		seen = nil
	} else if n > 0 {
		now.delivered += seen[n-1].delivered
	}
	long := min(longestSpan, packets*packet/rate)
	for len(seen) > 1 && at-seen[1].at >= span && (now.since(seen[1]) >= samples || at-seen[1].at >= long) {
		seen = seen[1:]
	}
	if c.ID != 0 {
		r[c.ID] = append(seen, now)
	}
	lag = latest
	if c.Rate > 0 {
		lag = min(latest, memory/c.Rate)
	}
	if len(seen) == 0 {
		return now.srtt, lag
	}
	then := seen[0]
	n := now.since(then)
	if n == 0 {
		return now.srtt, lag
	}
	old := math.Pow(keeps, n)
	age := 0.5 + keeps/(1-keeps) - n*old/(1-old) // samples
	return max(0, (now.srtt-old*then.srtt)/(1-old)), min(latest, age*(at-then.at)/n)
}

// since is how many samples came in between: one with each packet that came, but none where nothing new was
// acknowledged. What the client sends is no sample.
func (s smoothed) since(then smoothed) float64 {
	acks := s.acks - then.acks // which may have wrapped
	return min(float64(acks), math.Ceil(s.delivered-then.delivered))
}

// forget leaves out connections of which nothing was heard for long.
func (r recent) forget(at float64) {
	for id, seen := range r {
		if at-seen[len(seen)-1].at > stale {
			delete(r, id)
		}
	}
}
