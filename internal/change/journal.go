// SPDX-License-Identifier: Apache-2.0

package change

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"weir/internal/hint"
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

	carried      bool   // from an earlier boot, or made up: the journal on disk does not say this
	adopted      bool   // found by its files alone
	keepGoalFile bool   // the goal's file stays as somebody has made it
	keepRemoved  bool   // and files that somebody has removed stay away
	saidCarries  bool   // a person has said what the next goal carries, or that it carries nothing
	only         string // the device that a run is about; "" for all

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

// uplink is the one that a device is.
func (j *journal) uplink(dev string) *uplink {
	if j == nil || dev == "" {
		return nil
	}
	i := slices.IndexFunc(j.Uplinks, func(u uplink) bool { return u.Goal.Dev == dev })
	if i < 0 {
		return nil
	}
	return &j.Uplinks[i]
}

// index is that of a device; 0 if the journal is not about it.
func (j *journal) index(dev string) int {
	if u := j.uplink(dev); u != nil {
		return u.Link
	}
	return 0
}

// isAbout reports whether the journal is about the network namespace of these facts.
func (j *journal) isAbout(f host.Facts) bool {
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

// about is the goal for a device, if there is one.
func about(goals []plan.Goal, dev string) (plan.Goal, bool) {
	i := slices.IndexFunc(goals, func(g plan.Goal) bool { return g.Dev == dev })
	if i < 0 {
		return plan.Goal{}, false
	}
	return goals[i], true
}

// unreadableGoal returns why this version cannot parse a stored goal of another device than one, or nil. Going back
// does not need the goal.
func (j *journal) unreadableGoal(but string) error {
	if j == nil {
		return nil
	}
	for _, u := range j.Uplinks {
		if u.strange != nil && !u.Down && u.Goal.Dev != but {
			return notUnderstood(u.Goal.Dev, u.strange)
		}
	}
	return nil
}

func notUnderstood(dev string, why error) error {
	return &hint.Error{What: fmt.Sprintf("the goal of %s is not understood: %v", dev, why),
		Try: "weir up with a goal; or weir down, which takes none"}
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
	Value plan.Value
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
	Was     plan.Value
	Set     []plan.Value
	WasTime time.Time // when a file was written that is to come back
	// what it was under the goal that was confirmed last, if the pending run has changed it; else nil
	Back   plan.Value
	Theirs bool // down has left it to somebody else, who had changed it since
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

// next is the journal to write before p is carried out on a host as in facts. What is in j stays: down goes back to
// the very first, and a run that is not confirmed to the last that was. What was left to somebody else begins anew.
func (j *journal) next(p plan.Plan, f host.Facts) *journal {
	next := &journal{Version: journalVersion, Boot: f.Boot, Namespace: f.Namespace, Cookie: f.Cookie,
		Pending: &pending{Back: j.confirmed()}}
	if j != nil {
		next.Promised, next.keepGoalFile, next.keepRemoved = j.Promised, j.keepGoalFile, j.keepRemoved
		next.unknown, next.without = j.unknown, j.without
		next.only, next.Pending.Dev = j.only, j.only
		if p := j.Pending; p != nil && p.Dev != j.only {
			next.Pending.Dev = "" // of two runs, neither of which was confirmed
		}
		if j.adopted {
			next.Pending.Back = nil // nobody knows whether that was ever confirmed
		}
	}
	next.takeUplinks(j, p, f)
	next.takeEntries(j, p)
	for _, c := range p.Changes {
		next.enter(c, f)
	}
	return next
}

// takeUplinks takes over the devices that are known, with their new goals, and adds those that are not. One that there
// is no plan for, for now, or that is not there, keeps the goal that it has.
func (j *journal) takeUplinks(before *journal, p plan.Plan, f host.Facts) {
	for _, u := range before.uplinks() {
		if goal, asked := about(p.All(), u.Goal.Dev); asked {
			u.Goal, u.Down, u.strange = goal, false, nil
		} else if !before.isDown() {
			_, there := f.Link(u.Goal.Dev)
			u.Down = u.Down || there && !slices.Contains(before.without, u.Goal.Dev)
		} else {
			u.Down = true
		}
		j.Uplinks = append(j.Uplinks, u)
	}
	for _, goal := range p.All() {
		link, _ := f.Link(goal.Dev)
		u := j.uplink(goal.Dev)
		if u == nil {
			j.Uplinks = append(j.Uplinks, uplink{Goal: goal})
			u = &j.Uplinks[len(j.Uplinks)-1]
		}
		if was := before.entry(rootOf(goal.Dev)); u.Link != link.Index || was == nil || was.startsOver(p) {
			// Another of that name, or one whose queue is as it was, or somebody else's.
			u.Link, u.MAC, u.Tree, u.GSOSegs = link.Index, address(link), uncounted(link.Tree), link.GSOSegs
		}
	}
}

// startsOver reports whether p sets a value that down left to another program. What that program set is then the value
// to put back.
func (e *entry) startsOver(p plan.Plan) bool {
	return e.Theirs && slices.ContainsFunc(p.Changes, func(c plan.Change) bool { return c.Target == e.Target })
}

// takeEntries takes over what was set before, but for what begins anew. What was left on a device that is taken down
// stays somebody else's.
func (j *journal) takeEntries(before *journal, p plan.Plan) {
	if before == nil {
		return
	}
	for _, e := range before.Entries {
		if e.Kind == plan.Root && before.index(e.Name) != j.index(e.Name) {
			continue // a device of the same name, and not the one that we changed: that is gone
		}
		if e.startsOver(p) {
			continue
		}
		if before.Pending != nil && before.Pending.Down && !e.Theirs {
			e.Back = e.Was // a down that was cut short
		}
		u := j.uplink(e.Dev())
		e.Set, e.Theirs = slices.Clone(e.Set), e.Theirs && u != nil && u.Down
		j.Entries = append(j.Entries, e)
	}
}

// enter writes a change down, and what was there before.
func (j *journal) enter(c plan.Change, f host.Facts) {
	if c.Target == goalFile {
		for i := range j.Uplinks {
			j.Uplinks[i].FileDev = ""
		}
	}
	e := j.entry(c.Target)
	if e == nil {
		found := entry{Target: c.Target, Was: c.Old}
		switch c.Kind {
		case plan.Ingress:
			found.Was = noIncoming // all of it is ours, or led to a device that is gone
		case plan.File:
			found.WasTime = f.Modified[c.Name]
		}
		j.Entries = append(j.Entries, found)
		e = &j.Entries[len(j.Entries)-1]
	}
	if e.Back == nil {
		e.Back = e.Was
		if len(j.Pending.Back) > 0 && len(e.Set) > 0 {
			e.Back = e.last()
		}
	}
	e.set(c.New)
}

// confirmed are the goals that were confirmed last, and are not taken down.
func (j *journal) confirmed() goals {
	switch {
	case j == nil, j.onlyForeign():
		return nil
	case j.Pending != nil:
		return j.Pending.Back
	}
	var all goals
	for _, u := range j.Uplinks {
		if !u.Down {
			all = append(all, written{u.Goal, u.strange, u.text})
		}
	}
	return all
}

// awaits is an error where another device than that has a goal that nobody has confirmed. The one timer would go on
// from the new run's time, or be gone, and that goal with it.
func (j *journal) awaits(dev string) error {
	if j == nil || j.Pending == nil || j.Pending.Down {
		return nil
	}
	for _, g := range j.goals() {
		if g.Dev != dev && !slices.ContainsFunc(j.Pending.Back, func(w written) bool { return w.Goal == g }) {
			return &hint.Error{What: "the goal of " + g.Dev + " is not confirmed yet",
				Try: "weir confirm, or weir recover, and then the same again"}
		}
	}
	return nil
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
		u := j.uplink(e.Dev())
		return u != nil && u.Down && !e.Theirs
	})
	j.Uplinks = slices.DeleteFunc(j.Uplinks, func(u uplink) bool {
		return u.Down && !slices.ContainsFunc(j.Entries, func(e entry) bool { return e.Dev() == u.Goal.Dev })
	})
}

