// SPDX-License-Identifier: Apache-2.0

package change

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"weir/internal/hint"
	"weir/internal/host"
	"weir/internal/journal"
	"weir/internal/kernel"
	"weir/internal/plan"
)

// Undo is what a Down takes down, and how far it goes.
type Undo struct {
	Dev   string // the one device whose goal is taken down; "" is the only one that is up
	All   bool   // all devices
	Force bool   // also put back what somebody else has set since
}

// Several is the error of a Down that does not say which of several goals it is about.
type Several struct{ Devices []string }

func (s *Several) Error() string { return "weir is up on " + strings.Join(s.Devices, ", ") }

// Down puts back what was there before the first Up. What somebody else has set since is left and stays in the
// journal, unless forced. Of one device among several, what is the host's becomes what the goals of the others want of
// it. While several devices have goals and none is named it changes nothing, and the error is a *Several.
func (s Store) Down(o Undo) (Outcome, error) {
	dev := o.Dev
	out := Outcome{Done: []plan.Change{}}
	t, err := s.begin("down")
	if o.Force && errors.Is(err, journal.ErrOtherNamespace) {
		out.Notes = append(out.Notes, plan.Note{Subject: "the journal",
			Text: "was about another network namespace, and is removed; nothing was put back there"})
		return out, s.Forget()
	}
	if err != nil {
		return Outcome{}, err
	}
	defer t.end()
	t.force = o.Force
	j := t.journal
	if j == nil {
		// Perhaps there is one of an earlier boot, whose settings ended with it.
		return out, t.disk.Remove()
	}
	out.Notes = j.Notes()
	goals := j.Goals()
	if j.IsDown() {
		goals = nil
	}
	switch goal := j.Uplink(dev); {
	case dev == "" && !o.All && len(goals) > 1:
		several := &Several{}
		for _, g := range goals {
			several.Devices = append(several.Devices, g.Dev)
		}
		return Outcome{}, several
	case goal == nil && dev != "":
		return out, &hint.Error{What: "weir is not up on " + dev, Try: "weir status, which names what it is up on"}
	case dev != "" && slices.ContainsFunc(goals, func(g plan.Goal) bool { return g.Dev != dev }):
		out.Goal = goal.Goal
		err := t.downOne(dev, &out)
		t.report("down", out, err)
		return out, err
	case len(j.Uplinks) > 0:
		out.Goal = j.Uplinks[0].Goal
	}
	for i, e := range j.Entries {
		others := dev != "" && e.Dev() != "" && e.Dev() != dev // left before, and not asked for
		j.Entries[i].Theirs = j.State(t.facts, e) == journal.Foreign && (!o.Force || others)
	}
	// From here on it is known that the host is on its way down, should this run be cut short. If that cannot be
	// written, for lack of space perhaps, it is no reason to stay: down can be run again.
	j.Pending = &journal.Pending{Until: t.timer.now(), Unit: j.Unit(), Down: true}
	_ = t.disk.Save(j)
	err = t.putBack(&out)
	t.report("down", out, err)
	return out, err
}

// downOne takes one device's goal down, of several.
func (t *transaction) downOne(dev string, out *Outcome) error {
	j := t.journal
	if j.Pending != nil {
		return &hint.Error{What: "the last run is not confirmed, or was cut short",
			Try: "weir confirm, or weir recover, and then again"}
	}
	if err := j.Readable(dev); err != nil {
		return &hint.Error{What: err.Error(), Try: "weir down --all, which takes none"}
	}
	p, theirs := t.planDown(dev, out)
	others := func(e journal.Entry) bool { return e.Dev() != "" && e.Dev() != dev }
	for i, e := range j.Entries {
		j.Entries[i].Theirs = e.Theirs && others(e) // what was left before and goes back now begins nothing
	}
	next := t.next(p)
	next.Pending.Until = t.timer.now()
	next.Uplink(dev).Down = true
	if err := t.disk.Save(next); err != nil {
		return err
	}
	for _, c := range sortChanges(p.Changes) {
		if err := t.set(next, c); err != nil {
			out.Failed = append(out.Failed, Failure{c, err.Error()})
			continue
		}
		out.Done = append(out.Done, c)
	}
	t.cleanQueues(next, t.facts, dev, out)
	t.later(func() { t.host.reload(out.Done) })
	facts, err := t.readFacts()
	if err != nil {
		return err
	}
	for _, c := range slices.Clone(out.Done) {
		if now, _ := next.Value(facts, c.Target); !now.Meets(c.New) &&
			!next.Reached(facts, *next.Entry(c.Target), c.New) {
			out.fail(c, "was put back, and is another")
		}
	}
	if len(out.Failed) > 0 {
		return nil // and weir recover goes back to where this began
	}
	for i, e := range next.Entries {
		next.Entries[i].Theirs = theirs[e.Target] || e.Theirs && others(e)
	}
	next.Confirm()
	next.Promise()
	next.OwnGoalFile(facts)
	return t.disk.Save(next)
}

