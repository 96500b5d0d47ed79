// SPDX-License-Identifier: Apache-2.0

package dualpi2

import (
	"time"

	"weir/internal/units"
)

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

// newSojourn reads a histogram.
func newSojourn(h Histogram) Sojourn {
	return Sojourn{h.Packets, units.Duration(h.mean()), units.Duration(h.quantile(0.5)),
		units.Duration(h.quantile(0.99)), units.Duration(h.Max), h}
}

// Since returns what was counted after an earlier look at the same instance. What is not a count stays as it is, and so
// do the most that there were.
func (s Stats) Since(before Stats) Stats {
	since := func(now, then Sojourn) Sojourn {
		h := now.Histogram
		h.Packets -= then.Histogram.Packets
		h.Sum -= then.Histogram.Sum
		for i := range h.Count {
			h.Count[i] -= then.Histogram.Count[i]
		}
		return newSojourn(h)
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
	Count   [histogramBuckets]uint64
	Sum     time.Duration
	Max     time.Duration
	Packets uint64
}

// histogramBuckets reaches 17 s.
const histogramBuckets = 1 + 24*8

// decode is how an instance stands at a time, in ns of CLOCK_MONOTONIC, where the heads of the queues came at heads.
func (o *objectStatus) decode(now uint64, heads [2]uint64) Stats {
	age := func(since uint64) uint32 { // us
		if since == 0 || since > now {
			return 0
		}
		return uint32(time.Duration(now-since) / time.Microsecond)
	}
	const c, l = 0, 1
	histogram := func(h objectHistogram) Histogram {
		return Histogram{Count: h.Count, Sum: time.Duration(h.Sum), Max: time.Duration(h.Max), Packets: h.Packets}
	}
	return Stats{
		Probability: float64(o.Pi2.Prob) / maxProb, DelayC: age(heads[c]), DelayL: age(heads[l]),
		PacketsC: o.PacketsIn[c], PacketsL: o.PacketsIn[l], MaxQueue: o.MaxPackets,
		ECNMarks: o.EcnMark, StepMarks: o.StepMark, StepMissed: o.StepMissed, StepEarly: o.StepEarly,
		Credit: o.Credit, MemoryUsed: o.Memory, MaxMemoryUsed: o.MaxMemory,
		Unmarked: o.Unmarked, Overwritten: o.Overwritten, Superpackets: o.Superpackets,
		SojournC: newSojourn(histogram(o.Sojourn[c])), SojournL: newSojourn(histogram(o.Sojourn[l])),
	}
}

// mean is the mean time that a packet has waited; 0 if there was none.
func (h Histogram) mean() time.Duration {
	if h.Packets == 0 {
		return 0
	}
	return h.Sum / time.Duration(h.Packets)
}

// quantile is a time that a share q of the packets, from 0 to 1, has not exceeded. Those of a bucket are taken to be
// spread evenly over it: it is at most a bucket off, which is an eighth.
func (h Histogram) quantile(q float64) time.Duration {
	var all, below uint64
	for _, n := range h.Count {
		all += n
	}
	want := q * float64(all)
	for i, n := range h.Count {
		if n > 0 && float64(below+n) >= want {
			from, to := bucket(i)
			to = min(to, max(float64(h.Max), from))
			return time.Duration(from + (to-from)*(want-float64(below))/float64(n))
		}
		below += n
	}
	return 0
}

// bucket is where one begins and ends, in ns.
func bucket(i int) (from, to float64) {
	const unit, sub = 1024, 8 // ns, and buckets an octave
	if i == 0 {
		return 0, unit
	}
	octave, part := (i-1)/sub, (i-1)%sub
	width := float64(uint64(unit)<<octave) / sub
	return float64(sub+part) * width, float64(sub+part+1) * width
}

// slot is struct slot of bpf/dualpi2.h, which has a pointer that is not for us.
type slot struct {
	Skb, Ts                    uint64
	Len, Wire, Truesize, Flags uint32
}
