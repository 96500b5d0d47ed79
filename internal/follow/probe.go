// SPDX-License-Identifier: Apache-2.0

package follow

import "math"

// rise is a look in calm: is there a queue now, or room to try more?
func (f *Follower) rise(p point) string {
	if !f.learnt {
		f.floor.add(p.at, p.q)
		f.learnt = f.floor.ready(p.at)
		if f.learnt && !f.cleared && f.fullOfLate(p) {
			return f.dip(p)
		}
		if f.learnt && f.floor.level() > minQueueDelay {
			f.floor.raise(p.at, 0, 0) // a queue may have stood from the start: sending less will tell
		}
		return ""
	}
	if f.over < 2 {
		if f.over == 0 {
			f.floor.add(p.at, p.q)
			if rate, share, yes := f.drops(p); yes && share > heavyLossShare && !p.alone && f.still(p, f.loss.began) {
				return f.yield(p, rate, share)
			}
			f.usually(p)
			if why := f.trim(p); why != "" {
				return why
			}
		}
		if p.full && p.at >= f.next && !f.dearly(p) && f.rate < f.high && f.fullOfLate(p) {
			return f.step(p)
		}
		return ""
	}
	return f.cut(p, f.rate)
}

// dip sends less for a moment, once. Where the link was full from the start, a queue may stand that no connection has
// ever been without: their shortest RTTs have it, too.
func (f *Follower) dip(p point) string {
	const less = 0.85
	f.phase, f.cleared, f.before, f.found = clearing, true, f.rate, 0
	f.lowest, f.fell = p.shortest, p.at
	f.set(less*f.rate, p)
	return "is there a queue that was there before?"
}

// clear is a look after the dip. A queue that stood becomes shorter for as long as less is sent.
func (f *Follower) clear(p point) string {
	const surely, longest = 1e-3, 15 // seconds
	if p.shortest < f.lowest-surely {
		f.lowest, f.fell = p.shortest, p.at
	}
	if p.at-f.fell < 0.3+1.5*p.shortest+p.lag && p.at-f.since < longest {
		return ""
	}
	f.set(f.before, p)
	f.settle(p, probePause)
	f.floor, f.learnt = floor{}, false
	return "there is none now"
}

// fullOfLate reports whether packets have waited here throughout the last round trips.
func (f *Follower) fullOfLate(p point) bool {
	for i := len(f.seen) - 1; i >= 0 && f.seen[i].at > p.at-max(0.1, 2*p.rtt); i-- {
		if !f.seen[i].full {
			return false
		}
	}
	return true
}

// step raises the rate a little further.
func (f *Follower) step(p point) string {
	why := "nothing waits beyond this host yet: more is tried"
	var next float64
	if f.phase != probing {
		// So that one round trip later, when it is seen, packets wait a gentle millisecond if there is no more.
		next = f.rate * (1 + min(2*firstProbeStep, 1-rateMargin+maxProbeDelay/(p.rtt+0.1)))
		f.phase, f.before, f.steps, f.waited, f.empty = probing, f.rate, nil, 0, 0
		why = "more is tried"
	} else {
		growth, most := 2., maxProbeStep
		if f.fellOfLate(p) {
			growth, most = 4, farFallGrowth // of somebody else's burst, all of it is free again
		}
		// A long way tells late, and packets wait meanwhile. Up to 50 ms this makes no difference.
		little := min(firstProbeStep, 1.7*maxProbeDelay/(p.rtt+0.1))
		next = f.rate * (1 + min(most, little*math.Pow(growth, float64(len(f.steps)-1))))
	}
	f.steps = append(f.steps, next)
	f.over = 0
	f.set(next, p)
	return why
}

// fellOfLate reports whether the rate is far below what it was some seconds ago.
func (f *Follower) fellOfLate(p point) bool {
	return p.at-f.fall < recentFallTime && f.rate < farFallShare*f.from
}

// probe is a look while more is tried.
func (f *Follower) probe(p point) string {
	if !p.full {
		f.empty++
	}
	rate, _, drops := f.drops(p)
	switch {
	case f.over >= 2 && (f.loss.began == 0 || p.q > minQueueDelay): // else a policer that holds a packet or two
		return f.cut(p, f.before)
	case drops || f.loss.began > 0 && f.small() || f.empty > 2 && f.dried(p):
		return f.hit(p, rate)
	case f.empty > 2:
		// Nobody asks for more, so that more cannot be tried. What was found free stays so. Where that is much, TCP
		// grows into it, and more is tried soon.
		f.set(f.free(), p)
		f.settle(p, 0)
		f.next += f.pauseFor(p)
		return "there is not enough to send to try more"
	case p.at-f.since < f.hold(p)+p.lag || f.over > 0 || f.loss.began > 0:
		return ""
	case f.yieldedRecently(p) && f.beyond() && f.rate < f.loss.top:
		return f.back(p, f.loss.top)
	case f.rate >= f.high:
		f.found = 0
		f.settle(p, probePause)
		return "the most that may be set"
	}
	return f.step(p)
}

// hold is for how long a step of a probe is looked at, in seconds. A policer's credit hides a small one.
func (f *Follower) hold(p point) float64 {
	if f.loss.policed {
		return max(2*p.rtt, 0.4)
	}
	if len(f.steps) == 1 {
		return 2*p.rtt + 0.1 // until the gentle wait that it makes is seen
	}
	return max(2*p.rtt, 0.1)
}

// free is the rate that the probe had tried for long enough to see that nothing waits.
func (f *Follower) free() float64 {
	if n := len(f.steps); n > 2 {
		return f.steps[n-3]
	}
	return f.before
}

// small says of a probe whether it found nothing: the link carries what it did, or a little more.
func (f *Follower) small() bool { return len(f.steps) == 1 || len(f.steps) == 2 }
