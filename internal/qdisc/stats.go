// SPDX-License-Identifier: Apache-2.0

package qdisc

import (
	"encoding/binary"
	"fmt"
)

// Stats are a discipline's or a class's counters since it was created. Those in uint64 here are 32 bits wide in the
// kernel and wrap, Bytes and Packets excepted.
type Stats struct {
	Bytes      uint64 `json:"bytes"`      // bytes sent
	Packets    uint64 `json:"packets"`    // packets sent
	Drops      uint64 `json:"drops"`      // packets dropped, for whatever reason
	Overlimits uint64 `json:"overlimits"` // times that a packet had to wait for a shaper
	Requeues   uint64 `json:"requeues"`   // packets that the device did not take at once
	Backlog    uint64 `json:"backlog"`    // bytes waiting now
	Qlen       uint64 `json:"qlen"`       // packets waiting now
	// packets marked CE, where the kind counts them; for mq and cake_mq the sum over their queues
	Marks uint64 `json:"marks"`
	// packets dropped for lack of room, where the kind counts them apart: fq_codel, codel and pie
	Overflows uint64 `json:"overflows,omitempty"`
	// the kind's own: dualpi2.Stats, CakeStats, DualPI2Stats, or one that only JSON shows; or nil
	X any `json:"x,omitempty"`
	// it has a rate estimator (tc's "estimator"), and the kernel reports rates, but not over which times
	Estimated bool `json:"estimated,omitempty"`
	// what of it was counted between two looks, as Tree.Since says it
	Recent Recent `json:"recent,omitzero"`
}

// Recent is what was counted in a while.
type Recent struct {
	Bytes uint64 `json:"bytes"`
	Drops uint64 `json:"drops"` // packets
}

// since has the Recent of what an earlier look found. What counts less than then was made anew.
func (s Stats) since(before Stats) Stats {
	rise := func(now, was uint64) uint64 {
		if now < was {
			return now
		}
		return now - was
	}
	s.Recent = Recent{rise(s.Bytes, before.Bytes), rise(s.Drops, before.Drops)}
	return s
}

// The attributes of statistics (TCA_STATS_*, include/uapi/linux/gen_stats.h).
const (
	statsBasic     = 1
	statsRate      = 2
	statsQueue     = 3
	statsApp       = 4
	statsPackets64 = 8
)

// fields reads a kernel struct field by field. Such structs only ever grow at their end: what an older kernel leaves
// out is zero.
type fields struct{ b []byte }

func (f *fields) u32() uint32 {
	if len(f.b) < 4 {
		f.b = nil
		return 0
	}
	v := binary.NativeEndian.Uint32(f.b)
	f.b = f.b[4:]
	return v
}

func (f *fields) u64() uint64 {
	if len(f.b) < 8 {
		f.b = nil
		return 0
	}
	v := binary.NativeEndian.Uint64(f.b)
	f.b = f.b[8:]
	return v
}

// decodeQdiscStats reads the TCA_STATS2 of a queueing discipline.
func decodeQdiscStats(kind string, b []byte) (Stats, error) {
	k, _ := row(kind)
	return decodeStats(kind, b, k.stats)
}

// decodeClassStats reads the TCA_STATS2 of a class. Of classes that are flows there is nothing to tell.
func decodeClassStats(kind string, b []byte) (Stats, error) {
	k, _ := row(kind)
	return decodeStats(kind, b, k.classStats)
}

// decodeStats reads TCA_STATS2. own reads what a kind counts by itself; nil where that is nothing.
func decodeStats(kind string, b []byte, own func(*Stats, []byte) error) (Stats, error) {
	attributes, err := unpack(b)
	if err != nil {
		return Stats{}, fmt.Errorf("statistics: %w", err)
	}
	var s Stats
	var packets64 uint64
	for _, a := range attributes {
		f := &fields{a.Data}
		switch a.Type {
		case statsBasic: // struct gnet_stats_basic
			if len(a.Data) < 12 {
				return Stats{}, fmt.Errorf("statistics: %d bytes are too short for the basic counters", len(a.Data))
			}
			s.Bytes, s.Packets = f.u64(), uint64(f.u32())
		case statsRate:
			s.Estimated = true
		case statsPackets64:
			packets64 = f.u64()
		case statsQueue: // struct gnet_stats_queue
			if len(a.Data) < 20 {
				return Stats{}, fmt.Errorf("statistics: %d bytes are too short for the queue's", len(a.Data))
			}
			s.Qlen, s.Backlog, s.Drops = uint64(f.u32()), uint64(f.u32()), uint64(f.u32())
			s.Requeues, s.Overlimits = uint64(f.u32()), uint64(f.u32())
		case statsApp:
			if own == nil {
				continue
			}
			if err := own(&s, a.Data); err != nil {
				return Stats{}, fmt.Errorf("statistics of %s: %w", kind, err)
			}
		}
	}
	s.Packets = max(s.Packets, packets64)
	return s, nil
}
