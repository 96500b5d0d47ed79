// SPDX-License-Identifier: Apache-2.0

package change

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

// value is what a target has now; false if it is not there, or is no longer the one that j is about.
func (j *journal) value(f host.Facts, t plan.Target) (plan.Value, bool) {
	u := j.uplink(t.Dev())
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
	if u := j.uplink(e.Name); e.Kind == plan.Root && u != nil {
		if link, _ := f.Link(e.Name); u.asFound(link.Tree) {
			return asFound
		}
	} else if equal(now, e.Was) {
		return asFound
	}
	if is, ok := now.(plan.Incoming); ok && (is.Other == plan.HalfIngress || e.stacked(is)) {
		return ours
	}
	u := j.uplink(e.Dev())
	asSet := func(set plan.Value) bool { return now.Meets(set) || u != nil && u.Goal.Follows(now, set) }
	if slices.ContainsFunc(e.Set, asSet) {
		return ours
	}
	return foreign
}

// stacked reports whether incoming traffic passes a stack of ours, whatever tunnels are led there by now: they come and
// go.
func (e entry) stacked(now plan.Incoming) bool {
	return now.Stack != nil && slices.ContainsFunc(e.Set, func(set plan.Value) bool {
		was, ok := set.(plan.Incoming)
		return ok && was.Stack.Equal(now.Stack)
	})
}

// tunnels are those that were ever unpacked for a device.
func (j *journal) tunnels(dev string) (all []string) {
	if e := j.entry(plan.Target{Kind: plan.Ingress, Name: dev}); e != nil {
		for _, set := range e.Set {
			if incoming, ok := set.(plan.Incoming); ok {
				all = append(all, incoming.Tunnels...)
			}
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// present is what can be set of a value: no tunnel can be unpacked that is not there.
func present(f host.Facts, value plan.Value) plan.Value {
	incoming, ok := value.(plan.Incoming)
	if !ok || incoming.Stack == nil {
		return value
	}
	gone := func(name string) bool { _, ok := f.Link(name); return !ok }
	there, outer := slices.DeleteFunc(slices.Clone(incoming.Tunnels), gone), incoming.Outer
	if len(there) == 0 {
		outer = nil
	}
	return plan.Incoming{Arriving: qdisc.NewArriving(incoming.Stack, there, outer)}
}

// needsRoot reports whether only root can compute this plan: an earlier run as root found a tunnel that cannot be
// unpacked, or that is a virtual machine's, and nobody else can see that.
func (j *journal) needsRoot(wanted []plan.Change, p plan.Plan, f host.Facts) bool {
	if j == nil || f.Admin || !alike(p.All(), j.goals()) {
		return false
	}
	return slices.ContainsFunc(wanted, func(c plan.Change) bool {
		incoming, ok := c.New.(plan.Incoming)
		if !ok {
			return false
		}
		var last []string
		if e := j.entry(c.Target); e != nil {
			set, _ := e.last().(plan.Incoming)
			last = set.Tunnels
		}
		known := func(name string) bool { return slices.Contains(last, name) }
		more := slices.DeleteFunc(slices.Clone(incoming.Tunnels), known)
		plain := func(name string) bool { l, _ := f.Link(name); return l.MAC == "" } // and no virtual machine's
		return len(more) > 0 && (len(last) == 0 || !slices.ContainsFunc(more, plain))
	})
}

// untouched reports whether a queue is as it was set last, or found.
func (j *journal) untouched(f host.Facts, t plan.Target) bool {
	if t.Dev() == "" {
		return false
	}
	now, ok := j.value(f, t)
	e := j.entry(t)
	goal, _ := about(j.goals(), t.Dev())
	return ok && (e == nil && now.Meets(noIncoming) || e != nil && (now.Meets(e.last()) || goal.Follows(now, e.last())))
}

// before takes out of the facts what we put in.
func (j *journal) before(f host.Facts) host.Facts {
	if j == nil {
		return f
	}
	f.Sysctls, f.Links, f.Files = maps.Clone(f.Sysctls), slices.Clone(f.Links), maps.Clone(f.Files)
	for _, e := range j.Entries {
		if s := j.state(f, e); s != ours && (e.Kind != plan.Ingress || s != foreign) {
			continue
		}
		switch was := e.Was.(type) {
		case plan.Queue:
			i := slices.IndexFunc(f.Links, func(l host.Link) bool { return l.Name == e.Name })
			ingress := slices.DeleteFunc(slices.Clone(f.Links[i].Tree.Qdiscs),
				func(q qdisc.Qdisc) bool { return !atIngress(q) })
			f.Links[i].Tree = j.uplink(e.Name).Tree
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
