// SPDX-License-Identifier: Apache-2.0

package qdisc

import (
	"cmp"
	"slices"

	"weir/internal/units"
)

// Step is a part of a tree that packets pass: a discipline, or a class of one.
type Step struct {
	Kind    string
	Handle  Handle
	Parent  Handle
	Class   bool
	Several bool       // of classes: there are others beside it, or beside those below it
	Rate    units.Rate // bit/s that pass there at most; 0: any
	Stats   Stats
}

// Narrowest is the step with the lowest rate, of those that most of what leaves passes; false where none has a rate.
func (t Tree) Narrowest() (Step, bool) {
	root, ok := t.Root()
	if !ok {
		return Step{}, false
	}
	return narrowest(t.way(root, map[Handle]bool{}))
}

// Rate is the rate that most of what leaves can have at most, in bit/s; 0: any.
func (t Tree) Rate() units.Rate {
	s, _ := t.Narrowest()
	return s.Rate
}

func narrowest(way []Step) (least Step, ok bool) {
	for _, s := range way {
		if s.Rate != 0 && (least.Rate == 0 || s.Rate < least.Rate) {
			least = s
		}
	}
	return least, least.Rate != 0
}

// way is what most of what leaves passes from a discipline down. It ends where nothing tells which of several it is.
// seen guards against a tree that is none.
func (t Tree) way(q Qdisc, seen map[Handle]bool) []Step {
	if q.Handle != 0 && seen[q.Handle] {
		return nil
	}
	seen[q.Handle] = true
	here := Step{Kind: q.Kind, Handle: q.Handle, Parent: q.Parent, Rate: q.Rate(), Stats: q.Stats}
	k, _ := row(q.Kind)
	below := t.children(q)
	classes := slices.DeleteFunc(slices.Clone(t.Classes),
		func(c Class) bool { return q.Handle == 0 || c.Handle.major() != q.Handle.major() })
	switch {
	case k.ownQueues:
		return []Step{here}
	case len(classes) > 0:
		here.Rate = 0 // a Spec's is its class's
		leaf, some := serving(q, leaves(classes))
		if !some {
			return []Step{here}
		}
		c, rate := least(classes, leaf)
		steps := []Step{here, {Kind: c.Kind, Handle: c.Handle, Parent: c.Parent, Class: true,
			Several: len(leaves(classes)) > 1, Rate: rate, Stats: c.Stats}}
		if i := slices.IndexFunc(below, func(q Qdisc) bool { return q.Parent == leaf.Handle }); i >= 0 {
			steps = append(steps, t.way(below[i], seen)...)
		}
		return steps
	case len(below) == 1:
		// Those that the kernel has made in a prio's other bands are not listed.
		if _, most := serving(q, []Class{{Stats: below[0].Stats}}); k.slots != oneSlot && !most {
			return []Step{here}
		}
		return append([]Step{here}, t.way(below[0], seen)...)
	}
	limited, ways := false, map[Handle][]Step{}
	var bands []Class
	for _, b := range below {
		ways[b.Handle] = t.way(b, seen)
		_, has := narrowest(ways[b.Handle])
		limited = limited || has
		bands = append(bands, Class{Handle: b.Handle, Stats: b.Stats})
	}
	if band, some := serving(q, bands); some && limited {
		return append([]Step{here}, ways[band.Handle]...)
	}
	return []Step{here}
}

// leaves are the classes without others below.
func leaves(classes []Class) []Class {
	return slices.DeleteFunc(slices.Clone(classes), func(c Class) bool {
		return slices.ContainsFunc(classes, func(other Class) bool { return other.Parent == c.Handle })
	})
}

// serving is the one of several by which most has left q recently. Where nothing was counted recently it is that in
// which most waits, or by which most has ever left. It is false where more has passed none of them, as htb sends at
// once what it has no class for; and where nothing tells.
func serving(q Qdisc, several []Class) (c Class, ok bool) {
	if len(several) == 0 {
		return Class{}, false
	}
	count := counter(q)
	c = slices.MaxFunc(several, func(a, b Class) int {
		return cmp.Or(cmp.Compare(a.Stats.Recent.Bytes, b.Stats.Recent.Bytes),
			cmp.Compare(a.Stats.Backlog, b.Stats.Backlog), cmp.Compare(a.Stats.Bytes, b.Stats.Bytes))
	})
	past := count(q.Stats)
	for _, c := range several {
		past -= min(past, count(c.Stats))
	}
	known := len(several) == 1 || c.Stats.Bytes > 0 || c.Stats.Backlog > 0
	return c, known && past <= count(c.Stats)
}

// least is the class that bounds another, itself or one above it, and the rate in bit/s that it leaves it; 0: any.
//
// A class of htb always has its own rate. What it has up to its ceiling it borrows, and so needs a class above it that
// has some left (net/sched/sch_htb.c, htb_activate_prios). One of hfsc has its upper limit, and those above it.
func least(classes []Class, c Class) (binds Class, most units.Rate) {
	most, lends := cmp.Or(c.Ceil, c.Rate), units.Rate(0)
	others := slices.DeleteFunc(slices.Clone(classes), func(other Class) bool { return other.Handle == c.Handle })
	i := slices.IndexFunc(others, func(other Class) bool { return other.Handle == c.Parent })
	if i >= 0 {
		binds, lends = least(others, others[i])
	}
	switch {
	case c.Kind == "htb" && lends <= c.Rate:
		return c, min(most, c.Rate)
	case lends != 0 && (most == 0 || lends <= most):
		return binds, lends
	}
	return c, most
}
