// SPDX-License-Identifier: Apache-2.0

package report

import (
	"errors"
	"fmt"
	"io"
	"slices"

	"weir/internal/lab/measure"
	"weir/internal/lab/scenario"
	"weir/internal/lab/verdict"
	"weir/internal/page"
)

// charts draws a point: latency over time and as a distribution, goodput, queues. Of several seeds the first is drawn.
func charts(p *verdict.Point) []page.Chart {
	probes, kinds := drawnProbes(p)
	overTime, share := make([][]page.Line, len(probes)), make([][]page.Line, len(probes))
	var goodput, perFlow, queues, inward []page.Line
	// What came behind a lost packet can be read all at once when that has come: more than the link carries.
	goodputName := "Goodput over time, as receivers read it (after a loss in a burst)"
	queuesName := "Queues: here (solid) and at the provider (dashed)"
	if bothWays(p.Scenario) {
		goodputName += ": down (solid) and up (dashed)"
	}
	for k := range p.Cells {
		c := &p.Cells[k]
		if len(c.Runs) == 0 {
			continue
		}
		run := &c.Runs[0]
		for _, probe := range run.Probes {
			if i := slices.Index(probes, probe.Probe); i >= 0 && probe.Delay.N > 0 {
				overTime[i] = append(overTime[i], page.Line{Name: c.Candidate, Color: k,
					Points: page.Peaks(probe.At, probe.Series)})
				share[i] = append(share[i], page.Line{Name: c.Candidate, Color: k,
					Points: page.Distribution(probe.Series)})
			}
		}
		for up, total := range sums(p.Scenario, run.Series.Goodput) {
			if len(total) > 0 {
				goodput = append(goodput, page.Line{Name: c.Candidate, Color: k, Dash: up == 1 && bothWays(p.Scenario),
					Points: steps(run.Series.Step, total)})
			}
		}
		if len(run.Flows) > 1 {
			perFlow = append(perFlow, page.Line{Name: c.Candidate, Color: k, Points: rankFlows(run.Flows)})
		}
		draw := func(name string, dash bool, backlog []float64) page.Line {
			return page.Line{Name: c.Candidate + name, Color: k, Dash: dash, Points: steps(run.Series.Step, backlog)}
		}
		queues = append(queues, draw(", here", false, run.Series.Uplink),
			draw(", provider", true, run.Series.Provider))
		if run.Series.Inward != nil {
			queuesName = "Queues on the way out: here (solid) and at the provider (dashed)"
			inward = append(inward, draw(", provider", true, run.Series.Inward))
		}
		if run.Series.Ingress != nil {
			inward = append(inward, draw(", here", false, run.Series.Ingress))
		}
	}
	seconds, ms, mbit := page.Axis{Unit: "s"}, page.Axis{Unit: "ms"}, page.Axis{Unit: "Mbit/s"}
	var all []page.Chart
	for i, name := range probes {
		what := "the UDP probe"
		if kinds[i] != "udp" {
			what = kinds[i] + " (" + name + ")"
		}
		all = append(all, page.Chart{Name: "Round trip of " + what + " over time", X: seconds, Y: ms,
			Lines: overTime[i]},
			page.Chart{Name: "Round trip of " + what + ": share of samples at or below", X: ms,
				Y: page.Axis{Unit: "%"}, Lines: share[i]})
	}
	all = append(all, page.Chart{Name: goodputName, X: seconds, Y: mbit, Lines: goodput},
		page.Chart{Name: "Goodput of each flow, the fastest first", X: page.Axis{Whole: true}, Y: mbit,
			Lines: perFlow},
		page.Chart{Name: "Queues on the way in: here (solid) and at the provider (dashed)", X: seconds,
			Y: page.Axis{Unit: "KiB"}, Lines: inward},
		page.Chart{Name: queuesName, X: seconds, Y: page.Axis{Unit: "KiB"}, Lines: queues})
	return slices.DeleteFunc(all, func(c page.Chart) bool { return len(c.Lines) == 0 })
}

// RoundTrips draws the round trips of a point's first probe over time as an SVG file, of the candidates that are named.
func RoundTrips(w io.Writer, title string, p *verdict.Point, candidates ...string) error {
	all := charts(p)
	if len(all) == 0 {
		return errors.New("no probe was sent, so there is nothing to draw")
	}
	c := all[0]
	c.Name = title
	c.Lines = slices.DeleteFunc(c.Lines, func(l page.Line) bool { return !slices.Contains(candidates, l.Name) })
	if len(c.Lines) != len(candidates) {
		return fmt.Errorf("of %q not all were measured", candidates)
	}
	_, err := io.WriteString(w, c.File())
	return err
}

// drawnProbes are the probes to draw, by name with their kinds: the first that echoes UDP or, without one, each that
// types.
func drawnProbes(p *verdict.Point) (names, kinds []string) {
	for k := range p.Cells {
		if len(p.Cells[k].Runs) == 0 {
			continue
		}
		for _, probe := range p.Cells[k].Runs[0].Probes {
			if probe.Kind == "udp" {
				return []string{probe.Probe}, []string{probe.Kind}
			}
			if probe.Kind == "ssh" {
				names, kinds = append(names, probe.Probe), append(kinds, probe.Kind)
			}
		}
		break
	}
	return names, kinds
}

// sums adds up the flows' goodput of each direction: down, and up.
func sums(s scenario.Scenario, groups []measure.FlowSeries) (totals [2][]float64) {
	uploads := s.Setup().Up
	for _, g := range groups {
		total := &totals[0]
		if slices.Contains(uploads, g.Flow) {
			total = &totals[1]
		}
		for i, v := range g.Values {
			if i == len(*total) {
				*total = append(*total, 0)
			}
			(*total)[i] += v
		}
	}
	return totals
}

func steps(step float64, values []float64) []page.Point {
	xys := make([]page.Point, len(values))
	for i, v := range values {
		xys[i] = page.Point{X: float64(i+1) * step, Y: v}
	}
	return xys
}

// rankFlows lists flows by what they got.
func rankFlows(flows []measure.Flow) []page.Point {
	var v []float64
	for _, f := range flows {
		v = append(v, f.Goodput)
	}
	slices.Sort(v)
	slices.Reverse(v)
	xys := make([]page.Point, len(v))
	for i := range v {
		xys[i] = page.Point{X: float64(i + 1), Y: v[i]}
	}
	return xys
}
