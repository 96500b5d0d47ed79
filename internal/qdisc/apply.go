// SPDX-License-Identifier: Apache-2.0

package qdisc

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"

	"weir/internal/dualpi2"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// request is one change, to be sent with others.
type request struct {
	message  netlink.Message
	what     string
	at       tcmsg
	instance *BPFDualPI2 // to be installed first: its kind is not known before
}

func newRequest(typ uint16, flags netlink.HeaderFlags, at tcmsg, what string, attributes ...netlink.Attribute) (request,
	error) {
	b, err := netlink.MarshalAttributes(attributes)
	return request{message: netlink.Message{
		Header: netlink.Header{Type: netlink.HeaderType(typ), Flags: netlink.Request | netlink.Acknowledge | flags},
		Data:   append(at.bytes(), b...),
	}, what: fmt.Sprintf("interface %d: %s", at.ifindex, what), at: at}, err
}

// attributes are a kind and, unless nil, its options.
func attributes(name string, options []byte) []netlink.Attribute {
	list := []netlink.Attribute{{Type: tcaKind, Data: append([]byte(name), 0)}}
	if options != nil {
		typ := uint16(tcaOptions)
		// Harmless where it is not needed, so kinds that are not known here get it, too.
		if k, ok := find(name); k.nested || !ok {
			typ |= netlink.Nested
		}
		list = append(list, netlink.Attribute{Type: typ, Data: options})
	}
	return list
}

// send hands all to the kernel, whatever fails, in parts whose answers fit the socket's buffer. In one part is as
// little time as can be between two, in which a half-built tree is in force: microseconds.
func (c *Conn) send(requests []request) error {
	if len(requests) > 0 && requests[0].instance != nil { // a root, and so the first
		if err := c.install(requests[0]); err != nil {
			return err
		}
		requests = requests[1:]
	}
	var failed []error
	for part := range slices.Chunk(requests, 32) {
		failed = append(failed, c.sendPart(part)...)
	}
	switch len(failed) {
	case 0:
		return nil
	case 1:
		return failed[0]
	}
	return fmt.Errorf("%w; and %d more failed", failed[0], len(failed)-1)
}

// sendPart gives what failed; the kernel goes on after one that does.
func (c *Conn) sendPart(requests []request) (failed []error) {
	messages := make([]netlink.Message, len(requests))
	for i, r := range requests {
		messages[i] = r.message
	}
	sent, err := c.nl.SendMessages(messages)
	if err != nil {
		return []error{explain(err)}
	}
	for answered := 0; answered < len(sent); {
		answer, err := c.nl.Receive()
		switch {
		case err != nil:
			// Requests are answered in their order, so all before this one went well.
			var op *netlink.OpError
			i := -1
			if errors.As(err, &op) {
				i = slices.IndexFunc(sent, func(m netlink.Message) bool { return m.Header.Sequence == op.Sequence })
			}
			if i < answered { // not the kernel's answer to a request: there may be no more
				return append(failed, fmt.Errorf("%s: %w", requests[answered].what, explain(err)))
			}
			failed = append(failed, fmt.Errorf("%s: %w", requests[i].what, explain(err)))
			answered = i + 1
		case len(answer) == 0:
			return append(failed, fmt.Errorf("%s: the kernel did not answer", requests[answered].what))
		default:
			answered += len(answer)
		}
	}
	return failed
}

// Replace installs a stack at the root. It is one replacement, not a deletion and an addition; what waits in the old
// root's queues is lost, as it always is. Each discipline gets a handle that is not in use, for the kernel takes
// "replace" with a handle in use as "change", which would keep options of the old. When a part fails, the tree that was
// there before is put back.
//
// An htb's class has a queue of the kernel's for the microseconds until the stack's next level takes its place: nothing
// can hang below a class that does not exist, and a class cannot exist outside of the root. Packets that come in them
// may be dropped.
func (c *Conn) Replace(ifindex int, s Stack) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return errors.Join(c.replace(ifindex, s), c.clean(ifindex))
}

