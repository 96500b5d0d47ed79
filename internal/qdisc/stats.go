// SPDX-License-Identifier: Apache-2.0

package qdisc

import (
	"encoding/binary"
	"fmt"
	"time"

	"weir/internal/dualpi2"
	"weir/internal/units"
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
	// the kind's own: BPFDualPI2Stats, CakeStats, CodelStats, DualPI2Stats, FQCodelStats, FQStats, HTBStats,
	// NetemStats, PIEStats, REDStats; or nil
	X any `json:"x,omitempty"`
}

// CakeStats are cake's (TCA_CAKE_STATS_*).
type CakeStats struct {
	CapacityEstimate uint64    `json:"capacity_estimate"` // bit/s, for autorate-ingress
	MemoryLimit      uint32    `json:"memory_limit"`      // bytes
	MemoryUsed       uint32    `json:"memory_used"`       // bytes, the most so far
	AvgOverhead      uint32    `json:"avg_overhead"`      // bytes of link header per packet
	MinLength        uint32    `json:"min_length"`        // bytes of a packet at the network layer
	MaxLength        uint32    `json:"max_length"`        // bytes
	MinAdjusted      uint32    `json:"min_adjusted"`      // bytes of a packet as the shaper counts it
	MaxAdjusted      uint32    `json:"max_adjusted"`      // bytes
	ActiveQueues     uint32    `json:"active_queues"`     // of cake_mq, sharing the rate now
	Tins             []CakeTin `json:"tins"`              // lowest priority first
}

// CakeTin is one of cake's priority levels (TCA_CAKE_TIN_STATS_*).
type CakeTin struct {
	Threshold         uint64 `json:"threshold"`          // bit/s up to which the tin has its priority
	SentBytes         uint64 `json:"sent_bytes"`         //
	SentPackets       uint32 `json:"sent_packets"`       // drops included
	Backlog           uint32 `json:"backlog"`            // bytes waiting now
	Target            uint32 `json:"target_us"`          // us
	Interval          uint32 `json:"interval_us"`        // us
	Drops             uint32 `json:"drops"`              // packets
	Marks             uint32 `json:"ecn_mark"`           // packets
	ACKDrops          uint32 `json:"ack_drops"`          // packets dropped by the ACK filter
	PeakDelay         uint32 `json:"peak_delay_us"`      // us, moving
	AvgDelay          uint32 `json:"avg_delay_us"`       // us, moving
	BaseDelay         uint32 `json:"base_delay_us"`      // us, of sparse flows
	WayIndirectHits   uint32 `json:"way_indirect_hits"`  // flows that had to move to another queue of their set
	WayMisses         uint32 `json:"way_misses"`         // flows that got a new queue
	WayCollisions     uint32 `json:"way_collisions"`     // flows that share one
	SparseFlows       uint32 `json:"sparse_flows"`       //
	BulkFlows         uint32 `json:"bulk_flows"`         //
	UnresponsiveFlows uint32 `json:"unresponsive_flows"` //
	MaxPacket         uint32 `json:"max_packet"`         // bytes
	FlowQuantum       uint32 `json:"flow_quantum"`       // bytes
}

// DualPI2Stats are dualpi2's (struct tc_dualpi2_xstats).
type DualPI2Stats struct {
	Probability   float64 `json:"probability"`     // base probability p', 0 to 1
	DelayC        uint32  `json:"delay_c_us"`      // us that the packet at the head of the C queue has waited
	DelayL        uint32  `json:"delay_l_us"`      // us, the L queue
	PacketsC      uint32  `json:"packets_c"`       // enqueued
	PacketsL      uint32  `json:"packets_l"`       // enqueued
	MaxQueue      uint32  `json:"max_queue"`       // packets, the most so far
	ECNMarks      uint32  `json:"ecn_marks"`       // packets marked; one that the step marks as well counts twice
	StepMarks     uint32  `json:"step_marks"`      // of those, by the L queue's step
	Credit        int32   `json:"credit"`          // bytes; positive: the C queue is next
	MemoryUsed    uint32  `json:"memory_used"`     // bytes
	MaxMemoryUsed uint32  `json:"max_memory_used"` // bytes
	MemoryLimit   uint32  `json:"memory_limit"`    // bytes
}

