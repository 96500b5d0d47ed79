// SPDX-License-Identifier: Apache-2.0

// Package journal is what is on disk of a run: the host as it was, what was set since, and the goals that asked for it.
//
// It is the only reader and the only writer of that file, of every version, and has its lock. It compares a journal
// with the facts of a host, and changes no host.
package journal

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"weir/internal/hint"
	"weir/internal/host"
	"weir/internal/kernel"
	"weir/internal/plan"
	"weir/internal/qdisc"
)

// Journal is what it takes to go back: the host as it was before the first change, and everything that was set since.
// Of a nil Journal, nothing is in force.
type Journal struct {
	Version   int
	Boot      string    // host.Facts.Boot: what is set at run time ends with the boot
	Namespace string    // host.Facts.Namespace
	Cookie    uint64    // and host.Facts.Cookie: the number in the name may come again
	Uplinks   []Uplink  // at most one for a device
	Entries   []Entry   // of those devices, and of the host
	Pending   *Pending  // a run that is not confirmed, or was cut short
	Reverted  *Reverted // the last run, when it was put back
	Promised  []Promise // what was in force when it was confirmed: another kernel may not be able to

	unknown map[string]json.RawMessage // what a newer version has written
}

// Uplink is a device and its goal.
type Uplink struct {
	Goal plan.Goal `json:"goal"`
	Link int       `json:"link"` // its index
	// and its address, by which it is found after a boot that has named it otherwise
	MAC     string     `json:"mac,omitempty"`
	Tree    qdisc.Tree `json:"tree"`               // as it was before
	GSOSegs int        `json:"gso_segs,omitempty"` // what a BPF queue changes, as it was before; 0: not known
	// what it was called when it was set up, and is in files, if it has another name now
	FileDev string `json:"file_dev,omitempty"`
	Down    bool   `json:"down,omitempty"` // its goal is taken down, but for what somebody else had changed

	unreadable error           // why this version does not understand the goal
	text       json.RawMessage // as it was written
}

// Promise is a setting as it was when a person confirmed it.
type Promise struct {
	kernel.Target
	Value kernel.Value
}

// Pending says how to put back the run that is under way. It is there before the run's first change, and goes when the
// run is confirmed or has been put back.
type Pending struct {
	// when it is to be put back, on the clock of this boot; wall clocks jump
	Until time.Duration `json:"until_ns"`
	Unit  string        `json:"unit,omitempty"`    // the timer's name
	Back  StoredGoals   `json:"back_to,omitempty"` // those that were confirmed last; without one the host as found
	Down  bool          `json:"down,omitempty"`    // the run takes down, and putting it back is to end that
	Dev   string        `json:"dev,omitempty"`     // the device that it is about; "" for all
}

// Reverted is a run that was put back.
type Reverted struct {
	Goal  plan.Goal   `json:"goal"` // or the first of them
	Notes []plan.Note `json:"notes,omitempty"`
}

// Entry is the history of one setting. Set holds every value that was ever written, the last one last: when a run is
// cut short between journal and change, the value before it must still be known as ours.
type Entry struct {
	kernel.Target
	Was     kernel.Value
	Set     []kernel.Value
	WasTime time.Time // when a file was written that is to come back
	// what it was under the goal that was confirmed last, if the pending run has changed it; else nil
	Back   kernel.Value
	Theirs bool // down has left it to somebody else, who had changed it since
}

// version is the one that this program writes. It reads no other.
const version = 1

// Uplink finds a device; nil if the journal is not about it.
func (j *Journal) Uplink(dev string) *Uplink {
	if j == nil || dev == "" {
		return nil
	}
	i := slices.IndexFunc(j.Uplinks, func(u Uplink) bool { return u.Goal.Dev == dev })
	if i < 0 {
		return nil
	}
	return &j.Uplinks[i]
}

