// SPDX-License-Identifier: Apache-2.0

package qdisc

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"testing"

	"github.com/mdlayher/netlink"
	"github.com/mdlayher/netlink/nltest"
	"golang.org/x/sys/unix"
)

// recorded is a connection to a kernel, and each message that is sent to it.
func recorded(t *testing.T, k *kernel) (*Conn, *[]netlink.Message) {
	var all []netlink.Message
	c := withoutBPF(func(requests []netlink.Message) ([]netlink.Message, error) {
		all = append(all, requests...)
		return k.answer(requests)
	})
	t.Cleanup(func() { _ = c.Close() })
	return c, &all
}

// One interface is asked for by its number, all of them by a list.
func TestAskedForInterfaces(t *testing.T) {
	for _, ifindex := range []int{0, 2} {
		c, all := recorded(t, &kernel{links: [][]byte{link(2, 1500, 1000)}})
		if _, err := c.trees(ifindex); err != nil {
			t.Fatal(err)
		}
		request := (*all)[0]
		dump := request.Header.Flags&netlink.Dump == netlink.Dump
		list, err := netlink.UnmarshalAttributes(request.Data[16:])
		if request.Header.Type != unix.RTM_GETLINK || dump != (ifindex == 0) || err != nil || len(list) != 1 ||
			binary.NativeEndian.Uint32(request.Data[4:]) != uint32(ifindex) || list[0].Type != unix.IFLA_EXT_MASK ||
			!bytes.Equal(list[0].Data, u32bytes(8)) {
			t.Errorf("for interface %d it asks %+v", ifindex, request)
		}
	}
	if _, err := (&kernel{links: [][]byte{link(3, 1500, 1000)}}).dial(t).Tree(2); !errors.Is(err, unix.ENODEV) {
		t.Errorf("an interface that is not there: %v", err)
	}
}

// Only what can have filters is asked for them, and where one was made by the kernel, the root alone.
func TestAskedForFilters(t *testing.T) {
	places := func(qdiscs, classes [][]byte) string {
		c, all := recorded(t, &kernel{links: [][]byte{link(2, 1500, 1000)}, qdiscs: qdiscs, classes: classes})
		if _, err := c.Tree(2); err != nil {
			t.Fatal(err)
		}
		requests := []string{}
		for _, m := range *all {
			if m.Header.Type == unix.RTM_GETTFILTER {
				requests = append(requests, Handle(binary.NativeEndian.Uint32(m.Data[12:])).String())
			}
		}
		return fmt.Sprint(requests)
	}
	prio := object(2, 0x10000, Root, 1, "prio", nil)
	for _, c := range []struct {
		what            string
		qdiscs, classes [][]byte
		want            string
	}{
		{"a root", [][]byte{prio}, nil, "[1:]"},
		{"the kernel's own root", [][]byte{object(2, 0, Root, 1, "fq_codel", nil)}, nil, "[0:]"},
		{"what hangs below", [][]byte{prio, object(2, 0x20000, 0x10001, 1, "sfq", nil)}, nil, "[1: 2:]"},
		{"the kernel's own below", [][]byte{prio, object(2, 0, 0x10001, 1, "sfq", nil)}, nil, "[1:]"},
		{"the ingress", [][]byte{prio, object(2, 0xffff0000, Ingress, 1, "clsact", nil)}, nil, "[1:]"},
		{"classes", [][]byte{object(2, 0x10000, Root, 1, "htb", encoded(t, "htb rate 5mbit"))},
			[][]byte{object(2, 0x10001, Root, 0, "htb", encodedClass(t, "htb rate 5mbit"))}, "[1: 1:1]"},
		{"hfsc's root class", [][]byte{object(2, 0x10000, Root, 1, "hfsc", nil)},
			[][]byte{object(2, 0x10000, Root, 0, "hfsc", nil), object(2, 0x10001, 0x10000, 0, "hfsc", nil)},
			"[1: 1:1]"},
		{"flows", [][]byte{object(2, 0x10000, Root, 1, "htb", nil)},
			[][]byte{object(2, 0x10001, Root, 0, "fq_codel", nil)}, "[1:]"},
	} {
		if got := places(c.qdiscs, c.classes); got != c.want {
			t.Errorf("%s: it asks for those at %s, want %s", c.what, got, c.want)
		}
	}
	var filtered []string
	for _, k := range kinds() {
		if places([][]byte{object(2, 0x10000, Root, 1, k.name, nil)}, nil) != "[]" {
			filtered = append(filtered, k.name)
		}
	}
	const want = "cake cbq drr dualpi2 ets fq_codel fq_pie hfsc hhf htb multiq prio qfq sfq skbprio"
	if got := strings.Join(filtered, " "); got != want {
		t.Errorf("these take filters: %s, want %s", got, want)
	}
}

