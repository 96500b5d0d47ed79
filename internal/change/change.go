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
	"time"

	"weir/internal/host"
	"weir/internal/plan"
	"weir/internal/qdisc"
	"weir/internal/units"
)

// Store is where the journal is kept, the host that it is about, and what puts that back when nobody confirms.
type Store struct {
	Dir   string
	host  machine
	timer timer
}

// Open gives the store in a directory, which need not exist, for the host that this process runs on.
func Open(dir string) Store { return Store{Dir: dir, host: live{}, timer: outside{}} }

// Outcome is what a run did.
type Outcome struct {
	Goal   plan.Goal     `json:"goal"`
	Done   []plan.Change `json:"done"`
	Failed []Failure     `json:"failed,omitempty"` // not in force, and why
	Left   []Failure     `json:"left,omitempty"`   // somebody else's since, and not put back
	Notes  []plan.Note   `json:"notes,omitempty"`

	RevertsIn units.Duration `json:"reverts_in,omitempty"` // unless it is confirmed; 0: it stays
}

// Failure is a change that is not in force.
type Failure struct {
	plan.Change
	Error string `json:"error"`
}

// Status is how a host stands to the goal that was last brought up.
type Status struct {
	Up      bool          `json:"up"`            // there is a goal
	InForce bool          `json:"in_force"`      // and the plan for it is empty
	Why     string        `json:"why,omitempty"` // it is not in force, where that is not the drift
	Goal    plan.Goal     `json:"goal"`
	Reboot  bool          `json:"rebooted,omitempty"` // since it was brought up
	Drift   []plan.Change `json:"drift"`              // what would bring it back into force
	Notes   []plan.Note   `json:"notes,omitempty"`

	Unconfirmed bool           `json:"unconfirmed,omitempty"`
	RevertsIn   units.Duration `json:"reverts_in,omitempty"` // unless it is confirmed; 0 when that is overdue
	Reverted    *Reverted      `json:"reverted,omitempty"`   // the last run, when it was put back
}

// Plan is what Up would do. Goals replace each other and do not pile up: the plan is made from the host as it was before the goal in force
// was brought up, except for what somebody else has set since, and then told as changes to the host as it is.
//
// An empty goal is the one that was last brought up, if there was one.
func (s Store) Plan(goal plan.Goal) (plan.Plan, error) {
	_, j, facts, err := s.look(&goal)
	if err != nil {
		return plan.Plan{}, err
	}
	p, err := j.plan(goal, facts)
	p.Considered = append(j.notes(), p.Considered...)
	return p, err
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
	return p, j.keepsShaper(goal, p)
}

// keepsShaper refuses the likeliest mistake: a goal that was meant to be added to the one in force, and would replace it and take its shaper away.
func (j *journal) keepsShaper(goal plan.Goal, p plan.Plan) error {
	if j == nil || goal.Rate != 0 || goal.Qdisc != "" || goal.Recipe != "" {
		return nil
	}
	taken := slices.ContainsFunc(p.Changes, plan.Change.Unshapes)
	// What gave the goal in force its shaper, and what it takes to have that and what is asked for now.
	gave, both := plan.Goal{}, goal
	switch was := j.Goal; {
	case !taken, was.Rate == 0 && was.Qdisc == "" && was.Recipe == "":
		return nil
	case was.Recipe != "":
		gave.Recipe, gave.Rate = was.Recipe, was.Rate
	case was.Qdisc != "":
		gave.Qdisc, gave.Rate = was.Qdisc, was.Rate
	default:
		gave.Rate = was.Rate
	}
	both.Recipe, both.Qdisc, both.Rate = gave.Recipe, gave.Qdisc, gave.Rate
	try := "weir down first"
	if both.Check() == nil {
		try = "weir up " + both.Flags() + ", or " + try
	}
	return &plan.Refusal{
		What: fmt.Sprintf("this goal would take the shaper away: it does not say %s, which the one in force does", gave.Flags()),
		Try:  try,
	}
}

// elsewhere is why a journal is of no use here: it is about another network namespace.
type elsewhere struct{ plan.Refusal }

// look reads the host and the journal: the one that is there, and again if it is of this boot; one of an earlier boot is about settings that
// are gone. It fills in an empty goal, and refuses one that no host could reach before it looks at anything.
func (s Store) look(goal *plan.Goal) (last, j *journal, facts host.Facts, err error) {
	if err = goal.Check(); err != nil {
		return nil, nil, facts, err
	}
	if facts, err = s.host.facts(); err != nil {
		return nil, nil, facts, err
	}
	if last, err = s.load(); err != nil || last == nil {
		return nil, nil, facts, err
	}
	if last.Boot == facts.Boot {
		if last.Namespace != facts.Namespace {
			return nil, nil, facts, &elsewhere{plan.Refusal{
				What: fmt.Sprintf("%s is about another network namespace, %s", s.path(), last.Namespace),
				Try:  "--state DIR, one for each namespace; or, if that namespace is gone, weir down --force, which removes the journal",
			}}
		}
		j = last
		j.follow(facts)
	}
	if *goal == (plan.Goal{}) {
		*goal = last.Goal
	}
	return last, j, facts, nil
}

