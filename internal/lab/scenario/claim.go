// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"weir/internal/lab/measure"
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

func (c Claim) check(s *Scenario, axes []Axis) *problem {
	m, err := measure.ParseMetric(c.Metric)
	if err == nil {
		err = s.measures(m)
	}
	if err != nil {
		return errAt("", nil, "claim: %v", err)
	}
	if c.Source == "" || c.Says == "" {
		return errAt("", nil, "claim on %s: it needs a source and what it says", c.Metric)
	}
	names := []string{c.Candidate}
	for _, other := range []string{c.Over, c.Minus} {
		if other != "" {
			names = append(names, other)
		}
	}
	for _, name := range names {
		if !slices.ContainsFunc(s.Candidate, func(k candidate) bool { return k.Name == name }) {
			return errAt("", nil, "claim: no candidate is called %q", name)
		}
	}
	if c.Over != "" && c.Minus != "" {
		return errAt("", nil, "claim: over and minus exclude each other")
	}
	if _, err := parseExpectation(c.Expect, c.Unit()); err != nil {
		return errAt("", nil, "claim: %v", err)
	}
	for key, value := range c.When {
		i := slices.IndexFunc(axes, func(a Axis) bool { return a.Key == key })
		if i < 0 {
			return errAt("", nil, "claim: when %s: the sweep has no such axis", key)
		}
		if !slices.ContainsFunc(axes[i].Values, func(v any) bool { return quantity(v) == value }) {
			return errAt("", nil, "claim: when %s = %s: the sweep has no such value", key, value)
		}
	}
	return nil
}

// Unit of the claim's value: a ratio has none.
func (c Claim) Unit() string {
	m, err := measure.ParseMetric(c.Metric)
	if err != nil || c.Over != "" {
		return ""
	}
	return m.Unit
}

// Holds reports whether a value is as the claim says.
func (c Claim) Holds(value float64) bool {
	want, err := parseExpectation(c.Expect, c.Unit())
	return err == nil && want.holds(value)
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

// measures checks that a metric is about something that the scenario has.
func (s *Scenario) measures(m measure.Metric) error {
	parts := strings.SplitN(m.Name, ".", 3)
	has := func(names []string, what string) error {
		name := parts[len(parts)-1]
		if slices.Contains(names, name) {
			return nil
		}
		return fmt.Errorf("metric %q: no %s is called %q (there are: %s)", m.Name, what, name,
			strings.Join(names, ", "))
	}
	switch {
	case strings.HasPrefix(m.Name, "goodput.client."), strings.HasPrefix(m.Name, "share.client."):
		return has(names(s.Client, func(c Client) string { return c.Name }), "client")
	case m.Program != "":
		known := slices.Clone(s.Program)
		for _, c := range s.Candidate {
			known = append(known, c.Program...)
		}
		if slices.ContainsFunc(known, func(p Program) bool { return p.Name == m.Program && p.Find != "" }) {
			return nil
		}
		return fmt.Errorf("metric %q: no program of that name has a number to find", m.Name)
	case parts[0] == "fetch" && len(parts) == 3:
		parts = parts[:2]
		fetched := slices.DeleteFunc(slices.Clone(s.Flow), func(f Flow) bool { return f.Bytes == 0 })
		return has(names(fetched, func(f Flow) string { return f.Name }), "flow with bytes")
	case strings.HasPrefix(m.Name, "goodput.flow."):
		return has(names(s.Flow, func(f Flow) string { return f.Name }), "flow")
	case parts[0] == "ratio":
		all := names(s.Flow, func(f Flow) string { return f.Name })
		err := has(all, "flow")
		parts = parts[:2]
		return errors.Join(err, has(all, "flow"))
	case (parts[0] == "probe" || parts[0] == "added") && len(parts) == 3:
		parts = parts[:2]
		return has(names(s.Probe, func(p Probe) string { return p.Name }), "probe")
	}
	kind := m.Kind
	if kind != "" && !slices.ContainsFunc(s.Probe, func(p Probe) bool { return p.Kind == kind }) {
		return fmt.Errorf("metric %q: the scenario has no probe of kind %s", m.Name, kind)
	}
	if m.Fetches && !slices.ContainsFunc(s.Flow, func(f Flow) bool { return f.Bytes > 0 }) {
		return fmt.Errorf("metric %q: no flow has bytes to fetch", m.Name)
	}
	return s.measuresPart(m)
}

// measuresPart checks a metric that is about a part of the run: the part has to be measured.
func (s *Scenario) measuresPart(m measure.Metric) error {
	measured := func(at units.Duration) bool { return at >= s.Warmup && at <= s.Warmup+s.Duration }
	name := m.Name
	if m.To != 0 && !(measured(units.Duration(m.From)) && measured(units.Duration(m.To))) {
		return fmt.Errorf("metric %q: what is measured begins at %v and ends at %v", name, s.Warmup,
			s.Warmup+s.Duration)
	}
	if m.AfterChange {
		changes := s.Provider.Change
		if len(changes) == 0 || !measured(changes[len(changes)-1].At) {
			return fmt.Errorf("metric %q: no [[provider.change]] is after the warm-up", name)
		}
	}
	flow := m.AfterFlow
	if flow == "" {
		return nil
	}
	i := slices.IndexFunc(s.Flow, func(f Flow) bool { return f.Name == flow })
	if i < 0 {
		return fmt.Errorf("metric %q: no flow is called %q", name, flow)
	}
	if !measured(s.Flow[i].Start) {
		return fmt.Errorf("metric %q: flow %q starts at %v, which is before the end of the warm-up", name, flow,
			s.Flow[i].Start)
	}
	return nil
}

func names[T any](list []T, name func(T) string) []string {
	var all []string
	for _, x := range list {
		all = append(all, name(x))
	}
	return all
}
