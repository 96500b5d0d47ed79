// SPDX-License-Identifier: Apache-2.0

package follow

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"weir/internal/stats"
)

// move is what is known of a link that moves.
type move struct {
	fullAt     float64 // seconds, when the shaper was last full
	maxArrived float64 // bit/s, the most that has come meanwhile
	movedAt    float64 // seconds, when the link was last found to have moved

	linkRateBeforeFall float64 // bit/s, what it was thought to deliver before, while a fall is tested or cannot be
	testTime           float64 // seconds, how long that may take
	flatRate           float64 // bit/s, of the last fall, until more was let go and did not come
	swing              float64 // by which share of that it was higher and lower, where the link is uneven
	appRate            float64 // bit/s, a flat line that was an application's own
	appRateUntil       float64 // seconds, until when that is remembered
	appRateTime        float64 // seconds, how long it is next time

	probing      bool
	hasRisen     bool    // more has come
	sizeWhenFull float64 // size, when the link was last seen to be full
	rateRatio    float64 // the rate before, of what the link was thought to deliver
	probeStep    float64 // by how much more is let go
	probeArrived float64 // bit/s, what has come since
	nextProbe    float64 // seconds, when that is due
}

// newMove is what is known at first. A link of which more was told than the first guess may move soon.
func newMove(more bool) move {
	m := move{fullAt: -maxRisePause, movedAt: -maxRisePause * risePauseDivisor, testTime: firstTestTime,
		appRateTime: retryPause}
	if more {
		m.movedAt = 0
	}
	return m
}

// responseTime is how long senders have to follow another rate, in seconds.
func (f *Inward) responseTime() float64 {
	if f.probing || f.draining {
		return riseFollowTime
	}
	return followTime
}

// noteFull records when the shaper was last full.
func (f *Inward) noteFull(at float64) {
	if s := f.current; s.full() && s.shaperBits/s.seconds > aboutShare*f.rate {
		f.fullAt, f.maxArrived = at, max(f.maxArrived, s.rate())
	}
}

// flatLevel reports whether the last n stretches are the same, their mean in bit/s, and whether nothing waits in the
// shaper. Each may be higher or lower than the mean by a share.
func (f *Inward) flatLevel(n int, swing float64) (line float64, is, empty bool) {
	if len(f.seen) < n {
		return 0, false, false
	}
	last := f.seen[len(f.seen)-n:]
	var all []float64
	packet := 0.
	for _, s := range last {
		all, packet = append(all, s.rate()), max(packet, s.packets())
	}
	m, s := stats.Mean(all), mergeStretches(last...)
	is = slices.Max(all)-slices.Min(all) <= (fullTolerance+2*swing)*m+packet
	return m, is && !slices.ContainsFunc(last, f.exceedsProvider), 2*s.waiting < s.looks
}

// unevenLevel is the same of a link whose rate is uneven, and by which share it is.
func (f *Inward) unevenLevel(n int) (line, swing float64, is bool) {
	line, is, _ = f.flatLevel(n, maxSwing)
	if !is {
		return 0, 0, false
	}
	last := f.seen[len(f.seen)-n:]
	for _, s := range last {
		swing = max(swing, math.Abs(s.rate()/line-1))
	}
	all, a, b := mergeStretches(last...), mergeStretches(last[:n/2]...), mergeStretches(last[n/2:]...)
	return line, swing, all.waiting*rareWaitLooks <= all.looks && math.Abs(a.rate()-b.rate()) < line*swing/2
}

// slowerText says what a fall is.
func slowerText(line float64) string {
	return fmt.Sprintf("the link has become slower: %.4g Mbit/s come all the time", line/1e6)
}

// recentlyFull reports whether the shaper was full just before the last n stretches.
func (f *Inward) recentlyFull(n int, at float64) bool {
	return at-f.fullAt < recentlyFullTime+float64(n)*minStretchTime
}

