// SPDX-License-Identifier: Apache-2.0

package change

import (
	"errors"
	"slices"
	"time"

	"weir/internal/host"
	"weir/internal/journal"
	"weir/internal/kernel"
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
		j, err := s.disk.Load()
		if err != nil || j == nil || j.Pending == nil {
			return out, 0, err
		}
		if wait := j.Pending.Until - s.timer.now(); wait > 0 {
			return out, wait, nil
		}
		if s.done != nil && j.Pending.Until == *s.done {
			return out, 0, s.noteReverted(j)
		}
	}
	t, err := s.begin("recover")
	if err != nil {
		return out, 0, err
	}
	defer t.end()
	j := t.journal
	if j == nil || j.Pending == nil || unit != "" && j.Unit() != unit {
		return out, 0, nil
	}
	if wait := j.Pending.Until - s.timer.now(); due && wait > 0 {
		return out, wait, nil // another up was faster
	}
	out.Goal, out.Notes = j.Undone(), j.Notes()
	err = t.putBack(&out)
	t.report("recover", out, err)
	return out, 0, err
}

// putBack puts a pending run back, looks whether it is, and then says so in the journal. Cut short, it can be done
// again.
func (t *transaction) putBack(out *Outcome) error {
	j := t.journal
	back, overwritten := t.toPutBack(out)
	out.Notes = append(out.Notes, overwritten...)
	for _, c := range sortChanges(back) {
		if err := t.set(j, c); err != nil {
			out.Failed = append(out.Failed, Failure{c, err.Error()})
		} else {
			out.Done = append(out.Done, c)
		}
	}
	t.cleanQueues(j, t.facts, "", out)
	t.later(func() { t.host.reload(out.Done) })
	facts, err := t.readFacts()
	if err != nil {
		return err
	}
	lookAgain(j, facts, out)
	if len(out.Failed) > 0 {
		return nil // and the journal stays, so that it can be tried again
	}
	for _, e := range j.Entries {
		if e.IsFile() {
			t.host.sweep(e.Name)
		}
	}
	unit := j.Unit()
	switch err := t.disk.SaveOrRemove(j.Afterwards(overwritten)); {
	case err == nil:
	case t.expires:
		return unsavedRun{err, j.Pending.Until}
	default:
		again := "weir recover"
		if said, err := t.disk.Load(); j.Pending.Down && err == nil && said != nil && said.Pending != nil &&
			len(said.Pending.Back) > 0 {
			// Its timer would bring up again what was confirmed earlier.
			t.disarm(unit)
			again = "weir down"
		}
		out.Notes = append(out.Notes, plan.Note{Subject: "the journal", Text: err.Error() +
			". All is put back, and it does not say so. When it can be written:  " + again})
		return nil // and another timer stays: it waits for that
	}
	t.disarm(unit)
	return nil
}

// putBackFirst puts a pending run back before another begins, which starts from what is there then.
func (t *transaction) putBackFirst(out *Outcome) (err error) {
	if err = t.putBack(out); err != nil || len(out.Failed) > 0 {
		return err
	}
	t.situation, err = t.read()
	return err
}

// toPutBack is what to change for a pending run to be back, files last; with notes on what somebody else has set.
func (at situation) toPutBack(out *Outcome) (back []plan.Change, overwritten []plan.Note) {
	j, facts := at.journal, at.facts
	var files []plan.Change
	reason := "as it was"
	if !j.Pending.Down && len(j.Pending.Back) > 0 {
		reason = "as it was confirmed"
	}
	for _, e := range j.Entries {
		now, ok := j.Value(facts, e.Target)
		want, ours := j.BackTo(e)
		if o := e.Object(); o.Possible != nil && ours {
			want = o.Possible(facts, want)
		}
		change := plan.Change{Target: e.Target, Old: now, New: want, Reason: reason, Evidence: "the journal"}
		switch {
		case !ours && e.Theirs && j.Pending.Down:
			change.New = e.Was
			why := e.Differs(now)
			if owner := e.Object().Owner(facts, e.Name); !e.IsFile() && owner != "" {
				why += "; " + owner
			}
			out.Left = append(out.Left, Failure{change, why})
		case !ours:
		case !ok:
			out.Notes = append(out.Notes, plan.Note{Subject: e.Target.String(),
				Text: "is gone, and what was set with it"})
		case !j.Reached(facts, e, want):
			if j.State(facts, e) == journal.Foreign {
				overwritten = append(overwritten, overwrites(change))
			}
			if e.IsFile() {
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
		Text: "was " + briefText(c.Old) + ", which weir had not set, and is overwritten"}
}

// lookAgain moves what is not back to what has failed.
func lookAgain(j *journal.Journal, facts host.Facts, out *Outcome) {
	for _, c := range slices.Clone(out.Done) {
		if !j.Reached(facts, *j.Entry(c.Target), c.New) {
			now, _ := j.Value(facts, c.Target)
			out.fail(c, "was put back, and is "+briefText(now))
			continue
		}
		if j.Remade(facts, c) {
			out.Notes = append(out.Notes, plan.Note{Subject: c.Target.String(),
				Text: c.New.String() + " is set by weir now: it was the kernel's own choice, which " +
					"net.core.default_qdisc has changed since"})
		}
	}
}

// noteReverted lets the journal say that a run was put back, some time after that.
func (s Store) noteReverted(j *journal.Journal) error {
	unlock, err := s.disk.Lock(journal.Patience)
	if err != nil {
		return err
	}
	defer unlock()
	if now, err := s.disk.Load(); err != nil || now == nil || now.Pending == nil || now.Pending.Until != *s.done {
		return err // another run was faster
	}
	if err := s.disk.SaveOrRemove(j.Afterwards(nil)); err != nil {
		return unsavedRun{err, *s.done}
	}
	return nil
}

// briefText is a value in a sentence, where a whole file has no place.
func briefText(v kernel.Value) string {
	if _, is := v.(kernel.Content); is {
		return "another"
	}
	return v.String()
}