// Index is that of a device; 0 if the journal is not about it.
func (j *Journal) Index(dev string) int {
	if u := j.Uplink(dev); u != nil {
		return u.Link
	}
	return 0
}

// isAbout reports whether the journal is about the network namespace of these facts.
func (j *Journal) isAbout(f host.Facts) bool {
	return j.Namespace == f.Namespace && (j.Cookie == 0 || f.Cookie == 0 || j.Cookie == f.Cookie)
}

// IsCurrent reports whether the journal is of the boot and of the network namespace of these facts.
func (j *Journal) IsCurrent(f host.Facts) bool { return j != nil && j.Boot == f.Boot && j.isAbout(f) }

// Goals are those that were brought up.
func (j *Journal) Goals() (all []plan.Goal) {
	for _, u := range j.uplinks() {
		if !u.Down {
			all = append(all, u.Goal)
		}
	}
	return all
}

// uplinks are its devices.
func (j *Journal) uplinks() []Uplink {
	if j == nil {
		return nil
	}
	return j.Uplinks
}

// Renamed reports whether a device has another name now than in the files that were written for it.
func (j *Journal) Renamed() bool {
	return slices.ContainsFunc(j.uplinks(), func(u Uplink) bool { return u.FileDev != "" })
}

// NamedNow is the name that a device of a file has now.
func (j *Journal) NamedNow(dev string) string {
	for _, u := range j.uplinks() {
		if u.FileDev != "" && dev == u.FileDev {
			return u.Goal.Dev
		}
	}
	return dev
}

// Readable is an error if this version does not understand a goal of another device than one. Going back does not need
// the goal.
func (j *Journal) Readable(but string) error {
	for _, u := range j.uplinks() {
		if u.unreadable != nil && !u.Down && u.Goal.Dev != but {
			return notUnderstood(u.Goal.Dev, u.unreadable)
		}
	}
	return nil
}

func notUnderstood(dev string, why error) error {
	return &hint.Error{What: fmt.Sprintf("the goal of %s is not understood: %v", dev, why),
		Try: "weir up with a goal; or weir down, which takes none"}
}

// Entry finds the history of a setting; nil if there is none.
func (j *Journal) Entry(t kernel.Target) *Entry {
	if j == nil {
		return nil
	}
	i := slices.IndexFunc(j.Entries, func(e Entry) bool { return e.Target == t })
	if i < 0 {
		return nil
	}
	return &j.Entries[i]
}

// Run is what a run begins with, besides the journal.
type Run struct {
	Plan    plan.Plan
	Facts   host.Facts
	Only    string   // the device that it is about; "" for all
	Without []string // devices that have goals, and no plan
	Adopted bool     // the journal was found by files alone: nobody knows whether its goals were ever confirmed
}

// Next is the journal to write before a run. What is in j stays: down goes back to the very first, and a run that is
// not confirmed to the last that was. What was left to somebody else begins anew.
func (j *Journal) Next(r Run) *Journal {
	next := &Journal{Version: version, Boot: r.Facts.Boot, Namespace: r.Facts.Namespace, Cookie: r.Facts.Cookie,
		Pending: &Pending{Back: j.Confirmed(), Dev: r.Only}}
	if j != nil {
		next.Promised, next.unknown = j.Promised, j.unknown
		if p := j.Pending; p != nil && p.Dev != r.Only {
			next.Pending.Dev = "" // of two runs, neither of which was confirmed
		}
		if r.Adopted {
			next.Pending.Back = nil
		}
	}
	next.takeUplinks(j, r)
	next.takeEntries(j, r.Plan)
	for _, c := range r.Plan.Changes {
		next.enter(c, r.Facts)
	}
	return next
}

