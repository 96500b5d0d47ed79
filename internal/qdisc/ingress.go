// SPDX-License-Identifier: Apache-2.0

package qdisc

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/mdlayher/netlink"
)

// IFB is the name of the device through which SetIngress leads what arrives at another. Each uplink has one of its own:
// those after the first have a number behind the name, from 2.
const IFB = "ifb-weir"

// IsIFB reports whether a device's name is one that SetIngress gives.
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

func atTheIngress(q Qdisc) bool { return q.Parent == Ingress }

func (c *Conn) redirect(ifindex, to int) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	options, err := redirectTo(to)
	if err != nil {
		return err
	}
	place, err := c.placeForFilters(ifindex)
	if err != nil {
		return err
	}
	filter, err := newRequest(newFilter, netlink.Create|netlink.Excl,
		tcmsg{ifindex: ifindex, parent: atIngress, info: redirectInfo(redirectPriority)},
		"redirect what arrives", attributes("matchall", options)...)
	if err != nil {
		return err
	}
	return c.send(append(place, filter))
}

// placeForFilters are the requests for an ingress discipline: none where a bpf_shaper has brought a clsact, which has
// the same place. Somebody else's is an error, so that one in which there is a filter of ours is known to be ours.
func (c *Conn) placeForFilters(ifindex int) ([]request, error) {
	tree, err := c.tree(ifindex)
	if err != nil {
		return nil, err
	}
	clsact := func(q Qdisc) bool { return atTheIngress(q) && q.Kind == "clsact" }
	if slices.ContainsFunc(tree.Qdiscs, clsact) {
		if root, _ := tree.Root(); root.Kind != BPFShaping {
			return nil, fmt.Errorf("interface %d has somebody else's clsact", ifindex)
		}
		return nil, nil
	}
	r, err := newRequest(newQdisc, netlink.Create, tcmsg{ifindex: ifindex, handle: 0xFFFF0000, parent: Ingress},
		"install ingress", attributes("ingress", nil)...)
	return []request{r}, err
}

// installIngress makes sure that there is a place for filters.
func (c *Conn) installIngress(ifindex int) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	place, err := c.placeForFilters(ifindex)
	if err != nil {
		return err
	}
	return c.send(place)
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
	return uint32(priority)<<16 | uint32(binary.NativeEndian.Uint16(binary.BigEndian.AppendUint16(nil, ethAll)))
}

// leadsTo reports whether a filter redirects to a device, or to one that is gone.
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
	whole := len(ours) == len(filters)
	if whole && tree.Qdiscs[at].Kind == "clsact" && len(ours) > 0 { // it came with a bpf_shaper, which may be there yet
		others, err := c.filters(ifindex, atEgress)
		if err != nil {
			return err
		}
		if !slices.ContainsFunc(others, func(f Filter) bool { return f.Parent == atEgress }) {
			return c.delete(ifindex, Ingress)
		}
	}
	if whole && tree.Qdiscs[at].Kind == "ingress" {
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
		if err := c.dropFilter(ifindex, f); err != nil && !errors.Is(err, syscall.ENOENT) {
			return err
		}
	}
	return nil
}

func (c *Conn) dropFilter(ifindex int, f Filter) error {
	info := uint32(f.Priority)<<16 | uint32(binary.NativeEndian.Uint16(binary.BigEndian.AppendUint16(nil, f.Protocol)))
	at := tcmsg{ifindex: ifindex, handle: Handle(f.Handle), parent: atIngress, info: info}
	r, err := newRequest(delFilter, 0, at,
		"delete a filter for what arrives", attributes(f.Kind, nil)...)
	if err != nil {
		return err
	}
	return c.send([]request{r})
}

// Redirect returns to which interface the first filter that does so redirects all that arrives at another; 0 is one
// that is gone.
func (c *Conn) Redirect(ifindex int) (to int, ok bool, err error) {
	return c.leads(ifindex, Filter.redirects)
}

// Diverted returns to which interface somebody leads what arrives at another: like Redirect, and also by filters and
// actions that SetIngress does not make.
func (c *Conn) Diverted(ifindex int) (to int, ok bool, err error) {
	return c.leads(ifindex, Filter.diverts)
}

// leads asks the filters at a device's ingress, one after the other, whereto each leads.
func (c *Conn) leads(ifindex int, whereto func(Filter) (int, bool)) (to int, ok bool, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	filters, err := c.filters(ifindex, atIngress)
	if err != nil {
		return 0, false, err
	}
	for _, f := range filters {
		if to, ok := whereto(f); ok {
			return to, true, nil
		}
	}
	return 0, false, nil
}

// LedOut returns to which interfaces filters redirect what leaves by another, or some of it, whose tree has been read:
// those at its root and below, and at its egress.
func (c *Conn) LedOut(ifindex int, t Tree) (to []int, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	filters := t.Filters
	if slices.ContainsFunc(t.Qdiscs, func(q Qdisc) bool { return atTheIngress(q) && q.Kind == "clsact" }) {
		more, err := c.filters(ifindex, atEgress)
		if err != nil {
			return nil, err
		}
		filters = slices.Concat(filters, more)
	}
	for _, f := range filters {
		for _, k := range filterKinds() {
			if k.name != f.Kind {
				continue
			}
			actions, _ := unpack(inner(f.Options, k.actions))
			for _, a := range actions {
				if dev, ok := redirection(a.Data); ok && dev > 0 && !slices.Contains(to, dev) {
					to = append(to, dev)
				}
			}
		}
	}
	return to, nil
}

// diverts reports whether a filter's last action redirects all packets, or all of IPv4, and whereto.
func (f Filter) diverts() (to int, ok bool) {
	act := uint16(matchallAct)
	switch {
	case f.Protocol != ethAll && f.Protocol != ethIP || f.Chain != 0:
		return 0, false
	case f.Kind == "u32" && f.takesAll():
		act = u32Act
	case f.Kind != "matchall":
		return 0, false
	}
	list, err := unpack(inner(f.Options, act))
	if err != nil || len(list) == 0 {
		return 0, false
	}
	return redirection(list[len(list)-1].Data)
}

// takesAll reports whether a u32 filter looks at no bit of a packet, in a table that each packet comes to: those that
// the kernel makes have numbers from 0x800 (net/sched/cls_u32.c, gen_new_htid).
func (f Filter) takesAll() bool {
	const first = 0x800 << 20
	sel := inner(f.Options, u32Sel)
	if f.Handle < first || len(sel) < selLen || len(sel) != selLen+keyLen*int(sel[selNkeys]) {
		return false
	}
	for at := keyMask; at < len(sel); at += keyLen {
		if binary.NativeEndian.Uint32(sel[at:]) != 0 {
			return false
		}
	}
	return true
}

// redirects reports whether a filter redirects all packets, and whereto.
func (f Filter) redirects() (to int, ok bool) {
	if f.Kind != "matchall" || f.Protocol != ethAll || f.Chain != 0 {
		return 0, false
	}
	list, err := unpack(inner(f.Options, matchallAct))
	if err != nil || len(list) != 1 {
		return 0, false
	}
	return redirection(list[0].Data)
}

// redirection reports whether an action redirects, and whereto.
func redirection(action []byte) (to int, ok bool) {
	parms := inner(inner(action, actOptions), mirredParms)
	if cString(inner(action, actKind)) != "mirred" || len(parms) < mirredLen ||
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
