// SPDX-License-Identifier: Apache-2.0

package qdisc

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"weir/internal/units"

	"github.com/mdlayher/netlink"
)

// faulty is a Spec that parses, with one field set to what no words could have given it.
func faulty[T Spec](t *testing.T, text string, set func(*T)) Spec {
	t.Helper()
	spec := mustParse(t, text)[0].(T)
	set(&spec)
	return spec
}

// A Spec that was put together field by field is checked as one that was typed in: each fault is named.
func TestFaultyFields(t *testing.T) {
	const (
		cake  = "cake bandwidth 5mbit"
		htb   = "htb rate 5mbit"
		tbf   = "tbf rate 5mbit burst 5kb limit 9kb"
		netem = "netem delay 10ms 1ms loss random 1%"
		bpf   = "bpf_dualpi2 rate 5mbit"
	)
	field := func(set func(*netemSpec)) Spec { return faulty(t, netem, set) }
	dp2 := func(set func(*dualPI2Spec)) Spec { return faulty(t, "dualpi2", set) }
	for _, c := range []struct {
		spec Spec
		want string
	}{
		{faulty(t, cake, func(q *Cake) { q.Diffserv = "all" }), "diffserv mode"},
		{faulty(t, cake, func(q *Cake) { q.FlowMode = "all" }), "flow mode"},
		{faulty(t, cake, func(q *Cake) { q.ACKFilter = "all" }), "ACK filter"},
		{faulty(t, cake, func(q *Cake) { q.ATM = "cells" }), "framing"},
		{faulty(t, cake, func(q *Cake) { q.Overhead = 257 }), "overhead 257 is out of range"},
		{faulty(t, cake, func(q *Cake) { q.Overhead = -65 }), "overhead -65 is out of range"},
		{faulty(t, cake, func(q *Cake) { q.MPU = 257 }), "mpu 257 is out of range"},
		{faulty(t, cake, func(q *Cake) { q.RTT = 999 }), "rtt 999ns is out of range"},
		{faulty(t, cake, func(q *Cake) { q.RTT = never + 1 }), "is out of range (1us to 4294.967295s)"},
		{faulty(t, "cake_mq bandwidth 5mbit", func(q *Cake) { q.Autorate = true }), "several queues"},
		{faulty(t, htb, func(q *HTB) { q.Rate = 0 }), "needs a rate"},
		{faulty(t, htb, func(q *HTB) { q.Rate = 7 }), "needs a rate"},
		{faulty(t, htb, func(q *HTB) { q.Ceil = 8 }), "ceil 8bit is below rate"},
		{faulty(t, htb, func(q *HTB) { q.Burst = 0 }), "cannot be zero"},
		{faulty(t, htb, func(q *HTB) { q.CBurst = 0 }), "cannot be zero"},
		{faulty(t, htb, func(q *HTB) { q.Quantum = 0 }), "cannot be zero"},
		{faulty(t, htb, func(q *HTB) { q.Prio = 8 }), "prio 8 is out of range (0 to 7)"},
		{faulty(t, htb, func(q *HTB) { q.Class = 0 }), "default cannot be zero"},
		{faulty(t, htb, func(q *HTB) { q.Rate, q.Burst = 80, 1e6 }), "longer than 274 s"},
		{faulty(t, htb, func(q *HTB) { q.Rate, q.Ceil, q.CBurst = 80, 80, 1e6 }), "longer than 274 s"},
		{faulty(t, tbf, func(q *TBF) { q.Rate = 7 }), "needs a rate"},
		{faulty(t, tbf, func(q *TBF) { q.Burst = 0 }), "needs a burst"},
		{faulty(t, tbf, func(q *TBF) { q.Limit = 0 }), "needs a limit or a latency"},
		{faulty(t, tbf, func(q *TBF) { q.latency = 1e6 }), "limit and latency say the same"},
		{faulty(t, tbf, func(q *TBF) { q.PeakRate = 9e6 }), "needs an mtu, as it has a peakrate"},
		{faulty(t, tbf, func(q *TBF) { q.PeakRate, q.MTU = 5e6, 2000 }), "peakrate 5mbit is not above rate 5mbit"},
		{faulty(t, tbf, func(q *TBF) { q.MTU = 2000 }), "mtu has no effect without a peakrate"},
		{faulty(t, tbf, func(q *TBF) { q.Rate, q.Burst = 80, 1e6 }), "longer than 274 s"},
		{faulty(t, tbf, func(q *TBF) { q.Limit = 1 << 32 }), "sizes go up to 4gb less 1b"},
		{faulty(t, tbf, func(q *TBF) { q.Rate, q.Burst = 1e12, 1<<32 }), "sizes go up to 4gb less 1b"},
		{faulty(t, tbf, func(q *TBF) { q.PeakRate, q.MTU = 1e12, 1<<32 }), "sizes go up to 4gb less 1b"},
		{faulty(t, tbf, func(q *TBF) { q.Rate, q.Limit, q.latency = 1e12, 0, 1e9 }), "more than 4gb"},
		{field(func(q *netemSpec) { q.Delay = -1 }), "cannot be negative"},
		{field(func(q *netemSpec) { q.Jitter = -1 }), "cannot be negative"},
		{field(func(q *netemSpec) { q.Jitter = math.MaxInt32 + 1 }), "jitter 2.147483648s is out of range"},
		{field(func(q *netemSpec) { q.Jitter, q.DelayCorrelation = 0, 0.5 }), "a correlation needs a jitter"},
		{field(func(q *netemSpec) { q.Loss, q.LossCorrelation = 0, 0.5 }), "a correlation needs a jitter"},
		{field(func(q *netemSpec) { q.Limit = 0 }), "a limit of 0 packets"},
		{field(func(q *netemSpec) { q.Delay, q.Reorder = 0, 0.5 }), "reorder needs a delay"},
		{field(func(q *netemSpec) { q.Gap = 1 }), "gap needs reorder"},
		{field(func(q *netemSpec) { q.ECN, q.Loss = true, 0 }), "ecn needs a loss"},
		{field(func(q *netemSpec) { q.Gilbert = gilbertModel{P: 0.5} }), "one loss model at a time"},
		{field(func(q *netemSpec) { q.PacketOverhead = 1 }), "need a rate"},
		{field(func(q *netemSpec) { q.CellSize = 1 }), "need a rate"},
		{field(func(q *netemSpec) { q.CellOverhead = 1 }), "need a rate"},
		{dp2(func(q *dualPI2Spec) { q.Limit = 0 }), "limit is zero"},
		{dp2(func(q *dualPI2Spec) { q.CouplingFactor = 0 }), "coupling_factor is zero"},
		{dp2(func(q *dualPI2Spec) { q.ClassicProtection = 101 }), "classic_protection is above 100%"},
		{dp2(func(q *dualPI2Spec) { q.Alpha = 0 }), "rounds to zero"},
		{dp2(func(q *dualPI2Spec) { q.Beta = 0 }), "rounds to zero"},
		{dp2(func(q *dualPI2Spec) { q.Alpha = math.MaxInt32 + 1 }), "overflows"},
		{dp2(func(q *dualPI2Spec) { q.Beta = math.MaxInt32 + 1 }), "overflows"},
		{dp2(func(q *dualPI2Spec) { q.TUpdate = 4294967001 }), "go up to 4.294967s"},
		{dp2(func(q *dualPI2Spec) { q.StepThresh = 4294967001 }), "go up to 4.294967s"},
		{dp2(func(q *dualPI2Spec) { q.ECN = "all" }), "queue selector"},
		{faulty(t, bpf, func(q *BPFDualPI2) { q.Limit = 131073 }), "limit 131073 is out of range"},
		{faulty(t, bpf, func(q *BPFDualPI2) { q.Rate = 999 }), "rate 999bit is below 1kbit"},
		{faulty(t, bpf, func(q *BPFDualPI2) { q.ATM = "cells" }), "framing"},
		{faulty(t, bpf, func(q *BPFDualPI2) { q.Alpha = 0 }), "rounds to zero"},
		{faulty(t, bpf, func(q *BPFDualPI2) { q.LLLLMark, q.LLLLMask = 3, 1 }), "its mask 0x1 leaves out"},
		{faulty(t, "fq_codel ce_threshold 1ms", func(q *FQCodel) { q.CEThreshold, q.CESelector = never, 1 }),
			"needs a ce_threshold"},
		{faulty(t, "fq_codel ce_threshold 1ms", func(q *FQCodel) { q.CEThreshold, q.CEMask = never, 1 }),
			"needs a ce_threshold"},
	} {
		if spec, err := check(c.spec); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v, %v; want an error with %q", c.spec, spec, err, c.want)
		}
	}
	for i := range 13 { // each share of netem
		spec := field(func(q *netemSpec) {
			*[]*units.Share{&q.DelayCorrelation, &q.Loss, &q.LossCorrelation, &q.Gilbert.P, &q.Gilbert.R,
				&q.Gilbert.Bad, &q.Gilbert.Good, &q.Duplicate, &q.DuplicateCorrelation, &q.Corrupt,
				&q.CorruptCorrelation, &q.Reorder, &q.ReorderCorrelation}[i] = 1.01
		})
		if _, err := check(spec); err == nil || !strings.Contains(err.Error(), "shares go from 0% to 100%") {
			t.Errorf("share %d of 101%%: %v", i, err)
		}
	}
}

