// SPDX-License-Identifier: Apache-2.0

package change

import (
	"errors"
	"slices"
	"time"

	"weir/internal/host"
	"weir/internal/plan"
)

// Recover puts back a run that is not confirmed, or was cut short, whatever has been changed since.
func (s Store) Recover() (Outcome, error) {
	out, _, err := s.recover(false, "")
	return out, err
}

// Expire is what the timer calls: Recover when the time is over, and not before. It returns when nothing is left to
// wait for. Once it waits it says so.
//
// A host that nobody can reach has nobody else to try again: it tries for as long as that takes.
func (s Store) Expire(waits func()) (Outcome, error) {
	const (
		pause   = time.Second // also to notice that it was confirmed, and need not wait on
		longest = time.Minute // between two attempts
	)
	s.expires = true
	s.unprinted = true // but for the last attempt, at the end
	var last Outcome
	for again := pause; ; {
		out, left, err := s.recover(true, "")
		if len(out.Done) > 0 {
			last = out
		}
		var unsaved unsavedRun
		switch {
		case errors.As(err, &unsaved):
			// All is put back. What is set by hand from now on is not to be overwritten.
			s.done = &unsaved.until
			left, again = again, min(2*again, longest)
		case err != nil || len(out.Failed) > 0:
			left, again = again, min(2*again, longest)
		case left == 0:
			return last, nil
		default:
			left = min(left, pause)
		}
		if waits != nil {
			waits()
			waits = nil
		}
		s.timer.sleep(left)
	}
}

// unsavedRun is that a run was put back, and the journal cannot be told.
type unsavedRun struct {
	error
	until time.Duration // the run's deadline, by which it is known
}

// recover puts a pending run back, or says how long that has to wait. It is of one run alone if its timer is named.
func (s Store) recover(due bool, unit string) (out Outcome, wait time.Duration, err error) {
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
		if s.done != nil && j.Pending.Until == *s.done {
			return out, 0, s.ended(j)
		}
	}
	s, at, err := s.begin("recover")
	if err != nil {
		return out, 0, err
	}
	defer s.end()
	j := at.journal
	if j == nil || j.Pending == nil || unit != "" && j.unit() != unit {
		return out, 0, nil
	}
	if wait := j.Pending.Until - s.timer.now(); due && wait > 0 {
		return out, wait, nil // another up was faster
	}
	out.Goal, out.Notes = j.undone(), j.notes()
	err = s.putBack(j, at.facts, &out)
	s.report("recover", out, err)
	return out, 0, err
}

// undone is the goal that a pending run was about, or the first of them.
func (j *journal) undone() plan.Goal {
	if goal, there := about(j.goals(), j.Pending.Dev); there {
		return goal
	}
	for _, goal := range j.goals() {
		return goal
	}
	return plan.Goal{}
}

// backTo is what a pending run's entry is to be again, if anything.
func (j *journal) backTo(e entry) (plan.Value, bool) {
	if j.Pending.Down {
		return e.Was, !e.Theirs
	}
	return e.Back, e.Back != nil
}

// reached reports whether an entry is what it is to be, or can no longer be that.
func (j *journal) reached(f host.Facts, e entry, want plan.Value) bool {
	now, ok := j.value(f, e.Target)
	if !ok {
		return true
	}
	if equal(want, e.Was) {
		return j.state(f, e) == asFound
	}
	return now.Meets(want)
}

// putBack puts a pending run back, looks whether it is, and then says so in the journal. Cut short, it can be done
// again.
func (s Store) putBack(j *journal, facts host.Facts, out *Outcome) error {
	back, overwritten := j.toPutBack(facts, out)
	out.Notes = append(out.Notes, overwritten...)
	for _, c := range inOrder(back) {
		if err := s.set(j, c); err != nil {
			out.Failed = append(out.Failed, Failure{c, err.Error()})
		} else {
			out.Done = append(out.Done, c)
		}
	}
	s.cleanQueues(j, facts, "", out)
	s.later(func() { s.host.reload(out.Done) })
	facts, err := s.facts()
	if err != nil {
		return err
	}
	j.lookAgain(facts, out)
	if len(out.Failed) > 0 {
		return nil // and the journal stays, so that it can be tried again
	}
	for _, e := range j.Entries {
		if e.Kind == plan.File {
			s.host.sweep(e.Name)
		}
	}
	unit := j.unit()
	switch err := s.saveOrRemove(j.afterwards(overwritten)); {
	case err == nil:
	case s.expires:
		return unsavedRun{err, j.Pending.Until}
	default:
		again := "weir recover"
		if said, err := s.load(); j.Pending.Down && err == nil && said != nil && said.Pending != nil &&
			len(said.Pending.Back) > 0 {
			// Its timer would bring up again what was confirmed earlier.
			s.disarm(unit)
			again = "weir down"
		}
		out.Notes = append(out.Notes, plan.Note{Subject: "the journal", Text: err.Error() +
			". All is put back, and it does not say so. When it can be written:  " + again})
		return nil // and another timer stays: it waits for that
	}
	s.disarm(unit)
	return nil
}

// putBackFirst puts a pending run back before another begins, from the situation that it gives.
func (s Store) putBackFirst(at situation, out *Outcome) (situation, error) {
	if err := s.putBack(at.journal, at.facts, out); err != nil || len(out.Failed) > 0 {
		return at, err
	}
	return s.read()
}

