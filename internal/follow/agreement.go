// SPDX-License-Identifier: Apache-2.0

package follow

import (
	"net/netip"
	"slices"
)

// Who receives says what has come, and may deny it. A policer drops what is everybody's, though it may be a few
// connections' for a while. So two networks of clients have to have lost some.

// tally counts packets of a network of clients.
type tally struct {
	lost, all float64 // since it is known
	last      float64 // when it was seen last, in seconds
}

// countLosses adds a look to what networks have lost, and returns how they stand. What is seen past the shaper says
// nothing of losses.
func (f *Follower) countLosses(at float64, connections []Connection) map[netip.Addr]tally {
	const quiet = 10 // seconds, after which nothing is kept of a network
	for to, t := range f.tallies {
		if at-t.last > quiet {
			delete(f.tallies, to)
		}
	}
	for _, c := range connections {
		if c.Past {
			continue
		}
		t := f.tallies[c.To]
		if t == nil {
			t = &tally{}
			f.tallies[c.To] = t
		}
		t.lost, t.all, t.last = t.lost+c.Lost, t.all+c.Lost+c.Delivered, at
	}
	now := make(map[netip.Addr]tally, len(f.tallies))
	for to, t := range f.tallies {
		now[to] = *t
	}
	return now
}

// agreement is what networks say of losses together.
type agreement int

const (
	untoldLoss   agreement = iota // there are too few packets to tell
	agreedLoss                    // by two networks, or there is only one
	disputedLoss                  // by all networks but one
)

// agreement says what networks have lost of late, since a time or longer. One that passes the bottleneck, and has lost
// none, disputes that the rate falls far because of it.
func (f *Follower) agreement(p point, from float64) agreement {
	from = min(from, p.at-agreementTime)
	type network struct {
		tally
		to netip.Addr
	}
	a, b := f.pointBefore(from), f.pointBefore(p.at)
	beyond, _, all := f.countMissing(from, p.at)
	share, here := beyond/max(1, all), b.lost-a.lost-beyond // here: packets that the shaper has dropped
	var each []network
	for to, now := range b.networks {
		t := tally{lost: now.lost - a.networks[to].lost, all: now.all - a.networks[to].all}
		if t.lost -= here * t.all / max(1, all); t.all > 0 {
			each = append(each, network{t, to})
		}
	}
	private := func(n network) bool { return isPrivate(n.to) }
	if public := slices.DeleteFunc(slices.Clone(each), private); len(public) > 0 {
		each = public
	}
	if len(each) < 2 {
		return agreedLoss
	}
	usual := f.loss.usualLost / max(1, f.loss.usualAll)
	some := func(n network) bool { return n.lost >= 1+2*usual*n.all }
	denies := func(n network) bool { return share*n.all >= toldLosses && !some(n) }
	for _, n := range each {
		if w := f.witnesses[n.to]; w != nil && w.passes && denies(n) {
			f.disputedAt = p.at
		}
	}
	losers, others := 0, 0. // others: packets of those who have lost none
	for _, n := range each {
		if some(n) {
			losers++
		} else {
			others += n.all
		}
	}
	switch {
	case losers > 1:
		return agreedLoss
	case share*others >= toldLosses:
		return disputedLoss
	}
	return untoldLoss
}
