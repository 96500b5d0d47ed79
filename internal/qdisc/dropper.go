// SPDX-License-Identifier: Apache-2.0

package qdisc

import (
	"encoding/binary"

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
					Action: "police", Rate: policed(a.Data), Drops: f.drops})
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

// policerDrops is what a policer has dropped that is said the older way, in packets, of a struct tc_stats
// (include/uapi/linux/pkt_sched.h). The kernel has it beside the filter's options, and nowhere for an action
// (net/sched/act_api.c, tcf_action_copy_stats).
func policerDrops(stats []byte) uint64 {
	f := &fields{stats}
	f.u64() // bytes
	f.u32() // packets
	return uint64(f.u32())
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
