// SPDX-License-Identifier: Apache-2.0

//go:build all

package machine

// In make test-all: whole Debians boot.

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestDocument: results/reliability.md has a row for each fault that is tried, and no other, and none ended badly. Its
// figures are those of the last make test-machines with each.
func TestDocument(t *testing.T) {
	text, err := os.ReadFile("../../../results/reliability.md")
	if err != nil {
		t.Fatal(err)
	}
	body, ok := strings.CutPrefix(string(text), reportHead)
	if !ok {
		t.Fatal("the head is another one (make test-machines)")
	}
	rows := map[string][]string{}
	for l := range strings.Lines(body) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(l), "|"), "|")
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		rows[cells[0]] = cells
	}
	for _, f := range faults() {
		t.Run(f.name, func(t *testing.T) {
			row := rows[f.name]
			delete(rows, f.name)
			switch {
			case len(row) != 8:
				t.Error("no row (make test-machines)")
			case row[7] != "0":
				t.Errorf("%s ended badly", row[7])
			case row[3] == "0":
				t.Skipf("skipped, not passed: %s has not been tried", f.name)
			}
		})
	}
	for name := range rows {
		t.Errorf("%s: is not tried any more (make test-machines)", name)
	}
}

// A row becomes that of a newer program once that was tried on as many systems.
func TestRows(t *testing.T) {
	const fault = "nobody confirms"
	const old = "| " + fault + " | bookworm (networkd, ifupdown); sid (networkd) | old | 6 | 6 | 0 | 0 | 0 |\n"
	two := map[string]tally{"bookworm/networkd": {asBefore: 2}, "trixie/networkd": {asBefore: 2}}
	three := map[string]tally{"bookworm/networkd": {asBefore: 2}, "trixie/networkd": {asPlanned: 3},
		"sid/networkd": {asBefore: 2}}
	for _, c := range []struct {
		before, want string
		tried        map[string]tally
	}{
		{old, old, nil},
		{old, old, two},
		{old, "| " + fault + " | bookworm (networkd); trixie (networkd); sid (networkd) | new | 7 | 4 | 3 | 0 | 0 |\n",
			three},
		{"", "| " + fault + " | bookworm (networkd); trixie (networkd) | new | 4 | 4 | 0 | 0 | 0 |\n", two},
		{"", "| " + fault + " |  |  | 0 | 0 | 0 | 0 | 0 |\n", nil},
	} {
		got := report{fault: c.tried}.markdown("new", parseRows(c.before))
		if row := parseRows(got)[fault]; row != c.want {
			t.Errorf("from %q with %v:\n%q, want\n%q", c.before, c.tried, row, c.want)
		}
	}
}

// What is being tried anew is not known to have gone well before, also if that never ends; nor is what ended badly.
func TestResults(t *testing.T) {
	r := results{filepath.Join(t.TempDir(), "results.json")}
	const fault, on = "nobody confirms", "trixie/networkd"
	for _, c := range []struct {
		counts tally
		well   bool
	}{{tally{asBefore: 2}, true}, {tally{}, false}, {tally{asBefore: 1, bad: 1}, false}, {tally{asPlanned: 10}, true}} {
		if err := r.set(fault, on, c.counts); err != nil {
			t.Fatal(err)
		}
		counts, well, err := r.wentWell(fault, on)
		if err != nil || well != c.well || counts != c.counts {
			t.Errorf("%v: %v, %v, %v", c.counts, counts, well, err)
		}
		if _, well, _ := r.wentWell(fault, "sid/networkd"); well {
			t.Error("another system's is taken for this one's")
		}
	}
}

// TestRelayDocument: results/relay-machines.md has a row for each relay that is tried, in that order, and no other. Its
// figures are those of the last make test-machines in which all of them kept the bounds.
func TestRelayDocument(t *testing.T) {
	text, err := os.ReadFile("../../../results/relay-machines.md")
	if err != nil {
		t.Fatal(err)
	}
	body, ok := strings.CutPrefix(string(text), relayHead)
	if !ok {
		t.Fatal("the head is another one (make test-machines)")
	}
	rows := slices.Collect(strings.Lines(body))
	if len(rows) != len(relays()) {
		t.Fatalf("%d rows for %d relays (make test-machines)", len(rows), len(relays()))
	}
	for i, r := range relays() {
		if !strings.HasPrefix(rows[i], "| "+r.name+" | "+r.with+" | ") {
			t.Errorf("the row of %s, %s, is %s", r.name, r.with, rows[i])
		}
	}
}