func (c *Conn) replace(ifindex int, s Stack) error {
	s, err := s.Check()
	if err != nil {
		return err
	}
	before, err := c.tree(ifindex)
	if err != nil {
		return err
	}
	fresh := before.freshHandles()
	if err = c.build(ifindex, s, fresh); err == nil {
		return nil
	}
	after, readErr := c.tree(ifindex)
	if readErr != nil {
		return errors.Join(err, readErr)
	}
	if !after.Same(before) {
		if restoreErr := c.restore(ifindex, before); restoreErr != nil {
			return errors.Join(err, fmt.Errorf("and putting back what was there: %w", restoreErr))
		}
	}
	return err
}

func (c *Conn) build(ifindex int, s Stack, fresh func() Handle) error {
	if k, _ := find(s[0].Kind()); k.slots != perQueue || len(s) == 1 {
		requests, err := chain(ifindex, Root, s, fresh)
		if err != nil {
			return err
		}
		return c.send(requests)
	}
	requests, err := chain(ifindex, Root, s[:1], fresh)
	if err != nil {
		return err
	}
	if err := c.send(requests); err != nil {
		return err
	}
	// Only now is it known how many queues there are.
	t, err := c.tree(ifindex)
	if err != nil {
		return err
	}
	root, _ := t.Root()
	requests = nil
	for _, child := range t.children(root) {
		// Each replacement stops the whole device for a moment, so queues that have it by net.core.default_qdisc
		// already are left alone.
		if have, ok := t.stack(child, map[Handle]bool{}); ok && have.Equal(s[1:]) {
			continue
		}
		more, err := chain(ifindex, child.Parent, s[1:], fresh)
		if err != nil {
			return err
		}
		requests = append(requests, more...)
	}
	return c.send(requests)
}

// freshHandles gives handles that nothing in the tree has.
func (t Tree) freshHandles() func() Handle {
	used := map[uint16]bool{0: true}
	for _, q := range t.Qdiscs {
		used[q.Handle.Major()] = true
	}
	next := uint16(0)
	return func() Handle {
		for used[next] {
			next++
		}
		used[next] = true
		return Handle(next) << 16
	}
}

// chain is a stack, one below the other, from parent down.
func chain(ifindex int, parent Handle, s Stack, fresh func() Handle) ([]request, error) {
	var requests []request
	for _, spec := range s {
		defaults, _ := Default(spec.Kind())
		options, err := spec.encode(defaults)
		if err != nil {
			return nil, err
		}
		handle := fresh()
		r, err := newRequest(unix.RTM_NEWQDISC, netlink.Create|netlink.Replace,
			tcmsg{ifindex: ifindex, handle: handle, parent: parent},
			fmt.Sprintf("install %s", spec), attributes(spec.Kind(), options)...)
		if err != nil {
			return nil, err
		}
		if instance, ok := spec.(BPFDualPI2); ok {
			r.instance = &instance
		}
		requests = append(requests, r)
		parent = handle.below(1)
		if htb, ok := spec.(HTB); ok {
			parent = handle.below(htb.Class)
			r, err := htb.classRequest(ifindex, handle, netlink.Create)
			if err != nil {
				return nil, err
			}
			requests = append(requests, r)
		}
	}
	return requests, nil
}

func (q HTB) classRequest(ifindex int, handle Handle, flags netlink.HeaderFlags) (request, error) {
	options, err := q.encodeClass()
	if err != nil {
		return request{}, err
	}
	return newRequest(unix.RTM_NEWTCLASS, flags, tcmsg{ifindex: ifindex, handle: handle.below(q.Class), parent: Root},
		fmt.Sprintf("set the class of %s", q), attributes("htb", options)...)
}