// begin is how every command that changes something starts: as root, alone, and from what is true now.
func (s Store) begin(command string, goal *plan.Goal) (j *journal, facts host.Facts, unlock func(), err error) {
	if err = goal.Check(); err != nil {
		return nil, facts, nil, err
	}
	if facts, err = s.host.facts(); err != nil {
		return nil, facts, nil, err
	}
	if !facts.Admin {
		return nil, facts, nil, &plan.Refusal{
			What: command + " changes the network, which takes root (CAP_NET_ADMIN)",
			Try:  "sudo weir " + command + " …",
		}
	}
	if unlock, err = s.lock(); err != nil {
		return nil, facts, nil, err
	}
	begun := false
	defer func() {
		if !begun {
			unlock()
		}
	}()
	// What was read before the lock may have been another run's half of a change.
	_, j, facts, err = s.look(goal)
	begun = err == nil
	return j, facts, unlock, err
}

// Up brings a goal into force. If the queueing disciplines cannot be set, everything is as it was and the error says why; other
// settings are independent of each other, and those that fail are in the outcome. What it changes is put back, by a process that does not depend
// on this one, unless Confirm is called within the time given. With no time it stays.
//
// An empty goal is the one that was last brought up, if there was one.
func (s Store) Up(goal plan.Goal, within time.Duration) (Outcome, error) {
	j, facts, unlock, err := s.begin("up", &goal)
	if err != nil {
		return Outcome{}, err
	}
	defer unlock()
	p, err := j.plan(goal, facts)
	if err != nil {
		return Outcome{}, err
	}
	out := Outcome{Goal: p.Goal, Done: []plan.Change{}, Notes: append(j.notes(), p.Considered...)}
	next := j.with(p, facts)
	if p.Empty() && (j == nil || j.Pending == nil) {
		if j != nil && j.Goal == p.Goal && j.Reverted == nil && !j.left() {
			return out, nil
		}
		next.confirm() // nothing changes, so nobody can be locked out
		return out, s.save(next)
	}
	next.Pending.Until = s.timer.now() + within
	if within > 0 {
		next.Pending.Unit = otherUnit(j.unit())
	}
	if err := s.save(next); err != nil {
		return Outcome{}, err
	}
	if within > 0 {
		if err := s.timer.arm(next.Pending.Unit, s.Dir, within); err != nil {
			s.disarm(next.Pending.Unit) // for all that is known it may be armed
			return Outcome{}, notArmed(err, s.put(j))
		}
		out.RevertsIn = units.Duration(within)
	}
	link, _ := facts.Link(p.Goal.Dev)
	for _, c := range inOrder(p.Changes) {
		switch err := s.set(next, c); {
		case err == nil:
			out.Done = append(out.Done, c)
		case c.Dev != "":
			undone := s.takeBack(j, link, out.Done)
			if undone == nil {
				s.disarm(next.Pending.Unit)
			}
			return Outcome{}, notSet(c, err, undone)
		default:
			out.Failed = append(out.Failed, Failure{c, err.Error()})
		}
	}
	if err := s.verify(next, &out); err != nil {
		return out, err
	}
	if within == 0 {
		next.confirm()
		if err = s.save(next); err != nil {
			err = &plan.Refusal{What: "all is set, and the journal does not say that it stays: " + err.Error(), Try: "weir confirm, when that can be written"}
		}
	}
	s.disarm(j.unit()) // not before another is armed, or nothing is left to put back
	return out, err
}

func notArmed(err, undone error) error {
	if undone != nil {
		return undone
	}
	return &plan.Refusal{
		What: fmt.Sprintf("the timer that would put it back cannot be armed: %v; nothing was changed", err),
		Try:  "weir up --yes, which does without, if you can get at this host in another way",
	}
}

// set carries out one change. What the queueing disciplines were before is put back as it was read, which may be more than a plan can write.
func (s Store) set(j *journal, c plan.Change) error {
	if c.Dev == "" {
		return s.host.setSysctl(c.Sysctl, c.New)
	}
	if j.entry(c.Target).Was == c.New {
		return s.host.restoreTree(j.Link, j.Tree)
	}
	stack, err := qdisc.ParseStack(c.New)
	if err != nil {
		return err
	}
	return s.host.setTree(j.Link, stack)
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
		return err // and the journal stays, so that recover can try again
	}
	return s.put(j)
}

func notSet(c plan.Change, err, undone error) error {
	if undone != nil {
		return &plan.Refusal{What: fmt.Sprintf("%s: %s: %v; and it could not be taken back: %v", c.Dev, c.New, err, undone), Try: "weir recover"}
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
		out.fail(c, "was set, and is "+c.Old+" again")
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
