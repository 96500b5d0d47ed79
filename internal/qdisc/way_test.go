// SPDX-License-Identifier: Apache-2.0

package qdisc

import (
	"fmt"
	"slices"
	"testing"

	"weir/internal/units"
)

// parsed is a discipline by its words.
func parsed(t *testing.T, text string, handle, parent Handle) Qdisc {
	t.Helper()
	s, err := Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return Qdisc{Kind: s.Kind(), Spec: s, Handle: handle, Parent: parent}
}

// Of several classes it is the one with the longest queue, or else the one by which most has left. What bounds it is
// the class itself or one above it: htb lends what a class above has, and each has its own rate in any case.
func TestNarrowestClass(t *testing.T) {
	recent := func(c Class, bytes uint64) Class {
		c.Stats.Recent.Bytes = bytes
		return c
	}
	counted := func(life, recent uint64) Qdisc {
		return Qdisc{Kind: "htb", Handle: 0x10000, Parent: Root,
			Stats: Stats{Bytes: life, Recent: Recent{Bytes: recent}}}
	}
	class := func(handle, parent Handle, rate, ceil units.Rate, backlog, bytes uint64) Class {
		return Class{Kind: "htb", Handle: handle, Parent: parent, Rate: rate, Ceil: ceil,
			Stats: Stats{Backlog: backlog, Bytes: bytes}}
	}
	hfsc := func(c Class) Class { c.Kind = "hfsc"; return c }
	htb := counted(99, 0)
	tbf := parsed(t, "tbf rate 2mbit burst 5kb limit 60kb", 0x90000, 0x10001)
	for _, c := range []struct {
		what    string
		root    Qdisc
		classes []Class
		want    string
	}{
		{"none", htb, nil, "0: 0bit"},
		{"one", htb, []Class{class(0x10001, Root, 5e6, 5e6, 9, 99)}, "1:1 5mbit"},
		{"one that nothing has passed yet", counted(0, 0), []Class{class(0x10001, Root, 5e6, 5e6, 0, 0)}, "1:1 5mbit"},
		{"one, and most passes none", htb, []Class{class(0x10001, Root, 5e6, 5e6, 0, 9)}, "0: 0bit"},
		{"one, and most passes none lately", counted(99, 9), []Class{recent(class(0x10001, Root, 5e6, 5e6, 0, 90), 4)},
			"0: 0bit"},
		{"one, and less passes none lately", counted(99, 9), []Class{recent(class(0x10001, Root, 5e6, 5e6, 0, 9), 5)},
			"1:1 5mbit"},
		{"one below another", htb, []Class{class(0x10001, Root, 5e6, 5e6, 9, 99),
			class(0x10002, 0x10001, 5e6, 5e6, 9, 99)}, "1:2 5mbit"},
		{"one that cannot borrow", htb, []Class{class(0x10001, Root, 20e6, 500e6, 9, 99)}, "1:1 20mbit"},
		{"a discipline in it", htb, []Class{class(0x10001, Root, 5e6, 5e6, 9, 99)}, "9: 2mbit"},
		{"two", htb, []Class{class(0x10001, Root, 5e6, 5e6, 0, 9),
			class(0x10002, Root, 4e6, 4e6, 0, 90)}, "1:2 4mbit"},
		{"two that cannot borrow", htb, []Class{class(0x10001, Root, 10e6, 500e6, 1, 9),
			class(0x10002, Root, 11e6, 500e6, 2, 90)}, "1:2 11mbit"},
		{"by its queue", htb, []Class{class(0x10001, Root, 5e6, 5e6, 1, 80), class(0x10002, Root, 7e6, 7e6, 2, 19)},
			"1:2 7mbit"},
		{"by what has left", htb, []Class{class(0x10002, Root, 5e6, 5e6, 1, 90), class(0x10003, Root, 7e6, 7e6, 1, 9)},
			"1:2 5mbit"},
		{"a ceiling below the rate", htb, []Class{class(0x10001, Root, 5e6, 4e6, 9, 99)}, "1:1 4mbit"},
		{"one above that lends what it has", htb, []Class{class(0x10001, Root, 20e6, 500e6, 9, 99),
			class(0x10002, 0x10001, 1e6, 500e6, 2, 90), class(0x10003, 0x10001, 5e6, 6e6, 1, 9)}, "1:1 20mbit"},
		{"two above that lend", htb, []Class{class(0x10001, Root, 90e6, 90e6, 9, 99),
			class(0x10002, 0x10001, 20e6, 60e6, 2, 90), class(0x10003, 0x10002, 1e6, 80e6, 2, 90)}, "1:2 60mbit"},
		{"its own rate, whatever is above", htb, []Class{class(0x10001, Root, 3e6, 4e6, 9, 99),
			class(0x10002, 0x10001, 7e6, 8e6, 2, 90), class(0x10003, 0x10001, 5e6, 6e6, 1, 9)}, "1:2 7mbit"},
		{"more above", htb, []Class{class(0x10001, Root, 30e6, 40e6, 9, 99), class(0x10002, 0x10001, 7e6, 8e6, 2, 90),
			class(0x10003, 0x10001, 5e6, 6e6, 1, 9)}, "1:2 8mbit"},
		{"as much above", htb, []Class{class(0x10001, Root, 8e6, 8e6, 9, 99), class(0x10002, 0x10001, 7e6, 8e6, 2, 90),
			class(0x10003, 0x10001, 5e6, 6e6, 1, 9)}, "1:1 8mbit"},
		{"hfsc, less above", htb, []Class{hfsc(class(0x10000, Root, 0, 0, 9, 99)),
			hfsc(class(0x10001, 0x10000, 4e6, 4e6, 9, 99)), hfsc(class(0x10002, 0x10001, 8e6, 8e6, 2, 90)),
			hfsc(class(0x10003, 0x10001, 0, 0, 1, 9))}, "1:1 4mbit"},
		{"hfsc without a limit of its own", htb, []Class{hfsc(class(0x10001, 0x10000, 4e6, 4e6, 9, 99)),
			hfsc(class(0x10002, 0x10001, 0, 0, 2, 90)), hfsc(class(0x10003, 0x10001, 0, 0, 1, 9))}, "1:1 4mbit"},
		{"in a circle", htb, []Class{class(0x10001, 0x10002, 3e6, 3e6, 9, 99), class(0x10002, 0x10001, 2e6, 2e6, 9, 99),
			class(0x10003, 0x10001, 1e6, 8e6, 2, 90)}, "1:1 3mbit"},
		{"by nobody", counted(0, 0),
			[]Class{class(0x10001, Root, 5e6, 5e6, 0, 0), class(0x10002, Root, 7e6, 7e6, 0, 0)},
			"0: 0bit"},
		{"by what has left lately", counted(99, 3), []Class{recent(class(0x10001, Root, 5e6, 5e6, 0, 90), 1),
			recent(class(0x10002, Root, 7e6, 7e6, 0, 9), 2)}, "1:2 7mbit"},
		{"most passes no class", counted(99, 6), []Class{recent(class(0x10001, Root, 5e6, 5e6, 9, 90), 1),
			recent(class(0x10002, Root, 7e6, 7e6, 0, 9), 2)}, "0: 0bit"},
		{"less passes no class", counted(99, 5), []Class{recent(class(0x10001, Root, 5e6, 5e6, 9, 90), 1),
			recent(class(0x10002, Root, 7e6, 7e6, 0, 9), 2)}, "1:2 7mbit"},
		{"nothing lately", htb, []Class{class(0x10001, Root, 5e6, 5e6, 0, 90), class(0x10002, Root, 7e6, 7e6, 0, 9)},
			"1:1 5mbit"},
	} {
		tree := Tree{Classes: c.classes, Qdiscs: []Qdisc{c.root}}
		if c.want == "9: 2mbit" {
			tree.Qdiscs = append(tree.Qdiscs, tbf)
		}
		s, ok := tree.Narrowest()
		if got := fmt.Sprint(s.Handle, " ", s.Rate); got != c.want || ok != (s.Rate != 0) || tree.Rate() != s.Rate {
			t.Errorf("%s: %s, want %s", c.what, got, c.want)
		}
	}
}

