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

// Confirm makes the run that is not confirmed the one to go back to, and writes the files that keep it over a reboot.
// False if there is none to confirm.
func (s Store) Confirm() (Status, bool, error) {
	s, last, j, facts, err := s.begin("confirm")
	if err != nil {
		return Status{}, false, err
	}
	defer s.end()
	status := s.status(last, j, facts)
	switch {
	case status.Reverted != nil && !status.Unconfirmed:
		return status, false, &plan.Refusal{What: "too late: " + status.Reverted.Goal.Flags() + " was put back",
			Try: "weir up again, with --timeout for more time"}
	case status.Reboot:
		return status, false,
			&plan.Refusal{What: "the machine was started again since weir up, and its changes ended with that",
				Try: "weir up"}
	case j == nil || j.Pending == nil:
		return status, false, nil
	case j.Pending.Down:
		return status, false, &plan.Refusal{What: "the last run was weir down, and it was cut short",
			Try: "weir recover"}
	}
	j.only = j.Pending.Dev
	for _, goal := range j.goals() {
		if _, there := facts.Link(goal.Dev); !there && len(j.goals()) > 1 {
			return status, false, &plan.Refusal{What: goal.Dev + ", which has a goal, too, is not there",
				Try: "weir confirm when it is; or weir down --dev " + goal.Dev}
		}
		if err := isUp(goal, facts); err != nil && (j.only == "" || j.only == goal.Dev) {
			return status, false, err // what nothing can leave by nobody has seen at work
		}
	}
	if err := j.strange(""); err != nil {
		return status, false, err
	}
	p, err := j.plan(j.goals(), facts)
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
	s.report("confirm", Outcome{Goal: j.goals()[0], Done: files}, nil)
	status.Unconfirmed, status.RevertsIn, status.Kept = false, 0, j.kept()
	status.Goal, status.Others = j.goals()[0], j.goals()[1:]
	return status, true, nil
}

// keep writes files for the run that is pending, and gives the journal that knows of them. All are written, or none.
func (s Store) keep(j *journal, files []plan.Change, facts host.Facts) (*journal, error) {
	if len(files) == 0 {
		return j, nil
	}
	next := j.with(plan.Plan{Goal: j.goals()[0], Others: j.goals()[1:], Changes: files}, facts)
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
			return nil, &plan.Refusal{What: fmt.Sprintf("%s; and it could not be taken back: %v", what, undone),
				Try: "weir recover"}
		}
		return nil, &plan.Refusal{What: what, Try: "weir confirm again when that is mended; or weir up --runtime, " +
			"which ends with a reboot and takes no files"}
	}
	s.later(func() { s.host.reload(files) })
	return next, nil
}

// Down puts back what was there before the first Up. What somebody else has set since is left and stays in the journal,
// unless forced.
func (s Store) Down(force bool) (Outcome, error) { return s.down("", force) }

// DownOne is Down for one device: what is the host's becomes what the goals of the others want of it.
func (s Store) DownOne(dev string, force bool) (Outcome, error) { return s.down(dev, force) }

