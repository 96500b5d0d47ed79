// SPDX-License-Identifier: Apache-2.0

package qdisc

import "testing"

// Two trees are the same in any order, whatever they have counted and whatever is at the ingress; each difference in
// what is configured is one.
func TestSame(t *testing.T) {
	tree := func(change func(*Tree)) Tree {
		s := Tree{
			Qdiscs: []Qdisc{{Kind: "prio", Handle: 0x10000, Parent: Root, Options: []byte{1}, SizeTable: []byte{2}},
				{Kind: "pfifo", Handle: 0x20000, Parent: 0x10001}, {Kind: "pfifo", Handle: 0x30000, Parent: 0x10002}},
			Classes: []Class{{Kind: "prio", Handle: 0x10001, Parent: Root}, {Kind: "prio", Handle: 0x10002,
				Parent: Root}},
			Filters: []Filter{{Kind: "matchall", Parent: 0x10000, Handle: 1, Priority: 1, Protocol: 8},
				{Kind: "matchall", Parent: 0x10000, Handle: 1, Priority: 2, Protocol: 8}},
		}
		change(&s)
		return s
	}
	as := tree(func(*Tree) {})
	for what, change := range map[string]func(*Tree){
		"nothing":    func(*Tree) {},
		"the order":  func(s *Tree) { s.Qdiscs[0], s.Qdiscs[2] = s.Qdiscs[2], s.Qdiscs[0] },
		"of classes": func(s *Tree) { s.Classes[0], s.Classes[1] = s.Classes[1], s.Classes[0] },
		"of filters": func(s *Tree) { s.Filters[0], s.Filters[1] = s.Filters[1], s.Filters[0] },
		"counters":   func(s *Tree) { s.Qdiscs[1].Stats.Packets, s.Classes[1].Stats.Bytes = 7, 9 },
		"the ingress": func(s *Tree) {
			s.Qdiscs = append(s.Qdiscs, Qdisc{Kind: "clsact", Handle: 0xffff0000, Parent: Ingress})
		},
		"offloading": func(s *Tree) { s.Qdiscs[0].Offloaded = true },
	} {
		if other := tree(change); !as.Same(other) || !other.Same(as) {
			t.Errorf("%s makes another tree", what)
		}
	}
	for what, change := range map[string]func(*Tree){
		"kind":             func(s *Tree) { s.Qdiscs[1].Kind = "bfifo" },
		"handle":           func(s *Tree) { s.Qdiscs[1].Handle = 0x40000 },
		"parent":           func(s *Tree) { s.Qdiscs[1].Parent = 0x10003 },
		"options":          func(s *Tree) { s.Qdiscs[0].Options = []byte{2} },
		"size table":       func(s *Tree) { s.Qdiscs[0].SizeTable = nil },
		"ingress block":    func(s *Tree) { s.Qdiscs[0].IngressBlock = 1 },
		"egress block":     func(s *Tree) { s.Qdiscs[0].EgressBlock = 1 },
		"no discipline":    func(s *Tree) { s.Qdiscs = s.Qdiscs[:2] },
		"class kind":       func(s *Tree) { s.Classes[1].Kind = "htb" },
		"class handle":     func(s *Tree) { s.Classes[1].Handle = 0x10009 },
		"class parent":     func(s *Tree) { s.Classes[1].Parent = 0x10001 },
		"class options":    func(s *Tree) { s.Classes[1].Options = []byte{1} },
		"no class":         func(s *Tree) { s.Classes = s.Classes[:1] },
		"filter kind":      func(s *Tree) { s.Filters[0].Kind = "u32" },
		"filter parent":    func(s *Tree) { s.Filters[0].Parent = 0x10001 },
		"filter priority":  func(s *Tree) { s.Filters[0].Priority = 9 },
		"filter protocol":  func(s *Tree) { s.Filters[0].Protocol = 9 },
		"filter chain":     func(s *Tree) { s.Filters[0].Chain = 9 },
		"no filter at all": func(s *Tree) { s.Filters = nil },
	} {
		if other := tree(change); as.Same(other) || other.Same(as) {
			t.Errorf("another %s makes the same tree", what)
		}
	}
}

// What was counted between two looks is told of each discipline and class that is still the same.
func TestTreeSince(t *testing.T) {
	at := func(handle Handle, kind string, bytes, drops uint64) Tree {
		stats := Stats{Bytes: bytes, Drops: drops}
		return Tree{Qdiscs: []Qdisc{{Kind: kind, Handle: handle, Parent: Root, Stats: stats}},
			Classes: []Class{{Handle: handle + 1, Stats: stats}}}
	}
	for what, c := range map[string]struct {
		before            Tree
		discipline, class Recent
	}{
		"not there":     {Tree{}, Recent{900, 9}, Recent{900, 9}},
		"there":         {at(0x10000, "htb", 100, 4), Recent{800, 5}, Recent{800, 5}},
		"another":       {at(0x20000, "htb", 100, 4), Recent{900, 9}, Recent{900, 9}},
		"another kind":  {at(0x10000, "hfsc", 100, 4), Recent{900, 9}, Recent{800, 5}},
		"made anew":     {at(0x10000, "htb", 1000, 10), Recent{900, 9}, Recent{900, 9}},
		"nothing since": {at(0x10000, "htb", 900, 9), Recent{}, Recent{}},
	} {
		now := at(0x10000, "htb", 900, 9)
		got := now.Since(c.before)
		if got.Qdiscs[0].Stats.Recent != c.discipline || got.Classes[0].Stats.Recent != c.class {
			t.Errorf("%s: %+v", what, got)
		}
		if now.Qdiscs[0].Stats.Recent != (Recent{}) {
			t.Errorf("%s: the tree itself was changed", what)
		}
	}
}
