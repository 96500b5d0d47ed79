// SPDX-License-Identifier: Apache-2.0

package follow

import (
	"math"
)

// A policer drops what exceeds its rate, and nothing waits. What it tells is loss that comes without delay, that this
// host's own queue has not made, and that goes when less is sent. While it drops, it lets through its own rate.

// losses is what was learnt of packets that are lost.
type losses struct {
	usualLost, usualAll float64 // packets lost in calm, beyond this host's drops, and all
	bitsPerPacket       float64 // that leave this host for each packet that the connections deliver
	firstShare          float64 // that was lost when less was sent because of it first
	rateBefore          float64 // bit/s, the rate then
	cuts                int     // since then
	policed             bool    // the link is a policer's, as far as is known
	probeHitAt          float64 // when a probe lost packets last
	unusedTime          float64 // seconds of the rate that were not used since
	retryAt             float64 // when loss is looked into again
	beganAt             float64 // when loss was seen first, of one that goes on; 0: none does
	yieldedAt           float64 // when a policer's rate was taken for found in calm; 0: not, or that was mistaken
	rateBeforeYield     float64 // bit/s, the rate before that
	yieldedRate         float64 // bit/s, and after it
}

// lostShare is the share of the connections' packets that was lost beyond this host from one time to another, and more
// reports whether the path loses less anyway.
func (f *Follower) lostShare(from, to float64) (share float64, more bool) {
	beyond, usual, all := f.countMissing(from, to)
	return beyond / max(1, all), beyond-usual > minExtraLosses+minLossDeviations*math.Sqrt(usual)
}

// countMissing counts the connections' packets from one time to another: those lost beyond this host, those that the
// path loses anyway, and all.
func (f *Follower) countMissing(from, to float64) (beyond, usual, all float64) {
	a, b := f.pointBefore(from), f.pointBefore(to)
	beyond = b.lost - a.lost
	all = beyond + b.delivered - a.delivered
	// What this host dropped is sent again a round trip later or more.
	own := f.pointBefore(from - 2*b.rtt - b.lag - b.own)
	beyond -= all * min(1, max(0, b.dropped-own.dropped)*packetBits/max(packetBits, b.sent-a.sent))
	return beyond, all * (f.loss.usualLost + 1) / (f.loss.usualAll + 1000), all
}

// lossExplainsDryShaper reports whether the shaper is empty since connections have lost packets, not for lack of
// something to send.
func (f *Follower) lossExplainsDryShaper(p point) bool {
	beyond, usual, _ := f.countMissing(p.at-max(0.3, 3*p.rtt), p.at)
	return beyond >= 1 && beyond-usual > 3*math.Sqrt(usual)
}

// pointBefore is the last look before a time, or the first that is remembered.
func (f *Follower) pointBefore(t float64) point {
	for i := len(f.seen) - 1; i >= 0; i-- {
		if f.seen[i].at <= t {
			return f.seen[i]
		}
	}
	return f.seen[0]
}

// learnUsualLoss learns in calm what is lost anyway, and how many bits a delivered packet stands for.
func (f *Follower) learnUsualLoss(p point) {
	before := f.pointBefore(p.at - 1e-9)
	all := p.delivered - before.delivered + p.lost - before.lost
	if !f.loss.policed {
		keep := math.Exp(-(p.at - before.at) / usualLossTime)
		share, _ := f.lostShare(before.at, p.at)
		f.loss.usualLost = max(0, keep*f.loss.usualLost+share*all)
		f.loss.usualAll = keep*f.loss.usualAll + all
	}
	if !p.full {
		f.loss.unusedTime += max(0, p.at-before.at-(p.sent-before.sent)/f.rate)
	}
	if a := f.pointBefore(p.at - 1); p.full && p.delivered > a.delivered && p.lost == a.lost {
		f.loss.bitsPerPacket = (p.sent - a.sent) / (p.delivered - a.delivered)
	}
}

// deliveredRate is what was delivered from one time to another, in bit/s.
func (f *Follower) deliveredRate(from, to float64) float64 {
	a, b := f.pointBefore(from), f.pointBefore(to)
	if b.at <= a.at {
		return 0
	}
	return (b.delivered - a.delivered) * f.loss.bitsPerPacket / (b.at - a.at)
}

// detectPolicer reports whether something beyond this host drops more than usual, for long enough to know what it lets
// through. It says how much that is, and the share that is lost.
func (f *Follower) detectPolicer(p point) (rate, share float64, yes bool) {
	window := max(0.04, 1.5*p.rtt)
	share, more := f.lostShare(p.at-window, p.at)
	if !more || p.at < f.loss.retryAt && f.phase != probing || f.loss.bitsPerPacket == 0 {
		f.loss.beganAt = 0
		return 0, share, false
	}
	if f.loss.beganAt == 0 {
		f.loss.beganAt = p.at
	}
	lasted, said := p.at-f.loss.beganAt, f.agreement(p, f.loss.beganAt-window)
	believed := said == agreedLoss || said == untoldLoss && lasted >= maxUntoldTime
	return f.deliveredRate(f.loss.beganAt, p.at), share, lasted >= window && believed
}