// Of disciplines below one without classes it is the one that serves, if any of them has a rate; and of those below
// each other the one with the lowest.
func TestNarrowestDiscipline(t *testing.T) {
	band := func(minor Handle, spec string, bytes uint64) Qdisc {
		q := parsed(t, spec, (8+minor)<<16, 0x70000+minor)
		q.Stats.Bytes = bytes
		return q
	}
	slope := func(kbit uint32) []byte { return slices.Concat(make([]byte, 12), u32bytes(kbit), make([]byte, 4)) }
	prio := Qdisc{Kind: "prio", Handle: 0x70000, Parent: Root}
	const slow, quick = "tbf rate 8mbit burst 5kb limit 60kb", "tbf rate 100mbit burst 5kb limit 60kb"
	for _, c := range []struct {
		what   string
		qdiscs []Qdisc
		want   string
	}{
		{"a slow band", []Qdisc{prio, band(1, quick, 1), band(2, slow, 9)}, "a: 8mbit"},
		{"one without a rate", []Qdisc{prio, band(1, quick, 1), band(2, "fq_codel", 9)}, "0: 0bit"},
		{"no rates", []Qdisc{prio, band(1, "fq", 1), band(2, "fq_codel", 9)}, "0: 0bit"},
		{"one band", []Qdisc{prio, band(2, slow, 9)}, "a: 8mbit"},
		{"one band, by which little leaves", []Qdisc{{Kind: "prio", Handle: 0x70000, Parent: Root,
			Stats: Stats{Bytes: 99}}, band(2, slow, 9)}, "0: 0bit"},
		{"bands that nothing has passed", []Qdisc{prio, band(1, quick, 0), band(2, slow, 0)}, "0: 0bit"},
		{"a band with a slower one below", []Qdisc{prio, band(1, "fq_codel", 1), band(2, quick, 9),
			parsed(t, slow, 0xb0000, 0xa0001)}, "b: 8mbit"},
		{"a cbs", []Qdisc{prio, band(1, "fq_codel", 1), {Kind: "cbs", Handle: 0xa0000, Parent: 0x70002,
			Options: pack(attribute(1, slope(98688))), Stats: Stats{Bytes: 9}}}, "a: 98.688mbit"},
		{"an ingress beside", []Qdisc{prio, band(2, slow, 9), {Kind: "ingress", Handle: 0xffff0000, Parent: Ingress}},
			"a: 8mbit"},
		{"a slow one below a quick one", []Qdisc{parsed(t, quick, 0x10000, Root), parsed(t, slow, 0x20000, 0x10001)},
			"2: 8mbit"},
		{"a quick one below a slow one", []Qdisc{parsed(t, slow, 0x10000, Root), parsed(t, quick, 0x20000, 0x10001)},
			"1: 8mbit"},
		{"in a circle", []Qdisc{parsed(t, quick, 0x10000, Root), parsed(t, slow, 0x10000, 0x10001)}, "1: 100mbit"},
		{"queues of its own", []Qdisc{{Kind: "cake_mq", Handle: 0x10000, Parent: Root},
			parsed(t, "cake bandwidth 8mbit", 0x20000, 0x10001)}, "0: 0bit"},
		{"no root", []Qdisc{band(1, quick, 1)}, "0: 0bit"},
	} {
		s, _ := Tree{Qdiscs: c.qdiscs}.Narrowest()
		if got := fmt.Sprint(s.Handle, " ", s.Rate); got != c.want {
			t.Errorf("%s: %s, want %s", c.what, got, c.want)
		}
	}
}

