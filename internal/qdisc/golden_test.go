// SPDX-License-Identifier: Apache-2.0

package qdisc

import (
	"bytes"
	"encoding/hex"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/mdlayher/netlink"
)

// The same words give the same bytes as tc sends (testdata/golden.txt, by scripts/golden-tc): our attributes are tc's
// in tc's order. tc also sends what it was told and is the default anyway, which must then say what our defaults say;
// and it sends the rate tables of htb and tbf, which no kernel since 3.11 reads.
func TestGolden(t *testing.T) {
	golden, err := os.ReadFile("testdata/golden.txt")
	if err != nil {
		t.Fatal(err)
	}
	commands, err := os.ReadFile("testdata/commands.txt")
	if err != nil {
		t.Fatal(err)
	}
	var recorded []string
	for line := range strings.Lines(string(golden)) {
		command, text, found := strings.Cut(strings.TrimSpace(line), "\t")
		if !found {
			continue
		}
		recorded = append(recorded, command)
		b, err := hex.DecodeString(text)
		if err != nil {
			t.Fatal(err)
		}
		t.Run(command, func(t *testing.T) { compareWithTC(t, command, b) })
	}
	for line := range strings.Lines(string(commands)) {
		if line = strings.TrimSpace(line); line != "" && line[0] != '#' && !slices.Contains(recorded, line) {
			t.Errorf("%q is not in golden.txt: run scripts/golden-tc", line)
		}
	}
}

func compareWithTC(t *testing.T, command string, sent []byte) {
	list, err := netlink.UnmarshalAttributes(sent)
	if err != nil || len(list) == 0 || list[0].Type != tcaKind {
		t.Fatalf("golden bytes: %v, %v", list, err)
	}
	kind := cString(list[0].Data)
	if strings.HasPrefix(command, "stab ") {
		compareSizeTable(t, list)
		return
	}
	line, class := strings.CutPrefix(command, "class ")
	if kind == "htb" && !class {
		line += " rate 1mbit" // which tc gives to the class alone
	}
	spec, err := Parse(line)
	if err != nil {
		t.Fatal(err)
	}
	defaults, _ := Default(kind)
	var ours []byte
	if class {
		ours, err = spec.(HTB).encodeClass()
	} else {
		ours, err = spec.encode(defaults)
	}
	if err != nil {
		t.Fatal(err)
	}
	var theirs []byte
	if len(list) > 1 {
		theirs = list[1].Data
		if mine := attributes(kind, ours); len(mine) > 1 && mine[1].Type != list[1].Type {
			t.Errorf("TCA_OPTIONS is sent as %#x, by tc as %#x", mine[1].Type, list[1].Type)
		}
	}
	// a struct instead of, or before, the attributes
	bare := map[string]int{"netem": netemLen, "pfifo": 4, "bfifo": 4, "prio": 20}[kind]
	bare = min(bare, len(theirs))
	if len(ours) < bare || !bytes.Equal(ours[:bare], theirs[:bare]) {
		t.Fatalf("sent %x\n  tc %x", ours, theirs)
	}
	mine, err := netlink.UnmarshalAttributes(ours[bare:])
	if err != nil {
		t.Fatal(err)
	}
	tcs, err := netlink.UnmarshalAttributes(theirs[bare:])
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range tcs {
		if len(mine) > 0 && mine[0].Type == a.Type && bytes.Equal(mine[0].Data, a.Data) {
			mine = mine[1:]
			continue
		}
		switch {
		case kind == "htb" && (a.Type == htbRTab || a.Type == htbCTab), kind == "tbf" &&
			(a.Type == tbfRTab || a.Type == tbfPTab):
		case kind == "prio" && len(a.Data) == 0: // an empty nest behind the struct
		case kind == "netem" && len(bytes.Trim(a.Data, "\x00")) == 0:
		case isDefault(defaults, a):
		default:
			t.Errorf("tc also sends, or in another order, attribute %d: %x", a.Type, a.Data)
		}
	}
	for _, a := range mine {
		t.Errorf("tc does not send, or in another order, attribute %d: %x", a.Type, a.Data)
	}
}

// compareSizeTable makes a size table anew from what the kernel reports of tc's.
func compareSizeTable(t *testing.T, sent []netlink.Attribute) {
	i := slices.IndexFunc(sent, func(a netlink.Attribute) bool { return a.Type == tcaStab })
	if i < 0 {
		t.Fatalf("tc sends no size table: %+v", sent)
	}
	parts, err := netlink.UnmarshalAttributes(sent[i].Data)
	if err != nil || len(parts) == 0 {
		t.Fatal(parts, err)
	}
	made, err := sizeTable(Qdisc{Kind: "pfifo", SizeTable: pack(parts[0])})
	if err != nil || !bytes.Equal(made.Data, sent[i].Data) {
		t.Errorf("%v; sent %x\n  tc %x", err, made.Data, sent[i].Data)
	}
}

func isDefault(defaults Spec, a netlink.Attribute) bool {
	return slices.ContainsFunc(defaults.edit().options(),
		func(o option) bool { return o.attr == a.Type && bytes.Equal(o.encode(), a.Data) })
}
