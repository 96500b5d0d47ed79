// SPDX-License-Identifier: Apache-2.0

package qdisc

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/mdlayher/netlink"

	"weir/internal/dualpi2"
)

// Restore puts back exactly what was read: the same handles and the options to the byte. A root that the kernel made by
// itself comes back by deleting what is there; if it makes another one now, since net.core.default_qdisc has changed,
// the one that was read is installed, under a handle of its own. What the kernel does not report cannot be restored:
// red's table, netem's delay distribution, the programs of BPF filters.
func (c *Conn) Restore(ifindex int, t Tree) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return errors.Join(c.restore(ifindex, t), c.clean(ifindex))
}

func (c *Conn) restore(ifindex int, t Tree) error {
	now, err := c.tree(ifindex)
	if err != nil {
		return err
	}
	if now.Same(t) {
		return nil
	}
	// what cannot be made again is known before anything is changed
	recorded, t := t.divide()
	top, err := recorded.shaper()
	if err != nil {
		return err
	}
	root, ok := t.Root()
	requests, err := t.replay(ifindex, root, map[Handle]bool{})
	if err != nil {
		return err
	}
	if err := c.setShaper(ifindex, top); err != nil {
		return err
	}
	if _, now = now.divide(); now.Same(t) {
		return nil
	}
	if !ok || root.Handle == 0 {
		if err := c.deleteQdisc(ifindex, Root); err != nil || !ok {
			return err
		}
		if now, err = c.tree(ifindex); err != nil {
			return err
		}
		_, now = now.divide()
		// While the link is down there is none: the kernel makes it when the link comes up.
		_, isMade := now.Root()
		made, _ := now.Stack()
		if want, ok := t.Stack(); ok && isMade && !made.Equal(want) {
			return c.build(ifindex, want, now.freshHandles())
		}
	} else if t.reuses(now) {
		// A handle that is in use would be changed, not made anew. A queue of the kernel's simplest kind steps in for a
		// moment.
		requests, err := chain(ifindex, Root, Stack{fifoSpec{}}, func() func() Handle {
			both := Tree{Qdiscs: slices.Concat(now.Qdiscs, t.Qdiscs)}
			return both.freshHandles()
		}())
		if err != nil {
			return err
		}
		if err := c.send(requests); err != nil {
			return err
		}
	}
	return c.send(requests)
}

// Lost is why a tree could not be put back.
type Lost struct {
	What   string
	object string // tc's word for what is in the way
	remove string // what follows the device where tc takes it away
}

func (l *Lost) Error() string { return l.What }

// Remove is tc's line that takes what is in the way away from a device.
func (l *Lost) Remove(dev string) string {
	return fmt.Sprintf("tc %s del dev %s %s", l.object, dev, l.remove)
}

// Restorable returns why a tree could not be put back once something else is in its place: nil if tests have shown that
// such trees come back, on stock kernels. Where somebody can do something about it, the error is a *Lost.
func (t Tree) Restorable() error {
	recorded, t := t.divide()
	if _, err := recorded.shaper(); err != nil {
		return err
	}
	root, _ := t.Root()
	if _, err := t.replay(0, root, map[Handle]bool{}); err != nil {
		return err
	}
	for _, q := range t.Qdiscs {
		if q.Parent == Ingress || q.Handle == 0 { // not touched; made by the kernel
			continue
		}
		if err := q.restorable(); err != nil {
			return q.lost(err)
		}
		if q.Stats.Estimated {
			return q.lost(errEstimated)
		}
		for _, class := range t.Classes {
			if class.Stats.Estimated && class.Handle.major() == q.Handle.major() {
				lost := q.lost(nil)
				lost.What = because("class "+class.Kind+" "+class.Handle.String(), errEstimated)
				return lost
			}
		}
	}
	return t.filtersRestorable()
}

// restorable returns why one discipline would not come back as it was.
func (q Qdisc) restorable() error {
	switch {
	case !comesBack(q.Kind):
		return errors.New("no test has shown that this kind comes back")
	case q.Kind == "netem":
		return netemRestorable(q.Options)
	}
	return nil
}

// comesBack reports whether live tests have shown that a kind comes back as it was, with its classes.
func comesBack(kind string) bool {
	k, known := row(kind)
	return known && !k.neverBack
}

// errEstimated is why what has a rate estimator would not come back.
var errEstimated = errors.New("has a rate estimator, whose times the kernel does not report")

func (q Qdisc) lost(why error) *Lost {
	remove := "root"
	if q.Parent != Root {
		remove = "parent " + q.Parent.String()
	}
	return &Lost{What: because("qdisc "+q.Kind+" "+q.Handle.String(), why), object: "qdisc", remove: remove}
}

// because says why something is lost. The name of what has a handle ends with a colon already.
func because(what string, why error) string {
	return fmt.Sprintf("%s: %v", strings.TrimSuffix(what, ":"), why)
}

