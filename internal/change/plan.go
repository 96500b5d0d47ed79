// SPDX-License-Identifier: Apache-2.0

package change

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"weir/internal/hint"
	"weir/internal/host"
	"weir/internal/journal"
	"weir/internal/kernel"
	"weir/internal/plan"
)

// Plan is what Up would do. Goals of a device replace each other and do not pile up. The plan is made from the host as
// it was before the goal in force was brought up. What somebody else has set since counts as having been there. It is
// then told as changes to the host as it is.
//
// An empty goal is the one in /etc/weir.toml, or else the one that was last brought up, if there was one.
func (s Store) Plan(goal plan.Goal) (plan.Plan, error) {
	if err := goal.Check(); err != nil {
		return plan.Plan{}, err
	}
	at, err := s.read()
	if err != nil {
		return plan.Plan{}, err
	}
	t := transaction{s, at}
	goals, measured, err := t.resolveGoals(goal)
	if err != nil {
		return plan.Plan{}, err
	}
	p, err := t.plan(goals)
	if err == nil && p.Unavailable != nil {
		err = p.Unavailable
	}
	p.Considered = slices.Concat(t.journal.Notes(), measured, p.Considered)
	if err == nil {
		p.Considered = append(p.Considered, t.refusals(p)...)
	}
	return p, err
}

// refusals says why Up would not carry out a plan that can be made: its files cannot be kept.
func (t *transaction) refusals(p plan.Plan) []plan.Note {
	refused := p.NotPersistent
	if refused == nil && t.facts.Admin {
		refused = t.unwritable(slices.DeleteFunc(slices.Clone(p.Changes),
			func(c plan.Change) bool { return !c.IsFile() }))
	}
	if refused == nil {
		return nil
	}
	return []plan.Note{{Subject: "reboot", Text: "weir up would refuse this. " + refused.What + ". Try: " + refused.Try,
		Kind: plan.Consequence}}
}

