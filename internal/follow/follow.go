// SPDX-License-Identifier: Apache-2.0

// Package follow finds out which rate a link has now, from what the host sends anyway, so that a shaper stays a little
// below it.
//
// It is pure: it takes what was seen of a device and of its connections, and says a rate. It opens no socket, reads no
// clock and changes nothing.
//
// What it goes by is the provider's queue: how much longer the connections' RTTs are than their shortest, less what
// packets wait in this host's own queue. While that queue grows or shrinks, the rate in front of it is what was sent,
// divided by one and that growth.
package follow

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	"weir/internal/units"
)

// Look is what was seen at one time. Looks are 10 to 200 ms apart while the link is loaded.
type Look struct {
	At          time.Duration // on a clock that never goes back
	Sent        float64       // bytes that have left the shaper since it was set up, as it counts them
	Backlog     float64       // bytes that wait in the shaper
	Own         time.Duration // that packets waited in the shaper of late
	Connections []Connection  // that have moved since the look before
}

// Connection is one connection's times.
type Connection struct {
	RTT  time.Duration // smoothed
	Base time.Duration // the least that was ever seen
	Rate float64       // packets a second that are delivered; 0: not known
}

// Follower holds what was learnt of a link.
type Follower struct {
	low, high float64 // bit/s, bounds of what it may say
	rate      float64 // bit/s, that is set

	seen    []point // of late, in the order of time
	floor   floor
	learnt  bool    // the floor
	since   float64 // when the rate was set last
	phase   phase
	before  float64   // the rate before the event or the probe
	tried   float64   // the rate when the queue was seen
	found   float64   // what the link was last found to carry; 0: not known
	began   bool      // of the event: the rate has been cut
	stood   float64   // when the queue of the event was last seen to stand
	over    int       // looks in a row that saw a queue
	steps   []float64 // bit/s, that the probe has tried
	next    float64   // when the next probe is due
	waited  float64   // seconds that packets have waited long because of the event or the probe
	empties int       // looks of the probe that found nothing waiting here
}

// point is a look, as it is needed later.
type point struct {
	at, sent, own, q float64 // seconds and bits
	rtt              float64 // without a queue, of the connection that q is of
	lag              float64 // seconds by which srtt is late
	came, when       float64 // bits that had left here when what is acknowledged did, and when that left the provider
	full, known      bool
}

type phase int

const (
	calm phase = iota
	probing
	draining
)

const (
	// margin is what stays free below what was found, so that a queue that forms can drain.
	margin = 0.9925
	// queue is the least delay that is taken for a queue in front of the provider; probed that while the rate is
	// raised on purpose.
	queue, probed = 3e-3, 0.7e-3
	// learn is how long only the floor is learnt after the start, in seconds.
	learn = 1.5
	// pause is the least time between two probes, in seconds. After a probe that made packets wait for long or more it
	// is longer: that is to be one hundredth of the time at most.
	pause, long, rest, longest = 2.5, 2e-3, 100, 5
	// gentle is what a probe may make packets wait if nothing more is found. Each step after the first raises the
	// rate by twice as much as the one before, up to most.
	gentle, first, most = 0.9e-3, 0.01, 0.12
	// memory is how many packets a connection has sent before its srtt believes a new RTT: it takes one eighth of each
	// sample (RFC 6298), and a sample comes with every second packet.
	memory = 8 * 2
	// latest is the most that srtt is taken to be late, in seconds.
	latest = 0.5
	// deepest is the share of the rate that draining may take away.
	deepest = 0.6
)

// New follows a link on which a rate is set, between two others, all in bit/s.
func New(rate, low, high units.Rate) *Follower {
	return &Follower{rate: float64(rate), low: float64(low), high: float64(high)}
}

// Rate is what is to be set, in bit/s.
func (f *Follower) Rate() units.Rate { return units.Rate(math.Round(f.rate)) }

// Look takes what was seen, and says what is to be set and, if that is new, why.
func (f *Follower) Look(l Look) (rate units.Rate, why string) {
	p := f.point(l)
	if n := len(f.seen); n > 0 {
		switch before := f.seen[n-1]; {
		case p.at <= before.at:
			return f.Rate(), "" // a clock that stands still tells nothing
		case p.sent < before.sent || p.at-before.at > 1:
			f.forget() // the counter began anew, or nobody has looked: sleep, suspend, another queue
		}
	}
	f.seen = append(f.seen, p)
	if i := slices.IndexFunc(f.seen, func(o point) bool { return o.at > p.at-3 }); i > 64 {
		f.seen = slices.Delete(f.seen, 0, i)
	}
	if !p.known {
		return f.Rate(), f.unknown(p)
	}
	f.over = f.count(p)
	if n := len(f.seen); n > 1 && f.phase != calm && p.q > f.floor.level()+long {
		f.waited += p.at - f.seen[n-2].at
	}
	switch f.phase {
	case draining:
		why = f.drain(p)
	case probing:
		why = f.probe(p)
	default:
		why = f.rise(p)
	}
	return f.Rate(), why
}