// What is right at its bound is taken.
func TestFieldsAtTheirBounds(t *testing.T) {
	for _, spec := range []Spec{
		faulty(t, "cake", func(q *Cake) { q.RTT = 1000 }),
		faulty(t, "cake", func(q *Cake) { q.RTT = never }),
		faulty(t, "cake", func(q *Cake) { q.Overhead, q.MPU, q.Raw = 256, 256, false }),
		faulty(t, "htb rate 5mbit", func(q *HTB) { q.Ceil, q.Prio = q.Rate, 7 }),
		faulty(t, "netem delay 10ms 1ms", func(q *netemSpec) { q.Jitter = math.MaxInt32 }),
		faulty(t, "netem rate 5mbit", func(q *netemSpec) { q.PacketOverhead, q.CellSize, q.CellOverhead = -4, 53, 5 }),
		faulty(t, "dualpi2", func(q *dualPI2Spec) { q.TUpdate, q.StepThresh = 4294967000, 4294967000 }),
		faulty(t, "dualpi2", func(q *dualPI2Spec) { q.ClassicProtection = 100 }),
		faulty(t, "bpf_dualpi2", func(q *BPFDualPI2) { q.Limit, q.Rate = 131072, 1000 }),
	} {
		if got, err := check(spec); err != nil || got != spec {
			t.Errorf("%+v: %+v, %v", spec, got, err)
		}
	}
}

