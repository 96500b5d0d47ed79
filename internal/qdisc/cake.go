// SPDX-License-Identifier: Apache-2.0

package qdisc

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strconv"
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

// Cake is a shaper, fair queueing between hosts and flows, and an AQM in one (net/sched/sch_cake.c, tc-cake(8)). As cake_mq it is one shaper
// over a root with several transmit queues (Linux 7.x).
type Cake struct {
	MultiQueue bool           `json:"multi_queue"`      // cake_mq
	Bandwidth  units.Rate     `json:"bandwidth"`        // 0: unlimited
	Autorate   bool           `json:"autorate_ingress"` // estimate the bandwidth from what arrives; not for cake_mq
	Diffserv   string         `json:"diffserv"`         // besteffort, precedence, diffserv3 (the default), diffserv4, diffserv8
	ATM        string         `json:"atm"`              // noatm (the default), atm, ptm
	FlowMode   string         `json:"flowmode"`         // flowblind … triple-isolate (the default)
	Overhead   int32          `json:"overhead"`         // bytes added to each packet, -64 to 256
	Raw        bool           `json:"raw"`              // count packets as the device does, with no correction for its header; the default
	MPU        uint32         `json:"mpu"`              // bytes that a packet counts for at least, 0 to 256
	RTT        units.Duration `json:"rtt"`              // CoDel's interval; its target is a 20th of it; default 100ms
	MemLimit   units.Size     `json:"memlimit"`         // 0: from bandwidth and rtt
	FWMark     uint32         `json:"fwmark"`           // the mask of the packet's mark that selects the tin; 0: none
	NAT        bool           `json:"nat"`              // look behind network address translation
	Wash       bool           `json:"wash"`             // clear the DS field
	SplitGSO   bool           `json:"split_gso"`        // cut superpackets into packets; default true
	Ingress    bool           `json:"ingress"`          // count dropped packets as having used the link
	ACKFilter  string         `json:"ack_filter"`       // no-ack-filter (the default), ack-filter, ack-filter-aggressive
}