// point sums a look up. The queue is what a quarter of the connections see less of: those that something else slows
// down see more.
func (f *Follower) point(l Look) point {
	p := point{at: l.At.Seconds(), sent: 8 * l.Sent, own: l.Own.Seconds(), full: l.Backlog > 0}
	if len(l.Connections) == 0 {
		return p
	}
	type wait struct{ q, base, lag float64 }
	waits, least := []wait{}, math.Inf(1)
	for _, c := range l.Connections {
		extra, lag := max(0, (c.RTT-c.Base).Seconds()), latest
		if c.Rate > 0 {
			lag = min(latest, memory/c.Rate)
		}
		least = min(least, extra)
		waits = append(waits, wait{extra - f.ownAt(p.at-c.RTT.Seconds()-lag, p.own), c.Base.Seconds(), lag})
	}
	slices.SortFunc(waits, func(a, b wait) int { return cmp.Compare(a.q, b.q) })
	w := waits[len(waits)/4]
	p.q, p.rtt, p.lag, p.known = max(0, min(w.q, least)), max(1e-3, w.base), w.lag, true
	p.when = p.at - p.rtt - p.lag
	p.came = f.sentAt(p.when - p.q)
	return p
}

// ownAt is what packets waited here when those left that are acknowledged now.
func (f *Follower) ownAt(t, now float64) float64 {
	for i := len(f.seen) - 1; i >= 0; i-- {
		if o := f.seen[i]; o.at <= t {
			next, at := now, o.at
			if i+1 < len(f.seen) {
				next, at = f.seen[i+1].own, f.seen[i+1].at
			}
			if at == o.at {
				return o.own
			}
			return o.own + (next-o.own)*(t-o.at)/(at-o.at)
		}
	}
	if len(f.seen) > 0 {
		return f.seen[0].own
	}
	return now
}

// forget keeps the rate and nothing else of what was under way.
func (f *Follower) forget() {
	if f.phase != calm {
		f.rate = f.settled()
	}
	f.seen, f.phase, f.over, f.floor, f.learnt = nil, calm, 0, floor{}, false
	f.next = 0
}

// settled is the rate to keep where an event or a probe does not come to its end.
func (f *Follower) settled() float64 {
	if f.phase == draining && f.found > 0 {
		return f.bound(margin * f.found)
	}
	return f.before
}

// unknown is a look at which no connection moved. Nothing can be learnt from it.
func (f *Follower) unknown(p point) string {
	const patience = 1 // seconds without a word
	if f.phase == calm {
		return ""
	}
	for i := len(f.seen) - 1; i >= 0 && p.at-f.seen[i].at < patience; i-- {
		if f.seen[i].known {
			return ""
		}
	}
	f.set(f.settled(), p)
	f.settle(p, pause)
	return "no connection moves"
}

// count is how many looks in a row have seen a queue.
func (f *Follower) count(p point) int {
	if p.q > f.threshold() {
		return f.over + 1
	}
	return 0
}

// threshold is what is taken for a queue.
func (f *Follower) threshold() float64 {
	least := queue
	if f.phase == probing {
		least = probed
	}
	return f.floor.level() + max(least, 5*f.floor.spread())
}

// rise is a look in calm: is there a queue now, or room to try more?
func (f *Follower) rise(p point) string {
	if !f.learnt {
		f.floor.add(p.at, p.q)
		f.learnt = f.floor.ready(p.at)
		if f.learnt && f.floor.level() > queue {
			f.floor.raise(p.at, 0, 0) // a queue may have stood from the start: sending less will tell
		}
		return ""
	}
	if f.over < 2 {
		if f.over == 0 {
			f.floor.add(p.at, p.q)
		}
		if p.full && p.at >= f.next && f.rate < f.high && f.fullOfLate(p) {
			return f.step(p)
		}
		return ""
	}
	return f.cut(p, f.rate)
}

// fullOfLate tells whether packets have waited here throughout the last round trips.
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
		next = f.rate * (1 + min(2*first, 1-margin+gentle/(p.rtt+0.1)))
		f.phase, f.before, f.steps, f.waited, f.empties = probing, f.rate, nil, 0, 0
		why = "more is tried"
	} else {
		next = f.rate * (1 + min(most, first*math.Pow(2, float64(len(f.steps)-1))))
	}
	f.steps = append(f.steps, next)
	f.over = 0
	f.set(next, p)
	return why
}

