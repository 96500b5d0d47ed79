// SPDX-License-Identifier: Apache-2.0

package qdisc

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"weir/internal/units"

	"github.com/mdlayher/netlink"
)

// The attributes of tbf (TCA_TBF_*, include/uapi/linux/pkt_sched.h).
const (
	tbfParms = iota + 1
	tbfRTab  // rate tables: no longer used
	tbfPTab
	tbfRate64
	tbfPeakRate64
	tbfBurst
	tbfPeakBurst
)

// TBF is a token bucket in front of a FIFO, or of one discipline hung below it (net/sched/sch_tbf.c, tc-tbf(8)).
type TBF struct {
	Rate     units.Rate `json:"rate"`     // needed
	Burst    units.Size `json:"burst"`    // needed; at least the device's largest packet
	Limit    units.Size `json:"limit"`    // of the queue; needed, or a latency from which it follows
	PeakRate units.Rate `json:"peakrate"` // above rate; 0: none
	MTU      units.Size `json:"mtu"`      // burst at peakrate; needed with it
	MPU      uint16     `json:"mpu"`      // bytes that a packet counts for at least
	Overhead uint16     `json:"overhead"` // bytes added to each packet
	ATM      bool       `json:"atm"`      // linklayer atm: count ATM cells

	latency units.Duration // as given; gone once limit is known
}

func newTBF() *TBF { return &TBF{} }

func (q TBF) Kind() string   { return "tbf" }
func (q TBF) String() string { return format(q) }
func (q TBF) draft() Spec    { return q }
func (q TBF) edit() editor   { return &q }

func (q *TBF) options() []option {
	latency := microseconds("latency", 0, &q.latency, 1)
	latency.write = func() string { return "" }
	return []option{
		rate("rate", 0, 8, &q.Rate),
		size("burst", 0, &q.Burst, 1),
		size("limit", 0, &q.Limit, 1), latency,
		auto(rate("peakrate", 0, 8, &q.PeakRate), &q.PeakRate),
		size("mtu", 0, &q.MTU, 1),
		octets("mpu", 0, 2, &q.MPU, 0, math.MaxUint16),
		octets("overhead", 0, 2, &q.Overhead, 0, math.MaxUint16),
		linklayer(&q.ATM),
	}
}

func (q TBF) specs() (rate, peak ratespec) {
	return ratespec{uint64(q.Rate / 8), q.Overhead, q.MPU, q.ATM},
		ratespec{uint64(q.PeakRate / 8), q.Overhead, q.MPU, q.ATM}
}

const tbfParmsLen = 36 // struct tc_tbf_qopt

// encode sends everything each time: the kernel takes nothing over from before.
func (q TBF) encode(Spec) ([]byte, error) {
	rate, peak := q.specs()
	b := peak.append(rate.append(nil))
	b = append(b, u32bytes(uint32(q.Limit))...)
	// The times are for kernels before 3.14, and so as tc computes them: from 32 bits of rate.
	b = append(b, u32bytes(uint32(sendingTime(min(rate.rate, math.MaxUint32), uint64(q.Burst))))...)
	if peak.rate > 0 {
		b = append(b, u32bytes(uint32(sendingTime(min(peak.rate, math.MaxUint32), uint64(q.MTU))))...)
	} else {
		b = append(b, u32bytes(0)...)
	}
	attributes := []netlink.Attribute{{Type: tbfParms, Data: b}, {Type: tbfBurst, Data: u32bytes(uint32(q.Burst))}}
	if rate.rate > math.MaxUint32 {
		attributes = append(attributes, netlink.Attribute{Type: tbfRate64, Data: u64bytes(rate.rate)})
	}
	if peak.rate > math.MaxUint32 {
		attributes = append(attributes, netlink.Attribute{Type: tbfPeakRate64, Data: u64bytes(peak.rate)})
	}
	if peak.rate > 0 {
		attributes = append(attributes, netlink.Attribute{Type: tbfPeakBurst, Data: u32bytes(uint32(q.MTU))})
	}
	return netlink.MarshalAttributes(attributes)
}

func (q *TBF) decode(b []byte, _ device) error {
	rate, peak, rest, err := decodeRates(b, tbfParms, tbfRate64, tbfPeakRate64, "struct tc_tbf_qopt", tbfParmsLen)
	if err != nil {
		return err
	}
	number := func(i int) uint64 { return uint64(binary.NativeEndian.Uint32(rest[4*i:])) }
	q.Rate, q.PeakRate = units.Rate(rate.rate*8), units.Rate(peak.rate*8)
	q.MPU, q.Overhead, q.ATM = rate.mpu, rate.overhead, rate.atm
	q.Limit = units.Size(number(0))
	q.Burst = inTicks(number(1), rate.kernelTime)
	if peak.rate > 0 {
		q.MTU = inTicks(number(2), peak.kernelTime)
	}
	return nil
}

func (q *TBF) finish() (Spec, error) {
	q.Rate -= q.Rate % 8
	q.PeakRate -= q.PeakRate % 8
	rate, peak := q.specs()
	var missing error
	switch {
	case q.Rate == 0:
		missing = errors.New("needs a rate")
	case q.Burst == 0:
		missing = errors.New("needs a burst")
	case q.Limit == 0 && q.latency == 0:
		missing = errors.New("needs a limit or a latency")
	case q.PeakRate > 0 && q.MTU == 0:
		missing = errors.New("needs an mtu, as it has a peakrate")
	}
	switch {
	case missing != nil:
		return nil, fmt.Errorf("%w: write it like \"tbf rate 50mbit burst 5kb latency 20ms\"", missing)
	case q.Limit > 0 && q.latency > 0:
		return nil, errors.New("limit and latency say the same: give one")
	case q.PeakRate > 0 && q.PeakRate <= q.Rate:
		return nil, fmt.Errorf("peakrate %s is not above rate %s", q.PeakRate, q.Rate)
	case q.PeakRate == 0 && q.MTU > 0:
		return nil, errors.New("mtu has no effect without a peakrate")
	case sendingTime(rate.rate, uint64(q.Burst)) == math.MaxUint32:
		return nil, fmt.Errorf("burst is out of range: it takes longer than 274 s at %s", q.Rate)
	}
	if q.latency > 0 {
		// tc's formula (iproute2 tc/q_tbf.c).
		us := float64(toMicroseconds(q.latency))
		limit := float64(rate.rate)*us/1e6 + float64(q.Burst)
		if q.PeakRate > 0 {
			limit = min(limit, float64(peak.rate)*us/1e6+float64(q.MTU))
		}
		if limit > math.MaxUint32 {
			return nil, fmt.Errorf("latency %s is out of range: at %s it is more than 4gb", q.latency, q.Rate)
		}
		q.Limit, q.latency = units.Size(limit), 0
	}
	if q.Limit > math.MaxUint32 || q.Burst > math.MaxUint32 || q.MTU > math.MaxUint32 {
		return nil, errors.New("sizes go up to 4gb less 1b")
	}
	q.Burst = inTicks(rate.kernelTime(uint64(q.Burst)), rate.kernelTime)
	if q.PeakRate > 0 {
		q.MTU = inTicks(peak.kernelTime(uint64(q.MTU)), peak.kernelTime)
	}
	if q.Burst == 0 || q.Limit == 0 {
		return nil, errors.New("burst and limit cannot be zero")
	}
	return *q, nil
}
