// SPDX-License-Identifier: Apache-2.0

package qdisc

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"weir/internal/units"
)

// The attributes of fq_codel (TCA_FQ_CODEL_*, include/uapi/linux/pkt_sched.h).
const (
	fqCodelTarget = iota + 1
	fqCodelLimit
	fqCodelInterval
	fqCodelECN
	fqCodelFlows
	fqCodelQuantum
	fqCodelCEThreshold
	fqCodelDropBatch
	fqCodelMemoryLimit
	fqCodelCESelector
	fqCodelCEMask
)

// FQCodel is fair queueing with CoDel on each queue, RFC 8290 (net/sched/sch_fq_codel.c, tc-fq_codel(8)).
type FQCodel struct {
	Limit uint32 `json:"limit"` // packets, 1 and up; default 10240
	Flows uint32 `json:"flows"` // queues, 1 to 65536; default 1024; fixed at creation
	// bytes per round, 256 to 1048576; 0: the device's largest packet
	Quantum     uint32         `json:"quantum"`
	Interval    units.Duration `json:"interval"`     // default 100ms
	Target      units.Duration `json:"target"`       // acceptable standing delay; default 5ms
	ECN         bool           `json:"ecn"`          // mark instead of dropping; default true
	CEThreshold units.Duration `json:"ce_threshold"` // mark above this delay; 4294.967295s: off, the default
	// ce_threshold only acts where DS field & CEMask equals this
	CESelector  uint8      `json:"ce_threshold_selector"`
	CEMask      uint8      `json:"ce_threshold_mask"` // default 0: on every packet
	MemoryLimit units.Size `json:"memory_limit"`      // up to 2gb; default 32mb
	// packets dropped at once from the fattest queue when over the limit; default 64
	DropBatch uint32 `json:"drop_batch"`
}

func newFQCodel() *FQCodel {
	return &FQCodel{Limit: 10240, Flows: 1024, Interval: units.Duration(100e6), Target: units.Duration(5e6), ECN: true,
		CEThreshold: never,
		MemoryLimit: 32 << 20, DropBatch: 64}
}

func (q FQCodel) Kind() string                     { return "fq_codel" }
func (q FQCodel) String() string                   { return format(q) }
func (q FQCodel) edit() editor                     { return &q }
func (q FQCodel) encode(base Spec) ([]byte, error) { return encodeAttributes(q, base) }

func (q *FQCodel) options() []option {
	// tc says value and mask in one word; on the wire they are two attributes.
	selector := option{
		words: []string{"ce_threshold_selector"},
		read: func(_ string, a *args) error {
			text, err := a.next()
			if err != nil {
				return err
			}
			value, mask, _ := strings.Cut(text, "/")
			v, err1 := strconv.ParseUint(value, 0, 8)
			m, err2 := strconv.ParseUint(mask, 0, 8)
			if err1 != nil || err2 != nil || v == math.MaxUint8 {
				return fmt.Errorf("%q is not VALUE/MASK: write it like 0x1/0x3", text)
			}
			q.CESelector, q.CEMask = uint8(v), uint8(m)
			return nil
		},
		write: func() string { return fmt.Sprintf("ce_threshold_selector 0x%x/0x%x", q.CESelector, q.CEMask) },
	}
	half := func(attr uint16, p *uint8) option {
		o := count("", attr, 1, p, 0, math.MaxUint8)
		o.words, o.write = nil, func() string { return "" }
		return o
	}
	return []option{
		count("limit", fqCodelLimit, 4, &q.Limit, 1, math.MaxUint32),
		count("flows", fqCodelFlows, 4, &q.Flows, 1, 65536),
		auto(octets("quantum", fqCodelQuantum, 4, &q.Quantum, 256, 1<<20), &q.Quantum),
		codelTime("interval", fqCodelInterval, &q.Interval, 1),
		codelTime("target", fqCodelTarget, &q.Target, 1),
		toggle("ecn", "noecn", fqCodelECN, 4, &q.ECN),
		codelThreshold("ce_threshold", fqCodelCEThreshold, &q.CEThreshold),
		selector, half(fqCodelCEMask, &q.CEMask), half(fqCodelCESelector, &q.CESelector),
		size("memory_limit", fqCodelMemoryLimit, &q.MemoryLimit, 1),
		count("drop_batch", fqCodelDropBatch, 4, &q.DropBatch, 1, math.MaxUint32),
	}
}

func (q *FQCodel) decode(b []byte, d device) error {
	if err := decodeAttributes(q.options(), b); err != nil {
		return err
	}
	if d.frame(q.Quantum) {
		q.Quantum = 0
	}
	return nil
}

func (q *FQCodel) finish() (Spec, error) {
	codelFinish(&q.Interval, &q.Target, &q.CEThreshold)
	if q.CEThreshold == never && (q.CESelector != 0 || q.CEMask != 0) {
		return nil, fmt.Errorf("ce_threshold_selector needs a ce_threshold")
	}
	q.MemoryLimit = min(q.MemoryLimit, 1<<31) // as the kernel does
	return *q, nil
}

// fqCodelStats are fq_codel's (struct tc_fq_codel_qd_stats).
type fqCodelStats struct {
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

func readFQCodelStats(s *Stats, b []byte) error {
	const ofQdisc = 0 // TCA_FQ_CODEL_XSTATS_QDISC
	if f := (&fields{b}); f.u32() == ofQdisc {
		x := fqCodelStats{f.u32(), f.u32(), f.u32(), f.u32(), f.u32(), f.u32(), f.u32(), f.u32(), f.u32()}
		s.Marks, s.Overflows, s.X = uint64(x.ECNMarks)+uint64(x.CEMarks), uint64(x.DropOverlimit), x
	}
	return nil
}
