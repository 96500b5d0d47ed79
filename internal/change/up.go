// SPDX-License-Identifier: Apache-2.0

package change

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"weir/internal/hint"
	"weir/internal/journal"
	"weir/internal/kernel"
	"weir/internal/plan"
	"weir/internal/units"
)

// Up brings a goal into force. If the queueing disciplines cannot be set, everything is as it was and the error says
// why; other settings are independent of each other, and those that fail are in the outcome. What it changes is put
// back, by a process that does not depend on this one, unless Confirm is called within the time given; Confirm also
// writes the files that keep the goal over a reboot. With no time it stays, and those files are written at once.
//
// An empty goal is the one in /etc/weir.toml, or else the one that was last brought up, if there was one.
func (s Store) Up(goal plan.Goal, within time.Duration) (Outcome, error) {
	if err := goal.Check(); err != nil {
		return Outcome{}, err
	}
	t, err := s.begin("up")
	if err != nil {
		return Outcome{}, err
	}
	defer t.end()
	var half Outcome
	if j := t.journal; goal != (plan.Goal{}) && j != nil && j.Pending != nil && j.Pending.Down {
		// A down that was cut short ends first, or other goals would come back with this one; if this is not refused.
		if err = t.refused(goal); err != nil {
			return Outcome{}, err
		}
		if err = t.putBackFirst(&half); err != nil || len(half.Failed) > 0 {
			return half, err
		}
	}
	goals, measured, err := t.resolveGoals(goal)
	if err != nil {
		return Outcome{}, err
	}
	out, err := t.up(goals, within)
	out.Notes = append(measured, out.Notes...)
	if refusal := (*hint.Error)(nil); len(half.Done) > 0 && errors.As(err, &refusal) {
		err = &hint.Error{What: "the weir down that was cut short has ended; then: " + refusal.What, Try: refusal.Try}
	}
	t.report("up", out, err)
	return out, err
}

// refused is why a goal cannot be when all is as it was before the one in force.
func (t *transaction) refused(goal plan.Goal) error {
	bare := transaction{t.Store, t.before()}
	goals, _, err := bare.resolveGoals(goal)
	if err != nil {
		return err
	}
	p, _, err := bare.planUp(goals)
	if err != nil {
		return err
	}
	_, files := lasting(p.Changes)
	return t.writable(files)
}

// up is Up, with everything known.
func (t *transaction) up(goals []plan.Goal, within time.Duration) (Outcome, error) {
	p, notes, err := t.planUp(goals)
	if err != nil {
		return Outcome{}, err
	}
	out := Outcome{Goal: p.Goals[0], Done: []plan.Change{}, Notes: append(notes, p.Considered...)}
	now, files := lasting(p.Changes)
	if err := t.writable(files); err != nil {
		return Outcome{}, err
	}

	j := t.journal
	idle := j == nil || j.Pending == nil
	switch {
	case p.Empty() && idle:
		return out, t.keepAsIs(p)
	case len(now) == 0 && idle:
		within = 0 // files lock nobody out
	case within > 0:
		p.Changes = now
		// Of a goal that no file keeps they only go, or are put back as they were.
		out.Kept = !p.Goals[0].Runtime &&
			slices.ContainsFunc(files, func(c plan.Change) bool { return !isNoFile(c.New) })
	}
	if err := t.claimAll(&p, &out); err != nil {
		return Outcome{}, err
	}
	next, err := t.start(p, within)
	if err != nil {
		return Outcome{}, err
	}
	if err := t.carryOut(next, p, &out); err != nil {
		return Outcome{}, err
	}
	if within > 0 { // of which some has passed since the timer was armed
		out.RevertsIn = units.Duration(max(time.Second, (next.Pending.Until - t.timer.now()).Round(time.Second)))
	}
	t.later(func() { t.host.reload(out.Done) })
	if err := t.verify(next, &out); err != nil {
		return out, err
	}
	if within == 0 {
		if err = t.conclude(next); err != nil {
			err = &hint.Error{What: "all is set, and the journal does not say that it stays: " + err.Error(),
				Try: "weir confirm, when that can be written"}
		}
	}
	t.disarm(j.Unit()) // not before another is armed, or nothing is left to put back
	return out, err
}

