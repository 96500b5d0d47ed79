// SPDX-License-Identifier: Apache-2.0

package qdisc

import (
	"bytes"
	"cmp"
	"encoding/json"
	"slices"

	"weir/internal/units"
)

// Qdisc is a queueing discipline as it is in force.
type Qdisc struct {
	Kind   string `json:"kind"`
	Handle Handle `json:"handle"` // "0:" where the kernel made it by itself
	Parent Handle `json:"parent"`
	// nil when this package has no type for the kind, or no words for what it does
	Spec         Spec   `json:"-"`
	Options      []byte `json:"options,omitempty"`       // TCA_OPTIONS as the kernel reports it
	SizeTable    []byte `json:"size_table,omitempty"`    // TCA_STAB, if there is one
	IngressBlock uint32 `json:"ingress_block,omitempty"` // shared filter blocks, 0: none
	EgressBlock  uint32 `json:"egress_block,omitempty"`
	Offloaded    bool   `json:"offloaded,omitempty"` // the hardware does it
	Stats        Stats  `json:"stats"`
}

// Class is a class that somebody made below a discipline. Those that fq_codel and its like make for their flows are not
// listed.
type Class struct {
	Kind    string     `json:"kind"`
	Handle  Handle     `json:"handle"`
	Parent  Handle     `json:"parent"`         // another class, or Root
	Leaf    Handle     `json:"leaf,omitempty"` // the discipline in it; "0:" if it is one that the kernel made by itself
	Rate    units.Rate `json:"rate,omitempty"` // htb; of hfsc the upper limit
	Ceil    units.Rate `json:"ceil,omitempty"` // the same
	Options []byte     `json:"options,omitempty"`
	Stats   Stats      `json:"stats"`
}

// Filter is a classifier attached to the root, to something below it, or to a class.
type Filter struct {
	Kind     string `json:"kind"`
	Parent   Handle `json:"parent"`
	Handle   uint32 `json:"handle"`   // the classifier's own numbering
	Priority uint16 `json:"priority"` // lower first
	Protocol uint16 `json:"protocol"` // Ethernet type
	Chain    uint32 `json:"chain,omitempty"`
	Root     bool   `json:"root,omitempty"`     // one of u32's tables that the kernel has made by itself
	Template bool   `json:"template,omitempty"` // it is a chain's template, and no filter
	Options  []byte `json:"options,omitempty"`

	drops uint64 // packets that a policer dropped which is said the older way (filterKind.police)
}

// Tree is everything below one device's root. Disciplines at the ingress are listed among the rest, with Ingress for a
// parent; their filters are not, and only SetIngress changes them.
type Tree struct {
	Qdiscs  []Qdisc  `json:"qdiscs"`
	Classes []Class  `json:"classes,omitempty"`
	Filters []Filter `json:"filters,omitempty"`
}

// Root is the discipline at the root. There is none while a device has never been up.
func (t Tree) Root() (Qdisc, bool) {
	for _, q := range t.Qdiscs {
		if q.Parent == Root {
			return q, true
		}
	}
	return Qdisc{}, false
}

// children are the disciplines right below q.
func (t Tree) children(q Qdisc) []Qdisc {
	var below []Qdisc
	if q.Handle == 0 && q.Parent != Root && q.Parent != Shaper {
		return nil
	}
	for _, c := range t.Qdiscs {
		if c.Parent != Root && c.Parent != Ingress && c.Parent.major() == q.Handle.major() {
			below = append(below, c)
		}
	}
	return below
}

// Stack reads the tree as a Stack: false when it has another shape. Several htb classes, filters and a size table are
// other shapes, as are kinds and options that have no type here. So is an mq whose queues differ. A root that the
// kernel made by itself reads as what it is.
func (t Tree) Stack() (Stack, bool) {
	root, ok := t.Root()
	if !ok || len(t.Filters) > 0 {
		return nil, false
	}
	return t.stack(root, map[Handle]bool{})
}

// stack reads q and what is below it; seen guards against a tree that is none.
func (t Tree) stack(q Qdisc, seen map[Handle]bool) (Stack, bool) {
	if q.Spec == nil || q.SizeTable != nil || q.Handle != 0 && seen[q.Handle] {
		return nil, false
	}
	seen[q.Handle] = true
	s := Stack{q.Spec}
	k, _ := find(q.Kind)
	below := t.children(q)
	switch {
	case len(below) == 0 || k.ownQueues:
		return s, true
	case k.slots == noSlots || k.slots != perQueue && len(below) > 1:
		return nil, false
	}
	first, ok := t.stack(below[0], seen)
	if !ok {
		return nil, false
	}
	for _, c := range below[1:] {
		if other, ok := t.stack(c, seen); !ok || !first.Equal(other) {
			return nil, false
		}
	}
	return append(s, first...), true
}

