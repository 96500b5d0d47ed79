// SPDX-License-Identifier: Apache-2.0

package qdisc

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"

	links "github.com/vishvananda/netlink"
)

// SetIngress lets all that arrives at an interface pass a stack first: the stack is at the root of a device named like
// IFB, to which a filter redirects (tc-matchall(8), tc-mirred(8)). The device comes first, so that nothing is led to
// where nothing is, and goes last; a stack that is there is changed in place where that can be done. An empty
// stack takes all of it away, and leaves filters that are not ours; its tunnels are those that may have been
// unpacked before. Else a tunnel that is not there is an error. It is about the network namespace of the calling
// thread.
func SetIngress(ifindex int, a Arriving) error {
	s := a.Stack
	// There are several sockets, and each is of the namespace of the thread that opens it.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	c, err := Dial(0)
	if err != nil {
		return err
	}
	defer c.Close()
	if len(s) == 0 {
		return c.removeIngress(ifindex, a.Tunnels)
	}
	ifb, err := c.ifb(ifindex, a.Tunnels)
	if err != nil {
		return err
	}
	to := ifb.Attrs().Index
	c.source = ifindex
	if err := c.Set(to, s); err != nil {
		return err
	}
	if err := links.LinkSetUp(ifb); err != nil {
		return fmt.Errorf("device %s: %w", ifb.Attrs().Name, err)
	}
	// First what comes out of tunnels, then what goes past: in between a packet waits twice, and none is lost.
	if err := c.lead(a.Tunnels, nil, ifindex, to); err != nil {
		return err
	}
	if len(a.Outer) > 0 {
		if err := c.installIngress(ifindex); err != nil {
			return err
		}
	}
	if err := c.setPasses(ifindex, a.Outer); err != nil {
		return err
	}
	return c.leadTo(ifindex, to)
}

// leadTo redirects all that arrives at an interface, unless something does so already.
func (c *Conn) leadTo(ifindex, to int) error {
	if now, ok, err := c.Redirect(ifindex); err != nil || ok && now == to {
		return err
	}
	// What redirects to a device that is gone would come first.
	if err := c.unredirect(ifindex, leadsTo(0), false); err != nil {
		return err
	}
	if err := c.redirect(ifindex, to); err != nil {
		return err
	}
	if now, ok, err := c.Redirect(ifindex); err != nil || !ok || now != to {
		return errors.Join(errors.New("the kernel took the filter and reports another"), err)
	}
	return nil
}

