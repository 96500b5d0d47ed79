// SPDX-License-Identifier: Apache-2.0

package qdisc

import (
	"errors"
	"fmt"
	"time"

	"weir/internal/units"
)

// The attributes of cake (TCA_CAKE_*, include/uapi/linux/pkt_sched.h).
const (
	cakeBandwidth = iota + 2
	cakeDiffserv
	cakeATM
	cakeFlowMode
	cakeOverhead
	cakeRTT
	cakeTarget
	cakeAutorate
	cakeMemory
	cakeNAT
	cakeRaw
	cakeWash
	cakeMPU
	cakeIngress
	cakeACKFilter
	cakeSplitGSO
	cakeFWMark
)

// Cake is a shaper, fair queueing between hosts and flows, and an AQM in one (net/sched/sch_cake.c, tc-cake(8)). As
// cake_mq it is one shaper over a root with several transmit queues (Linux 7.x).
type Cake struct {
	MultiQueue bool       `json:"multi_queue"`      // cake_mq
	Bandwidth  units.Rate `json:"bandwidth"`        // 0: unlimited
	Autorate   bool       `json:"autorate_ingress"` // estimate the bandwidth from what arrives; not for cake_mq
	// besteffort, precedence, diffserv3 (the default), diffserv4, diffserv8
	Diffserv string `json:"diffserv"`
	ATM      string `json:"atm"`      // noatm (the default), atm, ptm
	FlowMode string `json:"flowmode"` // flowblind … triple-isolate (the default)
	Overhead int32  `json:"overhead"` // bytes added to each packet, -64 to 256
	// count packets as the device does, with no correction for its header; the default
	Raw      bool           `json:"raw"`
	MPU      uint32         `json:"mpu"`       // bytes that a packet counts for at least, 0 to 256
	RTT      units.Duration `json:"rtt"`       // CoDel's interval; its target is a 20th of it; default 100ms
	MemLimit units.Size     `json:"memlimit"`  // 0: from bandwidth and rtt
	FWMark   uint32         `json:"fwmark"`    // the mask of the packet's mark that selects the tin; 0: none
	NAT      bool           `json:"nat"`       // look behind network address translation
	Wash     bool           `json:"wash"`      // clear the DS field
	SplitGSO bool           `json:"split_gso"` // cut superpackets into packets; default true
	Ingress  bool           `json:"ingress"`   // count dropped packets as having used the link
	// no-ack-filter (the default), ack-filter, ack-filter-aggressive
	ACKFilter string `json:"ack_filter"`
}

func newCake() *Cake {
	return &Cake{Diffserv: "diffserv3", ATM: "noatm", FlowMode: "triple-isolate", Raw: true,
		RTT:      units.Duration(100 * time.Millisecond),
		SplitGSO: true, ACKFilter: "no-ack-filter"}
}

func newCakeMQ() *Cake {
	q := newCake()
	q.MultiQueue = true
	return q
}

func (q Cake) Kind() string {
	if q.MultiQueue {
		return "cake_mq"
	}
	return "cake"
}
func (q Cake) String() string { return format(q) }
func (q Cake) edit() editor   { return &q }

func (q Cake) encode(base Spec) ([]byte, error) { return encodeAttributes(q, base) }

// The kernel's numbering (CAKE_DIFFSERV_*, CAKE_FLOW_*, CAKE_ACK_*).
func cakeDiffservs() []string {
	return []string{"diffserv3", "diffserv4", "diffserv8", "besteffort", "precedence"}
}
func cakeFlowModes() []string {
	return []string{"flowblind", "srchost", "dsthost", "hosts", "flows", "dual-srchost", "dual-dsthost",
		"triple-isolate"}
}
func cakeACKFilters() []string {
	return []string{"no-ack-filter", "ack-filter", "ack-filter-aggressive"}
}