// probe is a look while more is tried.
func (f *Follower) probe(p point) string {
	if !p.full {
		f.empties++
	}
	switch {
	case f.over >= 2:
		return f.cut(p, f.before)
	case f.empties > 2:
		// Nobody asks for more, so that more cannot be tried. What was found free stays so.
		f.set(f.free(), p)
		f.settle(p, pause)
		return "there is not enough to send to try more"
	case p.at-f.since < max(2*p.rtt, 0.1)+p.lag || f.over > 0:
		return ""
	case f.rate >= f.high:
		f.found = 0
		f.settle(p, pause)
		return "the most that may be set"
	}
	return f.step(p)
}

// free is the rate that the probe had tried for long enough to see that nothing waits.
func (f *Follower) free() float64 {
	if n := len(f.steps); n > 2 {
		return f.steps[n-3]
	}
	return f.before
}

// cut lowers the rate because a queue stands in front of the provider.
func (f *Follower) cut(p point, before float64) string {
	was := f.rate
	if f.phase == calm || p.q > f.threshold()+5*gentle {
		f.steps, f.waited = nil, 0 // more than a probe can have done
	}
	found, n := f.estimate(f.rising(p))
	if n < 3 || found <= 0 {
		found = f.out(p.at-p.rtt-p.q, p.at) * 0.9
	}
	f.before, f.tried = before, was
	if f.small() {
		// The provider's rate is what it was, or between the last two that were tried.
		least := before / margin
		most := max(least, f.steps[max(0, len(f.steps)-2)])
		if len(f.steps) == 1 {
			most = least
		}
		found = max(min(found, most), least)
	}
	f.found = min(found, was)
	f.phase, f.over, f.began, f.stood = draining, 0, false, p.at
	f.drainTo(p)
	return fmt.Sprintf("packets wait %.1f ms beyond this host", 1e3*p.q)
}

// small tells of a probe whether it found nothing: the link carries what it did, or a little more.
func (f *Follower) small() bool { return len(f.steps) == 1 || len(f.steps) == 2 }

// rising is when the queue began to grow.
func (f *Follower) rising(p point) float64 {
	from := p.at
	for i := len(f.seen) - 1; i >= 0 && f.seen[i].at > p.at-max(0.3, 2*p.rtt); i-- {
		if from = f.seen[i].at; f.seen[i].known && f.seen[i].q <= f.floor.level()+probed/2 {
			break
		}
	}
	return from
}

// estimate is what the link carries: the slope of what came, since a time. It tells how many looks it is from.
func (f *Follower) estimate(from float64) (rate float64, n int) {
	t, x := []float64{}, []float64{}
	for i := len(f.seen) - 1; i >= 0 && f.seen[i].at >= from; i-- {
		if o := f.seen[i]; o.known {
			t, x = append(t, o.when), append(x, o.came)
		}
	}
	rate, _ = slope(t, x)
	return rate, len(t)
}

// slope is that of the straight line through points, and how far from it they lie (root mean square).
func slope(x, y []float64) (rise, off float64) {
	n := float64(len(x))
	var mx, my, xx, xy, yy float64
	for i := range x {
		mx, my = mx+x[i]/n, my+y[i]/n
	}
	for i := range x {
		dx, dy := x[i]-mx, y[i]-my
		xx, xy, yy = xx+dx*dx, xy+dx*dy, yy+dy*dy
	}
	if xx == 0 {
		return 0, 0
	}
	rise = xy / xx
	return rise, math.Sqrt(max(0, yy-rise*xy) / n)
}

// noise is how far the queue of the last moments lies from its median, in the middle.
func (f *Follower) noise(p point) float64 {
	q := []float64{}
	for i := len(f.seen) - 1; i >= 0 && f.seen[i].at > p.at-0.3; i-- {
		if f.seen[i].known {
			q = append(q, f.seen[i].q)
		}
	}
	return aside(q)
}

// deviation is how far values lie from their mean (root mean square).
func deviation(x []float64) float64 {
	var sum, squares float64
	for _, v := range x {
		sum += v / float64(len(x))
	}
	for _, v := range x {
		squares += (v - sum) * (v - sum) / float64(len(x))
	}
	return math.Sqrt(squares)
}

// out is what was sent from one time to another, in bit/s.
func (f *Follower) out(from, to float64) float64 {
	a, b := f.sentAt(from), f.sentAt(to)
	if to <= from {
		return 0
	}
	return (b - a) / (to - from)
}

