// SPDX-License-Identifier: Apache-2.0

package follow

import "math"

// lookCalm is a look in calm: is there a queue now, or room to try more?
func (f *Follower) lookCalm(p point) string {
	if !f.floorKnown {
		f.floor.add(p.at, p.q)
		f.floorKnown = f.floor.ready(p.at)
		if f.floorKnown && !f.hasDipped && f.queuedThroughout(p) {
			return f.sendLess(p)
		}
		if f.floorKnown && f.floor.level() > minQueueDelay {
			f.floor.raiseTo(p.at, 0, 0) // a queue may have stood from the start: sending less will tell
		}
		return ""
	}
	if f.queueLooks < 2 {
		if f.queueLooks == 0 {
			f.floor.add(p.at, p.q)
			rate, share, yes := f.detectPolicer(p)
			if yes && share > heavyLossShare && !p.isSingle && f.sentAsBefore(p, f.loss.beganAt) {
				return f.startYielding(p, rate, share)
			}
			f.learnUsualLoss(p)
			if why := f.trimRate(p); why != "" {
				return why
			}
		}
		if p.full && p.at >= f.nextProbe && !f.probeWasCostly(p) && f.rate < f.high && f.queuedThroughout(p) {
			return f.raiseStep(p)
		}
		return ""
	}
	return f.cut(p, f.rate)
}

// sendLess sends less for a moment, once. Where the link was full from the start, a queue may stand that no connection
// has ever been without: their shortest RTTs have it, too.
func (f *Follower) sendLess(p point) string {
	const less = 0.85
	f.phase, f.hasDipped, f.rateBefore, f.foundRate = clearing, true, f.rate, 0
	f.dipMinRTT, f.dipMinRTTAt = p.minRTT, p.at
	f.setRate(less*f.rate, p)
	return "is there a queue that was there before?"
}

// lookClearing is a look after the dip. A queue that stood becomes shorter for as long as less is sent.
func (f *Follower) lookClearing(p point) string {
	const surely, longest = 1e-3, 15 // seconds
	if p.minRTT < f.dipMinRTT-surely {
		f.dipMinRTT, f.dipMinRTTAt = p.minRTT, p.at
	}
	if p.at-f.dipMinRTTAt < 0.3+1.5*p.minRTT+p.lag && p.at-f.setAt < longest {
		return ""
	}
	f.setRate(f.rateBefore, p)
	f.endPhase(p, probePause)
	f.floor, f.floorKnown = floor{}, false
	return "there is none now"
}

// queuedThroughout reports whether packets have waited here throughout the last round trips.
func (f *Follower) queuedThroughout(p point) bool {
	for i := len(f.seen) - 1; i >= 0 && f.seen[i].at > p.at-max(0.1, 2*p.rtt); i-- {
		if !f.seen[i].full {
			return false
		}
	}
	return true
}

// raiseStep raises the rate a little further.
func (f *Follower) raiseStep(p point) string {
	why := "nothing waits beyond this host yet: more is tried"
	var next float64
	if f.phase != probing {
		// So that one round trip later, when it is seen, packets wait a gentle millisecond if there is no more.
		next = f.rate * (1 + min(2*firstProbeStep, 1-rateMargin+maxProbeDelay/(p.rtt+0.1)))
		f.phase, f.rateBefore, f.probeSteps, f.probeWaited, f.emptyLooks = probing, f.rate, nil, 0, 0
		why = "more is tried"
	} else {
		growth, most := 2., maxProbeStep
		if f.fellRecently(p) {
			growth, most = 4, farFallGrowth // of somebody else's burst, all of it is free again
		}
		// A long way tells late, and packets wait meanwhile. Up to 50 ms this makes no difference.
		little := min(firstProbeStep, 1.7*maxProbeDelay/(p.rtt+0.1))
		next = f.rate * (1 + min(most, little*math.Pow(growth, float64(len(f.probeSteps)-1))))
	}
	f.probeSteps = append(f.probeSteps, next)
	f.queueLooks = 0
	f.setRate(next, p)
	return why
}

// fellRecently reports whether the rate is far below what it was some seconds ago.
func (f *Follower) fellRecently(p point) bool {
	return p.at-f.fellAt < recentFallTime && f.rate < farFallShare*f.fellFrom
}

// lookProbing is a look while more is tried.
func (f *Follower) lookProbing(p point) string {
	if !p.full {
		f.emptyLooks++
	}
	rate, _, drops := f.detectPolicer(p)
	switch {
	case f.queueLooks >= 2 && (f.loss.beganAt == 0 || p.q > minQueueDelay): // else a policer that holds a packet or two
		return f.cut(p, f.rateBefore)
	case drops || f.loss.beganAt > 0 && f.foundNothing() || f.emptyLooks > 2 && f.lossExplainsDryShaper(p):
		return f.endProbeAtPolicer(p, rate)
	case f.emptyLooks > 2:
		// Nobody asks for more, so that more cannot be tried. What was found free stays so. Where that is much, TCP
		// grows into it, and more is tried soon.
		f.setRate(f.provenRate(), p)
		f.endPhase(p, 0)
		f.nextProbe += f.probePauseFor(p)
		return "there is not enough to send to try more"
	case p.at-f.setAt < f.stepTime(p)+p.lag || f.queueLooks > 0 || f.loss.beganAt > 0:
		return ""
	case f.yieldedRecently(p) && f.exceedsPolicer() && f.rate < f.loss.rateBeforeYield:
		return f.restoreRate(p, f.loss.rateBeforeYield)
	case f.rate >= f.high:
		f.foundRate = 0
		f.endPhase(p, probePause)
		return "the most that may be set"
	}
	return f.raiseStep(p)
}

// stepTime is for how long a step of a probe is looked at, in seconds. A policer's credit hides a small one.
func (f *Follower) stepTime(p point) float64 {
	if f.loss.policed {
		return max(2*p.rtt, 0.4)
	}
	if len(f.probeSteps) == 1 {
		return 2*p.rtt + 0.1 // until the gentle wait that it makes is seen
	}
	return max(2*p.rtt, 0.1)
}

// provenRate is the rate that the probe had tried for long enough to see that nothing waits.
func (f *Follower) provenRate() float64 {
	if n := len(f.probeSteps); n > 2 {
		return f.probeSteps[n-3]
	}
	return f.rateBefore
}

// foundNothing says of a probe whether it found nothing: the link carries what it did, or a little more.
func (f *Follower) foundNothing() bool { return len(f.probeSteps) == 1 || len(f.probeSteps) == 2 }
