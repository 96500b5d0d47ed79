// SPDX-License-Identifier: Apache-2.0

package journal

import (
	"maps"
	"slices"

	"weir/internal/host"
	"weir/internal/kernel"
	"weir/internal/plan"
	"weir/internal/qdisc"
)

// asFound reports whether a tree is the one as found. A root that the kernel had made by itself may be there in another
// guise: none while the link is down, and the kernel makes it again when that comes up; or made for it, where the
// kernel would make another kind now.
func (u *Uplink) asFound(now qdisc.Tree) bool {
	was, okWas := u.Tree.Root()
	is, okIs := now.Root()
	if byKernel := (!okWas || was.Handle == 0) && (!okIs || is.Handle == 0); byKernel && okWas != okIs {
		return true
	}
	return now.Same(u.Tree) || u.remade(now)
}

func (u *Uplink) remade(now qdisc.Tree) bool {
	root, ok := u.Tree.Root()
	if !ok || root.Handle != 0 || now.Same(u.Tree) {
		return false
	}
	was, okWas := u.Tree.Stack()
	is, okIs := now.Stack()
	return okWas && okIs && was.Equal(is)
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

// Value is what a target has now; false if it is not there, or is no longer the one that j is about.
func (j *Journal) Value(f host.Facts, t kernel.Target) (kernel.Value, bool) {
	o := t.Object()
	now, there := o.Now(f, t.Name)
	if u := j.Uplink(t.Dev()); u != nil {
		link, _ := f.Link(t.Dev())
		there = there && link.Index == u.Link
	}
	return now, there || o.Outlives != nil && o.Outlives(now)
}

// State is how a setting stands to the journal.
type State int

const (
	Gone    State = iota // with its device
	AsFound              // as before the first change
	Ours                 // as we set it
	Foreign              // as somebody else set it since
)

// State compares what an entry is about with what it is now.
func (j *Journal) State(f host.Facts, e Entry) State {
	now, ok := j.Value(f, e.Target)
	if !ok {
		return Gone
	}
	o, u := e.Object(), j.Uplink(e.Dev())
	if o.Whole && u != nil {
		if link, _ := f.Link(e.Name); u.asFound(link.Tree) {
			return AsFound
		}
	} else if kernel.Equal(now, e.Was) {
		return AsFound
	}
	asSet := func(set kernel.Value) bool { return now.Meets(set) || u != nil && u.Goal.Follows(now, set) }
	if o.Ours != nil && o.Ours(now, e.Set) || slices.ContainsFunc(e.Set, asSet) {
		return Ours
	}
	return Foreign
}

// Place is where an entry is put.
func (j *Journal) Place(e Entry) kernel.Place {
	at := kernel.Place{Name: e.Name, Was: e.Was, WasTime: e.WasTime, Set: e.Set}
	if u := j.Uplink(e.Dev()); u != nil {
		at.Link, at.Tree = u.Link, u.Tree
	}
	return at
}

// Untouched reports whether a queue is as it was set last, or found.
func (j *Journal) Untouched(f host.Facts, t kernel.Target) bool {
	if t.Dev() == "" {
		return false
	}
	now, ok := j.Value(f, t)
	e := j.Entry(t)
	goal, _ := plan.GoalOf(j.Goals(), t.Dev())
	if e == nil {
		return ok && now.Meets(kernel.NoIncoming)
	}
	return ok && (now.Meets(e.Last()) || goal.Follows(now, e.Last()))
}

// Before takes out of the facts what we put in.
func (j *Journal) Before(f host.Facts) host.Facts {
	if j == nil {
		return f
	}
	f.Sysctls, f.Links, f.Files = maps.Clone(f.Sysctls), slices.Clone(f.Links), maps.Clone(f.Files)
	for _, e := range j.Entries {
		// What was once set can be set: a reader in a unit of its own may have /proc/sys read-only, as the exporter.
		if s, there := f.Sysctls[e.Name]; there && e.Kind == kernel.Sysctl {
			s.ReadOnly = false
			f.Sysctls[e.Name] = s
		}
		if s, o := j.State(f, e), e.Object(); s == Ours || s == Foreign && o.Foreign {
			o.Undo(&f, j.Place(e))
		}
	}
	return f
}

// Holds reports whether a setting is as weir has set it.
func (j *Journal) Holds(f host.Facts, t kernel.Target) bool {
	e := j.Entry(t)
	return e != nil && j.State(f, *e) == Ours
}

// Owner says to whom a setting's present value is due, as far as is known.
func (j *Journal) Owner(f host.Facts, t kernel.Target) string {
	if j.Holds(f, t) {
		return "weir"
	}
	return t.Object().Owner(f, t.Name)
}

// Reached reports whether an entry is what it is to be, or can no longer be that.
func (j *Journal) Reached(f host.Facts, e Entry, want kernel.Value) bool {
	now, ok := j.Value(f, e.Target)
	if !ok {
		return true
	}
	if kernel.Equal(want, e.Was) {
		return j.State(f, e) == AsFound
	}
	return now.Meets(want)
}

// Remade reports whether a root qdisc that weir has put back is another than the kernel had made by itself.
func (j *Journal) Remade(f host.Facts, c plan.Change) bool {
	link, there := f.Link(c.Dev())
	return there && c.Object().Whole && kernel.Equal(c.New, j.Entry(c.Target).Was) && j.Uplink(c.Name).remade(link.Tree)
}
