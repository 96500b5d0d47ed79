// SPDX-License-Identifier: Apache-2.0

package change

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"weir/internal/follow/presence"
	"weir/internal/hint"
	"weir/internal/host"
	"weir/internal/journal"
	"weir/internal/kernel"
	"weir/internal/plan"
	"weir/internal/units"
)

// Status is how a host stands to the goal that was last brought up.
type Status struct {
	Up      bool   `json:"up"`                 // there is a goal
	Kept    bool   `json:"kept"`               // over a reboot
	InForce bool   `json:"in_force"`           // and the plan for it is empty
	Why     string `json:"why,omitempty"`      // it is not in force, where that is not the drift
	CutDown bool   `json:"cut_down,omitempty"` // a weir down was cut short
	// of a relay's goal in force: which queues are here now, and what that costs
	Owns      string        `json:"owns,omitempty"`
	Elsewhere string        `json:"elsewhere,omitempty"` // in force, and the queue that connections wait in is another
	Filters   []string      `json:"filters,omitempty"`   // in force, and these drop some of what leaves
	Goals     []plan.Goal   `json:"-"`                   // one for each device
	Reboot    bool          `json:"rebooted,omitempty"`  // since it was brought up
	Drift     []plan.Change `json:"drift"`               // what would bring it back into force
	Notes     []plan.Note   `json:"notes,omitempty"`

	Followed []presence.Queue `json:"followed,omitempty"` // those whose rate may move

	Control *ControlUse `json:"bpf_bbr,omitempty"` // as ReadControlUse tells it

	Unconfirmed bool              `json:"unconfirmed,omitempty"`
	RevertsIn   units.Duration    `json:"reverts_in,omitempty"` // unless it is confirmed; 0 when that is overdue
	PutBack     bool              `json:"put_back,omitempty"`   // overdue, and all is back; not said by the journal
	Reverted    *journal.Reverted `json:"reverted,omitempty"`   // the last run, when it was put back

	broken map[string]string // why a device's goal is not in force, where that is not the drift
}

// Status makes the plan for the goal in force again. That there is no such plan any more is a status, and no error.
func (s Store) Status() (Status, error) {
	at, err := s.read()
	if err == nil {
		err = readable(at.journal, at.facts)
	}
	if err != nil {
		return Status{Drift: []plan.Change{}}, err
	}
	facts, status := at.facts, s.status(at)
	start, ask := followStarter(facts)
	for i := range status.Followed {
		status.Followed[i].Start, status.Followed[i].Ask = start, ask
	}
	status.Followed = s.Ask(status.Followed)
	if status.InForce && s.Filtered != nil {
		look := facts
		look.Deep = &host.Deep{Droppers: s.host.droppers(facts)}
		for _, g := range status.Goals {
			status.Filters = append(status.Filters, s.Filtered(g, look)...)
		}
	}
	// What has just come into force still shows in what connections remember.
	for look := 0; status.InForce && s.Elsewhere != nil; look++ {
		if status.Elsewhere = s.elsewhere(status.Goals, facts); status.Elsewhere == "" || look == 1 {
			break
		}
		s.timer.sleep(time.Second)
		if facts, err = s.readFacts(); err != nil {
			return status, err
		}
	}
	return status, nil
}

// elsewhere tells of each goal that connections wait, and not in its queue. Of several goals, only connections count
// that may pass the device.
func (s Store) elsewhere(goals []plan.Goal, facts host.Facts) string {
	var all []string
	for _, g := range goals {
		var pass map[int]bool
		if len(goals) > 1 {
			pass = plan.Passing(facts.Links, g.Dev)
		}
		look := facts
		look.Deep = &host.Deep{Sockets: s.host.path(facts, pass)}
		if text := s.Elsewhere(g, look); text != "" && len(goals) > 1 {
			all = append(all, g.Dev+": "+text)
		} else if text != "" {
			all = append(all, text)
		}
	}
	return strings.Join(all, ". ")
}

