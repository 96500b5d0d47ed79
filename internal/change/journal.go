// SPDX-License-Identifier: Apache-2.0

package change

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"weir/internal/host"
	"weir/internal/plan"
	"weir/internal/qdisc"
)

// journal is what it takes to go back: the host as it was before the first change, and everything that was set since.
type journal struct {
	Version   int
	Boot      string    // host.Facts.Boot: what is set at run time ends with the boot
	Namespace string    // host.Facts.Namespace
	Cookie    uint64    // and host.Facts.Cookie: the number in the name may come again
	Uplinks   []uplink  // at most one for a device
	Entries   []entry   // of those devices, and of the host
	Pending   *pending  // a run that is not confirmed, or was cut short
	Reverted  *Reverted // the last run, when it was put back
	Promised  []promise // what was in force when it was confirmed: another kernel may not be able to

	carried bool   // from an earlier boot, or made up: the journal on disk does not say this
	adopted bool   // found by its files alone
	asIs    bool   // the goal's file stays as somebody has made it
	lean    bool   // and files that somebody has removed stay away
	said    bool   // a person has said what the next goal carries, or that it carries nothing
	only    string // the device that a run is about; "" for all

	without []string // devices whose goals cannot be planned, and keep nobody from the others

	unknown map[string]json.RawMessage // what a newer version has written
}

// uplink is a device and its goal.
type uplink struct {
	Goal plan.Goal `json:"goal"`
	Link int       `json:"link"` // its index
	// and its address, by which it is found after a boot that has named it otherwise
	MAC     string     `json:"mac,omitempty"`
	Tree    qdisc.Tree `json:"tree"`               // as it was before
	GSOSegs int        `json:"gso_segs,omitempty"` // what a BPF queue changes, as it was before; 0: not known
	// what it was called when it was set up, and is in files, if it has another name now
	FileDev string `json:"file_dev,omitempty"`
	Down    bool   `json:"down,omitempty"` // its goal is taken down, but for what somebody else had changed

	strange error           // why this version does not understand the goal
	text    json.RawMessage // as it was written
}

// of is the uplink that a device is.
func (j *journal) of(dev string) *uplink {
	if j == nil || dev == "" {
		return nil
	}
	i := slices.IndexFunc(j.Uplinks, func(u uplink) bool { return u.Goal.Dev == dev })
	if i < 0 {
		return nil
	}
	return &j.Uplinks[i]
}

// link is the index of a device; 0 if the journal is not about it.
func (j *journal) link(dev string) int {
	if u := j.of(dev); u != nil {
		return u.Link
	}
	return 0
}

// here tells whether the journal is about the network namespace of these facts.
func (j *journal) here(f host.Facts) bool {
	return j.Namespace == f.Namespace && (j.Cookie == 0 || f.Cookie == 0 || j.Cookie == f.Cookie)
}

// goals are those that were brought up.
func (j *journal) goals() (all []plan.Goal) {
	if j == nil {
		return nil
	}
	for _, u := range j.Uplinks {
		if !u.Down {
			all = append(all, u.Goal)
		}
	}
	return all
}

// uplinks are its devices.
func (j *journal) uplinks() []uplink {
	if j == nil {
		return nil
	}
	return j.Uplinks
}

// device is the one that a target is of; "" for the host's.
func device(t plan.Target) string { return t.Dev + t.Ingress }

// about is the goal for a device, if there is one.
func about(goals []plan.Goal, dev string) (plan.Goal, bool) {
	i := slices.IndexFunc(goals, func(g plan.Goal) bool { return g.Dev == dev })
	if i < 0 {
		return plan.Goal{}, false
	}
	return goals[i], true
}

// strange is why a goal that was brought up, of another device than one, is not understood here. Going back does not
// take it.
func (j *journal) strange(but string) error {
	if j == nil {
		return nil
	}
	for _, u := range j.Uplinks {
		if u.strange != nil && !u.Down && u.Goal.Dev != but {
			return &plan.Refusal{What: fmt.Sprintf("the goal of %s is not understood: %v", u.Goal.Dev, u.strange),
				Try: "weir up with a goal; or weir down, which takes none"}
		}
	}
	return nil
}

// flags writes goals as they would be typed.
func flags(goals []plan.Goal) string {
	var all []string
	for _, g := range goals {
		all = append(all, g.Flags())
	}
	return strings.Join(all, "; ")
}

