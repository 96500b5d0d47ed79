// SPDX-License-Identifier: Apache-2.0

// Package plan turns a goal and the facts of a host into the changes that reach the goal, each with its reason and its
// evidence.
//
// It is a pure function of those two values: it may not read a host, a file or a clock, and it may not change anything.
// It is idempotent: the plan for a host on which a plan was carried out is empty, which is how everything else in this
// program verifies.
package plan

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"weir/internal/hint"
	"weir/internal/host"
	"weir/internal/kernel"
	"weir/internal/qdisc"
)

// Plan is what to change on a host, in order, and what was thought about and left.
type Plan struct {
	Goals      []Goal   `json:"-"` // one for each device, which is filled in; the one that was asked for is first
	Changes    []Change `json:"changes"`
	Considered []Note   `json:"considered,omitempty"`

	// Unavailable is an option that was asked for and that this host cannot have, where the rest of the goal does
	// without it. A person is told, and a boot goes on.
	Unavailable *hint.Error `json:"-"`
	// NotPersistent is why the plan cannot be kept over a reboot although it should be. It stops who carries the plan
	// out, and not who only looks at it.
	NotPersistent *hint.Error `json:"-"`
}

// CheckPersistent returns NotPersistent with one more thing to try, or nil if the plan can be kept.
func (p Plan) CheckPersistent() error {
	if p.NotPersistent == nil {
		return nil
	}
	return hint.New(p.NotPersistent.What, p.NotPersistent.Try+"; or --runtime: what is set ends with a reboot")
}

// Lasting are those of some goals that files are to keep.
func Lasting(goals []Goal) []Goal {
	return slices.DeleteFunc(slices.Clone(goals), func(g Goal) bool { return g.Runtime || g.Only })
}

// GoalOf is the goal for a device, if there is one.
func GoalOf(goals []Goal, dev string) (Goal, bool) {
	i := slices.IndexFunc(goals, func(g Goal) bool { return g.Dev == dev })
	if i < 0 {
		return Goal{}, false
	}
	return goals[i], true
}

// Carrying is the plan with what these goals say that their devices carry, and not what was seen.
func (p Plan) Carrying(goals []Goal) Plan {
	p.Goals = slices.Clone(p.Goals)
	for i, planned := range p.Goals {
		for _, g := range goals {
			if g.Dev == planned.Dev || g.Dev == "" {
				p.Goals[i].Carries = g.Carries
			}
		}
	}
	return p
}

// Change is one target's new value. It says all that carrying it out takes.
type Change struct {
	kernel.Target
	Old      kernel.Value // as on the host now
	New      kernel.Value // as it is to be
	Owner    string       // to whom the old value is due, as far as is known
	Reason   string
	Evidence string // what was measured, and where it can be repeated; a file needs none
}

// Verb says in a word what becomes of a file; "" of anything else.
func (c Change) Verb() string {
	before, _ := c.Old.(kernel.Content)
	after, ok := c.New.(kernel.Content)
	switch {
	case !ok:
		return ""
	case after.Kind == host.NoFile:
		return "removed"
	case before.Kind == host.NoFile:
		return "written"
	}
	return "written anew"
}

// Unshapes reports whether a rate is enforced before the change and not after it.
func (c Change) Unshapes() bool { return stackOf(c.Old).Shapes() && !stackOf(c.New).Shapes() }

// stackOf is what a value is, of queueing disciplines.
func stackOf(v kernel.Value) qdisc.Stack {
	switch v := v.(type) {
	case kernel.Queue:
		return v.Stack
	case kernel.Incoming:
		return v.Stack
	}
	return nil
}

// Note is something that was thought about and left as it is, and why.
type Note struct {
	Subject string   `json:"subject"`
	Text    string   `json:"text"`
	Kind    noteKind `json:"kind,omitempty"`
}

// noteKind says who has to read a note.
type noteKind string

const (
	Aside       noteKind = ""            // a thought that led to nothing: for who asks for all
	Consequence noteKind = "consequence" // what does not come with the plan, or was assumed: to be known before
	Role        noteKind = "role"        // what the host is taken for: to be known before and after
	Lack        noteKind = "lack"        // what the goal wants and this host cannot have: to be known each time
)

// LacksOf are those of some notes that say what a goal wants and this host cannot have.
func LacksOf(notes []Note) []Note {
	return slices.DeleteFunc(slices.Clone(notes), func(n Note) bool { return n.Kind != Lack })
}

// Empty reports whether nothing is left to change: the goal is in force.
func (p Plan) Empty() bool { return len(p.Changes) == 0 }

// planFor is Make of one goal.
func planFor(goal Goal, facts host.Facts) (Plan, error) { return Make([]Goal{goal}, facts) }

