// SPDX-License-Identifier: Apache-2.0

package qdisc

import (
	"fmt"
	"slices"

	links "github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
)

// passFilters are those of a kind of packet: a filter without an action ends the search, and the packet goes on
// (tc-flower(8)).
func passFilters(ifindex int, o Outer) []links.Filter {
	var all []links.Filter
	for _, protocol := range []uint16{ethIP, ethIPv6} {
		number := nl.IPProto(protoUDP)
		if o.Protocol == "tcp" {
			number = protoTCP
		}
		all = append(all, &links.Flower{
			FilterAttrs: links.FilterAttrs{LinkIndex: ifindex, Parent: uint32(atIngress),
				Priority: passPriority(protocol), Protocol: protocol},
			EthType: protocol, IPProto: &number, DestPort: o.Port,
		})
	}
	return all
}

// passSmall lets what is small out of a tunnel without a wait: acknowledgements, handshakes, keystrokes.
//
// It also keeps CAKE fair between hosts. To CAKE both directions of a connection are one flow, and whichever packet
// comes first decides for which host it counts (sch_cake.c, cake_hash). With a client's handshake first, all
// downloads would be for the origin.
func (c *Conn) passSmall(ifindex int) error {
	c.mu.Lock()
	filters, err := c.filters(ifindex, atIngress)
	c.mu.Unlock()
	if err != nil {
		return err
	}
	for protocol, key := range smallKeys {
		// A run that was killed may have left one of the two.
		if slices.ContainsFunc(filters, func(f Filter) bool { return f.small() && f.Protocol == protocol }) {
			continue
		}
		filter := &links.U32{
			FilterAttrs: links.FilterAttrs{LinkIndex: ifindex, Parent: uint32(atIngress),
				Priority: passPriority(protocol), Protocol: protocol},
			Sel: &nl.TcU32Sel{Flags: nl.TC_U32_TERMINAL, Nkeys: 1,
				Keys: []nl.TcU32Key{{Mask: key.mask, Off: key.off}}},
		}
		if err := links.FilterAdd(filter); err != nil {
			return fmt.Errorf("filter of small packets: %w", err)
		}
	}
	return nil
}

// setPasses lets exactly these packets past. The ingress discipline must be there.
func (c *Conn) setPasses(ifindex int, outer []Outer) error {
	now, filters, err := c.passing(ifindex)
	if err != nil || slices.Equal(now, outer) && filters == 2*len(outer) {
		return err
	}
	if err := c.dropFilters(ifindex, func(f Filter) bool { _, ok := f.passes(); return ok }); err != nil {
		return err
	}
	for _, o := range outer {
		for _, filter := range passFilters(ifindex, o) {
			if err := links.FilterAdd(filter); err != nil {
				return fmt.Errorf("filter of %v: %w", o, err)
			}
		}
	}
	if now, filters, err = c.passing(ifindex); err == nil && (!slices.Equal(now, outer) || filters != 2*len(outer)) {
		err = fmt.Errorf("the kernel took the filters of %v and reports %d, of %v", outer, filters, now)
	}
	return err
}
