// SPDX-License-Identifier: Apache-2.0

package verdict

import (
	"strings"
	"testing"

	"weir/internal/lab/measure"
	"weir/internal/lab/scenario"
	"weir/internal/stats"
)

// A verdict follows from the measured values and the axes a claim speaks of.
func TestVerdict(t *testing.T) {
	point := func(loss string, slow, fast float64) Point {
		cell := func(name string, g float64) Cell {
			return Cell{Candidate: name, Runs: []measure.Run{{Goodput: g, Flows: []measure.Flow{{Goodput: g}}}}}
		}
		return Point{Labels: []string{"loss " + loss}, Values: []string{loss},
			Cells: []Cell{cell("cubic", slow), cell("bbr", fast)}}
	}
	axes := []scenario.Axis{{Key: "path.loss", Values: []any{"1%", "10%"}}}
	points := []Point{point("1%", 10, 20), point("10%", 1, 20)}
	claim := scenario.Claim{Metric: "goodput", Candidate: "bbr", Over: "cubic", Expect: "15..24"}
	if v := Judge(claim, axes, points); v.Verdict != OnlyWhen || v.Holds != "loss 10%" || len(v.At) != 2 {
		t.Errorf("got %+v", v)
	}
	claim.When = map[string]string{"path.loss": "10%"}
	if v := Judge(claim, axes, points); v.Verdict != Reproduced ||
		v.At[0].Value != (stats.Spread{Median: 20, Min: 20, Max: 20}) {
		t.Errorf("got %+v", v)
	}
	claim.When = map[string]string{"path.loss": "1%"}
	if v := Judge(claim, axes, points); v.Verdict != NotReproduced {
		t.Errorf("got %+v", v)
	}
	claim.Candidate = "gone"
	if v := Judge(claim, axes, points); v.Verdict != NotMeasured {
		t.Errorf("nothing measured is no verdict on the claim: %+v", v)
	}
	// A fetch that did not end is not a fast one.
	slow := point("10%", 1, 20)
	slow.Scenario.Flow = []scenario.Flow{{Name: "page", Bytes: 1}}
	for i := range slow.Cells {
		slow.Cells[i].Runs[0].Flows[0].Flow = "page"
	}
	fast := slow
	fast.Labels, fast.Values = []string{"loss 1%"}, []string{"1%"}
	fast.Cells = []Cell{{Candidate: "cubic", Runs: []measure.Run{{Flows: []measure.Flow{{Flow: "page", Fetch: 2}}}}}}
	fetch := scenario.Claim{Metric: "fetch", Candidate: "cubic", Expect: "<= 8s"}
	if v := Judge(fetch, axes, []Point{fast, slow}); v.Verdict != OnlyWhen || v.Holds != "loss 1%" || !v.At[1].None {
		t.Errorf("got %+v", v)
	}
}

// Who reads a table learns that the lab itself held connections back.
func TestPressed(t *testing.T) {
	p := Point{Cells: []Cell{{Runs: []measure.Run{{}, {TCPPressed: true}}}, {Runs: []measure.Run{{}, {}}}}}
	Describe(&p)
	if !strings.Contains(p.Cells[0].Words, "memory") || strings.Contains(p.Cells[1].Words, "memory") {
		t.Errorf("said: %q and %q", p.Cells[0].Words, p.Cells[1].Words)
	}
}

