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
	extraWait, seenAt float64 // seconds: what its packets wait more than others' in calm, and when it was seen last
	looks             int     // at the queue that is there now
	ownSum, allSum    float64 // seconds², the sums over time of what it and all have seen of that queue
	passes            bool    // the bottleneck: it has seen an earlier queue that most have seen
}

// hearWitnesses takes what networks have seen at a look.
func (f *Follower) hearWitnesses(p point, waits []wait) {
	took := 0.
	if n := len(f.seen); n > 1 {
		took = p.at - f.seen[n-2].at
	}
	calmly := f.phase == calm && p.q <= f.threshold()
	for to, w := range f.witnesses {
		if p.at-w.seenAt > witnessTime {
			delete(f.witnesses, to)
		} else if calmly {
			w.passes = w.passes || w.looks >= enoughLooks && w.allSum > someQueue && w.ownSum > w.allSum/2
			w.looks, w.ownSum, w.allSum = 0, 0, 0
		}
	}
	for _, x := range waits {
		switch w := f.witnesses[x.to]; {
		case !x.enough:
		case calmly && w == nil:
			f.witnesses[x.to] = &witness{extraWait: x.q - p.q, seenAt: p.at}
		case calmly:
			w.extraWait += (x.q - p.q - w.extraWait) * (1 - math.Exp(-took/usualWaitTime))
			w.seenAt = p.at
		case w != nil:
			level := f.floor.level()
			w.seenAt, w.looks = p.at, w.looks+1
			w.ownSum, w.allSum = w.ownSum+(x.q-w.extraWait-level)*took, w.allSum+(p.q-level)*took
		}
	}
	if f.phase == draining && p.at-f.setAt > max(0.3, 2*p.rtt)+p.lag {
		f.noteDispute(p)
	}
}

// noteDispute notes that somebody disputes the queue that there is now, or that nobody does any more.
func (f *Follower) noteDispute(p point) {
	f.disputedAt = 0
	if f.isDisputed() {
		f.disputedAt = p.at
	}
}

// isDisputed reports whether a network that has seen an earlier queue has not seen the one that most see.
func (f *Follower) isDisputed() bool {
	const share = 0.25 // of the queue that is claimed
	for _, w := range f.witnesses {
		if w.passes && w.looks >= enoughLooks && w.ownSum < share*w.allSum {
			return true
		}
	}
	return false
}

// minWhileDisputed is the least rate that may be set at a time because packets wait, in bit/s: 0 where nobody disputes
// it.
func (f *Follower) minWhileDisputed(at float64) float64 {
	if f.disputedAt == 0 || at-f.disputedAt > doubtTime {
		return 0
	}
	return disputedShare * f.undisputedRate
}

// settleDispute takes the rate that is set for undisputed. Where it is lower and somebody disputes why, it raises it to
// what may be set then.
func (f *Follower) settleDispute(p point) {
	switch fell := f.phase == draining && f.probeSteps == nil; {
	case f.rate >= f.undisputedRate:
		f.undisputedRate = f.rate
	case fell:
		if f.noteDispute(p); f.disputedAt == 0 {
			f.undisputedRate = f.rate
		}
		f.rate = max(f.rate, f.clamp(f.minWhileDisputed(p.at)))
	case f.phase == yielding && f.minWhileDisputed(p.at) == 0:
		f.undisputedRate = f.rate
	}
}