// BPFDualPI2Stats are bpf_dualpi2's: dualpi2's, and what else the programs count.
type BPFDualPI2Stats struct {
	Probability float64 `json:"probability"` // base probability p', 0 to 1
	DelayC      uint32  `json:"delay_c_us"`  // us that the packet at the head of the C queue has waited
	DelayL      uint32  `json:"delay_l_us"`  // us, the L queue
	PacketsC    uint64  `json:"packets_c"`   // enqueued
	PacketsL    uint64  `json:"packets_l"`   // enqueued
	MaxQueue    uint32  `json:"max_queue"`   // packets, the most so far
	ECNMarks    uint64  `json:"ecn_marks"`   // packets marked, for whatever reason
	StepMarks   uint64  `json:"step_marks"`  // of those, by the L queue's step
	// packets that should have been, and were predicted to wait for less than they did
	StepMissed    uint64 `json:"step_missed"`
	StepEarly     uint64 `json:"step_early"`      // packets that should not have been
	Credit        int32  `json:"credit"`          // positive: the C queue is next
	MemoryUsed    uint32 `json:"memory_used"`     // bytes
	MaxMemoryUsed uint32 `json:"max_memory_used"` // bytes
	MemoryLimit   uint32 `json:"memory_limit"`    // bytes
	Unmarked      uint64 `json:"unmarked"`        // packets that came past the program that marks
	// packets whose note from that program another TCX program had written over
	Overwritten  uint64  `json:"overwritten"`
	Superpackets uint64  `json:"superpackets"` // packets of several segments that came whole
	SojournC     Sojourn `json:"sojourn_c"`
	SojournL     Sojourn `json:"sojourn_l"`
}

// Sojourn is how long the packets of a queue have waited.
type Sojourn struct {
	Packets   uint64            `json:"packets"`
	Mean      units.Duration    `json:"mean"`
	P50       units.Duration    `json:"p50"`
	P99       units.Duration    `json:"p99"`
	Max       units.Duration    `json:"max"`
	Histogram dualpi2.Histogram `json:"-"` // whole
}

func sojourn(h dualpi2.Histogram) Sojourn {
	return Sojourn{h.Packets, units.Duration(h.Mean()), units.Duration(h.Quantile(0.5)),
		units.Duration(h.Quantile(0.99)), units.Duration(h.Max), h}
}

// Since gives what was counted after an earlier look at the same instance. What is not a count stays as it is, and so
// do the most that there were.
func (s BPFDualPI2Stats) Since(before BPFDualPI2Stats) BPFDualPI2Stats {
	since := func(now, then Sojourn) Sojourn {
		h := now.Histogram
		h.Packets -= then.Histogram.Packets
		h.Sum -= then.Histogram.Sum
		for i := range h.Count {
			h.Count[i] -= then.Histogram.Count[i]
		}
		return sojourn(h)
	}
	s.PacketsC -= before.PacketsC
	s.PacketsL -= before.PacketsL
	s.ECNMarks -= before.ECNMarks
	s.StepMarks -= before.StepMarks
	s.StepMissed -= before.StepMissed
	s.StepEarly -= before.StepEarly
	s.Unmarked -= before.Unmarked
	s.Overwritten -= before.Overwritten
	s.Superpackets -= before.Superpackets
	s.SojournC = since(s.SojournC, before.SojournC)
	s.SojournL = since(s.SojournL, before.SojournL)
	return s
}

func bpfStats(i dualpi2.Instance) BPFDualPI2Stats {
	s := i.Stats
	microseconds := func(d time.Duration) uint32 { return uint32(d / time.Microsecond) }
	return BPFDualPI2Stats{
		Probability: float64(s.Prob) / 0xFFFFFFFF, DelayC: microseconds(s.DelayC), DelayL: microseconds(s.DelayL),
		PacketsC: s.PacketsInC, PacketsL: s.PacketsInL, MaxQueue: s.MaxQ,
		ECNMarks: s.ECNMark, StepMarks: s.StepMark, StepMissed: s.StepMissed, StepEarly: s.StepEarly,
		Credit: s.Credit, MemoryUsed: s.MemoryUsed, MaxMemoryUsed: s.MaxMemory, MemoryLimit: i.Stats.MemLimit,
		Unmarked: s.Unmarked, Overwritten: s.Overwritten, Superpackets: s.Superpackets, SojournC: sojourn(s.SojournC),
		SojournL: sojourn(s.SojournL),
	}
}

