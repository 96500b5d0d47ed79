// SPDX-License-Identifier: Apache-2.0

package qdisc

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"sort"

	"weir/internal/units"
	"weir/internal/wire"
)

// ticksPerMicrosecond is the packet scheduler's clock, 64 ns a tick since Linux 2.6.31 (PSCHED_SHIFT,
// include/net/pkt_sched.h). tc reads it from /proc/net/psched, which has said the same on every kernel since.
const ticksPerMicrosecond = 1000.0 / 64

// sendingTime is how long so many bytes take at rate bytes per second, in ticks: tc's formula to the last rounding
// (iproute2 tc/tc_core.c, tc_calc_xmittime), as the kernel keeps htb's bursts as tc sends them.
func sendingTime(rate, bytes uint64) uint64 {
	ticks := math.Ceil(1e6 * (float64(bytes) / float64(rate)) * ticksPerMicrosecond)
	if ticks > math.MaxUint32 {
		return math.MaxUint32
	}
	return uint64(ticks)
}

// kernelTime is the same as the kernel computes it (net/sched/sch_generic.c psched_ratecfg_precompute__,
// include/net/sch_generic.h psched_l2t_ns).
func (r ratespec) kernelTime(bytes uint64) uint64 {
	factor, shift := uint64(1e9), 0
	scale := uint64(1)
	for r.rate > 0 {
		scale = factor / r.rate & math.MaxUint32
		if scale&(1<<31) != 0 || factor&(1<<63) != 0 {
			break
		}
		factor <<= 1
		shift++
	}
	bytes = max((bytes+uint64(r.overhead))&math.MaxUint32, uint64(r.mpu))
	if r.atm {
		bytes = (bytes + 47) / 48 * 53
	}
	return bytes * scale >> shift >> 6
}

// inTicks returns the number of bytes that takes so many ticks. Where several do, it is the one that a person would
// have written: whole packets of an Ethernet, or a round number. Where none does, it is the next smaller.
func inTicks(ticks uint64, time func(uint64) uint64) units.Size {
	low := max(uint64(sort.Search(math.MaxUint32, func(n int) bool { return time(uint64(n)) >= ticks })), 1)
	high := max(uint64(sort.Search(math.MaxUint32, func(n int) bool { return time(uint64(n)) > ticks })), 1) - 1
	for _, step := range []uint64{2 * wire.Frame, wire.Frame, 1024, 1000, 100, 10} {
		if n := (low + step - 1) / step * step; n <= high {
			return units.Size(n)
		}
	}
	return units.Size(high)
}

// ratespec is struct tc_ratespec (include/uapi/linux/pkt_sched.h).
type ratespec struct {
	rate     uint64 // bytes per second
	overhead uint16 // bytes
	mpu      uint16 // bytes
	atm      bool
}

const ratespecLen = 12

// The kernel uses the link layer only, and ignores the rate tables if it is set (since Linux 3.11), so none is sent;
// cellLog belongs to them.
const (
	linkEthernet = 1
	linkATM      = 2
	cellLog      = 3 // tc's for an mtu of up to 2047 bytes
)

func (r ratespec) append(b []byte) []byte {
	if r.rate == 0 {
		return append(b, make([]byte, ratespecLen)...)
	}
	link := byte(linkEthernet)
	if r.atm {
		link = linkATM
	}
	b = append(b, cellLog, link)
	b = binary.NativeEndian.AppendUint16(b, r.overhead)
	b = binary.NativeEndian.AppendUint16(b, math.MaxUint16) // cell_align: -1
	b = binary.NativeEndian.AppendUint16(b, r.mpu)
	return binary.NativeEndian.AppendUint32(b, uint32(min(r.rate, math.MaxUint32)))
}

// parseRatespec reads the first 12 bytes, which must be there.
func parseRatespec(b []byte) ratespec {
	return ratespec{
		overhead: binary.NativeEndian.Uint16(b[2:]),
		mpu:      binary.NativeEndian.Uint16(b[6:]),
		rate:     uint64(binary.NativeEndian.Uint32(b[8:])),
		atm:      b[1]&0x0F == linkATM,
	}
}

// decodeRates reads the attributes that htb and tbf report: a struct of so many bytes, which begins with two rates, and
// these in 64 bits. The second rate may be zero. What follows in the struct is the rest.
func decodeRates(b []byte, parms, rate64, second64 uint16, name string, length int) (rate, second ratespec,
	rest []byte, err error) {
	attributes, err := unpack(b)
	if err != nil {
		return rate, second, nil, err
	}
	wide := map[uint16]uint64{}
	for _, a := range attributes {
		switch a.Type {
		case parms:
			rest = a.Data
		case rate64, second64:
			if wide[a.Type], err = integer(a.Data); err != nil {
				return rate, second, nil, err
			}
		}
	}
	if len(rest) < length {
		return rate, second, nil, fmt.Errorf("%s is too short", name)
	}
	rate, second = parseRatespec(rest), parseRatespec(rest[ratespecLen:])
	rate.rate, second.rate = max(rate.rate, wide[rate64]), max(second.rate, wide[second64])
	if rate.rate == 0 || max(rate.rate, second.rate) > math.MaxUint64/8 ||
		second.rate > 0 && (rate.overhead != second.overhead || rate.mpu != second.mpu || rate.atm != second.atm) {
		err = errRates
	}
	return rate, second, rest[2*ratespecLen:], err
}

var errRates = errors.New("tc has no words for these rates")

// linklayer is the option that htb and tbf share.
func linklayer(atm *bool) option {
	return option{
		words: []string{"linklayer"},
		read: func(_ string, a *args) error {
			word, err := a.next()
			if err != nil {
				return err
			}
			*atm = word == "atm" || word == "adsl"
			return oneOf("link layer", word, "ethernet", "atm", "adsl")
		},
		write: func() string {
			if *atm {
				return "linklayer atm"
			}
			return "linklayer ethernet"
		},
	}
}
