// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"weir/internal/host"
	"weir/internal/text"
)

// Kind is a way in which a host carries what others send. A tunnel of the kernel's that has no name here is called as
// its links are: "ipip", "gre", "ip6gre", "sit", "ip6tnl", "vxlan", "geneve".
type Kind string

const (
	Forwards  Kind = "forward"   // routed or translated, and nothing is encapsulated here
	WireGuard Kind = "wireguard" // in the kernel
	OVPN      Kind = "ovpn"      // OpenVPN's data channel in the kernel
	XFRM      Kind = "xfrm"      // IPsec by a device of its own; what policies alone encrypt looks like Forwards
	Tunnel    Kind = "tunnel"    // a program's, by a tun or tap device
	Proxy     Kind = "proxy"     // connections end here, and others carry on
)

// order is that in which kinds are told.
func (k Kind) order() int {
	if i := slices.Index([]Kind{Forwards, WireGuard, OVPN, XFRM}, k); i >= 0 {
		return i
	}
	if i := slices.Index([]Kind{Tunnel, Proxy}, k); i >= 0 {
		return 100 + i
	}
	return 50
}

// Carried is what a host is seen to carry for others.
type Carried struct {
	Kinds   []Kind   `json:"kinds,omitempty"`
	Seen    []string `json:"seen,omitempty"` // of each kind, how it shows
	OneCard bool     `json:"one_card"`       // what leaves by the uplink has come in by it
	Sure    bool     `json:"sure"`           // enough to choose a role by; else one sign alone says so
}

// has reports whether a kind is among them.
func (c Carried) Has(k Kind) bool { return slices.Contains(c.Kinds, k) }

// Relay reports whether the host is surely one whose two legs share a network card.
func (c Carried) Relay() bool { return len(c.Kinds) > 0 && c.OneCard && c.Sure }

// Carries returns what a host is seen to carry for others, from counters since the boot. What a host is only set up for
// does not count: a switch for forwarding, a tunnel without traffic. A proxy is sure only where f.Deep has the live
// connections.
func Carries(f host.Facts) Carried {
	v := trafficOf(f)
	if min(v.rx, v.tx) < enoughBytes {
		return Carried{}
	}
	// What goes to containers and virtual machines ends on this host, and their bytes say so whichever way they went.
	near := areAlike(v.rx, v.tx)
	routed := areAlike(v.rx, v.cardsTx) && areAlike(v.tx, v.cardsRx)
	inside := v.local/v.bytes() > 0.05
	switch {
	case v.local/v.bytes() >= 0.5 || inside && !near:
		return Carried{}
	case routed:
		near = true
	case (v.cardsRx+v.cardsTx)/v.bytes() >= 0.5:
		near = false
	}
	c := Carried{OneCard: near && !routed}
	if forwards := v.forwarded > v.in/2; forwards {
		c.Sure = near && !inside
		v.forwarding(&c)
	}
	v.proxying(f, &c, near)
	if len(c.Kinds) == 0 {
		return Carried{}
	}
	return c
}

const (
	enoughBytes = 16e6 // on the uplink, each way: less than that says nothing
	alikeRatio  = 0.8  // of two counts, the smaller by the larger: they are taken for the same traffic
)

func areAlike(a, b float64) bool { return a > 0 && b > 0 && min(a, b)/max(a, b) >= alikeRatio }

// seen is what counters tell of a host's traffic, in bytes and packets.
type seen struct {
	rx, tx           float64 // of the uplink
	local            float64 // both ways, of what leads to containers and virtual machines
	cardsRx, cardsTx float64 // of other network cards
	in, forwarded    float64 // packets, without those that came over loopback, or in a packet that is counted already
	ends             float64 // segments of TCP for sockets, without those over loopback
	tunnels          []carrier
	programs         map[string][]string // by their kind
}

// carrier is a tunnel's link.
type carrier struct {
	kind  Kind
	link  host.Link
	bytes float64 // both ways
}

func (v seen) bytes() float64 { return v.rx + v.tx }

// ProgramTunnels are the links of tunnels that programs make, as far as they have carried something.
func ProgramTunnels(f host.Facts) (links []host.Link) {
	for _, t := range trafficOf(f).tunnels {
		if t.kind == Tunnel {
			links = append(links, t.link)
		}
	}
	return links
}