func (q *Cake) options() []option {
	diffserv := choice(cakeDiffserv, 4, 0, &q.Diffserv, cakeDiffservs()...)
	readDiffserv := diffserv.read
	diffserv.words = append(diffserv.words, "diffserv")
	diffserv.read = func(word string, a *args) error {
		if word == "diffserv" { // tc's short form
			word = "diffserv4"
		}
		return readDiffserv(word, a)
	}
	autorate := toggle("autorate-ingress", "", cakeAutorate, 4, &q.Autorate)
	autorate.words = autorate.words[:1]
	framing, overhead, raw, mpu := overheads{&q.ATM, &q.Overhead, &q.Raw, &q.MPU}.options(cakeATM, cakeOverhead,
		cakeRaw, cakeMPU)
	rtt, target := q.rtt()
	return []option{
		orUnlimited(rate("bandwidth", cakeBandwidth, 8, &q.Bandwidth), &q.Bandwidth),
		diffserv,
		framing,
		choice(cakeFlowMode, 4, 0, &q.FlowMode, cakeFlowModes()...),
		overhead, raw, mpu,
		rtt, target,
		autorate,
		size("memlimit", cakeMemory, &q.MemLimit, 0),
		mask("fwmark", cakeFWMark, &q.FWMark),
		toggle("nat", "nonat", cakeNAT, 4, &q.NAT),
		toggle("wash", "nowash", cakeWash, 4, &q.Wash),
		toggle("split-gso", "no-split-gso", cakeSplitGSO, 4, &q.SplitGSO),
		toggle("ingress", "egress", cakeIngress, 4, &q.Ingress),
		choice(cakeACKFilter, 4, 0, &q.ACKFilter, cakeACKFilters()...),
	}
}

// rtt reads a time or one of tc's names for it. The target that CoDel aims at follows from it, and travels with it.
func (q *Cake) rtt() (rtt, target option) {
	rtt = microseconds("rtt", cakeRTT, &q.RTT, 1)
	type preset struct {
		name string
		rtt  time.Duration
	}
	presets := []preset{
		{"datacentre", 100 * time.Microsecond}, {"lan", time.Millisecond}, {"metro", 10 * time.Millisecond},
		{"regional", 30 * time.Millisecond},
		{"internet", 100 * time.Millisecond}, {"oceanic", 300 * time.Millisecond}, {"satellite", time.Second},
		{"interplanetary", 1000 * time.Second},
	}
	for _, p := range presets {
		rtt.words = append(rtt.words, p.name)
	}
	readTime := rtt.read
	rtt.read = func(word string, a *args) error {
		for _, p := range presets {
			if p.name == word {
				q.RTT = units.Duration(p.rtt)
				return nil
			}
		}
		return readTime(word, a)
	}
	target = option{
		attr: cakeTarget, write: func() string { return "" },
		encode: func() []byte { return u32bytes(uint32(max(toMicroseconds(q.RTT)/20, 1))) },
		decode: func(b []byte) error {
			// Reported after the rtt. Only something other than tc can have set another.
			if v, err := integer(b); err != nil || v != max(toMicroseconds(q.RTT)/20, 1) {
				return fmt.Errorf("is not a 20th of the rtt")
			}
			return nil
		},
	}
	return rtt, target
}

func (q *Cake) decode(b []byte, _ device) error { return decodeAttributes(q.options(), b) }

func (q *Cake) finish() (Spec, error) {
	err := errors.Join(oneOf("diffserv mode", q.Diffserv, cakeDiffservs()...),
		overheads{&q.ATM, &q.Overhead, &q.Raw, &q.MPU}.check(),
		oneOf("flow mode", q.FlowMode, cakeFlowModes()...), oneOf("ACK filter", q.ACKFilter, cakeACKFilters()...))
	switch {
	case err != nil:
		return nil, err
	case q.MultiQueue && q.Autorate:
		return nil, errors.New("autorate-ingress does not work with several queues: use cake")
	case q.RTT < units.Duration(time.Microsecond) || q.RTT > never:
		return nil, fmt.Errorf("rtt %s is out of range (1us to %s)", q.RTT, never)
	}
	q.Bandwidth -= q.Bandwidth % 8
	q.RTT -= q.RTT % units.Duration(time.Microsecond)
	return *q, nil
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

// TinName is tc-cake(8)'s for the tin at a place, lowest priority first, of so many.
func TinName(i, of int) string {
	switch of {
	case 1:
		return "besteffort"
	case 3:
		return []string{"bulk", "besteffort", "voice"}[i]
	case 4:
		return []string{"bulk", "besteffort", "video", "voice"}[i]
	}
	return fmt.Sprintf("tin %d", i)
}

func readCakeStats(s *Stats, b []byte) error {
	x, err := decodeCakeStats(b)
	if err != nil {
		return err
	}
	for _, tin := range x.Tins {
		s.Marks += uint64(tin.Marks)
	}
	s.X = x
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
