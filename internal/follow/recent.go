// SPDX-License-Identifier: Apache-2.0

package follow

import "math"

// recent says what connections' RTTs are of late. A smoothed RTT keeps seven eighths of what it was at each sample. So
// it is late where many connections share a link, and each has few samples. From two of them, and how many samples lie
// in between, the mean of these samples alone follows.
type recent map[uint64][]smoothed

// smoothed is a connection's RTT at one time.
type smoothed struct {
	at, srtt float64 // seconds
	acks     uint32
}

const (
	// keeps is what a smoothed RTT keeps of itself at each sample (RFC 6298 §2; tcp_rtt_estimator() in
	// net/ipv4/tcp_input.c). A sample comes with every acknowledgement.
	keeps = 7. / 8
	// span is the least time between the two, in seconds: a mean of a few samples follows jitter.
	span = 0.1
	// stale is after how long without a word a connection begins anew, in seconds.
	stale = 2
)

// rtt is what packets of a connection took of late, and by how much later than that this is known, in seconds.
func (r recent) rtt(at float64, c Connection) (rtt, lag float64) {
	now := smoothed{at, c.RTT.Seconds(), c.Acks}
	seen := r[c.ID]
	if n := len(seen); n > 0 && (at <= seen[n-1].at || at-seen[n-1].at > stale) {
		seen = nil
	}
	for len(seen) > 1 && seen[1].at <= at-span {
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
	n := float64(now.acks - then.acks) // which may have wrapped
	if n == 0 {
		return now.srtt, lag
	}
	old := math.Pow(keeps, n)
	age := 0.5 + keeps/(1-keeps) - n*old/(1-old) // samples
	return max(0, (now.srtt-old*then.srtt)/(1-old)), min(latest, age*(at-then.at)/n)
}

// forget leaves out connections of which nothing was heard for long.
func (r recent) forget(at float64) {
	for id, seen := range r {
		if at-seen[len(seen)-1].at > stale {
			delete(r, id)
		}
	}
}
