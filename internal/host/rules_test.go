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

// answered are the kernel's answers in a file of testdata.
func answered(tb testing.TB, from, kind string) (all [][]byte) {
	tb.Helper()
	text, err := os.ReadFile("testdata/" + from)
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
		"inet filter in 9: input limit UDP drops counted 0",
		"inet filter in 11: input limit drops counted 0",
		"inet filter in 12: input limit narrow drops counted 0",
		"inet filter in 13: input limit drops counted 0",
		"inet filter in 14: input numgen drops counted 0",
		"inet filter in 15: input limit narrow drops counted 0",
		"inet filter in 16: input limit narrow drops counted 0",
		"inet filter in 17: input limit 8.388608mbit drops counted 0",
		"inet filter in 18: input limit narrow drops",
		"inet filter in 19: input limit UDP drops",
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
		"inet filter slowly 37: output limit drops counted 0",
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
	all := newRuleset()
	for _, msg := range answered(t, "rules.txt", "rule") {
		all.add(msg)
	}
	for _, msg := range answered(t, "rules.txt", "chain") {
		c, hook := hooked(msg)
		all.hooks[c] = hook
	}
	sameRules(t, all.rules(), want)
}

func sameRules(t *testing.T, rules []Rule, want []string) {
	t.Helper()
	var got []string
	for _, r := range rules {
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
	s := fmt.Sprintf("%s %s %s %d: %s %s", r.Family, r.Table, r.Chain, r.Handle, strings.Join(r.Hooks, "+"), r.Limit)
	if r.Narrow {
		s += " narrow"
	}
	if r.OnlyUDP {
		s += " UDP"
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

// What matches of iptables's say of packets under way.
func TestNarrowByMatches(t *testing.T) {
	flags := func(mask, value, inverted byte) []byte { // struct xt_tcp
		return append(make([]byte, 9), mask, value, inverted)
	}
	const states, proto = 1, 2
	tracked := func(asked, inverted, state uint16) []byte { // struct xt_conntrack_mtinfo3
		info := make([]byte, 146)
		for _, n := range []uint16{asked, inverted, state, 0} {
			info = binary.NativeEndian.AppendUint16(info, n)
		}
		return append(info, make([]byte, 10)...)
	}
	for _, c := range []struct {
		name         string
		info         []byte
		noTCP, noUDP bool
	}{
		{"tcp", flags(0, 0, 0), false, true},
		{"tcp", flags(2, 2, 0), true, true},
		{"tcp", flags(2, 2, 4), false, true},
		{"tcp", flags(16, 16, 0), false, true},
		{"tcp", nil, false, true},
		{"udp", nil, true, false},
		{"icmp6", nil, true, true},
		{"conntrack", tracked(states, 0, 2), false, false},
		{"conntrack", tracked(states, 0, 2|4), false, false},
		{"conntrack", tracked(states, 0, 8), true, true},
		{"conntrack", tracked(states, states, 2), true, true},
		{"conntrack", tracked(states, states, 8), false, false},
		{"conntrack", tracked(proto, 0, 0), false, false},
		{"conntrack", nil, false, false},
		{"state", []byte{8, 0, 0, 0}, true, true},
		{"state", []byte{2, 0, 0, 0}, false, false},
		{"comment", nil, false, false},
	} {
		var r ruleReader
		r.readExpression("match", appendAttribute(appendAttribute(nil, 1, []byte(c.name+"\x00")), 3, c.info))
		if r.noTCP != c.noTCP || r.noUDP != c.noUDP {
			t.Errorf("%s %v: no TCP %v, no UDP %v", c.name, c.info, r.noTCP, r.noUDP)
		}
	}
}

// A program that a rule hands packets to may drop them.
func TestQueueRule(t *testing.T) {
	var r ruleReader
	r.readExpression("queue", nil)
	if !r.isSuspect() || r.Limit != "queue" || r.Drops {
		t.Errorf("%+v", r)
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

// Of rules that do nothing but drop, the first thousand count, and only where they meet nothing but what leaves.
func TestPlainRules(t *testing.T) {
	all := newRuleset()
	for i := range uint64(1500) {
		for _, chain := range []string{"out", "in", "both", "unknown"} {
			r := Rule{Chain: chain, Handle: i, Drops: true, Counted: true}
			all.suspects = append(all.suspects, &ruleReader{Rule: r, decides: true})
			r.Limit = "limit"
			all.suspects = append(all.suspects, &ruleReader{Rule: r, decides: true})
		}
	}
	all.hooks = map[member]string{{name: "in"}: "input", {name: "out"}: "output"}
	both := []member{{name: "both"}}
	all.chains = map[member][]member{{name: "in"}: both, {name: "out"}: both, {name: "both"}: both}
	plain, limiting := 0, 0
	for _, r := range all.rules() {
		if r.Limit != "" {
			limiting++
		} else if plain++; r.Chain != "out" {
			t.Errorf("%+v", r)
		}
		if want := r.Chain == "out" || r.Chain == "both"; r.Outgoing() != want {
			t.Errorf("%+v", r)
		}
	}
	if plain != 1000 || limiting != 6000 {
		t.Errorf("%d that drop, %d that limit", plain, limiting)
	}
}

// Whatever the kernel answers, reading it ends.
func FuzzReadRule(f *testing.F) {
	for _, kind := range []string{"rule", "chain", "object", "elements"} {
		for _, from := range []string{"rules.txt", "ruleset.txt"} {
			for _, msg := range answered(f, from, kind) {
				f.Add(msg)
			}
		}
	}
	f.Fuzz(func(t *testing.T, msg []byte) {
		if r := readRule(msg); r.Dropped > 0 && !r.Counted {
			t.Errorf("%+v", r)
		}
		hooked(msg)
		verdicts(msg)
		readCounter(msg)
	})
}