func newCake(mq bool) *Cake {
	return &Cake{MultiQueue: mq, Diffserv: "diffserv3", ATM: "noatm", FlowMode: "triple-isolate", Raw: true, RTT: units.Duration(100 * time.Millisecond),
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

// The kernel's numbering (CAKE_DIFFSERV_*, CAKE_ATM_*, CAKE_FLOW_*, CAKE_ACK_*).
func cakeDiffservs() []string {
	return []string{"diffserv3", "diffserv4", "diffserv8", "besteffort", "precedence"}
}
func cakeATMs() []string { return []string{"noatm", "atm", "ptm"} }
func cakeFlowModes() []string {
	return []string{"flowblind", "srchost", "dsthost", "hosts", "flows", "dual-srchost", "dual-dsthost", "triple-isolate"}
}
func cakeACKFilters() []string {
	return []string{"no-ack-filter", "ack-filter", "ack-filter-aggressive"}
}

func (q *Cake) options() []option {
	bandwidth := rate("bandwidth", cakeBandwidth, 8, &q.Bandwidth)
	readRate, writeRate := bandwidth.read, bandwidth.write
	bandwidth.words = append(bandwidth.words, "unlimited")
	bandwidth.read = func(word string, a *args) error {
		if word == "unlimited" {
			q.Bandwidth = 0
			return nil
		}
		return readRate(word, a)
	}
	bandwidth.write = func() string {
		if q.Bandwidth == 0 {
			return "unlimited"
		}
		return writeRate()
	}
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
	framing := choice(cakeATM, 4, 0, &q.ATM, cakeATMs()...)
	writeFraming := framing.write
	framing.write = func() string {
		if q.Raw && q.Overhead != 0 {
			return "" // said after the overhead
		}
		return writeFraming()
	}
	overhead, raw := q.overhead()
	rtt, target := q.rtt()
	return []option{
		bandwidth, diffserv,
		framing,
		choice(cakeFlowMode, 4, 0, &q.FlowMode, cakeFlowModes()...),
		overhead, raw,
		count("mpu", cakeMPU, 4, &q.MPU, 0, 256),
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

// overhead reads tc's many names for what a link adds to a packet. Each adds its bytes; some also set the framing and the smallest packet.
// On the wire the number switches the correction for the device's header on, and a second attribute switches it off again.
func (q *Cake) overhead() (overhead, raw option) {
	type link struct {
		name  string
		bytes int32
		atm   string
		mpu   uint32
	}
	links := []link{
		{"ipoa-vcmux", 8, "atm", 0}, {"ipoa-llcsnap", 16, "atm", 0}, {"bridged-vcmux", 24, "atm", 0}, {"bridged-llcsnap", 32, "atm", 0},
		{"pppoa-vcmux", 10, "atm", 0}, {"pppoa-llc", 14, "atm", 0}, {"pppoe-vcmux", 32, "atm", 0}, {"pppoe-llcsnap", 40, "atm", 0},
		{"pppoe-ptm", 30, "ptm", 0}, {"bridged-ptm", 22, "ptm", 0},
		{"ethernet", 38, "", 84}, {"ether-vlan", 4, "", 0}, {"docsis", 18, "noatm", 64},
	}
	words := []string{"overhead", "raw", "conservative", "via-ethernet"}
	for _, l := range links {
		words = append(words, l.name)
	}
	givenRaw := false
	overhead = option{words: words, repeat: true, attr: cakeOverhead}
	overhead.read = func(word string, a *args) error {
		switch word {
		case "via-ethernet": // tc takes and ignores it
			return nil
		case "overhead":
			text, err := a.next()
			if err != nil {
				return err
			}
			v, err := strconv.ParseInt(text, 10, 32)
			if err != nil {
				return fmt.Errorf("%q is not a whole number", text)
			}
			q.Overhead = int32(v)
		case "raw":
			q.ATM, q.Overhead, givenRaw = "noatm", 0, true
		case "conservative": // one whole ATM cell and ATM's framing
			q.ATM, q.Overhead = "atm", 48
		default:
			l := links[slices.IndexFunc(links, func(l link) bool { return l.name == word })]
			q.Overhead += l.bytes
			if l.atm != "" {
				q.ATM = l.atm
			}
			if l.mpu != 0 {
				q.MPU = l.mpu
			}
		}
		q.Raw = givenRaw
		if q.Overhead < -64 || q.Overhead > 256 { // tc's range; also keeps the sum from running away
			return fmt.Errorf("%d bytes are out of range (-64 to 256)", q.Overhead)
		}
		return nil
	}
	overhead.write = func() string {
		number := "overhead " + strconv.Itoa(int(q.Overhead))
		switch {
		case q.Raw && q.Overhead == 0:
			return "raw"
		case q.Raw && q.ATM != "noatm": // raw sets the framing, which has to come after it
			return "raw " + number + " " + q.ATM
		case q.Raw:
			return "raw " + number
		}
		return number
	}
	overhead.encode = func() []byte { return u32bytes(uint32(q.Overhead)) }
	overhead.decode = func(b []byte) error {
		if len(b) != 4 {
			return fmt.Errorf("is %d bytes long", len(b))
		}
		q.Overhead, q.Raw = int32(binary.NativeEndian.Uint32(b)), false
		return nil
	}
	overhead.key = overhead.write

	raw = option{
		attr: cakeRaw, key: overhead.write, write: func() string { return "" },
		skip:   func() bool { return !q.Raw },
		encode: func() []byte { return u32bytes(0) },
		decode: func([]byte) error { q.Raw = true; return nil },
	}
	return overhead, raw
}

// rtt reads a time or one of tc's names for it. The target that CoDel aims at follows from it, and travels with it.
func (q *Cake) rtt() (rtt, target option) {
	rtt = microseconds("rtt", cakeRTT, &q.RTT, 1)
	type preset struct {
		name string
		rtt  time.Duration
	}
	presets := []preset{
		{"datacentre", 100 * time.Microsecond}, {"lan", time.Millisecond}, {"metro", 10 * time.Millisecond}, {"regional", 30 * time.Millisecond},
		{"internet", 100 * time.Millisecond}, {"oceanic", 300 * time.Millisecond}, {"satellite", time.Second}, {"interplanetary", 1000 * time.Second},
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
	err := errors.Join(oneOf("diffserv mode", q.Diffserv, cakeDiffservs()...), oneOf("framing", q.ATM, cakeATMs()...),
		oneOf("flow mode", q.FlowMode, cakeFlowModes()...), oneOf("ACK filter", q.ACKFilter, cakeACKFilters()...))
	switch {
	case err != nil:
		return nil, err
	case q.MultiQueue && q.Autorate:
		return nil, errors.New("autorate-ingress does not work with several queues: use cake")
	case q.Overhead < -64 || q.Overhead > 256:
		return nil, fmt.Errorf("overhead %d is out of range (-64 to 256)", q.Overhead)
	case q.MPU > 256:
		return nil, fmt.Errorf("mpu %d is out of range (0 to 256)", q.MPU)
	case q.RTT < units.Duration(time.Microsecond) || q.RTT > never:
		return nil, fmt.Errorf("rtt %s is out of range (1us to %s)", q.RTT, never)
	}
	q.Bandwidth -= q.Bandwidth % 8
	q.RTT -= q.RTT % units.Duration(time.Microsecond)
	return *q, nil
}