// Of kinds that have no words here, two enforce rates.
func TestRateOfOthers(t *testing.T) {
	slope := func(kbit int32) []byte {
		return pack(attribute(1, slices.Concat(make([]byte, 12), u32bytes(uint32(kbit)), make([]byte, 4))))
	}
	rates := func(class byte, most ...uint64) []byte {
		header := make([]byte, 84)
		header[0], header[1] = byte(len(most)), class
		var list []byte
		for _, r := range most {
			list = append(list, pack(attribute(4, u64bytes(r)))...)
		}
		return append(header, pack(attribute(1, []byte{1, 0}), attribute(4, list))...)
	}
	for _, c := range []struct {
		what string
		q    Qdisc
		want units.Rate
	}{
		{"cbs", Qdisc{Kind: "cbs", Options: slope(98688)}, 98_688_000},
		{"cbs without a slope", Qdisc{Kind: "cbs", Options: slope(0)}, 0},
		{"cbs with a slope that cannot be", Qdisc{Kind: "cbs", Options: slope(-5)}, 0},
		{"cbs, cut off", Qdisc{Kind: "cbs", Options: slope(9)[:23]}, 0},
		{"mqprio", Qdisc{Kind: "mqprio", Options: rates(1, 125e6, 25e6)}, 200e6},
		{"mqprio of another class", Qdisc{Kind: "mqprio", Options: rates(0, 125e6, 25e6)}, 1e9},
		{"mqprio of a class that has none", Qdisc{Kind: "mqprio", Options: rates(2, 125e6, 25e6)}, 0},
		{"mqprio without rates", Qdisc{Kind: "mqprio", Options: make([]byte, 84)}, 0},
		{"mqprio, cut off", Qdisc{Kind: "mqprio", Options: make([]byte, 83)}, 0},
		{"taprio", Qdisc{Kind: "taprio", Options: slope(9)}, 0},
		{"another", Qdisc{Kind: "etf", Options: slope(9)}, 0},
	} {
		c.q.Parent = Root
		if got := c.q.Rate(); got != c.want || (Tree{Qdiscs: []Qdisc{c.q}}).Rate() != c.want {
			t.Errorf("%s: %s, want %s", c.what, got, c.want)
		}
		c.q.Parent = 1
		if got := (Tree{Qdiscs: []Qdisc{c.q}}).Rate(); got != 0 {
			t.Errorf("%s, below a root: %s", c.what, got)
		}
	}
}