// What a filter's list may be: nothing where a kernel has none, the one that cannot be listed, and an error otherwise.
func TestFilterLists(t *testing.T) {
	for errno, want := range map[unix.Errno]string{
		0: "[] <nil>", unix.EOPNOTSUPP: "[] <nil>", unix.EINVAL: "[] <nil>", unix.ENOENT: "[] <nil>",
		unix.EMSGSIZE: "[filters at 1:] <nil>", unix.EPERM: "[] list filters: operation not permitted",
	} {
		k := &kernel{}
		c := withoutBPF(func(requests []netlink.Message) ([]netlink.Message, error) {
			if errno != 0 {
				return nltest.Error(int(errno), requests)
			}
			return k.answer(requests)
		})
		filters, err := c.filters(2, 0x10000)
		if got := fmt.Sprint(filters, " ", err); got != want {
			t.Errorf("%v: %s, want %s", errno, got, want)
		}
		_ = c.Close()
	}
	k := &kernel{chains: [][]byte{object(2, 0, 0x10000, 0, "", nil, attribute(tcaChain, u32bytes(3))),
		object(2, 0, 0x10000, 0, "flower", nil, attribute(tcaChain, u32bytes(4)))}}
	templates, err := k.dial(t).templates(2, 0x10000)
	if got := fmt.Sprintf("%+v", templates); err != nil || len(templates) != 1 || !templates[0].Template ||
		templates[0].Kind != "flower" || templates[0].Chain != 4 || templates[0].Parent != 0x10000 {
		t.Errorf("templates %s, %v", got, err)
	}
}

// A change keeps a size table, which the kernel would take away; a table whose entries nobody knows cannot be kept.
func TestChangeKeepsSizeTable(t *testing.T) {
	cake, next := mustParse(t, "cake bandwidth 5mbit")[0], mustParse(t, "cake bandwidth 6mbit")[0]
	change := func(table []byte) ([]netlink.Attribute, error) {
		k := &kernel{}
		now := Qdisc{Kind: "cake", Handle: 0x10000, Parent: Root, Spec: cake, SizeTable: table}
		err := k.dial(t).Change(2, now, next)
		if len(k.changes) == 0 {
			return nil, err
		}
		_, list, splitErr := split(k.changes[0], unix.RTM_NEWQDISC)
		return list, errors.Join(err, splitErr)
	}
	has := func(list []netlink.Attribute) bool {
		return slices.ContainsFunc(list, func(a netlink.Attribute) bool {
			return a.Type == tcaStab && bytes.Equal(a.Data, SizeTable(4))
		})
	}
	if list, err := change(nil); err != nil || len(list) != 2 || has(list) {
		t.Errorf("without a table it sends %+v, %v", list, err)
	}
	if list, err := change(SizeTable(4)); err != nil || len(list) != 3 || !has(list) {
		t.Errorf("with a table it sends %+v, %v", list, err)
	}
	entries := SizeTable(4)
	copy(entries[4+20:], u32bytes(1))
	for what, table := range map[string][]byte{"entries": entries, "parts": {1, 2, 3},
		"another attribute": pack(attribute(2, make([]byte, 24))),
		"a short struct":    pack(attribute(1, make([]byte, 23)))} {
		if list, err := change(table); err == nil || list != nil {
			t.Errorf("a table of %s: it sends %+v, %v", what, list, err)
		}
	}
}

// What is at the root is gone when the kernel says that there is nothing; elsewhere that is an error, as is all else.
func TestDeleteNothing(t *testing.T) {
	for _, c := range []struct {
		parent Handle
		errno  unix.Errno
		want   string
	}{
		{Root, 0, ""}, {Root, unix.ENOENT, ""}, {0x10001, unix.ENOENT, "delete what is at 1:1: no (no such file"},
		{Root, unix.EPERM, "delete what is at root: no (operation not permitted)"},
		{Ingress, unix.EINVAL, "delete what is at ingress: no (invalid argument)"},
	} {
		k := &kernel{refuse: func(netlink.Message) (unix.Errno, string) { return c.errno, "no" }}
		err := k.dial(t).Delete(2, c.parent)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s, %v: %v, want %s", c.parent, c.errno, err, c.want)
		}
	}
}

// answers is a socket that hands out one answer at a time, as the kernel does.
type answers struct {
	kernel  *kernel
	waiting []netlink.Message
}

func (a *answers) Close() error                 { return nil }
func (a *answers) Send(m netlink.Message) error { return a.SendMessages([]netlink.Message{m}) }

func (a *answers) SendMessages(list []netlink.Message) error {
	more, err := a.kernel.answer(list)
	a.waiting = append(a.waiting, more...)
	return err
}

