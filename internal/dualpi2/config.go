// SPDX-License-Identifier: Apache-2.0

// Package dualpi2 is RFC 9332's DualPI2 as a BPF queueing discipline, for kernels that have BPF qdiscs (6.16 and later)
// and no sch_dualpi2: it loads the programs in bpf/, configures an instance that runs, and reads it.
//
// It knows one device at a time and no tree of disciplines: putting a kind at a device's root is its caller's part, by
// rtnetlink. It keeps nothing: what runs is held by the kernel, with the device, and goes with it. There are no pins
// and no files. (A device that is moved to another network namespace loses its qdisc; the marker goes along and does
// nothing, and the device's limit of one segment stays until somebody lifts it.)
package dualpi2

import "time"

// Config is what one instance does. The zero value of a field means what its comment says, and nothing is filled in:
// the defaults are the caller's.
type Config struct {
	Limit uint32 // packets in both queues together, 1 to MaxLimit
	// bytes of kernel memory (truesize) in both queues together; 0: Limit times two of the device's largest packets
	MemLimit uint32

	Target  time.Duration // the C queue's delay, RFC 9332's target
	TUpdate time.Duration // RFC 9332's Tupdate, at least 1 µs
	Alpha   uint32        // integral gain, in 256ths of a Hz, 1 to 1<<31-1
	Beta    uint32        // proportional gain, in 256ths of a Hz, 1 to 1<<31-1

	Coupling    uint8         // RFC 9332's k, 1 and up
	StepThresh  time.Duration // the L queue's marking threshold, if StepPackets is 0
	StepPackets uint32        // the same as a number of packets
	MinQlenStep uint32        // packets in the L queue below which the step marks nothing
	AnyECT      bool          // ECT(0) goes to the L queue, too

	DropOverload bool  // when saturated: drop in both queues, rather than let them overflow
	DropEnqueue  bool  // the AQM drops when packets come, rather than when they go
	Protection   uint8 // the C queue's share of the link under overload, percent, up to 100

	// packets whose firewall mark is BypassMark under BypassMask go to the L queue and are never signalled; mask 0:
	// none
	BypassMark, BypassMask uint32

	Rate     uint64  // bytes per second on the wire; 0: as fast as the device takes them
	Raw      bool    // a packet's length is the kernel's, with the link's header; else without that
	Overhead int32   // bytes added to it, -64 to 256 (tc-cake(8))
	MPU      uint32  // bytes that a packet counts for at least, up to 256 (tc-cake(8))
	Framing  Framing // of the wire below

	// The device takes packets of one segment: connections that begin while the instance is there send no superpackets
	// to it. Those that were there before, and whatever is forwarded or comes by a device on top of this one, still do.
	SplitGSO bool
}

// MaxLimit is the largest Limit: what an instance's two rings can be made for.
const MaxLimit = 1 << 17

// Framing is what a link layer makes of a packet (tc-cake(8)).
type Framing uint8

const (
	NoATM Framing = iota // packets go as they are
	ATM                  // cells of 53 bytes that carry 48
	PTM                  // 65 bytes for each 64
)

// Stats is what an instance has done and how it stands.
type Stats struct {
	Prob       uint32        // RFC 9332's p', in units of 1/(2³²-1)
	DelayC     time.Duration // how long the C queue's head has waited
	DelayL     time.Duration
	PacketsInC uint64 // that were ever put into it
	PacketsInL uint64
	MaxQ       uint32 // most packets that ever waited
	ECNMark    uint64 // packets that were marked and have left: by the probability, and by the step
	StepMark   uint64 // of those, by the step
	// StepMissed counts packets of the L queue that left unmarked and had waited for longer than the step's
	// threshold: the prediction was too low.
	StepMissed uint64
	StepEarly  uint64 // packets that the step had marked, and that had not
	Credit     int32  // of the weighted round robin: the L queue's turn while it is not positive
	MemoryUsed uint32 // bytes
	MaxMemory  uint32
	MemLimit   uint32 // bytes that both queues may take: that of the configuration, or what stands for none
	Unmarked   uint64 // packets that came without having passed the marker
	// packets whose note from the marker another TCX program had written over: they pass as unmarked ones do
	Overwritten  uint64
	SojournC     Histogram
	SojournL     Histogram
	Superpackets uint64 // packets of several segments that came whole
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
		Limit: 10000, Target: 15 * time.Millisecond, TUpdate: 16 * time.Millisecond, Alpha: 41, Beta: 819,
		Coupling: 2, StepThresh: time.Millisecond, DropOverload: true, Protection: 10, Raw: true, SplitGSO: true,
	}
}
