// SPDX-License-Identifier: Apache-2.0

package qdisc

import (
	"encoding/binary"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"github.com/mdlayher/netlink"
	links "github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// IFB is the name of the device through which SetIngress leads what arrives at another. Each uplink has one of its own:
// those after the first have a number behind the name, from 2.
const IFB = "ifb-weir"

// IsIFB tells whether a device's name is one that SetIngress gives.
func IsIFB(name string) bool {
	number, is := strings.CutPrefix(name, IFB)
	n, err := strconv.ParseUint(number, 10, 16)
	return is && (number == "" || err == nil && n >= 2 && number == strconv.FormatUint(n, 10))
}

const (
	// Where the filters for what arrives hang, below an ingress discipline as below clsact (TC_H_MIN_INGRESS,
	// include/uapi/linux/pkt_sched.h).
	atIngress Handle = 0xFFFFFFF2
	// What tc gives to a device's first filter. Those that somebody adds later, with none given, come before it.
	redirectPriority = 0xC000

	matchallAct  = 2 // TCA_MATCHALL_ACT
	actKind      = 1 // TCA_ACT_KIND
	actOptions   = 2 // TCA_ACT_OPTIONS
	mirredParms  = 2 // TCA_MIRRED_PARMS
	mirredLen    = 28
	actStolen    = 4 // TC_ACT_STOLEN
	egressRedir  = 1 // TCA_EGRESS_REDIR
	mirredAction = 8 // offsets in struct tc_mirred (include/uapi/linux/tc_act/tc_mirred.h)
	mirredKind   = 20
	mirredDevice = 24
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
			}, slices.Contains(before, name)); errors.Is(err, unix.ENODEV) {
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

// leadsToOthers tells whether what arrives at an interface passes another uplink's device.
func (c *Conn) leadsToOthers(ifindex, to int, all []links.Link, trees map[int]Tree) (bool, error) {
	if !slices.ContainsFunc(trees[ifindex].Qdiscs, atTheIngress) {
		return false, nil
	}
	now, ok, err := c.Redirect(ifindex)
	if err != nil || !ok || now == to {
		if errors.Is(err, unix.ENODEV) {
			err = nil // it has just gone
		}
		return false, err
	}
	return slices.ContainsFunc(all, func(l links.Link) bool {
		return l.Attrs().Index == now && IsIFB(l.Attrs().Name)
	}), nil
}

func atTheIngress(q Qdisc) bool { return q.Parent == Ingress }

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
		if err != nil && !errors.Is(err, unix.ENODEV) {
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

func (c *Conn) redirect(ifindex, to int) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	options, err := redirectTo(to)
	if err != nil {
		return err
	}
	qdisc, err := ingressRequest(ifindex)
	if err != nil {
		return err
	}
	filter, err := newRequest(unix.RTM_NEWTFILTER, netlink.Create|netlink.Excl,
		tcmsg{ifindex: ifindex, parent: atIngress, info: redirectInfo(redirectPriority)},
		"redirect what arrives", attributes("matchall", options)...)
	if err != nil {
		return err
	}
	return c.send([]request{qdisc, filter})
}

func ingressRequest(ifindex int) (request, error) {
	return newRequest(unix.RTM_NEWQDISC, netlink.Create, tcmsg{ifindex: ifindex, handle: 0xFFFF0000, parent: Ingress},
		"install ingress", attributes("ingress", nil)...)
}

// installIngress makes sure that there is a place for filters.
func (c *Conn) installIngress(ifindex int) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	r, err := ingressRequest(ifindex)
	if err != nil {
		return err
	}
	return c.send([]request{r})
}

// redirectTo is the options of such a filter, from the inside out: its first action is its only one.
func redirectTo(to int) (options []byte, err error) {
	parms := make([]byte, mirredLen)
	binary.NativeEndian.PutUint32(parms[mirredAction:], actStolen)
	binary.NativeEndian.PutUint32(parms[mirredKind:], egressRedir)
	binary.NativeEndian.PutUint32(parms[mirredDevice:], uint32(to))
	const first = 1
	for _, level := range [][]netlink.Attribute{
		{{Type: mirredParms, Data: parms}},
		{{Type: actKind, Data: []byte("mirred\x00")}, {Type: actOptions | netlink.Nested}},
		{{Type: first}},
		{{Type: matchallAct}},
	} {
		if options != nil {
			level[len(level)-1].Data = options
		}
		if options, err = netlink.MarshalAttributes(level); err != nil {
			return nil, err
		}
	}
	return options, nil
}

