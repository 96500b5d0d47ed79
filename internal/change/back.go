// SPDX-License-Identifier: Apache-2.0

package change

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"weir/internal/dualpi2"
	"weir/internal/host"
	"weir/internal/plan"
	"weir/internal/units"
)

// Confirm makes the run that is not confirmed the one to go back to, and writes the files that keep it over a reboot. False if there is none to
// confirm.
func (s Store) Confirm() (Status, bool, error) {
	last, j, facts, unlock, err := s.begin("confirm")
	if err != nil {
		return Status{}, false, err
	}
	defer unlock()
	status := s.status(last, j, facts)
	switch {
	case status.Reverted != nil && !status.Unconfirmed:
		return status, false, &plan.Refusal{What: "too late: " + status.Reverted.Goal.Flags() + " was put back", Try: "weir up again, with --timeout for more time"}
	case status.Reboot:
		return status, false, &plan.Refusal{What: "the machine was started again since weir up, and its changes ended with that", Try: "weir up"}
	case j == nil || j.Pending == nil:
		return status, false, nil
	case j.Pending.Down:
		return status, false, &plan.Refusal{What: "the last run was weir down, and it was cut short", Try: "weir recover"}
	}
	if err := isUp(j.Goal, facts); err != nil {
		return status, false, err // what nothing can leave by nobody has seen at work
	}
	p, err := j.plan(j.Goal, facts)
	if err != nil {
		return status, false, err
	}
	if p.Unkept != nil {
		return status, false, p.Unkept
	}
	now, files := lasting(p.Changes)
	if len(now) > 0 {
		var which []string
		for _, c := range now {
			which = append(which, fmt.Sprintf("%s is %s, not %s", c.Target, c.Old, c.New))
		}
		return status, false, &plan.Refusal{
			What: "not confirmed, since it is not in force: " + strings.Join(which, "; "),
			Try:  "weir up, then weir confirm; or weir up --yes, which keeps what can be set",
		}
	}
	unit := j.unit()
	if j, err = s.keep(j, files, facts); err != nil {
		return status, false, err
	}
	j.confirm()
	j.promise()
	j.own(facts)
	if err := s.save(j); err != nil {
		return status, false, err
	}
	s.disarm(unit)
	s.report("confirm", Outcome{Goal: j.Goal, Done: files}, nil)
	status.Unconfirmed, status.RevertsIn, status.Kept, status.Goal = false, 0, j.kept(), j.Goal
	return status, true, nil
}

// keep writes files for the run that is pending, and gives the journal that knows of them. All are written, or none.
func (s Store) keep(j *journal, files []plan.Change, facts host.Facts) (*journal, error) {
	if len(files) == 0 {
		return j, nil
	}
	next := j.with(plan.Plan{Goal: j.Goal, Changes: files}, facts)
	next.Pending.Until, next.Pending.Unit = j.Pending.Until, j.Pending.Unit
	if err := s.save(next); err != nil {
		return nil, err
	}
	for i, c := range files {
		err := s.set(next, c)
		if err == nil {
			continue
		}
		var failed []error
		for _, done := range slices.Backward(files[:i+1]) {
			done.Old, done.New = done.New, done.Old
			failed = append(failed, s.set(next, done))
		}
		what := fmt.Sprintf("not confirmed: %s: %v", c.File, err)
		if undone := errors.Join(append(failed, s.put(j))...); undone != nil {
			return nil, &plan.Refusal{What: fmt.Sprintf("%s; and it could not be taken back: %v", what, undone), Try: "weir recover"}
		}
		return nil, &plan.Refusal{What: what, Try: "weir confirm again when that is mended; or weir up --runtime, which ends with a reboot and takes no files"}
	}
	s.host.reload(files)
	return next, nil
}

