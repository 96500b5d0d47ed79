// SPDX-License-Identifier: Apache-2.0

package qdisc

import (
	"errors"
	"fmt"
	"slices"
	"syscall"

	"github.com/mdlayher/netlink"
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

// sendPart returns what failed; the kernel goes on after one that does.
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

// Set brings a stack into force, in place where that can be done, and reads it back.
func (c *Conn) Set(ifindex int, s Stack) error {
	verify := func() error {
		tree, err := c.Tree(ifindex)
		if err != nil {
			return err
		}
		if now, ok := tree.Stack(); !ok || !now.Equal(s) {
			return fmt.Errorf("the kernel took it and reports %s", now)
		}
		return nil
	}
	if c.Adjust(ifindex, s) == nil && verify() == nil {
		return nil
	}
	if err := c.Replace(ifindex, s); err != nil {
		return err
	}
	return verify()
}

// Replace installs a stack at the root. It is one replacement, not a deletion and an addition; what waits in the old
// root's queues is lost, as it always is. Each discipline gets a handle that is not in use. The kernel takes "replace"
// with a handle in use as "change", which would keep options of the old. When a part fails, the tree that was there
// before is put back.
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
	top, below := s.divide()
	if err = c.setShaper(ifindex, top); err == nil {
		err = c.build(ifindex, below, before.freshHandles())
	}
	if err == nil {
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

// freshHandles returns handles that nothing in the tree has.
func (t Tree) freshHandles() func() Handle {
	used := map[uint16]bool{0: true}
	for _, q := range t.Qdiscs {
		used[q.Handle.major()] = true
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
		r, err := newRequest(newQdisc, netlink.Create|netlink.Replace,
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
	return newRequest(newClass, flags, tcmsg{ifindex: ifindex, handle: handle.below(q.Class), parent: Root},
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
	switch next := s.(type) {
	case BPFDualPI2:
		return c.changeInstance(ifindex, next)
	case BPFShaper:
		return c.setShaper(ifindex, &next)
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
		r, err := newRequest(newQdisc, 0, tcmsg{ifindex: ifindex, handle: q.Handle, parent: q.Parent},
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
			if len(below) > 1 && s[i-1].Kind() == "mq" { // which has them alike, or it were no Stack
				if now, _ := t.Stack(); now[i:].Equal(s[i:]) {
					return nil
				}
			}
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
	err := c.deleteQdisc(ifindex, parent)
	if parent == Root && err == nil {
		err = c.removeShaper(ifindex)
	}
	return err
}

func (c *Conn) deleteQdisc(ifindex int, parent Handle) error {
	r, err := newRequest(delQdisc, 0, tcmsg{ifindex: ifindex, parent: parent},
		"delete what is at "+parent.String())
	if err != nil {
		return err
	}
	err = c.send([]request{r})
	if parent == Root && errors.Is(err, syscall.ENOENT) {
		return nil
	}
	return err
}

// Probe reports whether this kernel knows a kind, loading its module if need be. Nothing is left behind: the request
// carries a size table without parameters. The kernel gives up on that after it has looked up the kind, and before
// anything is attached (net/sched/sch_api.c, qdisc_create). It is for the loopback device of Conn's namespace.
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
	r, err := newRequest(newQdisc, netlink.Create|netlink.Replace,
		tcmsg{ifindex: loopback, handle: now.freshHandles()(), parent: Root},
		"probe for "+kind, append(attributes(kind, nil), netlink.Attribute{Type: tcaStab | netlink.Nested})...)
	if err != nil {
		return false, err
	}
	switch err := c.send([]request{r}); {
	case errors.Is(err, syscall.ENOENT):
		return false, nil
	case errors.Is(err, syscall.EINVAL), errors.Is(err, syscall.EOPNOTSUPP):
		return true, nil // for lack of a table, of options, of a second queue
	case err != nil:
		return false, err
	}
	return false, fmt.Errorf("probe for %s: the kernel took a size table without parameters", kind)
}