func trafficOf(f host.Facts) seen {
	v := seen{programs: map[string][]string{}}
	for _, r := range f.Relays {
		v.programs[r.Kind] = append(v.programs[r.Kind], r.Name)
	}
	up, ok := f.Link(f.Uplink)
	if !ok || tunnelKind(up) != "" {
		return v // what a tunnel carries is for the card below it to judge
	}
	v.rx, v.tx = float64(up.RxBytes), float64(up.TxBytes)
	below := linksBelow(f, up)
	loopback, inner := 0.0, 0.0
	kindOf := tunnelKind
	if len(v.programs[host.TunnelProgram]) > 0 {
		kindOf = possibleTunnelKind
	}
	for _, l := range f.Links {
		rx, tx := float64(l.RxBytes), float64(l.TxBytes)
		kind := kindOf(l)
		switch {
		case l.Loopback:
			loopback += float64(l.RxPkts)
		case l.Name == up.Name || !l.Up || l.Master != "" || slices.Contains(below, l.Name):
		case kind != "":
			inner += float64(l.RxPkts)
			if l.RxBytes > 0 || l.TxBytes > 0 {
				v.tunnels = append(v.tunnels, carrier{kind, l, rx + tx})
			}
		case slices.Contains([]string{"bridge", "veth", "netkit", "tuntap", "macvtap"}, l.Kind):
			v.local += rx + tx
		case slices.Contains([]string{"", "bond", "team", "vlan"}, l.Kind):
			v.cardsRx += rx
			v.cardsTx += tx
			if l.Kind == "vlan" && l.Parent == up.Name { // counted there, too
				v.rx, v.tx = max(v.rx-rx, 0), max(v.tx-tx, 0)
			}
		}
	}
	p := f.Passing
	v.forwarded = float64(p.IPForwarded)
	v.in = max(float64(p.IPIn)-loopback-inner, v.forwarded, 1)
	v.ends = min(max(float64(p.TCPIn)-loopback, 0), v.in)
	return v
}

// linksBelow are the links that an uplink is made on, such as a VLAN's card: what passes the one is counted at both.
func linksBelow(f host.Facts, up host.Link) (names []string) {
	for parent, ok := f.Link(up.Parent); ok && !slices.Contains(names, parent.Name); parent,
		ok = f.Link(parent.Parent) {
		names = append(names, parent.Name)
	}
	return names
}

// possibleTunnelKind is tunnelKind, but takes a tap device for a tunnel's, too. It is one where a program runs that
// makes tunnels, and a virtual machine's elsewhere.
func possibleTunnelKind(l host.Link) Kind { return Kind(l.Tunnel()) }

// tunnelKind is the kind of tunnel that a link is; "" if it is none, or a tap device. A tun device has no address of
// Ethernet's, and is always a tunnel's.
func tunnelKind(l host.Link) Kind {
	if l.Kind == "tuntap" && l.MAC != "" {
		return ""
	}
	return possibleTunnelKind(l)
}

// forwarding adds the kinds by which packets are forwarded. Each byte passes the one card twice.
func (v seen) forwarding(c *Carried) {
	passed, encapsulated := v.bytes(), 0.0
	if c.OneCard {
		passed /= 2
	}
	names, bytes := map[Kind][]string{}, map[Kind]float64{}
	for _, t := range v.tunnels {
		names[t.kind] = append(names[t.kind], t.link.Name)
		bytes[t.kind] += t.bytes
		encapsulated += t.bytes
	}
	var kinds []Kind
	for kind, b := range bytes {
		const some = 0.05 // of what passes: what is less is no reason to plan for it
		if b/passed >= some {
			kinds = append(kinds, kind)
		}
	}
	slices.SortFunc(kinds, func(a, b Kind) int { return cmp.Or(a.order()-b.order(), cmp.Compare(a, b)) })
	if len(kinds) == 0 || encapsulated/passed < 0.5 {
		kinds = slices.Insert(kinds, 0, Forwards)
	}
	for _, kind := range kinds {
		says := fmt.Sprintf("%.0f %% of the packets that came were forwarded.", 100*v.forwarded/v.in)
		if kind != Forwards {
			says = fmt.Sprintf("%s carried %s.", strings.Join(names[kind], ", "), text.Bytes(bytes[kind]))
		}
		if programs := v.programs[host.TunnelProgram]; kind == Tunnel && len(programs) > 0 {
			says = fmt.Sprintf("%s carried %s; %s.", strings.Join(names[kind], ", "), text.Bytes(bytes[kind]),
				runningText(programs))
		}
		c.Kinds, c.Seen = append(c.Kinds, kind), append(c.Seen, says)
	}
}

// proxying adds a proxy: much of what comes is for sockets, and it leaves again.
func (v seen) proxying(f host.Facts, c *Carried, near bool) {
	const much = 0.25 // of the packets
	if !near || v.ends/v.in < much {
		return
	}
	pairs := f.Deep != nil && f.Deep.Sockets.Passed >= alikeRatio
	programs := v.programs[host.ProxyProgram]
	var signs []string
	if pairs {
		signs = append(signs, fmt.Sprintf("Accepted connections carry %.0f %% of what dialled ones do.",
			100*f.Deep.Sockets.Passed))
	}
	if len(programs) > 0 {
		signs = append(signs, fmt.Sprintf("%.0f %% of the packets that came were for sockets of TCP; %s.",
			100*v.ends/v.in, runningText(programs)))
	}
	if len(signs) == 0 {
		return
	}
	c.Kinds, c.Seen = append(c.Kinds, Proxy), append(c.Seen, strings.Join(signs, " "))
	c.Sure = c.Sure || pairs
}

// runningText says that programs run.
func runningText(names []string) string {
	if len(names) == 1 {
		return names[0] + " runs"
	}
	return strings.Join(names, ", ") + " run"
}