// Down puts back what was there before the first Up. What somebody else has set since is left and stays in the journal, unless forced.
func (s Store) Down(force bool) (Outcome, error) {
	out := Outcome{Done: []plan.Change{}}
	_, j, facts, unlock, err := s.begin("down")
	if other := (*elsewhere)(nil); force && errors.As(err, &other) && !other.kept {
		out.Notes = append(out.Notes, plan.Note{Subject: "the journal", Text: "was about another network namespace, and is removed; nothing was put back there"})
		return out, s.Forget()
	}
	if err != nil {
		return Outcome{}, err
	}
	defer unlock()
	if j == nil {
		// Perhaps there is one of an earlier boot, whose settings ended with it.
		return out, s.remove()
	}
	out.Goal, out.Notes = j.Goal, j.notes()
	for i, e := range j.Entries {
		j.Entries[i].Theirs = j.state(facts, e) == foreign && !force
	}
	// From here on it is known that the host is on its way down, should this run be cut short. If that cannot be written, for want of space
	// perhaps, it is no reason to stay: down can be run again.
	j.Pending = &pending{Until: s.timer.now(), Unit: j.unit(), Down: true}
	_ = s.save(j)
	err = s.putBack(j, facts, &out)
	if err == nil && len(out.Failed) == 0 {
		s.disarmStale(firstTimer, secondTimer)
	}
	s.report("down", out, err)
	return out, err
}

// Recover puts back a run that is not confirmed, or was cut short, whatever has been changed since.
func (s Store) Recover() (Outcome, error) {
	out, _, err := s.recover(false)
	return out, err
}

// Expire is what the timer calls: Recover when the time is over, and not before. It returns when nothing is left to wait for. Once
// it waits it says so.
func (s Store) Expire(waits func()) (Outcome, error) {
	const (
		pause    = time.Second // also to notice that it was confirmed, and need not wait on
		attempts = 60
	)
	for failed := 0; ; {
		out, left, err := s.recover(true)
		switch {
		case err != nil || len(out.Failed) > 0:
			// Another run may have the lock, or a device be busy: a host that nobody can reach has nobody else to try again.
			if other := (*busy)(nil); !errors.As(err, &other) {
				failed++
			}
			if failed == attempts {
				return out, err
			}
			left = pause
		case left == 0:
			return out, nil
		}
		if waits != nil {
			waits()
			waits = nil
		}
		s.timer.sleep(min(left, pause))
	}
}

// recover puts a pending run back, or says how long that has to wait.
func (s Store) recover(due bool) (out Outcome, wait time.Duration, err error) {
	out = Outcome{Done: []plan.Change{}}
	if due {
		// Without the lock, which others may want meanwhile, and without a look at the host.
		j, err := s.load()
		if err != nil || j == nil || j.Pending == nil {
			return out, 0, err
		}
		if wait := j.Pending.Until - s.timer.now(); wait > 0 {
			return out, wait, nil
		}
	}
	_, j, facts, unlock, err := s.begin("recover")
	if err != nil {
		return out, 0, err
	}
	defer unlock()
	if j == nil || j.Pending == nil {
		return out, 0, nil
	}
	if wait := j.Pending.Until - s.timer.now(); due && wait > 0 {
		return out, wait, nil // another up was faster
	}
	out.Goal, out.Notes = j.Goal, j.notes()
	err = s.putBack(j, facts, &out)
	s.report("recover", out, err)
	return out, 0, err
}

// aim is what a pending run's entry is to be again, if anything.
func (j *journal) aim(e entry) (string, bool) {
	switch {
	case j.Pending.Down:
		return e.Was, !e.Theirs
	case e.Back != nil:
		return *e.Back, true
	}
	return "", false
}

// is tells whether an entry is what it is to be, or can no longer be that.
func (j *journal) is(f host.Facts, e entry, want string) bool {
	now, ok := j.value(f, e.Target)
	if !ok {
		return true
	}
	if want == e.Was {
		return j.state(f, e) == asFound
	}
	return same(e.Target, now, want)
}