func (s Store) down(dev string, force bool) (Outcome, error) {
	out := Outcome{Done: []plan.Change{}}
	s, _, j, facts, err := s.begin("down")
	if other := (*elsewhere)(nil); force && errors.As(err, &other) && !other.kept {
		out.Notes = append(out.Notes, plan.Note{Subject: "the journal", Text: "was about another network namespace, " +
			"and is removed; nothing was put back there"})
		return out, s.Forget()
	}
	if err != nil {
		return Outcome{}, err
	}
	defer s.end()
	if j == nil {
		// Perhaps there is one of an earlier boot, whose settings ended with it.
		return out, s.remove()
	}
	out.Notes = j.notes()
	switch goal := j.of(dev); {
	case goal == nil && dev != "":
		return out, &plan.Refusal{What: "weir is not up on " + dev, Try: "weir status, which names what it is up on"}
	case dev != "" && slices.ContainsFunc(j.goals(), func(g plan.Goal) bool { return g.Dev != dev }):
		out.Goal = goal.Goal
		err := s.downOne(j, facts, dev, force, &out)
		s.report("down", out, err)
		return out, err
	case len(j.Uplinks) > 0:
		out.Goal = j.Uplinks[0].Goal
	}
	for i, e := range j.Entries {
		others := dev != "" && device(e.Target) != "" && device(e.Target) != dev // left before, and not asked for
		j.Entries[i].Theirs = j.state(facts, e) == foreign && (!force || others)
	}
	// From here on it is known that the host is on its way down, should this run be cut short. If that cannot be
	// written, for want of space perhaps, it is no reason to stay: down can be run again.
	j.Pending = &pending{Until: s.timer.now(), Unit: j.unit(), Down: true}
	_ = s.save(j)
	err = s.putBack(j, facts, &out)
	s.report("down", out, err)
	return out, err
}

// downOne takes one device's goal down, of several.
func (s Store) downOne(j *journal, facts host.Facts, dev string, force bool, out *Outcome) error {
	if j.Pending != nil {
		return &plan.Refusal{What: "the last run is not confirmed, or was cut short",
			Try: "weir confirm, or weir recover, and then again"}
	}
	if err := j.strange(dev); err != nil {
		return &plan.Refusal{What: err.Error(), Try: "weir down --all, which takes none"}
	}
	others := slices.DeleteFunc(j.goals(), func(g plan.Goal) bool { return g.Dev == dev })
	j.only = dev
	p, err := j.plan(others, facts)
	if err != nil { // it must not keep this one from going
		out.Notes = append(out.Notes, plan.Note{Subject: "the host's settings", Text: "stay: " + err.Error()})
		p = plan.Plan{Goal: others[0], Others: others[1:]}
	}
	p.Changes = slices.DeleteFunc(p.Changes, func(c plan.Change) bool { return device(c.Target) != "" })
	kept := plan.GoalFile(slices.DeleteFunc(slices.Clone(others),
		func(g plan.Goal) bool { return g.Runtime || g.Only }))
	goalFile := plan.Target{File: host.GoalFile}
	asks := slices.ContainsFunc(p.Changes, func(c plan.Change) bool { return c.Target == goalFile })
	if e := j.entry(goalFile); e != nil && !asks && j.state(facts, *e) == ours {
		// Also while a device is not there, and its part of other files stays.
		p.Changes = append(p.Changes, plan.Change{Target: goalFile, Old: facts.Files[host.GoalFile].String(),
			New: kept.String(), Reason: "the goals that stay"})
	}
	theirs := map[plan.Target]bool{}
	for _, e := range j.Entries {
		now, there := j.value(facts, e.Target)
		switch state := j.state(facts, e); {
		case device(e.Target) != dev || state == asFound:
		case !there:
			out.Notes = append(out.Notes, plan.Note{Subject: e.Target.String(),
				Text: "is gone, and what was set with it"})
		case state == foreign && !force:
			theirs[e.Target] = true
			out.Left = append(out.Left, Failure{plan.Change{Target: e.Target, Old: now, New: e.Was},
				fmt.Sprintf("is %s, and weir set %s", now, e.last())})
		default:
			p.Changes = append(p.Changes, plan.Change{Target: e.Target, Old: now, New: e.Was, Reason: "as it was",
				Evidence: "the journal"})
		}
	}
	next := j.with(p, facts)
	next.Pending.Until = s.timer.now()
	next.of(dev).Down = true
	if err := s.save(next); err != nil {
		return err
	}
	for _, c := range inOrder(p.Changes) {
		if err := s.set(next, c); err != nil {
			out.Failed = append(out.Failed, Failure{c, err.Error()})
			continue
		}
		out.Done = append(out.Done, c)
	}
	s.clean(next, facts, dev, out)
	s.later(func() { s.host.reload(out.Done) })
	if facts, err = s.facts(); err != nil {
		return err
	}
	for _, c := range slices.Clone(out.Done) {
		if now, _ := next.value(facts, c.Target); !same(c.Target, now, c.New) &&
			!next.is(facts, *next.entry(c.Target), c.New) {
			out.fail(c, "was put back, and is another")
		}
	}
	if len(out.Failed) > 0 {
		return nil // and weir recover goes back to where this began
	}
	for i, e := range next.Entries {
		next.Entries[i].Theirs = theirs[e.Target]
	}
	next.confirm()
	next.promise()
	return s.save(next)
}

