// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"weir/internal/measure"
	"weir/internal/units"
)

// Claim is a published statement put as a number: a metric of a candidate, perhaps over another candidate's, and what
// it is said to be.
type Claim struct {
	Source    string            `toml:"source" json:"source"` // where it was said
	Says      string            `toml:"says" json:"says"`     // in its own words, or close
	Metric    string            `toml:"metric" json:"metric"`
	Candidate string            `toml:"candidate" json:"candidate"`
	Over      string            `toml:"over" json:"over,omitempty"`   // a candidate: the value is divided by this one's
	Minus     string            `toml:"minus" json:"minus,omitempty"` // a candidate: this one's value is subtracted
	Expect    string            `toml:"expect" json:"expect"`         // "54.78ms ±10%", "15..24", "<= 0.25ms", ">= 99%"
	When      map[string]string `toml:"when" json:"when,omitempty"`   // axis = value: only there
	Note      string            `toml:"note" json:"note,omitempty"`   // what the measurement teaches
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
	Claim
	Verdict string     `json:"verdict"`
	Holds   string     `json:"holds,omitempty"` // for OnlyWhen: where
	At      []Measured `json:"at"`              // what was measured, point by point
	Unit    string     `json:"unit"`
}

// Measured is a claim's value at one point of the sweep, over the seeds.
type Measured struct {
	Labels []string       `json:"labels,omitempty"`
	Value  measure.Spread `json:"value"`
	// there is no value: what was to be measured did not happen. It does not hold.
	None  bool `json:"none,omitempty"`
	Holds bool `json:"holds"`
}

func (c Claim) check(s *Scenario, axes []Axis) *problem {
	m, err := parseMetric(c.Metric)
	if err == nil {
		err = m.of(s)
	}
	if err != nil {
		return wrong("", nil, "claim: %v", err)
	}
	if c.Source == "" || c.Says == "" {
		return wrong("", nil, "claim on %s: it needs a source and what it says", c.Metric)
	}
	names := []string{c.Candidate}
	for _, other := range []string{c.Over, c.Minus} {
		if other != "" {
			names = append(names, other)
		}
	}
	for _, name := range names {
		if !slices.ContainsFunc(s.Candidate, func(k Candidate) bool { return k.Name == name }) {
			return wrong("", nil, "claim: no candidate is called %q", name)
		}
	}
	if c.Over != "" && c.Minus != "" {
		return wrong("", nil, "claim: over and minus exclude each other")
	}
	if _, err := parseExpectation(c.Expect, c.unit(m)); err != nil {
		return wrong("", nil, "claim: %v", err)
	}
	for key, value := range c.When {
		i := slices.IndexFunc(axes, func(a Axis) bool { return a.Key == key })
		if i < 0 {
			return wrong("", nil, "claim: when %s: the sweep has no such axis", key)
		}
		if !slices.ContainsFunc(axes[i].Values, func(v any) bool { return quantity(v) == value }) {
			return wrong("", nil, "claim: when %s = %s: the sweep has no such value", key, value)
		}
	}
	return nil
}

// unit of the claim's value: a ratio has none.
func (c Claim) unit(m metric) string {
	if c.Over != "" {
		return ""
	}
	return m.unit
}

