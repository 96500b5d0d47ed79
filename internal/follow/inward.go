// SPDX-License-Identifier: Apache-2.0

package follow

import (
	"fmt"
	"math"

	"weir/internal/units"
)

// Inward finds out how near a shaper's rate may come to what a provider delivers, where the provider's queue is in
// front of the shaper: of incoming traffic, and of what a relay sends that has just come in by the same card.
//
// It follows what the link delivers. While a queue stands in front of it, that is the link's rate to a packet, and
// else it is less. Senders slow down for the shaper a round trip late, so at times more comes than it lets go. The rate
// is as high as it can be without that filling the link for more than moments.
//
// The link may move. Where it has become slower, what comes is flat, and nothing waits in the shaper that was full
// before. That may also be an application's own rate, so it is tested: less is let go until the queue in front is gone.
// Where it has become faster, nothing tells. So more is let go for a moment now and then.
//
// A tunnel makes packets larger or smaller between the link and the shaper. So rate is the shaper's, linkRate is the
// link's, and size is what lies between the two.
type Inward struct {
	low, high   float64 // bit/s, bounds of what it may say
	rate        float64 // bit/s, that is set
	toldRate    float64 // bit/s, what the link is said to deliver
	maxLinkRate float64 // bit/s, what it may deliver at most
	share       float64 // of what it delivers that is planned for
	linkRate    float64 // bit/s, what it does
	tunnels     bool
	size        float64 // what the link delivers for each bit that comes to the shaper

	last             *Look     // the last one
	current          stretch   // that goes on
	seen             []stretch // the last ones, since the rate was set
	setAt            float64   // seconds, when that was
	draining         bool
	rateAfter        float64 // bit/s, the rate for afterwards
	flatIgnoredUntil float64 // seconds, until when a flat line tells nothing

	tooHighRate  float64 // bit/s, a rate that was too high
	stepsDown    int     // steps since then
	tooHighUntil float64 // seconds, until when it is not tried again
	tooHighPause float64 // seconds, how long that was

	move
}

// stretch is what the link delivered in a tenth of a second or some more, and what came to the shaper.
type stretch struct {
	seconds, bits, shaperBits float64 // seconds and bits
	looks, waiting            int     // and those that found something in the shaper
}

func (s stretch) rate() float64 { return s.bits / s.seconds }

// full reports whether something waited in the shaper most of the time.
func (s stretch) full() bool { return 2*s.waiting > s.looks }

// packets is what a packet or two more or less make of its rate, in bit/s.
func (s stretch) packets() float64 { return fullTolerancePackets * packetBits / s.seconds }

// mergeStretches is several in a row as one.
func mergeStretches(all ...stretch) (s stretch) {
	for _, a := range all {
		s.seconds, s.bits, s.shaperBits = s.seconds+a.seconds, s.bits+a.bits, s.shaperBits+a.shaperBits
		s.looks, s.waiting = s.looks+a.looks, s.waiting+a.waiting
	}
	return s
}

// Told is what a person says of a link behind whose queue a shaper is. All are in bit/s.
type Told struct {
	Link      units.Rate // what it delivers: the first guess
	Usual     units.Rate // what is planned for that
	Low, High units.Rate // bounds of what may be set
}

// NewInward begins with a rate, in bit/s.
func NewInward(rate units.Rate, t Told) *Inward {
	told := float64(t.Link)
	f := &Inward{rate: float64(rate), low: float64(t.Low), high: float64(t.High), toldRate: told, linkRate: told,
		maxLinkRate: max(told, float64(t.High)/topMargin), share: float64(t.Usual) / told, size: 1,
		tooHighPause: retryPause, move: newMove(t.High > t.Link || rate < t.Usual)}
	if rate < t.Usual { // a follower has left it so, of a link that had become slower
		f.linkRate = float64(rate) / f.share
	}
	return f
}

// NewTunnels is the same where tunnels end, between the link and the shaper.
//
// What the link delivers is then all that comes in by a card. A neighbour's packets may be among it, which no provider
// has counted: more than the most that was told is not believed.
func NewTunnels(rate units.Rate, t Told) *Inward {
	f := NewInward(rate, t)
	f.tunnels = true
	return f
}

// Rate is what is to be set, in bit/s.
func (f *Inward) Rate() units.Rate { return units.Rate(math.Round(f.rate)) }

// Settled is the rate that stays if all ends now, in bit/s: without a probe, and without a queue that drains.
func (f *Inward) Settled() units.Rate { return units.Rate(math.Round(f.settled())) }

