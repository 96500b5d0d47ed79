// SPDX-License-Identifier: Apache-2.0

package follow

import (
	"cmp"
	"slices"
	"time"
)

// Standing says how long to send less, after a host was shaped while its link was full. The queue that stood in front
// of the provider before would go by a quarter of a percent of the rate otherwise: a fifth of a second in more than a
// minute.
type Standing struct {
	Fell time.Duration // by so much RTTs have become shorter

	looks     []standingLook
	lowest    float64 // seconds, the RTT of who waits, without this host's own queue
	first     float64
	shorterAt float64 // when it was shorter than before
	known     bool
}

type standingLook struct {
	at   float64
	full bool
}

// Look takes what was seen since less is sent, and says whether to go on. It ends where the link is not full.
func (s *Standing) Look(l Look) (on bool) {
	p := standingLook{l.At.Seconds(), l.Backlog > 0}
	s.looks = append(s.looks, p)
	took := p.at - s.looks[0].at
	if took > 0.2 && !s.full() || took > maxStandingTime {
		return false
	}
	rtt, lag, known := waitingRTT(l)
	if !known {
		return took < 0.2 || s.known && p.at-s.shorterAt < 1+1.5*s.lowest || !s.known && took < blindDrainTime
	}
	if !s.known {
		s.known, s.first, s.lowest, s.shorterAt = true, rtt, rtt, p.at
	}
	if rtt < s.lowest-minRTTFall {
		s.lowest, s.shorterAt = rtt, p.at
		s.Fell = time.Duration((s.first - rtt) * float64(time.Second))
	}
	return p.at-s.shorterAt < 0.3+1.5*rtt+lag
}

// full reports whether packets waited at most looks.
func (s *Standing) full() bool {
	n := 0
	for _, p := range s.looks {
		if p.full {
			n++
		}
	}
	return 2*n > len(s.looks)
}

// waitingRTT is the median RTT of the connections that have more to send, without what packets wait in this host. It
// may be late by lag. Both are seconds.
func waitingRTT(l Look) (rtt, lag float64, known bool) {
	all := slices.DeleteFunc(slices.Clone(l.Connections), func(c Connection) bool { return !c.Waits })
	if len(all) == 0 {
		return 0, 0, false
	}
	slices.SortFunc(all, func(a, b Connection) int { return cmp.Compare(a.RTT, b.RTT) })
	c := all[len(all)/2]
	return max(0, (c.RTT - l.Own).Seconds()), c.lag(), true
}
