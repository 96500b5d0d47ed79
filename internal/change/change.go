// SPDX-License-Identifier: Apache-2.0

// Package change carries plans out, and takes them back. It is the only code that changes a host.
//
// Nothing is changed before it is known, on disk, how to go back: a journal holds the host as it was. Nothing is believed before it is
// read back, and the goal is in force only when the plan made from new facts is empty. What to change is not decided here.
package change

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"weir/internal/host"
	"weir/internal/plan"
	"weir/internal/qdisc"
)

// Store is where the journal is kept, and the host that it is about.
type Store struct {
	Dir  string
	host machine
}

// Open gives the store in a directory, which need not exist, for the host that this process runs on.
func Open(dir string) Store { return Store{Dir: dir, host: live{}} }

// Outcome is what a run did.
type Outcome struct {
	Goal   plan.Goal     `json:"goal"`
	Done   []plan.Change `json:"done"`
	Failed []Failure     `json:"failed,omitempty"` // not in force, and why
	Notes  []plan.Note   `json:"notes,omitempty"`
}

// Failure is a change that is not in force.
type Failure struct {
	plan.Change
	Error string `json:"error"`
}

// Status is how a host stands to the goal that was last brought up.
type Status struct {
	Up      bool          `json:"up"`       // there is a goal
	InForce bool          `json:"in_force"` // and the plan for it is empty
	Goal    plan.Goal     `json:"goal"`
	Reboot  bool          `json:"rebooted,omitempty"` // since it was brought up
	Drift   []plan.Change `json:"drift"`              // what would bring it back into force
}

// Plan is what Up would do. Goals replace each other and do not pile up: the plan is made from the host as it was before the goal in force
// was brought up, except for what somebody else has set since, and then told as changes to the host as it is.
//
// An empty goal is the one that was last brought up, if there was one.
func (s Store) Plan(goal plan.Goal) (plan.Plan, error) {
	if err := s.settle(&goal); err != nil {
		return plan.Plan{}, err
	}
	facts, err := s.host.facts()
	if err != nil {
		return plan.Plan{}, err
	}
	j, err := s.current(facts)
	if err != nil {
		return plan.Plan{}, err
	}
	return j.plan(goal, facts)
}

func (j *journal) plan(goal plan.Goal, facts host.Facts) (plan.Plan, error) {
	p, err := plan.Make(goal, j.before(facts))
	if err != nil {
		return p, err
	}
	if j != nil && len(j.Entries) > 0 && j.Goal.Dev != p.Goal.Dev {
		return p, &plan.Refusal{What: "weir is up on " + j.Goal.Dev, Try: "weir down, then again for " + p.Goal.Dev}
	}
	wanted := p.Changes
	p.Changes = []plan.Change{}
	for _, c := range wanted {
		if c.Old, _ = j.value(facts, c.Target); !same(c.Target, c.Old, c.New) {
			p.Changes = append(p.Changes, c)
		}
	}
	if j != nil {
		for _, e := range j.Entries {
			asked := slices.ContainsFunc(wanted, func(c plan.Change) bool { return c.Target == e.Target })
			if now, _ := j.value(facts, e.Target); !asked && j.state(facts, e) == ours {
				p.Changes = append(p.Changes, plan.Change{Target: e.Target, Old: now, New: e.Was,
					Reason: "back to what it was: this goal does not ask for it", Evidence: "the journal"})
			}
		}
	}
	return p, nil
}

// settle fills in an empty goal, and refuses one that no host could reach before anything is touched.
func (s Store) settle(goal *plan.Goal) error {
	if *goal == (plan.Goal{}) {
		last, err := s.load()
		if err != nil {
			return err
		}
		if last != nil {
			*goal = last.Goal
		}
	}
	return goal.Check()
}

// current reads the journal of this boot; one of an earlier boot is about settings that are gone.
func (s Store) current(f host.Facts) (*journal, error) {
	j, err := s.load()
	if err != nil || j == nil || j.Boot != f.Boot {
		return nil, err
	}
	if j.Namespace != f.Namespace {
		return nil, &plan.Refusal{
			What: fmt.Sprintf("%s is about another network namespace, %s", s.path(), j.Namespace),
			Try:  "--state DIR, one for each namespace",
		}
	}
	return j, nil
}