// FQCodelStats are fq_codel's (struct tc_fq_codel_qd_stats).
type FQCodelStats struct {
	MaxPacket      uint32 `json:"max_packet"`      // bytes
	DropOverlimit  uint32 `json:"drop_overlimit"`  // packets dropped at the packet limit
	ECNMarks       uint32 `json:"ecn_marks"`       // packets
	NewFlowCount   uint32 `json:"new_flow_count"`  // flows that started
	NewFlows       uint32 `json:"new_flows"`       // in the list of new flows now
	OldFlows       uint32 `json:"old_flows"`       // in the list of old flows now
	CEMarks        uint32 `json:"ce_marks"`        // packets marked above ce_threshold
	MemoryUsage    uint32 `json:"memory_usage"`    // bytes
	DropOvermemory uint32 `json:"drop_overmemory"` // packets dropped at the memory limit
}

// FQStats are fq's (struct tc_fq_qd_stats); an older kernel's lack the last ones.
type FQStats struct {
	GCFlows             uint64    `json:"gc_flows"`               // idle flows forgotten
	Throttled           uint64    `json:"throttled"`              // times that a flow waited for its pace
	FlowsLimit          uint64    `json:"flows_plimit"`           // packets dropped at flow_limit
	TooLong             uint64    `json:"pkts_too_long"`          // packets larger than their pace allows
	AllocationErrors    uint64    `json:"allocation_errors"`      //
	NextDelayedFlow     int64     `json:"time_next_delayed_flow"` // ns from now
	Flows               uint32    `json:"flows"`                  // known now
	InactiveFlows       uint32    `json:"inactive_flows"`         //
	ThrottledFlows      uint32    `json:"throttled_flows"`        // waiting for their pace now
	UnthrottleLatencyNs uint32    `json:"unthrottle_latency_ns"`  // by which the timer was late, moving
	CEMarks             uint64    `json:"ce_mark"`                // packets marked above ce_threshold
	HorizonDrops        uint64    `json:"horizon_drops"`          // packets
	HorizonCaps         uint64    `json:"horizon_caps"`           // packets
	FastPath            uint64    `json:"fastpath_packets"`       // packets that needed no queue
	BandDrops           [3]uint64 `json:"band_drops"`             // packets
	BandPackets         [3]uint32 `json:"band_packets"`           // waiting now
}

// HTBStats are those of an htb class (struct tc_htb_xstats).
type HTBStats struct {
	Lends   uint32 `json:"lends"`   // packets sent within its rate
	Borrows uint32 `json:"borrows"` // packets sent on its parent's
	Giants  uint32 `json:"giants"`  // no longer counted
	Tokens  int32  `json:"tokens"`  // ticks of 64 ns
	CTokens int32  `json:"ctokens"` // ticks of 64 ns
}

// CodelStats are codel's (struct tc_codel_xstats).
type CodelStats struct {
	MaxPacket     uint32 `json:"max_packet"`     // bytes
	Count         uint32 `json:"count"`          // drops since dropping began
	LastCount     uint32 `json:"last_count"`     //
	Delay         uint32 `json:"delay_us"`       // us, of the packet sent last
	DropNext      int32  `json:"drop_next_us"`   // us
	DropOverlimit uint32 `json:"drop_overlimit"` // packets
	ECNMarks      uint32 `json:"ecn_marks"`      // packets
	Dropping      bool   `json:"dropping"`       //
	CEMarks       uint32 `json:"ce_marks"`       // packets marked above ce_threshold
}

