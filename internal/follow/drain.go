// SPDX-License-Identifier: Apache-2.0

package follow

import (
	"fmt"
	"slices"
	"weir/internal/stats"
)

// cut lowers the rate because a queue stands in front of the provider.
func (f *Follower) cut(p point, before float64) string {
	was := f.rate
	if f.phase == calm || p.q > f.threshold()+f.probeWait(p) {
		f.probeSteps, f.probeWaited = nil, 0 // more than a probe can have done
	}
	found, n := f.estimate(f.queueStart(p))
	if n < minEstimated || found <= 0 {
		found = f.sentRate(p.at-p.rtt-p.q, p.at) * 0.9
	}
	if found <= 0 || f.phase == calm && f.wasIdle(p) && !f.isPlausible(p, found) {
		return ""
	}
	if len(f.probeSteps) > 2 {
		found = max(found, f.provenRate()) // nothing waited while that was tried
	}
	f.rateBefore, f.rateAtQueue = before, was
	if f.foundNothing() {
		// The provider's rate is what it was, or between the last two that were tried.
		floorRate := before / rateMargin
		ceilingRate := max(floorRate, f.probeSteps[max(0, len(f.probeSteps)-2)])
		if len(f.probeSteps) == 1 {
			ceilingRate = floorRate
		}
		found = max(min(found, ceilingRate), floorRate)
	}
	f.foundRate = min(found, was)
	f.phase, f.queueLooks, f.wasCut, f.wasCutFar, f.queueSeenAt, f.maxWait = draining, 0, false, false, p.at, 0
	f.drainTo(p)
	return fmt.Sprintf("packets wait %.1f ms beyond this host", 1e3*p.q)
}

// isPlausible says of what waits, while nothing waits here, whether it may be because the link carries only what was
// found. Where little is sent it makes a queue only of some packets, and has more often waited on the way for a moment.
func (f *Follower) isPlausible(p point, found float64) bool {
	const little, handful, moment = 0.5, 4, 1 // of the rate; packets; seconds
	if f.sentRate(p.at-max(0.3, 2*p.rtt), p.at) > little*f.rate {
		return true
	}
	from := f.seen[0].at // since then it waits
	for _, o := range slices.Backward(f.seen) {
		if o.known && o.q <= f.threshold() {
			from = o.at
			break
		}
	}
	return p.at-from > moment && (p.q-f.floor.level())*found > handful*packetBits
}

// probeWait is the most that packets may wait because of a probe, in seconds: what is sent above the rate that was seen
// to be free, until that is seen.
func (f *Follower) probeWait(p point) float64 {
	above := 0.
	if n := len(f.probeSteps); n > 0 {
		above = f.probeSteps[n-1]/f.provenRate() - 1
	}
	return max(5*maxProbeDelay, above*(p.rtt+f.stepTime(p)+p.lag))
}

// queueStart is when the queue began to grow. Where the rate has just fallen far to drain another one, that is after it
// was set: until then less was sent than the link carries.
func (f *Follower) queueStart(p point) float64 {
	const just = 1 // second
	from, drained := p.at, f.phase == calm && (f.setAt-f.fellAt < just || f.wasCutFar && f.setAt-f.queueSeenAt < just)
	for i := len(f.seen) - 1; i >= 0 && f.seen[i].at > p.at-max(0.3, 2*p.rtt); i-- {
		o := f.seen[i]
		if drained && o.known && o.crossedAt-o.q-o.lag < f.setAt {
			break
		}
		if from = o.at; o.known && o.q <= f.floor.level()+minProbedDelay/2 {
			break
		}
	}
	return from
}

// lookDraining is a look while the queue drains.
func (f *Follower) lookDraining(p point) string {
	f.maxWait = max(f.maxWait, p.q)
	if p.q > f.threshold() {
		f.queueSeenAt = p.at
	}
	if p.q > f.threshold()+f.probeWait(p) || p.at-f.setAt > 0.3+2*p.rtt {
		f.probeSteps = nil // more than a probe can have done
	}
	since, idle := f.setAt+p.rtt, f.wasIdle(p) // what was sent since the cut is acknowledged from then on
	little := p.at-f.queueSeenAt > 0.3+2*p.rtt // has stood for long, and does not go
	switch {
	case idle && f.probeSteps == nil && f.drainedByItself(p):
		f.foundRate = 0
		f.setRate(f.rateBefore, p)
		f.endPhase(p, f.probePauseFor(p))
		return "that was elsewhere, and is gone by itself"
	case f.isGone(p), little && idle:
		foundNothing := f.foundNothing()
		f.setRate(rateMargin*f.foundRate, p)
		f.endPhase(p, 0)
		wait := f.probePauseFor(p)
		if foundNothing {
			wait = min(maxProbePause, max(wait, longProbeRest*f.probeWaited))
		}
		f.nextProbe = p.at + wait
		f.floor.skip(p.at + 2*p.rtt)
		return f.drainedText()
	case f.waitsElsewhere(p):
		f.floor.raiseTo(p.at, p.q, f.noise(p))
		f.foundRate = 0
		f.setRate(f.rateBefore, p)
		f.endPhase(p, probePause)
		return "sending less has not helped: it waits elsewhere"
	case little:
		f.probeSteps, f.queueSeenAt = nil, p.at
	case idle && p.q < f.maxWait/2, p.q <= f.threshold():
		// The link may be empty at times: what is delivered says nothing of it then. While the queue stands it is not.
		f.drainTo(p)
		return ""
	}
	if n := len(f.seen); n >= minEstimated { // a host whose looks are dear has few of them
		since = max(since, min(p.at-max(0.2, p.rtt, 3*p.lag), f.seen[n-minEstimated].at))
	}
	since = max(since, f.firstLookAfterFall())
	if r, n := f.estimate(since); n >= minEstimated && r > 0 && p.at-f.setAt-p.rtt > p.lag {
		f.foundRate = min(r, f.rateAtQueue)
		switch {
		case f.foundNothing():
			f.foundRate = max(f.foundRate, 0.98*f.rateBefore)
		case f.probeSteps != nil:
			f.foundRate = max(f.foundRate, f.provenRate())
		}
		f.drainTo(p)
	}
	return ""
}