// Up brings a goal into force. If the queueing disciplines cannot be set, everything is as it was and the error says why; other
// settings are independent of each other, and those that fail are in the outcome.
//
// An empty goal is the one that was last brought up, if there was one.
func (s Store) Up(goal plan.Goal) (Outcome, error) {
	if err := s.settle(&goal); err != nil {
		return Outcome{}, err
	}
	facts, err := s.host.facts()
	if err != nil {
		return Outcome{}, err
	}
	if err := mayChange(facts, "up"); err != nil {
		return Outcome{}, err
	}
	unlock, err := s.lock()
	if err != nil {
		return Outcome{}, err
	}
	defer unlock()
	// Again: what was read before the lock may have been another run's half of a change.
	if facts, err = s.host.facts(); err != nil {
		return Outcome{}, err
	}
	j, err := s.current(facts)
	if err != nil {
		return Outcome{}, err
	}
	p, err := j.plan(goal, facts)
	if err != nil {
		return Outcome{}, err
	}
	out := Outcome{Goal: p.Goal, Done: []plan.Change{}, Notes: p.Considered}
	if j != nil && p.Empty() && j.Goal == p.Goal {
		return out, nil
	}
	next := j.with(p, facts)
	if err := s.save(next); err != nil {
		return Outcome{}, err
	}
	link, _ := facts.Link(p.Goal.Dev)
	for _, c := range inOrder(p.Changes) {
		var err error
		if c.Dev != "" {
			err = s.setRoot(next, link.Index, c)
		} else {
			err = s.host.setSysctl(c.Sysctl, c.New)
		}
		switch {
		case err == nil:
			out.Done = append(out.Done, c)
		case c.Dev != "":
			return Outcome{}, notSet(c, err, s.takeBack(j, link, out.Done))
		default:
			out.Failed = append(out.Failed, Failure{c, err.Error()})
		}
	}
	return out, s.verify(next, &out)
}

func mayChange(f host.Facts, command string) error {
	if f.Admin {
		return nil
	}
	return &plan.Refusal{What: command + " changes the network, which takes root (CAP_NET_ADMIN)", Try: "sudo weir " + command + " …"}
}

// setRoot carries out the change of a device's queueing disciplines: what they were before is put back as it was read, which may be
// more than a plan can write.
func (s Store) setRoot(j *journal, link int, c plan.Change) error {
	if e := j.entry(c.Target); e.Was == c.New {
		return s.host.restoreTree(link, j.Tree)
	}
	stack, err := qdisc.ParseStack(c.New)
	if err != nil {
		return err
	}
	return s.host.setTree(link, stack)
}

// inOrder puts the queue first: without it the rest is not wanted. Before it comes only the kernel's default for queues, since one that
// the kernel made by itself is put back by letting it make one again.
func inOrder(changes []plan.Change) []plan.Change {
	rank := func(c plan.Change) int {
		switch {
		case c.Sysctl == "net.core.default_qdisc":
			return 0
		case c.Dev != "":
			return 1
		}
		return 2
	}
	changes = slices.Clone(changes)
	slices.SortStableFunc(changes, func(a, b plan.Change) int { return rank(a) - rank(b) })
	return changes
}

// takeBack makes the host and the journal what they were before a run that failed at the queue.
func (s Store) takeBack(j *journal, link host.Link, done []plan.Change) error {
	var failed []error
	for _, c := range slices.Backward(done) {
		failed = append(failed, s.host.setSysctl(c.Sysctl, c.Old))
	}
	failed = append(failed, s.host.restoreTree(link.Index, link.Tree))
	if err := errors.Join(failed...); err != nil {
		return err // and the journal stays, so that down can try again
	}
	return s.put(j)
}

func notSet(c plan.Change, err, undone error) error {
	if undone != nil {
		return &plan.Refusal{What: fmt.Sprintf("%s: %s: %v; and it could not be taken back: %v", c.Dev, c.New, err, undone), Try: "weir down"}
	}
	return &plan.Refusal{What: fmt.Sprintf("%s: %s: %v; nothing was changed", c.Dev, c.New, err), Try: "another queue with --qdisc, or weir plan for the reasons"}
}

