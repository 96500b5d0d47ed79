// SPDX-License-Identifier: Apache-2.0

package qdisc

import (
	"encoding/binary"
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/mdlayher/netlink"
)

// reported is what the kernel makes of options before it reports them.
func reported(s Spec, options []byte) []byte {
	if !slices.Contains([]string{"codel", "fq_codel", "dualpi2", "tbf"}, s.Kind()) {
		return options
	}
	list, err := unpack(options)
	if err != nil {
		return options
	}
	round := func(b []byte, f func(uint32) uint32) {
		binary.NativeEndian.PutUint32(b, f(binary.NativeEndian.Uint32(b)))
	}
	for _, a := range list {
		switch s := s.(type) {
		case codelSpec:
			if a.Type == codelTarget || a.Type == codelInterval || a.Type == codelCEThreshold {
				round(a.Data, codelReported)
			}
		case FQCodel:
			if a.Type == fqCodelTarget || a.Type == fqCodelInterval || a.Type == fqCodelCEThreshold {
				round(a.Data, codelReported)
			}
		case dualPI2Spec:
			if a.Type == dualpi2Alpha || a.Type == dualpi2Beta {
				round(a.Data, dualpi2Reported)
			}
		case TBF:
			if a.Type == tbfParms {
				rate, peak := s.specs()
				round(a.Data[28:], func(uint32) uint32 { return uint32(rate.kernelTime(uint64(s.Burst))) })
				round(a.Data[32:], func(uint32) uint32 { return uint32(peak.kernelTime(uint64(s.MTU))) })
			}
		}
	}
	return pack(list...)
}

// readsBack fails unless what is sent for s is reported as s.
func readsBack(t *testing.T, s Spec) {
	t.Helper()
	defaults, _ := Default(s.Kind())
	options, err := s.encode(defaults)
	if err != nil {
		t.Fatalf("%s: %v", s, err)
	}
	switch want := s.(type) {
	case fifoSpec, plainSpec: // the kernel's choice is not sent
		if options == nil {
			return
		}
	case HTB:
		class, err := want.encodeClass()
		if err != nil {
			t.Fatalf("%s: %v", s, err)
		}
		back := newHTB()
		if err := back.decode(options, device{}); err != nil {
			t.Fatalf("%s: %v", s, err)
		}
		if err := back.decodeClass(class); err != nil {
			t.Fatalf("%s: %v", s, err)
		}
		if again, err := back.finish(); err != nil || again != s {
			t.Errorf("%+v reads back as %+v, %v", s, again, err)
		}
		return
	}
	back := decode(s.Kind(), reported(s, options), device{})
	if n, ok := back.(netemSpec); ok && s.(netemSpec).Seed == 0 {
		n.Seed, back = 0, n
	}
	if back != s {
		t.Errorf("%+v reads back as %+v", s, back)
	}
}

// Whatever is understood can be said again, and reads back from the kernel as itself.
func FuzzParse(f *testing.F) {
	commands, err := os.ReadFile("testdata/commands.txt")
	if err != nil {
		f.Fatal(err)
	}
	for line := range strings.Lines(string(commands)) {
		f.Add(strings.TrimPrefix(strings.TrimSpace(line), "class "))
	}
	f.Add("cake raw overhead 4 ptm | fq")
	f.Add("dualpi2 max_rtt 1us typical_rtt 1us")
	f.Add("bpf_dualpi2 rate 50mbit alpha 0.16 raw overhead 4 ptm mpu 64 llll_mark 0x1/0xff step_thresh 5p any_ect")
	f.Fuzz(func(t *testing.T, text string) {
		if _, err := parseHandle(text); err == nil {
			h, _ := parseHandle(text)
			if again, err := parseHandle(h.String()); err != nil || again != h {
				t.Errorf("handle %q → %s → %s, %v", text, h, again, err)
			}
		}
		s, err := ParseStack(text)
		if err != nil {
			if strings.Contains(err.Error(), "\n") && !strings.Contains(text, "\n") {
				t.Errorf("%q: more than a line: %v", text, err)
			}
			return
		}
		again, err := ParseStack(s.String())
		if err != nil || !slices.Equal(again, s) || !s.Equal(again) {
			t.Fatalf("%q → %q → %v, %v", text, s, again, err)
		}
		for _, level := range s {
			readsBack(t, level)
		}
	})
}

