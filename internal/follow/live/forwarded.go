// SPDX-License-Identifier: Apache-2.0

package live

import (
	"hash/maphash"
	"net/netip"
	"slices"
	"time"

	"weir/internal/follow"
	"weir/internal/rtt"
)

// forwarded is what looks remember of connections that this host forwards.
type forwarded struct {
	watch   *rtt.Watch
	seed    maphash.Seed // of the names that connections have for follow
	chosen  []rtt.Flow
	carried map[rtt.ID]rtt.Flow // at the last look at all
	at      time.Time           // of that
	rates   map[rtt.ID]float64  // RTTs a second
}

func openForwarded(devices []int) (*forwarded, error) {
	w, err := rtt.Open(devices...)
	if err != nil {
		return nil, err
	}
	return &forwarded{watch: w, seed: maphash.MakeSeed()}, nil
}

// choose takes those that have carried most since all were looked at last.
func (f *forwarded) choose(few int) error {
	all, err := f.watch.Read()
	if err != nil {
		return err
	}
	f.take(all, few, time.Now())
	return nil
}

func (f *forwarded) take(all []rtt.Flow, few int, now time.Time) {
	all = spread(all, func(x rtt.Flow) (uint64, netip.Addr) {
		before := f.carried[x.ID].Acked
		if before > x.Acked {
			before = 0 // it was forgotten meanwhile, and begins anew
		}
		return x.Acked - before, x.There.Addr()
	})
	old := f.chosen
	f.chosen = slices.Clone(all[:min(few, len(all))])
	f.rates = map[rtt.ID]float64{}
	for i, x := range f.chosen {
		if j := slices.IndexFunc(old, func(c rtt.Flow) bool { return c.ID == x.ID }); j >= 0 {
			f.chosen[i] = old[j] // what it has carried since the last look counts at the next
		}
		if before, seen := f.carried[x.ID]; seen && now.After(f.at) && x.Samples >= before.Samples {
			f.rates[x.ID] = float64(x.Samples-before.Samples) / now.Sub(f.at).Seconds()
		}
	}
	f.carried, f.at = make(map[rtt.ID]rtt.Flow, len(all)), now
	for _, x := range all {
		f.carried[x.ID] = x
	}
}

// moves reports whether any has carried something since all were looked at last.
func (f *forwarded) moves() (moved bool) {
	before := f.carried
	if f.choose(0) != nil {
		return false
	}
	for id, x := range f.carried {
		moved = moved || x.Acked != before[id].Acked
	}
	return moved
}

// pair is a connection at the look before, and now.
type pair struct{ before, now rtt.Flow }

// again looks at the chosen ones.
func (f *forwarded) again() (all []pair, err error) {
	now, err := f.watch.Again(f.chosen)
	if err != nil {
		return nil, err
	}
	chosen := slices.Clone(now)
	for j, x := range now {
		if i := slices.IndexFunc(f.chosen, func(c rtt.Flow) bool { return c.ID == x.ID }); i >= 0 {
			all = append(all, pair{f.chosen[i], x})
			if x.Acked == f.chosen[i].Acked {
				chosen[j] = f.chosen[i] // what it lost counts when something is acknowledged
			}
		}
	}
	f.chosen = chosen
	return all, nil
}

// movedPairs are forwarded connections that have carried something since the look before.
func (e *eye) movedPairs(all []pair) (moved []follow.Connection) {
	for _, p := range all {
		x, mss := p.now, float64(p.now.MSS)
		base := e.base(x.There.Addr(), x.Least)
		if x.Samples == 0 || x.Acked <= p.before.Acked || x.Again < p.before.Again || base == 0 || mss == 0 {
			continue // nothing new is known of it
		}
		moved = append(moved, follow.Connection{ID: maphash.Comparable(e.forwarded.seed, x.ID), RTT: x.Smooth,
			Base: base, Past: true, Samples: x.Samples, Sum: x.Sum,
			Rate: 2 * e.forwarded.rates[x.ID], // of packets, every second one of which tells an RTT
			To:   network(x.There.Addr()), Delivered: float64(x.Acked-p.before.Acked) / mss,
			Size: e.size(x.There.Addr(), x.MSS, true), Lost: float64(x.Again-p.before.Again) / mss,
			Forwarded: true})
	}
	return moved
}
