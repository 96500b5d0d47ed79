// SPDX-License-Identifier: Apache-2.0

package journal

import (
	"maps"
	"slices"

	"weir/internal/host"
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
func (j *Journal) Value(f host.Facts, t plan.Target) (plan.Value, bool) {
	u := j.Uplink(t.Dev())
	link, ok := f.Link(t.Dev())
	there := ok && (u == nil || link.Index == u.Link)
	switch t.Kind {
	case plan.Root:
		return plan.QueueOf(link.Tree), there
	case plan.Ingress:
		now := plan.IncomingAt(f, t.Name)
		// The device that it leads through outlives the one that it is for.
		return now, there || now.Other != plan.NoIngress
	case plan.File:
		return plan.Content{File: f.Files[t.Name]}, true
	}
	s, ok := f.Sysctls[t.Name]
	return plan.Setting(s.Value), ok
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
	if u := j.Uplink(e.Name); e.Kind == plan.Root && u != nil {
		if link, _ := f.Link(e.Name); u.asFound(link.Tree) {
			return AsFound
		}
	} else if equal(now, e.Was) {
		return AsFound
	}
	if is, ok := now.(plan.Incoming); ok && (is.Other == plan.HalfIngress || e.stacked(is)) {
		return Ours
	}
	u := j.Uplink(e.Dev())
	asSet := func(set plan.Value) bool { return now.Meets(set) || u != nil && u.Goal.Follows(now, set) }
	if slices.ContainsFunc(e.Set, asSet) {
		return Ours
	}
	return Foreign
}

// stacked reports whether incoming traffic passes a stack of ours, whatever tunnels are led there by now: they come and
// go.
func (e Entry) stacked(now plan.Incoming) bool {
	return now.Stack != nil && slices.ContainsFunc(e.Set, func(set plan.Value) bool {
		was, ok := set.(plan.Incoming)
		return ok && was.Stack.Equal(now.Stack)
	})
}

// Tunnels are those that were ever unpacked for a device.
func (j *Journal) Tunnels(dev string) (all []string) {
	if e := j.Entry(plan.Target{Kind: plan.Ingress, Name: dev}); e != nil {
		for _, set := range e.Set {
			if incoming, ok := set.(plan.Incoming); ok {
				all = append(all, incoming.Tunnels...)
			}
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// Untouched reports whether a queue is as it was set last, or found.
func (j *Journal) Untouched(f host.Facts, t plan.Target) bool {
	if t.Dev() == "" {
		return false
	}
	now, ok := j.Value(f, t)
	e := j.Entry(t)
	goal, _ := plan.GoalOf(j.Goals(), t.Dev())
	return ok && (e == nil && now.Meets(NoIncoming) || e != nil && (now.Meets(e.Last()) || goal.Follows(now, e.Last())))
}

// Before takes out of the facts what we put in.
func (j *Journal) Before(f host.Facts) host.Facts {
	if j == nil {
		return f
	}
	f.Sysctls, f.Links, f.Files = maps.Clone(f.Sysctls), slices.Clone(f.Links), maps.Clone(f.Files)
	for _, e := range j.Entries {
		if s := j.State(f, e); s != Ours && (e.Kind != plan.Ingress || s != Foreign) {
			continue
		}
		switch was := e.Was.(type) {
		case plan.Queue:
			i := slices.IndexFunc(f.Links, func(l host.Link) bool { return l.Name == e.Name })
			ingress := slices.DeleteFunc(slices.Clone(f.Links[i].Tree.Qdiscs),
				func(q qdisc.Qdisc) bool { return !atIngress(q) })
			f.Links[i].Tree = j.Uplink(e.Name).Tree
			f.Links[i].Tree.Qdiscs = append(slices.DeleteFunc(slices.Clone(f.Links[i].Tree.Qdiscs), atIngress),
				ingress...)
		case plan.Incoming:
			withoutIncoming(&f, e.Name)
		case plan.Content:
			f.Files[e.Name] = was.File
		case plan.Setting:
			s := f.Sysctls[e.Name]
			s.Value = string(was)
			f.Sysctls[e.Name] = s
		}
	}
	return f
}

// withoutIncoming takes out what is led through a device of our making: it is ours whoever has changed it.
func withoutIncoming(f *host.Facts, dev string) {
	ifbs := plan.IFBs(*f, dev)
	f.Links = slices.DeleteFunc(f.Links, func(l host.Link) bool { return slices.Contains(ifbs, l.Name) })
	plain := func(q qdisc.Qdisc) bool { return atIngress(q) && q.Kind == "ingress" }
	for i, l := range f.Links {
		if ours := slices.Contains(ifbs, l.Redirect); ours ||
			l.Name == dev && (l.Redirect == "" || l.Redirect == host.Gone) {
			f.Links[i].Redirect, f.Links[i].Passes = "", nil
			f.Links[i].Tree.Qdiscs = slices.DeleteFunc(slices.Clone(l.Tree.Qdiscs), plain)
		}
	}
}

func atIngress(q qdisc.Qdisc) bool { return q.Parent == qdisc.Ingress }

// Holds reports whether a setting is as weir has set it.
func (j *Journal) Holds(f host.Facts, t plan.Target) bool {
	e := j.Entry(t)
	return e != nil && j.State(f, *e) == Ours
}

// Owner is plan.Owner, where it is not weir.
func (j *Journal) Owner(f host.Facts, t plan.Target) string {
	if j.Holds(f, t) {
		return "weir"
	}
	return plan.Owner(f, t)
}

// Reached reports whether an entry is what it is to be, or can no longer be that.
func (j *Journal) Reached(f host.Facts, e Entry, want plan.Value) bool {
	now, ok := j.Value(f, e.Target)
	if !ok {
		return true
	}
	if equal(want, e.Was) {
		return j.State(f, e) == AsFound
	}
	return now.Meets(want)
}

// Remade reports whether a root qdisc that weir has put back is another than the kernel had made by itself.
func (j *Journal) Remade(f host.Facts, c plan.Change) bool {
	link, there := f.Link(c.Dev())
	return there && c.Kind == plan.Root && equal(c.New, j.Entry(c.Target).Was) && j.Uplink(c.Name).remade(link.Tree)
}