// readable is why it cannot be told what the journal's device has: a BPF queue shows what it is to root alone.
func readable(j *journal.Journal, facts host.Facts) error {
	if facts.Admin {
		return nil
	}
	for _, goal := range j.Goals() {
		for _, o := range kernel.Objects() {
			if o.Hidden == nil || o.Hidden(facts, goal.Dev) == "" {
				continue
			}
			return &hint.Error{What: fmt.Sprintf("%s has %s, and looking into it needs root (CAP_SYS_ADMIN)", goal.Dev,
				o.Hidden(facts, goal.Dev)), Try: "the same with sudo"}
		}
	}
	return nil
}

func (s Store) status(at situation) Status {
	status := Status{Drift: []plan.Change{}, broken: map[string]string{}}
	at.keepGoalFile = true // a look leaves the goal's file to who changed it
	goals, done := s.goalsFor(&status, at)
	if done {
		return status
	}
	last, j, facts := at.written, at.journal, at.facts
	status.Up, status.Reboot, status.Kept = true, last != nil && last.Boot != facts.Boot, j.Kept()
	if j != nil && j.Pending != nil {
		status.Unconfirmed = true
		status.RevertsIn = units.Duration(max(j.Pending.Until-s.timer.now(), 0))
		goals = j.Goals()
		status.Goals = goals
	} else if up := j.Goals(); len(up) > 0 && !alike(goals, up) {
		status.Notes = append(status.Notes, plan.Note{Subject: host.GoalFile,
			Text: "asks for another goal now; brought up was " + flags(up)})
	}
	status.compare(at, goals)
	if status.Unconfirmed && !status.InForce {
		var out Outcome
		back, _ := at.toPutBack(&out)
		status.PutBack = status.RevertsIn == 0 && len(back)+len(out.Left)+len(out.Notes) == 0
	}
	return status
}

// goalsFor are the goals that a status is of; true if it is known without a look at the host.
func (s Store) goalsFor(status *Status, at situation) (goals []plan.Goal, done bool) {
	last, j := at.written, at.journal
	known := j
	if j == nil {
		known = last
	}
	goals, err := s.wanted(at)
	switch {
	case err != nil && known == nil:
		status.Why = err.Error()
		return nil, true
	case known == nil && len(goals) > 0:
		status.Why = fmt.Sprintf("%s asks for %s. To bring it up: weir up", host.GoalFile, flags(goals))
		return nil, true
	case known == nil:
		return nil, true
	case err != nil && j.Readable("") == nil:
		// What is in force does not depend on a file.
		status.Notes = append(status.Notes, plan.Note{Subject: host.GoalFile, Text: "is for the next weir up: " +
			err.Error()})
		goals, err = known.Goals(), nil
	case err == nil && len(j.Goals()) > 0 && len(plan.Lasting(j.Goals())) == 0:
		goals = j.Goals() // which no file says
	}
	status.Reverted, status.Notes = known.Reverted, append(j.Notes(), status.Notes...)
	status.Goals = goals
	switch {
	case j != nil && j.Pending != nil && j.Pending.Down:
		status.CutDown, status.Why = true, "weir down was cut short; to end it: weir recover"
	case j.OnlyForeign():
		status.Why = "it was taken down, but for what somebody else had changed"
	case err != nil:
		status.Up, status.Why = true, err.Error()
		status.Goals = known.Goals()
	case len(goals) == 0 && j == nil && len(last.Goals()) > 0: // of an earlier boot, and not confirmed
		status.Goals = last.Goals()
		status.Reboot = true
		status.Why = "the machine was started again since, before it was confirmed"
	case len(goals) > 0:
		return goals, false
	}
	return nil, true
}

