// SPDX-License-Identifier: Apache-2.0

package change

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"weir/internal/host"
	"weir/internal/journal"
	"weir/internal/plan"
)

// Boot brings up the goal that is kept, as a boot does or a device that has appeared. What an earlier boot left half
// done is put back first. A run of this boot that is not confirmed is left alone. Whoever called this waits for a
// device that is not there.
func (s Store) Boot() (Outcome, error) {
	const attempts = 30 // a second each: another device may have appeared at the same time
	if s.allInForce() {
		return Outcome{Done: []plan.Change{}}, nil
	}
	for attempt := 1; ; attempt++ {
		out, err := s.boot()
		if errors.Is(err, journal.ErrBusy) && attempt < attempts {
			s.timer.sleep(time.Second)
			continue
		}
		s.report("up --boot", out, err)
		return out, err
	}
}

// allInForce reports whether all that is kept is in force. It takes no lock, so a confirm at the same time is not
// delayed.
func (s Store) allInForce() bool {
	at, err := s.read()
	j := at.journal
	if err != nil || !at.facts.Admin || j == nil || j.Pending != nil || at.carried || at.adopted || j.OnlyForeign() {
		return false
	}
	at.keepGoalFile, at.keepRemoved = true, true
	goals, err := keptGoals(at, &Outcome{})
	if err != nil || len(goals) == 0 {
		return false
	}
	p, err := at.plan(goals)
	return err == nil && p.Empty() && p.Unavailable == nil && alike(j.Goals(), goals)
}

func (s Store) boot() (Outcome, error) {
	out := Outcome{Done: []plan.Change{}}
	t, err := s.begin("up")
	if err != nil {
		return out, err
	}
	defer t.end()
	if j := t.journal; j != nil && j.Pending != nil {
		if !t.carried && j.Pending.Unit != "" {
			out.Notes = append(out.Notes, plan.Note{Subject: "not confirmed", Text: j.Undone().Flags() +
				": left as it is"})
			return out, nil
		}
		if err = t.putBackFirst(&out); err != nil || len(out.Failed) > 0 {
			return out, err
		}
	}
	const (
		patience = 30 // s for a link to come up, of which speed, MTU and queue may be known only then
		moment   = 10 // s for a tunnel that has just been made, and has called us
	)
	var goals []plan.Goal
	for waited := 0; ; waited++ {
		out.Notes = out.Notes[:0:0]
		// By other names, perhaps, after each wait.
		if goals, err = keptGoals(t.situation, &out); err != nil || len(goals) == 0 {
			return out, err
		}
		there, ready := false, true
		for _, goal := range goals {
			link, is := t.facts.Link(goal.Dev)
			if goal.Dev != "" && !is {
				out.Notes = append(out.Notes, plan.Note{Subject: goal.Dev,
					Text: "is not there: nothing to do until it is"})
				continue
			}
			there = true
			if goal.Dev == "" {
				dev, _, err := plan.Uplink(t.facts)
				ready = ready && dev != "" && err == nil // its default route may be yet to come
				continue
			}
			ready = ready && link.Up && (waited >= moment || plan.Settled(goal, t.facts))
		}
		if !there {
			return out, nil
		}
		if ready || waited >= patience {
			break
		}
		t.timer.sleep(time.Second)
		if t.situation, err = t.read(); err != nil {
			return out, err
		}
	}
	t.atBoot, t.keepGoalFile, t.keepRemoved = true, true, true
	done, err := t.up(goals, 0)
	done.Notes = append(out.Notes, done.Notes...)
	return done, err
}

// keptGoals are those that a boot brings up: what was confirmed last, whatever the file says by now, since nobody has
// seen that at work. Where there is no journal they are the file's, which somebody has put there together with the
// service.
func keptGoals(at situation, out *Outcome) ([]plan.Goal, error) {
	last, j, facts := at.written, at.journal, at.facts
	file := facts.Files[host.GoalFile]
	there := file.Kind == host.Regular
	known := j
	if j == nil {
		known = last
	}
	if !there && !j.Kept() {
		out.Notes = append(out.Notes, plan.Note{Subject: "nothing to do", Text: "no goal is kept: there is no " +
			host.GoalFile})
		return nil, nil
	}
	if err := known.Readable(""); err != nil {
		return nil, err
	}
	if err := known.Confirmed().Readable(); err != nil {
		return nil, err
	}
	confirmed := slices.DeleteFunc(known.Confirmed().Plain(),
		func(g plan.Goal) bool { return g.Runtime || g.Only })
	renamed := j.Renamed()
	switch {
	case len(confirmed) > 0:
		if there && !plan.Says(file, confirmed...) && !renamed {
			out.Notes = append(out.Notes, plan.Note{Subject: host.GoalFile, Text: "asks for another goal than the " +
				"one that was confirmed, or cannot be read: weir up brings it up"})
		}
		return confirmed, nil
	case last != nil || !there:
		// What nobody has confirmed may be what locked somebody out, and what was taken down is to stay down.
		out.Notes = append(out.Notes, plan.Note{Subject: "nothing to do", Text: "no goal was confirmed"})
		return nil, nil
	}
	return plan.ParseGoals(file.Text)
}

// leaveOut finds the goals that there is no plan for, beside those before them: they keep no other device from its own.
func (at *situation) leaveOut(goals []plan.Goal) (notes []plan.Note) {
	j, f := at.journal, at.facts
	if j == nil || len(goals) < 2 {
		return nil
	}
	var good []plan.Goal
	for _, g := range goals {
		if _, there := f.Link(g.Dev); !there {
			continue
		}
		if _, err := plan.Make(append(slices.Clone(good), g), j.Before(f)); err != nil {
			at.without = append(at.without, g.Dev)
			notes = append(notes, plan.Note{Subject: g.Dev, Text: "is left as it is: " + err.Error()})
			continue
		}
		good = append(good, g)
	}
	return notes
}

// brokenPromises lists what is not as it was when a person confirmed it, though the goal is the same: another kernel
// may have less to reach it with.
func brokenPromises(j *journal.Journal, p plan.Plan) (notes []plan.Note) {
	if j == nil {
		return nil
	}
	for _, was := range j.Promised {
		e := j.Entry(was.Target)
		if e == nil {
			reached := func(c plan.Change) bool { return c.Target == was.Target && c.New.Meets(was.Value) }
			if !slices.ContainsFunc(p.Changes, reached) { // else it is still to be set, as before a boot has
				notes = append(notes,
					plan.Note{Subject: was.Target.String(),
						Text: fmt.Sprintf("was %s when it was confirmed, which is no longer available", was.Value)})
			}
			continue
		}
		if e.Last().Meets(was.Value) {
			continue
		}
		text := fmt.Sprintf("was %s when it was confirmed, and is %s", was.Value, e.Last())
		for _, c := range p.Changes {
			if c.Target == was.Target {
				text += ": " + c.Reason
			}
		}
		notes = append(notes, plan.Note{Subject: was.Target.String(), Text: text})
	}
	return notes
}