// detectFall reports whether the link looks slower than it was thought to be. It delivers a line then, in bit/s, which
// is uneven by a share.
func (f *Inward) detectFall(at float64) (line, swing float64, is bool) {
	n := slowFallStretches
	if f.recentlyFull(fallStretches, at) {
		n = fallStretches
	}
	line, same, empty := f.flatLevel(n, 0)
	is = same && empty
	if !is && f.recentlyFull(unevenStretches, at) {
		n = unevenStretches
		line, swing, is = f.unevenLevel(unevenStretches)
	}
	if !is || f.draining || at < f.appRateUntil && math.Abs(line-f.appRate) < (minMoveShare+swing)*f.appRate {
		return line, swing, false
	}
	if f.isBelowLowest(line) && (n == slowFallStretches || f.current.packets() > (1-aboutShare)*line) {
		return line, swing, false // a pause, or packets now and then, tell nothing
	}
	below := f.linkRate
	if f.probing { // who has been slower than that all the time is no faster at once
		below = min(below, f.rateRatio*f.linkRate*f.size)
	}
	return line, swing, line < fallShare*below
}

// isBelowLowest reports whether the queue of a link that delivers so much, in bit/s, does not drain with what may be
// set.
func (f *Inward) isBelowLowest(line float64) bool { return testDrainShare*line/f.size < f.low }

// setLowest sets the lowest rate, as the link seems to deliver hardly more or less, in bit/s. No lower rate can test
// that.
func (f *Inward) setLowest(line, swing, at float64) string {
	f.rateAfter = f.settled()
	f.probing = false
	f.linkRateBeforeFall, f.linkRate = f.linkRate, line
	f.flatRate, f.swing, f.sizeWhenFull, f.movedAt = line, swing, f.size, at
	f.apply(f.low, at)
	if line > f.low {
		return slowerText(line)
	}
	return fmt.Sprintf("the link seems to deliver less than the lowest rate that may be set: "+
		"%.4g Mbit/s come all the time", line/1e6)
}

// resolveDoubt returns what becomes of that. More that comes shows that it was an application, or that the link has
// moved again. Less that comes all the time is then a fall, as if the shaper was full now.
func (f *Inward) resolveDoubt(at float64) string {
	s := f.seen[len(f.seen)-1]
	switch {
	case aboutShare*s.shaperBits/s.seconds > (1+f.swing)*f.linkRate/f.size:
		f.rejectLine(at)
		f.linkRate, f.linkRateBeforeFall, f.fullAt = f.linkRateBeforeFall, 0, at
		f.setRate(f.rateAfter, at)
		return "more comes than the link seemed to deliver"
	case f.fullAt == at:
		f.linkRateBeforeFall = 0 // the lowest rate is one that it can have
	}
	return ""
}

// testFall tests whether the link has become slower: to a rate in bit/s.
func (f *Inward) testFall(line, swing, at float64) {
	to := testDrainShare
	if f.recentlyFull(fallStretches, at) || swing > 0 {
		to = fallDrainShare
	}
	ratio := f.rate / f.linkRate
	if f.probing {
		ratio = f.rateRatio
	}
	f.linkRateBeforeFall, f.linkRate, f.flatRate, f.swing, f.sizeWhenFull = f.linkRate, line, line, swing, f.size
	if line < fallShare*f.maxArrived { // else it may never have been faster
		f.movedAt = at
	}
	f.maxArrived, f.tooHighUntil, f.stepsDown = line, 0, 0
	f.pauseProbes(at)
	f.drain(min(ratio, (1-stepDown)/f.size)*line, to*line/f.size, at)
}

// undoFall takes a fall back where less has not helped: it was an application.
func (f *Inward) undoFall(at float64) {
	f.rejectLine(at)
	f.rateAfter *= f.linkRateBeforeFall / f.linkRate
	f.linkRate, f.swing, f.testTime = f.linkRateBeforeFall, 0, min(maxDrainTime, 2*f.testTime)
}

// rejectLine records that a flat rate was an application's and not the link's.
func (f *Inward) rejectLine(at float64) {
	f.appRate, f.appRateUntil, f.flatRate = f.flatRate, at+f.appRateTime, 0
	f.appRateTime = min(maxRetryPause, 2*f.appRateTime)
}

// maxDrainDuration is how long a queue may drain, in seconds.
func (f *Inward) maxDrainDuration() float64 {
	if f.linkRateBeforeFall > 0 {
		return f.testTime
	}
	return maxDrainTime
}

// noteRise notes that more comes than the link was thought to deliver, in bit/s.
func (f *Inward) noteRise(to, at float64) {
	if to > (1+minMoveShare)*f.linkRate {
		f.movedAt = at
	}
	f.linkRate, f.nextProbe = to, at
	f.draining, f.linkRateBeforeFall = false, 0 // what stands in front would let no more come
	if f.rate < f.minRate() {
		f.setRate(f.minRate(), at)
	}
}