// redirectInfo is a priority and, for all protocols, ETH_P_ALL in the network's byte order.
func redirectInfo(priority uint16) uint32 {
	return uint32(priority)<<16 | uint32(binary.NativeEndian.Uint16(binary.BigEndian.AppendUint16(nil, unix.ETH_P_ALL)))
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
	if err := c.unredirect(ifindex, ours, true); err != nil && !errors.Is(err, unix.ENODEV) {
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

// leadsTo tells whether a filter redirects to a device, or to one that is gone.
func leadsTo(to int) func(Filter) bool {
	return func(f Filter) bool {
		dev, ok := f.redirects()
		return ok && (dev == to || dev == 0)
	}
}

// unredirect takes filters away, and the ingress discipline with them if nothing else is there: in one step, so
// that none is left without a filter. One that has none already is taken away only if it is known to be ours.
func (c *Conn) unredirect(ifindex int, which func(Filter) bool, empty bool) error {
	tree, err := c.Tree(ifindex)
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	at := slices.IndexFunc(tree.Qdiscs, atTheIngress)
	if at < 0 {
		return nil
	}
	filters, err := c.filters(ifindex, atIngress)
	if err != nil {
		return err
	}
	filters = slices.DeleteFunc(filters, Filter.table)
	ours := slices.DeleteFunc(slices.Clone(filters), func(f Filter) bool { return !which(f) })
	if len(ours) == len(filters) && tree.Qdiscs[at].Kind == "ingress" {
		if len(ours) == 0 && !empty {
			return nil
		}
		return c.delete(ifindex, Ingress)
	}
	for _, f := range ours {
		shared := func(other Filter) bool {
			return other.Priority == f.Priority && other.Protocol == f.Protocol && !which(other)
		}
		if f.Kind == "u32" && !slices.ContainsFunc(filters, shared) {
			f.Handle = 0 // all of that priority, its tables among them
		}
		if err := c.dropFilter(ifindex, f); err != nil && !errors.Is(err, unix.ENOENT) {
			return err
		}
	}
	return nil
}

func (c *Conn) dropFilter(ifindex int, f Filter) error {
	info := uint32(f.Priority)<<16 | uint32(binary.NativeEndian.Uint16(binary.BigEndian.AppendUint16(nil, f.Protocol)))
	at := tcmsg{ifindex: ifindex, handle: Handle(f.Handle), parent: atIngress, info: info}
	r, err := newRequest(unix.RTM_DELTFILTER, 0, at,
		"delete a filter for what arrives", attributes(f.Kind, nil)...)
	if err != nil {
		return err
	}
	return c.send([]request{r})
}

// Redirect tells to which interface the first filter that does so redirects all that arrives at another; 0 is one that
// is gone.
func (c *Conn) Redirect(ifindex int) (to int, ok bool, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	filters, err := c.filters(ifindex, atIngress)
	if err != nil {
		return 0, false, err
	}
	for _, f := range filters {
		if to, ok := f.redirects(); ok {
			return to, true, nil
		}
	}
	return 0, false, nil
}

// redirects tells whether a filter redirects all packets, and whereto.
func (f Filter) redirects() (to int, ok bool) {
	if f.Kind != "matchall" || f.Protocol != unix.ETH_P_ALL || f.Chain != 0 {
		return 0, false
	}
	actions := inner(f.Options, matchallAct)
	list, err := unpack(actions)
	if err != nil || len(list) != 1 {
		return 0, false
	}
	action := list[0].Data
	parms := inner(inner(action, actOptions), mirredParms)
	if text(inner(action, actKind)) != "mirred" || len(parms) < mirredLen ||
		binary.NativeEndian.Uint32(parms[mirredKind:]) != egressRedir {
		return 0, false
	}
	return int(int32(binary.NativeEndian.Uint32(parms[mirredDevice:]))), true
}

// inner is the first attribute of a type; nil if there is none.
func inner(b []byte, typ uint16) []byte {
	list, err := unpack(b)
	if err != nil {
		return nil
	}
	for _, a := range list {
		if a.Type == typ {
			return a.Data
		}
	}
	return nil
}
