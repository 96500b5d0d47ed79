// SPDX-License-Identifier: Apache-2.0

// Package change carries plans out, and takes them back. It is the only code that changes a host.
//
// Nothing is changed before it is known, on disk, how to go back: a journal holds the host as it was. Nothing is
// believed before it is read back, and the goal is in force only when the plan made from new facts is empty. What to
// change is not decided here.
package change

import (
	"cmp"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"weir/internal/host"
	"weir/internal/plan"
	"weir/internal/qdisc"
	"weir/internal/units"
)

// Dir is where the journal of a goal is that outlasts a reboot. One in another directory ends with the boot.
const Dir = "/var/lib/weir"

// Store is where the journal is kept, the host that it is about, and what puts that back when nobody confirms.
type Store struct {
	Dir   string
	keeps bool // goals over a reboot, in files: as the one store in Dir does
	host  machine
	timer timer
	log   func(string) // what was done, for whoever looks later
	held  string       // the directory that says which device is which journal's; "" for none
	run   *run         // while it has the lock

	expires bool           // it is what puts back a run that nobody confirms
	done    *time.Duration // the deadline of the run that it has put back, where the journal could not be told
}

// run is the lock, and what waits until it is given back: programs of others', which may take their time.
type run struct {
	unlock func()
	after  []func()
}

func (s Store) later(do func()) {
	if s.run == nil {
		do()
		return
	}
	s.run.after = append(s.run.after, do)
}

// end gives the lock back.
func (s Store) end() {
	s.run.unlock()
	for _, do := range s.run.after {
		do()
	}
}

// Open gives the store in a directory, which need not exist, for the host that this process runs on.
func Open(dir string) Store {
	if absolute, err := filepath.Abs(dir); err == nil {
		dir = absolute
	}
	return Store{Dir: dir, keeps: dir == Dir, host: live{}, timer: outside{}, log: syslogged, held: "/run/weir/held"}
}

// Outcome is what a run did.
type Outcome struct {
	Goal   plan.Goal     `json:"goal"`
	Done   []plan.Change `json:"done"`
	Failed []Failure     `json:"failed,omitempty"` // not in force, and why
	Left   []Failure     `json:"left,omitempty"`   // somebody else's since, and not put back
	Notes  []plan.Note   `json:"notes,omitempty"`

	RevertsIn units.Duration `json:"reverts_in,omitempty"` // unless it is confirmed; 0: it stays
	Kept      bool           `json:"kept,omitempty"`       // over a reboot, once it is confirmed
}

// Failure is a change that is not in force.
type Failure struct {
	plan.Change
	Error string `json:"error"`
}

// Status is how a host stands to the goal that was last brought up.
type Status struct {
	Up      bool   `json:"up"`            // there is a goal
	Kept    bool   `json:"kept"`          // over a reboot
	InForce bool   `json:"in_force"`      // and the plan for it is empty
	Why     string `json:"why,omitempty"` // it is not in force, where that is not the drift
	// of a relay's goal in force: which queues are here now, and what that costs
	Owns      string        `json:"owns,omitempty"`
	Elsewhere string        `json:"elsewhere,omitempty"` // in force, and the queue that connections wait in is another
	Goal      plan.Goal     `json:"goal"`
	Others    []plan.Goal   `json:"others,omitempty"`   // of other devices
	Reboot    bool          `json:"rebooted,omitempty"` // since it was brought up
	Drift     []plan.Change `json:"drift"`              // what would bring it back into force
	Notes     []plan.Note   `json:"notes,omitempty"`

	Unconfirmed bool           `json:"unconfirmed,omitempty"`
	RevertsIn   units.Duration `json:"reverts_in,omitempty"` // unless it is confirmed; 0 when that is overdue
	Reverted    *Reverted      `json:"reverted,omitempty"`   // the last run, when it was put back

	broken map[string]string // why a device's goal is not in force, where that is not the drift
}