// lead redirects what comes out of these devices, and of no others but the uplink any more. At those that were led
// before an ingress discipline without a filter is ours, too.
func (c *Conn) lead(tunnels, before []string, uplink, to int) error {
	all, err := links.LinkList()
	if err != nil {
		return fmt.Errorf("list of links: %w", err)
	}
	trees, err := c.Trees()
	if err != nil {
		return err
	}
	found := 0
	for _, l := range all {
		index, name := l.Attrs().Index, l.Attrs().Name
		wanted := slices.Contains(tunnels, name)
		var others bool
		if others, err = c.leadsToOthers(index, to, all, trees); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		switch {
		case others && wanted:
			return fmt.Errorf("what comes out of %s passes the queue of another device already", name)
		case others: // with what goes past it
		case wanted:
			found++
			if err = c.installIngress(index); err == nil {
				err = c.passSmall(index)
			}
			if err == nil {
				err = c.leadTo(index, to)
			}
		case index != uplink && index != to && slices.ContainsFunc(trees[index].Qdiscs, atTheIngress):
			// One that has just gone has nothing to take away.
			if err = c.unredirect(index, func(f Filter) bool {
				dev, ok := f.redirects()
				// To what is gone, of those that are ours.
				return ok && (dev == to && to != 0 || dev == 0 && f.Priority == redirectPriority) || f.small()
			}, slices.Contains(before, name)); errors.Is(err, syscall.ENODEV) {
				err = nil
			}
		}
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	if found < len(tunnels) {
		return fmt.Errorf("not all of the tunnels %s are there", strings.Join(tunnels, ", "))
	}
	return nil
}

// leadsToOthers reports whether what arrives at an interface passes another uplink's device.
func (c *Conn) leadsToOthers(ifindex, to int, all []links.Link, trees map[int]Tree) (bool, error) {
	if !slices.ContainsFunc(trees[ifindex].Qdiscs, atTheIngress) {
		return false, nil
	}
	now, ok, err := c.Redirect(ifindex)
	if err != nil || !ok || now == to {
		if errors.Is(err, syscall.ENODEV) {
			err = nil // it has just gone
		}
		return false, err
	}
	return slices.ContainsFunc(all, func(l links.Link) bool {
		return l.Attrs().Index == now && IsIFB(l.Attrs().Name)
	}), nil
}

// ifb is an interface's own device, made if there is none.
func (c *Conn) ifb(ifindex int, tunnels []string) (links.Link, error) {
	own, free, err := c.ifbs(ifindex, tunnels)
	if err != nil {
		return nil, err
	}
	if len(own) > 0 {
		return own[0], nil
	}
	attrs := links.NewLinkAttrs()
	attrs.Name = free
	if err = links.LinkAdd(&links.Ifb{LinkAttrs: attrs}); err != nil {
		return nil, fmt.Errorf("device %s, of kind ifb: %w", free, err)
	}
	made, err := links.LinkByName(free)
	if err != nil {
		return nil, fmt.Errorf("device %s is gone again: %w", free, err)
	}
	return made, nil
}

// ifbs are the devices of our making that are an interface's: the one that it leads to, and those that nobody but its
// tunnels leads to, left by a run that was cut short. Free is a name that none has.
func (c *Conn) ifbs(ifindex int, tunnels []string) (own []links.Link, free string, err error) {
	all, err := links.LinkList()
	if err != nil {
		return nil, "", fmt.Errorf("list of links: %w", err)
	}
	trees, err := c.Trees()
	if err != nil {
		return nil, "", err
	}
	leads := map[int][]int{} // to a device, from which
	for _, l := range all {
		from := l.Attrs().Index
		if !slices.ContainsFunc(trees[from].Qdiscs, atTheIngress) {
			continue
		}
		to, ok, err := c.Redirect(from)
		if err != nil && !errors.Is(err, syscall.ENODEV) {
			return nil, "", err
		}
		if ok && !slices.Contains(tunnels, l.Attrs().Name) {
			leads[to] = append(leads[to], from)
		}
	}
	names := map[string]bool{}
	for _, l := range all {
		name, from := l.Attrs().Name, leads[l.Attrs().Index]
		names[name] = true
		switch mine := slices.Contains(from, ifindex); {
		case !IsIFB(name) || len(from) > 0 && !mine:
		case l.Type() != "ifb":
			return nil, "", fmt.Errorf("device %s, of kind ifb: there is one, of kind %s", name, l.Type())
		case mine:
			own = slices.Insert(own, 0, l)
		default:
			own = append(own, l)
		}
	}
	free = IFB
	for n := 2; names[free]; n++ {
		free = IFB + strconv.Itoa(n)
	}
	return own, free, nil
}

// removeIngress takes away what redirects to our device, or to one that is gone: what is led there the kernel drops.
// The ingress discipline goes if nobody else has a filter there, and so do our devices.
func (c *Conn) removeIngress(ifindex int, tunnels []string) error {
	own, _, err := c.ifbs(ifindex, tunnels)
	if err != nil {
		return err
	}
	ours := func(f Filter) bool {
		_, past := f.passes()
		return past || leadsTo(0)(f) ||
			slices.ContainsFunc(own, func(ifb links.Link) bool { return leadsTo(ifb.Attrs().Index)(f) })
	}
	if err := c.unredirect(ifindex, ours, true); err != nil && !errors.Is(err, syscall.ENODEV) {
		return err
	}
	if len(own) == 0 {
		return c.lead(nil, tunnels, ifindex, 0)
	}
	for _, ifb := range own {
		if err := c.lead(nil, tunnels, ifindex, ifb.Attrs().Index); err != nil {
			return err
		}
		if err := links.LinkDel(ifb); err != nil {
			return fmt.Errorf("device %s: %w", ifb.Attrs().Name, err)
		}
	}
	return nil
}
