// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"weir/internal/cli"
	"weir/internal/dualpi2"
	"weir/internal/hint"
	"weir/internal/host"
	"weir/internal/qdisc"
)

// What tc 6.18 and later of Debian sid print for a dualpi2 that the kernel reports with these options and counters.
const (
	tcText = `qdisc dualpi2 8001: dev lo root refcnt 2 limit 10000p memlimit 30280000B target 15ms tupdate 16ms alpha 0.156250 beta 3.199219 step_thresh 1ms min_qlen_step 0p coupling_factor 2 drop_on_overload drop_dequeue classic_protection 10% l4s_ect split_gso 
 Sent 123456 bytes 789 pkt (dropped 7, overlimits 9 requeues 8) 
 backlog 4500b 3p requeues 8
prob 0.071111 delay_c 15000us delay_l 400us
pkts_in_c 1000 pkts_in_l 2000 maxq 55
ecn_mark 66 step_mark 7
credit -1234 (L-queue)
memory_used 8888 (max 99999) of memory limit 30280000
`
	tcJSON = `{"kind":"dualpi2","handle":"8001:","dev":"lo","root":true,"refcnt":2,"options":{"limit":10000,"memory-limit":30280000,"target":15000,"tupdate":16000,"alpha":0.15625,"beta":3.19922,"step-thresh-us":1000,"min-qlen-step":0,"coupling":2,"drop-overload":"drop","drop-early":"drop-dequeue","c-protection":10,"ecn-mask":"l4s-ect","split-gso":null},
"bytes":123456,"packets":789,"drops":7,"overlimits":9,"requeues":8,"backlog":4500,"qlen":3,"prob":0.0711111,"delay-c":15000,"delay-l":400,"pkts-in-c":1000,"pkts-in-l":2000,"maxq":55,"ecn-mark":66,"step-mark":7,"credit":-1234,"memory-used":8888,"max-memory-used":99999,"memory-limit":30280000}`

	tcOthers     = `qdisc dualpi2 8001: dev lo root refcnt 2 limit 500p memlimit 1000000B target 15.1ms tupdate 16ms alpha 0.500000 beta 3.296875 step_thresh 5p min_qlen_step 3p coupling_factor 3 overflow drop_enqueue classic_protection 25% any_ect no_split_gso `
	tcOthersJSON = `{"kind":"dualpi2","handle":"8001:","dev":"lo","root":true,"refcnt":2,"options":{"limit":500,"memory-limit":1000000,"target":15123,"tupdate":16000,"alpha":0.5,"beta":3.29688,"step-thresh-pkts":5,"min-qlen-step":3,"coupling":3,"drop-overload":"overflow","drop-early":"drop-enqueue","c-protection":25,"ecn-mask":"any-ect"}}`
)

func shownAs(t *testing.T, text string, memory uint32, statistics bool) shownQdisc {
	t.Helper()
	spec, err := qdisc.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return showQdisc("lo", qdisc.Qdisc{Kind: spec.Kind(), Handle: 0x80010000, Parent: qdisc.Root, Spec: spec,
		Stats: qdisc.Stats{
			Bytes: 123456, Packets: 789, Drops: 7, Overlimits: 9, Requeues: 8, Backlog: 4500, Qlen: 3,
			X: dualpi2.Stats{Probability: float64(0x12345678) / 0xFFFFFFFF, DelayC: 15000, DelayL: 400,
				PacketsC: 1000, PacketsL: 2000, MaxQueue: 55,
				ECNMarks: 66, StepMarks: 7, Credit: -1234, MemoryUsed: 8888, MaxMemoryUsed: 99999, MemoryLimit: memory,
				Unmarked: 1, Overwritten: 2,
				SojournC: dualpi2.Sojourn{Packets: 1000, Mean: 14312e3, P50: 14e6, P99: 21234567, Max: 25e6},
				SojournL: dualpi2.Sojourn{Packets: 2000, Mean: 345678, P99: 999}},
		}}, statistics)
}