// Of each option that travels as an attribute, one of a length that no kernel sends has no words.
func TestAttributesOfNoLength(t *testing.T) {
	for _, name := range Kinds() {
		k, _ := find(name)
		options := k.fresh().options()
		for _, o := range options {
			if o.attr == 0 || o.decode == nil || name == "dualpi2" && o.attr == dualpi2StepPackets {
				continue
			}
			if name == "cake" || name == "cake_mq" || name == BPF {
				if o.attr == cakeRaw || name == BPF && o.attr == bpfRaw { // a flag, whose content nobody reads
					continue
				}
			}
			for _, length := range []int{0, 3, 5, 9} {
				if spec := decode(name, pack(attribute(o.attr, make([]byte, length))), device{}); spec != nil {
					t.Errorf("%s, attribute %d of %d bytes: %v", name, o.attr, length, spec)
				}
			}
		}
	}
}

// Reported values that tc's language has no words for make a Spec of none; those beside them that it has do.
func TestValuesWithoutWords(t *testing.T) {
	number := func(typ uint16, v uint32) []byte { return pack(attribute(typ, u32bytes(v))) }
	for _, c := range []struct {
		kind    string
		options []byte
		want    string // "" where there are no words
	}{
		{"cake", number(cakeDiffserv, 4), "cake precedence"},
		{"cake", number(cakeDiffserv, 5), ""},
		{"cake", number(cakeFlowMode, 0), "cake flowblind"},
		{"cake", number(cakeFlowMode, 8), ""},
		{"cake", number(cakeACKFilter, 2), "cake ack-filter-aggressive"},
		{"cake", number(cakeACKFilter, 3), ""},
		{"cake", number(cakeATM, 2), "cake ptm"},
		{"cake", number(cakeATM, 3), ""},
		{"cake", number(cakeNAT, 7), "cake nat"},
		{"dualpi2", pack(attribute(dualpi2ECNMask, []byte{1})), "dualpi2"},
		{"dualpi2", pack(attribute(dualpi2ECNMask, []byte{3})), "dualpi2 any_ect"},
		{"dualpi2", pack(attribute(dualpi2ECNMask, []byte{0})), ""},
		{"dualpi2", number(dualpi2StepPackets, 1), "dualpi2 step_thresh 1p"},
		{"dualpi2", number(dualpi2StepPackets, 0), ""},
		{"dualpi2", number(dualpi2MemoryLimit, 0), ""},
		{"fq", number(fqBucketsLog, 1), "fq buckets 2"},
		{"fq", number(fqBucketsLog, 18), "fq buckets 262144"},
		{"fq", number(fqBucketsLog, 0), ""},
		{"fq", number(fqBucketsLog, 19), ""},
		{"fq", number(fqMaxRate, 0), ""},
		{"fq", number(fqMaxRate, 1), "fq maxrate 8bit"},
		{"fq", number(fqMaxRate, math.MaxUint32), "fq"},
		{"fq", number(fqQuantum, 0), ""},
		{"fq_codel", number(fqCodelQuantum, 0), ""},
		{"fq_codel", number(fqCodelECN, 0), "fq_codel noecn"},
		{"pfifo", u32bytes(1), "pfifo limit 1"},
		{"pfifo", u32bytes(0), ""},
		{"pfifo", make([]byte, 8), ""},
		{"pfifo", []byte{1}, ""},
		{"bfifo", nil, ""},
	} {
		got := ""
		if spec := decode(c.kind, c.options, device{}); spec != nil {
			got = spec.String()
		}
		if got != c.want {
			t.Errorf("%s %x reads as %q, want %q", c.kind, c.options, got, c.want)
		}
	}
}

