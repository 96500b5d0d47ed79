// SPDX-License-Identifier: Apache-2.0

// Package report shows results: as a table on a terminal, as Markdown, as one HTML file with pictures. JSON is the
// results themselves.
//
// It computes nothing that is not in the results, and every form shows the same numbers, formatted by the same
// function.
package report

import (
	"fmt"
	"slices"
	"strings"

	"weir/internal/lab/measure"
	"weir/internal/lab/scenario"
	"weir/internal/lab/verdict"
	"weir/internal/page"
	"weir/internal/stats"
)

// table is one point of a scenario, ready to be drawn.
type table struct {
	label   string // the point; empty when there is but one
	columns []measure.Metric
	rows    []row
}

type row struct {
	candidate string
	cells     []string
	words     string
}

// tables makes one table for each point of the report.
func tables(r *verdict.Report) []table {
	var all []table
	for i := range r.Points {
		p := &r.Points[i]
		t := table{label: strings.Join(p.Labels, ", ")}
		for _, name := range columns(p) {
			if m, err := measure.ParseMetric(name); err == nil && hasValues(m, p) {
				t.columns = append(t.columns, m)
			}
		}
		for k := range p.Cells {
			c := &p.Cells[k]
			line := row{candidate: c.Candidate, words: c.Words}
			for _, m := range t.columns {
				text := "–"
				if v, ok := p.Of(m, c); ok {
					text = spread(v, m.Unit, len(c.Runs))
				}
				line.cells = append(line.cells, text)
			}
			t.rows = append(t.rows, line)
		}
		all = append(all, t)
	}
	return all
}

// hasValues reports whether a column has anything to show: a value, or that what was waited for never came.
func hasValues(m measure.Metric, p *verdict.Point) bool {
	for k := range p.Cells {
		if v, ok := p.Of(m, &p.Cells[k]); ok || v.Missing > 0 {
			return true
		}
	}
	return false
}

// columns are the scenario's own, or those that its traffic gives.
func columns(p *verdict.Point) []string {
	s := p.Scenario
	if len(s.Columns) > 0 {
		return s.Columns
	}
	names := []string{"goodput"}
	if bothWays(s) {
		names = []string{"goodput.down", "goodput.up"}
	}
	if len(s.Client) > 1 && len(s.Client) <= 4 {
		for _, c := range s.Client {
			names = append(names, "goodput.client."+c.Name)
		}
	}
	names = append(names, "fetch", "unfinished")
	names = append(names, probeColumns(s, "udp", "added.p50", "added.p99", "jitter")...)
	names = append(names, probeColumns(s, "ssh", "ssh.p50", "ssh.p99")...)
	names = append(names, probeColumns(s, "request", "request.p50", "request.p99")...)
	names = append(names, probeColumns(s, "stream", "stream.p99")...)
	return append(names, "lost", "provider.drops")
}

// bothWays reports whether some flows are downloads and some uploads, whose goodput is not one figure.
func bothWays(s scenario.Scenario) bool {
	download := func(f scenario.Flow) bool { return !upload(f) }
	return slices.ContainsFunc(s.Flow, upload) && slices.ContainsFunc(s.Flow, download)
}

func upload(f scenario.Flow) bool { return f.Direction == "up" }

// probeColumns are the columns of a kind of probe: where there are several, two of each by its name.
func probeColumns(s scenario.Scenario, kind string, columns ...string) []string {
	var names []string
	for _, p := range s.Probe {
		if p.Kind == kind {
			names = append(names, p.Name)
		}
	}
	if len(names) < 2 {
		return columns
	}
	family := "probe."
	if kind == "udp" {
		family = "added."
	}
	columns = nil
	for _, name := range names {
		columns = append(columns, family+name+".p50", family+name+".p99")
	}
	return columns
}

// spread shows the median, and with several seeds the range beside it.
func spread(v stats.Spread, unit string, runs int) string {
	if runs < 2 || v.Min == v.Max && v.Missing == 0 {
		return page.Number(v.Median, unit)
	}
	most := page.Number(v.Max, unit)
	if v.Missing > 0 {
		most = "never"
	}
	return fmt.Sprintf("%s [%s..%s]", page.Number(v.Median, unit), page.Number(v.Min, unit), most)
}

// unitName is how a heading names a unit.
func unitName(unit string) string {
	switch unit {
	case "mbit":
		return "Mbit/s"
	case "kb":
		return "KiB"
	case "packets":
		return ""
	}
	return unit
}

