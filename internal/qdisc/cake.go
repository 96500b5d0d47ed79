// SPDX-License-Identifier: Apache-2.0

package qdisc

import (
	"errors"
	"fmt"
	"time"

	"weir/internal/units"
)

// The attributes of cake (TCA_CAKE_*, include/uapi/linux/pkt_sched.h).
const (
	cakeBandwidth = iota + 2
	cakeDiffserv
	cakeATM
	cakeFlowMode
	cakeOverhead
	cakeRTT
	cakeTarget
	cakeAutorate
	cakeMemory
	cakeNAT
	cakeRaw
	cakeWash
	cakeMPU
	cakeIngress
	cakeACKFilter
	cakeSplitGSO
	cakeFWMark
)

// Cake is a shaper, fair queueing between hosts and flows, and an AQM in one (net/sched/sch_cake.c, tc-cake(8)). As
// cake_mq it is one shaper over a root with several transmit queues (Linux 7.x).
type Cake struct {
	MultiQueue bool       `json:"multi_queue"`      // cake_mq
	Bandwidth  units.Rate `json:"bandwidth"`        // 0: unlimited
	Autorate   bool       `json:"autorate_ingress"` // estimate the bandwidth from what arrives; not for cake_mq
	// besteffort, precedence, diffserv3 (the default), diffserv4, diffserv8
	Diffserv string `json:"diffserv"`
	ATM      string `json:"atm"`      // noatm (the default), atm, ptm
	FlowMode string `json:"flowmode"` // flowblind … triple-isolate (the default)
	Overhead int32  `json:"overhead"` // bytes added to each packet, -64 to 256
	// count packets as the device does, with no correction for its header; the default
	Raw      bool           `json:"raw"`
	MPU      uint32         `json:"mpu"`       // bytes that a packet counts for at least, 0 to 256
	RTT      units.Duration `json:"rtt"`       // CoDel's interval; its target is a 20th of it; default 100ms
	MemLimit units.Size     `json:"memlimit"`  // 0: from bandwidth and rtt
	FWMark   uint32         `json:"fwmark"`    // the mask of the packet's mark that selects the tin; 0: none
	NAT      bool           `json:"nat"`       // look behind network address translation
	Wash     bool           `json:"wash"`      // clear the DS field
	SplitGSO bool           `json:"split_gso"` // cut superpackets into packets; default true
	Ingress  bool           `json:"ingress"`   // count dropped packets as having used the link
	// no-ack-filter (the default), ack-filter, ack-filter-aggressive
	ACKFilter string `json:"ack_filter"`
}

func newCake(mq bool) *Cake {
	return &Cake{MultiQueue: mq, Diffserv: "diffserv3", ATM: "noatm", FlowMode: "triple-isolate", Raw: true,
		RTT:      units.Duration(100 * time.Millisecond),
		SplitGSO: true, ACKFilter: "no-ack-filter"}
}

func (q Cake) Kind() string {
	if q.MultiQueue {
		return "cake_mq"
	}
	return "cake"
}
func (q Cake) String() string { return format(q) }
func (q Cake) edit() editor   { return &q }

func (q Cake) encode(base Spec) ([]byte, error) { return encodeAttributes(q, base) }

// The kernel's numbering (CAKE_DIFFSERV_*, CAKE_FLOW_*, CAKE_ACK_*).
func cakeDiffservs() []string {
	return []string{"diffserv3", "diffserv4", "diffserv8", "besteffort", "precedence"}
}
func cakeFlowModes() []string {
	return []string{"flowblind", "srchost", "dsthost", "hosts", "flows", "dual-srchost", "dual-dsthost",
		"triple-isolate"}
}
func cakeACKFilters() []string {
	return []string{"no-ack-filter", "ack-filter", "ack-filter-aggressive"}
}

