// SPDX-License-Identifier: Apache-2.0

// Package plan turns a goal and the facts of a host into the changes that reach the goal, each with its reason and its evidence.
//
// It is a pure function of those two values: it may not read a host, a file or a clock, and it may not change anything. It is idempotent:
// the plan for a host on which a plan was carried out is empty, which is how everything else in this program verifies.
package plan

import (
	"fmt"
	"slices"
	"strings"

	"weir/internal/host"
	"weir/internal/qdisc"
)

// Plan is what to change on a host, in order, and what was thought about and left.
type Plan struct {
	Goal       Goal     `json:"goal"` // with its device filled in
	Changes    []Change `json:"changes"`
	Considered []Note   `json:"considered,omitempty"`

	// Lacks is what was asked for and is not to be had, where the rest of the goal does without it: a person is told, and a boot goes on.
	Lacks *Refusal `json:"-"`
	// Unkept is why the plan could not be kept over a reboot, though it is to be: nothing to look at a plan for, but to carry one out.
	Unkept *Refusal `json:"-"`
}

// Change is one setting's new value. It says all that carrying it out takes.
type Change struct {
	Target
	Old      string `json:"old"`             // as on the host now
	New      string `json:"new"`             // as tc or sysctl would take it
	Owner    string `json:"owner,omitempty"` // to whom the old value is due, as far as is known
	Reason   string `json:"reason"`
	Evidence string `json:"evidence,omitempty"` // what was measured, and where it can be repeated; a file needs none
}

// Verb says in a word what becomes of a file; "" of anything else.
func (c Change) Verb() string {
	none := string(host.NoFile)
	switch {
	case c.File == "":
		return ""
	case c.New == none:
		return "removed"
	case c.Old == none:
		return "written"
	}
	return "written anew"
}

// Unshapes tells whether a rate is enforced before the change and not after it.
func (c Change) Unshapes() bool {
	before, err := qdisc.ParseArriving(c.Old)
	after, _ := qdisc.ParseArriving(c.New)
	return c.Dev+c.Ingress != "" && err == nil && shapes(before.Stack) && !shapes(after.Stack)
}

// Target is what a change sets: the root queueing disciplines of a device, those that all that arrives at it passes first, a sysctl, or a
// file, as host.File writes it.
type Target struct {
	Dev     string `json:"dev,omitempty"`
	Ingress string `json:"ingress,omitempty"` // the device
	Sysctl  string `json:"sysctl,omitempty"`
	File    string `json:"file,omitempty"`
}

func (t Target) String() string {
	switch {
	case t.Dev != "":
		return t.Dev + "  root qdisc"
	case t.Ingress != "":
		return t.Ingress + "  ingress"
	}
	return t.Sysctl + t.File
}

// Note is something that was thought about and left as it is, and why.
type Note struct {
	Subject string `json:"subject"`
	Text    string `json:"text"`
}

// Empty tells whether nothing is left to change: the goal is in force.
func (p Plan) Empty() bool { return len(p.Changes) == 0 }

// Make plans. The error, when there is one, is a *Refusal.
func Make(goal Goal, facts host.Facts) (Plan, error) {
	if err := goal.Check(); err != nil {
		return Plan{}, err
	}
	link, err := goal.device(facts)
	if err != nil {
		return Plan{}, err
	}
	goal.Dev = link.Name
	if goal.Role == "relay" && goal.Carries == "" {
		of := facts
		of.Uplink = link.Name // a tunnel that is asked for is none of those that it carries
		goal.Carries = SetUp(of)
	}
	d := &draft{Plan: Plan{Goal: goal, Changes: []Change{}}, facts: facts, link: link}
	d.stack, _ = link.Tree.Stack()
	d.cc = facts.Sysctls[congestionControl].Value
	if !link.Up {
		// No reason to wait, least of all at boot: what is set holds when the link comes up.
		d.note(link.Name, "the link is down: nothing leaves by it now")
	}
	steps := rules
	switch {
	case goal.Recipe != "":
		steps = recipes[goal.Recipe]
	case goal.Only:
		steps = []rule{ownTheQueue}
	case goal.Carries.oneCard() && !goal.Carries.Has(Proxy) && goal.CC == "":
		d.note("TCP", "its settings stay: what this host carries has its ends elsewhere")
		steps = []rule{ownTheQueue, shapeWhatArrives}
	}
	for _, step := range steps {
		if err := step(d); err != nil {
			return Plan{}, err
		}
	}
	keep(d)
	for i, c := range d.Changes {
		d.Changes[i].Owner = Owner(facts, c.Target)
	}
	return d.Plan, nil
}

