// SPDX-License-Identifier: Apache-2.0

package verdict

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"weir/internal/lab/measure"
	"weir/internal/lab/scenario"
	"weir/internal/stats"
	"weir/internal/text"
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
const minQueuePackets = 2

// packet is that, in KiB.
const packet = float64(minQueuePackets) * wire.Frame / 1024

func words(p *Point, c *Cell) string {
	m := middle(c.Runs)
	kind := kindOf(&c.Runs[0].Uplink)
	var s []string
	changes := p.changes(c.Candidate)
	for _, change := range changes {
		s = append(s, fmt.Sprintf("At %v changed to %s.", change.At,
			scenario.Rated(change.Qdisc, p.Scenario.Provider.Rate)))
	}
	provider := p.Scenario.Provider
	rate, inward := provider.Rate, provider.Inward()
	if len(changes) > 0 { // a queue's rate is not one
		rate, inward = 0, 0
	}
	switch {
	case c.Runs[0].Inward != nil || c.Runs[0].Ingress != nil:
		s = append(s, bothWaysText(provider, rate, inward, c.Runs, kind))
	case p.Scenario.OnlyInward():
		s = append(s, m.where(provider, inward, kind, c.Runs[0].Uplink.Backlog.N))
	default:
		s = append(s, m.where(provider, rate, kind, c.Runs[0].Uplink.Backlog.N))
	}
	if m.drops > 0 {
		s = append(s, "The provider dropped "+text.Counted(int(math.Round(m.drops)), "packet")+".")
	}
	if text := lossText(kind, m.ownDrops, m.marks); text != "" {
		s = append(s, text)
	}
	if in := c.Runs[0].Ingress; in != nil {
		read := func(count func(*measure.Queue) uint64) float64 {
			return median(c.Runs, func(r *measure.Run) float64 { return float64(count(r.Ingress)) })
		}
		text := lossText(kindOf(in)+" on the way in", read((*measure.Queue).Dropped),
			read(func(q *measure.Queue) uint64 { return q.Marks }))
		if text != "" {
			s = append(s, text)
		}
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
	if limited > toleratedShare {
		s = append(s, fmt.Sprintf("Beware: a receiver in the lab held a flow back for %.0f %% of the time.",
			100*limited))
	}
	if slices.ContainsFunc(c.Runs, func(r measure.Run) bool { return r.TCPPressed }) {
		s = append(s, "Beware: TCP in the lab needed more memory than the lab has, so its connections were held back.")
	}
	return strings.Join(s, " ")
}

// queues are what waited on average, in KiB, and what was dropped and marked, in packets: the medians of some runs.
type queues struct{ own, ownMax, theirs, drops, marks, ownDrops float64 }

// kindOf names the outermost qdisc of a queue.
func kindOf(q *measure.Queue) string {
	kind, _, _ := strings.Cut(q.Stack, " ")
	return kind
}

// lossText says what a queue dropped and marked, or nothing.
func lossText(kind string, drops, marks float64) string {
	switch {
	case drops > 0 && marks > 0:
		return fmt.Sprintf("%s dropped %.0f and marked %.0f.", kind, drops, marks)
	case drops > 0:
		return fmt.Sprintf("%s dropped %.0f.", kind, drops)
	case marks > 0:
		return fmt.Sprintf("%s marked %.0f.", kind, marks)
	}
	return ""
}

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
		drops:    median(runs, func(r *measure.Run) float64 { return float64(r.Provider.Drops + r.Inward.Dropped()) }),
		marks:    median(runs, func(r *measure.Run) float64 { return float64(r.Uplink.Marks) }),
		ownDrops: median(runs, func(r *measure.Run) float64 { return float64(r.Uplink.Drops) }),
	}
}

// where says where the queue stands, in front of a provider and in a qdisc here, which drain at a rate; 0: at several.
func (q queues) where(provider scenario.Provider, rate units.Rate, kind string, samples int) string {
	wait := func(kib float64) string { return waitAt(kib, rate) }
	switch {
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

// place is one of the places where packets wait on a link of which both directions are measured.
type place struct {
	name string
	kib  float64    // that wait there on average
	rate units.Rate // at which it drains; 0: not known
}

// bothWaysText says where the queues stand on such a link, the longest first. What leaves drains at rate, what arrives
// at inward; 0: at several.
func bothWaysText(provider scenario.Provider, rate, inward units.Rate, runs []measure.Run, kind string) string {
	mean := func(queue func(*measure.Run) *measure.Queue) float64 {
		return median(runs, func(r *measure.Run) float64 { return queue(r).Mean() })
	}
	first := &runs[0]
	theirs := []place{
		{"in the provider's box on the way in", mean(func(r *measure.Run) *measure.Queue { return r.Inward }),
			inward},
		{"in the provider's box on the way out", mean(func(r *measure.Run) *measure.Queue { return &r.Provider }),
			rate},
	}
	ours := []place{{"here, in " + kind + " on the way out",
		mean(func(r *measure.Run) *measure.Queue { return &r.Uplink }), rate}}
	if first.Ingress != nil {
		ours = append(ours, place{"here, in " + kindOf(first.Ingress) + " on the way in",
			mean(func(r *measure.Run) *measure.Queue { return r.Ingress }), inward})
	}
	if first.Tunnel != nil {
		ours = append(ours, place{"here, on the tunnel's " + first.Tunnel.Device,
			mean(func(r *measure.Run) *measure.Queue { return r.Tunnel }), 0})
	}
	waits := func(p place) bool { return p.kib > packet }
	all := slices.DeleteFunc(slices.Concat(ours, theirs), func(p place) bool { return !waits(p) })
	if len(all) == 0 {
		return "No queue stands anywhere."
	}
	bySize := slices.ContainsFunc(all, func(p place) bool { return p.rate == 0 })
	slices.SortStableFunc(all, func(a, b place) int {
		if bySize {
			return cmp.Compare(b.kib, a.kib)
		}
		return cmp.Compare(b.kib/float64(b.rate), a.kib/float64(a.rate))
	})
	text := fmt.Sprintf("The queue stands %s: %s on average", all[0].name, waitAt(all[0].kib, all[0].rate))
	for _, p := range all[1:] {
		text += fmt.Sprintf("; %s %s", waitAt(p.kib, p.rate), p.name)
	}
	switch {
	case !slices.ContainsFunc(ours, waits):
		text += ". None stands here"
	case provider.Queue != "none" && !slices.ContainsFunc(theirs, waits):
		text += ". None stands at the provider"
	}
	return text + "."
}

// waitAt is how long an amount waits at a rate, or the amount where there is none.
func waitAt(kib float64, rate units.Rate) string {
	if rate == 0 {
		return fmt.Sprintf("%.0f KiB", kib)
	}
	ms := kib * 1024 * 8 / float64(rate) * 1e3
	if ms >= 1000 {
		return fmt.Sprintf("%.0fms", ms)
	}
	return fmt.Sprintf("%.3gms", ms)
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

// toleratedShare is the share of a flow's time that the lab's receivers may cost it.
const toleratedShare = 0.05

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
