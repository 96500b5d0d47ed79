// SPDX-License-Identifier: Apache-2.0

// Package verdict holds what runs of a scenario have measured, says it in words, and judges the scenario's claims by
// it.
//
// It may not run anything: it is a pure function of a scenario and its runs.
package verdict

import (
	"slices"
	"strings"

	"weir/internal/lab/measure"
	"weir/internal/lab/scenario"
	"weir/internal/stats"
)

// Cell is one candidate at one point of the sweep: as many runs as the scenario has seeds.
type Cell struct {
	Candidate string        `json:"candidate"`
	Runs      []measure.Run `json:"runs"`
	Words     string        `json:"words"` // what happened and why, in a sentence
}

// Point is all candidates at one point of the sweep.
type Point struct {
	Labels   []string          `json:"labels,omitempty"`
	Values   []string          `json:"values,omitempty"`
	Scenario scenario.Scenario `json:"scenario"`
	Cells    []Cell            `json:"cells"`
}

// Report is a scenario file, run.
type Report struct {
	File    string    `json:"file"`
	Title   string    `json:"title"`
	About   string    `json:"about,omitempty"`
	Command string    `json:"command"` // that makes this report again
	Version string    `json:"version"` // of weir-lab and of the weir beside it
	Kernel  string    `json:"kernel"`
	Points  []Point   `json:"points"`
	Claims  []Verdict `json:"claims,omitempty"`
}

// Of returns a metric over a cell's runs; false when they have no such thing.
func (p *Point) Of(m measure.Metric, c *Cell) (stats.Spread, bool) {
	return m.Of(p.Scenario.Setup(), c.Runs)
}

// The verdicts.
const (
	NotMeasured   = "not measured" // no point has a value
	Reproduced    = "reproduced"
	NotReproduced = "not reproduced"
	OnlyWhen      = "reproduced only when"
)

// Verdict is a claim, judged.
type Verdict struct {
	scenario.Claim
	Verdict string     `json:"verdict"`
	Holds   string     `json:"holds,omitempty"` // for OnlyWhen: where
	At      []Measured `json:"at"`              // what was measured, point by point
	Unit    string     `json:"unit"`
}

// Measured is a claim's value at one point of the sweep, over the seeds.
type Measured struct {
	Labels []string     `json:"labels,omitempty"`
	Value  stats.Spread `json:"value"`
	// there is no value: what was to be measured did not happen. It does not hold.
	None  bool `json:"none,omitempty"`
	Holds bool `json:"holds"`
}

// Judge returns the verdict on a claim over all points that it is about. A value is the median over the seeds.
func Judge(c scenario.Claim, axes []scenario.Axis, points []Point) Verdict {
	m, _ := measure.ParseMetric(c.Metric)
	v := Verdict{Claim: c, Unit: c.Unit()}
	var holding, all [][]string
	for i := range points {
		p := &points[i]
		if !concerns(c, axes, p) {
			continue
		}
		got, ok := value(c, m, p)
		at := Measured{Labels: p.Labels, Value: got, None: !ok, Holds: ok && c.Holds(got.Median)}
		v.At = append(v.At, at)
		all = append(all, p.Labels)
		if at.Holds {
			holding = append(holding, p.Labels)
		}
	}
	switch {
	case !slices.ContainsFunc(v.At, func(m Measured) bool { return !m.None }):
		v.Verdict = NotMeasured
	case len(holding) == 0:
		v.Verdict = NotReproduced
	case len(holding) == len(all):
		v.Verdict = Reproduced
	default:
		v.Verdict = OnlyWhen
		v.Holds = where(holding, all)
	}
	return v
}

// where says in few words at which of all points something holds: an axis on which it does not depend is not
// mentioned. A point is its labels, one an axis.
func where(holding, all [][]string) string {
	if len(all) == 0 || len(holding) == len(all) {
		return ""
	}
	// An axis one value of which decides everything that holds: name the values, and look at the rest.
	for axis := range all[0] {
		var parts []string
		whole := true // nothing depends on the other axes
		for _, value := range values(all, axis) {
			mine, possible := withValue(holding, axis, value), withValue(all, axis, value)
			if len(mine) == 0 {
				continue
			}
			if len(mine) < len(possible) {
				whole = false
			}
			parts = append(parts, value)
		}
		if whole {
			return strings.Join(parts, " or ")
		}
	}
	// Otherwise case by case along the first axis that has cases.
	for axis := range all[0] {
		cases := values(all, axis)
		if len(cases) < 2 {
			continue
		}
		var parts []string
		for _, value := range cases {
			mine := withValue(holding, axis, value)
			inner := where(mine, withValue(all, axis, value))
			switch {
			case len(mine) == 0:
			case inner == "":
				parts = append(parts, value)
			default:
				parts = append(parts, value+", "+inner)
			}
		}
		return strings.Join(parts, "; ")
	}
	return ""
}

func values(points [][]string, axis int) []string {
	var list []string
	for _, p := range points {
		if !slices.Contains(list, p[axis]) {
			list = append(list, p[axis])
		}
	}
	return list
}

func withValue(points [][]string, axis int, value string) [][]string {
	var list [][]string
	for _, p := range points {
		if p[axis] == value {
			list = append(list, p)
		}
	}
	return list
}

func concerns(c scenario.Claim, axes []scenario.Axis, p *Point) bool {
	for i, axis := range axes {
		if want, ok := c.When[axis.Key]; ok && p.Values[i] != want {
			return false
		}
	}
	return true
}

func value(c scenario.Claim, m measure.Metric, p *Point) (stats.Spread, bool) {
	spreadOf := func(name string) (stats.Spread, bool) {
		i := slices.IndexFunc(p.Cells, func(k Cell) bool { return k.Candidate == name })
		if i < 0 {
			return stats.Spread{}, false
		}
		return p.Of(m, &p.Cells[i])
	}
	mine, ok := spreadOf(c.Candidate)
	if !ok || c.Over == "" && c.Minus == "" {
		return mine, ok
	}
	if c.Minus != "" {
		other, ok := spreadOf(c.Minus)
		return stats.Spread{Median: mine.Median - other.Median, Min: mine.Min - other.Max, Max: mine.Max - other.Min},
			ok
	}
	other, ok := spreadOf(c.Over)
	if !ok || other.Median == 0 {
		return stats.Spread{}, false
	}
	// A ratio's range: the least of mine over the most of the other's, and the reverse.
	return stats.Spread{Median: mine.Median / other.Median, Min: mine.Min / max(other.Max, 1e-12),
		Max: mine.Max / max(other.Min, 1e-12)}, true
}
