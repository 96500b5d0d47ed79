// SPDX-License-Identifier: Apache-2.0

package qdisc

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"weir/internal/units"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// What is written is rounded, cut and refused at the very value that is said.
func TestAtTheValue(t *testing.T) {
	for in, want := range map[string]string{
		"fq_codel memory_limit 3gb": "fq_codel memory_limit 2gb",
		"fq_codel ce_threshold 1ms ce_threshold_selector 254/255": "fq_codel ce_threshold 1ms " +
			"ce_threshold_selector 0xfe/0xff",
		"fq buckets 1000":             "fq",
		"fq buckets 1025":             "fq buckets 2048",
		"htb rate 5mbit default ffff": "htb default ffff rate 5mbit",
		"bfifo limit 9":               "bfifo limit 9b",
		"dualpi2 alpha 0.00390625":    "dualpi2 alpha 0.00390625",
		"dualpi2 max_rtt 60ms typical_rtt 60ms": "dualpi2 tupdate 20ms target 60ms " +
			"alpha 0.5546875 beta 5",
		"dualpi2 typical_rtt 715827882us":                       "error so large that alpha or beta rounds to zero",
		"dualpi2 typical_rtt 715827883us":                       "error typical_rtt is too large",
		"dualpi2 alpha 0.0039":                                  "error out of range",
		"htb rate 5mbit default 10000":                          "error is not a class's minor number",
		"fq_codel ce_threshold 1ms ce_threshold_selector 1/256": "error is not VALUE/MASK",
		"fq_codel ce_threshold 1ms ce_threshold_selector 255/1": "error is not VALUE/MASK",
		"fq maxrate 40gbit":                                     "error (34.359738352gbit)",
		"cake overhead x":                                       `error "x" is not a whole number`,
		"netem rate 5mbit x":                                    `error unknown option "x"`,
		"netem rate 5mbit 0 -1":                                 "error a cell size of -1 is negative",
		"htb rate 5mbit linklayer":                              "error needs a value",
		"cake":                                                  "cake",
	} {
		spec, err := Parse(in)
		got := fmt.Sprint(spec)
		if err != nil {
			got = "error " + err.Error()
		}
		problem, refused := strings.CutPrefix(want, "error ")
		if refused && (err == nil || !strings.Contains(got, problem)) || !refused && got != want {
			t.Errorf("%s: %s, want %s", in, got, want)
		}
	}
	byHand := mustParse(t, "cake")[0].(Cake)
	byHand.RTT, byHand.Bandwidth = 1999, 15
	if got, err := byHand.edit().finish(); err != nil || got.(Cake).RTT != 1000 || got.(Cake).Bandwidth != 8 {
		t.Errorf("%+v, %v", got, err)
	}
}

// How long so many bytes take is counted in ticks of 64 ns, in cells of 48 bytes where the link has some.
func TestKernelTime(t *testing.T) {
	for _, c := range []struct {
		spec  ratespec
		bytes uint64
		want  uint64
	}{
		{ratespec{rate: 15_625_000}, 1000, 1000}, // a byte a tick
		{ratespec{rate: 15_625_000, overhead: 24}, 1000, 1024},
		{ratespec{rate: 15_625_000, mpu: 64}, 40, 64},
		{ratespec{rate: 15_625_000, mpu: 64}, 65, 65},
		{ratespec{rate: 15_625_000, atm: true}, 1, 53},
		{ratespec{rate: 15_625_000, atm: true}, 48, 53},
		{ratespec{rate: 15_625_000, atm: true}, 49, 106},
		{ratespec{rate: 15_625_000, overhead: 8, atm: true}, 89, 159},
	} {
		if got := c.spec.kernelTime(c.bytes); got != c.want && got != c.want-1 {
			t.Errorf("%d bytes at %+v take %d ticks, want %d", c.bytes, c.spec, got, c.want)
		}
	}
	if sendingTime(15_625_000, 1000) != 1000 || sendingTime(1, 275) != math.MaxUint32 {
		t.Error("as tc computes it")
	}
	for _, c := range []struct {
		rate, ceil units.Rate
		want       []uint16
	}{
		{8 * math.MaxUint32, 8 * math.MaxUint32, []uint16{htbParms}},
		{8 * math.MaxUint32, 8 * (math.MaxUint32 + 1), []uint16{htbCeil64, htbParms}},
		{8 * (math.MaxUint32 + 1), 8 * (math.MaxUint32 + 1), []uint16{htbRate64, htbCeil64, htbParms}},
	} {
		b, err := HTB{Rate: c.rate, Ceil: c.ceil}.encodeClass()
		if got := types(t, b); err != nil || !slices.Equal(got, c.want) {
			t.Errorf("%s, %s: attributes %v, %v; want %v", c.rate, c.ceil, got, err, c.want)
		}
	}
}