// takeUplinks takes over the devices that are known, with their new goals, and adds those that are not. One that there
// is no plan for, for now, or that is not there, keeps the goal that it has.
func (j *Journal) takeUplinks(before *Journal, r Run) {
	for _, u := range before.uplinks() {
		if goal, asked := plan.GoalOf(r.Plan.Goals, u.Goal.Dev); asked {
			u.Goal, u.Down, u.unreadable = goal, false, nil
		} else if !before.IsDown() {
			_, there := r.Facts.Link(u.Goal.Dev)
			u.Down = u.Down || there && !slices.Contains(r.Without, u.Goal.Dev)
		} else {
			u.Down = true
		}
		j.Uplinks = append(j.Uplinks, u)
	}
	for _, goal := range r.Plan.Goals {
		link, _ := r.Facts.Link(goal.Dev)
		u := j.Uplink(goal.Dev)
		if u == nil {
			j.Uplinks = append(j.Uplinks, Uplink{Goal: goal})
			u = &j.Uplinks[len(j.Uplinks)-1]
		}
		if was := before.Entry(RootOf(goal.Dev)); u.Link != link.Index || was == nil || was.startsOver(r.Plan) {
			// Another of that name, or one whose queue is as it was, or somebody else's.
			u.Link, u.MAC, u.Tree, u.GSOSegs = link.Index, address(link), uncounted(link.Tree), link.GSOSegs
		}
	}
}

// startsOver reports whether p sets a value that down left to another program. What that program set is then the value
// to put back.
func (e *Entry) startsOver(p plan.Plan) bool {
	return e.Theirs && slices.ContainsFunc(p.Changes, func(c plan.Change) bool { return c.Target == e.Target })
}

// takeEntries takes over what was set before, but for what begins anew. What was left on a device that is taken down
// stays somebody else's.
func (j *Journal) takeEntries(before *Journal, p plan.Plan) {
	if before == nil {
		return
	}
	for _, e := range before.Entries {
		if e.Dev() != "" && e.Object().Outlives == nil && before.Index(e.Name) != j.Index(e.Name) {
			continue // a device of the same name, and not the one that we changed: that is gone
		}
		if e.startsOver(p) {
			continue
		}
		if before.Pending != nil && before.Pending.Down && !e.Theirs {
			e.Back = e.Was // a down that was cut short
		}
		u := j.Uplink(e.Dev())
		e.Set, e.Theirs = slices.Clone(e.Set), e.Theirs && u != nil && u.Down
		j.Entries = append(j.Entries, e)
	}
}

// enter writes a change down, and what was there before.
func (j *Journal) enter(c plan.Change, f host.Facts) {
	if c.Target == GoalFile {
		for i := range j.Uplinks {
			j.Uplinks[i].FileDev = ""
		}
	}
	e := j.Entry(c.Target)
	if e == nil {
		found := Entry{Target: c.Target, Was: c.Old, WasTime: f.Modified[c.Name]}
		if o := c.Object(); o.Before != nil {
			found.Was = o.Before(c.Old)
		}
		j.Entries = append(j.Entries, found)
		e = &j.Entries[len(j.Entries)-1]
	}
	if e.Back == nil {
		e.Back = e.Was
		if len(j.Pending.Back) > 0 && len(e.Set) > 0 {
			e.Back = e.Last()
		}
	}
	e.add(c.New)
}

// Confirmed are the goals that were confirmed last, and are not taken down.
func (j *Journal) Confirmed() StoredGoals {
	switch {
	case j == nil, j.OnlyForeign():
		return nil
	case j.Pending != nil:
		return j.Pending.Back
	}
	var all StoredGoals
	for _, u := range j.Uplinks {
		if !u.Down {
			all = append(all, StoredGoal{u.Goal, u.unreadable, u.text})
		}
	}
	return all
}

// Awaits is an error where another device than one has a goal that nobody has confirmed. The one timer would go on from
// the new run's time, or be gone, and that goal with it.
func (j *Journal) Awaits(dev string) error {
	if j == nil || j.Pending == nil || j.Pending.Down {
		return nil
	}
	for _, g := range j.Goals() {
		if g.Dev != dev && !slices.ContainsFunc(j.Pending.Back, func(s StoredGoal) bool { return s.Goal == g }) {
			return &hint.Error{What: "the goal of " + g.Dev + " is not confirmed yet",
				Try: "weir confirm, or weir recover, and then the same again"}
		}
	}
	return nil
}