// compare says how the host stands to the goals.
func (status *Status) compare(at situation, goals []plan.Goal) {
	j, facts := at.journal, at.facts
	p, err := at.plan(goals)
	if err != nil {
		status.Why = err.Error()
		return
	}
	if status.Unconfirmed {
		p.Changes, _ = lasting(p.Changes)
	}
	p.Changes = slices.DeleteFunc(p.Changes, func(c plan.Change) bool {
		if c.Target.Kind != kernel.Control || !kernel.OtherVersion(c.Old, c.New) {
			return false
		}
		status.Notes = append(status.Notes, plan.Note{Subject: c.Target.Name,
			Text: fmt.Sprintf("is another Weir's (%v), and works on. For this one's (%v): weir up", c.Old, c.New)})
		return true
	})
	status.InForce, status.Drift = p.Empty(), append(status.Drift, p.Changes...)
	for _, goal := range goals {
		link, there := facts.Link(goal.Dev)
		if !there && len(goals) > 1 {
			const gone = "is not there"
			status.InForce, status.broken[goal.Dev] = false, gone
			status.Notes = append(status.Notes, plan.Note{Subject: goal.Dev, Text: gone})
		}
		if there && !link.Up {
			status.Notes = append(status.Notes, plan.Note{Subject: link.Name, Text: "the link is down"})
		}
	}
	if status.InForce {
		status.Notes = append(status.Notes, plan.LacksOf(p.Considered)...)
		for _, goal := range p.Goals {
			if goal.Unknown() {
				status.Followed = append(status.Followed, presence.Queue{Dev: goal.Dev})
			} else if goal.Follow != "" {
				status.Followed = append(status.Followed, at.queuesFollowed(goal)...)
			}
			status.Owns = strings.TrimSpace(status.Owns + " " + plan.Owns(goal, facts))
		}
	}
	if p.Unavailable != nil {
		status.InForce, status.Why = false, p.Unavailable.What
	}
	if p.NotPersistent != nil && status.Kept {
		status.Kept = false
		status.Notes = append(status.Notes, plan.Note{Subject: "after a reboot",
			Text: p.NotPersistent.What + ". To keep it: " + p.NotPersistent.Try})
	}
	status.Notes = append(status.Notes, plan.Overwritten(p.Goals, facts)...)
	if whole, err := plan.Make(p.Goals, j.Before(facts)); err == nil {
		status.Notes = append(append(status.Notes, brokenPromises(j, whole)...), plan.Overruled(whole, facts)...)
	}
}

// queuesFollowed are the queues of a goal whose rate a follower may choose.
func (at situation) queuesFollowed(goal plan.Goal) (all []presence.Queue) {
	for _, target := range []kernel.Target{journal.RootOf(goal.Dev), {Kind: kernel.Ingress, Name: goal.Dev}} {
		if s, _ := at.shaper(goal, target); s != nil {
			all = append(all, presence.Queue{Dev: s.Dev, AfterProvider: s.AfterProvider, Rate: s.Rate(), Low: s.Low,
				High: s.High})
		}
	}
	return all
}

// Holds reports whether a goal is in force, of those that are up.
func (s Status) Holds(goal plan.Goal) bool {
	if !s.Up || s.Why != "" || s.broken[goal.Dev] != "" {
		return false
	}
	return !slices.ContainsFunc(s.Drift, func(c plan.Change) bool {
		return c.Dev() == "" || c.Dev() == goal.Dev
	})
}

// Of is what a status says of one device, which has to have a goal: the rest of a host may be out of force.
func (s Status) Of(dev string) (Status, error) {
	others := func(g plan.Goal) bool { return g.Dev != dev }
	goals := slices.DeleteFunc(slices.Clone(s.Goals), others)
	if s.Up && len(goals) == 0 {
		return s, &hint.Error{What: dev + " has no goal", Try: "weir status"}
	}
	if len(goals) == 0 || len(s.Goals) == 1 {
		return s, nil
	}
	s.InForce = s.InForce || s.Holds(goals[0])
	s.Goals = goals
	s.Drift = slices.DeleteFunc(slices.Clone(s.Drift), func(c plan.Change) bool {
		return c.Dev() != "" && c.Dev() != dev
	})
	s.Followed = slices.DeleteFunc(slices.Clone(s.Followed), func(q presence.Queue) bool { return q.Dev != dev })
	return s, nil
}

// MarshalJSON writes the first goal as "goal", and the rest, if there is any, as "others".
func (s Status) MarshalJSON() ([]byte, error) {
	type fields Status
	return json.Marshal(struct {
		fields
		plan.GoalsText
	}{fields(s), plan.TextOf(s.Goals)})
}