// Change gives a discipline that is in force other options, in place: nothing is dropped but what a smaller limit makes
// drop. Only what differs from q.Spec is sent.
func (c *Conn) Change(ifindex int, q Qdisc, s Spec) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	s, err := check(s)
	switch {
	case err != nil:
		return err
	case q.Kind != s.Kind():
		return fmt.Errorf("%s cannot be changed into %s: replace it", q.Kind, s.Kind())
	case q.Spec == nil:
		return fmt.Errorf("%s %s: its present options are not known: replace it", q.Kind, q.Handle)
	case q.Spec == s:
		return nil
	case q.Handle == 0:
		return fmt.Errorf("the %s that the kernel made by itself cannot be changed: replace it", q.Kind)
	}
	if next, ok := s.(BPFDualPI2); ok {
		return c.changeInstance(ifindex, next)
	}
	options, err := s.encode(q.Spec)
	if err != nil {
		return err
	}
	var requests []request
	if options != nil {
		list := attributes(s.Kind(), options)
		if q.SizeTable != nil { // a change without one takes it away
			stab, err := sizeTable(q)
			if err != nil {
				return err
			}
			list = append(list, stab)
		}
		r, err := newRequest(unix.RTM_NEWQDISC, 0, tcmsg{ifindex: ifindex, handle: q.Handle, parent: q.Parent},
			fmt.Sprintf("change to %s", s), list...)
		if err != nil {
			return err
		}
		requests = append(requests, r)
	}
	if htb, ok := s.(HTB); ok {
		r, err := htb.classRequest(ifindex, q.Handle, 0)
		if err != nil {
			return err
		}
		requests = append(requests, r)
	}
	return c.send(requests)
}

// Adjust brings a stack into force in place, so that no packet is lost: where the same kinds hang one below the other
// already, and the kernel lets their options be changed. Otherwise nothing is in force that was not before, or half of
// it is, and Replace is the way.
func (c *Conn) Adjust(ifindex int, s Stack) error {
	s, err := s.Check()
	if err != nil {
		return err
	}
	t, err := c.Tree(ifindex)
	if err != nil {
		return err
	}
	q, ok := t.Root()
	if now, readable := t.Stack(); !ok || !readable || len(now) != len(s) {
		return errors.New("what is there has another shape: replace it")
	}
	for i, level := range s {
		if i > 0 {
			below := t.children(q)
			if len(below) != 1 {
				return errors.New("what is there has several queues: replace it")
			}
			q = below[0]
		}
		if err := c.Change(ifindex, q, level); err != nil {
			return err
		}
	}
	return nil
}

// Delete takes away what hangs at parent. At the root the kernel puts its default in its place (net.core.default_qdisc,
// as it is now); if that is what is there, nothing happens.
func (c *Conn) Delete(ifindex int, parent Handle) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return errors.Join(c.delete(ifindex, parent), c.clean(ifindex))
}

