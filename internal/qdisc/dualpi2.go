// SPDX-License-Identifier: Apache-2.0

package qdisc

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"

	"weir/internal/dualpi2"
	"weir/internal/units"
)

// The attributes of dualpi2 (TCA_DUALPI2_*, include/uapi/linux/pkt_sched.h).
const (
	dualpi2Limit = iota + 1
	dualpi2MemoryLimit
	dualpi2Target
	dualpi2TUpdate
	dualpi2Alpha
	dualpi2Beta
	dualpi2StepPackets
	dualpi2StepTime
	dualpi2MinQlenStep
	dualpi2Coupling
	dualpi2DropOverload
	dualpi2DropEarly
	dualpi2CProtection
	dualpi2ECNMask
	dualpi2SplitGSO
)

// dualPI2Spec is the coupled dual-queue AQM of RFC 9332 (net/sched/sch_dualpi2.c, tc-dualpi2(8), Linux 6.17). It has no
// rate of its own.
type dualPI2Spec dualpi2.Options

func newDualPI2() *dualPI2Spec {
	q := dualPI2Spec(dualpi2.Defaults().Options)
	return &q
}

func (q dualPI2Spec) Kind() string   { return "dualpi2" }
func (q dualPI2Spec) String() string { return format(q) }
func (q dualPI2Spec) edit() editor   { return &q }

func (q dualPI2Spec) encode(base Spec) ([]byte, error) {
	// A new limit makes the kernel derive the memory limit anew (dualpi2_change), so one that is to stay is sent again,
	// after it.
	if before, ok := base.(dualPI2Spec); ok && before.Limit != q.Limit {
		before.MemLimit = 0
		base = before
	}
	return encodeAttributes(q, base)
}

// dualpi2Step is the longest step or update interval: the kernel keeps it in 32 bits of nanoseconds.
const dualpi2Step = units.Duration(math.MaxUint32 / 1000 * 1000)

func (q *dualPI2Spec) options() []option {
	tupdate := microseconds("tupdate", dualpi2TUpdate, &q.TUpdate, 1)
	target := microseconds("target", dualpi2Target, &q.Target, 1)
	alpha, beta := gain("alpha", dualpi2Alpha, &q.Alpha), gain("beta", dualpi2Beta, &q.Beta)
	maxRTT, typicalRTT := q.rtts(&tupdate, &target, &alpha, &beta)
	stepPackets, stepTime := q.step()
	protection := count("classic_protection", dualpi2CProtection, 1, &q.ClassicProtection, 0, 100)
	protection.read = func(_ string, a *args) error {
		text, err := a.next()
		if err != nil {
			return err
		}
		share, err := parseShare(text)
		if err == nil {
			q.ClassicProtection = uint8(math.RoundToEven(float64(share) * 100))
		}
		return err
	}
	writeProtection := protection.write
	protection.write = func() string { return writeProtection() + "%" }
	return []option{
		count("limit", dualpi2Limit, 4, &q.Limit, 1, math.MaxUint32),
		auto(octets("memlimit", dualpi2MemoryLimit, 4, &q.MemLimit, 1, math.MaxUint32), &q.MemLimit),
		tupdate, target, alpha, beta, maxRTT, typicalRTT,
		choice(dualpi2ECNMask, 1, 1, &q.ECN, "l4s_ect", "cla_ect", "any_ect"),
		toggle("drop_on_overload", "overflow", dualpi2DropOverload, 1, &q.DropOverload),
		count("coupling_factor", dualpi2Coupling, 1, &q.CouplingFactor, 1, math.MaxUint8),
		toggle("split_gso", "no_split_gso", dualpi2SplitGSO, 1, &q.SplitGSO),
		stepPackets, stepTime,
		count("min_qlen_step", dualpi2MinQlenStep, 4, &q.MinQlenStep, 0, math.MaxUint32),
		toggle("drop_enqueue", "drop_dequeue", dualpi2DropEarly, 1, &q.DropEnqueue),
		protection,
	}
}