// ownGoalFile takes a goal's file that somebody has edited, and whose goal was then confirmed, for ours: down removes
// it with the rest.
func (j *journal) ownGoalFile(f host.Facts) {
	e := j.entry(goalFile)
	if now := f.Files[host.GoalFile]; e != nil && plan.Says(now, j.lasting()...) {
		e.set(plan.Content{File: now})
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
		if e.Kind != plan.File && !e.Theirs && e.changed() {
			j.Promised = append(j.Promised, promise{e.Target, e.last()})
		}
	}
}

// files reports whether the journal knows of any file.
func (j *journal) files() bool {
	return j != nil && slices.ContainsFunc(j.Entries, func(e entry) bool { return e.Kind == plan.File })
}

// kept reports whether files keep its goal over a reboot.
func (j *journal) kept() bool {
	return j != nil && slices.ContainsFunc(j.Entries, func(e entry) bool {
		return e.Kind == plan.File && !e.Theirs && e.changed()
	})
}

// leavesFile reports whether a file is not to be written for now, though another was planned: the goal's, which
// somebody has changed; or one that somebody has removed (systemctl disable does), if it is a boot that asks.
func (j *journal) leavesFile(f host.Facts, t plan.Target) bool {
	e := j.entry(t)
	switch {
	case j == nil || t.Kind != plan.File:
		return false
	case e == nil:
		return j.keepGoalFile && t == goalFile && f.Files[t.Name].Kind == host.Regular
	}
	removed := f.Files[t.Name].Kind == host.NoFile && !isNoFile(e.last())
	return j.keepGoalFile && t == goalFile && j.state(f, *e) == foreign || j.keepRemoved && removed
}

