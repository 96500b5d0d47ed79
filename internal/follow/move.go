// SPDX-License-Identifier: Apache-2.0

package follow

import (
	"cmp"
	"fmt"
	"math"
	"slices"
)

// move is what is known of a link that moves.
type move struct {
	full float64 // seconds, when the shaper was last full
	came float64 // bit/s, the most that has come meanwhile
	at   float64 // seconds, when the link was last found to have moved

	fell  float64 // bit/s, what it was thought to deliver before, while a fall is tested or cannot be
	tests float64 // seconds, how long that may take
	line  float64 // bit/s, of the last fall, until more was let go and did not come
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

const (
	// underTop is the share of the highest rate that is told, which is the highest that is set (plan.Goal.Room).
	underTop = 0.9975
	// So many stretches in a row that are the same, clearly less than the link is thought to deliver, are a fall: few
	// where the shaper was full just before, and many where not. Just before is a time in seconds.
	shortly, lengthy, clearly, justBefore = 5, 10, 0.97, 3
	// deep is the share of what the link delivers with which the queue of a fall drains, and careful where it may be an
	// application. A first test may take brieflyTest seconds, each further one twice as long.
	deep, careful, brieflyTest = 0.8, 0.93, 3
	// More is let go by the share firstStep, and by twice as much each time that it came, up to mostStep. Senders have
	// probeFollow seconds to follow, and probeMost to do anything.
	firstStep, mostStep, probeFollow, probeMost = 0.02, 0.12, 0.3, 8
	// Before the next probe there are probeRest seconds, or a probeRests'th of the time since the link has moved, up to
	// probeRestMost. A link has moved by moves of its rate at least.
	probeRest, probeRests, probeRestMost, moves = 3, 4, 120, 0.03
	// The shaper has to be full in most of the last bounds stretches. After a probe, soonFlat that are the same tell.
	bounds, soonFlat = 8, 3
)

// still is what is known at first. A link of which more was told than the first guess may move soon.
func still(more bool) move {
	m := move{full: -probeRestMost, at: -probeRestMost * probeRests, tests: brieflyTest, waits: again}
	if more {
		m.at = 0
	}
	return m
}

// moment is how long senders have to follow another rate, in seconds.
func (f *Inward) moment() float64 {
	if f.probing || f.draining {
		return probeFollow
	}
	return follow
}

// notes notes when the shaper was full.
func (f *Inward) notes(at float64) {
	if s := f.now; 2*s.waiting > s.looks && s.here/s.took > about*f.rate {
		f.full, f.came = at, max(f.came, s.rate())
	}
}

// level tells whether the last n stretches are the same, their mean in bit/s, and whether nothing waits in the shaper.
func (f *Inward) level(n int) (line float64, is, empty bool) {
	if len(f.seen) < n {
		return 0, false, false
	}
	var all []float64
	waiting, looks, packet := 0, 0, 0.
	for _, s := range f.seen[len(f.seen)-n:] {
		all = append(all, s.rate())
		waiting, looks, packet = waiting+s.waiting, looks+s.looks, max(packet, slack*full/s.took)
		if f.beside(s) {
			return 0, false, false
		}
	}
	m := mean(all)
	return m, slices.Max(all)-slices.Min(all) <= near*m+packet, 2*waiting < looks
}

// slower says what a fall is.
func slower(line float64) string {
	return fmt.Sprintf("the link has become slower: %.4g Mbit/s come all the time", line/1e6)
}

// falls tells whether the link looks slower than it was thought to be, and what it delivers then, in bit/s.
func (f *Inward) falls(at float64) (float64, bool) {
	n, just := lengthy, at-f.full < justBefore+shortly*brief
	if just {
		n = shortly
	}
	line, same, empty := f.level(n)
	known := at < f.doubt && math.Abs(line-f.wrong) < moves*f.wrong
	below := f.ceiling
	if f.probing { // who has been slower than that all the time is no faster at once
		below = min(below, f.ratio*f.ceiling*f.size)
	}
	if f.below(line) && (!just || f.now.packets() > (1-about)*line) { // a pause, or packets now and then, tell nothing
		return line, false
	}
	return line, same && empty && !f.draining && !known && line < clearly*below
}

// below tells whether the queue of a link that delivers so much, in bit/s, does not drain with what may be set.
func (f *Inward) below(line float64) bool { return careful*line/f.size < f.low }

// lowest sets the lowest rate, as the link seems to deliver hardly more or less, in bit/s. No lower rate can test that.
func (f *Inward) lowest(line, at float64) string {
	f.kept = f.settled()
	f.probing = false
	f.fell, f.ceiling, f.line, f.sized, f.at = f.ceiling, line, line, f.size, at
	f.put(f.low, at)
	if line > f.low {
		return slower(line)
	}
	return fmt.Sprintf("the link seems to deliver less than the lowest rate that may be set: "+
		"%.4g Mbit/s come all the time", line/1e6)
}

// doubts tells what becomes of that. More that comes shows that it was an application, or that the link has moved
// again. Less that comes all the time is then a fall, as if the shaper was full now.
func (f *Inward) doubts(at float64) string {
	s := f.seen[len(f.seen)-1]
	switch {
	case about*s.here/s.took > f.ceiling/f.size:
		f.wrongs(at)
		f.ceiling, f.fell, f.full = f.fell, 0, at
		f.set(f.kept, at)
		return "more comes than the link seemed to deliver"
	case f.full == at:
		f.fell = 0 // the lowest rate is one that it can have
	}
	return ""
}

// fall tests whether the link has become slower: to a rate in bit/s.
func (f *Inward) fall(line, at float64) {
	to := careful
	if at-f.full < justBefore+shortly*brief {
		to = deep
	}
	ratio := f.rate / f.ceiling
	if f.probing {
		ratio = f.ratio
	}
	f.fell, f.ceiling, f.line, f.sized = f.ceiling, line, line, f.size
	if line < clearly*f.came { // else it may never have been faster
		f.at = at
	}
	f.came, f.until, f.downs = line, 0, 0
	f.rests(at)
	f.drain(min(ratio, (1-stepDown)/f.size)*line, to*line/f.size, at)
}

// unfall is where less has not helped: it was an application.
func (f *Inward) unfall(at float64) {
	f.wrongs(at)
	f.kept *= f.fell / f.ceiling
	f.ceiling, f.tests = f.fell, min(drainMost, 2*f.tests)
}

// wrongs remembers that a line was none of the link's.
func (f *Inward) wrongs(at float64) {
	f.wrong, f.doubt, f.line = f.line, at+f.waits, 0
	f.waits = min(seldomAgain, 2*f.waits)
}

// longest is how long a queue may drain, in seconds.
func (f *Inward) longest() float64 {
	if f.fell > 0 {
		return f.tests
	}
	return drainMost
}

// rises is where more comes than the link was thought to deliver, in bit/s.
func (f *Inward) rises(to, at float64) {
	if to > (1+moves)*f.ceiling {
		f.at = at
	}
	f.ceiling, f.next = to, at
	f.draining, f.fell = false, 0 // what stands in front would let no more come
	if f.rate < f.least() {
		f.set(f.least(), at)
	}
}

// due tells whether it is time to let go more.
func (f *Inward) due(at float64) bool {
	n := len(f.seen)
	if n < bounds || at < f.next || f.ceiling >= f.top*(1-near) || f.rate >= f.high*(1-near) {
		return false
	}
	bound := 0
	for _, s := range f.seen[n-bounds:] {
		if 2*s.waiting > s.looks {
			bound++
		}
	}
	return bound > bounds*2/3
}

// probe lets go more than the link is thought to deliver, in steps: senders have to follow.
func (f *Inward) probe(at float64) {
	if !f.probing {
		f.probing, f.climbs, f.ratio, f.step = true, false, f.rate/f.ceiling, firstStep
	}
	f.best = 0
	to, link := (1+f.step)*f.rate, f.ceiling/cmp.Or(f.sized, f.size)
	if f.rate < link && to > link { // that much above it tells, and a little would look as if it had come
		to = (1 + firstStep) * link
	}
	f.put(to, at)
}

// probed looks what has come of it.
func (f *Inward) probed(at float64) string {
	n := len(f.seen)
	if n >= 2 {
		two := together(f.seen[n-2:]...)
		if here := two.here / two.took; here >= f.rate*(1-near)-two.packets() {
			return f.more(min(here, f.rate)*cmp.Or(f.sized, f.size), two.packets(), at)
		}
	}
	n = soonFlat
	if f.climbs { // as much as that came before, too: it may be all that senders have yet
		n = flat
	}
	line, is, empty := f.level(n)
	higher := line > f.ceiling*(1+near)+f.now.packets()
	_, stays, _ := f.level(flat)
	above := !f.climbs && !higher && f.rate*cmp.Or(f.sized, f.size) > f.ceiling*(1+firstStep/2)
	switch {
	case is && empty && !f.tunnels && higher && !stays:
		f.best = max(f.best, line) // it comes at any rate, and senders may have more later
	case is && (empty || above) && line > f.ceiling*(1-near)-f.now.packets():
		if higher && !f.tunnels {
			f.ceiling, f.at = line, at
		}
		f.line, f.waits, f.tests = 0, again, brieflyTest
		f.rests(at)
		f.drain(f.ratio*f.ceiling, careful*f.ceiling/f.size, at)
		return "more was let go, and did not come"
	case at-f.since > probeMost:
		f.next = at + probeRest
		f.ceiling = max(f.ceiling, f.best)
		f.end(at)
		return "more was let go, and nobody wanted it"
	}
	return ""
}

// more is where as much came as was let go, in bit/s.
func (f *Inward) more(came, packets, at float64) string {
	if came > f.ceiling*(1+near)+packets {
		if f.line > 0 {
			f.wrongs(at)
		}
		f.ceiling, f.at, f.until, f.downs, f.climbs = came, at, 0, 0, true
	}
	f.step = min(mostStep, 2*f.step)
	if f.ceiling >= f.top*(1-near) || f.rate >= f.high*(1-near) {
		f.ceiling = min(f.ceiling, f.top)
		f.rests(at)
		f.end(at)
		return "the link has become faster"
	}
	f.probe(at)
	return "as much comes as is let go: still more is tried"
}

// rests is the pause until the next probe.
func (f *Inward) rests(at float64) {
	f.next = at + max(probeRest, min(probeRestMost, (at-f.at)/probeRests))
}
