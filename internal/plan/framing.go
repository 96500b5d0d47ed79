// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"cmp"
	"fmt"
	"slices"

	"weir/internal/host"
	"weir/internal/qdisc"
	"weir/internal/units"
	"weir/internal/wire"
)

const (
	// bytes: PPP over Ethernet with a VLAN tag on VDSL, the most that tc-cake(8) has without ATM
	pppFrames = 30 + 14
)

// framing is what the limiter counts of a packet: as it was told, or as the kind of device suggests.
//
// Too few bytes are a cliff: the provider's queue fills, and everybody waits in it. Too many cost what they are of a
// packet. A virtual machine's limiter is software, which sees no more than the frame that it is handed. What is behind
// a card of a machine's own is a switch or a modem, and may count all that is on the wire.
func (d *draft) framing() (f qdisc.Framing) {
	outside := d.link
	if tunnel := tunnelKind(d.link); tunnel != "" {
		defer func() { f = tunnelFraming(f, overhead(tunnel)) }()
		outside, _ = d.facts.Link(cmp.Or(d.link.Parent, WayOut(d.facts)))
	}
	if d.Goal.Overhead != (qdisc.Framing{}) {
		return d.Goal.Overhead
	}
	f, why := suggestedFraming(outside, d.facts)
	if why != "" {
		d.note("framing", "each packet counts for %s. Why: %s. If the provider counts otherwise: --overhead, as "+
			"tc-cake(8) has it. (%s)", framingText(f), why, framingEvidence.quoted())
	}
	return f
}

// suggestedFraming is what a kind of device suggests, and why where that is not what it is handed.
func suggestedFraming(l host.Link, f host.Facts) (qdisc.Framing, string) {
	ethernet := qdisc.Framing{Overhead: 38, ATM: "noatm", MPU: 84} // tc-cake(8): header, FCS, preamble and gap
	switch {
	case l.Kind == "ppp":
		return qdisc.Framing{Overhead: pppFrames, ATM: "noatm"}, "behind PPP is a modem, whose framing is not seen"
	case l.Kind == "vlan":
		below, _ := f.Link(l.Parent)
		suggested, why := suggestedFraming(below, f)
		if suggested.Raw {
			suggested = qdisc.Framing{Overhead: wire.EthernetHeader, ATM: "noatm"}
		}
		suggested.Overhead += wire.VLANTag
		if why == "" {
			why = "the tag of the VLAN is added below " + l.Name
		}
		return suggested, why
	case l.Kind == "bond" || l.Kind == "team" || l.Kind == "bridge":
		for _, port := range f.Links {
			if port.Master == l.Name && isPhysicalCard(port) {
				return suggestedFraming(port, f)
			}
		}
	case isPhysicalCard(l):
		return ethernet, "behind a card of a machine's own is a switch's port, which may count what is on the wire"
	}
	return qdisc.AsHanded(), ""
}

// isPhysicalCard tells a card of a machine's own from a virtual machine's, and from devices that are software.
func isPhysicalCard(l host.Link) bool {
	virtual := []string{"virtio_net", "vif", "vmxnet3", "hv_netvsc", "ena", "gve", "mana", "uml-vector"}
	return l.Kind == "" && l.Driver != "" && l.MAC != "" && !slices.Contains(virtual, l.Driver)
}

// framingText says a framing in a sentence.
func framingText(f qdisc.Framing) string {
	text := fmt.Sprintf("%d bytes more than its IP part", f.Overhead)
	if f.MPU != 0 {
		text += fmt.Sprintf(", and for %d at least", f.MPU)
	}
	return text
}

// tunnelFraming is a framing around a tunnel's packets, whose own headers are bytes besides.
func tunnelFraming(f qdisc.Framing, bytes int) qdisc.Framing {
	if f.Raw { // what is handed to the device below has an Ethernet header
		f.Raw, f.Overhead = false, f.Overhead+wire.EthernetHeader
	}
	f.Overhead += int32(bytes)
	return f
}

// htb has about two packets of credit, and sends one per turn: with more it is not the limiter that was meant. It
// counts a superpacket's framing once and not for each of its segments (net/sched/sch_htb.c), so its rate is lower by
// what full packets need.
func (d *draft) htb(rate units.Rate) qdisc.Stack {
	f, q := d.framing(), qdisc.New[qdisc.HTB]()
	counted := float64(d.link.MTU + wire.EthernetHeader)
	q.Overhead, q.MPU, q.ATM = uint16(max(f.More(), 0)), uint16(f.MPU), f.ATM == "atm"
	if q.ATM {
		counted *= wire.CellRatio
	}
	if wire := f.Wire(d.link.MTU); wire > counted {
		rate = part(counted/wire, rate)
	}
	packet := d.link.MTU + wire.EthernetHeader
	q.Rate, q.Ceil = rate, rate
	q.Burst, q.CBurst, q.Quantum = units.Size(2*packet), units.Size(2*packet), uint32(packet)
	return qdisc.Stack{q}
}