// isProbeDue reports whether it is time to let go more.
func (f *Inward) isProbeDue(at float64) bool {
	n := len(f.seen)
	if n < fullWindow || at < f.nextProbe || f.linkRate >= f.maxLinkRate*(1-fullTolerance) ||
		f.rate >= f.high*(1-fullTolerance) {
		return false
	}
	bound := 0
	for _, s := range f.seen[n-fullWindow:] {
		if s.full() {
			bound++
		}
	}
	return bound > fullWindow*2/3
}

// startProbe lets go more than the link is thought to deliver, in steps: senders have to follow.
func (f *Inward) startProbe(at float64) {
	if !f.probing {
		f.probing, f.hasRisen, f.rateRatio, f.probeStep = true, false, f.rate/f.linkRate, firstRise
	}
	f.probeArrived = 0
	to, link := (1+f.probeStep)*f.rate, f.linkRate/cmp.Or(f.sizeWhenFull, f.size)
	if f.rate < link && to > link { // that much above it tells, and a little would look as if it had come
		to = (1 + firstRise) * link
	}
	f.apply(to, at)
}

// lookProbing looks what has come of it.
func (f *Inward) lookProbing(at float64) string {
	n := len(f.seen)
	some, soon := 2, riseFlatStretches
	if f.swing > 0 {
		some, soon = testStretches, testStretches
	}
	if n >= some {
		s := mergeStretches(f.seen[n-some:]...)
		if here := s.shaperBits / s.seconds; here >= f.rate*(1-fullTolerance)-s.packets() {
			return f.noteArrived(min(here, f.rate)*cmp.Or(f.sizeWhenFull, f.size), s.packets(), at)
		}
	}
	if f.hasRisen { // as much as that came before, too: it may be all that senders have yet
		soon = flatStretches
	}
	line, is, empty := f.flatLevel(soon, f.swing)
	if l, swing, all := f.unevenLevel(flatStretches); !is && all {
		line, f.swing, is, empty = l, swing, true, true
	}
	higher := line > f.linkRate*(1+fullTolerance+f.swing)+f.current.packets()
	_, stays, _ := f.flatLevel(flatStretches, f.swing)
	above := !f.hasRisen && !higher && f.rate*cmp.Or(f.sizeWhenFull, f.size) > f.linkRate*(1+firstRise/2)
	switch {
	case is && empty && !f.tunnels && higher && !stays:
		f.probeArrived = max(f.probeArrived, line) // it comes at any rate, and senders may have more later
	case is && (empty || above) && line > f.linkRate*(1-fullTolerance-f.swing)-f.current.packets():
		if higher && !f.tunnels {
			f.linkRate, f.movedAt = line, at
		}
		f.flatRate, f.appRateTime, f.testTime = 0, retryPause, firstTestTime
		f.pauseProbes(at)
		f.drain(f.rateRatio*f.linkRate, testDrainShare*f.linkRate/f.size, at)
		return "more was let go, and did not come"
	case at-f.setAt > maxRiseTime:
		f.nextProbe = at + minRisePause
		f.linkRate = max(f.linkRate, f.probeArrived)
		f.endPhase(at)
		return "more was let go, and nobody wanted it"
	}
	return ""
}

// noteArrived notes that as much came as was let go, in bit/s, and tries still more unless that is all.
func (f *Inward) noteArrived(came, packets, at float64) string {
	if came > f.linkRate*(1+fullTolerance+f.swing)+packets {
		if f.flatRate > 0 {
			f.rejectLine(at)
		}
		f.linkRate, f.movedAt, f.tooHighUntil, f.stepsDown, f.hasRisen = came, at, 0, 0, true
	}
	f.probeStep = min(maxRise, 2*f.probeStep)
	if f.linkRate >= f.maxLinkRate*(1-fullTolerance) || f.rate >= f.high*(1-fullTolerance) {
		f.linkRate = min(f.linkRate, f.maxLinkRate)
		f.pauseProbes(at)
		f.endPhase(at)
		return "the link has become faster"
	}
	f.startProbe(at)
	return "as much comes as is let go: still more is tried"
}

// pauseProbes sets when the next probe is due.
func (f *Inward) pauseProbes(at float64) {
	f.nextProbe = at + max(minRisePause, min(maxRisePause, (at-f.movedAt)/risePauseDivisor))
}