// promise is a setting as it was when a person confirmed it.
type promise struct {
	plan.Target
	Value string `json:"value"`
}

// pending says how to put back the run that is under way. It is there before the run's first change, and goes when the
// run is confirmed or has been put back.
type pending struct {
	// when it is to be put back, on the clock of this boot; wall clocks jump
	Until time.Duration `json:"until_ns"`
	Unit  string        `json:"unit,omitempty"`    // the timer's name
	Back  goals         `json:"back_to,omitempty"` // those that were confirmed last; without one the host as found
	Down  bool          `json:"down,omitempty"`    // the run takes down, and putting it back is to end that
	Dev   string        `json:"dev,omitempty"`     // the device that it is about; "" for all
}

// Reverted is a run that was put back.
type Reverted struct {
	Goal  plan.Goal   `json:"goal"` // or the first of them
	Notes []plan.Note `json:"notes,omitempty"`
}

// entry is the history of one setting. Set holds every value that was ever written, the last one last: when a run is
// cut short between journal and change, the value before it must still be known as ours.
type entry struct {
	plan.Target
	Was string   `json:"was"`
	Set []string `json:"set"`

	// WasTime is when a file was written that is to come back.
	WasTime time.Time `json:"was_time,omitzero"`

	// Back is what the setting was under the goal that was confirmed last, if the pending run has changed it.
	Back *string `json:"back,omitempty"`

	// Theirs is set when down has left it to somebody else, who had changed it since.
	Theirs bool `json:"theirs,omitempty"`
}

const (
	journalVersion = 1
	journalName    = "journal.json"
	lockName       = "lock"
)

func (j *journal) entry(t plan.Target) *entry {
	if j == nil {
		return nil
	}
	i := slices.IndexFunc(j.Entries, func(e entry) bool { return e.Target == t })
	if i < 0 {
		return nil
	}
	return &j.Entries[i]
}

// with is the journal to write before p is carried out on a host as in facts. What is in j stays: down goes back to the
// very first, and a run that is not confirmed to the last that was.
func (j *journal) with(p plan.Plan, f host.Facts) *journal {
	next := &journal{Version: journalVersion, Boot: f.Boot, Namespace: f.Namespace, Cookie: f.Cookie,
		Pending: &pending{Back: j.confirmed()}}
	if j != nil {
		next.Promised, next.asIs, next.lean, next.unknown = j.Promised, j.asIs, j.lean, j.unknown
		next.only, next.Pending.Dev = j.only, j.only
		if p := j.Pending; p != nil && p.Dev != j.only {
			next.Pending.Dev = "" // of two runs, neither of which was confirmed
		}
		if j.adopted {
			next.Pending.Back = nil // nobody knows whether that was ever confirmed
		}
		for _, u := range j.Uplinks {
			if goal, asked := about(p.All(), u.Goal.Dev); asked {
				u.Goal, u.Down, u.strange = goal, false, nil
			} else if _, there := f.Link(u.Goal.Dev); there || len(p.All()) == 0 {
				u.Down = true
			}
			next.Uplinks = append(next.Uplinks, u)
		}
	}
	for _, goal := range p.All() {
		link, _ := f.Link(goal.Dev)
		u := next.of(goal.Dev)
		if u == nil {
			next.Uplinks = append(next.Uplinks, uplink{Goal: goal})
			u = &next.Uplinks[len(next.Uplinks)-1]
		}
		if u.Link != link.Index || j.entry(plan.Target{Dev: goal.Dev}) == nil {
			// Another of that name, or one whose queue is as it was.
			u.Link, u.MAC, u.Tree, u.GSOSegs = link.Index, address(link), uncounted(link.Tree), link.GSOSegs
		}
	}
	if j != nil {
		for _, e := range j.Entries {
			if e.Dev != "" && j.link(e.Dev) != next.link(e.Dev) {
				continue // a device of the same name, and not the one that we changed: that is gone
			}
			if j.Pending != nil && j.Pending.Down && !e.Theirs {
				e.Back = &e.Was // a down that was cut short
			}
			e.Set, e.Theirs = slices.Clone(e.Set), false
			next.Entries = append(next.Entries, e)
		}
	}
	for _, c := range p.Changes {
		if c.File == host.GoalFile {
			for i := range next.Uplinks {
				next.Uplinks[i].FileDev = ""
			}
		}
		e := next.entry(c.Target)
		if e == nil {
			was := c.Old
			if c.Ingress != "" {
				was = plan.NoIngress // all of it is ours, or led to a device that is gone
			}
			next.Entries = append(next.Entries, entry{Target: c.Target, Was: was, WasTime: f.Modified[c.File]})
			e = &next.Entries[len(next.Entries)-1]
		}
		if e.Back == nil {
			back := e.Was
			if len(next.Pending.Back) > 0 && len(e.Set) > 0 {
				back = e.last()
			}
			e.Back = &back
		}
		e.set(c.New)
	}
	return next
}

