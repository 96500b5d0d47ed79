// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"fmt"
	"slices"

	"weir/internal/host"
	"weir/internal/qdisc"
)

// Ingress is the queueing disciplines that all that arrives at a device passes first.
const Ingress Kind = "ingress"

func ingress() Object {
	return Object{
		Kind: Ingress, Title: "ingress", Optional: true, Foreign: true,
		Parse: func(text string) (Value, error) {
			if arriving, err := qdisc.ParseArriving(text); err == nil {
				return Incoming{Arriving: arriving}, nil
			}
			return Incoming{Other: text}, nil
		},
		Now: func(f host.Facts, dev string) (Value, bool) {
			_, there := f.Link(dev)
			return IncomingAt(f, dev), there
		},
		Owner: func(host.Facts, string) string { return "" },
		// No tunnel can be unpacked that is not there.
		Possible: func(f host.Facts, v Value) Value {
			incoming, ok := v.(Incoming)
			if !ok || incoming.Stack == nil {
				return v
			}
			gone := func(name string) bool { _, ok := f.Link(name); return !ok }
			there, outer := slices.DeleteFunc(slices.Clone(incoming.Tunnels), gone), incoming.Outer
			if len(there) == 0 {
				outer = nil
			}
			return Incoming{Arriving: qdisc.NewArriving(incoming.Stack, there, outer)}
		},
		// The device that it leads through outlives the one that it is for.
		Outlives: func(v Value) bool {
			now, ok := v.(Incoming)
			return ok && now.Other != NoIngress
		},
		// Traffic may pass a stack of ours whatever tunnels are led there by now: they come and go.
		Ours: func(now Value, set []Value) bool {
			is, _ := now.(Incoming)
			return is.Other == HalfIngress || is.Stack != nil && slices.ContainsFunc(set, func(v Value) bool {
				was, ok := v.(Incoming)
				return ok && was.Stack.Equal(is.Stack)
			})
		},
		Valid:  func(_ string, was Value) bool { return was.Meets(NoIncoming) },
		Before: func(Value) Value { return NoIncoming }, // all of it is ours, or led to a device that is gone
		Undo:   func(f *host.Facts, at Place) { withoutIncoming(f, at.Name) },
		// Of half of it nothing is to stay, at no tunnel that was ever unpacked.
		Put: func(m Machine, at Place, v Value) error {
			switch want, _ := v.(Incoming); {
			case want.Stack != nil:
				return m.SetIngress(at.Link, want.Arriving)
			case want.Other == NoIngress, want.Other == HalfIngress:
				return m.SetIngress(at.Link, qdisc.Arriving{Tunnels: tunnels(at.Set)})
			}
			return fmt.Errorf("%q is no queue that can be set", v)
		},
	}
}

// NoIncoming is nothing at the ingress.
var NoIncoming = Incoming{Other: NoIngress}

// tunnels are those that any of these values unpacks.
func tunnels(set []Value) (all []string) {
	for _, v := range set {
		if incoming, ok := v.(Incoming); ok {
			all = append(all, incoming.Tunnels...)
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// What Weir has before a device for incoming traffic, when that is no queue.
const (
	NoIngress   = "none"
	HalfIngress = "half of it" // a run was cut short, or somebody has taken the rest away
)

// Incoming is what all that arrives at a device passes first.
type Incoming struct {
	qdisc.Arriving
	Other string // what it is, where it is no Arriving: NoIngress, HalfIngress, or what somebody else has made of it
}

func (i Incoming) String() string {
	if i.Stack == nil {
		return i.Other
	}
	return i.Arriving.String()
}

// Meets compares what is configured, as qdisc.Arriving does.
func (i Incoming) Meets(want Value) bool {
	w, ok := want.(Incoming)
	return ok && i.Other == w.Other && (i.Stack == nil && w.Stack == nil || i.Arriving.Meets(w.Arriving))
}

// IncomingAt is what Weir lets all that arrives at a device pass first. Who else has something at its ingress is not
// looked at.
func IncomingAt(f host.Facts, dev string) Incoming {
	link, _ := f.Link(dev)
	var ifb host.Link
	names := IFBs(f, dev)
	if len(names) > 0 {
		ifb, _ = f.Link(names[0])
	}
	switch there := ifb.Kind == "ifb"; {
	case there && ifb.Up && link.Redirect == ifb.Name:
		now := QueueOf(ifb.Tree)
		if now.Stack == nil {
			return Incoming{Other: now.Other}
		}
		var tunnels []string
		for _, l := range f.Links {
			if l.Name != dev && l.Redirect == ifb.Name {
				tunnels = append(tunnels, l.Name)
			}
		}
		return Incoming{Arriving: qdisc.NewArriving(now.Stack, tunnels, qdisc.ParseOuters(link.Passes))}
	case there, link.Redirect == host.Gone, len(link.Passes) > 0:
		return Incoming{Other: HalfIngress}
	}
	orphan := func(l host.Link) bool { return l.Redirect == host.Gone && l.Tunnel() != "" }
	if slices.ContainsFunc(f.Links, orphan) {
		return Incoming{Other: HalfIngress}
	}
	return Incoming{Other: NoIngress}
}

// ShapedByOthers says what somebody else has made that shapes what arrives at a device: "cake on ifb4eth0, to 20mbit".
// It is "" where nothing does.
func ShapedByOthers(f host.Facts, dev string) string {
	link, _ := f.Link(dev)
	to, there := f.Link(link.Redirect)
	root, has := to.Tree.Root()
	rate := to.Tree.Rate()
	if !there || !has || rate == 0 || qdisc.IsIFB(to.Name) {
		return ""
	}
	return fmt.Sprintf("%s on %s, to %s", root.Kind, to.Name, rate)
}

// IFBs names the devices of Weir's making that are there for a device: the one that it leads to comes first, and then
// those that nothing leads to but tunnels.
func IFBs(f host.Facts, dev string) (names []string) {
	at, _ := f.Link(dev)
	for _, l := range f.Links {
		leads := func(from host.Link) bool { return from.Redirect == l.Name }
		others := func(from host.Link) bool {
			return leads(from) && from.Name != dev && from.Tunnel() == ""
		}
		switch {
		case !qdisc.IsIFB(l.Name):
		case leads(at):
			names = slices.Insert(names, 0, l.Name)
		case !slices.ContainsFunc(f.Links, others):
			names = append(names, l.Name)
		}
	}
	return names
}

// withoutIncoming takes out what is led through a device of our making: it is ours whoever has changed it.
func withoutIncoming(f *host.Facts, dev string) {
	ifbs := IFBs(*f, dev)
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