// What an htb's own attributes may say. All else, and what is cut off, has no words.
func TestHTBOptions(t *testing.T) {
	glob := func(class uint32, length int) netlink.Attribute {
		return attribute(htbInit, slices.Concat(u32bytes(3), u32bytes(10), u32bytes(class), make([]byte, 8))[:length])
	}
	qlen := func(v uint32) netlink.Attribute { return attribute(htbDirectQlen, u32bytes(v)) }
	d := device{queue: 500, present: true}
	for _, c := range []struct {
		what   string
		list   []netlink.Attribute
		device device
		class  uint16
		direct uint32
		fails  bool
	}{
		{"a default", []netlink.Attribute{glob(0x10, 20)}, d, 0x10, 0, false},
		{"the last default", []netlink.Attribute{glob(0xffff, 20)}, d, 0xffff, 0, false},
		{"a major number", []netlink.Attribute{glob(0x10000, 20)}, d, 0, 0, true},
		{"a struct cut off", []netlink.Attribute{glob(1, 19)}, d, 0, 0, true},
		{"the device's queue", []netlink.Attribute{glob(1, 20), qlen(500)}, d, 1, 0, false},
		{"another queue", []netlink.Attribute{glob(1, 20), qlen(501)}, d, 1, 501, false},
		{"no device", []netlink.Attribute{glob(1, 20), qlen(500)}, device{queue: 500}, 1, 500, false},
		{"no queue", []netlink.Attribute{glob(1, 20), qlen(0)}, device{}, 1, 0, true},
		{"half a queue", []netlink.Attribute{attribute(htbDirectQlen, []byte{1, 2})}, d, 0, 0, true},
		{"offloading", []netlink.Attribute{glob(1, 20), attribute(htbOffload)}, d, 1, 0, true},
	} {
		q := newHTB()
		err := q.decode(pack(c.list...), c.device)
		if (err != nil) != c.fails || err == nil && (q.Class != c.class || q.DirectQlen != c.direct) {
			t.Errorf("%s: class %x, direct_qlen %d, %v", c.what, q.Class, q.DirectQlen, err)
		}
	}
}

