// SPDX-License-Identifier: Apache-2.0

package qdisc

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

func attribute(typ uint16, data ...[]byte) netlink.Attribute {
	return netlink.Attribute{Type: typ, Data: slices.Concat(data...)}
}

// withAction is a matchall with one action.
func withAction(name string, options ...netlink.Attribute) Filter {
	return Filter{Kind: "matchall", Parent: 0x10000, Handle: 1, Priority: 5, Protocol: unix.ETH_P_IP,
		Options: pack(attribute(matchallAct,
			pack(attribute(1, pack(attribute(actKind, []byte(name+"\x00")),
				attribute(actOptions, pack(options...)))))))}
}

// gen is struct tc_gen: its index, and how many use it.
func gen(index, refs, binds uint32) []byte {
	return slices.Concat(u32bytes(index), u32bytes(0), u32bytes(2), u32bytes(refs), u32bytes(binds))
}

// What no test has shown to come back is refused before anything is changed, with the line that takes it away.
func TestLostFilters(t *testing.T) {
	basic := func(kind uint16) Filter {
		header := []byte{0, 0, byte(kind), byte(kind >> 8), 0, 0, 0, 0}
		return Filter{Kind: "basic", Parent: 0x10000, Handle: 1, Priority: 5, Protocol: unix.ETH_P_IP,
			Options: pack(attribute(2, pack(attribute(1, make([]byte, 4)), attribute(2, pack(attribute(1, header))))))}
	}
	for want, f := range map[string]Filter{
		"": withAction("gact", attribute(2, gen(7, 1, 1)),
			attribute(1, make([]byte, 32))),
		"its action gact is shared":  withAction("gact", attribute(2, gen(7, 2, 1))),
		"its action gact is shared ": withAction("gact", attribute(2, gen(7, 1, 2))),
		"its action csum":            withAction("csum", attribute(2, gen(7, 1, 1))),
		"its action gact has attribute 9": withAction("gact", attribute(2, gen(7, 1, 1)),
			attribute(9, make([]byte, 4))),
		"is gone": withAction("mirred", attribute(2, gen(7, 1, 1), u32bytes(1), u32bytes(0))),
		"its action mirred has attribute 4": withAction("mirred", attribute(2, gen(7, 1, 1), u32bytes(1), u32bytes(3)),
			attribute(4, u32bytes(22))),
		"extended matches of kind 8": basic(8),
		"does not report its program": {Kind: "bpf", Parent: 0x10000, Handle: 1, Priority: 5,
			Protocol: unix.ETH_P_IP, Options: pack(attribute(8, u32bytes(1)))},
		"with attribute 11": {Kind: "bpf", Parent: 0x10000, Handle: 1, Priority: 5,
			Protocol: unix.ETH_P_IP, Options: pack(attribute(11, u32bytes(1)))},
		"type of its outer tag": {Kind: "flower", Parent: 0x10000, Handle: 1, Priority: 5,
			Protocol: unix.ETH_P_IP, Options: pack(attribute(23, []byte{0, 7}))},
		"what it does": {Kind: "matchall", Parent: 0x10000, Handle: 1, Priority: 5,
			Protocol: unix.ETH_P_IP},
		"of this kind": {Kind: "cgroup", Parent: 0x10000, Handle: 1, Priority: 5,
			Protocol: unix.ETH_P_IP, Options: pack(attribute(1, u32bytes(1)))},
	} {
		err := Tree{Qdiscs: []Qdisc{{Kind: "prio", Handle: 0x10000, Parent: Root}}, Filters: []Filter{f}}.Restorable()
		var lost *Lost
		switch {
		case want == "" && err == nil:
		case want == "" || !errors.As(err, &lost) || !strings.Contains(err.Error(), strings.TrimSpace(want)):
			t.Errorf("%v, want %q", err, want)
		case lost.Remove("eth0") != "tc filter del dev eth0 parent 1: prio 5 protocol ip "+f.Kind:
			t.Errorf("%s: %s", want, lost.Remove("eth0"))
		}
	}
}

// Two filters are the same by what they do, whatever they have counted and whichever numbers they have been given.
func TestSameFilters(t *testing.T) {
	one := withAction("gact", attribute(2, gen(7, 1, 1)), attribute(1, make([]byte, 32)))
	tree := func(f Filter) Tree { return Tree{Filters: []Filter{f}} }
	if other := withAction("gact", attribute(2, gen(8, 1, 1)),
		attribute(1, []byte(strings.Repeat("x", 32)))); !tree(one).Same(tree(other)) {
		t.Error("it is another one by its number and its times")
	}
	drops := gen(7, 1, 1)
	drops[8] = 0
	if other := withAction("gact", attribute(2, drops)); tree(one).Same(tree(other)) {
		t.Error("one that passes is the same as one that drops")
	}
}
