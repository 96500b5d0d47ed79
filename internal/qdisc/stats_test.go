// SPDX-License-Identifier: Apache-2.0

package qdisc

import (
	"encoding/binary"
	"fmt"
	"reflect"
	"testing"

	"github.com/mdlayher/netlink"
)

// packed is a kernel struct of these fields.
func packed(list ...any) (b []byte) {
	for _, v := range list {
		var err error
		if b, err = binary.Append(b, binary.NativeEndian, v); err != nil {
			panic(err)
		}
	}
	return b
}

// u32s and u64s are fields in a row, with values that no other has: from, from+1 and so on. Those of 64 bits use the
// upper half, too.
func u32s(from, n uint32) (list []uint32) {
	for i := range n {
		list = append(list, from+i)
	}
	return list
}

func u64s(from, n uint64) (list []uint64) {
	for i := range n {
		list = append(list, (from+i)<<40)
	}
	return list
}

// numbered are attributes first to last, each with its type as its value.
func numbered(first, last uint16, wide ...uint16) (list []netlink.Attribute) {
	is64 := map[uint16]bool{}
	for _, t := range wide {
		is64[t] = true
	}
	for t := first; t <= last; t++ {
		a := netlink.Attribute{Type: t, Data: packed(uint32(t))}
		if is64[t] {
			a.Data = packed(uint64(t) << 40)
		}
		list = append(list, a)
	}
	return list
}

// statistic is what a kind's own counters look like, and what they are read as.
type statistic struct {
	bytes []byte
	marks uint64
	own   any
}

// ownStatistics has each kind's struct as include/uapi/linux/pkt_sched.h lays it out. No two fields have
// the same value.
func ownStatistics() map[string]statistic {
	tin := CakeTin{Threshold: 8 * 12 << 40, SentBytes: 3 << 40, SentPackets: 2, Backlog: 11, Target: 13, Interval: 14,
		Drops: 4, Marks: 8, ACKDrops: 6, PeakDelay: 18, AvgDelay: 19, BaseDelay: 20, WayIndirectHits: 15, WayMisses: 16,
		WayCollisions: 17, SparseFlows: 21, BulkFlows: 22, UnresponsiveFlows: 23, MaxPacket: 24, FlowQuantum: 25}
	one := netlink.Attribute{Type: 1, Data: pack(numbered(2, 25, 3, 5, 7, 9, 12)...)}
	two := netlink.Attribute{Type: 2, Data: one.Data}
	cake := append(numbered(2, 9, 2), netlink.Attribute{Type: 10, Data: pack(one, two)})
	return map[string]statistic{
		"cake": {pack(append(cake, numbered(11, 17)...)...), 16,
			CakeStats{CapacityEstimate: 8 * 2 << 40, MemoryLimit: 3, MemoryUsed: 4, AvgOverhead: 5, MinLength: 6,
				MaxLength: 7, MinAdjusted: 8, MaxAdjusted: 9, ActiveQueues: 17, Tins: []CakeTin{tin, tin}}},
		"codel": {packed(u32s(1, 4), int32(-5), u32s(6, 4)), 7 + 9,
			codelStats{MaxPacket: 1, Count: 2, LastCount: 3, Delay: 4, DropNext: -5, DropOverlimit: 6, ECNMarks: 7,
				Dropping: true, CEMarks: 9}},
		"dualpi2": {packed(uint32(1<<31), u32s(2, 7), int32(-9), u32s(10, 3)), 7,
			DualPI2Stats{Probability: float64(1<<31) / (1<<32 - 1), DelayC: 2, DelayL: 3, PacketsC: 4,
				PacketsL: 5, MaxQueue: 6, ECNMarks: 7, StepMarks: 8, Credit: -9, MemoryUsed: 10,
				MaxMemoryUsed: 11, MemoryLimit: 12}},
		"fq": {packed(u64s(1, 7), int64(-8), u32s(9, 4), u64s(13, 4), u64s(17, 3), u32s(20, 3), uint32(0)), 13 << 40,
			fqStats{GCFlows: 1 << 40, Throttled: 4 << 40, FlowsLimit: 5 << 40, TooLong: 6 << 40,
				AllocationErrors: 7 << 40, NextDelayedFlow: -8, Flows: 9, InactiveFlows: 10, ThrottledFlows: 11,
				UnthrottleLatencyNs: 12, CEMarks: 13 << 40, HorizonDrops: 14 << 40, HorizonCaps: 15 << 40,
				FastPath: 16 << 40, BandDrops: [3]uint64{17 << 40, 18 << 40, 19 << 40},
				BandPackets: [3]uint32{20, 21, 22}}},
		"fq_codel": {packed(uint32(0), u32s(1, 9)), 3 + 7,
			fqCodelStats{MaxPacket: 1, DropOverlimit: 2, ECNMarks: 3, NewFlowCount: 4, NewFlows: 5, OldFlows: 6,
				CEMarks: 7, MemoryUsage: 8, DropOvermemory: 9}},
		"fq_pie": {packed(u32s(1, 9)), 5, nil},
		"htb class": {packed(u32s(1, 3), int32(-4), int32(-5)), 0,
			htbStats{Lends: 1, Borrows: 2, Giants: 3, Tokens: -4, CTokens: -5}},
		"netem": {packed(u64s(1, 7)), 6 << 40,
			netemStats{Delayed: 1 << 40, Dropped: 2 << 40, Corrupted: 3 << 40, Duplicated: 4 << 40, Reordered: 5 << 40,
				ECNMarks: 6 << 40}},
		"pie": {packed(uint64(1<<62), u32s(2, 8)), 9,
			pieStats{Probability: 0.25, Delay: 2, Packets: 5, Dropped: 6, Overlimit: 7, MaxQueue: 8, ECNMarks: 9}},
		"red": {packed(u32s(1, 4)), 4, redStats{Early: 1, Full: 2, Other: 3, Marked: 4}},
	}
}