// Make plans for devices, with one goal for each: what is the host's, and no device's, is planned from all goals. Its
// error is a *hint.Error.
func Make(goals []Goal, facts host.Facts) (Plan, error) {
	var drafts []*draft
	for _, goal := range goals {
		d, err := draftFor(goal, facts)
		if err != nil {
			return Plan{}, err
		}
		for _, other := range drafts {
			if other.Goal.Dev == d.Goal.Dev {
				return Plan{}, hint.New("there are two goals for "+d.Goal.Dev, "one goal for each device")
			}
		}
		drafts = append(drafts, d)
	}
	p, err := mergeDrafts(drafts)
	if err != nil {
		return Plan{}, err
	}
	var devices []string
	for _, d := range drafts {
		devices = append(devices, d.Goal.Dev)
	}
	if !slices.ContainsFunc(p.Goals, func(g Goal) bool { return g.Only }) {
		p.Considered = append(p.Considered, OtherUplinks(facts, devices...)...)
	}
	keep(&p, drafts)
	for i, c := range p.Changes {
		p.Changes[i].Owner = c.Object().Owner(facts, c.Name)
	}
	return p, nil
}

// draftFor is a goal's part of a plan.
func draftFor(goal Goal, facts host.Facts) (*draft, error) {
	if err := goal.Check(); err != nil {
		return nil, err
	}
	link, err := goal.device(facts)
	if err != nil {
		return nil, err
	}
	said := goal.Dev != ""
	goal.Dev = link.Name
	if goal.Role == "relay" && goal.Carries == "" {
		of := facts
		of.Uplink = link.Name // a tunnel that is asked for is none of those that it carries
		goal.Carries = configuredKinds(of)
	}
	d := &draft{Goal: goal, Plan: Plan{Changes: []Change{}}, facts: facts, link: link, wants: map[string]string{}}
	d.stack, _ = link.Tree.Stack()
	d.cc = facts.Sysctls[congestionControl].Value
	if _, why, err := Uplink(facts); err == nil && why != "" && !said {
		d.warn(link.Name, "%s", why)
	}
	if kind := tunnelKind(link); kind != "" && goal.Rate != 0 {
		d.warn(link.Name, "is a tunnel: %s is taken for what its packets may use outside, %d bytes larger each",
			goal.Rate, overhead(kind))
	}
	for _, n := range ledNotes(facts, link) {
		d.add(n)
	}
	if shaper := kernel.ShapedByOthers(facts, link.Name); shaper != "" {
		d.note(link.Name, "what comes in is shaped already, by %s: weir did not make that, and leaves it", shaper)
	}
	if !link.Up {
		// No reason to wait, least of all at boot: what is set holds when the link comes up.
		d.warn(link.Name, "the link is down: nothing leaves by it now")
	}
	steps := rules
	switch {
	case goal.Recipe != "":
		steps = recipes[goal.Recipe]
	case goal.Only:
		steps = []rule{ownTheQueue}
	case goal.Carries.oneCard() && !goal.Carries.has(Proxy) && goal.CC == "":
		d.note("TCP", "its settings stay: what this host carries has its ends elsewhere")
		steps = []rule{ownTheQueue, shapeWhatArrives}
	}
	for _, step := range steps {
		if err := step(d); err != nil {
			return nil, err
		}
	}
	return d, nil
}

// mergeDrafts is one plan of several. A buffer is as large as the largest that is asked for; of anything else there is
// one.
func mergeDrafts(drafts []*draft) (p Plan, err error) {
	wants, whose := map[string]string{}, map[string]Goal{}
	p.Changes = []Change{}
	for _, d := range drafts {
		p.Goals = append(p.Goals, d.Goal)
		p.Unavailable = cmp.Or(p.Unavailable, d.Unavailable)
		for _, n := range d.Considered {
			if !slices.Contains(p.Considered, n) {
				p.Considered = append(p.Considered, n)
			}
		}
		for name, want := range d.wants {
			before, there := wants[name]
			both, ok := largerValue(name, before, want)
			if there && !ok {
				return Plan{}, &hint.Error{
					What: fmt.Sprintf("%s: %s is to be %s, and %s wants %s: it is one setting for the whole host",
						d.Goal.Dev,
						name, want, whose[name].Dev, before),
					Try: "goals that agree: weir plan for each, or weir down for one of " + whose[name].Dev + " and " +
						d.Goal.Dev,
				}
			}
			if !there {
				both, whose[name] = want, d.Goal
			}
			wants[name] = both
		}
	}
	for _, d := range drafts {
		for _, c := range d.Changes {
			if err := checkUnpackedOnce(p.Changes, c); err != nil {
				return Plan{}, err
			}
			// Of the host's there is one, whoever asks for it.
			if slices.ContainsFunc(p.Changes, func(other Change) bool { return other.Target == c.Target }) {
				continue
			}
			if c.Kind == kernel.Sysctl {
				c.New = kernel.Setting(wants[c.Name])
			}
			p.Changes = append(p.Changes, c)
		}
	}
	return p, nil
}