// toPutBack is what to change for a pending run to be back, files last; with notes on what somebody else has set.
func (j *journal) toPutBack(facts host.Facts, out *Outcome) (back []plan.Change, overwritten []plan.Note) {
	var files []plan.Change
	reason := "as it was"
	if !j.Pending.Down && len(j.Pending.Back) > 0 {
		reason = "as it was confirmed"
	}
	for _, e := range j.Entries {
		now, ok := j.value(facts, e.Target)
		want, ours := j.backTo(e)
		want = present(facts, want)
		change := plan.Change{Target: e.Target, Old: now, New: want, Reason: reason, Evidence: "the journal"}
		switch {
		case !ours && e.Theirs && j.Pending.Down:
			change.New = e.Was
			why := e.differs(now)
			if owner := plan.Owner(facts, e.Target); e.Kind != plan.File && owner != "" {
				why += "; " + owner
			}
			out.Left = append(out.Left, Failure{change, why})
		case !ours:
		case !ok:
			out.Notes = append(out.Notes, plan.Note{Subject: e.Target.String(),
				Text: "is gone, and what was set with it"})
		case !j.reached(facts, e, want):
			if j.state(facts, e) == foreign {
				overwritten = append(overwritten, overwrites(change))
			}
			if e.Kind == plan.File {
				files = append(files, change)
			} else {
				back = append(back, change)
			}
		}
	}
	slices.Reverse(files) // what looks after the others goes last
	return append(back, files...), overwritten
}

// overwrites is what a person is told whose value is not kept.
func overwrites(c plan.Change) plan.Note {
	return plan.Note{Subject: c.Target.String(),
		Text: "was " + brief(c.Old) + ", which weir had not set, and is overwritten"}
}

// lookAgain moves what is not back to what has failed.
func (j *journal) lookAgain(facts host.Facts, out *Outcome) {
	for _, c := range slices.Clone(out.Done) {
		if !j.reached(facts, *j.entry(c.Target), c.New) {
			now, _ := j.value(facts, c.Target)
			out.fail(c, "was put back, and is "+brief(now))
			continue
		}
		link, ok := facts.Link(c.Dev())
		if ok && c.Kind == plan.Root && equal(c.New, j.entry(c.Target).Was) && j.uplink(c.Name).remade(link.Tree) {
			out.Notes = append(out.Notes, plan.Note{Subject: c.Target.String(),
				Text: c.New.String() + " is set by weir now: it was the kernel's own choice, which " +
					"net.core.default_qdisc has changed since"})
		}
	}
}

// ended lets the journal say that a run was put back, some time after that.
func (s Store) ended(j *journal) error {
	unlock, err := s.lock()
	if err != nil {
		return err
	}
	defer unlock()
	if now, err := s.load(); err != nil || now == nil || now.Pending == nil || now.Pending.Until != *s.done {
		return err // another run was faster
	}
	if err := s.saveOrRemove(j.afterwards(nil)); err != nil {
		return unsavedRun{err, *s.done}
	}
	return nil
}

// brief is a value in a sentence, where a whole file has no place.
func brief(v plan.Value) string {
	if _, is := v.(plan.Content); is {
		return "another"
	}
	return v.String()
}

// afterwards is the journal when a pending run has been put back; nil if there is nothing left to tell.
func (j *journal) afterwards(overwritten []plan.Note) *journal {
	next, toGoal := *j, !j.Pending.Down && len(j.Pending.Back) > 0
	next.Uplinks, next.Entries, next.Pending, next.Reverted = slices.Clone(j.Uplinks), nil, nil, nil
	for _, e := range j.Entries {
		back, put := j.backTo(e)
		if put {
			e.set(back)
		}
		// What was not put back to as found had been left to somebody else before.
		e.Back, e.Theirs = nil, !toGoal || e.Theirs
		if toGoal || !put {
			next.Entries = append(next.Entries, e)
		}
	}
	switch {
	case toGoal:
		for i := range next.Uplinks {
			u := &next.Uplinks[i]
			at := slices.IndexFunc(j.Pending.Back, func(w written) bool { return w.Dev == u.Goal.Dev })
			if u.Down = at < 0; !u.Down {
				to := j.Pending.Back[at]
				u.Goal, u.strange, u.text = to.Goal, to.strange, to.text
			}
		}
		next.forget()
	case !j.Pending.Down:
		next.Uplinks = slices.DeleteFunc(next.Uplinks, func(u uplink) bool {
			return !slices.ContainsFunc(next.Entries, func(e entry) bool { return e.Dev() == u.Goal.Dev })
		})
		for i := range next.Uplinks {
			next.Uplinks[i].Down = true
		}
	case len(next.Entries) == 0:
		return nil
	default:
		of := func(u uplink) func(entry) bool { return func(e entry) bool { return e.Dev() == u.Goal.Dev } }
		left := slices.DeleteFunc(slices.Clone(next.Uplinks),
			func(u uplink) bool { return !slices.ContainsFunc(next.Entries, of(u)) })
		if len(left) > 0 { // else it is the host's settings, and which goals asked for them is still to be known
			next.Uplinks = left
		}
	}
	if !j.Pending.Down {
		next.Reverted = &Reverted{j.undone(), overwritten}
	}
	return &next
}
