// SPDX-License-Identifier: Apache-2.0

package follow

import "math"

// Who receives says how long packets wait, by when it acknowledges them, and may say what it likes. So each network of
// clients counts once. Where most of them see a queue, and one that has seen an earlier one with them does not, the
// rate falls only a little below the last that nobody has called into question. Who has seen none may be on another
// path.

const (
	enoughLooks = 3    // at a queue, for what a network says of it to count
	someQueue   = 1e-4 // seconds², that chance does not make: 1 ms for 100 ms
)

// witness is a network of clients.
type witness struct {
	more, last float64 // seconds: what its packets wait more than others' in calm, and when it was seen last
	looks      int     // at the queue that is there now
	saw, all   float64 // seconds², the sums over time of what it and all have seen of that queue
	passes     bool    // the bottleneck: it has seen an earlier queue that most have seen
}

// hear takes what networks have seen at a look.
func (f *Follower) hear(p point, waits []wait) {
	took := 0.
	if n := len(f.seen); n > 1 {
		took = p.at - f.seen[n-2].at
	}
	calmly := f.phase == calm && p.q <= f.threshold()
	for to, w := range f.witnesses {
		if p.at-w.last > witnessTime {
			delete(f.witnesses, to)
		} else if calmly {
			w.passes = w.passes || w.looks >= enoughLooks && w.all > someQueue && w.saw > w.all/2
			w.looks, w.saw, w.all = 0, 0, 0
		}
	}
	for _, x := range waits {
		switch w := f.witnesses[x.to]; {
		case !x.firm:
		case calmly && w == nil:
			f.witnesses[x.to] = &witness{more: x.q - p.q, last: p.at}
		case calmly:
			w.more += (x.q - p.q - w.more) * (1 - math.Exp(-took/usualWaitTime))
			w.last = p.at
		case w != nil:
			level := f.floor.level()
			w.last, w.looks = p.at, w.looks+1
			w.saw, w.all = w.saw+(x.q-w.more-level)*took, w.all+(p.q-level)*took
		}
	}
	if f.phase == draining && p.at-f.since > max(0.3, 2*p.rtt)+p.lag {
		f.doubt(p)
	}
}

// doubt notes that somebody disputes the queue that there is now, or that nobody does any more.
func (f *Follower) doubt(p point) {
	f.doubted = 0
	if f.disputed() {
		f.doubted = p.at
	}
}

// disputed reports whether a network that has seen an earlier queue has not seen the one that most see.
func (f *Follower) disputed() bool {
	const share = 0.25 // of the queue that is claimed
	for _, w := range f.witnesses {
		if w.passes && w.looks >= enoughLooks && w.saw < share*w.all {
			return true
		}
	}
	return false
}

// undisputed is the least rate that may be set at a time because packets wait, in bit/s: 0 where nobody disputes it.
func (f *Follower) undisputed(at float64) float64 {
	if f.doubted == 0 || at-f.doubted > doubtTime {
		return 0
	}
	return disputedShare * f.sure
}

// conclude takes the rate that is set for one that is sure, unless it is lower and somebody disputes why.
func (f *Follower) conclude(p point) {
	switch fell := f.phase == draining && f.steps == nil; {
	case f.rate >= f.sure:
		f.sure = f.rate
	case fell:
		if f.doubt(p); f.doubted == 0 {
			f.sure = f.rate
		}
		f.rate = max(f.rate, f.bound(f.undisputed(p.at)))
	case f.phase == yielding && f.undisputed(p.at) == 0:
		f.sure = f.rate
	}
}