// Options that no kernel would report do no harm; those that mean something mean the same the second time.
func FuzzDecode(f *testing.F) {
	commands, err := os.ReadFile("testdata/commands.txt")
	if err != nil {
		f.Fatal(err)
	}
	for line := range strings.Lines(string(commands)) {
		s, err := Parse(strings.TrimPrefix(strings.TrimSpace(line), "class "))
		if err != nil {
			continue
		}
		defaults, _ := Default(s.Kind())
		options, _ := s.encode(defaults)
		f.Add(uint8(slices.Index(Kinds(), s.Kind())), uint32(0), options)
		if htb, ok := s.(HTB); ok {
			class, _ := htb.encodeClass()
			f.Add(uint8(255), uint32(1500), class)
		}
	}
	f.Fuzz(func(t *testing.T, index uint8, mtu uint32, options []byte) {
		d := device{mtu: mtu, queue: 1000, header: 14, known: true, present: mtu != 0}
		if index == 255 {
			htb := newHTB()
			if htb.decodeClass(options) != nil {
				return
			}
			if s, err := htb.finish(); err == nil {
				readsBack(t, s)
			}
			return
		}
		kind := Kinds()[int(index)%len(Kinds())]
		_ = replayable(kind, slices.Clone(options))
		s := decode(kind, options, d)
		if s == nil {
			return
		}
		if again, err := Parse(s.String()); err != nil || again != s {
			t.Fatalf("%+v → %q → %+v, %v", s, s, again, err)
		}
		readsBack(t, s)
	})
}

// Nor do whole answers that no kernel would give.
func FuzzAnswers(f *testing.F) {
	f.Add(object(2, 0x10000, Root, 1, "htb", nil), object(2, 0x10001, Root, 0, "htb", nil),
		object(2, 1, 0x10000, 8, "u32", []byte{}), link(2, 1500, 1000))
	f.Add(object(2, 0, Root, 1, "mq", nil), object(2, 0, 1, 0, "fq", nil), []byte{}, []byte{})
	f.Add(object(2, 0x10000, Root, 1, "cake", nil,
		netlink.Attribute{Type: tcaStats2, Data: pack(netlink.Attribute{Type: statsApp, Data: pack(
			netlink.Attribute{Type: 10, Data: pack(netlink.Attribute{Type: 1,
				Data: pack(netlink.Attribute{Type: 3, Data: make([]byte, 8)})})})})}),
		[]byte{}, []byte{}, link(2, 1500, 1000))
	f.Fuzz(func(t *testing.T, one, two, three, device []byte) {
		k := &kernel{links: [][]byte{link(2, 1500, 1000), device}, qdiscs: [][]byte{one, two},
			classes: [][]byte{two, one}, filters: [][]byte{three}}
		for range 2 {
			if trees, err := (&Conn{nl: k.dial(t).nl, bpf: noBPF{}, shaper: noShaper{}}).Trees(); err == nil {
				for _, tree := range trees {
					if s, ok := tree.Stack(); ok {
						if again, err := ParseStack(s.String()); err == nil && !again.Equal(s) {
							t.Errorf("%q → %q", s, again)
						}
					}
					if !tree.Same(tree) {
						t.Error("a tree is not the same as itself")
					}
					b, err := json.Marshal(tree)
					var read Tree
					if err != nil || json.Unmarshal(b, &read) != nil || !read.Same(tree) {
						t.Errorf("%s: %v", b, err)
					}
					root, _ := tree.Root()
					_, _ = tree.replay(2, root, map[Handle]bool{})
				}
			}
			k.qdiscs, k.links = k.qdiscs[:1], k.links[:1] // the first alone may make sense
		}
	})
}
