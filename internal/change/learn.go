// SPDX-License-Identifier: Apache-2.0

package change

import (
	"slices"
	"time"

	"weir/internal/hint"
	"weir/internal/journal"
	"weir/internal/plan"
	"weir/internal/qdisc"
	"weir/internal/units"
)

// Unmeasured is a goal whose rate is to be found.
type Unmeasured struct {
	Goal         plan.Goal
	Link         int           // of the device
	Speed        units.Rate    // bit/s, of the device; 0: not known
	Counts       qdisc.Framing // packets, as the rate is to be found
	NoLinkHeader bool          // the device's packets have no header

	Forwarding []int // indexes of the devices by which forwarded packets leave for it
}

// Unmeasured is what it takes to find a goal's rate; false where a queue there enforces one already, or none can.
func (s Store) Unmeasured(goal plan.Goal) (u Unmeasured, ok bool, err error) {
	facts, err := s.readFacts()
	if err != nil {
		return u, false, err
	}
	return unmeasured(goal, situation{facts: facts})
}

func unmeasured(goal plan.Goal, at situation) (u Unmeasured, ok bool, err error) {
	if goal.Dev == "" {
		if goal.Dev, _, err = plan.Uplink(at.facts); err != nil {
			return u, false, err
		}
	}
	link, there := at.facts.Link(goal.Dev)
	stack, known := link.Tree.Stack()
	counts, can := plan.CountsAs(goal, at.journal.Before(at.facts))
	u = Unmeasured{Goal: goal, Link: link.Index, Speed: link.Speed, Counts: counts, NoLinkHeader: link.MAC == "",
		Forwarding: plan.Forwarding(at.facts, goal.Dev)}
	return u, there && can && !(known && stack.Shapes()), nil
}

// Unknown are the goals in force whose rate is to be found. While something is not confirmed there are none.
func (s Store) Unknown() ([]Unmeasured, error) {
	at, err := s.read()
	if err != nil || at.journal == nil || at.journal.Pending != nil {
		return nil, err
	}
	return at.unknown(), nil
}

// Sought reports whether a rate is still to be found, by what this host forwards now. What is not confirmed of another
// goal changes nothing about that, nor does a journal that cannot be read.
func (s Store) Sought(u Unmeasured) bool {
	at, err := s.read()
	return err != nil || slices.ContainsFunc(at.unknown(), func(now Unmeasured) bool {
		return now.Goal == u.Goal && slices.Equal(now.Forwarding, u.Forwarding)
	})
}

func (at situation) unknown() (all []Unmeasured) {
	if at.journal == nil || at.journal.OnlyForeign() {
		return nil
	}
	for _, goal := range at.journal.Goals() {
		if !goal.Unknown() {
			continue
		}
		if u, ok, err := unmeasured(goal, at); err == nil && ok {
			all = append(all, u)
		}
	}
	return all
}

// Learn gives a goal in force the rate that was found for it, as a person would: it brings that up, looks after some
// seconds whether anything still moves, and confirms it. If not it is put back; and if this process dies before, the
// timer does that. What is asked reports whether anything has moved since it was asked last. It is Busy while another
// goal waits to be confirmed.
func (s Store) Learn(goal plan.Goal, rate units.Rate, moves func() bool) error {
	const within, looks = time.Minute, 10 * time.Second
	s.unprinted = true
	unit, err := s.learn(goal, rate, within)
	if err != nil {
		return err
	}
	overtaken := journal.Busy("another run has begun before "+rate.String()+" was confirmed", "weir status")
	moves() // since then
	s.timer.sleep(looks)
	if !moves() {
		out, _, err := s.recover(false, unit)
		switch {
		case err != nil:
			return err
		case len(out.Done)+len(out.Left) == 0:
			return overtaken
		}
		return &hint.Error{What: "since it was shaped to " + rate.String() + " nothing has moved: put back",
			Try: "weir calibrate PEER"}
	}
	_, done, err := s.confirm(unit, "")
	if err == nil && !done {
		err = overtaken
	}
	return err
}

func (s Store) learn(goal plan.Goal, rate units.Rate, within time.Duration) (unit string, err error) {
	t, err := s.begin("follow")
	if err != nil {
		return "", err
	}
	defer t.end()
	if was, _ := plan.GoalOf(t.journal.Goals(), goal.Dev); was != goal {
		return "", &hint.Error{What: "the goal of " + goal.Dev + " is another by now", Try: "weir status"}
	}
	if t.journal.Pending != nil {
		return "", journal.Busy("another goal waits to be confirmed", "weir confirm")
	}
	goal.Rate = rate
	goals, _, err := t.resolveGoals(goal)
	if err != nil {
		return "", err
	}
	out, err := t.up(goals, within)
	t.report("follow", out, err)
	if err != nil {
		return "", err
	}
	j, err := t.disk.Load()
	return j.Unit(), err
}