// Line by line and key by key what tc prints, with more behind it.
func TestShowAsTC(t *testing.T) {
	for _, c := range []struct {
		text       string
		memory     uint32
		statistics bool
		line, json string
		further    string
	}{
		{"bpf_dualpi2 alpha 0.15625 rate 50mbit", 30280000, true, tcText, tcJSON, "rate 50mbit raw"},
		{"bpf_dualpi2 limit 500 memlimit 1000000 target 15123us alpha 0.5 beta 3.296875 step_thresh 5p " +
			"min_qlen_step 3 coupling_factor 3 overflow drop_enqueue " +
			"classic_protection 25% any_ect no_split_gso docsis ptm llll_mark 0x1/0xff", 1000000, false, tcOthers,
			tcOthersJSON, "unlimited overhead 18 ptm mpu 64 llll_mark 0x1/0xff"},
	} {
		shown := shownAs(t, c.text, c.memory, c.statistics)
		var text bytes.Buffer
		shown.print(&text)
		got := strings.Split(text.String(), "\n")
		want := strings.Split(strings.TrimSuffix(strings.NewReplacer("qdisc dualpi2", "qdisc bpf_dualpi2", "refcnt 2 ",
			"").Replace(c.line), "\n"), "\n")
		want[0] += c.further
		if len(got) < len(want) || !slices.Equal(got[:len(want)], want) {
			t.Errorf("printed\n%s\nwant\n%s", text.String(), strings.Join(want, "\n"))
		}
		if c.statistics {
			for _, line := range []string{"sojourn_c pkts 1000 mean 14.3ms p50 14ms p99 21.2ms max 25ms",
				"sojourn_l pkts 2000 mean 346us p50 0s p99 999ns max 0s",
				"step_missed 0 step_early 0 unmarked 1 overwritten 2 superpackets 0"} {
				if !slices.Contains(got, line) {
					t.Errorf("no %q in\n%s", line, text.String())
				}
			}
		}

		b, err := json.Marshal(shown)
		if err != nil {
			t.Fatal(err)
		}
		var mine, tcs map[string]any
		if err := json.Unmarshal(b, &mine); err != nil || json.Unmarshal([]byte(c.json), &tcs) != nil {
			t.Fatalf("%s: %v", b, err)
		}
		delete(tcs, "refcnt")
		tcs["kind"] = "bpf_dualpi2"
		contains(t, "", mine, tcs)

		// What is printed behind tc's can be typed.
		if _, err := qdisc.Parse("bpf_dualpi2 " + shownWords(dualpi2.Own(), shown.config)); err != nil {
			t.Error(err)
		}
	}
	if got := shownWords(dualpi2.Own(), shownAs(t, "bpf_dualpi2 raw overhead 4 atm", 1, false).config); got !=
		"unlimited raw overhead 4 atm" {
		t.Errorf("%q", got)
	}
}

func contains(t *testing.T, at string, mine, tcs map[string]any) {
	t.Helper()
	for key, want := range tcs {
		got, there := mine[key]
		switch want := want.(type) {
		case map[string]any:
			contains(t, at+"."+key, got.(map[string]any), want)
		case float64:
			if v, ok := got.(float64); !ok || math.Abs(v-want) > math.Abs(want)*1e-5 { // tc prints six digits
				t.Errorf("%s.%s is %v, tc's %v", at, key, got, want)
			}
		default:
			if !there || !reflect.DeepEqual(got, want) {
				t.Errorf("%s.%s is %v, %v, tc's %v", at, key, got, there, want)
			}
		}
	}
	if options, ok := mine["options"].(map[string]any); ok { // and what tc leaves out
		for _, key := range []string{"split-gso", "step-thresh-us", "step-thresh-pkts"} {
			_, here := options[key]
			if _, there := tcs["options"].(map[string]any)[key]; here != there {
				t.Errorf("%s is there: %v, tc's: %v", key, here, there)
			}
		}
	}
}