func (f *Inward) settled() float64 {
	r := f.rate
	switch {
	case f.draining:
		r = f.rateAfter
	case f.probing: // what it has found counts
		r = f.rateRatio * f.linkRate
	}
	return max(f.minRate(), min(f.maxRate(), r))
}

// Calm reports whether nothing is under way: no queue drains, and no more is let go than is thought to come. Nor is the
// link thought to deliver less than may be set.
func (f *Inward) Calm() bool { return !f.draining && !f.probing && f.linkRateBeforeFall == 0 }

// Look takes what was seen, and says what is to be set and, if that is new, why.
func (f *Inward) Look(l Look) (rate units.Rate, why string) {
	if f.last == nil {
		f.last = &l
		return f.Rate(), ""
	}
	took, came, here := (l.At - f.last.At).Seconds(), 8*(l.Came-f.last.Came), 8*(l.Here-f.last.Here)
	if took <= 0 {
		return f.Rate(), "" // a clock that stands still tells nothing
	}
	f.last = &l
	if came < 0 || here < 0 || took > 1 {
		// The counter began anew, or nobody has looked: sleep, suspend, another queue.
		f.current, f.seen = stretch{}, nil
		if f.draining || f.probing {
			f.endPhase(l.At.Seconds())
		}
		return f.Rate(), ""
	}
	f.current.seconds += took
	f.current.bits += came
	f.current.shaperBits += here
	f.current.looks++
	if l.Backlog > 0 {
		f.current.waiting++
	}
	if f.current.seconds < max(minStretchTime, minStretchPackets*packetBits/f.rate) {
		return f.Rate(), ""
	}
	f.noteFull(l.At.Seconds())
	if l.At.Seconds() > f.setAt+f.responseTime() {
		f.seen = append(f.seen, f.current)
		f.seen = f.seen[max(0, len(f.seen)-recentStretches):]
		why = f.lookAtStretches(l.At.Seconds())
	}
	f.current = stretch{}
	return f.Rate(), why
}

// lookAtStretches looks at the last stretches.
func (f *Inward) lookAtStretches(at float64) string {
	f.measureSize()
	if line, swing, fell := f.detectFall(at); fell {
		if f.isBelowLowest(line) {
			return f.setLowest(line, swing, at)
		}
		f.testFall(line, swing, at)
		return slowerText(line)
	}
	if f.linkRateBeforeFall > 0 && !f.draining {
		return f.resolveDoubt(at)
	}
	if f.probing {
		return f.lookProbing(at)
	}
	f.learn(at)
	touched, hidden, bound, most, still := 0, 0, 0, 0., len(f.seen) >= flatStretches
	for i, s := range f.seen {
		fills := f.fillsLink(s)
		most = max(most, s.rate())
		if fills {
			touched++
		}
		if f.exceedsProvider(s) {
			hidden++
		}
		if s.full() {
			bound++
		}
		still = still && (fills || i < len(f.seen)-flatStretches)
	}
	switch {
	case f.draining && f.isDrained():
		f.endPhase(at)
		return "the queue in front of this host has drained"
	case f.draining && at-f.setAt > f.maxDrainDuration():
		f.giveUp(at)
		return "sending less has not helped"
	case f.draining:
		return ""
	case still:
		f.noteTooHigh(at)
		f.drain(f.rate-stepDown*f.linkRate/f.size, max(f.minRate(), drainShare*f.linkRate/f.size), at)
		return fmt.Sprintf("packets wait in front of this host: %.4g Mbit/s come all the time", f.linkRate/1e6)
	case touched > maxRecentFull && f.rate > f.minRate():
		f.noteTooHigh(at)
		f.setRate(f.rate-float64(f.stepsDown)*stepDown*f.linkRate/f.size, at)
		return "more often than now and then, as much comes as the link delivers"
	case touched+hidden == 0 && bound >= minRecentStretches && f.rate < f.maxRate() && at > f.tooHighUntil:
		f.stepsDown = 0
		more := max(stepUp*f.linkRate, min(maxStepUp*f.linkRate, stepUpShare*(f.linkRate-most)))
		f.setRate(f.rate+more/f.size, at)
		return "as much as the link delivers never comes: more is tried"
	case f.isProbeDue(at):
		f.startProbe(at)
		return "more is let go for a moment: the link may have become faster"
	}
	return ""
}