// drainedText says what became of a queue that is gone.
func (f *Follower) drainedText() string {
	waited := fmt.Sprintf("packets waited %.3g ms", 1e3*f.maxWait)
	if f.rate > f.rateBefore {
		return "more was tried until " + waited
	}
	return waited + " beyond this host"
}

// drainTo sets what drains the queue within two round trips, of what was found.
func (f *Follower) drainTo(p point) {
	above := f.sentRate(p.at-p.rtt, p.at)/f.foundRate - 1
	waits := max(0, p.q-f.floor.level()+above*p.rtt)
	since := f.setAt
	f.setRate(f.foundRate*(0.99-min(maxDrainShare, waits/max(0.2, 2*p.rtt))), p)
	if f.wasCut {
		f.setAt = since // of the first cut
	}
	f.wasCut, f.wasCutFar = true, f.wasCutFar || f.rate < farFallShare*f.rateAtQueue
}

// estimate is what the link carries since a time, in bit/s, and from how many looks.
func (f *Follower) estimate(from float64) (rate float64, n int) {
	var all []crossing
	for i := len(f.seen) - 1; i >= 0 && f.seen[i].at >= from; i-- {
		if o := f.seen[i]; o.known {
			all = append(all, o.crossing)
		}
	}
	rate, _ = linkRate(all)
	return rate, len(all)
}

// firstLookAfterFall is when the first look was at packets that all were sent after the rate set fell far, if there
// were some such looks; else 0. What is known of each look is a mean, and that of packets from before and after is of
// neither.
func (f *Follower) firstLookAfterFall() (at float64) {
	const some = 5 // looks
	n := 0
	for _, o := range slices.Backward(f.seen) {
		if !o.known {
			continue
		}
		if o.crossedAt-o.q-o.lag < f.fellAt {
			break
		}
		at, n = o.at, n+1
	}
	if n < some {
		return 0
	}
	return at
}

// wasIdle reports whether mostly nothing has waited here when that left which an estimate would be from.
func (f *Follower) wasIdle(p point) bool {
	empty, all := 0, 0
	for i := len(f.seen) - 1; i >= 0 && f.seen[i].at > p.crossedAt-p.q-max(0.2, p.rtt); i-- {
		if all++; !f.seen[i].full {
			empty++
		}
	}
	return 2*empty > all
}

// waitsElsewhere reports whether what waits does so whatever is sent: then a queue that stands still explains more than
// a link that delivers at one rate does.
func (f *Follower) waitsElsewhere(p point) bool {
	var q []float64
	var all []crossing
	for i := len(f.seen) - 1; i >= 0 && f.seen[i].crossedAt-f.seen[i].q >= f.setAt; i-- { // what was sent since the cut
		if o := f.seen[i]; o.known {
			q, all = append(q, o.q), append(all, o.crossing)
		}
	}
	if len(all) < 8 || all[0].crossedAt-all[len(all)-1].crossedAt < max(0.3, 2*p.rtt) {
		return false
	}
	rate, off := linkRate(all)
	return rate > 0 && rate <= 0.97*f.rateBefore && stats.Deviation(q) < off/rate
}

// drainedByItself reports whether our own cut explains less than half of the drop of the queue. On a link of the rate
// that was found, a queue gets shorter by the share of that rate which is not sent.
func (f *Follower) drainedByItself(p point) bool {
	until := p.crossedAt - p.q // when that left here which is acknowledged now
	less := max(0, until-f.setAt) * (1 - f.sentRate(f.setAt, until)/f.foundRate)
	return f.isGone(p) && less < (f.maxWait-p.q)/2
}

// isGone reports whether no more waits than does in calm.
func (f *Follower) isGone(p point) bool {
	return p.q <= f.floor.level()+max(f.negligibleWait(), 3*f.floor.spread())
}

// noise is how far the queue of the last moments lies from its median, in the middle.
func (f *Follower) noise(p point) float64 {
	q := []float64{}
	for i := len(f.seen) - 1; i >= 0 && f.seen[i].at > p.at-0.3; i-- {
		if f.seen[i].known {
			q = append(q, f.seen[i].q)
		}
	}
	return scatter(q)
}