func (a *answers) Receive() ([]netlink.Message, error) {
	if len(a.waiting) == 0 {
		return nil, nil
	}
	first := a.waiting[:1]
	a.waiting = a.waiting[1:]
	return first, nil
}

func (a *answers) ReceiveIter() iter.Seq2[netlink.Message, error] {
	return func(yield func(netlink.Message, error) bool) {
		list, err := a.Receive()
		for _, m := range list {
			if !yield(m, err) {
				return
			}
		}
	}
}

// Of requests that fail one after the other each is told by its own name.
func TestRefusedInARow(t *testing.T) {
	var requests []request
	for i := range 4 {
		r, err := newRequest(delQdisc, 0, tcmsg{ifindex: 2, handle: Handle(i)}, fmt.Sprint("request ", i))
		if err != nil {
			t.Fatal(err)
		}
		requests = append(requests, r)
	}
	for refused, want := range map[string]string{
		"": "[]", "0": "[0]", "3": "[3]", "01": "[0 1]", "12": "[1 2]", "0123": "[0 1 2 3]", "23": "[2 3]",
		"02": "[0 2]",
	} {
		k := &kernel{refuse: func(m netlink.Message) (unix.Errno, string) {
			if tcm, _, _ := split(m, unix.RTM_DELQDISC); strings.Contains(refused, fmt.Sprint(uint32(tcm.handle))) {
				return unix.EINVAL, "no"
			}
			return 0, ""
		}}
		told := []string{}
		c := &Conn{bpf: noBPF{}, shaper: noShaper{}, nl: netlink.NewConn(&answers{kernel: k}, 1)}
		for _, err := range c.sendPart(requests) {
			what, why, _ := strings.Cut(strings.TrimPrefix(err.Error(), "interface 2: request "), ": ")
			if told = append(told, what); why != "no (invalid argument)" {
				t.Errorf("%s: %v", refused, err)
			}
		}
		if got := fmt.Sprint(told); got != want {
			t.Errorf("of %q refused it tells %s, want %s", refused, got, want)
		}
	}
}

// In place is changed what has the same shape, level by level; the rest is left to Replace.
func TestAdjust(t *testing.T) {
	htb := [][]byte{object(2, 0x10000, Root, 2, "htb", encoded(t, "htb rate 5mbit")),
		object(2, 0x20000, 0x10001, 2, "fq_codel", encoded(t, "fq_codel"))}
	class := [][]byte{object(2, 0x10001, Root, 0x20000, "htb", encodedClass(t, "htb rate 5mbit"))}
	cake := [][]byte{object(2, 0x10000, Root, 2, "cake", encoded(t, "cake bandwidth 5mbit"))}
	queues := [][]byte{object(2, 0x10000, Root, 2, "mq", nil), object(2, 0x20000, 0x10001, 2, "fq_codel", nil),
		object(2, 0x30000, 0x10002, 2, "fq_codel", nil)}
	for _, c := range []struct {
		qdiscs, classes [][]byte
		to, want        string
	}{
		{cake, nil, "cake bandwidth 6mbit", "[change qdisc 1: at root cake] <nil>"},
		{cake, nil, "cake bandwidth 5mbit", "[] <nil>"},
		{cake, nil, "fq_codel", "[] cake cannot be changed into fq_codel: replace it"},
		{cake, nil, "htb rate 5mbit | fq_codel", "[] what is there has another shape: replace it"},
		{nil, nil, "cake", "[] what is there has another shape: replace it"},
		{htb, class, "htb rate 6mbit | fq_codel limit 9",
			"[change class 1:1 at root htb change qdisc 2: at 2^ fq_codel] <nil>"},
		{htb, class, "htb rate 5mbit | fq_codel limit 9", "[change qdisc 2: at 2^ fq_codel] <nil>"},
		{queues, nil, "mq | fq_codel", "[] <nil>"},
		{queues, nil, "mq | fq_codel limit 9", "[] what is there has several queues: replace it"},
	} {
		k := &kernel{links: [][]byte{link(2, 1500, 1000)}, qdiscs: c.qdiscs, classes: c.classes}
		err := k.dial(t).Adjust(2, mustParse(t, c.to))
		requests := []string{}
		for _, m := range k.changes {
			requests = append(requests, describe(t, m))
		}
		want := strings.ReplaceAll(c.want, "2^", "1:1")
		if got := fmt.Sprint(requests, " ", err); got != want {
			t.Errorf("to %s: %s, want %s", c.to, got, want)
		}
	}
	if err := (&kernel{}).dial(t).Adjust(2, nil); err == nil {
		t.Error("an empty stack")
	}
}