// Plan is what Up would do. Goals of a device replace each other and do not pile up: the plan is made from the host
// as it was before the goal in force was brought up, except for what somebody else has set since, and then told as
// changes to the host as it is.
//
// An empty goal is the one in /etc/weir.toml, or else the one that was last brought up, if there was one.
func (s Store) Plan(goal plan.Goal) (plan.Plan, error) {
	if err := goal.Check(); err != nil {
		return plan.Plan{}, err
	}
	last, j, facts, err := s.look()
	if err != nil {
		return plan.Plan{}, err
	}
	goals, measured, err := s.asked(goal, last, j, facts)
	if err != nil {
		return plan.Plan{}, err
	}
	p, err := j.plan(goals, facts)
	if err == nil && p.Lacks != nil {
		err = p.Lacks
	}
	p.Considered = slices.Concat(j.notes(), measured, p.Considered)
	return p, err
}

// asked are all the goals that a host is to have when a person asks for one, that one first; or for none: those in
// /etc/weir.toml, or else those that were last brought up.
func (s Store) asked(goal plan.Goal, last, j *journal, facts host.Facts) (all []plan.Goal, notes []plan.Note,
	err error) {
	before := j.goals()
	if goal == (plan.Goal{}) {
		if before, err = s.filled(last, j, facts); err != nil {
			return nil, nil, err
		}
		if len(before) == 0 {
			before = []plan.Goal{{}}
		}
	} else {
		uplink, _, err := plan.Uplink(facts)
		if goal.Dev == "" && err != nil {
			return nil, nil, err
		}
		dev := cmp.Or(goal.Dev, uplink)
		if err := j.strange(dev); err != nil {
			return nil, nil, err
		}
		before = append([]plan.Goal{goal}, slices.DeleteFunc(before, func(g plan.Goal) bool { return g.Dev == dev })...)
		if j != nil {
			j.only = dev
		}
	}
	for i, g := range before {
		if _, there := facts.Link(g.Dev); !there && i > 0 {
			return nil, nil, &plan.Refusal{What: g.Dev + ", which has a goal, too, is not there",
				Try: "weir down --dev " + g.Dev + ", if it does not come again"}
		}
		if err := isUp(g, facts); err != nil && i == 0 && goal != (plan.Goal{}) {
			return nil, nil, err
		}
		seen := []plan.Note(nil)
		if i == 0 || goal == (plan.Goal{}) {
			if g, seen, err = s.measured(g, j, facts); err != nil {
				return nil, nil, err
			}
		}
		all, notes = append(all, g), append(notes, seen...)
	}
	return all, notes, nil
}

// measured looks at the host's traffic for what a new goal does not say. One that is in force keeps what was found
// when it was brought up; but before there were kinds of relays nothing was found.
func (s Store) measured(goal plan.Goal, j *journal, facts host.Facts) (plan.Goal, []plan.Note, error) {
	uplink, _, _ := plan.Uplink(facts)
	before, _ := about(j.goals(), cmp.Or(goal.Dev, uplink))
	inForce := before != plan.Goal{} && goal == before
	if inForce && (goal.Role != "relay" || goal.Carries != "") {
		return goal, nil, nil
	}
	if j != nil {
		j.said = goal.Carries != "" || goal.Role == "server"
	}
	deep := host.Deep{}
	if facts.Deep != nil {
		deep = *facts.Deep
	}
	deep.Sockets = s.host.path(facts)
	facts.Deep = &deep
	goal, seen, err := goal.AsSeen(facts)
	if before.Role == "relay" && goal.Role == "" && goal.Rate != 0 && goal.Recipe+goal.Qdisc == "" {
		was := plan.Goal{Role: before.Role, Carries: before.Carries}
		seen = append(seen, plan.Note{Subject: plan.RoleNote,
			Text: "taken for a server, and the goal in force is a relay's. To stay one: " + was.Flags()})
	}
	if err != nil || inForce || goal.RTT != 0 {
		return goal, seen, err
	}
	goal, far := goal.Measured(deep.Sockets)
	return goal, append(seen, far...), nil
}