// claimAll claims what a plan changes. A boot goes on without the settings that are another journal's.
func (t *transaction) claimAll(p *plan.Plan, out *Outcome) error {
	refused := t.disk.Claim(p.Goals, t.facts)
	p.Changes = slices.DeleteFunc(slices.Clone(p.Changes), func(c plan.Change) bool {
		if refused != nil || c.Dev() != "" || c.IsFile() {
			return false
		}
		err := t.disk.ClaimSetting(c, t.facts)
		if err != nil && t.atBoot {
			out.Failed = append(out.Failed, Failure{c, err.Error()})
			return true
		}
		refused = err
		return false
	})
	return refused
}

// planUp is the plan, and what there is to say of it, unless it is refused.
func (at *situation) planUp(goals []plan.Goal) (plan.Plan, []plan.Note, error) {
	notes := at.journal.Notes()
	if at.atBoot {
		notes = append(notes, at.leaveOut(goals)...)
	}
	p, err := at.plan(goals)
	switch {
	case err != nil:
		return p, nil, err
	case at.atBoot:
		p = p.Carrying(goals) // what a host carries a boot cannot see: its tunnels come later
		if p.Unavailable != nil {
			notes = append(notes, plan.Note{Subject: p.Goals[0].Dev, Text: p.Unavailable.What})
		}
	case p.Unavailable != nil:
		return p, nil, p.Unavailable
	case p.NotPersistent != nil:
		return p, nil, p.CheckPersistent()
	}
	return p, notes, nil
}

// keepAsIs lets the journal say that a goal is in force for which nothing is to be changed.
func (t *transaction) keepAsIs(p plan.Plan) error {
	j := t.journal
	if j != nil && alike(j.Goals(), p.Goals) && j.Reverted == nil && !j.OnlyForeign() && !t.carried && !t.adopted {
		return nil
	}
	next := t.next(p)
	next.Confirm()
	if !t.atBoot {
		next.Promise()
	}
	return t.disk.Save(next)
}

// start writes the journal and arms the timer: what has to be there before the first change.
func (t *transaction) start(p plan.Plan, within time.Duration) (*journal.Journal, error) {
	j, next := t.journal, t.next(p)
	next.Pending.Until = t.timer.now() + within
	if within > 0 {
		next.Pending.Unit = timerName(t.disk.Dir, next.Pending.Until, j.Unit())
	}
	if err := t.disk.Save(next); err != nil {
		return nil, err
	}
	if within > 0 {
		if err := t.arm(next); err != nil {
			return nil, err
		}
	}
	return next, nil
}

// carryOut makes the changes. An error is a queue that could not be set: then all is as it was.
func (t *transaction) carryOut(next *journal.Journal, p plan.Plan, out *Outcome) error {
	for _, c := range sortChanges(p.Changes) {
		switch err := t.set(next, c); {
		case err == nil:
			out.Done = append(out.Done, c)
		case t.atBoot && c.Object().Optional:
			e := next.Entry(c.Target)
			err = errors.Join(err, c.Object().Put(t.host, next.Place(*e), e.Was)) // what leaves is shaped all the same
			out.Failed = append(out.Failed, Failure{c, err.Error()})
		case c.Dev() != "":
			undone := t.takeBack(next, append(out.Done, c))
			if undone == nil {
				t.disarm(next.Pending.Unit)
			}
			goal, _ := plan.GoalOf(p.Goals, c.Dev())
			return notSet(goal, c, err, undone)
		default:
			out.Failed = append(out.Failed, Failure{c, err.Error()})
		}
	}
	return nil
}

// conclude makes a run the one to go back to, without anybody's word.
func (t *transaction) conclude(next *journal.Journal) error {
	next.Confirm()
	if !t.atBoot {
		next.Promise()
		next.OwnGoalFile(t.facts)
	}
	return t.disk.Save(next)
}

// writable finds out before anything is changed whether the files could be written.
func (s Store) writable(files []plan.Change) error {
	if unwritable := s.unwritable(files); unwritable != nil {
		return hint.New(unwritable.What+"; nothing was changed", unwritable.Try)
	}
	return nil
}

// unwritable is why one of the files could not be written: nil if all could.
func (s Store) unwritable(files []plan.Change) *hint.Error {
	for _, c := range files {
		if err := s.host.writable(c.Name); err != nil {
			return &hint.Error{
				What: fmt.Sprintf("%s, which would keep the goal over a reboot, cannot be written: %v", c.Name, err),
				Try:  "--runtime: what is set then ends with a reboot",
			}
		}
	}
	return nil
}