// checkUnpackedOnce refuses a change by which what comes out of a tunnel would pass the queues of two devices.
func checkUnpackedOnce(before []Change, c Change) error {
	want, _ := c.New.(kernel.Incoming)
	for _, other := range before {
		at, _ := other.New.(kernel.Incoming)
		for _, tunnel := range want.Tunnels {
			if slices.Contains(at.Tunnels, tunnel) {
				return &hint.Error{
					What: fmt.Sprintf("what comes out of %s can pass one queue only, and is to pass that of %s and "+
						"that of %s", tunnel, other.Name, c.Name),
					Try: "for the one by which no tunnel comes in: --carries forward",
				}
			}
		}
	}
	return nil
}

// largerValue is the value that does for two goals, if there is one.
func largerValue(name, a, b string) (string, bool) {
	if a == b || name != tcpRmem && name != tcpWmem {
		return b, a == b
	}
	x, okX := triple(a)
	y, okY := triple(b)
	for i := range x {
		x[i] = max(x[i], y[i])
	}
	return fmt.Sprintf("%d %d %d", x[0], x[1], x[2]), okX && okY
}

// draft is a plan in the making: what it starts from, and what would be in force after the changes so far.
type draft struct {
	Plan
	Goal  Goal // with its device filled in
	facts host.Facts
	link  host.Link
	stack qdisc.Stack // at the root of the device; nil when it is one that has no Stack
	cc    string      // the congestion control of new connections

	wants map[string]string // what sysctls are to be for it, whatever they are
}

// A rule adds to a draft what it has to say. It is an error only if the goal cannot be reached without it.
type rule func(*draft) error

func warning(subject, text string, args ...any) Note {
	return Note{subject, fmt.Sprintf(text, args...), Consequence}
}

// note adds what led to nothing.
func (d *draft) note(subject, text string, args ...any) {
	d.add(Note{subject, fmt.Sprintf(text, args...), Aside})
}

// warn adds what a person has to know before.
func (d *draft) warn(subject, text string, args ...any) {
	d.add(warning(subject, text, args...))
}

// lack adds what the goal wants and this host cannot have.
func (d *draft) lack(subject, text string, args ...any) {
	d.add(Note{subject, fmt.Sprintf(text, args...), Lack})
}

func (d *draft) add(n Note) {
	if !slices.Contains(d.Considered, n) {
		d.Considered = append(d.Considered, n)
	}
}

// has reports whether the kernel has a kind of qdisc, or might: where nobody could tell, trying will.
func (d *draft) has(kind string) bool { return d.facts.Qdiscs[kind] != host.No }

// root plans the queueing disciplines of the device.
func (d *draft) root(want qdisc.Stack, reason, evidence string) error {
	want, err := want.Check()
	if err != nil {
		return &hint.Error{What: err.Error(), Usage: true}
	}
	d.warnOfFaults(want)
	for _, spec := range want {
		if d.has(spec.Kind()) {
			continue
		}
		why := ""
		if lacks := d.facts.Lacks[spec.Kind()]; lacks != "" {
			why = ": " + lacks
		}
		return &hint.Error{
			What: fmt.Sprintf("%s: kernel %s has no %s%s", d.link.Name, d.facts.Kernel, spec.Kind(), why),
			Try:  host.AllModules(d.facts.Kernel) + ", or choose with --qdisc (this kernel has: " + d.kinds() + ")",
		}
	}
	if !d.stack.Equal(want) {
		d.warnOfLimit(want)
		if err := d.link.Tree.Restorable(); err != nil {
			try := "if it need not come back: tc qdisc del dev " + d.link.Name + " root, and then again"
			var lost *qdisc.Lost
			switch {
			case errors.As(err, &lost):
				try = "if it need not come back: " + lost.Remove(d.link.Name) + ", and then again"
			case !d.facts.Admin:
				try = "the same as root, who may read more"
			}
			return &hint.Error{What: fmt.Sprintf("%s: what is there now could not be put back: %v", d.link.Name, err),
				Try: try}
		}
		d.Changes = append(d.Changes, Change{
			Target: kernel.Target{Kind: kernel.Root, Name: d.link.Name}, Old: kernel.QueueOf(d.link.Tree),
			New: kernel.Queue{Stack: want}, Reason: reason, Evidence: evidence,
		})
	}
	d.stack = want
	return nil
}