// unit is the name of the timer that is armed; "" if there is none.
func (j *journal) unit() string {
	if j == nil || j.Pending == nil {
		return ""
	}
	return j.Pending.Unit
}

func (e *entry) set(value plan.Value) {
	again := func(set plan.Value) bool { return equal(set, value) }
	e.Set = append(slices.DeleteFunc(slices.Clone(e.Set), again), value)
}

// last is the value that was set last.
func (e entry) last() plan.Value { return e.Set[len(e.Set)-1] }

// differs says how a value is another than the one that was set.
func (e entry) differs(now plan.Value) string {
	if e.Kind == plan.File {
		return "is not as weir wrote it"
	}
	return fmt.Sprintf("is %s, and weir set %s", now, e.last())
}

// changed reports whether it is another than as found.
func (e entry) changed() bool { return !equal(e.last(), e.Was) }

// equal reports whether two values are the same in each respect.
func equal(a, b plan.Value) bool { return a.Meets(b) && b.Meets(a) }

var (
	goalFile   = plan.Target{Kind: plan.File, Name: host.GoalFile}
	noIncoming = plan.Incoming{Other: plan.NoIngress}
)

func rootOf(dev string) plan.Target { return plan.Target{Kind: plan.Root, Name: dev} }

func isNoFile(v plan.Value) bool {
	content, ok := v.(plan.Content)
	return ok && content.Kind == host.NoFile
}

func renamed(t plan.Target, names map[string]string) plan.Target {
	if t.Dev() != "" {
		t.Name = cmp.Or(names[t.Name], t.Name)
	}
	return t
}

// onlyForeign reports whether only values that down left to other programs remain in the journal. A goal for which
// nothing had to be changed may be up beside them.
func (j *journal) onlyForeign() bool {
	if j == nil || j.Pending != nil || len(j.Entries) == 0 ||
		slices.ContainsFunc(j.Entries, func(e entry) bool { return !e.Theirs }) {
		return false
	}
	set := func(u uplink) bool {
		return slices.ContainsFunc(j.Entries, func(e entry) bool { return e.Dev() == u.Goal.Dev })
	}
	left := func(u uplink) bool { return u.Down && set(u) }
	asIs := func(u uplink) bool { return !u.Down && !set(u) }
	return !slices.ContainsFunc(j.Uplinks, left) || !slices.ContainsFunc(j.Uplinks, asIs)
}

// isDown reports whether all goals are taken down, but for what was left to somebody else, or is not yet done.
func (j *journal) isDown() bool {
	return j.onlyForeign() || j != nil && j.Pending != nil && j.Pending.Down
}

// notes are what a person should know of the journal before anything else.
func (j *journal) notes() (notes []plan.Note) {
	if j == nil {
		return nil
	}
	for _, u := range j.Uplinks {
		if u.FileDev != "" {
			notes = append(notes, plan.Note{Subject: u.Goal.Dev, Kind: plan.Consequence,
				Text: "was called " + u.FileDev + " when weir set it up"})
		}
	}
	return notes
}

// alike reports whether two lists have the same goals.
func alike(a, b []plan.Goal) bool {
	return len(a) == len(b) && !slices.ContainsFunc(a, func(g plan.Goal) bool { return !slices.Contains(b, g) })
}
