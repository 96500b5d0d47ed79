// SPDX-License-Identifier: Apache-2.0

package qdisc

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

// Each number that tc takes has a least and a greatest: one less and one more are refused. The bounds are those of the
// kernel (net/sched/sch_*.c), of tc, or of the attribute.
func TestBounds(t *testing.T) {
	const u32 = 1<<32 - 1
	for _, c := range []struct {
		text      string // %d is the number
		low, high uint64
	}{
		{"pfifo limit %d", 1, u32},
		{"bfifo limit %d", 1, u32},
		{"codel limit %d", 1, u32},
		{"fq_codel limit %d", 1, u32},
		{"fq_codel flows %d", 1, 65536},
		{"fq_codel quantum %d", 256, 1 << 20},
		{"fq_codel drop_batch %d", 1, u32},
		{"fq limit %d", 1, u32},
		{"fq flow_limit %d", 1, u32},
		{"fq quantum %d", 256, 1 << 20},
		{"fq initial_quantum %d", 1, 1 << 20},
		{"dualpi2 limit %d", 1, u32},
		{"dualpi2 memlimit %d", 1, u32},
		{"dualpi2 coupling_factor %d", 1, 255},
		{"dualpi2 min_qlen_step %d", 0, u32},
		{"dualpi2 step_thresh %dpkt", 1, u32},
		{"htb rate 1mbit prio %d", 0, 7},
		{"htb rate 1mbit direct_qlen %d", 1, u32},
		{"htb rate 1mbit mpu %d", 0, 65535},
		{"htb rate 1mbit overhead %d", 0, 65535},
		{"htb rate 1mbit quantum %d", 1, 1<<31 - 1},
		{"tbf rate 1mbit burst 10kb limit 1mb mpu %d", 0, 65535},
		{"tbf rate 1mbit burst 10kb limit 1mb overhead %d", 0, 65535},
		{"cake overhead 0 mpu %d", 0, 256},
		{"netem limit %d", 1, u32},
		{"netem delay 10ms reorder 10%% gap %d", 1, u32},
	} {
		parse := func(v any) error {
			_, err := ParseStack(strings.ReplaceAll(strings.ReplaceAll(c.text, "%%", "%"), "%d", fmt.Sprint(v)))
			return err
		}
		for _, v := range []uint64{c.low, c.high} {
			if err := parse(v); err != nil {
				t.Errorf("%s: %d: %v", c.text, v, err)
			}
		}
		outside := []any{c.high + 1, "-1", "x", "1x"}
		if c.low > 0 {
			outside = append(outside, c.low-1)
		}
		for _, v := range outside {
			if err := parse(v); err == nil {
				t.Errorf("%s: %v is taken", c.text, v)
			}
		}
	}
	for overhead, fine := range map[int]bool{-64: true, -65: false, 256: true, 257: false} {
		if _, err := ParseStack(fmt.Sprintf("cake overhead %d", overhead)); (err == nil) != fine {
			t.Errorf("cake overhead %d: %v", overhead, err)
		}
	}
}

// What does not go together is refused.
func TestNotTogether(t *testing.T) {
	for text, want := range map[string]string{
		"netem loss 1% loss gemodel 1% 10%":          "given twice",
		"netem ecn":                                  "ecn needs a loss",
		"netem gap 3":                                "gap needs reorder",
		"netem reorder 10%":                          "reorder needs a delay",
		"htb rate 1mbit linklayer token":             "link layer",
		"tbf rate 1mbit burst 10kb limit 1mb mtu 3k": "mtu",
		"dualpi2 classic_protection 101%":            "",
		"dualpi2 classic_protection":                 "",
		"dualpi2 typical_rtt 1h":                     "",
	} {
		if _, err := ParseStack(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// Both words for ATM are read, and written as one.
func TestLinkLayers(t *testing.T) {
	for word, atm := range map[string]bool{"atm": true, "adsl": true, "ethernet": false} {
		stack, err := ParseStack("htb rate 1mbit linklayer " + word)
		if err != nil || strings.Contains(stack.String(), "linklayer atm") != atm {
			t.Errorf("%s: %s, %v", word, stack, err)
		}
	}
}

// Of several queues the rate of one is that of all.
func TestShapes(t *testing.T) {
	for text, want := range map[string]bool{
		"fq_codel": false, "cake": false, "cake bandwidth 1mbit": true, "htb rate 1mbit | fq_codel": true,
		"mq | fq_codel": false, "tbf rate 1mbit burst 10kb limit 1mb": true, "fq maxrate 1mbit": false, "noqueue": false,
		"bpf_dualpi2 rate 1mbit": true,
	} {
		stack, err := ParseStack(text)
		if err != nil {
			t.Fatal(err)
		}
		if got := stack.Shapes(); got != want {
			t.Errorf("%s: %v", text, got)
		}
	}
}

// A handle survives JSON, and what is no handle is refused there.
func TestHandleInJSON(t *testing.T) {
	for text, fine := range map[string]bool{`"1:"`: true, `"8001:a"`: true, `"x"`: false, `"1:2:3"`: false, `""`: false} {
		var h Handle
		err := json.Unmarshal([]byte(text), &h)
		back, _ := json.Marshal(h)
		if (err == nil) != fine || fine && string(back) != text {
			t.Errorf("%s: %s, %v", text, back, err)
		}
	}
}

// tc sends a rate in bytes: what is left of a division by eight is not sent.
func TestWholeBytes(t *testing.T) {
	for text, want := range map[string]string{
		"fq maxrate 1000007bit":            "maxrate 1mbit",
		"fq low_rate_threshold 1000007bit": "low_rate_threshold 1mbit",
	} {
		stack, err := ParseStack(text)
		if err != nil || !strings.Contains(stack.String(), want) {
			t.Errorf("%s: %s, %v", text, stack, err)
		}
	}
}

// A word that is nearly one is suggested.
func TestDistance(t *testing.T) {
	for text, want := range map[string]string{
		"fq_codle": "fq_codel", "cak": "cake", "cake bandwith 1mbit": "bandwidth", "fq_codel targe 5ms": "target",
	} {
		if _, err := ParseStack(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// A class below one that was not recorded cannot be made again.
func TestClassWithoutAParent(t *testing.T) {
	spec, err := ParseStack("htb rate 1mbit")
	if err != nil {
		t.Fatal(err)
	}
	tree := Tree{Qdiscs: []Qdisc{{Kind: "htb", Handle: 0x10000, Parent: Root, Spec: spec[0]}},
		Classes: []Class{{Kind: "htb", Handle: 0x10002, Parent: 0x10001}, {Kind: "htb", Handle: 0x10003, Parent: 0x10002}}}
	if _, err := tree.replay(2, tree.Qdiscs[0], map[Handle]bool{}); err == nil ||
		!strings.Contains(err.Error(), "class 1:2 hangs below 1:1") {
		t.Errorf("%v", err)
	}
}