// isDrained reports whether less comes than the link delivers. Of an uneven link, that is nearer to what is let go.
func (f *Inward) isDrained() bool {
	n := len(f.seen)
	if f.swing > 0 {
		return n >= testStretches && mergeStretches(f.seen[n-testStretches:]...).rate() < (f.linkRate+f.rate*f.size)/2
	}
	return n >= 2 && !f.fillsLink(f.seen[n-1]) && !f.fillsLink(f.seen[n-2])
}

// measureSize finds what the link delivers for each bit that comes to the shaper.
func (f *Inward) measureSize() {
	const widest = 4. / 3 // of a packet of 200 bytes; what lies beyond is not what the tunnels carry
	var link, here float64
	for _, s := range f.seen {
		link, here = link+s.bits, here+s.shaperBits
	}
	if here > 0 {
		f.size = max(1/widest, min(widest, link/here))
	}
}

// maxRate is the highest rate that is tried, in bit/s.
func (f *Inward) maxRate() float64 {
	if f.tunnels {
		return min(f.high, maxTunnelShare*f.linkRate/f.size)
	}
	return f.high
}

// fillsLink reports whether as much came as the link delivers.
func (f *Inward) fillsLink(s stretch) bool {
	return s.rate() >= f.linkRate*(1-fullTolerance)-s.packets() && !f.exceedsProvider(s)
}

// exceedsProvider reports whether more came in by the card than a provider delivers: with tunnels that hides what the
// link does. Of a card that counts seldom it is the stretch in which it counts.
func (f *Inward) exceedsProvider(s stretch) bool {
	return f.tunnels && s.rate() > f.maxLinkRate*(1+fullTolerance)+s.packets()
}

// learn finds what the link delivers. More than was thought comes in two stretches in a row. Less is a flat line. With
// tunnels more is one, too, and no more than was told.
func (f *Inward) learn(at float64) {
	n := len(f.seen)
	if n >= 2 && !f.tunnels {
		least, packets := min(f.seen[n-1].rate(), f.seen[n-2].rate()), f.seen[n-1].packets()
		if least > f.linkRate*(1+fullTolerance+f.swing)+packets {
			f.noteRise(least, at)
			n = len(f.seen) // none where a rate was set
		}
	}
	line, flat, empty := f.flatLevel(flatStretches, 0)
	if !flat || f.draining || at < f.flatIgnoredUntil {
		return
	}
	here := 0.
	for _, s := range f.seen[n-flatStretches:] {
		here += s.shaperBits / s.seconds / flatStretches
	}
	if here > flatSurplus*f.rate || empty && here > aboutShare*f.rate {
		f.linkRate, f.swing, f.sizeWhenFull = line, 0, f.size
	}
}

// noteTooHigh remembers a rate that is too high, unless there is none lower.
func (f *Inward) noteTooHigh(at float64) {
	if f.rate <= f.minRate() {
		return
	}
	if f.stepsDown++; f.stepsDown == 1 {
		f.tooHighPause = min(maxRetryPause, 2*f.tooHighPause)
		if math.Abs(f.rate-f.tooHighRate) > 2*stepDown*f.linkRate {
			f.tooHighPause = retryPause // it is another rate than the last one that was
		}
		f.tooHighRate = f.rate
	}
	f.tooHighUntil = at + f.tooHighPause
}

// drain lets a queue in front of the shaper drain. Afterwards there is another rate; both are in bit/s.
func (f *Inward) drain(after, rate, at float64) {
	f.draining, f.probing, f.rateAfter = true, false, after
	f.apply(rate, at)
}

// giveUp ends the draining of a queue that has not drained.
func (f *Inward) giveUp(at float64) {
	if f.linkRateBeforeFall > 0 {
		f.undoFall(at)
	} else {
		f.linkRate, f.flatIgnoredUntil = f.toldRate, at+f.tooHighPause
	}
	f.endPhase(at)
}

// endPhase ends a drain or a probe, and sets the rate that stays.
func (f *Inward) endPhase(at float64) {
	r := f.settled()
	f.draining, f.probing, f.linkRateBeforeFall = false, false, 0
	f.setRate(r, at)
}

// minRate is the lowest rate that is tried for long, in bit/s: the planned share of what the link delivers.
func (f *Inward) minRate() float64 {
	return max(f.low, min(f.high, f.share*min(f.maxLinkRate, f.linkRate)))
}

// setRate sets a rate that is to stay, in bit/s.
func (f *Inward) setRate(r, at float64) { f.apply(max(f.minRate(), min(f.maxRate(), r)), at) }

// apply sets any rate, in bit/s.
func (f *Inward) apply(r, at float64) {
	f.rate, f.setAt, f.seen = max(f.low, min(f.high, r)), at, nil
}
