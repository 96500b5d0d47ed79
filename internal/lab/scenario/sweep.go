// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"cmp"
	"errors"
	"reflect"
	"slices"
	"strings"

	"github.com/pelletier/go-toml/v2"
)

// Point is one combination of a sweep's values.
type Point struct {
	Scenario Scenario
	Labels   []string // one an axis: "queue fifo", "count 4"
	Values   []string // one an axis, as claims select them
}

// Points expands the sweep and gives every value that was left out its default; a scenario without a sweep is a
// single point. The first axis varies slowest.
func (s *Scenario) Points() ([]Point, error) {
	points, bad := s.points()
	if bad != nil {
		return nil, errors.New(bad.what)
	}
	return points, nil
}

func (s *Scenario) points() ([]Point, *problem) {
	points := []Point{{Scenario: s.clone()}}
	for _, axis := range s.Sweep {
		var next []Point
		for _, p := range points {
			for i, value := range axis.Values {
				q := Point{Scenario: p.Scenario.clone(), Values: append(slices.Clone(p.Values), quantity(value))}
				label := axis.shortKey() + " " + quantity(value)
				if len(axis.Labels) > 0 {
					label = axis.Labels[i]
				}
				q.Labels = append(slices.Clone(p.Labels), label)
				if bad := q.Scenario.step(axis, value); bad != nil {
					bad.where = []string{"sweep", axis.Key}
					return nil, bad
				}
				next = append(next, q)
			}
		}
		points = next
	}
	for i := range points {
		points[i].Scenario.fillIn()
	}
	return points, nil
}

// Engines are those that the scenario's points are booted with.
func (s *Scenario) Engines() []string {
	points, _ := s.Points()
	var all []string
	for _, p := range points {
		if !slices.Contains(all, p.Scenario.Engine) {
			all = append(all, p.Scenario.Engine)
		}
	}
	return all
}

// SetEngine has the scenario booted with another engine than it says.
func (s *Scenario) SetEngine(engine string) error {
	for _, axis := range s.Sweep {
		if slices.Contains(axis.keys(), "engine") {
			return errors.New("the scenario sweeps the engine")
		}
	}
	s.Engine = engine
	if bad := s.checkAll(); bad != nil {
		return errors.New(bad.what)
	}
	return nil
}

// keys of an axis: one, or several that go together, as in "flow.a.count, flow.b.count".
func (a Axis) keys() []string {
	keys := strings.Split(a.Key, ",")
	for i := range keys {
		keys[i] = strings.TrimSpace(keys[i])
	}
	return keys
}

// shortKey is the last part of each key: count.
func (a Axis) shortKey() string {
	var last []string
	for _, key := range a.keys() {
		last = append(last, key[strings.LastIndex(key, ".")+1:])
	}
	return strings.Join(slices.Compact(last), ":")
}

// step gives the keys of an axis the values of one step: where there are several, an array of as many.
func (s *Scenario) step(axis Axis, value any) *problem {
	keys, values := axis.keys(), []any{value}
	if len(keys) > 1 {
		values, _ = value.([]any)
	}
	if len(values) != len(keys) {
		return errAt("values = [[1, 4], [4, 1]]", nil, "sweep of %s: %s is not a value for each of the %d keys",
			axis.Key, quantity(value), len(keys))
	}
	for i, key := range keys {
		if bad := s.set(key, values[i]); bad != nil {
			return bad
		}
	}
	return nil
}

// set gives one key of the scenario a value, through the decoder that read the file: so it means, and is refused, the
// same.
func (s *Scenario) set(key string, value any) *problem {
	parts := strings.Split(key, ".")
	if slices.Contains([]string{"inherit", "sweep", "claim"}, parts[0]) { // the decoder would take it, without effect
		return errAt("provider.rate, path.rtt, flow.NAME.count, …", nil, "sweep: %q is of the file, and of no run", key)
	}
	var target any = s
	named := len(parts) >= 3
	if named { // flow.NAME.count, candidate.NAME.weir.rtt: decode onto that entry
		switch parts[0] {
		case "flow":
			target = entry(s.Flow, func(f *Flow) string { return f.Name }, parts[1])
		case "probe":
			target = entry(s.Probe, func(p *Probe) string { return p.Name }, parts[1])
		case "client":
			target = entry(s.Client, func(c *Client) string { return c.Name }, parts[1])
		case "program":
			target = entry(s.Program, func(p *Program) string { return p.Name }, parts[1])
		case "candidate":
			target = entry(s.Candidate, func(c *candidate) string { return c.Name }, parts[1])
		default:
			target = nil
		}
		if target == nil {
			return errAt("flow.NAME.count, provider.rate, path.rtt, …", nil, "sweep: %q names nothing in this scenario",
				key)
		}
		parts = parts[2:]
	}
	document := map[string]any{}
	inner := document
	for _, part := range parts[:len(parts)-1] {
		next := map[string]any{}
		inner[part] = next
		inner = next
	}
	inner[parts[len(parts)-1]] = value
	text, err := toml.Marshal(document)
	if err != nil {
		return errAt("", nil, "sweep: %q: %v", key, err)
	}
	d := toml.NewDecoder(strings.NewReader(string(text)))
	d.DisallowUnknownFields()
	if err := d.Decode(target); err != nil {
		bad := positioned("", err).(*FileError)
		return errAt(bad.Try, nil, "sweep of %s = %s: %s", key, quantity(value), bad.What)
	}
	bare := findUnitless(document, reflect.TypeOf(target).Elem())
	if named {
		document = map[string]any{whose(key): document}
	}
	if p := cmp.Or(findZero(document), bare); p != nil {
		return errAt(p.try, nil, "sweep of %s: %s", key, p.what)
	}
	return nil
}

// whose is the section that a sweep's key is in.
func whose(key string) string {
	section, _, _ := strings.Cut(key, ".")
	return section
}

func entry[T any](list []T, name func(*T) string, want string) any {
	for i := range list {
		if name(&list[i]) == want {
			return &list[i]
		}
	}
	return nil
}
