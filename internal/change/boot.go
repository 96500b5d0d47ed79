// SPDX-License-Identifier: Apache-2.0

package change

import (
	"errors"
	"fmt"
	"time"

	"weir/internal/plan"
)

// Boot brings up the goal that is kept, as a boot does or a device that has appeared. What an earlier boot left half done is put back first. A
// run of this boot that is not confirmed is left alone, and a device that is not there is waited for by whoever called this.
func (s Store) Boot() (Outcome, error) {
	const attempts = 30 // a second each: another device may have appeared at the same time
	for attempt := 1; ; attempt++ {
		out, err := s.boot()
		if other := (*busy)(nil); errors.As(err, &other) && attempt < attempts {
			s.timer.sleep(time.Second)
			continue
		}
		s.report("up --boot", out, err)
		return out, err
	}
}

func (s Store) boot() (Outcome, error) {
	out := Outcome{Done: []plan.Change{}}
	last, j, facts, unlock, err := s.begin("up")
	if err != nil {
		return out, err
	}
	defer unlock()
	if j != nil && j.Pending != nil {
		if !j.carried {
			out.Notes = append(out.Notes, plan.Note{Subject: "not confirmed", Text: j.Goal.Flags() + ": left as it is"})
			return out, nil
		}
		if err := s.putBack(j, facts, &out); err != nil || len(out.Failed) > 0 {
			return out, err
		}
		if last, j, facts, err = s.look(); err != nil {
			return out, err
		}
	}
	var goal plan.Goal
	if err := s.fill(&goal, last, j, facts); err != nil {
		return out, err
	}
	if goal == (plan.Goal{}) {
		return out, nil
	}
	if _, there := facts.Link(goal.Dev); goal.Dev != "" && !there {
		out.Notes = append(out.Notes, plan.Note{Subject: goal.Dev, Text: "is not there: nothing to do until it is"})
		return out, nil
	}
	return s.up(j, goal, facts, 0, func(*journal) {})
}

// broken lists what is not as it was when a person confirmed it, though the goal is the same: another kernel may have less to reach it with.
func (j *journal) broken(p plan.Plan) (notes []plan.Note) {
	if j == nil {
		return nil
	}
	for _, was := range j.Promised {
		e := j.entry(was.Target)
		if e == nil {
			notes = append(notes, plan.Note{Subject: was.Target.String(), Text: fmt.Sprintf("was %s when it was confirmed, which is not to be had any more", was.Value)})
			continue
		}
		if same(was.Target, e.last(), was.Value) {
			continue
		}
		text := fmt.Sprintf("was %s when it was confirmed, and is %s", was.Value, e.last())
		for _, c := range p.Changes {
			if c.Target == was.Target {
				text += ": " + c.Reason
			}
		}
		notes = append(notes, plan.Note{Subject: was.Target.String(), Text: text})
	}
	return notes
}
