// SPDX-License-Identifier: Apache-2.0

package measure

import (
	"fmt"
	"strings"

	"weir/internal/units"
)

// Change is an event while a run is measured: from At on, in seconds since the measurement began, the link can carry
// Capacity Mbit/s of payload.
type Change struct {
	At       float64
	Capacity float64
}

// calmFor is how long no sample may be above the threshold, in seconds, for a link to be called calm.
const calmFor = 1

const (
	calmAfterChange = "calm.after.change."
	calmAfterFlow   = "calm.after.flow."
	usedBetween     = "utilisation."
)

// parseCalm reads calm.after.change.LIMIT and calm.after.flow.NAME.LIMIT; false for any other name.
func parseCalm(name string) (Metric, bool, error) {
	m := Metric{Name: name, Unit: "s", Kind: "udp", awaited: func(Setup) bool { return true }}
	var event func(Setup) (float64, bool)
	var text string
	if rest, ok := strings.CutPrefix(name, calmAfterChange); ok {
		text, m.Heading, m.AfterChange = rest, "calm after change", true
		event = func(s Setup) (float64, bool) {
			if len(s.Changes) == 0 {
				return 0, false
			}
			return s.Changes[len(s.Changes)-1].At, true
		}
	} else if rest, ok := strings.CutPrefix(name, calmAfterFlow); ok {
		m.AfterFlow, text, _ = strings.Cut(rest, ".")
		m.Heading = "calm after " + m.AfterFlow
		event = func(s Setup) (at float64, ok bool) { at, ok = s.Starts[m.AfterFlow]; return }
	} else {
		return m, false, nil
	}
	limit, err := units.ParseDuration(text)
	if err != nil {
		return m, true, fmt.Errorf("metric %q: the added delay that is still calm: %w", name, err)
	}
	m.read = func(s Setup, r *Run) (float64, bool) {
		at, ok := event(s)
		if !ok {
			return 0, false
		}
		for i := range r.Probes {
			if p := &r.Probes[i]; p.Kind == m.Kind {
				return p.calmAfter(at, limit.Seconds()*1e3, r.Seconds)
			}
		}
		return 0, false
	}
	return m, true, nil
}

// calmAfter is how long after an event a whole second begins in which every sample has an answer. None of them waited
// longer than limit, in ms above the base RTT. It is false if there is none until the end, or no sample.
func (p *Probe) calmAfter(event, limit, end float64) (float64, bool) {
	begin, sampled := event, false
	for i, at := range p.At {
		if at < event {
			continue
		}
		if sampled && at >= begin+calmFor {
			return begin - event, true
		}
		sampled = true
		if p.Series[i] < 0 || p.Series[i]-p.Base > limit {
			begin = end
			if i+1 < len(p.At) {
				begin = p.At[i+1]
			}
		}
	}
	return begin - event, sampled && begin+calmFor <= end
}

// parseWindow reads utilisation.FROM-TO; false for any other name.
func parseWindow(name string) (Metric, bool, error) {
	rest, ok := strings.CutPrefix(name, usedBetween)
	if !ok {
		return Metric{}, false, nil
	}
	a, b, _ := strings.Cut(rest, "-")
	from, err := units.ParseDuration(a)
	if err != nil {
		return Metric{}, true, fmt.Errorf("metric %q: %w", name, err)
	}
	to, err := units.ParseDuration(b)
	if err == nil && to <= from {
		err = fmt.Errorf("the time from %v to %v is none", from, to)
	}
	if err != nil {
		return Metric{}, true, fmt.Errorf("metric %q: %w", name, err)
	}
	m := Metric{Name: name, Unit: "%", Heading: "of link " + rest, From: from, To: to}
	m.read = func(s Setup, r *Run) (float64, bool) {
		return r.Series.utilisation(s, from.Seconds()-s.Warmup, to.Seconds()-s.Warmup)
	}
	return m, true, nil
}

// utilisation is the goodput of what the link could carry, in percent, over the steps of the series whose middle lies
// between from and to. It is false if the series does not reach so far.
func (x *Series) utilisation(s Setup, from, to float64) (float64, bool) {
	if s.Capacity == 0 || len(x.Goodput) == 0 || x.Step == 0 {
		return 0, false
	}
	var goodput, capacity float64
	var until float64
	for i := range x.Goodput[0].Values {
		middle := (float64(i) + 0.5) * x.Step
		until = middle + x.Step/2
		if middle < from || middle >= to {
			continue
		}
		capacity += s.capacityAt(middle)
		for _, flow := range x.Goodput {
			goodput += flow.Values[i]
		}
	}
	const rounding = 1e-6 // of sums of steps, in seconds
	return 100 * goodput / max(capacity, 1e-9), capacity > 0 && until+x.Step+rounding >= to
}

// capacityAt is what the link can carry at a time since the measurement began.
func (s Setup) capacityAt(at float64) float64 {
	capacity := s.Capacity
	for _, c := range s.Changes {
		if c.At <= at {
			capacity = c.Capacity
		}
	}
	return capacity
}