// putBack puts a pending run back, looks whether it is, and then says so in the journal. Cut short, it can be done again.
func (s Store) putBack(j *journal, facts host.Facts, out *Outcome) error {
	var back, files []plan.Change
	var overwritten []plan.Note
	reason := "as it was"
	if !j.Pending.Down && j.Pending.Back != nil {
		reason = "as it was confirmed"
	}
	for _, e := range j.Entries {
		now, ok := j.value(facts, e.Target)
		want, ours := j.aim(e)
		want = present(facts, e.Target, want)
		change := plan.Change{Target: e.Target, Old: now, New: want, Reason: reason, Evidence: "the journal"}
		switch {
		case !ours && e.Theirs && j.Pending.Down:
			change.New = e.Was
			why := fmt.Sprintf("is %s, and weir set %s", now, e.last())
			if e.File != "" {
				why = "is not as weir wrote it"
			} else if owner := plan.Owner(facts, e.Target); owner != "" {
				why += "; " + owner
			}
			out.Left = append(out.Left, Failure{change, why})
		case !ours:
		case !ok:
			out.Notes = append(out.Notes, plan.Note{Subject: e.Target.String(), Text: "is gone, and what was set with it"})
		case !j.is(facts, e, want):
			if j.state(facts, e) == foreign {
				if e.File != "" {
					now = "another"
				}
				overwritten = append(overwritten, plan.Note{Subject: e.Target.String(), Text: "was " + now + ", which weir had not set, and is overwritten"})
			}
			if e.File != "" {
				files = append(files, change)
			} else {
				back = append(back, change)
			}
		}
	}
	slices.Reverse(files) // what looks after the others goes last
	back = append(back, files...)
	out.Notes = append(out.Notes, overwritten...)
	for _, c := range inOrder(back) {
		if err := s.set(j, c); err != nil {
			out.Failed = append(out.Failed, Failure{c, err.Error()})
		} else {
			out.Done = append(out.Done, c)
		}
	}
	for _, e := range j.Entries {
		if _, there := facts.Link(e.Dev); there && slices.ContainsFunc(e.Set, ownQueue) {
			if err := s.host.cleanQueue(j.Link); err != nil {
				out.Failed = append(out.Failed, Failure{plan.Change{Target: e.Target, New: e.Was}, err.Error()})
			}
		}
	}
	s.host.reload(out.Done)
	facts, err := s.facts()
	if err != nil {
		return err
	}
	for _, c := range slices.Clone(out.Done) {
		if !j.is(facts, *j.entry(c.Target), c.New) {
			now, _ := j.value(facts, c.Target)
			if c.File != "" {
				now = "another"
			}
			out.fail(c, "was put back, and is "+now)
		} else if link, ok := facts.Link(c.Dev); ok && c.New == j.entry(c.Target).Was && j.remade(link.Tree) {
			out.Notes = append(out.Notes, plan.Note{Subject: c.Target.String(),
				Text: c.New + " is set by weir now: it was the kernel's own choice, which net.core.default_qdisc has changed since"})
		}
	}
	if len(out.Failed) > 0 {
		return nil // and the journal stays, so that it can be tried again
	}
	for _, e := range j.Entries {
		if e.File != "" {
			s.host.sweep(e.File)
		}
	}
	unit := j.unit()
	if err := s.put(j.afterwards(overwritten)); err != nil {
		return err
	}
	s.disarm(unit)
	return nil
}

// ownQueue tells whether a queue is one that leaves something on its device when somebody takes it away.
func ownQueue(text string) bool { return strings.HasPrefix(text, "bpf_dualpi2") }

// afterwards is the journal when a pending run has been put back; nil if there is nothing left to tell.
func (j *journal) afterwards(overwritten []plan.Note) *journal {
	next, toGoal := *j, !j.Pending.Down && j.Pending.Back != nil
	next.Entries, next.Pending, next.Reverted = nil, nil, nil
	for _, e := range j.Entries {
		back, put := j.aim(e)
		if put {
			e.set(back)
		}
		e.Back, e.Theirs = nil, !toGoal // what was not put back then had been left to somebody else before
		if toGoal || !put {
			next.Entries = append(next.Entries, e)
		}
	}
	switch {
	case toGoal:
		next.Goal = *j.Pending.Back
	case !j.Pending.Down:
		next.Goal = plan.Goal{}
	case len(next.Entries) == 0:
		return nil
	}
	if !j.Pending.Down {
		next.Reverted = &Reverted{j.Goal, overwritten}
	}
	return &next
}