// Two rates come in a struct, and again in 64 bits where they do not fit. What they share has to be the same of both.
func TestDecodeRates(t *testing.T) {
	const parms, wide, second, length = 1, 2, 3, 2*ratespecLen + 4
	type rates struct{ rate, other ratespec }
	body := func(r rates) netlink.Attribute {
		return attribute(parms, r.other.append(r.rate.append(nil)), u32bytes(7))
	}
	one, two := ratespec{rate: 1000, overhead: 4, mpu: 64}, ratespec{rate: 2000, overhead: 4, mpu: 64}
	with := func(r ratespec, set func(*ratespec)) ratespec { set(&r); return r }
	for _, c := range []struct {
		what string
		list []netlink.Attribute
		want rates
		err  string
	}{
		{"both", []netlink.Attribute{body(rates{one, two})}, rates{one, two}, ""},
		{"one alone", []netlink.Attribute{body(rates{one, ratespec{}})}, rates{one, ratespec{}}, ""},
		{"64 bits", []netlink.Attribute{attribute(wide, u64bytes(1<<40)), attribute(second, u64bytes(1<<41)),
			body(rates{one, two})}, rates{with(one, func(r *ratespec) { r.rate = 1 << 40 }),
			with(two, func(r *ratespec) { r.rate = 1 << 41 })}, ""},
		{"cells", []netlink.Attribute{body(rates{with(one, func(r *ratespec) { r.atm = true }),
			with(two, func(r *ratespec) { r.atm = true })})}, rates{with(one, func(r *ratespec) { r.atm = true }),
			with(two, func(r *ratespec) { r.atm = true })}, ""},
		{"none", []netlink.Attribute{body(rates{ratespec{}, two})}, rates{}, errRates.Error()},
		{"a rate beyond bits", []netlink.Attribute{attribute(wide, u64bytes(1<<61)), body(rates{one, two})}, rates{},
			errRates.Error()},
		{"a second beyond bits", []netlink.Attribute{attribute(second, u64bytes(1<<61)), body(rates{one, two})},
			rates{}, errRates.Error()},
		{"half a rate", []netlink.Attribute{attribute(wide, []byte{1, 2}), body(rates{one, two})}, rates{},
			"is 2 bytes long"},
		{"another overhead", []netlink.Attribute{body(rates{one, with(two, func(r *ratespec) { r.overhead = 5 })})},
			rates{}, errRates.Error()},
		{"another mpu", []netlink.Attribute{body(rates{one, with(two, func(r *ratespec) { r.mpu = 5 })})}, rates{},
			errRates.Error()},
		{"another link layer", []netlink.Attribute{body(rates{one, with(two, func(r *ratespec) { r.atm = true })})},
			rates{}, errRates.Error()},
		{"no struct", nil, rates{}, "struct x is too short"},
		{"a short struct", []netlink.Attribute{attribute(parms, make([]byte, length-1))}, rates{},
			"struct x is too short"},
	} {
		rate, other, rest, err := decodeRates(pack(c.list...), parms, wide, second, "struct x", length)
		switch {
		case c.err != "" && (err == nil || err.Error() != c.err):
			t.Errorf("%s: %v, want %s", c.what, err, c.err)
		case c.err == "" && (err != nil || rates{rate, other} != c.want || string(rest) != string(u32bytes(7))):
			t.Errorf("%s: %+v %+v %x, %v", c.what, rate, other, rest, err)
		}
	}
}

// Of the sizes that take the same number of ticks it is the one that a person would have written.
func TestInTicks(t *testing.T) {
	for _, c := range []struct {
		low, high uint64 // the sizes that take the time
		want      units.Size
	}{
		{3000, 3100, 3028}, {3029, 6100, 6056}, {1500, 1520, 1514}, {1515, 2000, 2000}, {1, 1513, 1024},
		{1025, 1900, 1514}, {2049, 2200, 2100}, {4500, 4600, 4542}, {1515, 1515, 1515}, {1521, 1529, 1529},
		{1521, 1530, 1530}, {2001, 2099, 2048}, {2049, 2099, 2050},
	} {
		took := func(n uint64) uint64 {
			switch {
			case n < c.low:
				return 1
			case n <= c.high:
				return 2
			}
			return 3
		}
		if got := inTicks(2, took); got != c.want {
			t.Errorf("%d to %d: %d, want %d", c.low, c.high, got, c.want)
		}
	}
	timeOf := func(n uint64) uint64 { return n / 100 * 4 } // nothing takes 6 ticks
	if got := inTicks(6, timeOf); got != 199 {
		t.Errorf("between two: %d", got)
	}
}