// confirmed are the goals that were confirmed last, and are not taken down.
func (j *journal) confirmed() goals {
	switch {
	case j == nil, j.left():
		return nil
	case j.Pending != nil:
		return j.Pending.Back
	}
	return j.goals()
}

// confirm makes the run that is under way the one to go back to.
func (j *journal) confirm() {
	j.Pending = nil
	for i := range j.Entries {
		j.Entries[i].Back = nil
	}
	j.forget()
}

// forget drops devices that are taken down, and of which nothing was left to somebody else.
func (j *journal) forget() {
	j.Entries = slices.DeleteFunc(j.Entries, func(e entry) bool {
		u := j.of(device(e.Target))
		return u != nil && u.Down && !e.Theirs
	})
	j.Uplinks = slices.DeleteFunc(j.Uplinks, func(u uplink) bool {
		return u.Down && !slices.ContainsFunc(j.Entries, func(e entry) bool { return device(e.Target) == u.Goal.Dev })
	})
}

// own takes a goal's file that somebody has edited, and whose goal was then confirmed, for ours: down removes it with
// the rest.
func (j *journal) own(f host.Facts) {
	e := j.entry(plan.Target{File: host.GoalFile})
	if now := f.Files[host.GoalFile]; e != nil && plan.Says(now, j.lasting()...) {
		e.set(now.String())
	}
}

// lasting are the goals that files are to keep.
func (j *journal) lasting() (all []plan.Goal) {
	for _, g := range j.goals() {
		if !g.Runtime && !g.Only {
			all = append(all, g)
		}
	}
	return all
}

// promise writes down what is in force, since it is what a person has asked for and seen.
func (j *journal) promise() {
	j.Promised = nil
	for _, e := range j.Entries {
		if e.File == "" && !e.Theirs && e.last() != e.Was {
			j.Promised = append(j.Promised, promise{e.Target, e.last()})
		}
	}
}

// files tells whether the journal knows of any file.
func (j *journal) files() bool {
	return j != nil && slices.ContainsFunc(j.Entries, func(e entry) bool { return e.File != "" })
}

// kept tells whether files keep its goal over a reboot.
func (j *journal) kept() bool {
	return j != nil && slices.ContainsFunc(j.Entries, func(e entry) bool {
		return e.File != "" && !e.Theirs &&
			e.last() != e.Was
	})
}

// leaves tells whether a file is not to be written for now, though another was planned: the goal's, which somebody has
// changed; or one that somebody has removed (systemctl disable does), if it is a boot that asks.
func (j *journal) leaves(f host.Facts, t plan.Target) bool {
	e := j.entry(t)
	switch {
	case j == nil || t.File == "":
		return false
	case e == nil:
		return j.asIs && t.File == host.GoalFile && f.Files[t.File].Kind == host.Regular
	}
	removed := f.Files[t.File].Kind == host.NoFile && e.last() != string(host.NoFile)
	return j.asIs && t.File == host.GoalFile && j.state(f, *e) == foreign || j.lean && removed
}

// unit is the name of the timer that is armed; "" if there is none.
func (j *journal) unit() string {
	if j == nil || j.Pending == nil {
		return ""
	}
	return j.Pending.Unit
}

func (e *entry) set(value string) {
	e.Set = append(slices.DeleteFunc(slices.Clone(e.Set), func(set string) bool { return set == value }), value)
}

// last is the value that was set last.
func (e entry) last() string { return e.Set[len(e.Set)-1] }

func renamed(t plan.Target, names map[string]string) plan.Target {
	t.Dev, t.Ingress = cmp.Or(names[t.Dev], t.Dev), cmp.Or(names[t.Ingress], t.Ingress)
	return t
}

// left tells whether nothing is in the journal any more but what down has left to somebody else.
func (j *journal) left() bool {
	return j != nil && j.Pending == nil && len(j.Entries) > 0 &&
		!slices.ContainsFunc(j.Entries, func(e entry) bool { return !e.Theirs })
}

