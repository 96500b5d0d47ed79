// SPDX-License-Identifier: Apache-2.0

package shaper

import (
	"time"

	"weir/internal/units"
)

// Config is what a shaper is told.
type Config struct {
	Rate units.Rate // that the clients share, on the wire

	// Share is the part of the rate that is sent, 0.99 by default: with less the provider's queue is shorter.
	Share float64
}

// params is struct params in bpf/shaper.h.
type params struct {
	NsPerByte   uint64
	SlotBytes   uint64
	TrimGain    uint64
	SettleSlots uint64
	Target      uint64
	Limit       uint64
	SlotShift   uint32
	_           uint32
}

// What bpf/shaper.h has agreed on with this file.
const (
	nsShift = 20   // NS_SHIFT
	horizon = 1023 // HORIZON
)

// The time constants of the two controllers, and the delays: target is CoDel's (RFC 8289, section 4.4).
const (
	// A slot that lacks all of its bytes adds slot/trimTime to the rate. That is more than what packets wait for, as
	// it takes that long until more is sent: with 30 ms the rate of a thousand clients swings.
	trimTime   = 120 * time.Millisecond
	settleTime = 64 * time.Millisecond
	target     = 5 * time.Millisecond
	limit      = 100 * time.Millisecond
)

func (c Config) encode() params {
	rate := float64(c.Rate) / 8 * c.Share // bytes/s
	p := params{SlotShift: slotShift(c.Rate), Target: uint64(target)}
	slot := uint64(1) << p.SlotShift // ns
	p.NsPerByte = uint64(1e9 * (1 << nsShift) / rate)
	p.SlotBytes = max(uint64(rate*float64(slot)/1e9), 1)
	p.TrimGain = slot << 40 / (uint64(trimTime) * p.SlotBytes)
	p.SettleSlots = uint64(settleTime)/slot + 1
	p.Limit = min(uint64(limit), horizon*slot*3/4) // no clock gets to the horizon but by one packet
	return p
}

// slotShift is the length of a slot as a power of 2, in ns: some ten full frames or more, and not more often than a CPU
// has time for.
func slotShift(rate units.Rate) uint32 {
	const megabit = 1_000_000
	switch {
	case rate < 400*megabit:
		return 19
	case rate < 5000*megabit:
		return 18
	case rate < 20000*megabit:
		return 16
	}
	return 15
}