// Forget removes a journal that is of no use any more, and puts nothing back but what a BPF queue has left that is gone.
func (s Store) Forget() error {
	unlock, err := s.lock()
	if err != nil {
		return err
	}
	defer unlock()
	last, err := s.load()
	if err != nil {
		return err
	}
	if err := s.remove(); err != nil {
		return err
	}
	s.disarm(last.unit())
	if last == nil {
		return nil
	}
	return s.host.cleanQueue(last.Link)
}

// Status makes the plan for the goal in force again. That there is no such plan any more is a status, and no error.
func (s Store) Status() (Status, error) {
	last, j, facts, err := s.look()
	if err == nil {
		err = j.readable(facts)
	}
	if err != nil {
		return Status{Drift: []plan.Change{}}, err
	}
	return s.status(last, j, facts), nil
}

// readable is why it cannot be told what the journal's device has: a BPF queue shows what it is to root alone.
func (j *journal) readable(facts host.Facts) error {
	if j == nil || facts.Admin {
		return nil
	}
	link, _ := facts.Link(j.Goal.Dev)
	if root, _ := link.Tree.Root(); !strings.HasPrefix(root.Kind, dualpi2.Prefix) {
		return nil
	}
	return &plan.Refusal{What: link.Name + " has a BPF queue, which takes root to look into (CAP_SYS_ADMIN)", Try: "the same with sudo"}
}

func (s Store) status(last, j *journal, facts host.Facts) Status {
	status := Status{Drift: []plan.Change{}}
	var goal plan.Goal
	if j != nil {
		j.asIs = true
		if j.Goal.Runtime {
			goal = j.Goal // which no file says
		}
	}
	if err := s.fill(&goal, last, j, facts); err != nil {
		status.Why = err.Error()
		if j == nil && last == nil {
			return status
		}
	}
	if j == nil && last == nil {
		if goal != (plan.Goal{}) {
			status.Why = fmt.Sprintf("%s asks for %s. To bring it up: weir up", host.GoalFile, goal.Flags())
		}
		return status
	}
	status.Goal, status.Notes = goal, j.notes()
	if j != nil {
		status.Reverted = j.Reverted
	} else {
		status.Reverted = last.Reverted
	}
	switch {
	case j != nil && j.Pending != nil && j.Pending.Down:
		status.Why = "weir down was cut short; to end it: weir recover"
		return status
	case j.left():
		status.Why = "it was taken down, but for what somebody else had changed"
		return status
	case status.Why != "":
		status.Up = true
		if j != nil {
			status.Goal = j.Goal
		} else {
			status.Goal = last.Goal
		}
		return status
	case goal == plan.Goal{}:
		if j == nil && last.Goal != (plan.Goal{}) { // of an earlier boot, and not confirmed
			status.Goal, status.Reboot = last.Goal, true
			status.Why = "the machine was started again since, before it was confirmed"
		}
		return status
	}
	status.Up, status.Reboot, status.Kept = true, last != nil && last.Boot != facts.Boot, j.kept()
	if j != nil && j.Pending != nil {
		status.Unconfirmed = true
		status.RevertsIn = units.Duration(max(j.Pending.Until-s.timer.now(), 0))
		goal = j.Goal
		status.Goal = goal
	} else if j != nil && goal != j.Goal && j.Goal != (plan.Goal{}) {
		status.Notes = append(status.Notes, plan.Note{Subject: host.GoalFile, Text: "asks for another goal now; brought up was " + j.Goal.Flags()})
	}
	p, err := j.plan(goal, facts)
	if err != nil {
		status.Why = err.Error()
		return status
	}
	if status.Unconfirmed {
		p.Changes, _ = lasting(p.Changes)
	}
	status.InForce, status.Drift = p.Empty(), append(status.Drift, p.Changes...)
	if status.InForce {
		status.Owns = plan.Owns(p.Goal, facts)
	}
	if p.Lacks != nil {
		status.InForce, status.Why = false, p.Lacks.What
	}
	if link, ok := facts.Link(p.Goal.Dev); ok && !link.Up {
		status.Notes = append(status.Notes, plan.Note{Subject: link.Name, Text: "the link is down"})
	}
	if whole, err := plan.Make(goal, j.before(facts)); err == nil {
		status.Notes = append(append(status.Notes, j.broken(whole)...), plan.Overruled(whole, facts)...)
	}
	return status
}
