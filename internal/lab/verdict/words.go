// SPDX-License-Identifier: Apache-2.0

package verdict

import (
	"fmt"
	"strings"

	"weir/internal/lab/scenario"
	"weir/internal/measure"
	"weir/internal/units"
)

// Describe puts into words, for each candidate, where the queue stood and what that did: from counters, never from
// names.
func Describe(p *Point) {
	for i := range p.Cells {
		p.Cells[i].Words = words(p, &p.Cells[i])
	}
}

// A queue that on average holds less than this many packets of 1514 bytes is not where packets wait.
const standing = 2

func words(p *Point, c *Cell) string {
	spread := func(read func(*measure.Run) float64) float64 {
		var v []float64
		for i := range c.Runs {
			v = append(v, read(&c.Runs[i]))
		}
		return measure.Median(v)
	}
	own := spread(func(r *measure.Run) float64 { return r.Uplink.Backlog.Mean })
	ownMax := spread(func(r *measure.Run) float64 { return r.Uplink.Backlog.Max })
	theirs := spread(func(r *measure.Run) float64 { return r.Provider.Backlog.Mean })
	inward := spread(func(r *measure.Run) float64 { return r.Inward.Mean() })
	drops := spread(func(r *measure.Run) float64 { return float64(r.Provider.Drops + r.Inward.Dropped()) })
	marks := spread(func(r *measure.Run) float64 { return float64(r.Uplink.Marks) })
	ownDrops := spread(func(r *measure.Run) float64 { return float64(r.Uplink.Drops) })
	packet := float64(standing) * 1514 / 1024
	kind, _, _ := strings.Cut(c.Runs[0].Uplink.Stack, " ")
	rate := p.Scenario.Provider.Rate
	changes := p.changes(c.Candidate)
	wait := func(kib float64) string {
		if len(changes) > 0 { // the queue's rate is not one
			return waitAt(kib, 0)
		}
		return waitAt(kib, rate)
	}
	var s []string
	for _, change := range changes {
		s = append(s, fmt.Sprintf("At %v changed to %s.", change.At, scenario.Rated(change.Qdisc, rate)))
	}
	switch {
	case inward > packet && inward >= theirs:
		out := ""
		if theirs > packet {
			out = " and " + waitAt(theirs, rate) + " on the way out"
		}
		here := "None"
		if own > packet {
			here = wait(own)
		}
		s = append(s, fmt.Sprintf(
			"The queue stands in the provider's box: %s on the way in%s, on average. %s stands here, in %s.",
			waitAt(inward, p.Scenario.Provider.Inward()), out, here, kind))
	case theirs > packet && ownMax == 0:
		s = append(s, fmt.Sprintf("The queue stands in the provider's box: %s of it on average, while %s here held "+
			"no packet in any of %d samples.",
			wait(theirs), kind, c.Runs[0].Uplink.Backlog.N))
	case theirs > packet && theirs > own:
		s = append(s, fmt.Sprintf("The queue stands in the provider's box: %s of it on average, against %s here.",
			wait(theirs), wait(own)))
	case own > packet && p.Scenario.Provider.Queue == "none":
		s = append(s, fmt.Sprintf("The queue stands here, in %s (%s on average).", kind, wait(own)))
	case own > packet && drops == 0 && theirs <= packet:
		s = append(s, fmt.Sprintf("The queue stands here, in %s (%s on average), and none at the provider.", kind,
			wait(own)))
	case own > packet:
		s = append(s, fmt.Sprintf("A queue stands here, in %s (%s on average).", kind, wait(own)))
	default:
		s = append(s, "No queue stands anywhere.")
	}
	if drops > 0 {
		s = append(s, fmt.Sprintf("The provider dropped %.0f packets.", drops))
	}
	switch {
	case ownDrops > 0 && marks > 0:
		s = append(s, fmt.Sprintf("%s dropped %.0f and marked %.0f.", kind, ownDrops, marks))
	case ownDrops > 0:
		s = append(s, fmt.Sprintf("%s dropped %.0f.", kind, ownDrops))
	case marks > 0:
		s = append(s, fmt.Sprintf("%s marked %.0f.", kind, marks))
	}
	if c.Runs[0].Uplink.DualPI2 != nil {
		share := func(name string) float64 {
			m, _ := measure.ParseMetric(name)
			of, _ := p.Of(m, c)
			return of.Median
		}
		s = append(s, fmt.Sprintf("Of its L packets %.2f %% waited longer than the step allows and left unmarked, "+
			"and %.2f %% were marked by the step and waited for less.",
			share("step.missed"), share("step.early")))
	}
	for _, x := range c.Runs[0].Programs {
		if x.Exit > 0 {
			last := ""
			if n := len(x.Output); n > 0 {
				last = ": " + x.Output[n-1]
			}
			s = append(s, fmt.Sprintf("Program %s ended with status %d%s", x.Program, x.Exit, last))
		}
	}
	limited := spread(func(r *measure.Run) float64 {
		return labLimited(r, func(f measure.Flow) bool { return p.Scenario.EndsAt(f.Flow) })
	})
	if limited > tolerated {
		s = append(s, fmt.Sprintf("Beware: a receiver in the lab held a flow back for %.0f %% of the time.",
			100*limited))
	}
	return strings.Join(s, " ")
}

// waitAt is how long an amount waits at a rate, or the amount where there is none.
func waitAt(kib float64, rate units.Rate) string {
	if rate == 0 {
		return fmt.Sprintf("%.0f KiB", kib)
	}
	return fmt.Sprintf("%.3gms", kib*1024*8/float64(rate)*1e3)
}

// changes of a candidate by name.
func (p *Point) changes(candidate string) []scenario.Change {
	for _, c := range p.Scenario.Candidate {
		if c.Name == candidate {
			return c.Change
		}
	}
	return nil
}

// tolerated is the share of a flow's time that the lab's receivers may cost it.
const tolerated = 0.05

// labLimited is the share of its time for which the worst flow waited for its receiver's window: a receiver here
// reads at once, so that a full window is the lab's doing. Flows that end are not looked at: they never fill it for
// long. Nor are those whose receiver is a program under test.
func labLimited(r *measure.Run, elsewhere func(measure.Flow) bool) float64 {
	worst := 0.0
	for _, f := range r.Flows {
		if f.Fetch == 0 && !elsewhere(f) {
			worst = max(worst, f.RwndLimited)
		}
	}
	return worst
}