// reuses reports whether any handle of t is in use in the other tree.
func (t Tree) reuses(other Tree) bool {
	return slices.ContainsFunc(t.Qdiscs, func(q Qdisc) bool {
		return q.Handle != 0 && q.Parent != Ingress &&
			slices.ContainsFunc(other.Qdiscs, func(o Qdisc) bool { return o.Handle == q.Handle })
	})
}

// replay makes q and all that is below it, parents first; seen guards against a tree that is none.
func (t Tree) replay(ifindex int, q Qdisc, seen map[Handle]bool) ([]request, error) {
	if seen[q.Handle] {
		return nil, fmt.Errorf("two queueing disciplines have the handle %s", q.Handle)
	}
	seen[q.Handle] = true
	if strings.HasPrefix(q.Kind, dualpi2.Prefix) {
		return nil, fmt.Errorf(
			"%s is a BPF qdisc that could not be read: that takes CAP_SYS_ADMIN, and the version of weir that made it",
			q.Kind)
	}
	var requests []request
	if q.Handle != 0 {
		list := attributes(q.Kind, replayable(q.Kind, q.Options))
		if q.SizeTable != nil {
			stab, err := sizeTable(q)
			if err != nil {
				return nil, err
			}
			list = append(list, stab)
		}
		if q.IngressBlock != 0 {
			list = append(list, netlink.Attribute{Type: tcaIngressBlock, Data: u32bytes(q.IngressBlock)})
		}
		if q.EgressBlock != 0 {
			list = append(list, netlink.Attribute{Type: tcaEgressBlock, Data: u32bytes(q.EgressBlock)})
		}
		r, err := newRequest(newQdisc, netlink.Create|netlink.Replace,
			tcmsg{ifindex: ifindex, handle: q.Handle, parent: q.Parent},
			"restore "+q.Kind, list...)
		if err != nil {
			return nil, err
		}
		if q.Kind == (BPFDualPI2{}).Kind() {
			instance, ok := decode(q.Kind, q.Options, device{}).(BPFDualPI2)
			if !ok {
				return nil, fmt.Errorf("the %s was recorded by another version of this program, and is not understood",
					q.Kind)
			}
			r.instance = &instance
		}
		requests = append(requests, r)
	}
	// A class comes after the class that it is in.
	// The root class, of hfsc, comes with its discipline.
	waiting := slices.DeleteFunc(slices.Clone(t.Classes),
		func(class Class) bool { return class.Handle.major() != q.Handle.major() || class.Handle.minor() == 0 })
	made := map[Handle]bool{Root: true, q.Handle: true}
	for len(waiting) > 0 {
		i := slices.IndexFunc(waiting, func(class Class) bool { return made[class.Parent] })
		if i < 0 {
			return nil, fmt.Errorf("class %s hangs below %s, which was not recorded", waiting[0].Handle,
				waiting[0].Parent)
		}
		class := waiting[i]
		r, err := newRequest(newClass, netlink.Create,
			tcmsg{ifindex: ifindex, handle: class.Handle, parent: class.Parent},
			"restore class "+class.Handle.String(), attributes(class.Kind, class.Options)...)
		if err != nil {
			return nil, err
		}
		requests, made[class.Handle], waiting = append(requests, r), true, slices.Delete(waiting, i, i+1)
	}
	if k, _ := row(q.Kind); !k.ownQueues {
		for _, child := range t.children(q) {
			if child.Handle == 0 {
				continue // the kernel makes it by itself
			}
			more, err := t.replay(ifindex, child, seen)
			if err != nil {
				return nil, err
			}
			requests = append(requests, more...)
		}
	}
	filters, err := t.replayFilters(ifindex, q)
	return append(requests, filters...), err
}

// replayable turns reported options into those that make the same anew, and that compare: a kernel reports counters
// among them, and less than it was told, so that a replay of the plain report would drift at each turn.
func replayable(kind string, options []byte) []byte {
	if k, _ := row(kind); k.replay != nil {
		return k.replay(options)
	}
	return options
}

// corrected returns options of which each attribute went through a function; as they are if they are none.
func corrected(options []byte, correct func(netlink.Attribute)) []byte {
	list, err := unpack(options)
	if err != nil {
		return options
	}
	for _, a := range list {
		correct(a)
	}
	if b, err := netlink.MarshalAttributes(list); err == nil {
		return b
	}
	return options
}

// replayRounded gives each of these attributes, of 32 bits, the least value that the kernel reports as what is in it.
func replayRounded(reported func(uint32) uint32, types ...uint16) func(options []byte) []byte {
	return func(options []byte) []byte {
		return corrected(options, func(a netlink.Attribute) {
			if slices.Contains(types, a.Type) && len(a.Data) == 4 {
				binary.NativeEndian.PutUint32(a.Data, unround(binary.NativeEndian.Uint32(a.Data), reported))
			}
		})
	}
}
