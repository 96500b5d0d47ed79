// SPDX-License-Identifier: Apache-2.0

package dualpi2

import (
	"encoding/json"
	"os"
	"regexp"
	"strconv"
	"testing"
)

// Each number has a place of its own with the programs and in a record, keeps to its range, and is shown and read back.
func TestNumbers(t *testing.T) {
	attrs := map[uint16]string{0x1006: "llll_mark"} // 0x1001 to 0x1004 and that are internal/qdisc's
	for _, n := range Numbers() {
		if other := attrs[n.Attr]; other != "" || n.Attr < 0x1005 {
			t.Errorf("%s has the attribute %#x, as %q", n.Word, n.Attr, other)
		}
		attrs[n.Attr] = n.Word
		c := Defaults()
		if *n.Value(&c) != n.Default || c.check() != nil || n.option().Text(c) != "" || n.option().JSON(c) != nil {
			t.Errorf("%s: by default it is %d, and shown as %q", n.Word, *n.Value(&c), n.option().Text(c))
		}
		for _, v := range []uint32{n.Low, n.High} {
			*n.Value(&c) = v
			if got := c.encode(14).decode(14); *n.Value(&got) != v || c.check() != nil {
				t.Errorf("%s %d reads back as %d: %v", n.Word, v, *n.Value(&got), c.check())
			}
			if shown := n.Word + " " + strconv.Itoa(int(v)); v != n.Default && n.option().Text(c) != shown {
				t.Errorf("%s is shown as %q", shown, n.option().Text(c))
			}
		}
		*n.Value(&c) = n.High + 1
		if n.High+1 != 0 && c.check() == nil {
			t.Errorf("%s %d is let through", n.Word, n.High+1)
		}
	}
}

// The programs are of the layout that the loader knows.
func TestLayout(t *testing.T) {
	text, err := os.ReadFile("bpf/dualpi2.h")
	if err != nil {
		t.Fatal(err)
	}
	if m := regexp.MustCompile(`(?m)^#define LAYOUT (\d+)`).FindSubmatch(text); m == nil ||
		string(m[1]) != strconv.Itoa(layout) {
		t.Errorf("LAYOUT is %q, and the loader knows %d", m, layout)
	}
}

func TestMembers(t *testing.T) {
	for want, m := range map[string]Members{
		`{}`:                               nil,
		`{"b":1,"a":null,"c":{"d":"\"x"}}`: {{"b", 1}, {"a", nil}, {"c", Members{{"d", `"x`}}}},
	} {
		if got, err := json.Marshal(m); err != nil || string(got) != want {
			t.Errorf("%s, %v, want %s", got, err, want)
		}
	}
}
