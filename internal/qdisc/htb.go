// SPDX-License-Identifier: Apache-2.0

package qdisc

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"strconv"

	"weir/internal/units"
	"weir/internal/wire"

	"github.com/mdlayher/netlink"
)

// The attributes of htb (TCA_HTB_*, include/uapi/linux/pkt_sched.h).
const (
	htbParms = iota + 1
	htbInit
	htbCTab // rate tables: no longer used
	htbRTab
	htbDirectQlen
	htbRate64
	htbCeil64
	htbPad
	htbOffload
)

// HTB is a token bucket shaper: the root with one class that all packets go to (net/sched/sch_htb.c, tc-htb(8)).
//
// Its defaults are not tc's. tc lets a class save up a burst of several milliseconds, which arrives as a queue at the
// bottleneck that the shaper stands in for; two packets of burst and one of quantum make it the limiter that the rate
// says.
type HTB struct {
	Rate       units.Rate `json:"rate"`        // needed
	Ceil       units.Rate `json:"ceil"`        // default: rate
	Burst      units.Size `json:"burst"`       // 1b to 4gb; default 3028b
	CBurst     units.Size `json:"cburst"`      // burst at ceil; default 3028b
	Quantum    uint32     `json:"quantum"`     // bytes; default 1514
	Prio       uint32     `json:"prio"`        // 0 to 7; default 0
	MPU        uint16     `json:"mpu"`         // bytes that a packet counts for at least
	Overhead   uint16     `json:"overhead"`    // bytes added to each packet
	ATM        bool       `json:"atm"`         // linklayer atm: count ATM cells
	Class      uint16     `json:"default"`     // the class's minor number; default 1
	DirectQlen uint32     `json:"direct_qlen"` // packets that wait outside of any class; 0: the device's queue length
}

// Two packets, and one, of an Ethernet with an MTU of 1500.
const (
	htbBurst   = 3028
	htbQuantum = wire.Frame
)

func newHTB() *HTB { return &HTB{Burst: htbBurst, CBurst: htbBurst, Quantum: htbQuantum, Class: 1} }

func (q HTB) Kind() string { return "htb" }
func (q HTB) draft() Spec  { return q }
func (q HTB) edit() editor { return &q }

// String leaves out a ceiling that is the rate.
func (q HTB) String() string {
	if q.Ceil == q.Rate {
		q.Ceil = 0
	}
	return format(q)
}

func (q *HTB) options() []option {
	hexadecimal := value("default", 0, 4,
		func(s string) (uint64, error) {
			v, err := strconv.ParseUint(s, 16, 16)
			if err != nil || v == 0 {
				return 0, fmt.Errorf("%q is not a class's minor number (1 to ffff, hexadecimal)", s)
			}
			return v, nil
		},
		func(v uint64) string { return strconv.FormatUint(v, 16) },
		func() uint64 { return uint64(q.Class) }, func(v uint64) { q.Class = uint16(v) })
	return []option{
		hexadecimal,
		auto(count("direct_qlen", htbDirectQlen, 4, &q.DirectQlen, 1, math.MaxUint32), &q.DirectQlen),
		rate("rate", 0, 8, &q.Rate),
		auto(rate("ceil", 0, 8, &q.Ceil), &q.Ceil),
		size("burst", 0, &q.Burst, 1),
		size("cburst", 0, &q.CBurst, 1),
		octets("quantum", 0, 4, &q.Quantum, 1, math.MaxInt32),
		count("prio", 0, 4, &q.Prio, 0, 7),
		octets("mpu", 0, 2, &q.MPU, 0, math.MaxUint16),
		octets("overhead", 0, 2, &q.Overhead, 0, math.MaxUint16),
		linklayer(&q.ATM),
	}
}

// encode returns the discipline's own options, struct tc_htb_glob above all; the class has most of them. Nothing of it
// can be changed in place.
func (q HTB) encode(base Spec) ([]byte, error) {
	if before, ok := base.(HTB); ok && before.Rate != 0 {
		if before.Class != q.Class || before.DirectQlen != q.DirectQlen {
			return nil, errors.New("htb: default and direct_qlen cannot be changed in place: replace the discipline")
		}
		return nil, nil
	}
	const version, rateToQuantum = 3, 10
	attributes := []netlink.Attribute{{Type: htbInit}}
	for _, v := range []uint32{version, rateToQuantum, uint32(q.Class), 0, 0} {
		attributes[0].Data = append(attributes[0].Data, u32bytes(v)...)
	}
	if q.DirectQlen > 0 {
		attributes = append(attributes, netlink.Attribute{Type: htbDirectQlen, Data: u32bytes(q.DirectQlen)})
	}
	return netlink.MarshalAttributes(attributes)
}

const (
	htbGlobLen  = 20 // struct tc_htb_glob
	htbParmsLen = 44 // struct tc_htb_opt
)

func (q HTB) specs() (rate, ceil ratespec) {
	return ratespec{uint64(q.Rate / 8), q.Overhead, q.MPU, q.ATM},
		ratespec{uint64(q.Ceil / 8), q.Overhead, q.MPU, q.ATM}
}