// step is one option with two attributes, of which one is sent.
func (q *dualPI2Spec) step() (packets, time option) {
	key := func() string {
		if q.StepPackets > 0 {
			return fmt.Sprintf("step_thresh %dp", q.StepPackets)
		}
		return "step_thresh " + q.StepThresh.String()
	}
	packets = count("", dualpi2StepPackets, 4, &q.StepPackets, 1, math.MaxUint32)
	packets.words, packets.write, packets.key = nil, func() string { return "" }, key
	packets.skip = func() bool { return q.StepPackets == 0 }
	time = microseconds("step_thresh", dualpi2StepTime, &q.StepThresh, 1)
	readTime, write := time.read, key
	time.write, time.key = write, key
	time.skip = func() bool { return q.StepPackets > 0 }
	time.read = func(word string, a *args) error {
		q.StepPackets = 0
		if len(a.words) > 0 {
			for _, unit := range []string{"packets", "packet", "pkts", "pkt", "p"} {
				if strings.HasSuffix(a.words[0], unit) {
					v, err := whole(a.words[0], unit, 1, math.MaxUint32)
					q.StepPackets = uint32(v)
					_, _ = a.next()
					return err
				}
			}
		}
		return readTime(word, a)
	}
	return packets, time
}

// rtts are tc's way to set target, tupdate, alpha and beta in one go, for a 10 dB stability margin. The formulas are
// tc's, as is their mix of single and double precision (iproute2 tc/q_dualpi2.c), so that the same words give the same
// bytes.
func (q *dualPI2Spec) rtts(replaced ...*option) (longest, typical option) {
	const typicalToMax = 6
	var max, typ uint64 // microseconds, 0: not given
	set := ""
	derive := func() error {
		max, typ := max, typ
		switch {
		case typ == 0:
			typ = max / typicalToMax
			if typ == 0 {
				typ = 1
			}
		case max == 0:
			max = typ * typicalToMax
		}
		if max > math.MaxUint32 {
			return errors.New("typical_rtt is too large: max_rtt is six times that")
		}
		tupdate := uint64(math.Min(float64(typ), float64(max)/3))
		if tupdate == 0 {
			tupdate = 1
		}
		const second = 1e6
		alpha := float64(tupdate) / float64(max) / float64(max) * second * float64(float32(0.1))
		beta := float64(float32(0.3)) / float64(max) * second
		q.Target, q.TUpdate = fromMicroseconds(typ), fromMicroseconds(tupdate)
		q.Alpha, q.Beta = uint32(alpha*256), uint32(beta*256)
		return nil
	}
	for _, o := range replaced {
		read, name := o.read, o.words[0]
		o.read = func(word string, a *args) error {
			if set = name; max > 0 || typ > 0 {
				return errors.New("follows from max_rtt and typical_rtt: give one or the other")
			}
			return read(word, a)
		}
	}
	rtt := func(word string, p *uint64) option {
		o := value(word, 0, 4, readPeriod(1, fromMicroseconds(1), "us"), func(uint64) string { return "" },
			func() uint64 { return 0 }, func(v uint64) { *p = v })
		read := o.read
		o.write = func() string { return "" }
		o.read = func(word string, a *args) error {
			if err := read(word, a); err != nil {
				return err
			}
			if set != "" {
				return fmt.Errorf("sets %s as well: give one or the other", set)
			}
			if max > 0 && typ > max {
				return errors.New("typical_rtt is above max_rtt")
			}
			return derive()
		}
		return o
	}
	return rtt("max_rtt", &max), rtt("typical_rtt", &typ)
}

// gain is a frequency in Hz, which the kernel reports rounded.
func gain(word string, attr uint16, p *uint32) option {
	o := hertz(word, attr, p)
	decode := o.decode
	o.decode = func(b []byte) error {
		err := decode(b)
		*p = max(unround(*p, dualpi2Reported), 1)
		return err
	}
	return o
}

