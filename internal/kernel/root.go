// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"fmt"
	"slices"
	"strings"

	"weir/internal/dualpi2"
	"weir/internal/host"
	"weir/internal/qdisc"
	"weir/internal/text"
)

// Root is the queueing disciplines at the root of a device.
const Root Kind = "dev"

func root() Object {
	return Object{
		Kind: Root, Title: "root qdisc", Whole: true,
		Parse: func(text string) (Value, error) {
			if stack, err := qdisc.ParseStack(text); err == nil {
				return Queue{Stack: stack}, nil
			}
			return Queue{Other: text}, nil
		},
		Now: func(f host.Facts, dev string) (Value, bool) {
			link, there := f.Link(dev)
			return QueueOf(link.Tree), there
		},
		Owner: queueOwner,
		Hidden: func(f host.Facts, dev string) string {
			link, _ := f.Link(dev)
			if root, _ := link.Tree.Root(); strings.HasPrefix(root.Kind, dualpi2.Prefix) {
				return "a BPF queue"
			}
			return ""
		},
		Valid: func(string, Value) bool { return true },
		Undo: func(f *host.Facts, at Place) {
			i := slices.IndexFunc(f.Links, func(l host.Link) bool { return l.Name == at.Name })
			now, _ := f.Links[i].Tree.Root()
			ours := func(q qdisc.Qdisc) bool { // on kernels without TCX it comes with the shaper, and goes with it
				return q.Kind == "clsact" && now.Kind == qdisc.BPFShaping &&
					!slices.ContainsFunc(at.Tree.Qdiscs, atIngress)
			}
			ingress := slices.DeleteFunc(slices.Clone(f.Links[i].Tree.Qdiscs),
				func(q qdisc.Qdisc) bool { return !atIngress(q) || ours(q) })
			f.Links[i].Tree = at.Tree
			f.Links[i].Tree.Qdiscs = append(slices.DeleteFunc(slices.Clone(at.Tree.Qdiscs), atIngress), ingress...)
		},
		// What was there before is put back as it was read, which may be more than a plan can write.
		Put: func(m Machine, at Place, want Value) error {
			queue, _ := want.(Queue)
			switch {
			case want.Meets(at.Was):
				return m.RestoreTree(at.Link, at.Tree)
			case queue.Stack == nil:
				return fmt.Errorf("%q is no queue that can be set", want)
			}
			return m.SetTree(at.Link, queue.Stack)
		},
		Leaves: func(v Value) bool {
			q, ok := v.(Queue)
			return ok && slices.ContainsFunc(qdisc.BPFKinds(), q.Stack.Has)
		},
		Clean:    func(m Machine, at Place, gsoSegs int) error { return m.CleanQueue(at.Link, at.Tree, gsoSegs) },
		Counters: rootCounters,
	}
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
		return Queue{Other: root.Kind + " with " + text.Counted(len(t.Classes), "class")}
	}
	return Queue{Other: root.Kind}
}

func queueOwner(f host.Facts, dev string) string {
	link, _ := f.Link(dev)
	root, ok := link.Tree.Root()
	switch {
	case !ok:
		return ""
	case root.Handle == 0:
		return "the kernel made it by itself"
	case f.Deep != nil:
		for _, w := range slices.Backward(f.Deep.Writers) {
			if w.Qdisc == root.Kind && w.By != "modules-load" && w.MayMatch(link) {
				return fmt.Sprintf("set by %s, %s", w.By, w.Where())
			}
		}
	}
	if strings.HasPrefix(root.Kind, dualpi2.Prefix) {
		return "weir dualpi2"
	}
	return "somebody set it, by hand or by a program"
}
