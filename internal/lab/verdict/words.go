// SPDX-License-Identifier: Apache-2.0

package verdict

import (
	"fmt"
	"slices"
	"strings"

	"weir/internal/lab/measure"
	"weir/internal/lab/scenario"
	"weir/internal/stats"
	"weir/internal/units"
	"weir/internal/wire"
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
	m := middle(c.Runs)
	kind, _, _ := strings.Cut(c.Runs[0].Uplink.Stack, " ")
	var s []string
	changes := p.changes(c.Candidate)
	for _, change := range changes {
		s = append(s, fmt.Sprintf("At %v changed to %s.", change.At,
			scenario.Rated(change.Qdisc, p.Scenario.Provider.Rate)))
	}
	s = append(s, m.where(p.Scenario.Provider, kind, len(changes) > 0, c.Runs[0].Uplink.Backlog.N))
	if m.drops > 0 {
		s = append(s, fmt.Sprintf("The provider dropped %.0f packets.", m.drops))
	}
	switch {
	case m.ownDrops > 0 && m.marks > 0:
		s = append(s, fmt.Sprintf("%s dropped %.0f and marked %.0f.", kind, m.ownDrops, m.marks))
	case m.ownDrops > 0:
		s = append(s, fmt.Sprintf("%s dropped %.0f.", kind, m.ownDrops))
	case m.marks > 0:
		s = append(s, fmt.Sprintf("%s marked %.0f.", kind, m.marks))
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
				last = ": " + strings.TrimSuffix(x.Output[n-1], ".")
			}
			s = append(s, fmt.Sprintf("Program %s ended with status %d%s.", x.Program, x.Exit, last))
		}
	}
	limited := median(c.Runs, func(r *measure.Run) float64 {
		return labLimited(r, func(f measure.Flow) bool { return p.Scenario.EndsAt(f.Flow) })
	})
	if limited > tolerated {
		s = append(s, fmt.Sprintf("Beware: a receiver in the lab held a flow back for %.0f %% of the time.",
			100*limited))
	}
	if slices.ContainsFunc(c.Runs, func(r measure.Run) bool { return r.TCPPressed }) {
		s = append(s, "Beware: TCP in the lab needed more memory than the lab has, so its connections were held back.")
	}
	return strings.Join(s, " ")
}

// queues are what waited on average, in KiB, and what was dropped and marked, in packets: the medians of some runs.
type queues struct{ own, ownMax, theirs, inward, drops, marks, ownDrops float64 }

func median(runs []measure.Run, read func(*measure.Run) float64) float64 {
	var v []float64
	for i := range runs {
		v = append(v, read(&runs[i]))
	}
	return stats.Median(v)
}

func middle(runs []measure.Run) queues {
	return queues{
		own:      median(runs, func(r *measure.Run) float64 { return r.Uplink.Backlog.Mean }),
		ownMax:   median(runs, func(r *measure.Run) float64 { return r.Uplink.Backlog.Max }),
		theirs:   median(runs, func(r *measure.Run) float64 { return r.Provider.Backlog.Mean }),
		inward:   median(runs, func(r *measure.Run) float64 { return r.Inward.Mean() }),
		drops:    median(runs, func(r *measure.Run) float64 { return float64(r.Provider.Drops + r.Inward.Dropped()) }),
		marks:    median(runs, func(r *measure.Run) float64 { return float64(r.Uplink.Marks) }),
		ownDrops: median(runs, func(r *measure.Run) float64 { return float64(r.Uplink.Drops) }),
	}
}

// where says where the queue stands, in front of a provider and in a qdisc here, whose rate may be changed.
func (q queues) where(provider scenario.Provider, kind string, changes bool, samples int) string {
	const packet = float64(standing) * wire.Frame / 1024
	wait := func(kib float64) string {
		if changes { // the queue's rate is not one
			return waitAt(kib, 0)
		}
		return waitAt(kib, provider.Rate)
	}
	switch {
	case q.inward > packet && q.inward >= q.theirs:
		out, here := "", "None"
		if q.theirs > packet {
			out = " and " + waitAt(q.theirs, provider.Rate) + " on the way out"
		}
		if q.own > packet {
			here = wait(q.own)
		}
		return fmt.Sprintf("The queue stands in the provider's box: %s on the way in%s, on average. "+
			"%s stands here, in %s.", waitAt(q.inward, provider.Inward()), out, here, kind)
	case q.theirs > packet && q.ownMax == 0:
		return fmt.Sprintf("The queue stands in the provider's box: %s of it on average, while %s here held "+
			"no packet in any of %d samples.", wait(q.theirs), kind, samples)
	case q.theirs > packet && q.theirs > q.own:
		return fmt.Sprintf("The queue stands in the provider's box: %s of it on average, against %s here.",
			wait(q.theirs), wait(q.own))
	case q.own > packet && provider.Queue == "none":
		return fmt.Sprintf("The queue stands here, in %s (%s on average).", kind, wait(q.own))
	case q.own > packet && q.drops == 0 && q.theirs <= packet:
		return fmt.Sprintf("The queue stands here, in %s (%s on average), and none at the provider.", kind, wait(q.own))
	case q.own > packet:
		return fmt.Sprintf("A queue stands here, in %s (%s on average).", kind, wait(q.own))
	}
	return "No queue stands anywhere."
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
