// SPDX-License-Identifier: Apache-2.0

package qdisc

import (
	"cmp"
	"encoding/binary"
	"slices"

	"weir/internal/units"
)

// Dropper is an action of a filter that has dropped packets since it was made, or that polices.
type Dropper struct {
	Parent   Handle     `json:"parent"`
	Filter   string     `json:"filter"` // its kind
	Handle   uint32     `json:"handle"` // and place
	Priority uint16     `json:"priority"`
	Action   string     `json:"action"`         // its kind
	Rate     units.Rate `json:"rate,omitempty"` // bit/s above which police acts; 0: another action
	Drops    uint64     `json:"drops"`          // packets; 32 bits wide in the kernel
}

// atEgress is where clsact has the filters for what leaves (TC_H_CLSACT, TC_H_MIN_EGRESS,
// include/uapi/linux/pkt_sched.h).
const atEgress Handle = 0xFFFFFFF3

// Droppers lists those of a device, whose tree has been read: at its root, below it, and at its ingress and egress.
func (c *Conn) Droppers(ifindex int, t Tree) (all []Dropper, err error) {
	filters := t.Filters
	for _, q := range t.Qdiscs {
		if q.Parent != Ingress {
			continue
		}
		parents := []Handle{atIngress}
		if q.Kind == "clsact" {
			parents = append(parents, atEgress)
		}
		for _, parent := range parents {
			more, err := c.filters(ifindex, parent)
			if err != nil {
				return nil, err
			}
			for i := range more {
				more[i].Parent = parent // the kernel says it as it was said when the first one came
			}
			filters = append(filters[:len(filters):len(filters)], more...)
		}
		break
	}
	for _, f := range filters {
		all = append(all, f.droppers()...)
	}
	return all, nil
}

func (f Filter) droppers() (all []Dropper) {
	for _, k := range filterKinds() {
		if k.name != f.Kind {
			continue
		}
		list, _ := unpack(f.Options) // of a filter that is not whole there is nothing to tell
		for _, a := range list {
			switch {
			case a.Type == k.actions:
				actions, _ := unpack(a.Data)
				for _, one := range actions {
					all = append(all, f.dropper(one.Data)...)
				}
			case a.Type == k.police && k.police != 0:
				all = append(all, Dropper{Parent: f.Parent, Filter: f.Kind, Handle: f.Handle, Priority: f.Priority,
					Action: "police", Rate: policed(a.Data)})
			}
		}
	}
	return all
}

// dropper is an action, if it is one.
func (f Filter) dropper(action []byte) []Dropper {
	const (
		stats      = 4 // TCA_ACT_STATS
		queueDrops = 8 // the offset in a struct gnet_stats_queue
	)
	d := Dropper{Parent: f.Parent, Filter: f.Kind, Handle: f.Handle, Priority: f.Priority,
		Action: cString(inner(action, actKind))}
	if queue := inner(inner(action, stats), statsQueue); len(queue) >= queueDrops+4 {
		d.Drops = uint64(binary.NativeEndian.Uint32(queue[queueDrops:]))
	}
	if d.Action == "police" {
		d.Rate = policed(inner(action, actOptions))
	}
	if d.Drops == 0 && d.Rate == 0 {
		return nil
	}
	return []Dropper{d}
}

// policed is the rate of a policer's options, in bit/s; 0 where it has none, as one that counts packets.
func policed(options []byte) units.Rate {
	const parms, rate64 = 1, 8 // TCA_POLICE_TBF, TCA_POLICE_RATE64
	if b := inner(options, rate64); len(b) == 8 {
		return units.Rate(8 * binary.NativeEndian.Uint64(b))
	}
	b := inner(options, parms)
	if len(b) < policeLen {
		return 0
	}
	return units.Rate(8 * uint64(binary.NativeEndian.Uint32(b[policeRate+rateBytes:])))
}

// Serving is the class below a root by which most has left recently, and the rate that it may have at most, in bit/s:
// its own, or that of a class above it. Where nothing was counted recently it is the class in which most waits, or by
// which most has ever left. Of a root without classes that has several disciplines, some of them with a rate, as prio's
// bands, it is such a discipline, by its handle. It is none, without a rate, where what leaves passes no class. It is
// false where there are not several.
func (t Tree) Serving() (c Class, rate units.Rate, ok bool) {
	at := map[Handle]Class{}
	inner := map[Handle]bool{}
	for _, c := range t.Classes {
		at[c.Handle], inner[c.Parent] = c, true
	}
	leaves := slices.DeleteFunc(slices.Clone(t.Classes), func(c Class) bool { return inner[c.Handle] })
	if len(t.Classes) == 0 {
		leaves = t.bands()
	}
	if len(leaves) < 2 {
		return Class{}, 0, false
	}
	root, _ := t.Root()
	past := root.Stats.Recent.Bytes // the classes: htb sends at once what has none
	for _, c := range leaves {
		past -= min(past, c.Stats.Recent.Bytes)
	}
	c = slices.MaxFunc(leaves, func(a, b Class) int {
		return cmp.Or(cmp.Compare(a.Stats.Recent.Bytes, b.Stats.Recent.Bytes),
			cmp.Compare(a.Stats.Backlog, b.Stats.Backlog), cmp.Compare(a.Stats.Bytes, b.Stats.Bytes))
	})
	if past > c.Stats.Recent.Bytes || c.Stats.Bytes == 0 && c.Stats.Backlog == 0 {
		return Class{}, 0, true
	}
	for above, there := c, true; there; above, there = at[above.Parent] {
		if most := max(above.Ceil, above.Rate); most != 0 && (rate == 0 || most < rate) {
			rate = most
		}
		delete(at, above.Handle) // of a tree that is none
	}
	return c, rate, true
}

// bands are the disciplines below the root as if they were classes; none where no rate is among them.
func (t Tree) bands() (all []Class) {
	root, _ := t.Root()
	limited := false
	for _, q := range t.Qdiscs {
		if q.Parent.major() == root.Handle.major() && q.Parent != Root && q.Parent != Ingress && root.Handle != 0 {
			rate := q.Rate()
			all = append(all, Class{Kind: q.Kind, Handle: q.Handle, Parent: q.Parent, Rate: rate, Stats: q.Stats})
			limited = limited || rate != 0
		}
	}
	if !limited {
		return nil
	}
	return all
}