// plan is for all the goals that a host is to have. What a device that is not there would have is left as it is.
func (j *journal) plan(goals []plan.Goal, facts host.Facts) (plan.Plan, error) {
	there := slices.DeleteFunc(slices.Clone(goals), func(g plan.Goal) bool {
		_, there := facts.Link(g.Dev)
		return g.Dev != "" && !there || j != nil && slices.Contains(j.without, g.Dev)
	})
	if len(there) == 0 {
		there = goals[:1] // and why not
	}
	p, err := plan.MakeAll(there, j.before(facts))
	if err != nil {
		return p, err
	}
	// The next boot may well give a device back the name that it had.
	renamed := j != nil && slices.ContainsFunc(j.Uplinks, func(u uplink) bool { return u.FileDev != "" })
	asKept := len(there) < len(goals) || j.kept() && renamed && !j.carried && j.Pending == nil &&
		alike(j.goals(), p.All())
	wanted := p.Changes
	p.Changes = []plan.Change{}
	blind := j.blind(wanted, p, facts)
	others := func(t plan.Target) bool { return j != nil && j.only != "" && device(t) != "" && device(t) != j.only }
	for _, c := range wanted {
		if asKept && c.File != "" || j.leaves(facts, c.Target) || blind && j.untouched(facts, c.Target) ||
			others(c.Target) {
			continue
		}
		found := !slices.EqualFunc(there, p.All(), func(a, b plan.Goal) bool { return a.Carries == b.Carries })
		if c.File == host.GoalFile && found && plan.Says(facts.Files[c.File], p.Lasting()...) {
			continue // it leaves open what is carried, as the goal does
		}
		if c.Old, _ = j.value(facts, c.Target); !same(c.Target, c.Old, c.New) {
			c.Owner = j.owner(facts, c.Target)
			p.Changes = append(p.Changes, c)
		}
	}
	if j != nil {
		// Nor is it known what files are for where all is in force, and the journal that knew of it was lost.
		asKept = asKept || len(wanted) == 0 &&
			!slices.ContainsFunc(j.Entries, func(e entry) bool { return e.File == "" })
		absent := func(e entry) bool {
			if device(e.Target) == "" {
				return len(there) < len(goals)
			}
			_, asked := about(goals, device(e.Target))
			_, planned := about(p.All(), device(e.Target))
			return asked && !planned
		}
		for _, e := range j.Entries {
			if asKept && e.File != "" || absent(e) || others(e.Target) {
				continue
			}
			asked := slices.ContainsFunc(wanted, func(c plan.Change) bool { return c.Target == e.Target })
			if now, _ := j.value(facts, e.Target); !asked && j.state(facts, e) == ours {
				p.Changes = append(p.Changes, plan.Change{Target: e.Target, Old: now, New: e.Was, Owner: "weir",
					Reason: "back to what it was: this goal does not ask for it", Evidence: "the journal"})
			}
		}
	}
	return p, j.keepsShaper(goals[0], p)
}

// owner is plan.Owner, where it is not weir.
func (j *journal) owner(f host.Facts, t plan.Target) string {
	if e := j.entry(t); e != nil && j.state(f, *e) == ours {
		return "weir"
	}
	return plan.Owner(f, t)
}

