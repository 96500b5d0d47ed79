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
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"weir/internal/bpf"
	"weir/internal/units"
)

// MaxLimit is the largest Limit: what an instance's two rings can be made for.
const MaxLimit = 1 << 17

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

// capacity is how many packets an instance that is made with a limit can hold: what its limit can be changed to later.
func capacity(limit uint32) uint32 {
	capacity := uint32(1 << 14)
	for capacity < limit && capacity < MaxLimit {
		capacity <<= 1
	}
	return capacity
}

// What goes to the L queue: ECT(1) and CE alone, or ECT(0), too.
const (
	classicOnly = "l4s_ect"
	anyECT      = "any_ect"
)

// What bpf/dualpi2.h and bpf/pi2.h have agreed on with this file.
const (
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
	case c.Overhead < -64 || c.Overhead > 256:
		return errors.New("overhead is out of range (-64 to 256 bytes)")
	case !slices.Contains(bpf.Framings(), c.ATM):
		return fmt.Errorf("framing %q is not known", c.ATM)
	}
	return c.CheckNumbers()
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
		Raw: flag(c.Raw),
	}
	o.Framing.Overhead, o.Framing.Cells = c.Overhead, uint32(slices.Index(bpf.Framings(), c.ATM))
	if c.ECN == anyECT {
		o.L4sMask = 3
	}
	for _, n := range Numbers() {
		*n.object(&o) = *n.Value(&c)
	}
	if c.StepPackets != 0 {
		o.StepInPackets, o.StepThresh = 1, uint64(c.StepPackets)
	}
	if !c.Raw {
		o.Framing.Overhead -= header
	}
	if c.Rate != 0 {
		o.RateBytes = uint64(c.Rate / 8)
		o.NsPerByte = max(1e9<<rateShift/o.RateBytes, 1)
	}
	// ATM makes 53 of 48 bytes and fills the last cell; a segment has 28 bytes of headers at least.
	o.WirePerByte = 2 * (2 + c.MPU + uint32(max(o.Framing.Overhead, 0)))
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
		Rate: units.Rate(o.RateBytes * 8), Raw: o.Raw != 0, Overhead: o.Framing.Overhead,
	}
	for _, n := range Numbers() {
		*n.Value(&c) = *n.object(&o)
	}
	if o.L4sMask == 3 {
		c.ECN = anyECT
	}
	if all := bpf.Framings(); int(o.Framing.Cells) < len(all) { // else it is of another version, and no words say it
		c.ATM = all[o.Framing.Cells]
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