// setting describes what a table was measured on: rate, RTT, provider, traffic.
func setting(s scenario.Scenario) string {
	var parts []string
	switch in := s.Provider.Inward(); {
	case in != s.Provider.Rate:
		parts = append(parts, fmt.Sprintf("%v out, %v in", s.Provider.Rate, in))
	case s.Provider.Rate != 0:
		parts = append(parts, s.Provider.Rate.String())
	}
	parts = append(parts, s.Path.RTT.String())
	if s.Path.IP == 6 {
		parts = append(parts, "IPv6")
	}
	switch s.Provider.Queue {
	case "none":
		parts = append(parts, "no provider limit")
	case "fifo":
		parts = append(parts, fmt.Sprintf("provider: %v FIFO", s.Provider.Buffer))
	case "policer":
		parts = append(parts, fmt.Sprintf("provider: policer, %v burst", s.Provider.Burst))
	case "bucket":
		bucket := fmt.Sprintf("provider: %v FIFO, %v burst credit", s.Provider.Buffer, s.Provider.Burst)
		if s.Provider.Peak != 0 {
			bucket += fmt.Sprintf(" at %v", s.Provider.Peak)
		}
		parts = append(parts, bucket)
	default:
		parts = append(parts, "provider: "+scenario.Rated(s.Provider.Queue, s.Provider.Rate))
	}
	if s.Path.Loss > 0 {
		parts = append(parts, fmt.Sprintf("loss %v", s.Path.Loss))
	}
	if s.Path.Jitter > 0 {
		parts = append(parts, fmt.Sprintf("jitter %v", s.Path.Jitter))
	}
	if s.Path.Reorder > 0 {
		parts = append(parts, fmt.Sprintf("%v reordered", s.Path.Reorder))
	}
	switch {
	case s.OneCard():
		parts = append(parts, fmt.Sprintf("relay on one card: %s, origin %v away", s.Relay.Kind, s.Relay.RTT))
	case s.Server.GRO:
		parts = append(parts, "forwarded, joined")
	case s.Server.Relay:
		parts = append(parts, "forwarded")
	}
	if s.Server.Queues > 1 {
		parts = append(parts, fmt.Sprintf("%d queues", s.Server.Queues))
	}
	for _, c := range s.Client {
		switch {
		case c.Rate != 0 && c.Upload != c.Rate:
			parts = append(parts, fmt.Sprintf("%s has %v, up %v", c.Name, c.Rate, c.Upload))
		case c.Rate != 0:
			parts = append(parts, fmt.Sprintf("%s has %v", c.Name, c.Rate))
		}
	}
	return strings.Join(append(parts, traffic(s)...), " · ")
}

// traffic describes each flow. A row of many that are alike but for their names is said once.
func traffic(s scenario.Scenario) (parts []string) {
	const many = 4
	for i := 0; i < len(s.Flow); {
		f, alike := s.Flow[i], 1
		for i+alike < len(s.Flow) && s.Flow[i+alike].Count == f.Count && detail(s, s.Flow[i+alike]) == detail(s, f) {
			alike++
		}
		name := f.Name
		if alike >= many {
			name = "each of " + f.Name + " to " + s.Flow[i+alike-1].Name
		} else {
			alike = 1
		}
		parts = append(parts, fmt.Sprintf("%d × %s%s", f.Count, name, detail(s, f)))
		i += alike
	}
	return parts
}

// detail is what is to be said of a flow behind its name.
func detail(s scenario.Scenario, f scenario.Flow) (text string) {
	switch {
	case upload(f) && len(s.Client) > 1:
		text += " from " + f.Client
	case upload(f):
		text += " up"
	case len(s.Client) > 1:
		text += " to " + f.Client
	case bothWays(s):
		text += " down"
	}
	if f.CC != "" {
		text += " (" + f.CC + ")"
	}
	if f.Host == scenario.Neighbour {
		text += " from the neighbour"
	}
	switch {
	case f.Every > 0:
		text += fmt.Sprintf(" at random every %v, %v each (%s)", f.Every, f.Bytes, f.Sizes)
	case f.Chunk > 0:
		text += fmt.Sprintf(", %v every %v", f.Chunk, f.Interval)
	}
	return text
}

// basis says how the numbers came about.
func basis(r *verdict.Report) string {
	if len(r.Points) == 0 || len(r.Points[0].Cells) == 0 {
		return ""
	}
	s := r.Points[0].Scenario
	seeds := "seed 1"
	if s.Seeds > 1 {
		seeds = fmt.Sprintf("median [range] of %d seeds", s.Seeds)
	}
	return fmt.Sprintf("linux %s, virtual time, %v after %v of warm-up, %s", r.Kernel, s.Duration, s.Warmup, seeds)
}

// measuredText is what a claim's verdict rests on: each point's value, or of many points the range where it holds and
// where it does not.
func measuredText(v verdict.Verdict) string {
	const few = 4
	unit := unitName(v.Unit)
	if v.Over != "" {
		unit = "×"
	}
	if v.Verdict == verdict.NotMeasured {
		return "nothing: it did not happen in the run"
	}
	if len(v.At) <= few {
		var parts []string
		for _, at := range v.At {
			text := "none"
			if !at.None {
				text = rangeText(at.Value.Median, at.Value.Median, v.Unit, unit)
			}
			if least, most := page.Number(at.Value.Min, v.Unit), page.Number(at.Value.Max, v.Unit); least != most {
				text += fmt.Sprintf(" [%s..%s]", least, most)
			}
			if len(at.Labels) > 0 {
				text = strings.Join(at.Labels, ", ") + ": " + text
			}
			parts = append(parts, text)
		}
		return strings.Join(parts, "; ")
	}
	var parts []string
	for _, holds := range []bool{true, false} {
		var values []float64
		for _, at := range v.At {
			if at.Holds == holds && !at.None {
				values = append(values, at.Value.Median)
			}
		}
		if len(values) == 0 {
			continue
		}
		text := rangeText(slices.Min(values), slices.Max(values), v.Unit, unit)
		if v.Verdict == verdict.OnlyWhen {
			text = map[bool]string{true: "there ", false: "elsewhere "}[holds] + text
		}
		points := "1 point"
		if len(values) > 1 {
			points = fmt.Sprintf("%d points", len(values))
		}
		parts = append(parts, fmt.Sprintf("%s (%s)", text, points))
	}
	return strings.Join(parts, "; ")
}

func rangeText(from, to float64, unit, name string) string {
	text := page.Number(from, unit)
	if last := page.Number(to, unit); last != text {
		text += " to " + last
	}
	return strings.TrimSpace(text + " " + name)
}