// keepsShaper refuses the likeliest mistake: a goal that was meant to be added to the one in force, and would replace
// it and take its shaper away.
func (j *journal) keepsShaper(goal plan.Goal, p plan.Plan) error {
	if j == nil {
		return nil
	}
	// What gave the goal in force the shaper that goes, and what it takes to have that and what is asked for now.
	gave, both := plan.Goal{}, goal
	was, _ := about(j.goals(), p.Goal.Dev)
	if was == (plan.Goal{}) {
		return nil
	}
	relay := was.Role == "relay" && goal.Role != "server" && !j.said
	for _, c := range p.Changes {
		switch {
		case !c.Unshapes(), device(c.Target) != p.Goal.Dev:
		case c.Ingress != "" && was.ShapesArriving():
			if relay && goal.Carries != was.Carries {
				gave.Role, gave.Carries = was.Role, was.Carries
			}
		case c.Ingress != "":
			gave.Ingress, both.Ingress = was.Ingress, was.Ingress
		case goal.Rate != 0 || goal.Qdisc != "" || goal.Recipe != "":
			// It is asked for.
		case was.Recipe != "":
			gave.Recipe, gave.Rate = was.Recipe, was.Rate
		case was.Qdisc != "":
			gave.Qdisc, gave.Rate = was.Qdisc, was.Rate
		default:
			gave.Rate = was.Rate
			if relay && goal.Role == "" {
				gave.Role, gave.Carries = was.Role, was.Carries
			}
		}
	}
	if gave == (plan.Goal{}) {
		return nil
	}
	if gave.Role != "" {
		both.Role, both.Carries, both.NAT = gave.Role, gave.Carries, goal.NAT || was.NAT
	}
	if goal.Rate == 0 && goal.Qdisc == "" && goal.Recipe == "" {
		both.Recipe, both.Qdisc, both.Rate = gave.Recipe, gave.Qdisc, gave.Rate
	}
	try := "weir down first"
	if both.Check() == nil {
		try = "weir up " + both.Flags() + ", or " + try
	}
	return &plan.Refusal{
		What: fmt.Sprintf("this goal would take the shaper away: it does not say %s, which the one in force does",
			gave.Flags()),
		Try: try,
	}
}

// lasting splits changes into those of the running system, which end with it, and those of files.
func lasting(changes []plan.Change) (now, files []plan.Change) {
	for _, c := range changes {
		if c.File != "" {
			files = append(files, c)
		} else {
			now = append(now, c)
		}
	}
	return now, files
}

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
	s, last, j, facts, err := s.begin("up")
	if err != nil {
		return Outcome{}, err
	}
	defer s.end()
	goals, measured, err := s.asked(goal, last, j, facts)
	if err != nil {
		return Outcome{}, err
	}
	out, err := s.up(j, goals, facts, within, false)
	out.Notes = append(measured, out.Notes...)
	s.report("up", out, err)
	return out, err
}

