// SPDX-License-Identifier: Apache-2.0

package qdisc

import (
	"fmt"
	"testing"
)

// A discipline matters if a quarter of what leaves passes it, or such as it.
func TestPassed(t *testing.T) {
	const root = 0x10000
	counted := func(q Qdisc, life, recent uint64) Qdisc {
		q.Stats = Stats{Bytes: life, Recent: Recent{Bytes: recent}}
		return q
	}
	prio := func(life, recent uint64) Qdisc {
		return counted(Qdisc{Kind: "prio", Handle: root, Parent: Root}, life, recent)
	}
	netem := func(band Handle, life, recent uint64) Qdisc {
		return counted(parsed(t, "netem delay 1ms", 0x90000+band<<16, root+band), life, recent)
	}
	tbf := parsed(t, "tbf rate 2mbit burst 5kb limit 60kb", root, Root)
	class := func(minor Handle, bytes uint64) Class {
		return Class{Kind: "htb", Handle: root + minor, Parent: Root, Rate: 5e6, Stats: Stats{Bytes: bytes}}
	}
	for _, c := range []struct {
		what string
		tree Tree
		want Handle // of the netem
	}{
		{"nothing", Tree{}, 0},
		{"none", Tree{Qdiscs: []Qdisc{prio(9, 9)}}, 0},
		{"the root", Tree{Qdiscs: []Qdisc{parsed(t, "netem delay 1ms", root, Root)}}, root},
		{"below a tbf, and nothing has left", Tree{Qdiscs: []Qdisc{tbf, netem(1, 0, 0)}}, 0xA0000},
		{"in a band that nothing takes", Tree{Qdiscs: []Qdisc{prio(99, 9), netem(3, 0, 0)}}, 0},
		{"in a band, and nothing has left", Tree{Qdiscs: []Qdisc{prio(0, 0), netem(3, 0, 0)}}, 0xC0000},
		{"in a band that a quarter takes", Tree{Qdiscs: []Qdisc{prio(100, 0), netem(3, 25, 0)}}, 0xC0000},
		{"in a band that less takes", Tree{Qdiscs: []Qdisc{prio(100, 0), netem(3, 24, 0)}}, 0},
		{"in a band that little takes now", Tree{Qdiscs: []Qdisc{prio(100, 8), netem(3, 90, 1)}}, 0},
		{"in a band that much takes now", Tree{Qdiscs: []Qdisc{prio(100, 8), netem(3, 2, 2)}}, 0xC0000},
		{"in two bands", Tree{Qdiscs: []Qdisc{prio(100, 0), netem(1, 12, 0), netem(2, 13, 0)}}, 0xB0000},
		{"at the ingress", Tree{Qdiscs: []Qdisc{prio(9, 9), {Kind: "netem", Parent: Ingress}}}, 0},
		{"in the class that traffic takes", Tree{Qdiscs: []Qdisc{counted(tbf, 99, 0), netem(2, 90, 0)},
			Classes: []Class{class(1, 9), class(2, 90)}}, 0xB0000},
		{"in another class", Tree{Qdiscs: []Qdisc{counted(tbf, 99, 0), netem(1, 9, 0)},
			Classes: []Class{class(1, 9), class(2, 90)}}, 0},
	} {
		got, ok := c.tree.Passed(func(q Qdisc) bool { return q.Kind == "netem" })
		if got.Handle != c.want || ok != (c.want != 0) {
			t.Errorf("%s: %s %t, want %s", c.what, got.Handle, ok, c.want)
		}
	}
}

// A netem that only holds packets does nothing to them.
func TestEmulates(t *testing.T) {
	for text, want := range map[string]bool{
		"netem limit 9": false, "netem seed 7": false, "fq": false,
		"netem delay 1ms": true, "netem delay 0us 1ms": true, "netem loss 1%": true, "netem loss gemodel 1%": true,
		"netem duplicate 1%": true, "netem corrupt 1%": true, "netem delay 1ms reorder 1%": true,
		"netem rate 1mbit": true,
	} {
		if got := Emulates(parsed(t, text, 0x10000, Root)); got != want {
			t.Errorf("%s: %t", text, got)
		}
	}
	if !Emulates(Qdisc{Kind: "netem"}) || Emulates(Qdisc{Kind: "fq"}) {
		t.Error("one that could not be read")
	}
}

// Each kind of CoDel has its interval, by its own word for it.
func TestInterval(t *testing.T) {
	for text, want := range map[string]string{
		"cake bandwidth 50mbit rtt 1ms":      "rtt 1ms",
		"cake_mq bandwidth 50mbit rtt 240ms": "rtt 240ms",
		"fq_codel":                           "interval 100ms",
		"codel interval 20ms target 1ms":     "interval 20ms",
		"fq":                                 "interval 0s",
	} {
		q := parsed(t, text, 0x10000, Root)
		got := fmt.Sprintf("%s %s", IntervalOption(q.Kind), Interval(q.Spec))
		if got != want {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
	}
}