// What waits for each direction is said, the longest first, and a queue of what arrives is a queue.
func TestBothWays(t *testing.T) {
	queue := func(stack string, kib float64) *measure.Queue {
		return &measure.Queue{Stack: stack, Backlog: stats.Dist{N: 100, Mean: kib, Max: kib}}
	}
	for _, c := range []struct {
		name string
		run  measure.Run
		want string
	}{
		{"a relay that shapes what arrives",
			measure.Run{Uplink: *queue("cake bandwidth 95mbit", 1), Inward: queue("pfifo", 0.5),
				Ingress: &measure.Queue{Stack: "cake ingress", Backlog: stats.Dist{Mean: 230}, Drops: 46}},
			"The queue stands here, in cake on the way in: 18.8ms on average. None stands at the provider. " +
				"cake on the way in dropped 46."},
		{"its provider's box is the longer one",
			measure.Run{Uplink: *queue("cake", 20), Inward: queue("pfifo", 100), Ingress: queue("cake", 50)},
			"The queue stands in the provider's box on the way in: 8.19ms on average; " +
				"6.55ms here, in cake on the way out; 4.1ms here, in cake on the way in."},
		{"less in bytes, and longer, as it leaves at a quarter of the rate",
			measure.Run{Uplink: *queue("fq_codel", 40), Inward: queue("pfifo", 100), Provider: *queue("pfifo", 60)},
			"The queue stands in the provider's box on the way out: 19.7ms on average; " +
				"13.1ms here, in fq_codel on the way out; 8.19ms in the provider's box on the way in."},
		{"a tunnel's own queue, whose rate nobody knows",
			measure.Run{Uplink: *queue("cake", 40), Inward: queue("pfifo", 0),
				Tunnel: &measure.Queue{Device: "wg0", Backlog: stats.Dist{Mean: 70}}},
			"The queue stands here, on the tunnel's wg0: 70 KiB on average; 13.1ms here, in cake on the way out. " +
				"None stands at the provider."},
		{"only theirs", measure.Run{Uplink: *queue("fq", 0), Inward: queue("pfifo", 100)},
			"The queue stands in the provider's box on the way in: 8.19ms on average. None stands here."},
		{"none", measure.Run{Uplink: *queue("fq", 1), Inward: queue("pfifo", 1), Ingress: queue("cake", 2)},
			"No queue stands anywhere."},
	} {
		p := Point{Cells: []Cell{{Runs: []measure.Run{c.run}}}}
		p.Scenario.Provider = scenario.Provider{Rate: 25e6, Ingress: 100e6}
		if Describe(&p); p.Cells[0].Words != c.want {
			t.Errorf("%s:\n got %q\nwant %q", c.name, p.Cells[0].Words, c.want)
		}
	}
}

// What only arrives leaves the provider at the rate of the way in.
func TestOnlyInward(t *testing.T) {
	p := Point{Cells: []Cell{{Runs: []measure.Run{{
		Uplink:   measure.Queue{Stack: "fq_codel", Backlog: stats.Dist{N: 100}},
		Provider: measure.Queue{Stack: "pfifo", Backlog: stats.Dist{Mean: 100}}}}}}}
	p.Scenario.Provider = scenario.Provider{Rate: 25e6, Ingress: 100e6}
	p.Scenario.Flow = []scenario.Flow{{Direction: "up"}}
	if Describe(&p); !strings.Contains(p.Cells[0].Words, "8.19ms of it") {
		t.Errorf("said %q", p.Cells[0].Words)
	}
}

// What follows is a sentence of its own.
func TestFailedProgram(t *testing.T) {
	for _, c := range []struct {
		output []string
		want   string
	}{{nil, "Program p ended with status 3. Beware"}, {[]string{"a", "no route."}, "status 3: no route. Beware"},
		{[]string{"no route"}, "status 3: no route. Beware"}} {
		run := measure.Run{Programs: []measure.Program{{Program: "p", Exit: 3, Output: c.output}}, TCPPressed: true}
		p := Point{Cells: []Cell{{Runs: []measure.Run{run}}}}
		if Describe(&p); !strings.Contains(p.Cells[0].Words, c.want) {
			t.Errorf("%q does not say %q", p.Cells[0].Words, c.want)
		}
	}
}

func TestWhere(t *testing.T) {
	var all [][]string
	for _, q := range []string{"FIFO", "policer"} {
		for _, r := range []string{"local", "forwarded"} {
			for _, n := range []string{"1 flow", "4 flows", "16 flows"} {
				all = append(all, []string{q, r, n})
			}
		}
	}
	for _, c := range []struct {
		holds func(q, r, n string) bool
		want  string
	}{
		{func(q, _, _ string) bool { return q == "FIFO" }, "FIFO"},
		{func(_, _, n string) bool { return n != "1 flow" }, "4 flows or 16 flows"},
		{func(q, _, n string) bool { return q == "policer" || n == "1 flow" }, "FIFO, 1 flow; policer"},
		{func(q, r, n string) bool { return q == "FIFO" && r == "local" && n == "4 flows" }, "FIFO, local, 4 flows"},
		{func(q, r, n string) bool { return q == "FIFO" && n == "4 flows" }, "FIFO, 4 flows"},
	} {
		var holding [][]string
		for _, p := range all {
			if c.holds(p[0], p[1], p[2]) {
				holding = append(holding, p)
			}
		}
		if got := where(holding, all); got != c.want {
			t.Errorf("got %q, want %q", got, c.want)
		}
	}
}