func (q *Cake) options() []option {
	diffserv := choice(cakeDiffserv, 4, 0, &q.Diffserv, cakeDiffservs()...)
	readDiffserv := diffserv.read
	diffserv.words = append(diffserv.words, "diffserv")
	diffserv.read = func(word string, a *args) error {
		if word == "diffserv" { // tc's short form
			word = "diffserv4"
		}
		return readDiffserv(word, a)
	}
	autorate := toggle("autorate-ingress", "", cakeAutorate, 4, &q.Autorate)
	autorate.words = autorate.words[:1]
	framing, overhead, raw, mpu := wire{&q.ATM, &q.Overhead, &q.Raw, &q.MPU}.options(cakeATM, cakeOverhead, cakeRaw,
		cakeMPU)
	rtt, target := q.rtt()
	return []option{
		orUnlimited(rate("bandwidth", cakeBandwidth, 8, &q.Bandwidth), &q.Bandwidth),
		diffserv,
		framing,
		choice(cakeFlowMode, 4, 0, &q.FlowMode, cakeFlowModes()...),
		overhead, raw, mpu,
		rtt, target,
		autorate,
		size("memlimit", cakeMemory, &q.MemLimit, 0),
		mask("fwmark", cakeFWMark, &q.FWMark),
		toggle("nat", "nonat", cakeNAT, 4, &q.NAT),
		toggle("wash", "nowash", cakeWash, 4, &q.Wash),
		toggle("split-gso", "no-split-gso", cakeSplitGSO, 4, &q.SplitGSO),
		toggle("ingress", "egress", cakeIngress, 4, &q.Ingress),
		choice(cakeACKFilter, 4, 0, &q.ACKFilter, cakeACKFilters()...),
	}
}

// rtt reads a time or one of tc's names for it. The target that CoDel aims at follows from it, and travels with it.
func (q *Cake) rtt() (rtt, target option) {
	rtt = microseconds("rtt", cakeRTT, &q.RTT, 1)
	type preset struct {
		name string
		rtt  time.Duration
	}
	presets := []preset{
		{"datacentre", 100 * time.Microsecond}, {"lan", time.Millisecond}, {"metro", 10 * time.Millisecond},
		{"regional", 30 * time.Millisecond},
		{"internet", 100 * time.Millisecond}, {"oceanic", 300 * time.Millisecond}, {"satellite", time.Second},
		{"interplanetary", 1000 * time.Second},
	}
	for _, p := range presets {
		rtt.words = append(rtt.words, p.name)
	}
	readTime := rtt.read
	rtt.read = func(word string, a *args) error {
		for _, p := range presets {
			if p.name == word {
				q.RTT = units.Duration(p.rtt)
				return nil
			}
		}
		return readTime(word, a)
	}
	target = option{
		attr: cakeTarget, write: func() string { return "" },
		encode: func() []byte { return u32bytes(uint32(max(toMicroseconds(q.RTT)/20, 1))) },
		decode: func(b []byte) error {
			// Reported after the rtt. Only something other than tc can have set another.
			if v, err := integer(b); err != nil || v != max(toMicroseconds(q.RTT)/20, 1) {
				return fmt.Errorf("is not a 20th of the rtt")
			}
			return nil
		},
	}
	return rtt, target
}

func (q *Cake) decode(b []byte, _ device) error { return decodeAttributes(q.options(), b) }

func (q *Cake) finish() (Spec, error) {
	err := errors.Join(oneOf("diffserv mode", q.Diffserv, cakeDiffservs()...),
		wire{&q.ATM, &q.Overhead, &q.Raw, &q.MPU}.check(),
		oneOf("flow mode", q.FlowMode, cakeFlowModes()...), oneOf("ACK filter", q.ACKFilter, cakeACKFilters()...))
	switch {
	case err != nil:
		return nil, err
	case q.MultiQueue && q.Autorate:
		return nil, errors.New("autorate-ingress does not work with several queues: use cake")
	case q.RTT < units.Duration(time.Microsecond) || q.RTT > never:
		return nil, fmt.Errorf("rtt %s is out of range (1us to %s)", q.RTT, never)
	}
	q.Bandwidth -= q.Bandwidth % 8
	q.RTT -= q.RTT % units.Duration(time.Microsecond)
	return *q, nil
}