// draft is a plan in the making: what it starts from, and what would be in force after the changes so far.
type draft struct {
	Plan
	facts host.Facts
	link  host.Link
	stack qdisc.Stack // at the root of the device; nil when it is one that has no Stack
	cc    string      // the congestion control of new connections
}

// A rule adds to a draft what it has to say. It is an error only if the goal cannot be reached without it.
type rule func(*draft) error

func (d *draft) note(subject, text string, args ...any) {
	d.Considered = append(d.Considered, Note{Subject: subject, Text: fmt.Sprintf(text, args...)})
}

// has tells whether the kernel has a kind of qdisc, or might: where nobody could tell, trying will.
func (d *draft) has(kind string) bool { return d.facts.Qdiscs[kind] != host.No }

// root plans the queueing disciplines of the device, written as tc would.
func (d *draft) root(text, reason, evidence string) error {
	want, err := qdisc.ParseStack(text)
	if err != nil {
		return &Refusal{What: err.Error(), Usage: true}
	}
	for _, spec := range want {
		if d.has(spec.Kind()) {
			continue
		}
		why := ""
		if spec.Kind() == "bpf_dualpi2" && d.facts.BPFDualPI2 != "" {
			why = ": " + d.facts.BPFDualPI2
		}
		return &Refusal{
			What: fmt.Sprintf("%s: kernel %s has no %s%s", d.link.Name, d.facts.Kernel, spec.Kind(), why),
			Try:  "install the package with all of the kernel's modules, or choose with --qdisc (this kernel has: " + d.kinds() + ")",
		}
	}
	if !d.stack.Equal(want) {
		if err := d.link.Tree.Restorable(); err != nil {
			try := "if it need not come back: tc qdisc del dev " + d.link.Name + " root, and then again"
			if !d.facts.Admin {
				try = "the same as root, who may read more"
			}
			return &Refusal{What: fmt.Sprintf("%s: what is there now could not be put back: %v", d.link.Name, err), Try: try}
		}
		d.Changes = append(d.Changes, Change{
			Target: Target{Dev: d.link.Name}, Old: Describe(d.link.Tree), New: want.String(), Reason: reason, Evidence: evidence,
		})
	}
	d.stack = want
	return nil
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

// Describe writes the queueing disciplines of a device as tc would, or as far as that goes: a tree that a person built with classes of
// its own is named by its root.
func Describe(t qdisc.Tree) string {
	if stack, ok := t.Stack(); ok {
		return stack.String()
	}
	if root, ok := t.Root(); ok {
		if len(t.Qdiscs) > 1 || len(t.Classes) > 0 {
			return fmt.Sprintf("%s with %d classes", root.Kind, len(t.Classes))
		}
		return root.Kind
	}
	return "none"
}

// What Weir has before a device for what arrives, when that is no queue.
const (
	NoIngress   = "none"
	HalfIngress = "half of it" // a run was cut short, or somebody has taken the rest away
)

// DescribeIngress writes the queueing disciplines that Weir lets all that arrives at a device pass first, as tc would. Who else has something at
// its ingress is not looked at.
func DescribeIngress(f host.Facts, dev string) string {
	link, _ := f.Link(dev)
	ifb, there := f.Link(qdisc.IFB)
	switch there = there && ifb.Kind == "ifb"; {
	case there && ifb.Up && link.Redirect == ifb.Name:
		stack, ok := ifb.Tree.Stack()
		if !ok {
			return Describe(ifb.Tree)
		}
		var tunnels []string
		for _, l := range f.Links {
			if l.Name != dev && l.Redirect == ifb.Name {
				tunnels = append(tunnels, l.Name)
			}
		}
		return qdisc.NewArriving(stack, tunnels, outer(link.Passes)).String()
	case there, link.Redirect == host.Gone, len(link.Passes) > 0:
		return HalfIngress
	}
	if slices.ContainsFunc(f.Links, func(l host.Link) bool { return l.Redirect == host.Gone && tunnelKind(l, true) != "" }) {
		return HalfIngress
	}
	return NoIngress
}

// outer reads what host has written.
func outer(texts []string) (all []qdisc.Outer) {
	for _, text := range texts {
		if o, err := qdisc.ParseOuter(text); err == nil {
			all = append(all, o)
		}
	}
	return all
}

// ingress plans the queueing disciplines for what arrives at the device. The way there must be free, or be as planned already.
func (d *draft) ingress(text, reason, evidence string) error {
	want, err := qdisc.ParseArriving(text)
	if err != nil {
		return &Refusal{What: err.Error(), Usage: true}
	}
	if now, err := qdisc.ParseArriving(DescribeIngress(d.facts, d.link.Name)); err == nil && now.Meets(want) {
		return nil
	}
	_, there := d.facts.Link(qdisc.IFB)
	for _, q := range d.link.Tree.Qdiscs {
		if q.Parent == qdisc.Ingress && !there {
			return &Refusal{
				What: fmt.Sprintf("%s: somebody else has a qdisc at the ingress (%s), and filters there are not weir's to touch", d.link.Name, q.Kind),
				Try:  fmt.Sprintf("%s; or, if nobody needs it: tc qdisc del dev %s %s", d.Goal.WithoutIngress(), d.link.Name, q.Kind),
			}
		}
	}
	switch {
	case there:
		try := "see what it is for; if for nothing: "
		for _, l := range d.facts.Links {
			if l.Redirect == qdisc.IFB || l.Name == d.link.Name { // else what comes out of a tunnel is lost
				try += fmt.Sprintf("tc qdisc del dev %s ingress; ", l.Name)
			}
		}
		return &Refusal{
			What: fmt.Sprintf("there is a device %s already, and the journal knows nothing of it", qdisc.IFB),
			Try:  try + "ip link del " + qdisc.IFB,
		}
	case d.facts.Ingress == host.No:
		return &Refusal{
			What: fmt.Sprintf("%s: kernel %s cannot shape what arrives: it has not all of %s", d.link.Name, d.facts.Kernel, strings.Join(host.IngressModules(), ", ")),
			Try:  "install the package with all of the kernel's modules; or " + d.Goal.WithoutIngress(),
		}
	}
	d.Changes = append(d.Changes, Change{
		Target: Target{Ingress: d.link.Name}, Old: NoIngress, New: want.String(), Reason: reason, Evidence: evidence,
	})
	return nil
}

// sysctl plans a setting, unless it has the value already or cannot be set from here.
func (d *draft) sysctl(name, want, reason, evidence string) {
	now, ok := d.facts.Sysctls[name]
	switch {
	case now.Value == want && ok:
	case !ok:
		d.note(name, "does not exist in this network namespace: not set to %s", want)
	case now.ReadOnly:
		d.note(name, "cannot be written in this network namespace: %s stays, %s wanted", now.Value, want)
	default:
		d.Changes = append(d.Changes, Change{Target: Target{Sysctl: name}, Old: now.Value, New: want, Reason: reason, Evidence: evidence})
	}
}