// hertz is a multiple of 1/256 Hz; tc reads it in single precision.
func hertz(word string, attr uint16, p *uint32) option {
	return value(word, attr, 4,
		func(s string) (uint64, error) {
			v, err := strconv.ParseFloat(s, 64)
			if err != nil {
				return 0, fmt.Errorf("%q is not a number", s)
			}
			scaled := v * 256
			if scaled < 1<<24 { // beyond that, single precision loses what max_rtt can ask for
				scaled = float64(float32(v)) * 256
			}
			if scaled >= 1 && scaled <= math.MaxInt32 {
				return uint64(scaled), nil
			}
			return 0, fmt.Errorf("%q is out of range (0.00390625 to 8388607)", s)
		},
		func(v uint64) string { return strconv.FormatFloat(float64(v)/256, 'f', -1, 64) },
		func() uint64 { return uint64(*p) }, func(v uint64) { *p = uint32(v) })
}

// dualpi2Reported is what the kernel reports of a gain: it keeps it scaled to probability per nanosecond, which loses
// up to one 256th of a Hz (net/sched/sch_dualpi2.c, dualpi2_scale_alpha_beta and its reverse).
func dualpi2Reported(v uint32) uint32 {
	kept := uint64(v) * math.MaxUint32 >> 2 / 1e9
	return uint32(uint64(uint32(kept)) * 1e9 << 2 / math.MaxUint32)
}

func (q *dualPI2Spec) decode(b []byte, d device) error {
	attributes, err := unpack(b)
	if err != nil {
		return err
	}
	for _, a := range attributes {
		if a.Type == dualpi2StepPackets {
			if v, err := integer(a.Data); err != nil || v == 0 {
				return errors.New("step_thresh: a threshold of 0 packets has no words")
			}
		}
	}
	if err := decodeAttributes(q.options(), b); err != nil {
		return err
	}
	perPacket := uint64(q.Limit) * 2
	switch {
	case perPacket == 0 || !d.present:
	case q.MemLimit == math.MaxUint32 && perPacket*uint64(d.mtu) > math.MaxUint32: // as far as it goes
		q.MemLimit = 0
	case uint64(q.MemLimit)%perPacket == 0 && d.frame(uint32(uint64(q.MemLimit)/perPacket)):
		q.MemLimit = 0
	}
	return nil
}

func (q *dualPI2Spec) finish() (Spec, error) {
	switch {
	case q.Limit == 0:
		return nil, errors.New("limit is zero")
	case q.CouplingFactor == 0:
		return nil, errors.New("coupling_factor is zero")
	case q.ClassicProtection > 100:
		return nil, errors.New("classic_protection is above 100%")
	case q.Beta == 0 || q.Alpha == 0:
		return nil, errors.New("max_rtt is so large that alpha or beta rounds to zero")
	case q.Beta > math.MaxInt32 || q.Alpha > math.MaxInt32:
		return nil, errors.New("max_rtt is so small that alpha or beta overflows")
	case q.TUpdate > dualpi2Step || q.StepThresh > dualpi2Step:
		return nil, fmt.Errorf("tupdate and step_thresh go up to %s", dualpi2Step)
	}
	if err := oneOf("queue selector", q.ECN, "l4s_ect", "any_ect"); err != nil {
		return nil, err
	}
	if q.StepPackets > 0 {
		q.StepThresh = newDualPI2().StepThresh // it has no effect, and the kernel does not report it
	}
	return *q, nil
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

func readDualPI2Stats(s *Stats, b []byte) error {
	f := &fields{b}
	x := DualPI2Stats{float64(f.u32()) / 0xFFFFFFFF, f.u32(), f.u32(), f.u32(), f.u32(), f.u32(), f.u32(), f.u32(),
		int32(f.u32()), f.u32(), f.u32(), f.u32()}
	s.Marks, s.X = uint64(x.ECNMarks), x
	return nil
}