// asFound tells whether a tree is the one as found. A root that the kernel had made by itself may be there in another
// guise: none while the link is down, and the kernel makes it again when that comes up; or made for it, where the
// kernel would make another kind now.
func (u *uplink) asFound(now qdisc.Tree) bool {
	was, okWas := u.Tree.Root()
	is, okIs := now.Root()
	if byKernel := (!okWas || was.Handle == 0) && (!okIs || is.Handle == 0); byKernel && okWas != okIs {
		return true
	}
	return now.Same(u.Tree) || u.remade(now)
}

func (u *uplink) remade(now qdisc.Tree) bool {
	root, ok := u.Tree.Root()
	if !ok || root.Handle != 0 || now.Same(u.Tree) {
		return false
	}
	was, okWas := u.Tree.Stack()
	is, okIs := now.Stack()
	return okWas && okIs && was.Equal(is)
}

// notes are what a person should know of the journal before anything else.
func (j *journal) notes() (notes []plan.Note) {
	if j == nil {
		return nil
	}
	for _, u := range j.Uplinks {
		if u.FileDev != "" {
			notes = append(notes, plan.Note{Subject: u.Goal.Dev, Text: "was called " + u.FileDev +
				" when weir set it up"})
		}
	}
	return notes
}

// uncounted is a tree without its statistics, which nothing can put back.
func uncounted(t qdisc.Tree) qdisc.Tree {
	t.Qdiscs, t.Classes = slices.Clone(t.Qdiscs), slices.Clone(t.Classes)
	for i := range t.Qdiscs {
		t.Qdiscs[i].Stats = qdisc.Stats{}
	}
	for i := range t.Classes {
		t.Classes[i].Stats = qdisc.Stats{}
	}
	return t
}

// value is what a setting is now, as a plan writes it; false if it is not there, or is no longer the one that j is
// about.
func (j *journal) value(f host.Facts, t plan.Target) (string, bool) {
	u := j.of(device(t))
	switch {
	case t.Dev != "":
		link, ok := f.Link(t.Dev)
		return plan.Describe(link.Tree), ok && (u == nil || link.Index == u.Link)
	case t.Ingress != "":
		link, ok := f.Link(t.Ingress)
		now := plan.DescribeIngress(f, t.Ingress)
		// The device that it leads through outlives the one that it is for.
		return now, ok && (u == nil || link.Index == u.Link) || now != plan.NoIngress
	case t.File != "":
		return f.Files[t.File].String(), true
	}
	s, ok := f.Sysctls[t.Sysctl]
	return s.Value, ok
}

// state is how a setting stands to the journal.
type state int

const (
	gone    state = iota // with its device
	asFound              // as before the first change
	ours                 // as we set it
	foreign              // as somebody else set it since
)

func (j *journal) state(f host.Facts, e entry) state {
	now, ok := j.value(f, e.Target)
	if !ok {
		return gone
	}
	if u := j.of(e.Dev); u != nil {
		if link, _ := f.Link(e.Dev); u.asFound(link.Tree) {
			return asFound
		}
	} else if now == e.Was {
		return asFound
	}
	if e.Ingress != "" && (now == plan.HalfIngress || e.stacked(now)) {
		return ours
	}
	if slices.ContainsFunc(e.Set, func(set string) bool { return same(e.Target, now, set) }) {
		return ours
	}
	return foreign
}

// stacked tells whether what arrives passes a stack of ours, whatever tunnels are led there by now: they come and go.
func (e entry) stacked(now string) bool {
	is, err := qdisc.ParseArriving(now)
	return err == nil && slices.ContainsFunc(e.Set, func(set string) bool {
		was, err := qdisc.ParseArriving(set)
		return err == nil && was.Stack.Equal(is.Stack)
	})
}

