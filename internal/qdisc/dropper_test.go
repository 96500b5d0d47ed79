// SPDX-License-Identifier: Apache-2.0

package qdisc

import (
	"fmt"
	"slices"
	"testing"

	"weir/internal/units"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// policer is struct tc_police with a rate, in bytes per second.
func policer(rate uint32) []byte {
	b := make([]byte, policeLen)
	copy(b[policeRate+rateBytes:], u32bytes(rate))
	return b
}

// dropped is an action's statistics: so many packets.
func dropped(packets uint32) netlink.Attribute {
	return attribute(4, pack(attribute(statsQueue, u32bytes(1), u32bytes(2), u32bytes(packets), make([]byte, 8))))
}

// withStats is a matchall with one action and its statistics.
func withStats(name string, stats netlink.Attribute, options ...netlink.Attribute) Filter {
	f := withAction(name)
	f.Options = pack(attribute(matchallAct, pack(attribute(1, pack(attribute(actKind, []byte(name+"\x00")),
		attribute(actOptions, pack(options...)), stats)))))
	return f
}

// An action that has dropped, and one that polices, is told with its filter's place; others are not.
func TestDroppersOfFilters(t *testing.T) {
	police := func(kind string, typ uint16, options ...netlink.Attribute) Filter {
		return Filter{Kind: kind, Parent: 0x10000, Handle: 1, Priority: 5,
			Options: pack(attribute(typ, pack(options...)))}
	}
	for _, c := range []struct {
		what   string
		filter Filter
		want   string // action, rate and drops
	}{
		{"drops", withStats("gact", dropped(7)), "gact 0bit 7"},
		{"no drops", withStats("gact", dropped(0)), ""},
		{"statistics cut off", withStats("gact", attribute(4, pack(attribute(statsQueue, make([]byte, 11))))), ""},
		{"no statistics", withAction("gact"), ""},
		{"an idle policer", withStats("police", dropped(0), attribute(1, policer(125_000))), "police 1mbit 0"},
		{"a policer", withStats("police", dropped(9), attribute(1, policer(125_000))), "police 1mbit 9"},
		{"a fast one", withStats("police", dropped(0), attribute(1, policer(1)), attribute(8, u64bytes(1<<40))),
			fmt.Sprintf("police %s 0", units.Rate(8<<40))},
		{"its rate cut off", withStats("police", dropped(3), attribute(1, policer(125_000)[:policeLen-1])),
			"police 0bit 3"},
		{"of packets", withStats("police", dropped(0), attribute(1, policer(0))), ""},
		{"the older way", police("u32", u32Police, attribute(1, policer(125_000))), "police 1mbit 0"},
		{"of another kind", police("flower", u32Police, attribute(1, policer(125_000))), ""},
		{"nobody's kind", Filter{Kind: "nonesuch", Options: withStats("gact", dropped(7)).Options}, ""},
	} {
		got := ""
		for _, d := range c.filter.droppers() {
			got += fmt.Sprintf("%s %s %d", d.Action, d.Rate, d.Drops)
			if d.Parent != 0x10000 || d.Handle != 1 || d.Priority != 5 || d.Filter != c.filter.Kind {
				t.Errorf("%s: at %+v", c.what, d)
			}
		}
		if got != c.want {
			t.Errorf("%s: %q, want %q", c.what, got, c.want)
		}
	}
}

// What drops where packets arrive is told beside what drops at the root; clsact has a place for what leaves as well.
func TestDroppersOfDevices(t *testing.T) {
	drops := withStats("gact", dropped(7))
	listed := object(2, 1, atIngress, 5<<16|8, "matchall", drops.Options)
	for kind, want := range map[string]string{"": "[1:]", "ingress": "[1: ffff:fff2]",
		"clsact": "[1: ffff:fff2 ffff:fff3]"} {
		tree := Tree{Filters: []Filter{drops}, Qdiscs: []Qdisc{{Kind: "prio", Handle: 0x10000, Parent: Root}}}
		if kind != "" {
			tree.Qdiscs = append(tree.Qdiscs, Qdisc{Kind: kind, Handle: 0xFFFF0000, Parent: Ingress})
		}
		all, err := (&kernel{filters: [][]byte{listed}}).dial(t).Droppers(2, tree)
		var places []Handle
		for _, d := range all {
			places = append(places, d.Parent)
		}
		if got := fmt.Sprint(places); err != nil || got != want {
			t.Errorf("%q: %s, %v; want %s", kind, got, err, want)
		}
	}
	cutOff := &kernel{filters: [][]byte{listed[:10]}}
	if all, err := cutOff.dial(t).Droppers(2, Tree{Qdiscs: []Qdisc{{Kind: "ingress", Parent: Ingress}}}); err == nil {
		t.Errorf("an answer that is cut off: %+v", all)
	}
}

// What a policer has dropped that is said the older way is beside its filter's options.
func TestOlderPolicersDrops(t *testing.T) {
	const tcStats = 36 // the size of a struct tc_stats
	older := pack(attribute(u32Police, pack(attribute(1, policer(125_000)))))
	for _, c := range []struct {
		what string
		size int
		want string
	}{{"whole", tcStats, "[police 1mbit 7]"}, {"cut off", 15, "[police 1mbit 0]"}, {"none", 0, "[police 1mbit 0]"}} {
		stats := append(append(u64bytes(9), u32bytes(9)...), append(u32bytes(7), make([]byte, tcStats)...)...)
		filter := object(2, 1, 0x10000, 5<<16|8, "u32", older, attribute(tcaStats, stats[:c.size]))
		conn := (&kernel{filters: [][]byte{filter}}).dial(t)
		filters, err := conn.filters(2, 0x10000)
		if err != nil {
			t.Fatal(err)
		}
		all, err := conn.Droppers(2, Tree{Filters: filters})
		told := []string{}
		for _, d := range all {
			told = append(told, fmt.Sprintf("%s %s %d", d.Action, d.Rate, d.Drops))
		}
		if got := fmt.Sprint(told); err != nil || got != c.want {
			t.Errorf("%s: %s, %v; want %s", c.what, got, err, c.want)
		}
	}
}

// What an hfsc class may have at most is the second slope of its upper limit, in bytes a second.
func TestUpperLimit(t *testing.T) {
	curve := func(m2 uint32) []byte { return append(make([]byte, 8), u32bytes(m2)...) }
	for _, c := range []struct {
		what    string
		options []byte
		want    units.Rate
	}{
		{"none", nil, 0},
		{"a share alone", pack(attribute(2, curve(9e6))), 0},
		{"a share and a limit", pack(attribute(2, curve(9e6)), attribute(3, curve(1e6))), 8e6},
		{"cut off", pack(attribute(3, curve(1e6)[:11])), 0},
	} {
		if got := upperLimit(c.options); got != c.want {
			t.Errorf("%s: %s, want %s", c.what, got, c.want)
		}
	}
}

// The pair of filters that lets a tunnel's packets past is read by all that it says.
func TestPassesRead(t *testing.T) {
	flower := func(protocol uint16, more ...netlink.Attribute) Filter {
		list := append([]netlink.Attribute{attribute(flowerEthType, []byte{8, 0}),
			attribute(flowerIPProto, []byte{protoUDP}), attribute(flowerUDPDst, []byte{1, 2}),
			attribute(flowerUDPDstMask, []byte{0xff, 0xff}), attribute(flowerFlags, u32bytes(8))}, more...)
		return Filter{Kind: "flower", Protocol: protocol, Priority: passPriority(protocol), Options: pack(list...)}
	}
	with := func(set func(*Filter)) Filter { f := flower(ethIP); set(&f); return f }
	options := func(list ...netlink.Attribute) Filter { return with(func(f *Filter) { f.Options = pack(list...) }) }
	udp, tcp := attribute(flowerIPProto, []byte{protoUDP}), attribute(flowerIPProto, []byte{protoTCP})
	for _, c := range []struct {
		what   string
		filter Filter
		want   string
	}{
		{"IPv4", flower(ethIP), "udp/258 true"},
		{"IPv6", flower(ethIPv6), "udp/258 true"},
		{"TCP", options(tcp, attribute(flowerTCPDst, []byte{0, 7}), attribute(flowerTCPDstMask, []byte{0xff, 0xff})),
			"tcp/7 true"},
		{"in hardware", flower(ethIP, attribute(flowerInHardware, u32bytes(0))), "udp/258 true"},
		{"with an action", flower(ethIP, attribute(3)), "/0 false"},
		{"some ports", options(udp, attribute(flowerUDPDst, []byte{1, 2}),
			attribute(flowerUDPDstMask, []byte{0xff, 0})), "/0 false"},
		{"some TCP ports", options(tcp, attribute(flowerTCPDst, []byte{1, 2}),
			attribute(flowerTCPDstMask, []byte{0, 0xff})), "/0 false"},
		{"another protocol", options(attribute(flowerIPProto, []byte{1}), attribute(flowerUDPDst, []byte{1, 2})),
			"/0 false"},
		{"no protocol", options(attribute(flowerUDPDst, []byte{1, 2})), "/0 false"},
		{"UDP with TCP's port", options(udp, attribute(flowerTCPDst, []byte{1, 2})), "udp/0 false"},
		{"half a port", options(udp, attribute(flowerUDPDst, []byte{1})), "udp/0 false"},
		{"port 0", options(udp, attribute(flowerUDPDst, []byte{0, 0})), "udp/0 false"},
		{"another kind", with(func(f *Filter) { f.Kind = "u32" }), "/0 false"},
		{"another chain", with(func(f *Filter) { f.Chain = 1 }), "/0 false"},
		{"IPv6's priority", with(func(f *Filter) { f.Priority++ }), "/0 false"},
		{"another priority", with(func(f *Filter) { f.Priority-- }), "/0 false"},
		{"options cut off", with(func(f *Filter) { f.Options = f.Options[:9] }), "/0 false"},
	} {
		outer, ok := c.filter.passes()
		if got := fmt.Sprint(outer, " ", ok); got != c.want {
			t.Errorf("%s: %s, want %s", c.what, got, c.want)
		}
	}
	if passPriority(ethIP) != 0xBFFE || passPriority(ethIPv6) != 0xBFFF {
		t.Error("they are not right before what redirects")
	}

	list := func(filters ...Filter) (all [][]byte) {
		for _, f := range filters {
			protocol := uint32(f.Protocol>>8 | f.Protocol<<8)
			all = append(all, object(2, 1, atIngress, uint32(f.Priority)<<16|protocol, f.Kind, f.Options))
		}
		return all
	}
	for what, c := range map[string]struct {
		filters [][]byte
		want    string
	}{
		"a pair":   {list(flower(ethIP), flower(ethIPv6)), "[udp/258] 2"},
		"a half":   {list(flower(ethIP)), "[] 1"},
		"one more": {list(flower(ethIP), flower(ethIPv6), flower(ethIP)), "[udp/258] 3"},
		"none":     {nil, "[] 0"},
	} {
		pairs, count, err := (&kernel{filters: c.filters}).dial(t).passing(2)
		if got := fmt.Sprint(pairs, " ", count); err != nil || got != c.want {
			t.Errorf("%s: %s, %v; want %s", what, got, err, c.want)
		}
	}
}

// A filter for packets of less than 256 bytes is told from all that others may have at its place.
func TestSmallRead(t *testing.T) {
	sel := func(mask []byte, value uint32, offset uint32) []byte {
		b := make([]byte, selLen+keyLen)
		b[0], b[selNkeys] = u32Terminal, 1
		copy(b[keyMask:], mask)
		copy(b[keyValue:], u32bytes(value))
		copy(b[keyOffset:], u32bytes(offset))
		return b
	}
	// The upper half of IPv4's total length is its third byte; of IPv6's payload length, its fifth.
	selIPv4, selIPv6 := sel([]byte{0, 0, 0xff, 0}, 0, 0), sel([]byte{0xff, 0, 0, 0}, 0, 4)
	filter := func(protocol uint16, sel []byte, more ...netlink.Attribute) Filter {
		return Filter{Kind: "u32", Protocol: protocol, Priority: passPriority(protocol),
			Options: pack(append([]netlink.Attribute{attribute(u32Sel, sel)}, more...)...)}
	}
	with := func(at int, b byte) Filter {
		spoiled := slices.Clone(selIPv4)
		spoiled[at] = b
		return filter(ethIP, spoiled)
	}
	changed := func(set func(*Filter)) Filter { f := filter(ethIP, selIPv4); set(&f); return f }
	for _, c := range []struct {
		what   string
		filter Filter
		want   bool
	}{
		{"IPv4", filter(ethIP, selIPv4), true},
		{"IPv6", filter(ethIPv6, selIPv6), true},
		{"IPv4's for IPv6", filter(ethIPv6, selIPv4), false},
		{"IPv6's for IPv4", filter(ethIP, selIPv6), false},
		{"another protocol", filter(unix.ETH_P_ARP, selIPv4), false},
		{"another mask", with(keyMask, 1), false},
		{"another value", with(keyValue, 1), false},
		{"another place", with(keyOffset, 4), false},
		{"two keys", with(selNkeys, 2), false},
		{"not the last word", with(0, 0), false},
		{"one key more", filter(ethIP, append(slices.Clone(selIPv4), make([]byte, keyLen)...)), false},
		{"an action", filter(ethIP, selIPv4, attribute(u32Act, []byte{1, 2, 3, 4})), false},
		{"a policer", filter(ethIP, selIPv4, attribute(u32Police, []byte{1, 2, 3, 4})), false},
		{"a class", filter(ethIP, selIPv4, attribute(u32ClassID, u32bytes(1))), false},
		{"another kind", changed(func(f *Filter) { f.Kind = "flower" }), false},
		{"another chain", changed(func(f *Filter) { f.Chain = 1 }), false},
		{"another priority", changed(func(f *Filter) { f.Priority++ }), false},
	} {
		if got := c.filter.small(); got != c.want {
			t.Errorf("%s: %v", c.what, got)
		}
	}
}

// What redirects to a device, or to one that is gone, is taken away with what is around it where nothing else is.
func TestUnredirect(t *testing.T) {
	to := func(dev int) []byte {
		b, err := redirectTo(dev)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	all := uint32(redirectPriority)<<16 | 0x0300
	redirect := func(dev int) []byte { return object(2, 1, atIngress, all, "matchall", to(dev)) }
	ourFilter, deadFilter, otherFilter := redirect(7), redirect(0), redirect(8)
	foreignFilter := object(2, 1, atIngress, 3<<16|8, "flower", []byte{4, 0, 3, 0})
	table := object(2, 0x80000000, atIngress, 4<<16|8, "u32", []byte{8, 0, 3, 0, 1, 0, 0, 0})
	for _, c := range []struct {
		what, kind string
		filters    [][]byte
		empty      bool // ours if it is empty
		want       string
	}{
		{"nothing there", "", nil, true, "[]"},
		{"ours alone", "ingress", [][]byte{ourFilter}, false, "[change delete 0: at ingress]"},
		{"ours and a table", "ingress", [][]byte{ourFilter, table}, false, "[change delete 0: at ingress]"},
		{"of a device that is gone", "ingress", [][]byte{deadFilter}, false, "[change delete 0: at ingress]"},
		{"another's", "ingress", [][]byte{otherFilter}, false, "[]"},
		{"empty, and ours", "ingress", nil, true, "[change delete 0: at ingress]"},
		{"empty", "ingress", nil, false, "[]"},
		{"beside somebody's", "ingress", [][]byte{foreignFilter, ourFilter}, false,
			"[filter :1 at ffff:fff2 matchall]"},
		{"in a clsact", "clsact", [][]byte{ourFilter}, false, "[change delete 0: at ingress]"},
		{"in a clsact, beside somebody's", "clsact", [][]byte{foreignFilter, ourFilter}, false,
			"[filter :1 at ffff:fff2 matchall]"},
		{"an empty clsact", "clsact", nil, true, "[]"},
	} {
		k := &kernel{links: [][]byte{link(2, 1500, 1000)}, filters: c.filters}
		if c.kind != "" {
			k.qdiscs = [][]byte{object(2, 0xffff0000, Ingress, 1, c.kind, nil)}
		}
		if err := k.dial(t).unredirect(2, leadsTo(7), c.empty); err != nil {
			t.Errorf("%s: %v", c.what, err)
		}
		requests := []string{}
		for _, m := range k.changes {
			if m.Header.Type == unix.RTM_DELTFILTER {
				header, list, _ := split(m, unix.RTM_DELTFILTER)
				requests = append(requests, fmt.Sprintf("filter %s at %s %s", header.handle, header.parent,
					cString(list[0].Data)))
				if header.info != all {
					t.Errorf("%s: of priority and protocol %#x", c.what, header.info)
				}
				continue
			}
			requests = append(requests, describe(t, m))
		}
		if got := fmt.Sprint(requests); got != c.want {
			t.Errorf("%s: asks for %s, want %s", c.what, got, c.want)
		}
	}
	for name, c := range map[string]struct {
		filters [][]byte
		want    string
	}{"the first that does": {[][]byte{foreignFilter, ourFilter, otherFilter}, "7 true <nil>"},
		"none":                {[][]byte{foreignFilter}, "0 false <nil>"},
		"to one that is gone": {[][]byte{deadFilter}, "0 true <nil>"}} {
		dev, ok, err := (&kernel{filters: c.filters}).dial(t).Redirect(2)
		if got := fmt.Sprint(dev, " ", ok, " ", err); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}
