// SPDX-License-Identifier: Apache-2.0

package qdisc

import (
	"math"

	"weir/internal/units"
)

// The attributes of codel (TCA_CODEL_*, include/uapi/linux/pkt_sched.h).
const (
	codelTarget = iota + 1
	codelLimit
	codelInterval
	codelECN
	codelCEThreshold
)

// codelSpec is one queue under the CoDel AQM of RFC 8289 (net/sched/sch_codel.c, tc-codel(8)).
type codelSpec struct {
	Limit       uint32         `json:"limit"`        // packets, 1 and up; default 1000
	Interval    units.Duration `json:"interval"`     // default 100ms
	Target      units.Duration `json:"target"`       // acceptable standing delay; default 5ms
	ECN         bool           `json:"ecn"`          // mark instead of dropping; default false
	CEThreshold units.Duration `json:"ce_threshold"` // mark above this delay; 4294.967295s: off, the default
}

func newCodel() *codelSpec {
	return &codelSpec{Limit: 1000, Interval: units.Duration(100e6), Target: units.Duration(5e6), CEThreshold: never}
}

func (q codelSpec) Kind() string                     { return "codel" }
func (q codelSpec) String() string                   { return format(q) }
func (q codelSpec) edit() editor                     { return &q }
func (q codelSpec) encode(base Spec) ([]byte, error) { return encodeAttributes(q, base) }

func (q *codelSpec) options() []option {
	return []option{
		count("limit", codelLimit, 4, &q.Limit, 1, math.MaxUint32),
		codelTime("interval", codelInterval, &q.Interval, 1),
		codelTime("target", codelTarget, &q.Target, 1),
		toggle("ecn", "noecn", codelECN, 4, &q.ECN),
		codelThreshold("ce_threshold", codelCEThreshold, &q.CEThreshold),
	}
}

func (q *codelSpec) decode(b []byte, _ device) error { return decodeAttributes(q.options(), b) }

func (q *codelSpec) finish() (Spec, error) {
	codelFinish(&q.Interval, &q.Target, &q.CEThreshold)
	return *q, nil
}

// codelTime is a time that the kernel keeps in units of 1024 ns: what it reports is up to 2 us short of what was set.
func codelTime(word string, attr uint16, p *units.Duration, low uint64) option {
	o := microseconds(word, attr, p, low)
	decode := o.decode
	o.decode = func(b []byte) error {
		err := decode(b)
		*p = fromMicroseconds(uint64(unround(uint32(toMicroseconds(*p)), codelReported)))
		return err
	}
	return o
}

// codelThreshold may be off; once on, only a new discipline has it off again, for then the kernel compares with INT_MAX
// (include/net/codel.h).
func codelThreshold(word string, attr uint16, p *units.Duration) option {
	o := codelTime(word, attr, p, 0)
	o.unsent = func() bool { return *p == never }
	return o
}

// codelRound returns the time that stands for all those which the kernel cannot tell apart.
func codelRound(d units.Duration) units.Duration {
	return fromMicroseconds(uint64(unround(codelReported(uint32(toMicroseconds(d))), codelReported)))
}

// codelFinish rounds the times of a CoDel. tc sends interval and target only if they are not zero: what is none to the
// kernel is the smallest that can be said.
func codelFinish(interval, target, ceThreshold *units.Duration) {
	*interval = max(codelRound(*interval), fromMicroseconds(1))
	*target = max(codelRound(*target), fromMicroseconds(1))
	if *ceThreshold != never {
		*ceThreshold = codelRound(*ceThreshold)
	}
}

// codelReported is what the kernel reports of a time, both in microseconds: nanoseconds are shifted right by
// CODEL_SHIFT, 10 (include/net/codel.h, codel_time_to_us).
func codelReported(us uint32) uint32 {
	kept := uint64(us) * 1000 >> 10
	return uint32(kept << 10 / 1000)
}

// codelStats are codel's (struct tc_codel_xstats).
type codelStats struct {
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

func readCodelStats(s *Stats, b []byte) error {
	f := &fields{b}
	x := codelStats{f.u32(), f.u32(), f.u32(), f.u32(), int32(f.u32()), f.u32(), f.u32(), f.u32() != 0, f.u32()}
	s.Marks, s.Overflows, s.X = uint64(x.ECNMarks)+uint64(x.CEMarks), uint64(x.DropOverlimit), x
	return nil
}