// Every counter is read from its own place, for every kind that has some. Of a struct that is cut short, as an older
// kernel's is, the rest is zero.
func TestOwnStatistics(t *testing.T) {
	cases := ownStatistics()
	for _, k := range kinds() {
		for name, decode := range map[string]any{k.name: k.stats, k.name + " class": k.classStats} {
			if _, ok := cases[name]; !ok && !reflect.ValueOf(decode).IsNil() {
				t.Errorf("%s: no bytes to read", name)
			}
		}
	}
	for name, c := range cases {
		var kind string
		_, _ = fmt.Sscan(name, &kind)
		read := func(b []byte) (Stats, error) {
			text := pack(netlink.Attribute{Type: statsApp, Data: b})
			if kind != name {
				return decodeClassStats(kind, text)
			}
			return decodeQdiscStats(kind, text)
		}
		got, err := read(c.bytes)
		overflows := map[string]uint64{"codel": 6, "fq_codel": 2, "pie": 7}[name]
		want := Stats{Marks: c.marks, Overflows: overflows, X: c.own}
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v, %v; want %+v", name, got, err, want)
		}
		if c.own == nil {
			continue
		}
		for own, i := reflect.ValueOf(c.own), 0; i < own.NumField(); i++ {
			if own.Field(i).IsZero() {
				t.Errorf("%s: %s is not looked at", name, own.Type().Field(i).Name)
			}
		}
		if short, err := read(nil); kind != "cake" &&
			(err != nil || short.Marks != 0 || !reflect.ValueOf(short.X).IsZero()) {
			t.Errorf("%s: of nothing: %+v, %v", name, short, err)
		}
	}
	older := ownStatistics()["fq"].bytes[:11*8] // up to ce_mark
	got, err := decodeQdiscStats("fq", pack(netlink.Attribute{Type: statsApp, Data: older}))
	if x, ok := got.X.(fqStats); err != nil || !ok || x.HorizonDrops != 0 || x.CEMarks != 13<<40 {
		t.Errorf("an older fq: %+v, %v", got, err)
	}
	if got, err := decodeQdiscStats("fq_codel", pack(netlink.Attribute{Type: statsApp, Data: packed(uint32(1),
		u32s(1, 9))})); err != nil || got.X != nil {
		t.Errorf("a class of fq_codel, which is a flow: %+v, %v", got, err)
	}
}

// The counters that all kinds have, and what makes no sense.
func TestStatistics(t *testing.T) {
	basic := netlink.Attribute{Type: statsBasic, Data: packed(uint64(1<<40), uint32(2), uint32(0))}
	queue := netlink.Attribute{Type: statsQueue, Data: packed(u32s(3, 5))}
	want := Stats{Bytes: 1 << 40, Packets: 2, Qlen: 3, Backlog: 4, Drops: 5, Requeues: 6, Overlimits: 7}
	if got, err := decodeQdiscStats("pfifo", pack(basic, queue)); err != nil || got != want {
		t.Errorf("%+v, %v; want %+v", got, err, want)
	}
	// Above 2^32 packets the kernel sends them once more, in 64 bits; in whichever order.
	many := netlink.Attribute{Type: statsPackets64, Data: packed(uint64(1<<32 + 2))}
	want.Packets = 1<<32 + 2
	for _, b := range [][]byte{pack(basic, many, queue), pack(many, basic, queue)} {
		if got, err := decodeQdiscStats("pfifo", b); err != nil || got != want {
			t.Errorf("%+v, %v; want %+v", got, err, want)
		}
	}
	for name, b := range map[string][]byte{
		"11 bytes of basic":    pack(netlink.Attribute{Type: statsBasic, Data: basic.Data[:11]}),
		"19 bytes of a queue":  pack(netlink.Attribute{Type: statsQueue, Data: queue.Data[:19]}),
		"no attributes":        {1, 2, 3},
		"cake's no attributes": pack(netlink.Attribute{Type: statsApp, Data: []byte{1, 2, 3, 4, 5}}),
		"cake's broken tins": pack(netlink.Attribute{Type: statsApp,
			Data: pack(netlink.Attribute{Type: 10, Data: []byte{1, 2, 3, 4, 5}})}),
		"cake's broken tin": pack(netlink.Attribute{Type: statsApp, Data: pack(netlink.Attribute{Type: 10,
			Data: pack(netlink.Attribute{Type: 1, Data: []byte{1, 2, 3, 4, 5}})})}),
	} {
		if got, err := decodeQdiscStats("cake", b); err == nil {
			t.Errorf("%s: %+v, want an error", name, got)
		}
	}
	whole := netlink.Attribute{Type: statsBasic, Data: basic.Data[:12]}
	if got, err := decodeQdiscStats("pfifo", pack(whole, queue)); err != nil || got.Packets != 2 {
		t.Errorf("12 bytes of basic: %+v, %v", got, err)
	}
}
