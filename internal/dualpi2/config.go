// SPDX-License-Identifier: Apache-2.0

// Package dualpi2 is RFC 9332's DualPI2 as a BPF queueing discipline, for kernels that have BPF qdiscs (6.16 and later)
// and no sch_dualpi2: it loads the programs in bpf/, configures an instance that runs, and reads it.
//
// It knows one device at a time and no tree of disciplines: putting a kind at a device's root is its caller's part, by
// rtnetlink. It keeps nothing: what runs is held by the kernel, with the device, and goes with it. There are no pins
// and no files. (A device that is moved to another network namespace loses its qdisc; the marker goes along and does
// nothing, and the device's limit of one segment stays until somebody lifts it.)
package dualpi2

import (
	"time"

	"weir/internal/units"
)

// Options are those that the kernel's dualpi2 has, too.
type Options struct {
	Limit uint32 `json:"limit"` // packets in both queues, 1 and up; default 10000
	// bytes in both queues; 0: limit times two of the device's largest packets
	MemLimit uint32 `json:"memlimit"`
	// how often the PI controller runs, 1us to 4.294967s; default 16ms
	TUpdate units.Duration `json:"tupdate"`
	Target  units.Duration `json:"target"` // the C queue's delay; default 15ms
	// integral gain in 256ths of a Hz, 1 and up; default 41
	Alpha uint32 `json:"alpha"`
	// proportional gain in 256ths of a Hz, 1 and up; default 819
	Beta uint32 `json:"beta"`
	// what goes to the L queue: l4s_ect (the default) or any_ect
	ECN string `json:"ecn"`
	// drop, rather than overflow, when saturated; default true
	DropOverload   bool  `json:"drop_on_overload"`
	CouplingFactor uint8 `json:"coupling_factor"` // k of RFC 9332, 1 to 255; default 2
	SplitGSO       bool  `json:"split_gso"`       // cut superpackets into packets; default true
	// the L queue's marking threshold, up to 4.294967s; default 1ms
	StepThresh units.Duration `json:"step_thresh"`
	// the same as a number of packets; 0: step_thresh holds
	StepPackets uint32 `json:"step_packets"`
	// packets in the L queue below which nothing is marked; default 0
	MinQlenStep uint32 `json:"min_qlen_step"`
	// apply the AQM when packets come rather than when they go; default false
	DropEnqueue bool `json:"drop_enqueue"`
	// the C queue's share of the link under overload, percent; default 10
	ClassicProtection uint8 `json:"classic_protection"`
}

// Config is what one instance does. Nothing is filled in: the defaults are those of Defaults.
type Config struct {
	Options
	Rate     units.Rate `json:"rate"`     // 1kbit and up; 0: as fast as the device takes them, the default
	ATM      string     `json:"atm"`      // noatm (the default), atm, ptm
	Overhead int32      `json:"overhead"` // bytes added to each packet, -64 to 256
	// count packets as the device does, with no correction for its header; the default
	Raw bool   `json:"raw"`
	MPU uint32 `json:"mpu"` // bytes that a packet counts for at least, 0 to 256
	// packets with this firewall mark go to the L queue and are never marked nor dropped by the AQM
	LLLLMark uint32 `json:"llll_mark"`
	LLLLMask uint32 `json:"llll_mask"` // the bits of the mark that count; 0: none, the default
}

// MaxLimit is the largest Limit: what an instance's two rings can be made for.
const MaxLimit = 1 << 17

// framings are what a link layer can make of a packet (tc-cake(8)): nothing; cells of 53 bytes that carry 48; 65 bytes
// for each 64. The place is what the programs know it by.
func framings() []string { return []string{"noatm", "atm", "ptm"} }

// Stats is what an instance has done and how it stands: what the kernel's dualpi2 tells, and what else the programs
// count.
type Stats struct {
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
	Packets   uint64         `json:"packets"`
	Mean      units.Duration `json:"mean"`
	P50       units.Duration `json:"p50"`
	P99       units.Duration `json:"p99"`
	Max       units.Duration `json:"max"`
	Histogram Histogram      `json:"-"` // whole
}

// NewSojourn reads a histogram.
func NewSojourn(h Histogram) Sojourn {
	return Sojourn{h.Packets, units.Duration(h.Mean()), units.Duration(h.Quantile(0.5)),
		units.Duration(h.Quantile(0.99)), units.Duration(h.Max), h}
}

// Since gives what was counted after an earlier look at the same instance. What is not a count stays as it is, and so
// do the most that there were.
func (s Stats) Since(before Stats) Stats {
	since := func(now, then Sojourn) Sojourn {
		h := now.Histogram
		h.Packets -= then.Histogram.Packets
		h.Sum -= then.Histogram.Sum
		for i := range h.Count {
			h.Count[i] -= then.Histogram.Count[i]
		}
		return NewSojourn(h)
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

// Histogram counts packets by how long they waited. The first bucket is for less than 1.024 µs, and
// each octave from there on has eight of equal width.
type Histogram struct {
	Count   [HistogramBuckets]uint64
	Sum     time.Duration
	Max     time.Duration
	Packets uint64
}

// HistogramBuckets reaches 17 s.
const HistogramBuckets = 1 + 24*8

// Instance is one that runs on a device.
type Instance struct {
	Kind     string // the kernel's name for it: Prefix and six hexadecimal digits
	Placed   bool   // it is a qdisc of the device; else its marker was left behind, and does nothing
	Known    bool   // it is of this version, and the rest is known
	Capacity uint32 // packets that it can hold: what its limit can be changed to
	Config   Config
	Stats    Stats
}

// Prefix starts the name of each instance's kind.
const Prefix = "dualpi2."

// Capacity is how many packets an instance that is made with a limit can hold: what its limit can be changed to later.
func Capacity(limit uint32) uint32 {
	capacity := uint32(1 << 14)
	for capacity < limit && capacity < MaxLimit {
		capacity <<= 1
	}
	return capacity
}

// Defaults are those of sch_dualpi2 and no shaper (net/sched/sch_dualpi2.c, dualpi2_reset_default).
func Defaults() Config {
	return Config{
		Options: Options{
			Limit: 10000, TUpdate: units.Duration(16e6), Target: units.Duration(15e6), Alpha: 41, Beta: 819,
			ECN: classicOnly, DropOverload: true, CouplingFactor: 2, SplitGSO: true, StepThresh: units.Duration(1e6),
			ClassicProtection: 10,
		},
		ATM: framings()[0], Raw: true,
	}
}

// What goes to the L queue: ECT(1) and CE alone, or ECT(0), too.
const (
	classicOnly = "l4s_ect"
	anyECT      = "any_ect"
)