// planDown is the plan for a host without one device's goal, and what of that device is left to somebody else.
func (at *situation) planDown(dev string, out *Outcome) (p plan.Plan, theirs map[kernel.Target]bool) {
	j, facts := at.journal, at.facts
	others := slices.DeleteFunc(j.Goals(), func(g plan.Goal) bool { return g.Dev == dev })
	at.only = dev
	p, err := at.plan(others)
	if err != nil { // it must not keep this one from going
		out.Notes = append(out.Notes, plan.Note{Subject: "the host's settings", Text: "stay: " + err.Error()})
		p = plan.Plan{Goals: others}
	}
	lasting := plan.Lasting(others)
	said := plan.Says(facts.Files[host.GoalFile], lasting...) // perhaps in a person's own words
	p.Changes = slices.DeleteFunc(p.Changes, func(c plan.Change) bool {
		return c.Dev() != "" || c.Target == journal.GoalFile && said || at.leavesHost(c, out)
	})
	kept := plan.GoalFile(lasting)
	asks := slices.ContainsFunc(p.Changes, func(c plan.Change) bool { return c.Target == journal.GoalFile })
	if e := j.Entry(journal.GoalFile); e != nil && !asks && j.State(facts, *e) == journal.Ours {
		// Also while a device is not there, and its part of other files stays.
		p.Changes = append(p.Changes, plan.Change{Target: journal.GoalFile,
			Old: kernel.Content{File: facts.Files[host.GoalFile]}, New: kernel.Content{File: kept},
			Reason: "the goals that stay"})
	}
	theirs = map[kernel.Target]bool{}
	for _, e := range j.Entries {
		now, there := j.Value(facts, e.Target)
		switch state := j.State(facts, e); {
		case e.Dev() != dev || state == journal.AsFound:
		case !there:
			out.Notes = append(out.Notes, plan.Note{Subject: e.Target.String(),
				Text: "is gone, and what was set with it"})
		case state == journal.Foreign && !at.force:
			theirs[e.Target] = true
			out.Left = append(out.Left, Failure{plan.Change{Target: e.Target, Old: now, New: e.Was}, e.Differs(now)})
		default:
			p.Changes = append(p.Changes, plan.Change{Target: e.Target, Old: now, New: e.Was, Reason: "as it was",
				Evidence: "the journal"})
		}
	}
	return p, theirs
}

// leavesHost reports whether a change of the host's own settings and files, which the going of one device's goal would
// bring, is left alone: somebody else has set another value since. It is named if that goal had a part in it.
func (at situation) leavesHost(c plan.Change, out *Outcome) bool {
	e := at.journal.Entry(c.Target)
	if e == nil || at.journal.State(at.facts, *e) != journal.Foreign {
		return false
	}
	switch {
	case at.force:
		out.Notes = append(out.Notes, overwrites(c))
		return false
	case !e.Last().Meets(c.New):
		out.Left = append(out.Left, Failure{c, e.Differs(c.Old)})
	}
	return true
}

// cleanQueues takes away what a BPF queue has left on devices that somebody else has taken it from; "" for all.
func (s Store) cleanQueues(j *journal.Journal, facts host.Facts, dev string, out *Outcome) {
	for _, e := range j.Entries {
		o, u := e.Object(), j.Uplink(e.Dev())
		if o.Leaves == nil || !slices.ContainsFunc(e.Set, o.Leaves) || u == nil || dev != "" && e.Dev() != dev {
			continue
		}
		if !slices.ContainsFunc(facts.Links, func(l host.Link) bool { return l.Index == u.Link }) {
			continue // gone, with all that was on it; perhaps another has its name
		}
		if err := o.Clean(s.host, j.Place(e), u.GSOSegs); err != nil {
			out.Failed = append(out.Failed, Failure{plan.Change{Target: e.Target, New: e.Was}, err.Error()})
		}
	}
}

// Forget removes a journal that is of no use any more, and puts nothing back but what a BPF queue has left that is
// gone.
func (s Store) Forget() error {
	unlock, err := s.disk.Lock(journal.Patience)
	if err != nil {
		return err
	}
	s.held = &lock{unlock: unlock}
	defer s.end()
	last, err := s.disk.Load()
	if err != nil {
		return err
	}
	if err := s.disk.Remove(); err != nil {
		return err
	}
	s.disarm(last.Unit())
	facts, err := s.readFacts()
	if err != nil || !last.IsCurrent(facts) {
		return err // of other devices
	}
	var out Outcome
	s.cleanQueues(last, facts, "", &out)
	var failed []error
	for _, f := range out.Failed {
		failed = append(failed, fmt.Errorf("%s: %s", f.Target, f.Error))
	}
	return errors.Join(failed...)
}