// What is shown, byte by byte, and what the help says.
func TestShowGolden(t *testing.T) {
	var b bytes.Buffer
	for _, text := range []string{"", "rate 50mbit",
		"limit 500 memlimit 1000000 target 15123us alpha 0.5 beta 3.296875",
		"step_thresh 5p min_qlen_step 3 coupling_factor 3 overflow", "drop_enqueue classic_protection 25% any_ect",
		"no_split_gso", "docsis ptm llll_mark 0x1/0xff", "raw overhead 4 atm", "overhead -4", "overhead 0", "mpu 64",
		"rate 1234567bit mpu 84 overhead 44 atm", "llll_mark 0/0x1", "typical_rtt 20ms", "tupdate 1s step_thresh 1us"} {
		fmt.Fprintf(&b, "== %s\n", text)
		for _, statistics := range []bool{false, true} {
			shown := shownAs(t, strings.TrimSpace("bpf_dualpi2 "+text), 30280000, statistics)
			shown.print(&b)
			if err := cli.PrintJSON(&b, []shownQdisc{shown}); err != nil {
				t.Fatal(err)
			}
		}
	}
	fmt.Fprintf(&b, "== add --help\n%s\n", newDualPI2AddCommand().Long)
	golden := filepath.Join("testdata", "dualpi2-show.txt")
	if *update {
		if err := os.WriteFile(golden, b.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if want, err := os.ReadFile(golden); err != nil || !bytes.Equal(b.Bytes(), want) {
		t.Errorf("%v: it is now\n%s", err, b.String())
	}
}

// tc's words, in tc's order or another.
func TestDualPI2Words(t *testing.T) {
	for args, want := range map[string]string{
		"dev eth0 rate 50mbit":              "eth0: rate 50mbit",
		"dev eth0 root limit 5":             "eth0: limit 5",
		"limit 5 dev eth0":                  "eth0: limit 5",
		"dev eth0":                          "eth0: ",
		"dev":                               "dev needs a device",
		"dev eth0 dev eth1":                 "two devices are given, eth0 and eth1",
		"dev eth0 typical_rtt 20ms any_ect": "eth0: typical_rtt 20ms any_ect",
	} {
		var o dualpi2Options
		words, err := o.words(newDualPI2AddCommand(), strings.Fields(args))
		got := o.dev + ": " + strings.Join(words, " ")
		if err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("%s: %q, want %q", args, got, want)
		}
	}
	complete := func(args ...string) []string {
		words, _ := completeWords(nil, args, "")
		return words
	}
	if got := complete(); !slices.Equal(got, []string{"dev"}) {
		t.Errorf("first comes %q", got)
	}
	if got := complete("dev", "eth0", "rate", "50mbit"); !slices.Contains(got, "typical_rtt") ||
		slices.Contains(got, "rate") || slices.Contains(got, "dev") {
		t.Errorf("then %q", got)
	}
}

// One that was added and is gone, and one that cannot be read, are errors; the others are shown all the same.
func TestShowWhatIsGone(t *testing.T) {
	root := func(kind string) qdisc.Tree {
		return qdisc.Tree{Qdiscs: []qdisc.Qdisc{{Kind: kind, Handle: 0x10000, Parent: qdisc.Root}}}
	}
	facts := host.Facts{Namespace: "net:[42]", Links: []host.Link{{Index: 2, Name: "eth0",
		Tree: root("dualpi2.0a1b2c")}, {Index: 3, Name: "eth1", Tree: root("fq")}}}
	spec, _ := qdisc.Parse("bpf_dualpi2 rate 5mbit")
	facts.Links = append(facts.Links, host.Link{Index: 4, Name: "eth2",
		Tree: qdisc.Tree{Qdiscs: []qdisc.Qdisc{{Kind: spec.Kind(), Handle: 0x10000, Parent: qdisc.Root, Spec: spec}}}})
	o := dualpi2Options{state: t.TempDir()}
	var out bytes.Buffer
	err := o.show(&out, facts, facts.Links, false)
	if refusal, ok := err.(*hint.Error); !ok ||
		!strings.Contains(refusal.What, "eth0: dualpi2.0a1b2c cannot be read") || refusal.Try != "the same with sudo" {
		t.Errorf("%v", err)
	}
	if !strings.HasPrefix(out.String(), "qdisc bpf_dualpi2 1: dev eth2 root ") ||
		strings.Count(out.String(), "\n") != 1 {
		t.Errorf("shown is %q", out.String())
	}
	out.Reset()
	o.json = true
	if err := o.show(&out, facts, facts.Links[1:2], false); err != nil || strings.TrimSpace(out.String()) != "[]" {
		t.Errorf("%v, %s", err, out.String())
	}
	o.dev = "eth1"
	if err := o.show(&out, facts, facts.Links[1:2], false); err == nil ||
		!strings.Contains(err.Error(), "eth1 has no BPF DualPI2") {
		t.Errorf("%v", err)
	}

	if got := entry(facts, "eth0"); got != "eth0:42" {
		t.Errorf("the journal is in %s", got)
	}
	facts.Sysctls = map[string]host.Sysctl{"net.core.default_qdisc": {}}
	for _, dir := range []string{"eth0", "eth0:42"} {
		if err := os.Mkdir(filepath.Join(o.state, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if stores := o.stores(facts); entry(facts, "eth0") != "eth0" || len(stores) != 1 ||
		filepath.Base(stores[0].Dir()) != "eth0" {
		t.Errorf("stores are %v", stores)
	}
}
