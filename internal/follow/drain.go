// SPDX-License-Identifier: Apache-2.0

package follow

import "fmt"

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
	if f.many(p) && len(f.steps) > 2 {
		found = max(found, f.free()) // nothing waited while that was tried
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
	f.phase, f.over, f.began, f.stood, f.peak = draining, 0, false, p.at, 0
	f.drainTo(p)
	return fmt.Sprintf("packets wait %.1f ms beyond this host", 1e3*p.q)
}

// many tells whether RTTs are late because many connections share the link. On a slow link of few they are late, too;
// but that moves in the same time.
func (f *Follower) many(p point) bool {
	const few = 12 // connections
	return p.lag > late && p.lag*f.rate > few*memory*packet
}

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

// drain is a look while the queue drains.
func (f *Follower) drain(p point) string {
	f.peak = max(f.peak, p.q)
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
		switch {
		case f.small():
			wait = min(longest, max(pause, rest*f.waited))
		case f.many(p):
			wait = soon // what was found may be far too low
		}
		f.set(margin*f.found, p)
		f.settle(p, wait)
		f.floor.skip(p.at + 2*p.rtt)
		return f.drained()
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
	case !f.many(p): // else only all of the event tells
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

// drained tells of a queue that is gone.
func (f *Follower) drained() string {
	waited := fmt.Sprintf("packets waited %.3g ms", 1e3*f.peak)
	if f.rate > f.before {
		return "more was tried until " + waited
	}
	return waited + " beyond this host"
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