// encodeClass returns the class's options, struct tc_htb_opt; the rates beyond its 32 bits of bytes per second go in
// front.
func (q HTB) encodeClass() ([]byte, error) {
	rate, ceil := q.specs()
	var attributes []netlink.Attribute
	if rate.rate > math.MaxUint32 {
		attributes = append(attributes, netlink.Attribute{Type: htbRate64, Data: u64bytes(rate.rate)})
	}
	if ceil.rate > math.MaxUint32 {
		attributes = append(attributes, netlink.Attribute{Type: htbCeil64, Data: u64bytes(ceil.rate)})
	}
	b := ceil.append(rate.append(nil))
	for _, v := range []uint64{sendingTime(rate.rate, uint64(q.Burst)), sendingTime(ceil.rate, uint64(q.CBurst)),
		uint64(q.Quantum), 0, uint64(q.Prio)} {
		b = append(b, u32bytes(uint32(v))...)
	}
	return netlink.MarshalAttributes(append(attributes, netlink.Attribute{Type: htbParms, Data: b}))
}

func (q *HTB) decode(b []byte, d device) error {
	attributes, err := unpack(b)
	if err != nil {
		return err
	}
	q.Class = 0
	for _, a := range attributes {
		switch a.Type {
		case htbInit:
			if len(a.Data) < htbGlobLen {
				return errors.New("struct tc_htb_glob is too short")
			}
			class := binary.NativeEndian.Uint32(a.Data[8:])
			if class > math.MaxUint16 {
				return errors.New("the default class has a major number")
			}
			q.Class = uint16(class)
		case htbDirectQlen:
			v, err := integer(a.Data)
			if err != nil || v == 0 {
				return errors.New("direct_qlen is not a number")
			}
			if q.DirectQlen = uint32(v); d.present && q.DirectQlen == d.queue {
				q.DirectQlen = 0
			}
		case htbOffload:
			return errors.New("the hardware shapes")
		}
	}
	return nil
}

// decodeClass takes over the one class.
func (q *HTB) decodeClass(b []byte) error {
	rate, ceil, rest, err := decodeRates(b, htbParms, htbRate64, htbCeil64, "struct tc_htb_opt", htbParmsLen)
	if err == nil && ceil.rate == 0 {
		err = errRates
	}
	if err != nil {
		return err
	}
	number := func(i int) uint64 { return uint64(binary.NativeEndian.Uint32(rest[4*i:])) }
	q.Rate, q.Ceil = units.Rate(rate.rate*8), units.Rate(ceil.rate*8)
	q.MPU, q.Overhead, q.ATM = rate.mpu, rate.overhead, rate.atm
	q.Burst = inTicks(number(0), func(n uint64) uint64 { return sendingTime(rate.rate, n) })
	q.CBurst = inTicks(number(1), func(n uint64) uint64 { return sendingTime(ceil.rate, n) })
	q.Quantum, q.Prio = uint32(number(2)), uint32(number(4))
	return nil
}

func (q *HTB) finish() (Spec, error) {
	q.Rate -= q.Rate % 8
	if q.Ceil -= q.Ceil % 8; q.Ceil == 0 {
		q.Ceil = q.Rate
	}
	rate, ceil := q.specs()
	switch {
	case q.Rate == 0:
		return nil, errors.New("needs a rate: write it like \"htb rate 50mbit\"")
	case q.Ceil < q.Rate:
		return nil, fmt.Errorf("ceil %s is below rate %s", q.Ceil, q.Rate)
	case q.Burst == 0 || q.CBurst == 0 || q.Quantum == 0:
		return nil, errors.New("burst, cburst and quantum cannot be zero")
	case q.Prio > 7:
		return nil, fmt.Errorf("prio %d is out of range (0 to 7)", q.Prio)
	case q.Class == 0:
		return nil, errors.New("default cannot be zero: packets would pass the class by")
	case sendingTime(rate.rate, uint64(q.Burst)) == math.MaxUint32 ||
		sendingTime(ceil.rate, uint64(q.CBurst)) == math.MaxUint32:
		return nil, fmt.Errorf("burst is out of range: it takes longer than 274 s at %s", q.Rate)
	}
	q.Burst = inTicks(sendingTime(rate.rate, uint64(q.Burst)),
		func(n uint64) uint64 { return sendingTime(rate.rate, n) })
	q.CBurst = inTicks(sendingTime(ceil.rate, uint64(q.CBurst)),
		func(n uint64) uint64 { return sendingTime(ceil.rate, n) })
	return *q, nil
}

// htbReplay makes of a reported discipline one that can be sent.
func htbReplay(options []byte) []byte {
	return corrected(options, func(a netlink.Attribute) {
		if a.Type == htbInit && len(a.Data) >= htbGlobLen {
			binary.NativeEndian.PutUint32(a.Data, 3)      // the version: only the major one is taken, both are reported
			binary.NativeEndian.PutUint32(a.Data[16:], 0) // direct_pkts counts
		}
	})
}

// htbStats are those of an htb class (struct tc_htb_xstats).
type htbStats struct {
	Lends   uint32 `json:"lends"`   // packets sent within its rate
	Borrows uint32 `json:"borrows"` // packets sent on its parent's
	Giants  uint32 `json:"giants"`  // no longer counted
	Tokens  int32  `json:"tokens"`  // ticks of 64 ns
	CTokens int32  `json:"ctokens"` // ticks of 64 ns
}

func readHTBStats(s *Stats, b []byte) error {
	f := &fields{b}
	s.X = htbStats{f.u32(), f.u32(), f.u32(), int32(f.u32()), int32(f.u32())}
	return nil
}