// arm starts what puts the run of a journal back. Others are not kept out meanwhile: when it does not answer, they may
// have to put back what was there before.
func (t *transaction) arm(next *journal.Journal) error {
	t.held.unlock()
	t.held.unlock = func() {}
	err := t.timer.arm(next.Pending.Unit, t.disk.Dir)
	if err != nil {
		t.disarm(next.Pending.Unit) // for all that is known it may be armed
	}
	unlock, errLock := t.disk.Lock(journal.Patience)
	if errLock != nil {
		return errLock // and they go on from a run that has changed nothing
	}
	t.held.unlock = unlock
	switch now, errLoad := t.disk.Load(); {
	case errLoad != nil:
		return errLoad
	case now.Unit() != next.Pending.Unit:
		t.disarm(next.Pending.Unit)
		if t.timer.now() >= next.Pending.Until {
			return &hint.Error{What: "the time was over before its timer was armed: this host is slow now; " +
				"nothing was changed", Try: "a longer --timeout"}
		}
		return journal.Busy("another weir has changed this host meanwhile; nothing was changed", "weir status")
	case err == nil:
		return nil
	}
	if undone := t.disk.SaveOrRemove(t.journal); undone != nil {
		return undone
	}
	return &hint.Error{
		What: fmt.Sprintf("the timer that would put it back cannot be armed: %v; nothing was changed", err),
		Try:  "weir up --yes, which does without, if you can get at this host in another way",
	}
}

// takeBack makes the host and the journal what they were before a run that failed at a queue, the last of what it
// has tried; next is its journal.
func (t *transaction) takeBack(next *journal.Journal, tried []plan.Change) error {
	var failed []error
	for _, whole := range []bool{false, true} { // what the kernel makes by itself it makes by the settings
		for _, c := range slices.Backward(tried) {
			o, at := c.Object(), next.Place(*next.Entry(c.Target))
			link, there := t.facts.Link(c.Dev())
			if o.Whole != whole || c.IsFile() || c.Dev() != "" && whole && !there {
				continue
			}
			if whole {
				at.Link, at.Tree, at.Was = link.Index, link.Tree, c.Old
			}
			failed = append(failed, o.Put(t.host, at, c.Old))
		}
	}
	if err := errors.Join(failed...); err != nil {
		return err // and the journal stays, so that recover can try again
	}
	return t.disk.SaveOrRemove(t.journal)
}

func notSet(goal plan.Goal, c plan.Change, err, undone error) error {
	what, try := fmt.Sprintf("%s: %s: %v", c.Name, c.New, err),
		"another queue with --qdisc, or weir plan for the reasons"
	switch {
	case goal.Only:
		try = "weir doctor, for what this kernel can do"
	case c.Kind == kernel.Ingress:
		what, try = fmt.Sprintf("%s: ingress: %s: %v", c.Name, c.New, err),
			goal.WithoutIngress()+"; or weir plan for the reasons"
	}
	if undone != nil {
		return &hint.Error{What: fmt.Sprintf("%s; and it could not be taken back: %v", what, undone),
			Try: "weir recover"}
	}
	return &hint.Error{What: what + "; nothing was changed", Try: try}
}

// verify adds to the outcome what a plan from new facts would still change. While it is not confirmed no file is to be
// there.
func (t *transaction) verify(next *journal.Journal, out *Outcome) error {
	facts, err := t.readFacts()
	if err != nil {
		return err
	}
	left, err := t.after(next, facts).plan(next.Goals())
	if err != nil {
		return err
	}
	now, files := lasting(left.Changes)
	for _, c := range now {
		out.fail(c, "was set, and is "+c.Old.String()+" again")
	}
	if next.Unit() == "" {
		for _, c := range files {
			// Of a device that has another name now they are kept as they are, and are not as planned.
			if slices.ContainsFunc(out.Done, func(d plan.Change) bool { return d.Target == c.Target }) {
				out.fail(c, "was written, and is another again")
			}
		}
	}
	return nil
}

// fail moves a change to those that are not in force.
func (o *Outcome) fail(c plan.Change, why string) {
	o.Done = slices.DeleteFunc(o.Done, func(d plan.Change) bool { return d.Target == c.Target })
	if !slices.ContainsFunc(o.Failed, func(f Failure) bool { return f.Target == c.Target }) {
		o.Failed = append(o.Failed, Failure{c, why})
	}
}