// Confirm makes the run that is under way the one to go back to.
func (j *Journal) Confirm() {
	j.Pending = nil
	for i := range j.Entries {
		j.Entries[i].Back = nil
	}
	j.forget()
}

// forget drops devices that are taken down, and of which nothing was left to somebody else.
func (j *Journal) forget() {
	j.Entries = slices.DeleteFunc(j.Entries, func(e Entry) bool {
		u := j.Uplink(e.Dev())
		return u != nil && u.Down && !e.Theirs
	})
	j.Uplinks = slices.DeleteFunc(j.Uplinks, func(u Uplink) bool { return u.Down && !j.sets(u.Goal.Dev) })
}

// sets reports whether something of a device was set.
func (j *Journal) sets(dev string) bool {
	return slices.ContainsFunc(j.Entries, func(e Entry) bool { return e.Dev() == dev })
}

// OwnGoalFile takes a goal's file that somebody has edited, and whose goal was then confirmed, for ours: down removes
// it with the rest.
func (j *Journal) OwnGoalFile(f host.Facts) {
	e := j.Entry(GoalFile)
	if now := f.Files[host.GoalFile]; e != nil && plan.Says(now, plan.Lasting(j.Goals())...) {
		e.add(kernel.Content{File: now})
	}
}

// Promise writes down what is in force, since it is what a person has asked for and seen.
func (j *Journal) Promise() {
	j.Promised = nil
	for _, e := range j.Entries {
		if !e.IsFile() && !e.Theirs && e.Changed() {
			j.Promised = append(j.Promised, Promise{e.Target, e.Last()})
		}
	}
}

// HasFiles reports whether the journal knows of any file.
func (j *Journal) HasFiles() bool {
	return j != nil && slices.ContainsFunc(j.Entries, func(e Entry) bool { return e.IsFile() })
}

// Kept reports whether files keep its goal over a reboot.
func (j *Journal) Kept() bool {
	return j != nil && slices.ContainsFunc(j.Entries, func(e Entry) bool {
		return e.IsFile() && !e.Theirs && e.Changed()
	})
}

// Unit is the name of the timer that is armed; "" if there is none.
func (j *Journal) Unit() string {
	if j == nil || j.Pending == nil {
		return ""
	}
	return j.Pending.Unit
}

func (e *Entry) add(value kernel.Value) {
	again := func(set kernel.Value) bool { return kernel.Equal(set, value) }
	e.Set = append(slices.DeleteFunc(slices.Clone(e.Set), again), value)
}

// AddTemporary notes a value that is set only briefly, so that it is put back if the run is killed.
func (e *Entry) AddTemporary(value kernel.Value) {
	last := e.Last()
	e.add(value)
	e.add(last)
}

// Last is the value that was set last.
func (e Entry) Last() kernel.Value { return e.Set[len(e.Set)-1] }

// Differs says how a value is another than the one that was set.
func (e Entry) Differs(now kernel.Value) string {
	if e.IsFile() {
		return "is not as weir wrote it"
	}
	return fmt.Sprintf("is %s, and weir set %s", now, e.Last())
}

// Changed reports whether it is another than as found.
func (e Entry) Changed() bool { return !kernel.Equal(e.Last(), e.Was) }

// GoalFile is the file that keeps the goals.
var GoalFile = kernel.Target{Kind: kernel.File, Name: host.GoalFile}

// RootOf is the root qdisc of a device.
func RootOf(dev string) kernel.Target { return kernel.Target{Kind: kernel.Root, Name: dev} }