// up is Up, with everything known. A boot has nobody to refuse anything to: it goes as far as it can, and promises
// nothing new.
func (s Store) up(j *journal, goals []plan.Goal, facts host.Facts, within time.Duration, boot bool) (Outcome, error) {
	var refused []plan.Note
	if boot {
		refused = j.leaveOut(goals, facts)
	}
	p, err := j.plan(goals, facts)
	if err != nil {
		return Outcome{}, err
	}
	if boot {
		p = p.Carrying(goals) // what a host carries a boot cannot see: its tunnels come later
	}
	promise := func(j *journal) {
		if !boot {
			j.promise()
		}
	}
	out := Outcome{Goal: p.Goal, Done: []plan.Change{}, Notes: append(append(j.notes(), refused...), p.Considered...)}
	now, files := lasting(p.Changes)
	switch {
	case boot && p.Lacks != nil:
		out.Notes = append(out.Notes, plan.Note{Subject: p.Goal.Dev, Text: p.Lacks.What})
	case !boot && p.Lacks != nil:
		return Outcome{}, p.Lacks
	case !boot && p.Unkept != nil:
		return Outcome{}, p.Unkept
	}
	if err := s.writable(files); err != nil {
		return Outcome{}, err
	}
	idle := j == nil || j.Pending == nil
	switch {
	case p.Empty() && idle:
		if j != nil && alike(j.goals(), p.All()) && j.Reverted == nil && !j.left() && !j.carried && !j.adopted {
			return out, nil
		}
		next := j.with(p, facts)
		next.confirm()
		promise(next)
		return out, s.save(next)
	case len(now) == 0 && idle:
		within = 0 // files lock nobody out
	case within > 0:
		p.Changes = now
		out.Kept = slices.ContainsFunc(files, func(c plan.Change) bool { return c.New != string(host.NoFile) })
	}
	if err := s.claim(p.All(), facts); err != nil {
		return Outcome{}, err
	}
	next := j.with(p, facts)
	next.Pending.Until = s.timer.now() + within
	if within > 0 {
		next.Pending.Unit = timerName(s.Dir, next.Pending.Until, j.unit())
	}
	if err := s.save(next); err != nil {
		return Outcome{}, err
	}
	if within > 0 {
		if err := s.arm(next, j); err != nil {
			return Outcome{}, err
		}
		out.RevertsIn = units.Duration(within)
	}
	for _, c := range inOrder(p.Changes) {
		switch err := s.set(next, c); {
		case err == nil:
			out.Done = append(out.Done, c)
		case boot && c.Ingress != "":
			err = errors.Join(err, s.setIngress(next, c.Ingress, plan.NoIngress)) // what leaves is shaped all the same
			out.Failed = append(out.Failed, Failure{c, err.Error()})
		case c.Dev+c.Ingress != "":
			undone := s.takeBack(next, j, facts, append(out.Done, c))
			if undone == nil {
				s.disarm(next.Pending.Unit)
			}
			goal, _ := about(p.All(), device(c.Target))
			return Outcome{}, notSet(goal, c, err, undone)
		default:
			out.Failed = append(out.Failed, Failure{c, err.Error()})
		}
	}
	s.later(func() { s.host.reload(out.Done) })
	if err := s.verify(next, within > 0, &out); err != nil {
		return out, err
	}
	if within == 0 {
		next.confirm()
		promise(next)
		if !boot {
			next.own(facts)
		}
		if err = s.save(next); err != nil {
			err = &plan.Refusal{What: "all is set, and the journal does not say that it stays: " + err.Error(),
				Try: "weir confirm, when that can be written"}
		}
	}
	s.disarm(j.unit()) // not before another is armed, or nothing is left to put back
	return out, err
}

// writable finds out before anything is changed whether the files could be written.
func (s Store) writable(files []plan.Change) error {
	for _, c := range files {
		if err := s.host.writable(c.File); err != nil {
			return &plan.Refusal{
				What: fmt.Sprintf("%s, which would keep the goal over a reboot, cannot be written: %v; nothing was "+
					"changed", c.File, err),
				Try: "--runtime: what is set then ends with a reboot",
			}
		}
	}
	return nil
}

// arm starts what puts the run of a journal back. Others are not kept out meanwhile: when it does not answer, they may
// have to put back what was there before.
func (s Store) arm(next, before *journal) error {
	s.run.unlock()
	s.run.unlock = func() {}
	err := s.timer.arm(next.Pending.Unit, s.Dir)
	if err != nil {
		s.disarm(next.Pending.Unit) // for all that is known it may be armed
	}
	unlock, errLock := s.lock()
	if errLock != nil {
		return errLock // and they go on from a run that has changed nothing
	}
	s.run.unlock = unlock
	switch now, errLoad := s.load(); {
	case errLoad != nil:
		return errLoad
	case now.unit() != next.Pending.Unit:
		s.disarm(next.Pending.Unit)
		return &busy{plan.Refusal{What: "another weir has changed this host meanwhile; nothing was changed",
			Try: "weir status"}}
	case err == nil:
		return nil
	}
	if undone := s.put(before); undone != nil {
		return undone
	}
	return &plan.Refusal{
		What: fmt.Sprintf("the timer that would put it back cannot be armed: %v; nothing was changed", err),
		Try:  "weir up --yes, which does without, if you can get at this host in another way",
	}
}