// judge gives the verdict on c over all points that it is about. A value is the median over the seeds.
func (c Claim) judge(axes []Axis, points []PointResult) Verdict {
	m, _ := parseMetric(c.Metric)
	want, _ := parseExpectation(c.Expect, c.unit(m))
	v := Verdict{Claim: c, Unit: c.unit(m)}
	var holding, all [][]string
	for i := range points {
		p := &points[i]
		if !c.about(axes, p) {
			continue
		}
		value, ok := c.value(Metric{m}, p)
		at := Measured{Labels: p.Labels, Value: value, None: !ok, Holds: ok && want.holds(value.Median)}
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

// where says in few words at which of all points something holds: an axis on which it does not depend is not mentioned.
// A point is its labels, one an axis.
func where(holding, all [][]string) string {
	if len(all) == 0 || len(holding) == len(all) {
		return ""
	}
	// An axis one value of which decides everything that holds: name the values, and look at the rest.
	for axis := range all[0] {
		var parts []string
		whole := true // nothing depends on the other axes
		for _, value := range values(all, axis) {
			mine, possible := with(holding, axis, value), with(all, axis, value)
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
			mine := with(holding, axis, value)
			inner := where(mine, with(all, axis, value))
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

func with(points [][]string, axis int, value string) [][]string {
	var list [][]string
	for _, p := range points {
		if p[axis] == value {
			list = append(list, p)
		}
	}
	return list
}

func (c Claim) about(axes []Axis, p *PointResult) bool {
	for i, axis := range axes {
		if want, ok := c.When[axis.Key]; ok && p.Values[i] != want {
			return false
		}
	}
	return true
}

func (c Claim) value(m Metric, p *PointResult) (measure.Spread, bool) {
	of := func(name string) (measure.Spread, bool) {
		i := slices.IndexFunc(p.Cells, func(k Cell) bool { return k.Candidate == name })
		if i < 0 {
			return measure.Spread{}, false
		}
		return m.Of(p, &p.Cells[i])
	}
	mine, ok := of(c.Candidate)
	if !ok || c.Over == "" && c.Minus == "" {
		return mine, ok
	}
	if c.Minus != "" {
		other, ok := of(c.Minus)
		return measure.Spread{Median: mine.Median - other.Median, Min: mine.Min - other.Max, Max: mine.Max - other.Min},
			ok
	}
	other, ok := of(c.Over)
	if !ok || other.Median == 0 {
		return measure.Spread{}, false
	}
	// A ratio's range: the least of mine over the most of the other's, and the reverse.
	return measure.Spread{Median: mine.Median / other.Median, Min: mine.Min / max(other.Max, 1e-12),
		Max: mine.Max / max(other.Min, 1e-12)}, true
}

// expectation is a closed range.
type expectation struct{ from, to float64 }

func (e expectation) holds(v float64) bool { return v >= e.from && v <= e.to }

// parseExpectation reads "15..24", "<= 0.25ms", ">= 99%", "54.78ms ±10%"; every number carries the metric's unit.
func parseExpectation(text, unit string) (expectation, error) {
	number := func(s string) (float64, error) { return inUnit(strings.TrimSpace(s), unit) }
	text = strings.TrimSpace(text)
	if rest, ok := strings.CutPrefix(text, "<="); ok {
		to, err := number(rest)
		return expectation{math.Inf(-1), to}, err
	}
	if rest, ok := strings.CutPrefix(text, ">="); ok {
		from, err := number(rest)
		return expectation{from, math.Inf(1)}, err
	}
	if a, b, ok := strings.Cut(text, ".."); ok {
		from, err := number(a)
		if err != nil {
			return expectation{}, err
		}
		to, err := number(b)
		if err == nil && to < from {
			err = fmt.Errorf("expect %q: the range is empty", text)
		}
		return expectation{from, to}, err
	}
	if a, b, ok := strings.Cut(text, "±"); ok {
		middle, err := number(a)
		if err != nil {
			return expectation{}, err
		}
		part, err := units.ParseShare(strings.TrimSpace(b))
		return expectation{middle - math.Abs(middle)*float64(part), middle + math.Abs(middle)*float64(part)}, err
	}
	return expectation{}, fmt.Errorf(`expect %q: write it like "15..24", "<= 0.25ms", ">= 99%%" or "48.3ms ±5%%"`, text)
}

// inUnit reads a number with the metric's unit, or a plain one where the metric has none.
func inUnit(s, unit string) (float64, error) {
	plain := func(s string) (float64, error) {
		v, err := strconv.ParseFloat(s, 64)
		if err != nil || math.IsNaN(v) || math.IsInf(v, 0) {
			return 0, fmt.Errorf("expect: %q is not a number", s)
		}
		return v, nil
	}
	switch unit {
	case "ms", "s":
		negative := strings.HasPrefix(s, "-")
		d, err := units.ParseDuration(strings.TrimPrefix(s, "-"))
		v := float64(d) / 1e6
		if unit == "s" {
			v = float64(d) / 1e9
		}
		if negative {
			v = -v
		}
		return v, err
	case "mbit":
		r, err := units.ParseRate(s)
		return float64(r) / 1e6, err
	case "%":
		number, ok := strings.CutSuffix(s, "%")
		if !ok {
			return 0, fmt.Errorf("expect: %q has no unit: write it like 10%%", s)
		}
		return plain(number)
	case "kb":
		z, err := units.ParseSize(s)
		return float64(z) / 1024, err
	}
	return plain(s)
}
