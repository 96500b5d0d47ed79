// SPDX-License-Identifier: Apache-2.0

package host

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"
)

// answered are the kernel's answers in testdata/rules.txt.
func answered(tb testing.TB, kind string) (all [][]byte) {
	tb.Helper()
	text, err := os.ReadFile("testdata/rules.txt")
	if err != nil {
		tb.Fatal(err)
	}
	for l := range strings.Lines(string(text)) {
		if digits, is := strings.CutPrefix(strings.TrimSpace(l), kind+" "); is {
			msg, err := hex.DecodeString(digits)
			if err != nil {
				tb.Fatal(err)
			}
			all = append(all, msg)
		}
	}
	return all
}

// What each rule of testdata/rules.txt does; those that are not here neither limit nor drop what leaves.
func TestReadRules(t *testing.T) {
	want := []string{
		"inet filter in 7: input limit drops counted 0",
		"inet filter in 8: input limit narrow drops counted 0",
		"inet filter in 9: input limit narrow drops counted 0",
		"inet filter in 11: input limit narrow drops counted 0",
		"inet filter in 12: input limit narrow drops counted 0",
		"inet filter in 13: input limit drops counted 0",
		"inet filter in 15: input limit narrow drops counted 0",
		"inet filter in 16: input limit narrow drops counted 0",
		"inet filter in 17: input limit 8.388608mbit drops counted 0",
		"inet filter in 18: input limit narrow drops",
		"inet filter in 19: input limit narrow drops",
		"inet filter in 23: input limit narrow drops counted 0",
		"inet filter out 24: output limit 10.24mbit drops counted 7",
		"inet filter out 25: output limit 10.24mbit drops",
		"inet filter out 26: output limit 6.5536mbit",
		"inet filter out 27: output  drops counted 0",
		"inet filter out 28: output quota drops counted 0",
		"inet filter out 29: output connlimit drops counted 0",
		"inet filter out 30: output limit drops counted 0",
		"inet filter out 31: output quota drops",
		"inet filter out 32: output limit 81.92kbit drops counted 0",
		"inet filter out 33: output numgen drops counted 0",
		"inet filter out 35: output limit",
		"inet filter out 36: output limit narrow",
		"inet filter slowly 37:  limit drops counted 0",
		"netdev dev e 2: ingress limit 83.88608mbit drops counted 0",
		"ip filter OUTPUT 2: output limit",
		"ip filter OUTPUT 3: output hashlimit drops counted 0",
		"ip filter OUTPUT 4: output quota",
		"ip filter OUTPUT 5: output connlimit narrow drops counted 0",
		"ip filter OUTPUT 10: output statistic drops counted 0",
		"ip filter INPUT 7: input limit narrow drops counted 0",
		"ip filter INPUT 9: input hashlimit narrow drops counted 0",
		"ip6 filter OUTPUT 2: output hashlimit drops counted 0",
	}
	var n Netfilter
	for _, msg := range answered(t, "rule") {
		if r, limits := readRule(msg); limits {
			n.Suspects = append(n.Suspects, r)
		}
	}
	hooks := map[chain]string{}
	for _, msg := range answered(t, "chain") {
		c, hook := hooked(msg)
		hooks[c] = hook
	}
	n.place(hooks)
	var got []string
	for _, r := range n.Suspects {
		got = append(got, summed(r))
	}
	for i := range max(len(got), len(want)) {
		if i >= len(got) || i >= len(want) || got[i] != want[i] {
			t.Fatalf("got\n%s\nwant\n%s", strings.Join(got[min(i, len(got)):], "\n"),
				strings.Join(want[min(i, len(want)):], "\n"))
		}
	}
}

// summed is a rule in a line.
func summed(r Rule) string {
	s := fmt.Sprintf("%s %s %s %d: %s %s", r.Family, r.Table, r.Chain, r.Handle, r.Hook, r.Limit)
	if r.Narrow {
		s += " narrow"
	}
	if r.Rate != 0 {
		s += " " + r.Rate.String()
	}
	if r.Drops {
		s += " drops"
	}
	if r.Counted {
		s += fmt.Sprintf(" counted %d", r.Dropped)
	}
	return s
}

// A rule whose flags iptables asks of its own match for TCP, as it did before 1.8.8.
func TestNarrowByFlagsOfXtables(t *testing.T) {
	for mask, want := range map[byte]bool{0: false, 2: true} {
		info := make([]byte, 12) // struct xt_tcp
		info[9] = mask
		var r ruleReader
		r.expression("match", appendAttribute(appendAttribute(nil, 1, []byte("tcp\x00")), 3, info))
		if r.Narrow != want {
			t.Errorf("flags %d: %v", mask, r.Narrow)
		}
	}
}

func appendAttribute(b []byte, typ uint16, data []byte) []byte {
	b = binary.NativeEndian.AppendUint16(b, uint16(4+len(data)))
	b = append(binary.NativeEndian.AppendUint16(b, typ), data...)
	return append(b, make([]byte, -len(b)&3)...)
}

// What a counter has counted since is that rule's, by its handle.
func TestRulesListen(t *testing.T) {
	rule := func(handle, dropped uint64) Rule {
		return Rule{Family: "ip", Table: "filter", Chain: "OUTPUT", Handle: handle, Dropped: dropped}
	}
	now := Deep{Netfilter: Netfilter{Suspects: []Rule{rule(2, 9), rule(3, 5), rule(4, 7)}}}
	before := Deep{Netfilter: Netfilter{Suspects: []Rule{rule(3, 6), rule(2, 4)}}}
	(&Facts{Deep: &now}).Listen(Facts{Deep: &before}, time.Second)
	for i, want := range []uint64{5, 0, 0} {
		if got := now.Netfilter.Suspects[i].Now; got != want {
			t.Errorf("rule %d: %d, not %d", i, got, want)
		}
	}
}

// Of rules that do nothing but drop, the first thousand count, and only where they meet what leaves.
func TestPlace(t *testing.T) {
	var n Netfilter
	for i := range uint64(1500) {
		n.Suspects = append(n.Suspects, Rule{Chain: "out", Handle: i, Drops: true, Counted: true},
			Rule{Chain: "in", Handle: i, Drops: true, Counted: true}, Rule{Chain: "in", Handle: i, Limit: "limit"})
	}
	n.place(map[chain]string{{name: "in"}: "input", {name: "out"}: "output"})
	plain, limiting := 0, 0
	for _, r := range n.Suspects {
		if r.Limit != "" {
			limiting++
		} else if plain++; r.Hook != "output" {
			t.Errorf("%+v", r)
		}
	}
	if plain != 1000 || limiting != 1500 {
		t.Errorf("%d that drop, %d that limit", plain, limiting)
	}
}

// Whatever the kernel answers, reading it ends.
func FuzzReadRule(f *testing.F) {
	for _, kind := range []string{"rule", "chain"} {
		for _, msg := range answered(f, kind) {
			f.Add(msg)
		}
	}
	f.Fuzz(func(t *testing.T, msg []byte) {
		r, limits := readRule(msg)
		if limits && (r.Limit == "" && !r.Counted || r.Dropped > 0 && !r.Counted) {
			t.Errorf("%+v", r)
		}
		hooked(msg)
	})
}
