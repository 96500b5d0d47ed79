// SPDX-License-Identifier: Apache-2.0

package change

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"weir/internal/hint"
	"weir/internal/journal"
	"weir/internal/kernel"
	"weir/internal/plan"
)

// Confirm makes the run that is not confirmed the one to go back to, and writes the files that keep it over a reboot.
// False if there is none to confirm.
func (s Store) Confirm() (Status, bool, error) { return s.confirm("", "") }

// ConfirmOf is Confirm, of a run that is about a device alone.
func (s Store) ConfirmOf(dev string) (Status, bool, error) { return s.confirm("", dev) }

// confirm is Confirm, of one run alone if its timer is named, and about a device if that is.
func (s Store) confirm(unit, dev string) (Status, bool, error) {
	const patience = 10 * time.Second // who types "weir up && weir confirm" means it, on a slow host, too
	t, err := s.beginWithin("confirm", patience)
	if err != nil {
		return Status{}, false, err
	}
	defer t.end()
	j := t.journal
	status := t.status(t.situation)
	switch {
	case status.Reverted != nil && !status.Unconfirmed:
		return status, false, &hint.Error{What: "too late: " + status.Reverted.Goal.Flags() + " was put back",
			Try: "weir up again, with --timeout for more time"}
	case status.Reboot:
		return status, false, &hint.Error{What: "the machine was started again since weir up, and its changes " +
			"ended with that", Try: "weir up"}
	case j == nil || j.Pending == nil, unit != "" && j.Unit() != unit:
		if dev != "" && status.Up {
			status, err = status.Of(dev)
		}
		return status, false, err
	case j.Pending.Down:
		return status, false, &hint.Error{What: "the last run was weir down, and it was cut short",
			Try: "weir recover"}
	case len(j.Goals()) == 0:
		return status, false, &hint.Error{What: "what waits to be confirmed has no goal any more", Try: "weir recover"}
	}
	if waits := unconfirmedDevices(j); dev != "" && !slices.Contains(waits, dev) {
		return status, false, &hint.Error{What: fmt.Sprintf("what waits to be confirmed is of %s, not of %s",
			strings.Join(waits, " and "), dev), Try: "weir confirm --dev " + waits[0]}
	}
	files, err := t.confirmable()
	if err != nil {
		return status, false, err
	}
	unit = j.Unit()
	if j, err = t.keep(files); err != nil {
		return status, false, err
	}
	j.Confirm()
	j.Promise()
	j.OwnGoalFile(t.facts)
	if err := t.disk.Save(j); err != nil {
		return status, false, err
	}
	t.disarm(unit)
	t.report("confirm", Outcome{Goal: j.Goals()[0], Done: files}, nil)
	status.Unconfirmed, status.RevertsIn, status.Kept = false, 0, j.Kept()
	status.Goals = j.Goals()
	return status, true, nil
}

// unconfirmedDevices are the devices that a run which is not confirmed is about.
func unconfirmedDevices(j *journal.Journal) (devices []string) {
	if j.Pending.Dev != "" {
		return []string{j.Pending.Dev}
	}
	for _, goal := range j.Goals() {
		devices = append(devices, goal.Dev)
	}
	return devices
}

// confirmable gives the files that confirming writes, or says why a run cannot be confirmed.
func (at *situation) confirmable() (files []plan.Change, err error) {
	j, facts := at.journal, at.facts
	at.only = j.Pending.Dev
	for _, goal := range j.Goals() {
		if _, there := facts.Link(goal.Dev); !there && len(j.Goals()) > 1 {
			return nil, &hint.Error{What: goal.Dev + ", which has a goal, too, is not there",
				Try: "weir confirm when it is; or weir down --dev " + goal.Dev}
		}
		if err := isUp(goal, facts); err != nil && (at.only == "" || at.only == goal.Dev) {
			return nil, err // what nothing can leave by nobody has seen at work
		}
	}
	if err := j.Readable(""); err != nil {
		return nil, err
	}
	p, err := at.plan(j.Goals())
	if err != nil {
		return nil, err
	}
	if err := p.CheckPersistent(); err != nil {
		return nil, err
	}
	now, files := lasting(p.Changes)
	if len(now) == 0 {
		return files, nil
	}
	var which []string
	try := "weir up, then weir confirm; or weir up --yes, which keeps what can be set"
	for _, c := range now {
		if e := j.Entry(c.Target); e != nil && c.Kind == kernel.Root && slices.ContainsFunc(e.Set, c.Old.Meets) {
			try = "the same again in some seconds, if weir up is still at work; else weir up first"
		}
		which = append(which, fmt.Sprintf("%s is %s, not %s", c.Target, c.Old, c.New))
	}
	return nil, &hint.Error{
		What: "not confirmed, since it is not in force: " + strings.Join(which, "; "),
		Try:  try,
	}
}

// keep writes files for the run that is pending, and gives the journal that knows of them. All are written, or none.
func (t *transaction) keep(files []plan.Change) (*journal.Journal, error) {
	j := t.journal
	if len(files) == 0 {
		return j, nil
	}
	next := t.next(plan.Plan{Goals: j.Goals(), Changes: files})
	next.Pending.Until, next.Pending.Unit = j.Pending.Until, j.Pending.Unit
	if err := t.disk.Save(next); err != nil {
		return nil, err
	}
	for i, c := range files {
		err := t.set(next, c)
		if err == nil {
			continue
		}
		var failed []error
		for _, done := range slices.Backward(files[:i+1]) {
			done.Old, done.New = done.New, done.Old
			failed = append(failed, t.set(next, done))
		}
		what := fmt.Sprintf("not confirmed: %s: %v", c.Name, err)
		if undone := errors.Join(append(failed, t.disk.SaveOrRemove(j))...); undone != nil {
			return nil, &hint.Error{What: fmt.Sprintf("%s; and it could not be taken back: %v", what, undone),
				Try: "weir recover"}
		}
		return nil, &hint.Error{What: what, Try: "weir confirm again when that is mended; or weir up --runtime, " +
			"which ends with a reboot and takes no files"}
	}
	t.later(func() { t.host.reload(files) })
	return next, nil
}