// types are those of attributes, in their order.
func types(t *testing.T, b []byte) (list []uint16) {
	t.Helper()
	all, err := unpack(b)
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range all {
		list = append(list, a.Type)
	}
	return list
}

// A netem's times are in ticks of 64 ns where a kernel reports no others; an ECN that goes is sent as none.
func TestNetemBytes(t *testing.T) {
	options := slices.Concat(u32bytes(1000), u32bytes(7), make([]byte, 12), u32bytes(500))
	got, ok := decode("netem", options, device{}).(netemSpec)
	if !ok || got.Delay != 64_000 || got.Jitter != 32_000 || got.Limit != 7 {
		t.Errorf("%+v", got)
	}
	b, err := mustParse(t, "netem loss random 1%")[0].encode(mustParse(t, "netem loss random 1% ecn")[0])
	if err != nil || !bytes.Equal(inner(b[netemLen:], netemECN), u32bytes(0)) {
		t.Errorf("%x, %v", b, err)
	}
	for what, options := range map[string][]byte{"slots": pack(attribute(netemSlot, make([]byte, 40))),
		"another model":    pack(attribute(netemLoss, pack(attribute(1, make([]byte, 16))))),
		"half a model":     pack(attribute(netemLoss, pack(attribute(netemLossGE, make([]byte, 15))))),
		"a model of parts": pack(attribute(netemLoss, []byte{1, 2, 3, 4, 5})),
		"parts":            {1, 2, 3, 4, 5},
		"half a rate":      pack(attribute(netemRate, make([]byte, 15)))} {
		head := make([]byte, netemLen)
		copy(head[4:], u32bytes(7))
		if spec := decode("netem", append(head, options...), device{}); spec != nil {
			t.Errorf("%s: %v", what, spec)
		}
	}
}