// lowerForLoss lowers the rate because packets are lost, without delay. Loss that does not become less by that is no
// policer's.
func (f *Follower) lowerForLoss(p point, rate, share float64, why string) string {
	switch {
	case f.loss.cuts == 0:
		f.loss.rateBefore, f.loss.firstShare = f.rate, share
	case f.loss.cuts >= maxPolicerTests || f.phase == yielding && share > f.loss.firstShare/2:
		return f.restoreRate(p, f.loss.rateBefore)
	}
	f.loss.cuts++
	f.setRate(rate, p)
	return why
}

// restoreRate sets a rate again that was lowered for loss which was no policer's.
func (f *Follower) restoreRate(p point, rate float64) string {
	f.loss.policed, f.loss.retryAt, f.loss.yieldedAt = false, p.at+lossIgnoredTime, 0
	f.loss.cuts, f.loss.beganAt = 0, 0
	f.setRate(rate, p)
	f.endPhase(p, probePause)
	return "sending less has not helped: packets are lost elsewhere"
}

// yieldedRecently reports whether a policer's rate was taken for found in calm a moment ago. Bursts of loss look like
// a policer. But they come again whatever is sent, or let through more than what was found.
func (f *Follower) yieldedRecently(p point) bool {
	const moment = 15 // seconds
	return f.loss.yieldedAt > 0 && p.at < f.loss.yieldedAt+moment
}

// exceedsPolicer reports whether more is sent than a policer that was found would let through for long.
func (f *Follower) exceedsPolicer() bool { return f.rate > 1.05*f.loss.yieldedRate }

// sentAsBefore reports whether about as much was sent as before when what was acknowledged since a time left. If not,
// what is delivered is what TCP sends after a loss, and not what a policer lets through.
func (f *Follower) sentAsBefore(p point, since float64) bool {
	const much = 0.7
	return f.sentRate(since-p.rtt, p.at-p.rtt) > much*f.rate
}

// startYielding begins to look for a policer's rate, because many packets are lost in calm.
func (f *Follower) startYielding(p point, found, share float64) string {
	if f.yieldedRecently(p) && !f.exceedsPolicer() {
		return f.restoreRate(p, f.loss.rateBeforeYield)
	}
	const most = 0.1 // that TCP loses for a moment, and sends much less then: what it delivers says little
	if sent := f.sentRate(f.loss.beganAt-p.rtt, p.at-p.rtt); sent > 0 && found > (1-most)*sent {
		found *= f.rate / sent
	}
	f.phase, f.queueLooks, f.rateBefore, f.loss.beganAt, f.loss.cuts = yielding, 0, f.rate, 0, 0
	return f.lowerForLoss(p, min(f.rate, rateMargin*found), share, "packets are lost beyond this host, and none waits")
}

// lookYielding is a look after that. A policer loses nothing of what stays below its rate.
func (f *Follower) lookYielding(p point) string {
	from := f.setAt + 2*p.rtt + 0.1 // what was lost before has been sent again
	if p.at < from+max(0.5, 4*p.rtt) {
		return ""
	}
	share, more := f.lostShare(from, p.at)
	if more && share >= f.loss.firstShare/8 {
		less := f.rate
		if f.sentAsBefore(p, from) {
			less = f.deliveredRate(from, p.at)
		}
		return f.lowerForLoss(p, min(0.97*f.rate, rateMargin*less), share, "packets are still lost")
	}
	f.loss.policed, f.loss.cuts = true, 0
	f.loss.yieldedAt, f.loss.rateBeforeYield, f.loss.yieldedRate = p.at, f.rateBefore, f.rate
	f.endPhase(p, probePause) // it may have been a moment's loss: look soon
	return ""
}

// trimRate lowers the rate a little where a policer still drops, a while after the rate was set.
func (f *Follower) trimRate(p point) string {
	from := max(p.at-2, f.setAt+2*p.rtt+0.1)
	if !f.loss.policed || p.at < from+1 || p.at < f.loss.retryAt {
		return ""
	}
	share, more := f.lostShare(from, p.at)
	if !more {
		f.loss.cuts = 0
	}
	if !more || share > heavyLossShare || f.agreement(p, from) == disputedLoss {
		return ""
	}
	return f.lowerForLoss(p, 0.99*f.rate, share, "packets are still lost")
}

// endProbeAtPolicer ends a probe that a policer has stopped.
func (f *Follower) endProbeAtPolicer(p point, found float64) string {
	f.loss.policed, f.loss.beganAt, f.loss.probeHitAt, f.loss.unusedTime = true, 0, p.at, 0
	rate := rateMargin * min(found, f.rate)
	if rate < 1.03*f.rateBefore {
		rate = f.rateBefore
	} else {
		f.loss.cuts = 0
	}
	f.setRate(rate, p)
	f.endPhase(p, policerPause)
	return "more is lost, and none waits: no more is carried"
}

// probeWasCostly reports whether the last probe cost so much that the next has to wait.
func (f *Follower) probeWasCostly(p point) bool {
	return f.loss.policed && p.at < f.loss.probeHitAt+min(maxPolicerPause, policerPauseRatio*f.loss.unusedTime)
}