// clean takes away what a BPF queue has left on devices that somebody else has taken it from; "" for all.
func (s Store) clean(j *journal, facts host.Facts, dev string, out *Outcome) {
	for _, e := range j.Entries {
		if _, there := facts.Link(e.Dev); !there || !slices.ContainsFunc(e.Set, ownQueue) || dev != "" && e.Dev != dev {
			continue
		}
		u := j.of(e.Dev)
		if err := s.host.cleanQueue(u.Link, u.GSOSegs); err != nil {
			out.Failed = append(out.Failed, Failure{plan.Change{Target: e.Target, New: e.Was}, err.Error()})
		}
	}
}

// Recover puts back a run that is not confirmed, or was cut short, whatever has been changed since.
func (s Store) Recover() (Outcome, error) {
	out, _, err := s.recover(false)
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
	var last Outcome
	for again := pause; ; {
		out, left, err := s.recover(true)
		if len(out.Done) > 0 {
			last = out
		}
		unsaved := (*unsaved)(nil)
		switch {
		case errors.As(err, &unsaved):
			// All is put back. What is set by hand from now on is not to be overwritten.
			s.done = &unsaved.run
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

// unsaved is that a run was put back, and the journal cannot be told.
type unsaved struct {
	plan.Refusal
	run time.Duration // by its deadline
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
		if s.done != nil && j.Pending.Until == *s.done {
			return out, 0, s.ended(j)
		}
	}
	s, _, j, facts, err := s.begin("recover")
	if err != nil {
		return out, 0, err
	}
	defer s.end()
	if j == nil || j.Pending == nil {
		return out, 0, nil
	}
	if wait := j.Pending.Until - s.timer.now(); due && wait > 0 {
		return out, wait, nil // another up was faster
	}
	out.Goal, out.Notes = j.undone(), j.notes()
	err = s.putBack(j, facts, &out)
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

// putBack puts a pending run back, looks whether it is, and then says so in the journal. Cut short, it can be done
// again.
func (s Store) putBack(j *journal, facts host.Facts, out *Outcome) error {
	var back, files []plan.Change
	var overwritten []plan.Note
	reason := "as it was"
	if !j.Pending.Down && len(j.Pending.Back) > 0 {
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
			out.Notes = append(out.Notes, plan.Note{Subject: e.Target.String(),
				Text: "is gone, and what was set with it"})
		case !j.is(facts, e, want):
			if j.state(facts, e) == foreign {
				if e.File != "" {
					now = "another"
				}
				overwritten = append(overwritten, plan.Note{Subject: e.Target.String(), Text: "was " + now +
					", which weir had not set, and is overwritten"})
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
	s.clean(j, facts, "", out)
	s.later(func() { s.host.reload(out.Done) })
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
		} else if link, ok := facts.Link(c.Dev); ok && c.New == j.entry(c.Target).Was && j.of(c.Dev).remade(link.Tree) {
			out.Notes = append(out.Notes, plan.Note{Subject: c.Target.String(),
				Text: c.New + " is set by weir now: it was the kernel's own choice, which net.core.default_qdisc has " +
					"changed since"})
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
	switch err := s.put(j.afterwards(overwritten)); {
	case err == nil:
	case s.expires:
		return &unsaved{plan.Refusal{What: err.Error()}, j.Pending.Until}
	default:
		out.Notes = append(out.Notes, plan.Note{Subject: "the journal", Text: err.Error() +
			". All is put back, and it does not say so. When it can be written:  weir recover"})
		return nil // and the timer stays: it waits for that
	}
	s.disarm(unit)
	return nil
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
	if err := s.put(j.afterwards(nil)); err != nil {
		return &unsaved{plan.Refusal{What: err.Error()}, *s.done}
	}
	return nil
}

// ownQueue tells whether a queue is one that leaves something on its device when somebody takes it away.
func ownQueue(text string) bool { return strings.HasPrefix(text, "bpf_dualpi2") }

// afterwards is the journal when a pending run has been put back; nil if there is nothing left to tell.
func (j *journal) afterwards(overwritten []plan.Note) *journal {
	next, toGoal := *j, !j.Pending.Down && len(j.Pending.Back) > 0
	next.Uplinks, next.Entries, next.Pending, next.Reverted = slices.Clone(j.Uplinks), nil, nil, nil
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
		for i := range next.Uplinks {
			u := &next.Uplinks[i]
			goal, back := about(j.Pending.Back, u.Goal.Dev)
			if u.Down = !back; back {
				u.Goal, u.strange, u.text = goal, nil, nil
			}
		}
		next.forget()
	case !j.Pending.Down:
		next.Uplinks = slices.DeleteFunc(next.Uplinks, func(u uplink) bool {
			return !slices.ContainsFunc(next.Entries, func(e entry) bool { return device(e.Target) == u.Goal.Dev })
		})
		for i := range next.Uplinks {
			next.Uplinks[i].Down = true
		}
	case len(next.Entries) == 0:
		return nil
	default:
		of := func(u uplink) func(entry) bool { return func(e entry) bool { return device(e.Target) == u.Goal.Dev } }
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

// Forget removes a journal that is of no use any more, and puts nothing back but what a BPF queue has left that is
// gone.
func (s Store) Forget() error {
	unlock, err := s.lock()
	if err != nil {
		return err
	}
	s.run = &run{unlock: unlock}
	defer s.end()
	last, err := s.load()
	if err != nil {
		return err
	}
	if err := s.remove(); err != nil {
		return err
	}
	s.disarm(last.unit())
	var failed []error
	for _, u := range last.uplinks() {
		failed = append(failed, s.host.cleanQueue(u.Link, u.GSOSegs))
	}
	return errors.Join(failed...)
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
	status := s.status(last, j, facts)
	// What has just come into force still shows in what connections remember.
	for look := 0; status.InForce && len(status.Others) == 0; look++ {
		deep := host.Deep{Sockets: s.host.path(facts)}
		facts.Deep = &deep
		if status.Elsewhere = plan.Elsewhere(status.Goal, facts); status.Elsewhere == "" || look == 1 {
			break
		}
		s.timer.sleep(time.Second)
		if facts, err = s.facts(); err != nil {
			return status, err
		}
	}
	return status, nil
}

// readable is why it cannot be told what the journal's device has: a BPF queue shows what it is to root alone.
func (j *journal) readable(facts host.Facts) error {
	if facts.Admin {
		return nil
	}
	for _, goal := range j.goals() {
		link, _ := facts.Link(goal.Dev)
		if root, _ := link.Tree.Root(); strings.HasPrefix(root.Kind, dualpi2.Prefix) {
			return &plan.Refusal{What: link.Name + " has a BPF queue, and looking into it needs root (CAP_SYS_ADMIN)",
				Try: "the same with sudo"}
		}
	}
	return nil
}

func (s Store) status(last, j *journal, facts host.Facts) Status {
	status := Status{Drift: []plan.Change{}, broken: map[string]string{}}
	known := j
	if j == nil {
		known = last
	} else {
		j.asIs = true
	}
	goals, err := s.filled(last, j, facts)
	switch {
	case err != nil && known == nil:
		status.Why = err.Error()
		return status
	case known == nil && len(goals) > 0:
		status.Why = fmt.Sprintf("%s asks for %s. To bring it up: weir up", host.GoalFile, flags(goals))
		return status
	case known == nil:
		return status
	case err != nil && j.strange("") == nil:
		// What is in force does not depend on a file.
		status.Notes = append(status.Notes, plan.Note{Subject: host.GoalFile, Text: "is for the next weir up: " +
			err.Error()})
		goals, err = known.goals(), nil
	case err == nil && j.unkept():
		goals = j.goals() // which no file says
	}
	status.Reverted, status.Notes = known.Reverted, append(j.notes(), status.Notes...)
	set := func(goals []plan.Goal) {
		status.Goal, status.Others = plan.Goal{}, nil
		if len(goals) > 0 {
			status.Goal, status.Others = goals[0], goals[1:]
		}
	}
	set(goals)
	switch {
	case j != nil && j.Pending != nil && j.Pending.Down:
		status.Why = "weir down was cut short; to end it: weir recover"
		return status
	case j.left():
		status.Why = "it was taken down, but for what somebody else had changed"
		return status
	case err != nil:
		status.Up, status.Why = true, err.Error()
		set(known.goals())
		return status
	case len(goals) == 0:
		if j == nil && len(last.goals()) > 0 { // of an earlier boot, and not confirmed
			set(last.goals())
			status.Reboot = true
			status.Why = "the machine was started again since, before it was confirmed"
		}
		return status
	}
	status.Up, status.Reboot, status.Kept = true, last != nil && last.Boot != facts.Boot, j.kept()
	if j != nil && j.Pending != nil {
		status.Unconfirmed = true
		status.RevertsIn = units.Duration(max(j.Pending.Until-s.timer.now(), 0))
		goals = j.goals()
		set(goals)
	} else if up := j.goals(); len(up) > 0 && !alike(goals, up) {
		status.Notes = append(status.Notes, plan.Note{Subject: host.GoalFile,
			Text: "asks for another goal now; brought up was " + flags(up)})
	}
	p, err := j.plan(goals, facts)
	if err != nil {
		status.Why = err.Error()
		return status
	}
	if status.Unconfirmed {
		p.Changes, _ = lasting(p.Changes)
	}
	status.InForce, status.Drift = p.Empty(), append(status.Drift, p.Changes...)
	for _, goal := range goals {
		link, there := facts.Link(goal.Dev)
		if !there && len(goals) > 1 {
			status.InForce, status.broken[goal.Dev] = false, goal.Dev+": is not there"
		}
		if there && !link.Up {
			status.Notes = append(status.Notes, plan.Note{Subject: link.Name, Text: "the link is down"})
		}
	}
	if status.InForce {
		for _, goal := range p.All() {
			status.Owns = strings.TrimSpace(status.Owns + " " + plan.Owns(goal, facts))
		}
	}
	if p.Lacks != nil {
		status.InForce, status.Why = false, p.Lacks.What
	}
	if whole, err := plan.MakeAll(p.All(), j.before(facts)); err == nil {
		status.Notes = append(append(status.Notes, j.broken(whole)...), plan.Overruled(whole, facts)...)
	}
	return status
}

// unkept tells whether no goal is to be in a file.
func (j *journal) unkept() bool { return len(j.goals()) > 0 && len(j.lasting()) == 0 }

// Holds tells whether a goal is in force, of those that are up.
func (s Status) Holds(goal plan.Goal) bool {
	if !s.Up || s.Why != "" || s.broken[goal.Dev] != "" {
		return false
	}
	return !slices.ContainsFunc(s.Drift, func(c plan.Change) bool {
		return device(c.Target) == "" ||
			device(c.Target) == goal.Dev
	})
}

// Goals are those that are up.
func (s Status) Goals() []plan.Goal { return append([]plan.Goal{s.Goal}, s.Others...) }