func (c *Conn) delete(ifindex int, parent Handle) error {
	r, err := newRequest(unix.RTM_DELQDISC, 0, tcmsg{ifindex: ifindex, parent: parent},
		"delete what is at "+parent.String())
	if err != nil {
		return err
	}
	err = c.send([]request{r})
	if parent == Root && errors.Is(err, unix.ENOENT) {
		return nil
	}
	return err
}

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
	root, ok := t.Root()
	// what cannot be made again is known before anything is changed
	requests, err := t.replay(ifindex, root, map[Handle]bool{})
	if err != nil {
		return err
	}
	if !ok || root.Handle == 0 {
		if err := c.delete(ifindex, Root); err != nil || !ok {
			return err
		}
		if now, err = c.tree(ifindex); err != nil {
			return err
		}
		// While the link is down there is none: the kernel makes it when the link comes up.
		_, isMade := now.Root()
		made, _ := now.Stack()
		if want, ok := t.Stack(); ok && isMade && !made.Equal(want) {
			return c.build(ifindex, want, now.freshHandles())
		}
	} else if t.reuses(now) {
		// A handle that is in use would be changed, not made anew. A queue of the kernel's simplest kind steps in for a
		// moment.
		requests, err := chain(ifindex, Root, Stack{FIFO{}}, func() func() Handle {
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

// Restorable tells why a tree could not be put back once something else is in its place: nil if tests have shown that
// such trees come back, on stock kernels. Where somebody can do something about it, the error is a *Lost.
func (t Tree) Restorable() error {
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
	}
	return t.filtersRestorable()
}

// restorable tells why one discipline would not come back as it was.
func (q Qdisc) restorable() error {
	switch {
	case !comesBack(q.Kind):
		return errors.New("no test has shown that this kind comes back")
	case q.Kind == "netem":
		return netemRestorable(q.Options)
	}
	return nil
}

// comesBack tells whether live tests have shown that a kind comes back as it was, with its classes.
func comesBack(kind string) bool {
	k, known := row(kind)
	return known && !k.neverBack
}

func (q Qdisc) lost(why error) error {
	remove := "root"
	if q.Parent != Root {
		remove = "parent " + q.Parent.String()
	}
	return &Lost{What: fmt.Sprintf("qdisc %s %s: %v", q.Kind, q.Handle, why), object: "qdisc", remove: remove}
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
		r, err := newRequest(unix.RTM_NEWQDISC, netlink.Create|netlink.Replace,
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
		func(class Class) bool { return class.Handle.Major() != q.Handle.Major() || class.Handle.Minor() == 0 })
	made := map[Handle]bool{Root: true, q.Handle: true}
	for len(waiting) > 0 {
		i := slices.IndexFunc(waiting, func(class Class) bool { return made[class.Parent] })
		if i < 0 {
			return nil, fmt.Errorf("class %s hangs below %s, which was not recorded", waiting[0].Handle,
				waiting[0].Parent)
		}
		class := waiting[i]
		r, err := newRequest(unix.RTM_NEWTCLASS, netlink.Create,
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

// corrected gives options of which each attribute went through a function; as they are if they are none.
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

// unrounded puts into an attribute, of 32 bits, the least value that the kernel reports as what is in it.
func unrounded(b []byte, reported func(uint32) uint32) {
	if len(b) == 4 {
		binary.NativeEndian.PutUint32(b, unround(binary.NativeEndian.Uint32(b), reported))
	}
}

// sizeTable is a size table (tc-stab(8)) as it can be sent: the kernel reports its parameters, but not its entries.
func sizeTable(q Qdisc) (netlink.Attribute, error) {
	list, err := unpack(q.SizeTable)
	if err != nil {
		return netlink.Attribute{}, err
	}
	// TCA_STAB_BASE; struct tc_sizespec, and where it has their number (include/uapi/linux/pkt_sched.h)
	const base, size, entries = 1, 24, 20
	for _, a := range list {
		if a.Type == base && len(a.Data) == size && binary.NativeEndian.Uint32(a.Data[entries:]) == 0 {
			return netlink.Attribute{Type: tcaStab, Data: q.SizeTable}, nil
		}
	}
	return netlink.Attribute{}, q.lost(errors.New("has a size table, whose entries the kernel does not report"))
}

// Probe reports whether this kernel knows a kind, loading its module if need be. Nothing is left behind: the request,
// on the loopback device of Conn's namespace, carries a size table without parameters, on which the kernel gives up
// after it has looked up the kind and before anything is attached (net/sched/sch_api.c, qdisc_create).
func (c *Conn) Probe(kind string) (bool, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	const loopback = 1 // in each network namespace
	if kind == "" || len(kind) > 15 {
		return false, fmt.Errorf("%q is not the name of a queueing discipline", kind)
	}
	now, err := c.tree(loopback)
	if err != nil {
		return false, err
	}
	r, err := newRequest(unix.RTM_NEWQDISC, netlink.Create|netlink.Replace,
		tcmsg{ifindex: loopback, handle: now.freshHandles()(), parent: Root},
		"probe for "+kind, append(attributes(kind, nil), netlink.Attribute{Type: tcaStab | netlink.Nested})...)
	if err != nil {
		return false, err
	}
	switch err := c.send([]request{r}); {
	case errors.Is(err, unix.ENOENT):
		return false, nil
	case errors.Is(err, unix.EINVAL), errors.Is(err, unix.EOPNOTSUPP):
		return true, nil // for want of a table, of options, of a second queue
	case err != nil:
		return false, err
	}
	return false, fmt.Errorf("probe for %s: the kernel took a size table without parameters", kind)
}
