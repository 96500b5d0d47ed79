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
	full float64 // seconds, when the shaper was last full
	came float64 // bit/s, the most that has come meanwhile
	at   float64 // seconds, when the link was last found to have moved

	fell  float64 // bit/s, what it was thought to deliver before, while a fall is tested or cannot be
	tests float64 // seconds, how long that may take
	line  float64 // bit/s, of the last fall, until more was let go and did not come
	swing float64 // by which share of that it was higher and lower, where the link is uneven
	wrong float64 // bit/s, a flat line that was an application's own
	doubt float64 // seconds, until when that is remembered
	waits float64 // seconds, how long it is next time

	probing bool
	climbs  bool    // more has come
	sized   float64 // size, when the link was last seen to be full
	ratio   float64 // the rate before, of what the link was thought to deliver
	step    float64 // by how much more is let go
	best    float64 // bit/s, what has come since
	next    float64 // seconds, when that is due
}

// newMove is what is known at first. A link of which more was told than the first guess may move soon.
func newMove(more bool) move {
	m := move{full: -maxRisePause, at: -maxRisePause * risePauseDivisor, tests: firstTestTime, waits: retryPause}
	if more {
		m.at = 0
	}
	return m
}

// moment is how long senders have to follow another rate, in seconds.
func (f *Inward) moment() float64 {
	if f.probing || f.draining {
		return riseFollowTime
	}
	return followTime
}

// noteFull records when the shaper was last full.
func (f *Inward) noteFull(at float64) {
	if s := f.now; s.full() && s.here/s.took > aboutShare*f.rate {
		f.full, f.came = at, max(f.came, s.rate())
	}
}

// level reports whether the last n stretches are the same, their mean in bit/s, and whether nothing waits in the
// shaper. Each may be higher or lower than the mean by a share.
func (f *Inward) level(n int, swing float64) (line float64, is, empty bool) {
	if len(f.seen) < n {
		return 0, false, false
	}
	last := f.seen[len(f.seen)-n:]
	var all []float64
	packet := 0.
	for _, s := range last {
		all, packet = append(all, s.rate()), max(packet, s.packets())
	}
	m, s := stats.Mean(all), merge(last...)
	is = slices.Max(all)-slices.Min(all) <= (fullTolerance+2*swing)*m+packet
	return m, is && !slices.ContainsFunc(last, f.beside), 2*s.waiting < s.looks
}

// unevenly is the same of a link whose rate is uneven, and by which share it is.
func (f *Inward) unevenly(n int) (line, swing float64, is bool) {
	line, is, _ = f.level(n, maxSwing)
	if !is {
		return 0, 0, false
	}
	last := f.seen[len(f.seen)-n:]
	for _, s := range last {
		swing = max(swing, math.Abs(s.rate()/line-1))
	}
	all, a, b := merge(last...), merge(last[:n/2]...), merge(last[n/2:]...)
	return line, swing, all.waiting*rareWaitLooks <= all.looks && math.Abs(a.rate()-b.rate()) < line*swing/2
}

// slower says what a fall is.
func slower(line float64) string {
	return fmt.Sprintf("the link has become slower: %.4g Mbit/s come all the time", line/1e6)
}

// recentlyFull reports whether the shaper was full just before the last n stretches.
func (f *Inward) recentlyFull(n int, at float64) bool {
	return at-f.full < recentlyFullTime+float64(n)*minStretchTime
}

// falls reports whether the link looks slower than it was thought to be. It delivers a line then, in bit/s, which is
// uneven by a share.
func (f *Inward) falls(at float64) (line, swing float64, is bool) {
	n := slowFallStretches
	if f.recentlyFull(fallStretches, at) {
		n = fallStretches
	}
	line, same, empty := f.level(n, 0)
	is = same && empty
	if !is && f.recentlyFull(unevenStretches, at) {
		n = unevenStretches
		line, swing, is = f.unevenly(unevenStretches)
	}
	if !is || f.draining || at < f.doubt && math.Abs(line-f.wrong) < (minMoveShare+swing)*f.wrong {
		return line, swing, false
	}
	if f.below(line) && (n == slowFallStretches || f.now.packets() > (1-aboutShare)*line) {
		return line, swing, false // a pause, or packets now and then, tell nothing
	}
	below := f.ceiling
	if f.probing { // who has been slower than that all the time is no faster at once
		below = min(below, f.ratio*f.ceiling*f.size)
	}
	return line, swing, line < fallShare*below
}

// below reports whether the queue of a link that delivers so much, in bit/s, does not drain with what may be set.
func (f *Inward) below(line float64) bool { return testDrainShare*line/f.size < f.low }

// lowest sets the lowest rate, as the link seems to deliver hardly more or less, in bit/s. No lower rate can test that.
func (f *Inward) lowest(line, swing, at float64) string {
	f.kept = f.settled()
	f.probing = false
	f.fell, f.ceiling, f.line, f.swing, f.sized, f.at = f.ceiling, line, line, swing, f.size, at
	f.put(f.low, at)
	if line > f.low {
		return slower(line)
	}
	return fmt.Sprintf("the link seems to deliver less than the lowest rate that may be set: "+
		"%.4g Mbit/s come all the time", line/1e6)
}

// doubts returns what becomes of that. More that comes shows that it was an application, or that the link has moved
// again. Less that comes all the time is then a fall, as if the shaper was full now.
func (f *Inward) doubts(at float64) string {
	s := f.seen[len(f.seen)-1]
	switch {
	case aboutShare*s.here/s.took > (1+f.swing)*f.ceiling/f.size:
		f.rejectLine(at)
		f.ceiling, f.fell, f.full = f.fell, 0, at
		f.set(f.kept, at)
		return "more comes than the link seemed to deliver"
	case f.full == at:
		f.fell = 0 // the lowest rate is one that it can have
	}
	return ""
}