// resolveGoals returns all goals that the host should have, goal first. For the zero goal these are the ones in
// /etc/weir.toml, or else the last that were applied.
func (t *transaction) resolveGoals(goal plan.Goal) (all []plan.Goal, notes []plan.Note, err error) {
	j, facts := t.journal, t.facts
	before := j.Goals()
	if goal == (plan.Goal{}) {
		if before, err = t.wanted(t.situation); err != nil {
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
		if err := cmp.Or(j.Readable(dev), j.Awaits(dev)); err != nil {
			return nil, nil, err
		}
		switch {
		case j.IsDown():
			before = nil
		case j != nil:
			t.only = dev
		}
		before = append([]plan.Goal{goal}, slices.DeleteFunc(before, func(g plan.Goal) bool { return g.Dev == dev })...)
	}
	for i, g := range before {
		_, there := facts.Link(g.Dev)
		switch {
		case there || g.Dev == "":
		case i > 0 || goal == (plan.Goal{}) && len(before) > 1:
			return nil, nil, &hint.Error{What: g.Dev + ", which has a goal, too, is not there",
				Try: "weir down --dev " + g.Dev + ", if it does not come again"}
		default:
			return []plan.Goal{g}, nil, nil // to be told so: beside others it would be passed over
		}
		if err := isUp(g, facts); err != nil && i == 0 && goal != (plan.Goal{}) {
			return nil, nil, err
		}
		seen := []plan.Note(nil)
		if i == 0 || goal == (plan.Goal{}) {
			if g, seen, err = t.measured(g); err != nil {
				return nil, nil, err
			}
		}
		all, notes = append(all, g), append(notes, seen...)
	}
	return all, notes, nil
}

// measured looks at the host's traffic for what a new goal does not say. One that is in force keeps what was found
// when it was brought up; but before there were kinds of relays nothing was found.
func (t *transaction) measured(goal plan.Goal) (plan.Goal, []plan.Note, error) {
	j, facts := t.journal, t.facts
	uplink, _, _ := plan.Uplink(facts)
	var before plan.Goal
	if !j.IsDown() {
		before, _ = plan.GoalOf(j.Goals(), cmp.Or(goal.Dev, uplink))
	}
	goal = goal.AsFound(before)
	inForce := before != plan.Goal{} && goal == before
	if inForce && (goal.Role != "relay" || goal.Carries != "") {
		return goal, nil, nil
	}
	if j != nil {
		t.saidCarries = goal.Carries != "" || goal.Role == "server"
	}
	deep := host.Deep{}
	if facts.Deep != nil {
		deep = *facts.Deep
	}
	deep.Sockets = t.host.path(facts, nil)
	facts.Deep = &deep
	goal, seen, err := goal.AsSeen(facts)
	if before.Role == "relay" && goal.Role == "" && goal.Rate != 0 && goal.Recipe+goal.Qdisc == "" {
		was := plan.Goal{Role: before.Role, Carries: before.Carries}
		seen = append(seen, plan.Note{Kind: plan.Role, Subject: "role",
			Text: "taken for a server, and the goal in force is a relay's. To stay one: " + was.Flags()})
	}
	if err != nil || inForce {
		return goal, seen, err
	}
	goal, served := goal.Serving(facts)
	goal, far := goal.Measured(deep.Sockets)
	return goal, slices.Concat(seen, served, far, goal.Crowded(deep.Sockets)), nil
}

// plan is for all the goals that a host is to have. What a device that is not there would have is left as it is.
func (at situation) plan(goals []plan.Goal) (plan.Plan, error) {
	j, facts := at.journal, at.facts
	there := slices.DeleteFunc(slices.Clone(goals), func(g plan.Goal) bool {
		_, there := facts.Link(g.Dev)
		return g.Dev != "" && !there || slices.Contains(at.without, g.Dev)
	})
	if len(there) == 0 {
		there = goals[:1] // and why not
	}
	p, err := plan.Make(there, j.Before(facts))
	if err != nil {
		return p, err
	}
	d := difference{situation: at, goals: goals, there: there, wanted: p, partly: len(there) < len(goals)}
	d.hidden = at.needsRoot(p)
	// The next boot may well give a device back the name that it had.
	d.filesStay = d.partly || j.Kept() && j.Renamed() && !at.carried && j.Pending == nil && alike(j.Goals(), p.Goals)
	p.Changes = append(d.changesForward(), d.changesBack()...)
	return p, at.keepsShaper(goals[0], p)
}

// difference is what lies between a host as it is and a plan, which is made for the host as it was before.
type difference struct {
	situation
	goals  []plan.Goal // all that the host is to have
	there  []plan.Goal // and those of them whose devices are there
	wanted plan.Plan   // for these

	partly    bool // a device is not there, and what is the host's stays for its goal
	hidden    bool // only root sees what the plan would be, and what was never touched is left
	filesStay bool // as they were kept
}

// changesForward returns the changes that are wanted and not in force. It is never nil.
func (d difference) changesForward() []plan.Change {
	changes := []plan.Change{}
	for _, c := range d.wanted.Changes {
		if d.leaves(c) {
			continue
		}
		goal, _ := plan.GoalOf(d.wanted.Goals, c.Dev())
		if c.Old, _ = d.journal.Value(d.facts, c.Target); !c.Old.Meets(c.New) && !goal.Follows(c.Old, c.New) {
			c.Owner = d.journal.Owner(d.facts, c.Target)
			changes = append(changes, c)
		}
	}
	return changes
}

// leaves reports whether a change that is wanted is not made by this run.
func (d difference) leaves(c plan.Change) bool {
	switch {
	case d.isOthers(c.Target), d.leavesFile(c.Target), d.hidden && d.journal.Untouched(d.facts, c.Target):
		return true
	case c.IsFile():
		return d.filesStay || c.Target == journal.GoalFile && d.saysAlready(d.wanted, d.there)
	}
	return d.partly && c.Dev() == "" && d.journal.Holds(d.facts, c.Target)
}

// changesBack returns the changes that put back what an earlier goal had set and none asks for any more.
func (d difference) changesBack() (changes []plan.Change) {
	j := d.journal
	if j == nil {
		return nil
	}
	// Nor is it known what files are for where all is in force, and the journal that knew of it was lost.
	filesStay := d.filesStay || len(d.wanted.Changes) == 0 &&
		!slices.ContainsFunc(j.Entries, func(e journal.Entry) bool { return !e.IsFile() })
	for _, e := range j.Entries {
		if filesStay && e.IsFile() || d.isAbsent(e) || d.isOthers(e.Target) {
			continue
		}
		wanted := slices.ContainsFunc(d.wanted.Changes, func(c plan.Change) bool { return c.Target == e.Target })
		if now, _ := j.Value(d.facts, e.Target); !wanted && j.State(d.facts, e) == journal.Ours {
			changes = append(changes, plan.Change{Target: e.Target, Old: now, New: e.Was, Owner: "weir",
				Reason: "back to what it was: this goal does not ask for it", Evidence: "the journal"})
		}
	}
	return changes
}

// isOthers reports whether something belongs to another device than the one that the run is about.
func (d difference) isOthers(t kernel.Target) bool {
	return d.only != "" && t.Dev() != "" && t.Dev() != d.only
}

// isAbsent reports whether an entry is of a goal whose device is not there or, if it is the host's, may be.
func (d difference) isAbsent(e journal.Entry) bool {
	if e.Dev() == "" {
		return d.partly
	}
	_, wanted := plan.GoalOf(d.goals, e.Dev())
	_, planned := plan.GoalOf(d.wanted.Goals, e.Dev())
	return wanted && !planned
}

// saysAlready reports whether the goals' file need not be written for a plan of these goals. It leaves open what was
// found, as they did; or it is as it was when just those were confirmed, in a person's own words perhaps.
func (at situation) saysAlready(p plan.Plan, goals []plan.Goal) bool {
	file := at.facts.Files[host.GoalFile]
	if !plan.Says(file, plan.Lasting(p.Goals)...) {
		return false
	}
	found := !slices.EqualFunc(goals, p.Goals, func(a, b plan.Goal) bool { return a.Carries == b.Carries })
	if found || plan.LeavesRate(file) {
		return true
	}
	e := at.journal.Entry(journal.GoalFile)
	return e != nil && e.Last().Meets(kernel.Content{File: file}) && alike(p.Goals, at.journal.Confirmed().Plain())
}

// keepsShaper refuses the likeliest mistake: a goal that was meant to be added to the one in force, and would replace
// it and take its shaper away.
func (at situation) keepsShaper(goal plan.Goal, p plan.Plan) error {
	// What gave the goal in force the shaper that goes, and what it takes to have that and what is asked for now.
	gave, both := plan.Goal{}, goal
	was, _ := plan.GoalOf(at.journal.Goals(), p.Goals[0].Dev)
	if was == (plan.Goal{}) {
		return nil
	}
	relay := was.Role == "relay" && goal.Role != "server" && !at.saidCarries
	for _, c := range p.Changes {
		switch {
		case !c.Unshapes(), c.Dev() != p.Goals[0].Dev:
		case c.Kind == kernel.Ingress && was.ShapesArriving():
			if relay && goal.Carries != was.Carries {
				gave.Role, gave.Carries = was.Role, was.Carries
			}
		case c.Kind == kernel.Ingress:
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
	return &hint.Error{
		What: fmt.Sprintf("this goal would take the shaper away: it does not say %s, which the one in force does",
			gave.Flags()),
		Try: try,
	}
}

// lasting splits changes into those of the running system, which end with it, and those of files.
func lasting(changes []plan.Change) (now, files []plan.Change) {
	for _, c := range changes {
		if c.IsFile() {
			files = append(files, c)
		} else {
			now = append(now, c)
		}
	}
	return now, files
}

// needsRoot reports whether only root can compute this plan: an earlier run as root found a tunnel that cannot be
// unpacked, or that is a virtual machine's, and nobody else can see that.
func (at situation) needsRoot(p plan.Plan) bool {
	j, f := at.journal, at.facts
	if j == nil || f.Admin || !alike(p.Goals, j.Goals()) {
		return false
	}
	return slices.ContainsFunc(p.Changes, func(c plan.Change) bool {
		incoming, ok := c.New.(kernel.Incoming)
		if !ok {
			return false
		}
		var last []string
		if e := j.Entry(c.Target); e != nil {
			set, _ := e.Last().(kernel.Incoming)
			last = set.Tunnels
		}
		known := func(name string) bool { return slices.Contains(last, name) }
		more := slices.DeleteFunc(slices.Clone(incoming.Tunnels), known)
		plain := func(name string) bool { l, _ := f.Link(name); return l.MAC == "" } // and no virtual machine's
		return len(more) > 0 && (len(last) == 0 || !slices.ContainsFunc(more, plain))
	})
}

// leavesFile reports whether a file is not to be written for now, though another was planned: the goal's, which
// somebody has changed; or one that somebody has removed (systemctl disable does), if it is a boot that asks.
func (at situation) leavesFile(t kernel.Target) bool {
	j, f := at.journal, at.facts
	e := j.Entry(t)
	switch {
	case j == nil || !t.IsFile():
		return false
	case e == nil:
		return at.keepGoalFile && t == journal.GoalFile && f.Files[t.Name].Kind == host.Regular
	}
	removed := f.Files[t.Name].Kind == host.NoFile && !isNoFile(e.Last())
	return at.keepGoalFile && t == journal.GoalFile && j.State(f, *e) == journal.Foreign || at.keepRemoved && removed
}

func isNoFile(v kernel.Value) bool {
	content, ok := v.(kernel.Content)
	return ok && content.Kind == host.NoFile
}

// alike reports whether two lists have the same goals.
func alike(a, b []plan.Goal) bool {
	return len(a) == len(b) && !slices.ContainsFunc(a, func(g plan.Goal) bool { return !slices.Contains(b, g) })
}

// flags writes goals as they would be typed.
func flags(goals []plan.Goal) string {
	var all []string
	for _, g := range goals {
		all = append(all, g.Flags())
	}
	return strings.Join(all, "; ")
}