// The kinds of links that tc-cake(8) has a name for add the bytes, the framing and the least packet that it says.
func TestLinkNames(t *testing.T) {
	for name, want := range map[string]string{
		"ipoa-vcmux": "8 atm", "ipoa-llcsnap": "16 atm", "bridged-vcmux": "24 atm", "bridged-llcsnap": "32 atm",
		"pppoa-vcmux": "10 atm", "pppoa-llc": "14 atm", "pppoe-vcmux": "32 atm", "pppoe-llcsnap": "40 atm",
		"pppoe-ptm": "30 ptm", "bridged-ptm": "22 ptm", "ethernet": "38 mpu 84", "ether-vlan": "4",
		"docsis": "18 mpu 64", "conservative": "48 atm",
	} {
		if f, err := ParseFraming(name); err != nil || f.String() != want {
			t.Errorf("%s: %s, %v; want %s", name, f, err, want)
		}
	}
	for name, rtt := range map[string]string{"datacentre": "100us", "lan": "1ms", "metro": "10ms", "regional": "30ms",
		"oceanic": "300ms", "satellite": "1s", "interplanetary": "1000s"} {
		if got := mustParse(t, "cake "+name).String(); got != "cake rtt "+rtt {
			t.Errorf("%s: %s", name, got)
		}
	}
}

// A rate of 32 bits of bytes per second ends where the kernel's word for none begins.
func TestWidestRate(t *testing.T) {
	for text, taken := range map[string]bool{"fq maxrate 34359738352bit": true, "fq maxrate 34359738360bit": false,
		"fq maxrate 8bit": true, "fq maxrate 7bit": false} {
		if spec, err := Parse(text); (err == nil) != taken || taken && spec.String() != text &&
			FlowRate(spec) != 34359738352 {
			t.Errorf("%s: %v, %v", text, spec, err)
		}
	}
}

// Which traits a kind has, and where it may stand, is what rules decide by.
func TestKindsTable(t *testing.T) {
	traits := func(is func(Traits) bool) (names []string) {
		for _, k := range kinds() {
			if is(TraitsOf(k.name)) {
				names = append(names, k.name)
			}
		}
		return names
	}
	rows := func(is func(kind) bool) (names []string) {
		for _, k := range kinds() {
			if is(k) {
				names = append(names, k.name)
			}
		}
		return names
	}
	for what, c := range map[string]struct {
		got  []string
		want string
	}{
		"plain": {traits(func(t Traits) bool { return t.Plain }), "bfifo noqueue pfifo pfifo_fast"},
		"AQM": {traits(func(t Traits) bool { return t.AQM }),
			"bpf_dualpi2 bpf_shaper cake cake_mq codel dualpi2 fq_codel fq_pie pie"},
		"marks": {traits(func(t Traits) bool { return t.Marks }),
			"bpf_dualpi2 bpf_shaper cake cake_mq dualpi2 fq_codel"},
		"L4S":                    {traits(func(t Traits) bool { return t.L4S }), "bpf_dualpi2 dualpi2"},
		"default":                {traits(func(t Traits) bool { return t.Default }), "fq_codel"},
		"classes":                {rows(func(k kind) bool { return k.classes }), "cbq drr hfsc htb qfq"},
		"not shown to come back": {rows(func(k kind) bool { return !comesBack(k.name) }), "cbq red"},
		"nested":                 {rows(func(k kind) bool { return k.nested }), "dualpi2 fq_pie"},
		"counts of queues":       {rows(func(k kind) bool { return k.perDelivery }), "cake_mq mq"},
		"own queues":             {rows(func(k kind) bool { return k.ownQueues }), "cake_mq"},
		"root only": {rows(func(k kind) bool { return k.rootOnly }),
			"bpf_dualpi2 bpf_shaper cake_mq mq noqueue"},
	} {
		if got := strings.Join(c.got, " "); got != c.want {
			t.Errorf("%s: %s, want %s", what, got, c.want)
		}
	}
	if comesBack("nonesuch") || TraitsOf("nonesuch") != (Traits{}) {
		t.Error("a kind that is not known")
	}
	for text, want := range map[string]string{"cake": "cake", "htb rate 1mbit | fq": "fq",
		"mq | fq_codel": "fq_codel"} {
		if s := mustParse(t, text); s.Leaf() != want || !s.Has(want) || s.Has("pie") {
			t.Errorf("%s: leaf %s", text, s.Leaf())
		}
	}
	aqm := func(t Traits) bool { return t.AQM }
	if (Stack{}).Leaf() != "" || (Stack{}).Any(aqm) || !mustParse(t, "htb rate 1mbit | fq_codel").Any(aqm) ||
		mustParse(t, "htb rate 1mbit | pfifo").Any(aqm) {
		t.Error("traits of stacks")
	}
	if New[Cake]() != mustParse(t, "cake")[0] || New[FQCodel]() != mustParse(t, "fq_codel")[0] {
		t.Error("a discipline as it is by default")
	}
	for _, c := range []struct {
		place, count int
		want         string
	}{{0, 1, "besteffort"}, {0, 3, "bulk"},
		{1, 3, "besteffort"}, {2, 3, "voice"}, {0, 4, "bulk"}, {1, 4, "besteffort"}, {2, 4, "video"}, {3, 4, "voice"},
		{7, 8, "tin 7"}} {
		if got := TinName(c.place, c.count); got != c.want {
			t.Errorf("tin %d of %d: %s, want %s", c.place, c.count, got, c.want)
		}
	}
}