// Disciplines that could not be put back are named, with tc's line that takes them away.
func TestLostQdiscs(t *testing.T) {
	estimated := Stats{Estimated: true}
	for _, c := range []struct {
		tree         Tree
		what, remove string
	}{
		{Tree{Qdiscs: []Qdisc{{Kind: "prio", Handle: 0x10000, Parent: Root}}}, "", ""},
		{Tree{Qdiscs: []Qdisc{{Kind: "red", Handle: 0x10000, Parent: Root}}},
			"qdisc red 1: no test has shown that this kind comes back", "tc qdisc del dev eth0 root"},
		{Tree{Qdiscs: []Qdisc{{Kind: "prio", Handle: 0x10000, Parent: Root}, {Kind: "red", Handle: 0x20000,
			Parent: 0x10001}}}, "qdisc red 2: no test has shown that this kind comes back",
			"tc qdisc del dev eth0 parent 1:1"},
		{Tree{Qdiscs: []Qdisc{{Kind: "red", Parent: Root}}}, "", ""}, // the kernel's own
		{Tree{Qdiscs: []Qdisc{{Kind: "red", Handle: 0xffff0000, Parent: Ingress}}}, "", ""},
		{Tree{Qdiscs: []Qdisc{{Kind: "netem", Handle: 0x10000, Parent: Root}}},
			"qdisc netem 1: struct tc_netem_qopt is too short", "tc qdisc del dev eth0 root"},
		{Tree{Qdiscs: []Qdisc{{Kind: "prio", Handle: 0x10000, Parent: Root, Stats: estimated}}},
			"qdisc prio 1: has a rate estimator, whose times the kernel does not report", "tc qdisc del dev eth0 root"},
		{Tree{Qdiscs: []Qdisc{{Kind: "htb", Handle: 0x10000, Parent: Root}},
			Classes: []Class{{Kind: "htb", Handle: 0x10002, Parent: Root, Stats: estimated}}},
			"class htb 1:2: has a rate estimator, whose times the kernel does not report",
			"tc qdisc del dev eth0 root"},
		{Tree{Qdiscs: []Qdisc{{Kind: "htb", Handle: 0x10000, Parent: Root}}, Filters: []Filter{
			{Template: true, Parent: 0x10000, Chain: 3, Kind: "flower"}}}, "chain 3 at 1: its template says what " +
			"filters there are to look like, and no test has shown that it comes back",
			"tc chain del dev eth0 parent 1: chain 3"},
		{Tree{Qdiscs: []Qdisc{{Kind: "htb", Handle: 0x10000, Parent: Root}}, Filters: []Filter{{Parent: 0x10000}}},
			"filters at 1: the kernel cannot list them, which fw without a mark leads to",
			"tc filter del dev eth0 parent 1:"},
		{Tree{Qdiscs: []Qdisc{{Kind: "htb", Handle: 0x10000, Parent: Root}}, Filters: []Filter{
			{Kind: "cgroup", Parent: 0x10000, Priority: 5, Protocol: ethAll, Chain: 7}}},
			"filter cgroup at 1: (protocol all, pref 5, chain 7): no test has shown that filters of this kind " +
				"come back",
			"tc filter del dev eth0 parent 1: prio 5 protocol all chain 7 cgroup"},
		{Tree{Qdiscs: []Qdisc{{Kind: "prio", Handle: 0x10000, Parent: Root}}, Filters: []Filter{
			{Kind: "u32", Parent: 0x10000, Priority: 5, Protocol: ethIP, Options: []byte{}},
			{Kind: "u32", Parent: 0x10000, Priority: 5, Protocol: 0x1234, Options: []byte{}}}},
			"filter u32 at 1: (protocol 0x1234, pref 5): filter u32 at 1: (protocol ip, pref 5) has the same " +
				"priority, and the kernel does not tell their tables apart",
			"tc filter del dev eth0 parent 1: prio 5 protocol 0x1234 u32"},
		{Tree{Qdiscs: []Qdisc{{Kind: "prio", Handle: 0x10000, Parent: Root}}, Filters: []Filter{
			{Kind: "u32", Parent: 0x10000, Priority: 5, Protocol: ethIP, Options: []byte{}},
			{Kind: "u32", Parent: 0x10000, Priority: 6, Protocol: ethIPv6, Options: []byte{}}}}, "", ""},
	} {
		err := c.tree.Restorable()
		var lost *Lost
		switch {
		case c.what == "" && err == nil:
		case !errors.As(err, &lost) || lost.What != c.what || lost.Remove("eth0") != c.remove:
			t.Errorf("%v, want %q", err, c.what)
			if lost != nil {
				t.Error(lost.Remove("eth0"))
			}
		}
	}
	if err := (Tree{Qdiscs: []Qdisc{{Kind: "dualpi2.1", Handle: 0x10000, Parent: Root}}}).Restorable(); err == nil ||
		!strings.Contains(err.Error(), "is a BPF qdisc that could not be read") {
		t.Errorf("%v", err)
	}
}