// set carries out one change. What the queueing disciplines were before is put back as it was read, which may be more
// than a plan can write.
func (s Store) set(j *journal, c plan.Change) error {
	switch {
	case c.Sysctl != "":
		return s.host.setSysctl(c.Sysctl, c.New)
	case c.File != "":
		file, err := host.ParseFile(c.New)
		if err != nil {
			return err
		}
		e := j.entry(c.Target)
		at := time.Time{}
		if e.Was == c.New {
			at = e.WasTime
		}
		return s.host.setFile(c.File, file, at)
	}
	if c.Ingress != "" {
		return s.setIngress(j, c.Ingress, c.New)
	}
	u := j.of(c.Dev)
	if j.entry(c.Target).Was == c.New {
		return s.host.restoreTree(u.Link, u.Tree)
	}
	stack, err := qdisc.ParseStack(c.New)
	if err != nil {
		return err
	}
	return s.host.setTree(u.Link, stack)
}

// setIngress sets what plan.DescribeIngress gave. Of half of it nothing is to stay, at no tunnel that was ever
// unpacked.
func (s Store) setIngress(j *journal, dev string, text string) error {
	link := j.link(dev)
	if text == plan.NoIngress || text == plan.HalfIngress {
		return s.host.setIngress(link, qdisc.Arriving{Tunnels: j.tunnels(dev)})
	}
	arriving, err := qdisc.ParseArriving(text)
	if err != nil {
		return err
	}
	return s.host.setIngress(link, arriving)
}

// inOrder puts the queues first: without them the rest is not wanted. Before them comes only the kernel's default for
// queues, since one that the kernel made by itself is put back by letting it make one again. Files come last, in the
// order in which they are given.
func inOrder(changes []plan.Change) []plan.Change {
	rank := func(c plan.Change) int {
		switch {
		case c.Sysctl == "net.core.default_qdisc":
			return 0
		case c.Dev != "":
			return 1
		case c.Ingress != "":
			return 2
		case c.Sysctl != "":
			return 3
		}
		return 4
	}
	changes = slices.Clone(changes)
	slices.SortStableFunc(changes, func(a, b plan.Change) int { return rank(a) - rank(b) })
	return changes
}

// takeBack makes the host and the journal what they were before a run that failed at a queue, the last of what it
// has tried; next is its journal.
func (s Store) takeBack(next, j *journal, facts host.Facts, tried []plan.Change) error {
	var failed []error
	for _, c := range slices.Backward(tried) {
		switch {
		case c.Sysctl != "":
			failed = append(failed, s.host.setSysctl(c.Sysctl, c.Old))
		case c.Ingress != "":
			failed = append(failed, s.setIngress(next, c.Ingress, c.Old))
		}
	}
	for _, c := range slices.Backward(tried) { // what the kernel makes by itself it makes by the settings
		if link, there := facts.Link(c.Dev); there {
			failed = append(failed, s.host.restoreTree(link.Index, link.Tree))
		}
	}
	if err := errors.Join(failed...); err != nil {
		return err // and the journal stays, so that recover can try again
	}
	return s.put(j)
}

func notSet(goal plan.Goal, c plan.Change, err, undone error) error {
	what, try := fmt.Sprintf("%s: %s: %v", c.Dev, c.New, err),
		"another queue with --qdisc, or weir plan for the reasons"
	switch {
	case goal.Only:
		try = "weir doctor, for what this kernel can do"
	case c.Ingress != "":
		what, try = fmt.Sprintf("%s: ingress: %s: %v", c.Ingress, c.New, err),
			goal.WithoutIngress()+"; or weir plan for the reasons"
	}
	if undone != nil {
		return &plan.Refusal{What: fmt.Sprintf("%s; and it could not be taken back: %v", what, undone),
			Try: "weir recover"}
	}
	return &plan.Refusal{What: what + "; nothing was changed", Try: try}
}

// verify adds to the outcome what a plan from new facts would still change.
func (s Store) verify(j *journal, unconfirmed bool, out *Outcome) error {
	facts, err := s.facts()
	if err != nil {
		return err
	}
	left, err := j.plan(j.goals(), facts)
	if err != nil {
		return err
	}
	now, files := lasting(left.Changes)
	for _, c := range now {
		out.fail(c, "was set, and is "+c.Old+" again")
	}
	if !unconfirmed {
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