// Only what differs from the kernel's present options is sent to a netem, and all of what goes together.
func TestNetemChange(t *testing.T) {
	names := map[uint16]string{netemCorrelation: "correlations", netemReorder: "reorder", netemCorrupt: "corrupt",
		netemLoss: "model", netemRate: "rate", netemECN: "ecn", netemRate64: "rate64", netemLatency64: "delay",
		netemJitter64: "jitter", netemSeed: "seed"}
	for _, c := range []struct{ from, to, want string }{
		{"delay 10ms", "delay 10ms", "[delay]"},
		{"delay 10ms", "delay 10ms 1ms", "[delay jitter]"},
		{"delay 10ms 1ms", "delay 10ms 1ms 25%", "[delay jitter correlations]"},
		{"loss random 1%", "loss random 1% 25%", "[correlations]"},
		{"duplicate 1%", "duplicate 1% 25%", "[correlations]"},
		{"loss random 1%", "loss random 2%", "[]"}, // in the struct
		{"loss random 1%", "loss random 1% ecn", "[ecn]"},
		{"loss random 1% ecn", "loss random 1%", "[ecn]"},
		{"corrupt 1%", "corrupt 2%", "[corrupt]"},
		{"corrupt 1%", "corrupt 1% 25%", "[corrupt]"},
		{"corrupt 1%", "corrupt 1%", "[]"},
		{"delay 10ms reorder 25%", "delay 10ms reorder 25%", "[delay reorder]"}, // with its gap
		{"delay 10ms reorder 25%", "delay 10ms", "[delay reorder]"},
		{"delay 10ms", "delay 10ms reorder 25% 50%", "[delay reorder]"},
		{"limit 9", "loss gemodel 1% 10%", "[model]"},
		{"loss gemodel 1% 10%", "loss gemodel 1% 10%", "[model]"},
		{"rate 5mbit", "rate 5mbit", "[]"},
		{"rate 5mbit", "rate 6mbit", "[rate]"},
		{"rate 5mbit", "rate 5mbit 4", "[rate]"},
		{"rate 5mbit", "rate 5mbit 0 53", "[rate]"},
		{"rate 5mbit 0 53", "rate 5mbit 0 53 5", "[rate]"},
		{"rate 5mbit", "rate 34359738360bit", "[rate]"},
		{"rate 5mbit", "rate 34359738368bit", "[rate64 rate]"},
		{"limit 9", "limit 9 seed 7", "[seed]"},
		{"limit 9 seed 7", "limit 9 seed 7", "[]"},
		{"limit 9 seed 7", "limit 9 seed 8", "[seed]"},
		{"limit 9 seed 7", "limit 9", "[]"},
	} {
		from, to := mustParse(t, "netem "+c.from)[0], mustParse(t, "netem "+c.to)[0]
		b, err := to.encode(from)
		if err != nil {
			t.Fatal(err)
		}
		list, err := unpack(b[netemLen:])
		sent := []string{}
		for _, a := range list {
			sent = append(sent, names[a.Type])
		}
		if got := fmt.Sprint(sent); err != nil || got != c.want {
			t.Errorf("from %s to %s sends %s, want %s", c.from, c.to, got, c.want)
		}
	}
}