// tunnels are those that were ever unpacked for a device.
func (j *journal) tunnels(dev string) (all []string) {
	if j == nil {
		return nil
	}
	for _, e := range j.Entries {
		for _, set := range e.Set {
			if a, err := qdisc.ParseArriving(set); e.Ingress == dev && err == nil {
				all = append(all, a.Tunnels...)
			}
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// present is what can be set of a value: no tunnel can be unpacked that is not there.
func present(f host.Facts, t plan.Target, value string) string {
	a, err := qdisc.ParseArriving(value)
	if t.Ingress == "" || err != nil {
		return value
	}
	there := slices.DeleteFunc(slices.Clone(a.Tunnels), func(name string) bool { _, ok := f.Link(name); return !ok })
	if len(there) == 0 {
		a.Outer = nil
	}
	return qdisc.NewArriving(a.Stack, there, a.Outer).String()
}

// blind tells whether only root can say what a plan for the goal in force comes to: he found that a tunnel could
// not be unpacked, or was a virtual machine's, and who is not root cannot tell.
func (j *journal) blind(wanted []plan.Change, p plan.Plan, f host.Facts) bool {
	if j == nil || f.Admin || !alike(p.All(), j.goals()) {
		return false
	}
	return slices.ContainsFunc(wanted, func(c plan.Change) bool {
		a, err := qdisc.ParseArriving(c.New)
		if c.Ingress == "" || err != nil {
			return false
		}
		var last []string
		if e := j.entry(c.Target); e != nil {
			set, _ := qdisc.ParseArriving(e.last())
			last = set.Tunnels
		}
		more := slices.DeleteFunc(a.Tunnels, func(name string) bool { return slices.Contains(last, name) })
		tap := func(name string) bool { l, _ := f.Link(name); return l.MAC != "" }
		return len(more) > 0 && (len(last) == 0 || !slices.ContainsFunc(more,
			func(name string) bool { return !tap(name) }))
	})
}

// untouched tells whether a queue is as it was set last, or found.
func (j *journal) untouched(f host.Facts, t plan.Target) bool {
	if t.Dev+t.Ingress == "" {
		return false
	}
	now, ok := j.value(f, t)
	e := j.entry(t)
	return ok && (e == nil && now == plan.NoIngress || e != nil && same(t, now, e.last()))
}

// alike tells whether two lists have the same goals.
func alike(a, b []plan.Goal) bool {
	return len(a) == len(b) && !slices.ContainsFunc(a, func(g plan.Goal) bool { return !slices.Contains(b, g) })
}

// same tells whether a value of a setting means what is wanted. Those of a queue may be written in more than one way.
func same(t plan.Target, a, b string) bool {
	if a == b || t.Dev+t.Ingress == "" {
		return a == b
	}
	x, errX := qdisc.ParseArriving(a)
	y, errY := qdisc.ParseArriving(b)
	return errX == nil && errY == nil && x.Meets(y)
}

// before takes out of the facts what we put in.
func (j *journal) before(f host.Facts) host.Facts {
	if j == nil {
		return f
	}
	f.Sysctls, f.Links, f.Files = maps.Clone(f.Sysctls), slices.Clone(f.Links), maps.Clone(f.Files)
	for _, e := range j.Entries {
		if s := j.state(f, e); s != ours && (e.Ingress == "" || s != foreign) {
			continue
		}
		switch {
		case e.Dev != "":
			i := slices.IndexFunc(f.Links, func(l host.Link) bool { return l.Name == e.Dev })
			ingress := slices.DeleteFunc(slices.Clone(f.Links[i].Tree.Qdiscs),
				func(q qdisc.Qdisc) bool { return !atIngress(q) })
			f.Links[i].Tree = j.of(e.Dev).Tree
			f.Links[i].Tree.Qdiscs = append(slices.DeleteFunc(slices.Clone(f.Links[i].Tree.Qdiscs), atIngress),
				ingress...)
		case e.Ingress != "":
			// Ours whoever has changed it: the device is of our making.
			f.Links = slices.DeleteFunc(f.Links, func(l host.Link) bool { return l.Name == qdisc.IFB })
			for i, l := range f.Links {
				if (l.Name == e.Ingress || l.Redirect == qdisc.IFB) &&
					slices.Contains([]string{"", qdisc.IFB, host.Gone}, l.Redirect) {
					f.Links[i].Redirect, f.Links[i].Passes = "", nil
					f.Links[i].Tree.Qdiscs = slices.DeleteFunc(slices.Clone(l.Tree.Qdiscs),
						func(q qdisc.Qdisc) bool { return atIngress(q) && q.Kind == "ingress" })
				}
			}
		case e.File != "":
			f.Files[e.File], _ = host.ParseFile(e.Was) // which load has done before
		default:
			s := f.Sysctls[e.Sysctl]
			s.Value = e.Was
			f.Sysctls[e.Sysctl] = s
		}
	}
	return f
}

func atIngress(q qdisc.Qdisc) bool { return q.Parent == qdisc.Ingress }