// Since is the tree with what it has counted since an earlier look: all of that where something was not there.
func (t Tree) Since(before Tree) Tree {
	t.Qdiscs, t.Classes = slices.Clone(t.Qdiscs), slices.Clone(t.Classes)
	for i, q := range t.Qdiscs {
		same := func(was Qdisc) bool { return was.Kind == q.Kind && was.Handle == q.Handle && was.Parent == q.Parent }
		was := Qdisc{}
		if j := slices.IndexFunc(before.Qdiscs, same); j >= 0 {
			was = before.Qdiscs[j]
		}
		t.Qdiscs[i].Stats = q.Stats.since(was.Stats)
	}
	for i, c := range t.Classes {
		was := Class{}
		if j := slices.IndexFunc(before.Classes, func(was Class) bool { return was.Handle == c.Handle }); j >= 0 {
			was = before.Classes[j]
		}
		t.Classes[i].Stats = c.Stats.since(was.Stats)
	}
	return t
}

// Same reports whether both are configured the same at the root and below, handles included; statistics do not count,
// nor does what is at the ingress. What a kind of filter that is not Restorable does is not compared: its options may
// hold counters.
func (t Tree) Same(other Tree) bool {
	same := func(a, b Qdisc) bool {
		if a.Kind != b.Kind || a.Handle != b.Handle || a.Parent != b.Parent || !bytes.Equal(a.SizeTable, b.SizeTable) ||
			a.IngressBlock != b.IngressBlock || a.EgressBlock != b.EgressBlock {
			return false
		}
		return bytes.Equal(replayable(a.Kind, a.Options), replayable(b.Kind, b.Options))
	}
	sameClass := func(a, b Class) bool {
		return a.Kind == b.Kind && a.Handle == b.Handle && a.Parent == b.Parent && bytes.Equal(a.Options, b.Options)
	}
	atIngress := func(q Qdisc) bool { return q.Parent == Ingress }
	a, b := t.sorted(), other.sorted()
	a.Qdiscs, b.Qdiscs = slices.DeleteFunc(a.Qdiscs, atIngress), slices.DeleteFunc(b.Qdiscs, atIngress)
	return slices.EqualFunc(a.Qdiscs, b.Qdiscs, same) && slices.EqualFunc(a.Classes, b.Classes, sameClass) &&
		slices.EqualFunc(a.Filters, b.Filters, sameFilter)
}

// sorted puts everything in an order that does not depend on the kernel's hash tables, the root first.
func (t Tree) sorted() Tree {
	t = Tree{slices.Clone(t.Qdiscs), slices.Clone(t.Classes), slices.Clone(t.Filters)}
	slices.SortStableFunc(t.Qdiscs, func(a, b Qdisc) int {
		// Root is the largest number there is
		return cmp.Or(cmp.Compare(a.Parent+1, b.Parent+1), cmp.Compare(a.Handle, b.Handle))
	})
	slices.SortStableFunc(t.Classes, func(a, b Class) int { return cmp.Compare(a.Handle, b.Handle) })
	slices.SortStableFunc(t.Filters, func(a, b Filter) int {
		if at := cmp.Or(cmp.Compare(a.Parent, b.Parent), cmp.Compare(a.Priority, b.Priority),
			cmp.Compare(a.Chain, b.Chain)); at != 0 || a.asksInOrder() {
			return at
		}
		return cmp.Compare(a.Handle, b.Handle)
	})
	return t
}

// MarshalJSON writes the Spec as its text.
func (q Qdisc) MarshalJSON() ([]byte, error) {
	type bare Qdisc
	text := ""
	if q.Spec != nil {
		text = q.Spec.String()
	}
	return json.Marshal(struct {
		bare
		Spec string `json:"spec,omitempty"`
	}{bare(q), text})
}

// UnmarshalJSON reads what MarshalJSON wrote; the type of the statistics' X is lost. A Spec that this version has no
// words for is none: what it takes to restore the tree is in the options.
func (q *Qdisc) UnmarshalJSON(b []byte) error {
	type bare Qdisc
	var v struct {
		bare
		Spec string `json:"spec"`
	}
	if err := json.Unmarshal(b, &v); err != nil {
		return err
	}
	*q = Qdisc(v.bare)
	if spec, err := Parse(v.Spec); err == nil {
		q.Spec = spec
	}
	return nil
}