// PIEStats are pie's (struct tc_pie_xstats).
type PIEStats struct {
	Probability float64 `json:"probability"` // 0 to 1
	Delay       uint32  `json:"delay_us"`    // us
	Packets     uint32  `json:"packets"`     // enqueued
	Dropped     uint32  `json:"dropped"`     // packets, by the AQM
	Overlimit   uint32  `json:"overlimit"`   // packets dropped at the limit
	MaxQueue    uint32  `json:"max_queue"`   // packets
	ECNMarks    uint32  `json:"ecn_marks"`   // packets
}

// REDStats are red's (struct tc_red_xstats).
type REDStats struct {
	Early  uint32 `json:"early"`  // packets dropped by the AQM
	Full   uint32 `json:"full"`   // packets dropped at the limit
	Other  uint32 `json:"other"`  // packets
	Marked uint32 `json:"marked"` // packets
}

// NetemStats are netem's (struct tc_netem_xstats); older kernels keep none.
type NetemStats struct {
	Delayed    uint64 `json:"delayed"`    // packets
	Dropped    uint64 `json:"dropped"`    // packets, by the loss model
	Corrupted  uint64 `json:"corrupted"`  // packets
	Duplicated uint64 `json:"duplicated"` // packets
	Reordered  uint64 `json:"reordered"`  // packets
	ECNMarks   uint64 `json:"ecn_marks"`  // packets
}

// The attributes of statistics (TCA_STATS_*, include/uapi/linux/gen_stats.h).
const (
	statsBasic     = 1
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

// decodeStats reads TCA_STATS2. class tells an htb class from its discipline.
func decodeStats(kind string, b []byte, class bool) (Stats, error) {
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
		case statsPackets64:
			packets64 = f.u64()
		case statsQueue: // struct gnet_stats_queue
			if len(a.Data) < 20 {
				return Stats{}, fmt.Errorf("statistics: %d bytes are too short for the queue's", len(a.Data))
			}
			s.Qlen, s.Backlog, s.Drops = uint64(f.u32()), uint64(f.u32()), uint64(f.u32())
			s.Requeues, s.Overlimits = uint64(f.u32()), uint64(f.u32())
		case statsApp:
			if err := s.decodeOwn(kind, a.Data, class); err != nil {
				return Stats{}, fmt.Errorf("statistics of %s: %w", kind, err)
			}
		}
	}
	s.Packets = max(s.Packets, packets64)
	return s, nil
}

func (s *Stats) decodeOwn(kind string, b []byte, class bool) error {
	f := &fields{b}
	if class && kind != "htb" { // flows, of which there is nothing to tell
		return nil
	}
	switch kind {
	case "cake":
		x, err := decodeCakeStats(b)
		if err != nil {
			return err
		}
		for _, tin := range x.Tins {
			s.Marks += uint64(tin.Marks)
		}
		s.X = x
	case "dualpi2":
		x := DualPI2Stats{float64(f.u32()) / 0xFFFFFFFF, f.u32(), f.u32(), f.u32(), f.u32(), f.u32(), f.u32(), f.u32(),
			int32(f.u32()), f.u32(), f.u32(), f.u32()}
		s.Marks, s.X = uint64(x.ECNMarks), x
	case "fq_codel":
		if f.u32() == 0 { // TCA_FQ_CODEL_XSTATS_QDISC
			x := FQCodelStats{f.u32(), f.u32(), f.u32(), f.u32(), f.u32(), f.u32(), f.u32(), f.u32(), f.u32()}
			s.Marks, s.X = uint64(x.ECNMarks)+uint64(x.CEMarks), x
		}
	case "fq":
		x := FQStats{GCFlows: f.u64()}
		f.u64() // highprio_packets and tcp_retrans are obsolete
		f.u64()
		x.Throttled, x.FlowsLimit, x.TooLong, x.AllocationErrors = f.u64(), f.u64(), f.u64(), f.u64()
		x.NextDelayedFlow = int64(f.u64())
		x.Flows, x.InactiveFlows, x.ThrottledFlows, x.UnthrottleLatencyNs = f.u32(), f.u32(), f.u32(), f.u32()
		x.CEMarks, x.HorizonDrops, x.HorizonCaps, x.FastPath = f.u64(), f.u64(), f.u64(), f.u64()
		x.BandDrops = [3]uint64{f.u64(), f.u64(), f.u64()}
		x.BandPackets = [3]uint32{f.u32(), f.u32(), f.u32()}
		s.Marks, s.X = x.CEMarks, x
	case "htb":
		if class {
			s.X = HTBStats{f.u32(), f.u32(), f.u32(), int32(f.u32()), int32(f.u32())}
		}
	case "codel":
		x := CodelStats{f.u32(), f.u32(), f.u32(), f.u32(), int32(f.u32()), f.u32(), f.u32(), f.u32() != 0, f.u32()}
		s.Marks, s.X = uint64(x.ECNMarks)+uint64(x.CEMarks), x
	case "pie":
		// The kernel keeps the probability in 56 bits and reports it in 64 (net/sched/sch_pie.c, pie_dump_stats).
		x := PIEStats{Probability: float64(f.u64()) / (1 << 64), Delay: f.u32()}
		f.u32() // avg_dq_rate and dq_rate_estimating belong to an estimator that is off
		f.u32()
		x.Packets, x.Dropped, x.Overlimit, x.MaxQueue, x.ECNMarks = f.u32(), f.u32(), f.u32(), f.u32(), f.u32()
		s.Marks, s.X = uint64(x.ECNMarks), x
	case "fq_pie":
		f.b = f.b[min(16, len(f.b)):]
		s.Marks = uint64(f.u32())
	case "red":
		x := REDStats{f.u32(), f.u32(), f.u32(), f.u32()}
		s.Marks, s.X = uint64(x.Marked), x
	case "netem":
		x := NetemStats{f.u64(), f.u64(), f.u64(), f.u64(), f.u64(), f.u64()}
		s.Marks, s.X = x.ECNMarks, x
	}
	return nil
}