func (f *Follower) sentAt(t float64) float64 {
	if len(f.seen) == 0 {
		return 0
	}
	i, _ := slices.BinarySearchFunc(f.seen, t, func(o point, t float64) int {
		if o.at < t {
			return -1
		}
		return 1
	})
	switch {
	case i == 0:
		return f.seen[0].sent + f.rate*(t-f.seen[0].at)
	case i == len(f.seen):
		return f.seen[i-1].sent
	}
	a, b := f.seen[i-1], f.seen[i]
	return a.sent + (b.sent-a.sent)*(t-a.at)/(b.at-a.at)
}

// drain is a look while the queue drains.
func (f *Follower) drain(p point) string {
	if p.q > f.threshold() {
		f.stood = p.at
	}
	if p.q > f.threshold()+5*gentle || p.at-f.since > 0.3+2*p.rtt {
		f.steps = nil // more than a probe can have done
	}
	since, idle := f.since+p.rtt, f.idle(p) // what was sent since the cut is acknowledged from then on
	little := p.at-f.stood > 0.3+2*p.rtt    // has stood for long, and does not go
	switch {
	case p.q <= f.floor.level()+max(probed, 3*f.floor.spread()), little && idle:
		wait := float64(pause)
		if f.small() {
			wait = min(longest, max(pause, rest*f.waited))
		}
		f.set(margin*f.found, p)
		f.settle(p, wait)
		f.floor.skip(p.at + 2*p.rtt)
		return "the queue has drained"
	case f.elsewhere(p):
		f.floor.raise(p.at, p.q, f.noise(p))
		f.found = 0
		f.set(f.before, p)
		f.settle(p, pause)
		return "sending less has not helped: it waits elsewhere"
	case little:
		f.steps, f.stood = nil, p.at
	case idle, p.q <= f.threshold():
		// The link may be empty at times: what is delivered says nothing of it then.
		f.drainTo(p)
		return ""
	default:
		since = max(since, p.at-max(0.2, p.rtt, 3*p.lag))
	}
	if r, n := f.estimate(since); n >= 3 && r > 0 && p.at-f.since-p.rtt > p.lag {
		f.found = min(r, f.tried)
		if f.small() {
			f.found = max(f.found, 0.98*f.before)
		}
		f.drainTo(p)
	}
	return ""
}

// idle tells whether mostly nothing has waited here when that left which an estimate would be from.
func (f *Follower) idle(p point) bool {
	empty, all := 0, 0
	for i := len(f.seen) - 1; i >= 0 && f.seen[i].at > p.when-p.q-max(0.2, p.rtt); i-- {
		if all++; !f.seen[i].full {
			empty++
		}
	}
	return 2*empty > all
}

// elsewhere tells whether what waits does so whatever is sent: then a queue that stands still explains more than a
// link that delivers at one rate does.
func (f *Follower) elsewhere(p point) bool {
	t, q, came := []float64{}, []float64{}, []float64{}
	for i := len(f.seen) - 1; i >= 0 && f.seen[i].when-f.seen[i].q >= f.since; i-- { // what was sent since the cut
		if o := f.seen[i]; o.known {
			t, q, came = append(t, o.when), append(q, o.q), append(came, o.came)
		}
	}
	if len(t) < 8 || t[0]-t[len(t)-1] < max(0.3, 2*p.rtt) {
		return false
	}
	rate, off := slope(t, came)
	if rate <= 0 || rate > 0.97*f.before {
		return false
	}
	return deviation(q) < off/rate
}

// drainTo sets what drains the queue within two round trips, of what was found.
func (f *Follower) drainTo(p point) {
	above := f.out(p.at-p.rtt, p.at)/f.found - 1
	waits := max(0, p.q-f.floor.level()+above*p.rtt)
	since := f.since
	f.set(f.found*(0.99-min(deepest, waits/max(0.2, 2*p.rtt))), p)
	if f.began {
		f.since = since // of the first cut
	}
	f.began = true
}

// settle ends an event or a probe. The next probe may begin after a pause, in seconds.
func (f *Follower) settle(p point, pause float64) { f.phase, f.over, f.next = calm, 0, p.at+pause }

func (f *Follower) bound(r float64) float64 { return max(f.low, min(f.high, r)) }

func (f *Follower) set(r float64, p point) {
	f.rate, f.since = f.bound(r), p.at
}

func quantile(x []float64, q float64) float64 {
	x = slices.Sorted(slices.Values(x))
	return x[min(len(x)-1, int(q*float64(len(x))))]
}

// Calm tells whether nothing is under way: neither a queue that drains nor a probe.
func (f *Follower) Calm() bool { return f.phase == calm }