func renamed(t kernel.Target, names map[string]string) kernel.Target {
	if t.Dev() != "" {
		t.Name = cmp.Or(names[t.Name], t.Name)
	}
	return t
}

// OnlyForeign reports whether only values that down left to other programs remain in the journal. A goal for which
// nothing had to be changed may be up beside them.
func (j *Journal) OnlyForeign() bool {
	if j == nil || j.Pending != nil || len(j.Entries) == 0 ||
		slices.ContainsFunc(j.Entries, func(e Entry) bool { return !e.Theirs }) {
		return false
	}
	left := func(u Uplink) bool { return u.Down && j.sets(u.Goal.Dev) }
	asIs := func(u Uplink) bool { return !u.Down && !j.sets(u.Goal.Dev) }
	return !slices.ContainsFunc(j.Uplinks, left) || !slices.ContainsFunc(j.Uplinks, asIs)
}

// IsDown reports whether all goals are taken down, but for what was left to somebody else, or is not yet done.
func (j *Journal) IsDown() bool {
	return j.OnlyForeign() || j != nil && j.Pending != nil && j.Pending.Down
}

// Notes are what a person should know of the journal before anything else.
func (j *Journal) Notes() (notes []plan.Note) {
	for _, u := range j.uplinks() {
		if u.FileDev != "" {
			notes = append(notes, plan.Note{Subject: u.Goal.Dev, Kind: plan.Consequence,
				Text: "was called " + u.FileDev + " when weir set it up"})
		}
	}
	return notes
}

// Undone is the goal that a pending run was about, or the first of them.
func (j *Journal) Undone() plan.Goal {
	if goal, there := plan.GoalOf(j.Goals(), j.Pending.Dev); there {
		return goal
	}
	for _, goal := range j.Goals() {
		return goal
	}
	return plan.Goal{}
}

// BackTo is what a pending run's entry is to be again, if anything.
func (j *Journal) BackTo(e Entry) (kernel.Value, bool) {
	if j.Pending.Down {
		return e.Was, !e.Theirs
	}
	return e.Back, e.Back != nil
}

// Afterwards is the journal when a pending run has been put back; nil if there is nothing left to tell.
func (j *Journal) Afterwards(overwritten []plan.Note) *Journal {
	next, toGoal := *j, !j.Pending.Down && len(j.Pending.Back) > 0
	next.Uplinks, next.Entries, next.Pending, next.Reverted = slices.Clone(j.Uplinks), nil, nil, nil
	for _, e := range j.Entries {
		back, put := j.BackTo(e)
		if put {
			e.add(back)
		}
		// What was not put back to as found had been left to somebody else before.
		e.Back, e.Theirs = nil, !toGoal || e.Theirs
		if toGoal || !put {
			next.Entries = append(next.Entries, e)
		}
	}
	switch {
	case toGoal:
		for i := range next.Uplinks {
			u := &next.Uplinks[i]
			at := slices.IndexFunc(j.Pending.Back, func(s StoredGoal) bool { return s.Dev == u.Goal.Dev })
			if u.Down = at < 0; !u.Down {
				to := j.Pending.Back[at]
				u.Goal, u.unreadable, u.text = to.Goal, to.unreadable, to.text
			}
		}
		next.forget()
	case !j.Pending.Down:
		next.Uplinks = slices.DeleteFunc(next.Uplinks, func(u Uplink) bool { return !next.sets(u.Goal.Dev) })
		for i := range next.Uplinks {
			next.Uplinks[i].Down = true
		}
	case len(next.Entries) == 0:
		return nil
	default:
		left := slices.DeleteFunc(slices.Clone(next.Uplinks), func(u Uplink) bool { return !next.sets(u.Goal.Dev) })
		if len(left) > 0 { // else it is the host's settings, and which goals asked for them is still to be known
			next.Uplinks = left
		}
	}
	if !j.Pending.Down {
		next.Reverted = &Reverted{j.Undone(), overwritten}
	}
	return &next
}