// warnOfLimit names a rate that somebody has set and that what is planned does not keep.
func (d *draft) warnOfLimit(want qdisc.Stack) {
	there, limited := d.link.Tree.Narrowest()
	kept := shapedRate(d.Goal.Rate)
	switch {
	case !limited, want.Shapes() && kept == 0, want.Shapes() && kept <= there.Rate:
		return
	case want.Shapes():
		d.warn(d.link.Name, "%s there lets no more than %s leave, and this plan lets %s. If that limit is meant: "+
			"--rate %s", there.Kind, there.Rate, kept, there.Rate)
	default:
		d.warn(d.link.Name, "%s there lets no more than %s leave, and this plan has no limit. If that one is meant: "+
			"--rate %s", there.Kind, there.Rate, there.Rate)
	}
}

func (d *draft) kinds() string {
	var kinds []string
	for kind, support := range d.facts.Qdiscs {
		if support == host.Yes {
			kinds = append(kinds, kind)
		}
	}
	if len(kinds) == 0 {
		return "none of those that weir knows"
	}
	slices.Sort(kinds)
	return strings.Join(kinds, ", ")
}

// ingress plans the queueing disciplines for incoming traffic. The way there must be free, or be as planned already.
func (d *draft) ingress(arriving qdisc.Arriving, reason, evidence string) error {
	stack, err := arriving.Stack.Check()
	if err != nil {
		return &hint.Error{What: err.Error(), Usage: true}
	}
	arriving.Stack = stack
	want := kernel.Incoming{Arriving: arriving}
	if kernel.IncomingAt(d.facts, d.link.Name).Meets(want) {
		return nil
	}
	ifbs := kernel.IFBs(d.facts, d.link.Name)
	for _, q := range d.link.Tree.Qdiscs {
		if q.Parent == qdisc.Ingress && len(ifbs) == 0 {
			what := fmt.Sprintf("%s: somebody else has a qdisc at the ingress (%s), and filters there are not "+
				"weir's to touch", d.link.Name, q.Kind)
			if shaper := kernel.ShapedByOthers(d.facts, d.link.Name); shaper != "" {
				what = fmt.Sprintf("what comes in by %s is shaped already, by %s: weir did not make that, and leaves "+
					"it", d.link.Name, shaper)
			}
			return &hint.Error{
				What: what,
				Try: fmt.Sprintf("%s; or, if nobody needs it: tc qdisc del dev %s %s", d.Goal.WithoutIngress(),
					d.link.Name, q.Kind),
			}
		}
	}
	switch {
	case len(ifbs) > 0:
		try := "see what it is for; if for nothing: "
		for _, l := range d.facts.Links {
			if l.Redirect == ifbs[0] || l.Name == d.link.Name { // else what comes out of a tunnel is lost
				try += fmt.Sprintf("tc qdisc del dev %s ingress; ", l.Name)
			}
		}
		return &hint.Error{
			What: fmt.Sprintf("there is a device %s already, and the journal knows nothing of it", ifbs[0]),
			Try:  try + "ip link del " + ifbs[0],
		}
	case d.facts.Ingress == host.No:
		return &hint.Error{
			What: fmt.Sprintf("%s: kernel %s cannot shape incoming traffic: it has not all of %s", d.link.Name,
				d.facts.Kernel, strings.Join(host.IngressModules(), ", ")),
			Try: host.AllModules(d.facts.Kernel) + "; or " + d.Goal.WithoutIngress(),
		}
	}
	d.Changes = append(d.Changes, Change{
		Target: kernel.Target{Kind: kernel.Ingress, Name: d.link.Name}, Old: kernel.NoIncoming, New: want,
		Reason: reason, Evidence: evidence,
	})
	return nil
}

// sysctl plans a setting, unless it has the value already or cannot be set from here.
func (d *draft) sysctl(name, want, reason, evidence string) {
	now, ok := d.facts.Sysctls[name]
	if ok && !now.ReadOnly {
		d.wants[name] = want
	}
	switch {
	case now.Value == want && ok:
	case !ok:
		d.lack(name, "does not exist in this network namespace: not set to %s", want)
	case now.ReadOnly:
		d.lack(name, "cannot be written here: %s stays, %s wanted", now.Value, want)
	default:
		d.Changes = append(d.Changes, Change{
			Target: kernel.Target{Kind: kernel.Sysctl, Name: name}, Old: kernel.Setting(now.Value),
			New: kernel.Setting(want), Reason: reason, Evidence: evidence,
		})
	}
}
