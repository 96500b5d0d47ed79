// SPDX-License-Identifier: Apache-2.0

package report

import (
	_ "embed"
	"errors"
	"fmt"
	"io"
	"slices"

	"weir/internal/lab/verdict"
	"weir/internal/measure"
)

const maxPoints = 700 // of a line: more cannot be seen

// charts draws a point: latency over time and as a distribution, goodput, queues. Of several seeds the first is drawn.
func charts(p *verdict.Point) []chart {
	probes, kinds := pictured(p)
	overTime, share := make([][]line, len(probes)), make([][]line, len(probes))
	var goodput, perFlow, queues []line
	provider := "provider"
	for k := range p.Cells {
		c := &p.Cells[k]
		if len(c.Runs) == 0 {
			continue
		}
		run := &c.Runs[0]
		for _, probe := range run.Probes {
			if i := slices.Index(probes, probe.Probe); i >= 0 && probe.Delay.N > 0 {
				overTime[i] = append(overTime[i], line{c.Candidate, k, false, peaks(probe.At, probe.Series)})
				share[i] = append(share[i], line{c.Candidate, k, false, distribution(probe.Series)})
			}
		}
		if total := sum(run.Series.Goodput); len(total) > 0 {
			goodput = append(goodput, line{c.Candidate, k, false, steps(run.Series.Step, total)})
		}
		if len(run.Flows) > 1 {
			perFlow = append(perFlow, line{c.Candidate, k, false, ranked(run.Flows)})
		}
		queues = append(queues, line{c.Candidate + ", here", k, false, steps(run.Series.Step, run.Series.Uplink)})
		theirs := run.Series.Provider
		if run.Series.Inward != nil { // of a relay it is this side that fills first
			theirs, provider = run.Series.Inward, "provider, on the way in"
		}
		queues = append(queues, line{c.Candidate + ", provider", k, true, steps(run.Series.Step, theirs)})
	}
	seconds, ms, mbit := axis{unit: "s"}, axis{unit: "ms"}, axis{unit: "Mbit/s"}
	var all []chart
	for i, name := range probes {
		what := "the UDP probe"
		if kinds[i] != "udp" {
			what = kinds[i] + " (" + name + ")"
		}
		all = append(all, chart{"Round trip of " + what + " over time", seconds, ms, overTime[i]},
			chart{"Round trip of " + what + ": share of samples at or below", ms, axis{unit: "%"}, share[i]})
	}
	all = append(all, chart{"Goodput over time", seconds, mbit, goodput},
		chart{"Goodput of each flow, the fastest first", axis{whole: true}, mbit, perFlow},
		chart{fmt.Sprintf("Queues: here (solid) and at the %s (dashed)", provider), seconds, axis{unit: "KiB"}, queues})
	return slices.DeleteFunc(all, func(c chart) bool { return len(c.lines) == 0 })
}

//go:embed chart.css
var chartStyle string

// RoundTrips draws the round trips of a point's first probe over time as an SVG file, of the candidates that are named.
func RoundTrips(w io.Writer, title string, p *verdict.Point, candidates ...string) error {
	all := charts(p)
	if len(all) == 0 {
		return errors.New("no probe was sent, so there is nothing to draw")
	}
	c := all[0]
	c.name = title
	c.lines = slices.DeleteFunc(c.lines, func(l line) bool { return !slices.Contains(candidates, l.name) })
	if len(c.lines) != len(candidates) {
		return fmt.Errorf("of %q not all were measured", candidates)
	}
	_, err := io.WriteString(w, c.file(chartStyle))
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

func steps(step float64, values []float64) []point {
	xys := make([]point, len(values))
	for i, v := range values {
		xys[i] = point{float64(i+1) * step, v}
	}
	return xys
}

// ranked lists flows by what they got.
func ranked(flows []measure.Flow) []point {
	var v []float64
	for _, f := range flows {
		v = append(v, f.Goodput)
	}
	slices.Sort(v)
	slices.Reverse(v)
	xys := make([]point, len(v))
	for i := range v {
		xys[i] = point{float64(i + 1), v[i]}
	}
	return xys
}

// peaks thins a line by keeping the highest sample of each stretch, so that no spike is lost. Lost samples are left
// out.
func peaks(at, values []float64) []point {
	stretch := (len(values) + maxPoints - 1) / maxPoints
	var xys []point
	for i := 0; i < len(values); i += max(1, stretch) {
		best := -1
		for k := i; k < min(i+stretch, len(values)); k++ {
			if values[k] >= 0 && (best < 0 || values[k] > values[best]) {
				best = k
			}
		}
		if best >= 0 {
			xys = append(xys, point{at[best], values[best]})
		}
	}
	return xys
}

// distribution is the share of values, in percent, at or below each. Lost samples are left out.
func distribution(values []float64) []point {
	var s []float64
	for _, v := range values {
		if v >= 0 {
			s = append(s, v)
		}
	}
	slices.Sort(s)
	xys := []point{{s[0], 0}}
	for i := range maxPoints {
		k := i * (len(s) - 1) / (maxPoints - 1)
		xys = append(xys, point{s[k], 100 * float64(k+1) / float64(len(s))})
	}
	return xys
}