// A size table that tc would not have made is left alone: nothing says what its entries are.
func TestForeignSizeTable(t *testing.T) {
	made := sizespec{cellLog: 2, cellAlign: -1, overhead: 24, linklayer: linkATM, mtu: 2047, entries: 512}
	if _, ok := made.table(); !ok {
		t.Errorf("%+v", made)
	}
	for what, edit := range map[string]func(*sizespec){
		"no entries":        func(s *sizespec) { s.entries = 0 },
		"too many entries":  func(s *sizespec) { s.entries = 32766 },
		"an alignment":      func(s *sizespec) { s.cellAlign = 0 },
		"no MTU":            func(s *sizespec) { s.mtu = 0 },
		"too large an MTU":  func(s *sizespec) { s.mtu = 2048 },
		"too small an MTU":  func(s *sizespec) { s.mtu = 1023 },
		"larger units":      func(s *sizespec) { s.sizeLog = 1 },
		"more than 32 bits": func(s *sizespec) { s.cellLog, s.mtu = 32, 1 },
		"nothing to do":     func(s *sizespec) { s.linklayer = linkEthernet },
	} {
		s := made
		edit(&s)
		if table, ok := s.table(); ok {
			t.Errorf("%s: %x", what, table)
		}
		var lost *Lost
		if _, err := sizeTable(Qdisc{Kind: "pfifo", Handle: 0x10000, Parent: Root,
			SizeTable: pack(attribute(stabBase, s.bytes()))}); s.entries != 0 && !errors.As(err, &lost) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// A stab's overhead is where the kernel looks for it.
func TestSizeTableBytes(t *testing.T) {
	spec := inner(SizeTable(-4), 1)
	if len(spec) != 24 || !bytes.Equal(spec[4:8], u32bytes(math.MaxUint32-3)) || !bytes.Equal(spec[8:12], u32bytes(1)) {
		t.Errorf("%x", spec)
	}
}

// What a tree carries besides its options comes back with it, and is read where it was written.
func TestCarriedAlong(t *testing.T) {
	tree := Tree{Qdiscs: []Qdisc{{Kind: "prio", Handle: 0x10000, Parent: Root, Options: []byte{}, IngressBlock: 5,
		EgressBlock: 6, SizeTable: SizeTable(4)}}}
	requests, err := tree.replay(2, tree.Qdiscs[0], map[Handle]bool{})
	if err != nil || len(requests) != 1 {
		t.Fatal(requests, err)
	}
	header, list, err := split(requests[0].message, uint16(requests[0].message.Header.Type))
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range list {
		switch a.Type {
		case tcaIngressBlock, tcaEgressBlock:
			if want := map[uint16]uint32{tcaIngressBlock: 5, tcaEgressBlock: 6}[a.Type]; !bytes.Equal(a.Data,
				u32bytes(want)) {
				t.Errorf("block %d: %x", a.Type, a.Data)
			}
		}
	}
	if q, err := readQdisc(header, list, device{}); err != nil || q.IngressBlock != 5 || q.EgressBlock != 6 ||
		!bytes.Equal(q.SizeTable, SizeTable(4)) || q.Offloaded {
		t.Errorf("%+v, %v", q, err)
	}
	tree.Qdiscs[0].IngressBlock, tree.Qdiscs[0].EgressBlock, tree.Qdiscs[0].SizeTable = 0, 0, nil
	requests, err = tree.replay(2, tree.Qdiscs[0], map[Handle]bool{})
	if got := types(t, requests[0].message.Data[tcmsgLen:]); err != nil || !slices.Equal(got,
		[]uint16{tcaKind, tcaOptions}) {
		t.Errorf("without them: %v, %v", got, err)
	}
	for _, flag := range []byte{0, 1} {
		q, err := readQdisc(tcmsg{}, []netlink.Attribute{attribute(tcaKind, []byte("mq\x00")),
			attribute(tcaOffload, []byte{flag})}, device{})
		if err != nil || q.Offloaded != (flag == 1) {
			t.Errorf("%+v, %v", q, err)
		}
	}
	b, err := json.Marshal(Qdisc{Kind: "cake", Spec: mustParse(t, "cake bandwidth 5mbit")[0]})
	var back Qdisc
	if err := json.Unmarshal(b, &back); err != nil || fmt.Sprint(back.Spec) != "cake bandwidth 5mbit" {
		t.Errorf("%s reads as %v, %v", b, back.Spec, err)
	}
	if b, err = json.Marshal(Qdisc{Kind: "red"}); err != nil || bytes.Contains(b, []byte("spec")) ||
		json.Unmarshal(b, &back) != nil || back.Spec != nil {
		t.Errorf("%s reads as %v, %v", b, back.Spec, err)
	}
	if got := ParseOuters([]string{"udp/1", "x", "tcp/2", "udp/0"}); fmt.Sprint(got) != "[udp/1 tcp/2]" {
		t.Errorf("%v", got)
	}
	f, err := ParseFraming("ethernet")
	text, _ := f.MarshalText()
	var again Framing
	if err != nil || again.UnmarshalText(text) != nil || again != f || again.UnmarshalText([]byte("x")) == nil {
		t.Errorf("%+v, %s, %+v, %v", f, text, again, err)
	}
}

// A rate estimator is heard of from a discipline's statistics.
func TestEstimators(t *testing.T) {
	for typ, want := range map[uint16]bool{statsRate: true, statsBasic: false} {
		data := make([]byte, 16)
		if s, err := decodeQdiscStats("pfifo", pack(attribute(typ, data))); err != nil || s.Estimated != want {
			t.Errorf("attribute %d: %+v, %v", typ, s, err)
		}
	}
}

// Marks of an mq are those of its queues; a tree's root comes first, whatever order the kernel lists.
func TestMarksOfQueuesAdd(t *testing.T) {
	marks := func(n uint32) netlink.Attribute {
		own := attribute(statsApp, u32bytes(0), make([]byte, 8), u32bytes(n), make([]byte, 28))
		return attribute(tcaStats2, pack(own))
	}
	qdiscs := func(root string) [][]byte {
		return [][]byte{object(2, 0x30000, 0x10002, 1, "fq_codel", nil, marks(4)),
			object(2, 0x20000, 0x10001, 1, "fq_codel", nil, marks(3)), object(2, 0x10000, Root, 1, root, nil)}
	}
	for root, want := range map[string]uint64{"mq": 7, "prio": 0} {
		tree, err := (&kernel{links: [][]byte{link(2, 1500, 1000)}, qdiscs: qdiscs(root)}).dial(t).Tree(2)
		if err != nil || len(tree.Qdiscs) != 3 || tree.Qdiscs[0].Kind != root || tree.Qdiscs[0].Stats.Marks != want ||
			tree.Qdiscs[1].Handle != 0x20000 {
			t.Errorf("%s: %+v, %v", root, tree.Qdiscs, err)
		}
	}
}

// The link's header counts where it is known: of an Ethernet and of the loopback device.
func TestHeaders(t *testing.T) {
	for kind, want := range map[uint16]device{1: {mtu: 1500, queue: 9, header: 14, known: true, present: true},
		772:   {mtu: 1500, queue: 9, header: 14, known: true, present: true},
		65534: {mtu: 1500, queue: 9, present: true}} {
		b := link(2, 1500, 9)
		binary.NativeEndian.PutUint16(b[2:], kind)
		devices, err := (&kernel{links: [][]byte{b}}).dial(t).devices(2)
		if err != nil || devices[2] != want {
			t.Errorf("of type %d: %+v, %v", kind, devices[2], err)
		}
	}
}

// What makes a filter what it is is kept as the kernel takes it, and what was read stays as it was.
func TestFilterConfiguration(t *testing.T) {
	option := func(kind string, protocol uint16, list ...netlink.Attribute) Filter {
		return Filter{Kind: kind, Parent: 0x10000, Handle: 1, Priority: 5, Protocol: protocol, Options: pack(list...)}
	}
	ethType := func(v uint16) netlink.Attribute {
		return attribute(flowerEthType, binary.BigEndian.AppendUint16(nil, v))
	}
	vlan := attribute(23, []byte{0, 7})
	peak := policer(1000)
	copy(peak[policePeak+rateBytes:], u32bytes(2000))
	copy(peak[policeRefs:], u32bytes(1))
	copy(peak[policeBinds:], u32bytes(1))
	plain := slices.Clone(peak)
	copy(plain[policePeak+rateBytes:], u32bytes(0))
	for _, c := range []struct {
		what   string
		filter Filter
		want   []netlink.Attribute // nil: an error
	}{
		{"flags that only report", option("matchall", ethIP, attribute(1, u32bytes(9)), attribute(3, u32bytes(8))),
			[]netlink.Attribute{attribute(1, u32bytes(9))}},
		{"flags that were asked for", option("matchall", ethIP, attribute(3, u32bytes(8|1))),
			[]netlink.Attribute{attribute(3, u32bytes(1))}},
		{"flags of no length", option("matchall", ethIP, attribute(3, []byte{1, 0})),
			[]netlink.Attribute{attribute(3, []byte{1, 0})}},
		{"counters", option("matchall", ethIP, attribute(1, u32bytes(9)), attribute(4, make([]byte, 8))),
			[]netlink.Attribute{attribute(1, u32bytes(9))}},
		{"a mark's counter", option("u32", ethIP, attribute(u32Mark, u32bytes(1), u32bytes(2), u32bytes(3))),
			[]netlink.Attribute{attribute(u32Mark, u32bytes(1), u32bytes(2), u32bytes(0))}},
		{"a selector", option("u32", ethIP, attribute(u32Sel, make([]byte, 12))),
			[]netlink.Attribute{attribute(u32Sel, make([]byte, 12))}},
		{"a tag in IP", option("flower", ethIP, ethType(ethIP), vlan), nil},
		{"the outer type", option("flower", ethVLAN, vlan, ethType(ethIP)),
			[]netlink.Attribute{vlan, ethType(ethVLAN)}},
		{"the outer type of 802.1ad", option("flower", ethService, ethType(ethIP), vlan),
			[]netlink.Attribute{ethType(ethService), vlan}},
		{"no inner type", option("flower", ethVLAN, vlan), []netlink.Attribute{vlan, ethType(ethVLAN)}},
		{"without tags", option("flower", ethIP, ethType(ethIP)), []netlink.Attribute{ethType(ethIP)}},
		{"a policer", option("fw", ethIP, attribute(2, pack(attribute(1, plain)))), []netlink.Attribute{attribute(2,
			pack(attribute(1, sendable(plain)), attribute(policeRateTable, make([]byte, rateTableLen))))}},
		{"two rates", option("fw", ethIP, attribute(2, pack(attribute(1, peak)))), []netlink.Attribute{attribute(2,
			pack(attribute(1, sendable(peak)), attribute(policeRateTable, make([]byte, rateTableLen)),
				attribute(policePeakTable, make([]byte, rateTableLen))))}},
		{"parts", Filter{Kind: "matchall", Options: []byte{1, 2, 3, 4, 5}}, nil},
		{"parts of an action", option("matchall", ethIP, attribute(matchallAct, []byte{1, 2, 3, 4, 5})), nil},
		{"parts of a policer", option("fw", ethIP, attribute(2, []byte{1, 2, 3, 4, 5})), nil},
		{"matches cut off", option("basic", ethIP, attribute(2, pack(attribute(2,
			pack(attribute(1, []byte{1})))))), nil},
	} {
		before := slices.Clone(c.filter.Options)
		got, err := c.filter.configuration()
		if (err != nil) != (c.want == nil) || err == nil && !bytes.Equal(got, pack(c.want...)) {
			t.Errorf("%s: %x, %v; want %x", c.what, got, err, pack(c.want...))
		}
		if !bytes.Equal(before, c.filter.Options) {
			t.Errorf("%s: what was read has changed", c.what)
		}
	}
}

// sendable is a policer's struct as the kernel takes it: of nobody, and with a size for the cells of its tables.
func sendable(police []byte) []byte {
	b := slices.Clone(police)
	for _, place := range []int{0, policeRefs, policeBinds} {
		clear(b[place : place+4])
	}
	for _, place := range []int{policeRate, policePeak} {
		if binary.NativeEndian.Uint32(b[place+rateBytes:]) != 0 {
			b[place] = 3
		}
	}
	return b
}

// The oldest of u32's tables at a place is its root; each place has one.
func TestMarkRoots(t *testing.T) {
	table := func(handle uint32, priority uint16) Filter {
		return Filter{Kind: "u32", Parent: 0x10000, Handle: handle, Priority: priority, Protocol: unix.ETH_P_IP,
			Options: pack(attribute(3, u32bytes(1)))}
	}
	listed := []Filter{table(0x80100000, 5), table(0x80200000, 6), table(0x80000000, 5)}
	got := markRoots(listed)
	roots := []string{}
	for _, f := range got {
		if f.Root {
			roots = append(roots, fmt.Sprintf("%x", f.Handle))
		}
	}
	if fmt.Sprint(roots) != "[80000000 80200000]" || listed[0].Handle != 0x80100000 || listed[2].Root {
		t.Errorf("%v of %+v", roots, got)
	}
}