// verify adds to the outcome what a plan from new facts would still change.
func (s Store) verify(j *journal, out *Outcome) error {
	facts, err := s.host.facts()
	if err != nil {
		return err
	}
	left, err := j.plan(j.Goal, facts)
	if err != nil {
		return err
	}
	for _, c := range left.Changes {
		out.Done = slices.DeleteFunc(out.Done, func(d plan.Change) bool { return d.Target == c.Target })
		if !slices.ContainsFunc(out.Failed, func(f Failure) bool { return f.Target == c.Target }) {
			out.Failed = append(out.Failed, Failure{c, "was set, and is " + c.Old + " again"})
		}
	}
	return nil
}

// Down puts back what was there before the first Up. What somebody else set since stays, and stops it, unless forced.
func (s Store) Down(force bool) (Outcome, error) {
	facts, err := s.host.facts()
	if err != nil {
		return Outcome{}, err
	}
	if err := mayChange(facts, "down"); err != nil {
		return Outcome{}, err
	}
	unlock, err := s.lock()
	if err != nil {
		return Outcome{}, err
	}
	defer unlock()
	if facts, err = s.host.facts(); err != nil {
		return Outcome{}, err
	}
	out := Outcome{Done: []plan.Change{}}
	j, err := s.current(facts)
	if err != nil {
		return Outcome{}, err
	}
	if j == nil {
		// Perhaps there is one of an earlier boot, whose settings ended with it.
		return out, s.remove()
	}
	out.Goal = j.Goal
	var back []plan.Change
	var foreigners []string
	for _, e := range j.Entries {
		now, _ := j.value(facts, e.Target)
		switch j.state(facts, e) {
		case gone:
			out.Notes = append(out.Notes, plan.Note{Subject: e.Target.String(), Text: "is gone, and what was set with it"})
			continue
		case asFound:
			continue
		case foreign:
			foreigners = append(foreigners, fmt.Sprintf("%s is %s, weir set %s", e.Target, now, e.Set[len(e.Set)-1]))
		}
		back = append(back, plan.Change{Target: e.Target, Old: now, New: e.Was, Reason: "as it was", Evidence: "the journal"})
	}
	if len(foreigners) > 0 && !force {
		return Outcome{}, &plan.Refusal{
			What: "somebody else has changed it since: " + strings.Join(foreigners, "; "),
			Try:  "weir down --force, which puts back what was there before weir, or weir up, which brings the goal back",
		}
	}
	for _, c := range inOrder(back) {
		var err error
		if c.Dev != "" {
			err = s.host.restoreTree(j.Link, j.Tree)
		} else {
			err = s.host.setSysctl(c.Sysctl, c.New)
		}
		if err != nil {
			out.Failed = append(out.Failed, Failure{c, err.Error()})
		} else {
			out.Done = append(out.Done, c)
		}
	}
	if facts, err = s.host.facts(); err != nil {
		return out, err
	}
	for _, c := range slices.Clone(out.Done) {
		if state := j.state(facts, *j.entry(c.Target)); state != asFound && state != gone {
			now, _ := j.value(facts, c.Target)
			out.Done = slices.DeleteFunc(out.Done, func(d plan.Change) bool { return d.Target == c.Target })
			out.Failed = append(out.Failed, Failure{c, "was put back, and is " + now})
		}
	}
	if len(out.Failed) > 0 {
		return out, nil
	}
	return out, s.remove()
}

// Status makes the plan for the goal in force again.
func (s Store) Status() (Status, error) {
	facts, err := s.host.facts()
	if err != nil {
		return Status{}, err
	}
	last, err := s.load()
	if err != nil || last == nil {
		return Status{Drift: []plan.Change{}}, err
	}
	j, err := s.current(facts)
	if err != nil {
		return Status{}, err
	}
	p, err := j.plan(last.Goal, facts)
	if err != nil {
		return Status{}, err
	}
	return Status{Up: true, InForce: p.Empty(), Goal: last.Goal, Reboot: j == nil, Drift: p.Changes}, nil
}