func decodeCakeStats(b []byte) (CakeStats, error) {
	var x CakeStats
	attributes, err := unpack(b)
	if err != nil {
		return x, err
	}
	for _, a := range attributes {
		f := &fields{a.Data}
		switch a.Type { // TCA_CAKE_STATS_*
		case 2:
			x.CapacityEstimate = f.u64() * 8
		case 3:
			x.MemoryLimit = f.u32()
		case 4:
			x.MemoryUsed = f.u32()
		case 5:
			x.AvgOverhead = f.u32()
		case 6:
			x.MinLength = f.u32()
		case 7:
			x.MaxLength = f.u32()
		case 8:
			x.MinAdjusted = f.u32()
		case 9:
			x.MaxAdjusted = f.u32()
		case 10:
			tins, err := unpack(a.Data)
			if err != nil {
				return x, err
			}
			for _, tin := range tins {
				t, err := decodeCakeTin(tin.Data)
				if err != nil {
					return x, err
				}
				x.Tins = append(x.Tins, t)
			}
		case 17:
			x.ActiveQueues = f.u32()
		}
	}
	return x, nil
}

func decodeCakeTin(b []byte) (CakeTin, error) {
	var t CakeTin
	attributes, err := unpack(b)
	if err != nil {
		return t, err
	}
	// TCA_CAKE_TIN_STATS_*; those that are missing here are not sent by any kernel.
	narrow := map[uint16]*uint32{2: &t.SentPackets, 4: &t.Drops, 6: &t.ACKDrops, 8: &t.Marks, 11: &t.Backlog,
		13: &t.Target, 14: &t.Interval,
		15: &t.WayIndirectHits, 16: &t.WayMisses, 17: &t.WayCollisions, 18: &t.PeakDelay, 19: &t.AvgDelay,
		20: &t.BaseDelay, 21: &t.SparseFlows,
		22: &t.BulkFlows, 23: &t.UnresponsiveFlows, 24: &t.MaxPacket, 25: &t.FlowQuantum}
	for _, a := range attributes {
		f := &fields{a.Data}
		switch p := narrow[a.Type]; {
		case p != nil:
			*p = f.u32()
		case a.Type == 3:
			t.SentBytes = f.u64()
		case a.Type == 12:
			t.Threshold = f.u64() * 8
		}
	}
	return t, nil
}