// fall tests whether the link has become slower: to a rate in bit/s.
func (f *Inward) fall(line, swing, at float64) {
	to := testDrainShare
	if f.recentlyFull(fallStretches, at) || swing > 0 {
		to = fallDrainShare
	}
	ratio := f.rate / f.ceiling
	if f.probing {
		ratio = f.ratio
	}
	f.fell, f.ceiling, f.line, f.swing, f.sized = f.ceiling, line, line, swing, f.size
	if line < fallShare*f.came { // else it may never have been faster
		f.at = at
	}
	f.came, f.until, f.downs = line, 0, 0
	f.pauseProbes(at)
	f.drain(min(ratio, (1-stepDown)/f.size)*line, to*line/f.size, at)
}

// unfall is where less has not helped: it was an application.
func (f *Inward) unfall(at float64) {
	f.rejectLine(at)
	f.kept *= f.fell / f.ceiling
	f.ceiling, f.swing, f.tests = f.fell, 0, min(maxDrainTime, 2*f.tests)
}

// rejectLine records that a flat rate was an application's and not the link's.
func (f *Inward) rejectLine(at float64) {
	f.wrong, f.doubt, f.line = f.line, at+f.waits, 0
	f.waits = min(maxRetryPause, 2*f.waits)
}

// longest is how long a queue may drain, in seconds.
func (f *Inward) longest() float64 {
	if f.fell > 0 {
		return f.tests
	}
	return maxDrainTime
}

// rises is where more comes than the link was thought to deliver, in bit/s.
func (f *Inward) rises(to, at float64) {
	if to > (1+minMoveShare)*f.ceiling {
		f.at = at
	}
	f.ceiling, f.next = to, at
	f.draining, f.fell = false, 0 // what stands in front would let no more come
	if f.rate < f.least() {
		f.set(f.least(), at)
	}
}

// due reports whether it is time to let go more.
func (f *Inward) due(at float64) bool {
	n := len(f.seen)
	if n < fullWindow || at < f.next || f.ceiling >= f.top*(1-fullTolerance) || f.rate >= f.high*(1-fullTolerance) {
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

// probe lets go more than the link is thought to deliver, in steps: senders have to follow.
func (f *Inward) probe(at float64) {
	if !f.probing {
		f.probing, f.climbs, f.ratio, f.step = true, false, f.rate/f.ceiling, firstRise
	}
	f.best = 0
	to, link := (1+f.step)*f.rate, f.ceiling/cmp.Or(f.sized, f.size)
	if f.rate < link && to > link { // that much above it tells, and a little would look as if it had come
		to = (1 + firstRise) * link
	}
	f.put(to, at)
}

// probed looks what has come of it.
func (f *Inward) probed(at float64) string {
	n := len(f.seen)
	some, soon := 2, riseFlatStretches
	if f.swing > 0 {
		some, soon = testStretches, testStretches
	}
	if n >= some {
		s := merge(f.seen[n-some:]...)
		if here := s.here / s.took; here >= f.rate*(1-fullTolerance)-s.packets() {
			return f.more(min(here, f.rate)*cmp.Or(f.sized, f.size), s.packets(), at)
		}
	}
	if f.climbs { // as much as that came before, too: it may be all that senders have yet
		soon = flatStretches
	}
	line, is, empty := f.level(soon, f.swing)
	if l, swing, all := f.unevenly(flatStretches); !is && all {
		line, f.swing, is, empty = l, swing, true, true
	}
	higher := line > f.ceiling*(1+fullTolerance+f.swing)+f.now.packets()
	_, stays, _ := f.level(flatStretches, f.swing)
	above := !f.climbs && !higher && f.rate*cmp.Or(f.sized, f.size) > f.ceiling*(1+firstRise/2)
	switch {
	case is && empty && !f.tunnels && higher && !stays:
		f.best = max(f.best, line) // it comes at any rate, and senders may have more later
	case is && (empty || above) && line > f.ceiling*(1-fullTolerance-f.swing)-f.now.packets():
		if higher && !f.tunnels {
			f.ceiling, f.at = line, at
		}
		f.line, f.waits, f.tests = 0, retryPause, firstTestTime
		f.pauseProbes(at)
		f.drain(f.ratio*f.ceiling, testDrainShare*f.ceiling/f.size, at)
		return "more was let go, and did not come"
	case at-f.since > maxRiseTime:
		f.next = at + minRisePause
		f.ceiling = max(f.ceiling, f.best)
		f.end(at)
		return "more was let go, and nobody wanted it"
	}
	return ""
}

// more is where as much came as was let go, in bit/s.
func (f *Inward) more(came, packets, at float64) string {
	if came > f.ceiling*(1+fullTolerance+f.swing)+packets {
		if f.line > 0 {
			f.rejectLine(at)
		}
		f.ceiling, f.at, f.until, f.downs, f.climbs = came, at, 0, 0, true
	}
	f.step = min(maxRise, 2*f.step)
	if f.ceiling >= f.top*(1-fullTolerance) || f.rate >= f.high*(1-fullTolerance) {
		f.ceiling = min(f.ceiling, f.top)
		f.pauseProbes(at)
		f.end(at)
		return "the link has become faster"
	}
	f.probe(at)
	return "as much comes as is let go: still more is tried"
}

// pauseProbes sets when the next probe is due.
func (f *Inward) pauseProbes(at float64) {
	f.next = at + max(minRisePause, min(maxRisePause, (at-f.at)/risePauseDivisor))
}
