// SPDX-License-Identifier: Apache-2.0

package dualpi2

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"weir/internal/units"
)

// What bpf/dualpi2.h and bpf/pi2.h have agreed on with this file.
const (
	layout    = 3                                // LAYOUT
	rateShift = 20                               // RATE_SHIFT
	maxProb   = math.MaxUint32                   // MAX_PROB: a probability of 1
	maxDelay  = math.MaxUint32 * time.Nanosecond // MAX_DELAY: 4.29 s
	gainBits  = 29                               // that the larger of the two gains takes
	maxWeight = 100                              // the weights of the two queues are in percent
)

// minRate is the slowest shaper, in bytes per second: one packet in 12 seconds.
const minRate = 1000 / 8

func (c Config) check() error {
	switch {
	case c.Limit == 0 || c.Limit > MaxLimit:
		return fmt.Errorf("limit %d is out of range (1 to %d packets)", c.Limit, MaxLimit)
	case c.Target < 0 || time.Duration(c.Target) > maxDelay:
		return fmt.Errorf("target %v is out of range (0 to %v)", c.Target, maxDelay)
	case time.Duration(c.TUpdate) < time.Microsecond || c.StepThresh < 0:
		return errors.New("tupdate or step_thresh is out of range")
	case c.Alpha == 0 || c.Beta == 0 || c.Alpha > math.MaxInt32 || c.Beta > math.MaxInt32:
		return errors.New("alpha or beta is out of range (0.00390625 to 8388607 Hz)")
	case c.CouplingFactor == 0:
		return errors.New("coupling_factor is zero")
	case c.ClassicProtection > maxWeight:
		return errors.New("classic_protection is above 100%")
	case c.Rate != 0 && c.Rate/8 < minRate:
		return fmt.Errorf("rate is below %d bit/s", minRate*8)
	case c.Overhead < -64 || c.Overhead > 256 || c.MPU > 256:
		return errors.New("overhead or mpu is out of range (-64 to 256, and up to 256 bytes)")
	case !slices.Contains(framings(), c.ATM):
		return fmt.Errorf("framing %q is not known", c.ATM)
	}
	return nil
}

// gains are alpha and beta, in 256ths of a Hz, as whole numbers of 2^-shift of 1/maxProb for each nanosecond.
func gains(alpha, beta uint32) (a, b, shift uint32) {
	perNs := func(v uint32) float64 { return float64(v) / 256 * maxProb / 1e9 }
	exponent := math.Ilogb(perNs(max(alpha, beta)))
	shift = uint32(min(max(gainBits-1-exponent, 1), 62))
	scaled := func(v uint32) uint32 { return uint32(math.RoundToEven(math.Ldexp(perNs(v), int(shift)))) }
	return scaled(alpha), scaled(beta), shift
}

func flag(b bool) uint32 {
	if b {
		return 1
	}
	return 0
}

// encode is c for a device whose packets have a link header of so many bytes.
func (c Config) encode(header int32) objectConfig {
	o := objectConfig{
		LinkHeader: uint32(header), Limit: c.Limit, MemLimit: c.MemLimit,
		Coupling: uint32(c.CouplingFactor), L4sMask: 1, // the bit that ECT(1) and CE have and ECT(0) has not
		StepThresh: uint64(c.StepThresh), MinQlenStep: c.MinQlenStep,
		Wc: uint32(c.ClassicProtection), Wl: maxWeight - uint32(c.ClassicProtection),
		DropOverload: flag(c.DropOverload), DropEnqueue: flag(c.DropEnqueue),
		BypassMark: c.LLLLMark & c.LLLLMask, BypassMask: c.LLLLMask,
		Overhead: c.Overhead, Mpu: c.MPU, Framing: uint32(slices.Index(framings(), c.ATM)), Raw: flag(c.Raw),
	}
	if c.ECN == anyECT {
		o.L4sMask = 3
	}
	if c.StepPackets != 0 {
		o.StepInPackets, o.StepThresh = 1, uint64(c.StepPackets)
	}
	if !c.Raw {
		o.Overhead -= header
	}
	if c.Rate != 0 {
		o.RateBytes = uint64(c.Rate / 8)
		o.NsPerByte = max(1e9<<rateShift/o.RateBytes, 1)
	}
	// ATM makes 53 of 48 bytes and fills the last cell; a segment has 28 bytes of headers at least.
	o.WirePerByte = 2 * (2 + c.MPU + uint32(max(o.Overhead, 0)))
	o.Pi2.Target, o.Pi2.Tupdate = uint64(c.Target), uint64(c.TUpdate)
	o.Alpha, o.Beta = c.Alpha, c.Beta
	o.Pi2.Alpha, o.Pi2.Beta, o.Pi2.GainShift = gains(c.Alpha, c.Beta)
	o.Pi2.MaxProb = maxProb
	if !c.DropOverload {
		o.Pi2.MaxProb /= uint32(c.CouplingFactor) // so that the coupled probability ends at 1
	}
	return o
}

// decode is the reverse of encode, but for SplitGSO, which is the device's.
func (o objectConfig) decode(header int32) Config {
	c := Config{
		Options: Options{
			Limit: o.Limit, MemLimit: o.MemLimit,
			Target: units.Duration(o.Pi2.Target), TUpdate: units.Duration(o.Pi2.Tupdate), Alpha: o.Alpha, Beta: o.Beta,
			CouplingFactor: uint8(o.Coupling), MinQlenStep: o.MinQlenStep, ECN: classicOnly,
			DropOverload: o.DropOverload != 0, DropEnqueue: o.DropEnqueue != 0, ClassicProtection: uint8(o.Wc),
		},
		LLLLMark: o.BypassMark, LLLLMask: o.BypassMask,
		Rate: units.Rate(o.RateBytes * 8), Raw: o.Raw != 0, Overhead: o.Overhead, MPU: o.Mpu,
	}
	if o.L4sMask == 3 {
		c.ECN = anyECT
	}
	if int(o.Framing) < len(framings()) { // else it is of another version, and no words say it
		c.ATM = framings()[o.Framing]
	}
	if o.StepInPackets != 0 {
		c.StepPackets = uint32(o.StepThresh)
	} else {
		c.StepThresh = units.Duration(o.StepThresh)
	}
	if !c.Raw {
		c.Overhead += header
	}
	return c
}

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
		SojournC: NewSojourn(histogram(o.Sojourn[c])), SojournL: NewSojourn(histogram(o.Sojourn[l])),
	}
}

// Mean is the mean time that a packet has waited; 0 if there was none.
func (h Histogram) Mean() time.Duration {
	if h.Packets == 0 {
		return 0
	}
	return h.Sum / time.Duration(h.Packets)
}

// Quantile is a time that so large a share of the packets has not exceeded, for q from 0 to 1, where those of a bucket
// are taken to be spread evenly over it: at most a bucket off, which is an eighth.
func (h Histogram) Quantile(q float64) time.Duration {
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
