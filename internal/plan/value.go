// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"encoding/json"
	"fmt"
	"slices"

	"weir/internal/host"
	"weir/internal/qdisc"
)

// TargetKind is what a target is.
type TargetKind string

// The kinds of targets, as JSON calls them.
const (
	Root    TargetKind = "dev"     // the queueing disciplines at the root of a device
	Ingress TargetKind = "ingress" // those that all that arrives at a device passes first
	Sysctl  TargetKind = "sysctl"  // by its name with dots
	File    TargetKind = "file"    // by its path
)

// Target is what a change sets.
type Target struct {
	Kind TargetKind
	Name string // of the device, the sysctl or the file
}

func (t Target) String() string {
	switch t.Kind {
	case Root:
		return t.Name + "  root qdisc"
	case Ingress:
		return t.Name + "  ingress"
	}
	return t.Name
}

// Dev is the device that a target is of; "" where it is the host's.
func (t Target) Dev() string {
	if t.Kind == Root || t.Kind == Ingress {
		return t.Name
	}
	return ""
}

// Value is what a target has, or is to have: a Queue, an Incoming, a Setting or a Content. Nil is one that is not
// known.
type Value interface {
	// String writes it as tc, sysctl or host.File does.
	String() string
	// Meets reports whether it is what is wanted.
	Meets(want Value) bool
}

// Queue is what a device has at its root.
type Queue struct {
	Stack qdisc.Stack
	Other string // what it is, where it is no Stack: "none", or "htb with 3 classes"
}

func (q Queue) String() string {
	if q.Stack == nil {
		return q.Other
	}
	return q.Stack.String()
}

// Meets compares what is configured: one configuration may be written in several ways.
func (q Queue) Meets(want Value) bool {
	w, ok := want.(Queue)
	return ok && q.Other == w.Other && q.Stack.Equal(w.Stack)
}

// QueueOf is what a tree is. One that a person has built with classes of its own is named by its root.
func QueueOf(t qdisc.Tree) Queue {
	if stack, ok := t.Stack(); ok {
		return Queue{Stack: stack}
	}
	root, ok := t.Root()
	switch {
	case !ok:
		return Queue{Other: "none"}
	case len(t.Qdiscs) > 1 || len(t.Classes) > 0:
		return Queue{Other: fmt.Sprintf("%s with %d classes", root.Kind, len(t.Classes))}
	}
	return Queue{Other: root.Kind}
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
		return Incoming{Arriving: qdisc.NewArriving(now.Stack, tunnels, outer(link.Passes))}
	case there, link.Redirect == host.Gone, len(link.Passes) > 0:
		return Incoming{Other: HalfIngress}
	}
	orphan := func(l host.Link) bool { return l.Redirect == host.Gone && possibleTunnelKind(l) != "" }
	if slices.ContainsFunc(f.Links, orphan) {
		return Incoming{Other: HalfIngress}
	}
	return Incoming{Other: NoIngress}
}

// IFBs names the devices of Weir's making that are there for a device: the one that it leads to comes first, and then
// those that nothing leads to but tunnels.
func IFBs(f host.Facts, dev string) (names []string) {
	at, _ := f.Link(dev)
	for _, l := range f.Links {
		leads := func(from host.Link) bool { return from.Redirect == l.Name }
		others := func(from host.Link) bool {
			return leads(from) && from.Name != dev && possibleTunnelKind(from) == ""
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

// Setting is a sysctl's value, as the kernel writes it.
type Setting string

func (s Setting) String() string { return string(s) }

// Meets compares the texts.
func (s Setting) Meets(want Value) bool { return want == Value(s) }

// Content is what a file is.
type Content struct{ host.File }

// Meets compares all of it.
func (c Content) Meets(want Value) bool { return want == Value(c) }

// Parse reads what a Value of the kind has written. Only a file can be past reading: of a queue that this version has
// no words for the text is kept.
func (k TargetKind) Parse(text string) (Value, error) {
	switch k {
	case Root:
		if stack, err := qdisc.ParseStack(text); err == nil {
			return Queue{Stack: stack}, nil
		}
		return Queue{Other: text}, nil
	case Ingress:
		if arriving, err := qdisc.ParseArriving(text); err == nil {
			return Incoming{Arriving: arriving}, nil
		}
		return Incoming{Other: text}, nil
	case File:
		file, err := host.ParseFile(text)
		return Content{file}, err
	}
	return Setting(text), nil
}

// TargetText is a target in JSON: one member, which its kind names.
type TargetText struct {
	Dev     string `json:"dev,omitempty"`
	Ingress string `json:"ingress,omitempty"` // the device
	Sysctl  string `json:"sysctl,omitempty"`
	File    string `json:"file,omitempty"`
}

// Text is a target as JSON has it.
func (t Target) Text() (text TargetText) {
	switch t.Kind {
	case Root:
		text.Dev = t.Name
	case Ingress:
		text.Ingress = t.Name
	case Sysctl:
		text.Sysctl = t.Name
	case File:
		text.File = t.Name
	}
	return text
}

// Target is the one that the text is of; the zero Target unless it has exactly one member.
func (t TargetText) Target() Target {
	for _, target := range []Target{{Root, t.Dev}, {Ingress, t.Ingress}, {Sysctl, t.Sysctl}, {File, t.File}} {
		if target.Name != "" && target.Text() == t {
			return target
		}
	}
	return Target{}
}

// ChangeText is a change in JSON.
type ChangeText struct {
	TargetText
	Old      string `json:"old"`
	New      string `json:"new"`
	Owner    string `json:"owner,omitempty"`
	Reason   string `json:"reason"`
	Evidence string `json:"evidence,omitempty"`
}

// Text is a change as JSON has it.
func (c Change) Text() ChangeText {
	return ChangeText{c.Target.Text(), write(c.Old), write(c.New), c.Owner, c.Reason, c.Evidence}
}

// MarshalJSON writes the change as text: what a person would type.
func (c Change) MarshalJSON() ([]byte, error) { return json.Marshal(c.Text()) }

func write(v Value) string {
	if v == nil {
		return ""
	}
	return v.String()
}
