// SPDX-License-Identifier: Apache-2.0

package report

import (
	"errors"
	"fmt"
	"io"
	"slices"

	"weir/internal/lab/measure"
	"weir/internal/lab/verdict"
	"weir/internal/page"
)

// charts draws a point: latency over time and as a distribution, goodput, queues. Of several seeds the first is drawn.
func charts(p *verdict.Point) []page.Chart {
	probes, kinds := pictured(p)
	overTime, share := make([][]page.Line, len(probes)), make([][]page.Line, len(probes))
	var goodput, perFlow, queues []page.Line
	provider := "provider"
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
		if total := sum(run.Series.Goodput); len(total) > 0 {
			goodput = append(goodput, page.Line{Name: c.Candidate, Color: k, Points: steps(run.Series.Step, total)})
		}
		if len(run.Flows) > 1 {
			perFlow = append(perFlow, page.Line{Name: c.Candidate, Color: k, Points: ranked(run.Flows)})
		}
		queues = append(queues, page.Line{Name: c.Candidate + ", here", Color: k,
			Points: steps(run.Series.Step, run.Series.Uplink)})
		theirs := run.Series.Provider
		if run.Series.Inward != nil { // of a relay it is this side that fills first
			theirs, provider = run.Series.Inward, "provider, on the way in"
		}
		queues = append(queues, page.Line{Name: c.Candidate + ", provider", Color: k, Dash: true,
			Points: steps(run.Series.Step, theirs)})
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
	all = append(all, page.Chart{Name: "Goodput over time", X: seconds, Y: mbit, Lines: goodput},
		page.Chart{Name: "Goodput of each flow, the fastest first", X: page.Axis{Whole: true}, Y: mbit,
			Lines: perFlow},
		page.Chart{Name: fmt.Sprintf("Queues: here (solid) and at the %s (dashed)", provider), X: seconds,
			Y: page.Axis{Unit: "KiB"}, Lines: queues})
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

// pictured are the probes to draw, by name with their kinds: the first that echoes UDP or, without one, each that
// types.
func pictured(p *verdict.Point) (names, kinds []string) {
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

// sum adds up the groups' goodput.
func sum(groups []measure.FlowSeries) []float64 {
	var total []float64
	for _, g := range groups {
		for i, v := range g.Values {
			if i == len(total) {
				total = append(total, 0)
			}
			total[i] += v
		}
	}
	return total
}

func steps(step float64, values []float64) []page.Point {
	xys := make([]page.Point, len(values))
	for i, v := range values {
		xys[i] = page.Point{X: float64(i+1) * step, Y: v}
	}
	return xys
}

// ranked lists flows by what they got.
func ranked(flows []measure.Flow) []page.Point {
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
