// SPDX-License-Identifier: Apache-2.0

package qdisc

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/mdlayher/netlink"
	"github.com/mdlayher/netlink/nltest"
	"golang.org/x/sys/unix"
)

// kernel answers like one that has these interfaces and trees, and notes each change that it is asked for.
type kernel struct {
	links, qdiscs, classes, filters, chains [][]byte
	changes                                 []netlink.Message
	refuse                                  func(netlink.Message) (unix.Errno, string)
	dumps                                   func([]netlink.Message) []netlink.Message // spoils a list
	bpf                                     loader                                    // none when nil
	shaper                                  shaperLoader                              // likewise
}

// withoutBPF is a Conn to what answers so, which loads no program.
func withoutBPF(answer nltest.Func) *Conn {
	return &Conn{nl: nltest.Dial(answer), bpf: noBPF{}, shaper: noShaper{}}
}

func (k *kernel) dial(t *testing.T) *Conn {
	c := withoutBPF(k.answer)
	if k.bpf != nil {
		c.bpf = k.bpf
	}
	if k.shaper != nil {
		c.shaper = k.shaper
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func (k *kernel) answer(requests []netlink.Message) ([]netlink.Message, error) {
	if len(requests) == 0 {
		return nil, io.EOF
	}
	list := func(typ netlink.HeaderType, bodies [][]byte) ([]netlink.Message, error) {
		header := netlink.Header{Type: typ, Flags: netlink.Multi, Sequence: requests[0].Header.Sequence,
			PID: requests[0].Header.PID}
		var answer []netlink.Message
		for _, b := range bodies {
			answer = append(answer, netlink.Message{Header: header, Data: b})
		}
		if k.dumps != nil {
			answer = k.dumps(answer)
		}
		header.Type = netlink.Done
		return append(answer, netlink.Message{Header: header, Data: make([]byte, 4)}), nil
	}
	switch requests[0].Header.Type {
	case unix.RTM_GETLINK:
		return list(unix.RTM_NEWLINK, k.links)
	case unix.RTM_GETQDISC:
		return list(unix.RTM_NEWQDISC, k.qdiscs)
	case unix.RTM_GETTCLASS:
		return list(unix.RTM_NEWTCLASS, k.classes)
	case unix.RTM_GETTFILTER:
		return list(unix.RTM_NEWTFILTER, k.filters)
	case unix.RTM_GETCHAIN:
		return list(unix.RTM_NEWCHAIN, k.chains)
	}
	var answer []netlink.Message
	for _, r := range requests {
		k.changes = append(k.changes, r)
		header := netlink.Header{Type: netlink.Error, Sequence: r.Header.Sequence, PID: r.Header.PID}
		original := make([]byte, 16)
		binary.NativeEndian.PutUint32(original, 16)
		data := append(make([]byte, 4), original...)
		if k.refuse != nil {
			if errno, words := k.refuse(r); errno != 0 {
				header.Flags = netlink.AcknowledgeTLVs
				binary.NativeEndian.PutUint32(data, uint32(-int32(errno)))
				// NLMSGERR_ATTR_MSG
				data = append(data, pack(netlink.Attribute{Type: 1, Data: append([]byte(words), 0)})...)
			}
		}
		answer = append(answer, netlink.Message{Header: header, Data: data})
	}
	return answer, nil
}

func pack(list ...netlink.Attribute) []byte {
	b, err := netlink.MarshalAttributes(list)
	if err != nil {
		panic(err)
	}
	return b
}

func link(ifindex, mtu, queue int) []byte {
	b := make([]byte, 16)
	binary.NativeEndian.PutUint16(b[2:], 1)
	binary.NativeEndian.PutUint32(b[4:], uint32(ifindex))
	return append(b, pack(netlink.Attribute{Type: unix.IFLA_MTU, Data: u32bytes(uint32(mtu))},
		netlink.Attribute{Type: unix.IFLA_TXQLEN, Data: u32bytes(uint32(queue))})...)
}

func object(ifindex int, handle, parent Handle, info uint32, kind string, options []byte,
	more ...netlink.Attribute) []byte {
	list := []netlink.Attribute{{Type: tcaKind, Data: append([]byte(kind), 0)}}
	if options != nil {
		list = append(list, netlink.Attribute{Type: tcaOptions, Data: options})
	}
	return append(tcmsg{ifindex, handle, parent, info}.bytes(), pack(append(list, more...)...)...)
}

func encoded(t *testing.T, text string) []byte {
	t.Helper()
	s := mustParse(t, text)[0]
	defaults, _ := Default(s.Kind())
	b, err := s.encode(defaults)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func encodedClass(t *testing.T, text string) []byte {
	t.Helper()
	b, err := mustParse(t, text)[0].(HTB).encodeClass()
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// The shapes that a Stack can say, and those that it cannot.
func TestTrees(t *testing.T) {
	htb, class := "htb rate 5mbit", encodedClass(t, "htb rate 5mbit")
	basic := netlink.Attribute{Type: tcaStats2, Data: pack(
		netlink.Attribute{Type: statsBasic, Data: append(append(u64bytes(1000), u32bytes(10)...), 0, 0, 0, 0)},
		netlink.Attribute{Type: statsQueue, Data: slices.Concat(u32bytes(3), u32bytes(300), u32bytes(7), u32bytes(8),
			u32bytes(9))},
		netlink.Attribute{Type: statsApp, Data: slices.Concat(u32bytes(0), make([]byte, 8), u32bytes(5),
			make([]byte, 12), u32bytes(6), make([]byte, 8))},
	)}
	for name, c := range map[string]struct {
		kernel kernel
		want   string // "" where it has another shape
	}{
		"made by the kernel": {kernel{qdiscs: [][]byte{object(2, 0, Root, 2, "fq_codel",
			pack(netlink.Attribute{Type: fqCodelQuantum, Data: u32bytes(1514)}))}}, "fq_codel"},
		"no root": {kernel{}, ""},
		"cake": {kernel{qdiscs: [][]byte{object(2, 0x10000, Root, 2, "cake",
			encoded(t, "cake bandwidth 5mbit"))}}, "cake bandwidth 5mbit"},
		"unknown kind": {kernel{qdiscs: [][]byte{object(2, 0x10000, Root, 2, "weir_dp2_1", nil)}}, ""},
		"newer than we": {kernel{qdiscs: [][]byte{object(2, 0x10000, Root, 2, "cake",
			pack(netlink.Attribute{Type: cakeDiffserv, Data: u32bytes(99)}))}}, ""},
		"htb": {kernel{qdiscs: [][]byte{object(2, 0x20000, 0x10001, 2, "fq_codel", nil),
			object(2, 0x10000, Root, 2, "htb", encoded(t, htb))},
			classes: [][]byte{object(2, 0x10001, Root, 0x20000, "htb", class)}}, "htb rate 5mbit | fq_codel"},
		"htb with two classes": {kernel{qdiscs: [][]byte{object(2, 0x10000, Root, 2, "htb", encoded(t, htb))},
			classes: [][]byte{object(2, 0x10001, Root, 0, "htb", class), object(2, 0x10002, Root, 0, "htb", class)}},
			""},
		"htb whose default is elsewhere": {kernel{qdiscs: [][]byte{object(2, 0x10000, Root, 2, "htb",
			encoded(t, htb+" default 2"))},
			classes: [][]byte{object(2, 0x10001, Root, 0, "htb", class)}}, ""},
		"filters": {kernel{qdiscs: [][]byte{object(2, 0x10000, Root, 2, "cake", encoded(t, "cake"))},
			filters: [][]byte{object(2, 0, 0x10000, 1<<16|8, "matchall", nil),
				object(2, 1, 0x10000, 1<<16|8, "matchall", []byte{})}}, ""},
		"a filter's announcement alone": {kernel{qdiscs: [][]byte{object(2, 0x10000, Root, 2, "cake",
			encoded(t, "cake"))},
			filters: [][]byte{object(2, 0, 0x10000, 1<<16|8, "matchall", nil)}}, "cake"},
		"a size table": {kernel{qdiscs: [][]byte{object(2, 0x10000, Root, 2, "cake", nil,
			netlink.Attribute{Type: tcaStab, Data: []byte{4, 0, 1, 0}})}}, ""},
		"mq": {kernel{qdiscs: [][]byte{object(2, 0, 1, 1, "fq", nil), object(2, 0, 2, 1, "fq", nil),
			object(2, 0, Root, 1, "mq", nil)}}, "mq | fq"},
		"mq with different queues": {kernel{qdiscs: [][]byte{object(2, 0, 1, 1, "fq", nil),
			object(2, 0, 2, 1, "pfifo", u32bytes(5)),
			object(2, 0, Root, 1, "mq", nil)}}, ""},
		"ingress beside it": {kernel{qdiscs: [][]byte{object(2, 0xffff0000, Ingress, 1, "clsact", nil),
			object(2, 0, Root, 1, "fq", nil)}}, "fq"},
		"statistics": {kernel{qdiscs: [][]byte{object(2, 0, Root, 1, "fq_codel", nil, basic)}}, "fq_codel"},
		"a circle": {kernel{qdiscs: [][]byte{object(2, 0x10000, Root, 1, "tbf",
			encoded(t, "tbf rate 5mbit burst 5kb limit 5kb")),
			object(2, 0x10000, 0x10001, 1, "tbf", encoded(t, "tbf rate 5mbit burst 5kb limit 5kb"))}}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			c.kernel.links = [][]byte{link(2, 1500, 1000), link(3, 1500, 1000)}
			conn := c.kernel.dial(t)
			trees, err := conn.Trees()
			if err != nil || len(trees) != 2 || len(trees[3].Qdiscs) != 0 {
				t.Fatal(trees, err)
			}
			s, ok := trees[2].Stack()
			if ok != (c.want != "") || s.String() != c.want {
				t.Errorf("%v, %v; want %q", s, ok, c.want)
			}
			if !trees[2].Same(trees[2]) || trees[2].Same(trees[3]) != (len(trees[2].Qdiscs) == 0) {
				t.Error("Same")
			}
			if name == "statistics" {
				got := trees[2].Qdiscs[0].Stats
				want := Stats{Bytes: 1000, Packets: 10, Qlen: 3, Backlog: 300, Drops: 7, Requeues: 8, Overlimits: 9,
					Marks: 11, X: fqCodelStats{ECNMarks: 5, CEMarks: 6}}
				if got != want {
					t.Errorf("%+v, want %+v", got, want)
				}
			}
		})
	}
}

// An answer that is cut off, of the wrong type or without sense is an error, and soon.
func TestHostileAnswers(t *testing.T) {
	good := func() *kernel {
		return &kernel{links: [][]byte{link(2, 1500, 1000)},
			qdiscs:  [][]byte{object(2, 0x10000, Root, 2, "htb", encoded(t, "htb rate 5mbit"))},
			classes: [][]byte{object(2, 0x10001, Root, 0, "htb", encodedClass(t, "htb rate 5mbit"))}}
	}
	if _, err := good().dial(t).Trees(); err != nil {
		t.Fatal(err)
	}
	for name, spoil := range map[string]func(*kernel){
		"short link":        func(k *kernel) { k.links[0] = k.links[0][:10] },
		"short attribute":   func(k *kernel) { k.links[0] = k.links[0][:18] },
		"short discipline":  func(k *kernel) { k.qdiscs[0] = k.qdiscs[0][:tcmsgLen-1] },
		"no kind":           func(k *kernel) { k.qdiscs[0] = k.qdiscs[0][:tcmsgLen] },
		"attribute too big": func(k *kernel) { k.qdiscs[0][tcmsgLen] = 255 },
		"short class":       func(k *kernel) { k.classes[0] = k.classes[0][:3] },
		"short counters": func(k *kernel) {
			k.qdiscs[0] = object(2, 0x10000, Root, 2, "pfifo", nil,
				netlink.Attribute{Type: tcaStats2, Data: pack(netlink.Attribute{Type: statsBasic, Data: []byte{1}})})
		},
		"another type": func(k *kernel) {
			k.dumps = func(m []netlink.Message) []netlink.Message {
				for i := range m {
					m[i].Header.Type = 999
				}
				return m
			}
		},
		"always changing": func(k *kernel) {
			k.dumps = func(m []netlink.Message) []netlink.Message {
				for i := range m {
					m[i].Header.Flags |= netlink.DumpInterrupted
				}
				return m
			}
		},
	} {
		k := good()
		spoil(k)
		if trees, err := k.dial(t).Trees(); err == nil {
			t.Errorf("%s: %+v, want an error", name, trees)
		}
	}
	silent := withoutBPF(func(r []netlink.Message) ([]netlink.Message, error) {
		if len(r) > 0 && r[0].Header.Type != unix.RTM_NEWQDISC {
			return good().answer(r)
		}
		return nil, io.EOF
	})
	if err := silent.Replace(2, Stack{fifoSpec{}}); err == nil || !strings.Contains(err.Error(), "did not answer") {
		t.Errorf("no answer: %v", err)
	}
}

func describe(t *testing.T, m netlink.Message) string {
	t.Helper()
	at, attributes, err := split(m, uint16(m.Header.Type))
	if err != nil {
		t.Fatal(err)
	}
	kind := ""
	for _, a := range attributes {
		if a.Type == tcaKind {
			kind = cString(a.Data)
		}
	}
	verb := map[netlink.HeaderType]string{unix.RTM_NEWQDISC: "qdisc", unix.RTM_NEWTCLASS: "class",
		unix.RTM_DELQDISC: "delete", unix.RTM_NEWTFILTER: "filter"}[m.Header.Type]
	flags := m.Header.Flags &^ (netlink.Request | netlink.Acknowledge)
	how := map[netlink.HeaderFlags]string{0: "change", netlink.Create: "create",
		netlink.Create | netlink.Replace: "replace", netlink.Create | netlink.Excl: "add"}[flags]
	return strings.TrimSpace(fmt.Sprintf("%s %s %s at %s %s", how, verb, at.handle, at.parent, kind))
}

// requests are those that it was asked for.
func (k *kernel) requests(t *testing.T) (list []string) {
	t.Helper()
	for _, m := range k.changes {
		list = append(list, describe(t, m))
	}
	return list
}

// checkFailure wants an error of one line that has these words, and none where there are no words.
func checkFailure(t *testing.T, err error, words string) {
	t.Helper()
	if (err == nil) != (words == "") || err != nil &&
		(!strings.Contains(err.Error(), words) || strings.Contains(err.Error(), "\n")) {
		t.Errorf("error %v, want %q", err, words)
	}
}

// What is asked of the kernel, in which order: never a deletion, never a handle that is in use.
func TestReplaceRequests(t *testing.T) {
	old := [][]byte{object(2, 0x10000, Root, 2, "htb", encoded(t, "htb rate 5mbit")),
		object(2, 0x30000, 0x10001, 1, "cake", nil)}
	for text, want := range map[string][]string{
		"cake": {"replace qdisc 2: at root cake"},
		"htb rate 5mbit | fq_codel": {"replace qdisc 2: at root htb", "create class 2:1 at root htb",
			"replace qdisc 4: at 2:1 fq_codel"},
		"tbf rate 5mbit burst 5kb limit 9kb | dualpi2": {"replace qdisc 2: at root tbf",
			"replace qdisc 4: at 2:1 dualpi2"},
		"mq": {"replace qdisc 2: at root mq"},
	} {
		k := &kernel{links: [][]byte{link(2, 1500, 1000)}, qdiscs: old}
		if err := k.dial(t).Replace(2, mustParse(t, text)); err != nil {
			t.Errorf("%s: %v", text, err)
		}
		var got []string
		for _, m := range k.changes {
			got = append(got, describe(t, m))
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s asks for %q, want %q", text, got, want)
		}
	}
	if err := (&kernel{}).dial(t).Replace(2, nil); err == nil {
		t.Error("nothing was installed")
	}
}

// Below mq each queue gets its own, but for those that have it already.
func TestReplaceQueues(t *testing.T) {
	k := &kernel{links: [][]byte{link(2, 1500, 1000)}}
	k.qdiscs = [][]byte{object(2, 0x80010000, Root, 1, "pfifo", u32bytes(5))}
	k.refuse = func(m netlink.Message) (unix.Errno, string) {
		if len(k.changes) == 1 { // the root: from now on there are queues
			k.qdiscs = [][]byte{object(2, 0x10000, Root, 1, "mq", nil), object(2, 0, 0x10001, 1, "fq_codel", nil),
				object(2, 0, 0x10002, 1, "fq", nil),
				object(2, 0, 0x10003, 1, "fq_codel", nil)}
		}
		return 0, ""
	}
	if err := k.dial(t).Replace(2, mustParse(t, "mq | fq")); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, m := range k.changes {
		got = append(got, describe(t, m))
	}
	if want := []string{"replace qdisc 1: at root mq", "replace qdisc 2: at 1:1 fq",
		"replace qdisc 3: at 1:3 fq"}; !slices.Equal(got, want) {
		t.Errorf("asks for %q, want %q", got, want)
	}
}

// When a part is refused, the error has the kernel's own words, and what was there before comes back.
func TestReplaceRefused(t *testing.T) {
	before := [][]byte{object(2, 0x10000, Root, 1, "cake", encoded(t, "cake bandwidth 5mbit"))}
	k := &kernel{links: [][]byte{link(2, 1500, 1000)}, qdiscs: before}
	k.refuse = func(m netlink.Message) (unix.Errno, string) {
		if what := describe(t, m); strings.HasSuffix(what, "fq_codel") {
			k.qdiscs = [][]byte{object(2, 0x20000, Root, 1, "htb", encoded(t, "htb rate 5mbit"))}
			return unix.ENOENT, "Specified qdisc kind is unknown"
		}
		return 0, ""
	}
	err := k.dial(t).Replace(2, mustParse(t, "htb rate 5mbit | fq_codel"))
	var op *netlink.OpError
	if !errors.Is(err, unix.ENOENT) || !errors.As(err, &op) || op.Message != "Specified qdisc kind is unknown" ||
		err.Error() != "interface 2: install fq_codel: Specified qdisc kind is unknown (no such file or directory)" {
		t.Errorf("%v", err)
	}
	if last := describe(t, k.changes[len(k.changes)-1]); last != "replace qdisc 1: at root cake" {
		t.Errorf("at last it asks for %q", last)
	}
}

func TestRestoreRequests(t *testing.T) {
	dump := func(k *kernel) Tree {
		tree, err := k.dial(t).Tree(2)
		if err != nil {
			t.Fatal(err)
		}
		return tree
	}
	links := [][]byte{link(2, 1500, 1000)}
	whole := &kernel{links: links,
		qdiscs: [][]byte{object(2, 0x50000, 0x10014, 1, "fq", nil),
			object(2, 0x10000, Root, 1, "htb", encoded(t, "htb rate 5mbit")),
			object(2, 0xffff0000, Ingress, 1, "clsact", nil)},
		classes: [][]byte{object(2, 0x10014, 0x10001, 0, "htb", encodedClass(t, "htb rate 5mbit")),
			object(2, 0x10001, Root, 0, "htb", encodedClass(t, "htb rate 5mbit"))}}
	whole.filters = [][]byte{object(2, 1, 0x10000, 1<<16|8, "matchall", []byte{})}
	tree := dump(whole)
	tree.Filters = tree.Filters[:1] // the fake repeats it for each parent
	for name, c := range map[string]struct {
		now  [][]byte
		then Tree
		want []string
	}{
		"nothing to do": {whole.qdiscs[:0], Tree{}, nil},
		"the kernel's own": {[][]byte{object(2, 0x10000, Root, 1, "cake", nil)},
			Tree{Qdiscs: []Qdisc{{Kind: "fq_codel", Parent: Root}}},
			[]string{"change delete 0: at root"}},
		"the kernel's own mq, with one queue changed": {[][]byte{object(2, 0x10000, Root, 1, "cake", nil)},
			Tree{Qdiscs: []Qdisc{{Kind: "mq", Parent: Root}, {Kind: "fq_codel", Parent: 1},
				{Kind: "fq", Handle: 0x80010000, Parent: 2}}},
			[]string{"change delete 0: at root", "replace qdisc 8001: at :2 fq"}},
		"all of it": {[][]byte{object(2, 0x20000, Root, 1, "cake", nil)}, tree,
			[]string{"replace qdisc 1: at root htb", "create class 1:1 at root htb", "create class 1:14 at 1:1 htb",
				"replace qdisc 5: at 1:14 fq", "add filter :1 at 1: matchall"}},
		"a handle in use": {[][]byte{object(2, 0x10000, Root, 1, "cake", nil)},
			Tree{Qdiscs: []Qdisc{{Kind: "fq", Handle: 0x10000, Parent: Root}}},
			[]string{"replace qdisc 2: at root pfifo", "replace qdisc 1: at root fq"}},
	} {
		t.Run(name, func(t *testing.T) {
			k := &kernel{links: links, qdiscs: c.now}
			if err := k.dial(t).Restore(2, c.then); err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, m := range k.changes {
				got = append(got, describe(t, m))
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("asks for %q, want %q", got, c.want)
			}
		})
	}
	circle := Tree{Qdiscs: []Qdisc{{Kind: "tbf", Handle: 0x10000, Parent: Root},
		{Kind: "tbf", Handle: 0x10000, Parent: 0x10001}}}
	if err := (&kernel{links: links}).dial(t).Restore(2, circle); err == nil {
		t.Error("a circle was restored")
	}
}

func TestChangeRequests(t *testing.T) {
	for _, c := range []struct{ from, to, want string }{
		{"cake bandwidth 5mbit", "cake bandwidth 6mbit", "[change qdisc 1: at root cake]"},
		{"cake bandwidth 5mbit", "cake bandwidth 5mbit", "[]"},
		{"htb rate 5mbit", "htb rate 6mbit", "[change class 1:1 at root htb]"},
	} {
		k := &kernel{}
		from, to := mustParse(t, c.from)[0], mustParse(t, c.to)[0]
		if err := k.dial(t).Change(2, Qdisc{Kind: from.Kind(), Handle: 0x10000, Parent: Root, Spec: from},
			to); err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, m := range k.changes {
			got = append(got, describe(t, m))
		}
		if fmt.Sprint(got) != c.want {
			t.Errorf("from %s to %s asks for %q, want %s", c.from, c.to, got, c.want)
		}
	}
	cake := mustParse(t, "cake")[0]
	for _, q := range []Qdisc{{Kind: "fq", Handle: 0x10000, Spec: fifoSpec{}}, {Kind: "cake", Handle: 0x10000},
		{Kind: "cake", Spec: mustParse(t, "cake nat")[0]}} {
		if err := (&kernel{}).dial(t).Change(2, q, cake); err == nil || !strings.Contains(err.Error(), "replace it") {
			t.Errorf("%+v: %v", q, err)
		}
	}
}

func TestProbe(t *testing.T) {
	for errno, want := range map[unix.Errno]string{unix.ENOENT: "false <nil>", unix.EINVAL: "true <nil>",
		unix.EOPNOTSUPP: "true <nil>",
		unix.EPERM:      "false interface 1: probe for cake: no (operation not permitted)",
		0:               "false probe for cake: the kernel took a size table without parameters"} {
		k := &kernel{links: [][]byte{link(1, 65536, 1000)},
			refuse: func(netlink.Message) (unix.Errno, string) { return errno, "no" }}
		ok, err := k.dial(t).Probe("cake")
		if got := fmt.Sprint(ok, " ", err); got != want {
			t.Errorf("%v: %s, want %s", errno, got, want)
		}
	}
	if _, err := (&kernel{}).dial(t).Probe("a name that is far too long"); err == nil {
		t.Error("the name was taken")
	}
}

// One request that fails keeps none of the others from being sent, in whatever part of a long restoration.
func TestRestoreAll(t *testing.T) {
	tree := Tree{Qdiscs: []Qdisc{{Kind: "hfsc", Handle: 0x10000, Parent: Root, Options: []byte{0, 0, 0, 0}}}}
	for i := range Handle(40) {
		tree.Classes = append(tree.Classes, Class{Kind: "hfsc", Handle: 0x10000 + i, Parent: 0x10000,
			Options: []byte{4, 0, 1, 0}})
		if i > 0 {
			tree.Qdiscs = append(tree.Qdiscs, Qdisc{Kind: "fq", Handle: (0x100 + i) << 16, Parent: 0x10000 + i})
		}
	}
	tree.Classes[0].Parent = Root // the root class, which is there with its discipline
	k := &kernel{links: [][]byte{link(2, 1500, 1000)}, refuse: func(m netlink.Message) (unix.Errno, string) {
		if at, _, _ := split(m, uint16(m.Header.Type)); at.handle == 0x10001 || at.handle == 0x10020 {
			return unix.EINVAL, "no"
		}
		return 0, ""
	}}
	err := k.dial(t).Restore(2, tree)
	if err == nil || !strings.HasPrefix(err.Error(), "interface 2: restore class 1:1: no") ||
		!strings.HasSuffix(err.Error(), " more failed") || !errors.Is(err, unix.EINVAL) {
		t.Errorf("%v", err)
	}
	if want := 1 + 39 + 39; len(k.changes) != want {
		t.Errorf("%d requests, want %d", len(k.changes), want)
	}
}
