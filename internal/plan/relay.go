// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"slices"
	"strings"

	"weir/internal/hint"
	"weir/internal/host"
	"weir/internal/kernel"
	"weir/internal/qdisc"
	"weir/internal/text"
	"weir/internal/units"
	"weir/internal/wire"
)

// Kinds are what a relay carries, as names with commas between: "wireguard,proxy". A string, so that goals can be
// compared.
type Kinds string

// routes is what a router does: what leaves by the uplink has come in by another card.
const routes Kind = "route"

// knownKinds are all that can be asked for.
func knownKinds() []string {
	var names []string
	for _, k := range []Kind{
		routes, Forwards, WireGuard, OVPN, XFRM, "ipip", "gre", "ip6gre", "sit", "ip6tnl", "vxlan", "geneve", Tunnel,
		Proxy,
	} {
		names = append(names, string(k))
	}
	return names
}

func kindsOf(list []Kind) Kinds {
	var names []string
	for _, k := range list {
		names = append(names, string(k))
	}
	return Kinds(strings.Join(names, ","))
}

func (k Kinds) list() (all []Kind) {
	if k == "" {
		return nil
	}
	for _, name := range strings.Split(string(k), ",") {
		all = append(all, Kind(name))
	}
	return all
}

// has reports whether a kind is among them.
func (k Kinds) has(kind Kind) bool { return slices.Contains(k.list(), kind) }

// oneCard reports whether what leaves by the uplink has come in by it.
func (k Kinds) oneCard() bool { return k != "" && k != Kinds(routes) }

// forwards reports whether the kernel sends on what comes, whatever it packs it in. What a proxy sends is its own.
func (k Kinds) forwards() bool {
	return slices.ContainsFunc(k.list(), func(x Kind) bool { return x != Proxy })
}

// meant is what to say in place of a name that is none. Programs that make a tunnel themselves are all of one kind.
func (k Kind) meant() string {
	if slices.Contains([]Kind{"openvpn", "tailscale", "tinc", "zerotier", "nebula", "softether", "tun"}, k) {
		return "--carries tunnel, for a tunnel of a program's own"
	}
	if kind, ok := map[Kind]Kind{"ipsec": XFRM, "ikev2": XFRM, "strongswan": XFRM, "vti": XFRM, "wg": WireGuard,
		"nat": routes, "router": routes, "routing": routes}[k]; ok {
		return "--carries " + string(kind)
	}
	if near := text.Nearest(string(k), knownKinds()); near != "" {
		return "--carries " + near
	}
	return "one or more, with commas between, of " + strings.Join(knownKinds(), ", ")
}

func (k Kinds) check() error {
	seen := map[Kind]bool{}
	for _, kind := range k.list() {
		if !slices.Contains(knownKinds(), string(kind)) || seen[kind] {
			return &hint.Error{
				What: fmt.Sprintf("--carries %q: %q is not known, or said twice", string(k), string(kind)),
				Try:  kind.meant(), Usage: true}
		}
		seen[kind] = true
	}
	return nil
}

// configuredKinds is what a host that is said to be a relay is set up to carry, traffic or not: its tunnels, its
// proxies, and else what it routes. Nothing of it has to be asked. Traffic decides only what set-up cannot tell:
// whether what a router sends came by another card.
func configuredKinds(f host.Facts) Kinds {
	var kinds []Kind
	add := func(k Kind) {
		if !slices.Contains(kinds, k) {
			kinds = append(kinds, k)
		}
	}
	kindOf, proxies := tunnelKind, false
	for _, r := range f.Relays {
		if r.Kind == host.TunnelProgram {
			kindOf = possibleTunnelKind
		}
		proxies = proxies || r.Kind == host.ProxyProgram
	}
	for _, l := range f.Links {
		if l.Up && l.Name != f.Uplink && l.Master == "" {
			if kind := kindOf(l); kind != "" {
				add(kind)
			}
		}
	}
	carried := Carries(f)
	for _, kind := range carried.Kinds {
		if carried.Relay() && kind != Forwards {
			add(kind)
		}
	}
	switch {
	case len(kinds) > 0:
	case carried.Relay() && carried.Has(Forwards):
		add(Forwards)
	case !f.Forwards():
	case len(carried.Kinds) > 0 && !carried.OneCard || otherCard(f):
		add(routes)
	default:
		add(Forwards)
	}
	if proxies || len(kinds) == 0 {
		kinds = slices.DeleteFunc(kinds, func(k Kind) bool { return k == routes })
		add(Proxy)
	}
	slices.SortFunc(kinds, func(a, b Kind) int { return a.order() - b.order() })
	return kindsOf(kinds)
}

// otherCard reports whether there is another link like the uplink, with an address.
func otherCard(f host.Facts) bool {
	up, ok := f.Link(f.Uplink)
	return ok && slices.ContainsFunc(f.Links, func(l host.Link) bool {
		return l.Kind == up.Kind && l.Name != up.Name && l.Up && !l.Loopback && l.Master == "" && len(l.Addrs) > 0
	})
}

// AsSeen fills in the role that a host is seen to have, where the goal does not say one. A relay that takes a
// server's plan has its queue at the provider afterwards as before. It is an error if the signs are such that nobody
// but a person can tell.
func (g Goal) AsSeen(f host.Facts) (Goal, []Note, error) {
	role := func(text string, args ...any) []Note { return []Note{{"role", fmt.Sprintf(text, args...), Role}} }
	if g.Recipe != "" || g.Only || g.Qdisc != "" || g.Dev != "" && g.Dev != f.Uplink {
		return g, nil, nil
	}
	carried := Carries(f)
	seen := strings.Join(carried.Seen, " ")
	switch {
	case g.Role == "server" && (carried.Relay() || carried.Has(Forwards)):
		return g, role("server, as asked. This host carries for others, though: %s Their queue stands in the "+
			"provider's box on the way in. weir plan --role relay owns that, too", seen), nil
	case g.Role == "relay" && g.Carries == "":
		g.Carries = configuredKinds(f)
		return g, role("relay, carrying %s, as the host is set up. To say otherwise: --carries", g.Carries), nil
	case g.Role != "" || g.Rate == 0:
		return g, nil, nil
	case carried.Relay():
		g.Role, g.Carries = "relay", configuredKinds(f)
		return g, role("looks like a one-card relay: %s Use --role server to override", seen), nil
	case f.Forwards():
		if kinds := configuredKinds(f); len(tunnelsOf(kinds)) > 0 {
			return g, nil, &hint.Error{
				What: fmt.Sprintf("this host forwards and has a tunnel (%s): it may be a relay, whose queue a "+
					"server's plan does not own", kinds),
				Try: "--role relay, or --role server if the tunnel carries little",
			}
		}
	}
	return g, nil, nil
}

// Tunnels reports whether there is a tunnel among them, the kernel's or a program's.
func (k Kinds) Tunnels() bool { return len(tunnelsOf(k)) > 0 }

func tunnelsOf(k Kinds) []Kind {
	return slices.DeleteFunc(k.list(), func(k Kind) bool { return k == routes || k == Forwards || k == Proxy })
}

/*
What leaves a relay with one card has just come in by it. So the provider's queue towards it is the first that
fills, and a shaper of what leaves the second: it owns both queues only if it is slower than what comes in by enough
that its queue, and not the provider's, takes up what senders add from one RTT to the next. 3 % less keeps four
cubic flows of one client here; 6 % halves what is left with a dozen flows of three clients or with uploads
(results/relay.md).

A tunnel makes packets larger on one side. What arrives in it leaves smaller, so the way in is tighter by the ratio
of the two sizes. A share of that costs the same part of what the link can carry whichever way it goes.

Two things a shaper of what leaves cannot own. Who sends to a proxy has the proxy's buffers between him and what
leaves, and does not slow down for that. And what a program puts into a tunnel is one flow by then: everybody in it
waits for everybody. Both are shaped where they arrive, with what comes by a tunnel unpacked first, so that there,
too, each connection is a flow of its own.
*/
const (
	relayShare = 0.94 // of what comes in, counted in the larger size of its packets
	// of the same for the kernel's own tunnels: downloads have the ratio of sizes for a margin besides
	margin     = 0.97
	proxyShare = 0.90 // of what comes in, where connections end here: who sends slows down a whole path's RTT later
	usualShare = 9975 // of 10000, of what leaves where nothing of it came in by the same card
)

// More would only add to the delay of flows that nothing else holds back, as QUIC's.
const relayInterval = units.Duration(500e6)

// A tunnel that cannot be unpacked is one flow to each peer, whose queue is many connections' queue and holds their
// keystrokes, too. With a target of a tenth of a second's twentieth it costs 1 % of goodput; with this one none.
const packedInterval = units.Duration(200e6)

// overhead is what a kind of tunnel adds to a packet, in bytes, with IPv4 outside: the outer headers, and what fills
// a block up on average.
func overhead(k Kind) int {
	switch k {
	case WireGuard, Tunnel: // IP 20, UDP 8, WireGuard 32 (whitepaper, section 5.4.6); OpenVPN's is within 10 of that
		return 60
	case OVPN: // IP 20, UDP 8, opcode and peer 4, packet ID 4, AEAD tag 16
		return 52
	case XFRM: // IP 20, ESP 8, IV 8, padding and trailer 2 to 5, ICV 16; UDP 8 through NAT
		return 62
	case "vxlan", "geneve": // IP 20, UDP 8, 8, and the inner Ethernet header 14
		return 50
	case "gre", "ip6gre": // IP 20, GRE 4 to 8
		return 28
	case "ipip", "sit", "ip6tnl":
		return 20
	}
	return 0
}

// wgQuick is what wg-quick(8) leaves for the outside of a tunnel, in bytes, whichever version of IP that is.
const wgQuick = 80

// outside is what IPv6 outside a tunnel adds to that, in bytes.
const outside6 = 20

// ratio is the worst of the sizes of packets outside a tunnel and inside, over what is carried.
func (d *draft) ratio() float64 {
	ratio := 1.0
	v4 := slices.ContainsFunc(d.link.Addrs, func(a string) bool { return strings.Contains(a, ".") })
	for _, kind := range d.Goal.Carries.list() {
		bytes := overhead(kind)
		if bytes == 0 {
			continue
		}
		if !v4 && len(d.link.Addrs) > 0 {
			bytes += outside6
		}
		inner := d.link.MTU - bytes
		if kind == WireGuard {
			inner = min(inner, d.link.MTU-wgQuick) // also while there is none: nothing drifts with it
		}
		for _, l := range d.facts.Links {
			if possibleTunnelKind(l) == kind && l.MTU > 0 {
				inner = min(inner, l.MTU)
			}
		}
		ratio = max(ratio, float64(inner+wire.EthernetHeader+bytes)/float64(inner+wire.EthernetHeader))
	}
	return ratio
}

// Inward is what comes in at most, in bit/s.
func (g Goal) Inward() units.Rate {
	if g.Ingress != 0 {
		return g.Ingress
	}
	return g.Rate
}

// part of a rate, to the kbit.
func part(share float64, r units.Rate) units.Rate { return units.Rate(share*float64(r)) / 1000 * 1000 }

// relayed plans the queue of what leaves a relay with one card. Where all is shaped as it arrives, what leaves needs
// no margin of its own.
func (d *draft) relayed() error {
	g := d.Goal
	if g.Follow != "" && (g.Carries.has(Proxy) || g.Carries.has(Tunnel)) {
		return &hint.Error{What: fmt.Sprintf("--follow was measured for NAT and the kernel's tunnels, not for proxies "+
			"and programs' tunnels, and this relay carries: %s", strings.ReplaceAll(string(g.Carries), ",", ", ")),
			Try: "the same without --follow"}
	}
	d.kindNotes()
	rate, reason := shapedRate(g.Rate), hereReason(g.Rate)
	if how := d.arriving(); how.wanted && how.why == "" {
		reason += "; the queue of incoming traffic is owned where it arrives"
	} else if g.Carries.forwards() {
		ratio := d.ratio()
		share := min(relayShare, margin/ratio)
		if own := part(share, g.Inward()); own < rate {
			rate = own
			reason = fmt.Sprintf("both ways packets wait here and not at the provider. What leaves has come in by "+
				"%s, so %.3g %% "+
				"of the %s that come in keep that way's queue empty, too; this gives up %.2g %% of goodput",
				d.link.Name, 100*share, g.Inward(), 100-100*relayShare)
		} else {
			reason += fmt.Sprintf(", so much less than the %s that come in that this owns both ways", g.Inward())
		}
	}
	q := d.newCake(rate, d.relayInterval())
	if g.FairTo == "src" {
		q.FlowMode, q.NAT = dualSrc, true
	}
	stack, reason, err := d.relayStack(q, reason)
	if err != nil {
		return err
	}
	return d.root(stack, reason, g.Carries.evidence())
}

// Owns says, of a relay's goal that is in force, which queues are here, and what that costs. "" of any other.
func Owns(g Goal, f host.Facts) string {
	link, _ := f.Link(g.Dev)
	if !g.Carries.oneCard() || g.Rate == 0 || g.Qdisc != "" {
		return ""
	}
	d := &draft{Goal: g, facts: f, link: link}
	how := d.arriving()
	now := kernel.IncomingAt(f, g.Dev)
	if !f.Admin && len(now.Tunnels) == 0 && len(how.tunnels) > 0 {
		how.why = "root did not unpack them"
	}
	switch {
	case how.wanted && g.Carries.Tunnels() && how.why == "":
		return "Incoming and outgoing traffic both wait here, each connection by itself, also of what comes by a " +
			"tunnel. This gives up 6 to 10 % of goodput."
	case how.wanted && (g.Carries.has(Proxy) || how.why == ""):
		return fmt.Sprintf("Incoming and outgoing traffic both wait here. This gives up %.0f %% of goodput.",
			100-100*how.share)
	case part(min(relayShare, margin/d.ratio()), g.Inward()) < shapedRate(g.Rate):
		return "What leaves has come in by the same card, and is slow enough that both ways wait here. This gives " +
			"up 6 % of goodput."
	}
	return "What comes in is so much faster than what leaves that both ways wait here."
}

// relayInterval is CAKE's for a relay.
func (d *draft) relayInterval() units.Duration {
	most := relayInterval
	if how := d.arriving(); d.Goal.Carries.has(Tunnel) && how.why != "" {
		most = packedInterval
	}
	return min(intervalFor(d.Goal.RTT), most)
}

// relayStack is CAKE or, without it, what comes nearest.
func (d *draft) relayStack(q qdisc.Cake, reason string) (qdisc.Stack, string, error) {
	switch {
	case d.takes("cake"):
		return qdisc.Stack{q}, reason, nil
	case d.takes("htb", "fq_codel"):
		return append(d.htb(q.Bandwidth), fqCodel(q.RTT)), d.withoutCAKE(reason), nil
	}
	return nil, "", d.noShaper("choose with --qdisc (this kernel has: " + d.kinds() + ")")
}

// inbound is how what arrives is shaped: not at all, as it comes, or with tunnels unpacked. Why is what is in the way.
type inbound struct {
	wanted  bool
	share   float64
	tunnels []string
	outer   []qdisc.Outer
	why     string
}

// arriving decides on that. All tunnels are unpacked, or none: what is left packed would wait as one flow.
func (d *draft) arriving() inbound {
	k := d.Goal.Carries
	a := inbound{wanted: k.has(Proxy) || k.has(Tunnel), share: proxyShare}
	if !a.wanted || len(tunnelsOf(k)) == 0 {
		return a
	}
	a.share = min(proxyShare, relayShare/d.ratio())
	const untold = "in which packets %s is carried cannot be told"
	tap := ""
	for _, l := range d.facts.Links {
		if !d.unpacks(l) || !l.Up {
			continue
		}
		ports := qdisc.ParseOuters(l.Ports)
		if d.facts.Admin && l.MAC != "" && len(ports) == 0 {
			tap = l.Name // a virtual machine's, where there is another
			continue
		}
		switch {
		case foreignIngress(l):
			a.why = "somebody else has filters or a redirection for what comes out of " + l.Name
		case !qdisc.PlainName(l.Name):
			a.why = fmt.Sprintf("the name %q cannot be written in a plan", l.Name)
		case !d.facts.Admin: // whoever is tells
		case len(ports) == 0:
			a.why = fmt.Sprintf(untold, l.Name)
		}
		a.tunnels, a.outer = append(a.tunnels, l.Name), append(a.outer, ports...)
	}
	if tap != "" && len(a.tunnels) == 0 {
		a.why = fmt.Sprintf(untold, tap)
	}
	if d.facts.Unpack == host.No {
		a.why = fmt.Sprintf("kernel %s has not all of %s", d.facts.Kernel, strings.Join(host.UnpackModules(), ", "))
	}
	return a
}

// unpacks reports whether a link is one of the tunnels that are unpacked. What is a bridge's port is a virtual
// machine's.
func (d *draft) unpacks(l host.Link) bool {
	kind := possibleTunnelKind(l)
	return kind != "" && d.Goal.Carries.has(kind) && l.Name != d.link.Name && l.Master == ""
}

// foreignIngress reports whether somebody else has a say in what comes out of a device before us. Plain filters come
// first there, and stay; to those that are shared with other devices the kernel adds none of one alone.
func foreignIngress(l host.Link) bool {
	return l.Redirect != "" && l.Redirect != host.Gone && !qdisc.IsIFB(l.Redirect) ||
		slices.ContainsFunc(l.Tree.Qdiscs, func(q qdisc.Qdisc) bool {
			return q.Parent == qdisc.Ingress && (q.Kind != "ingress" || q.IngressBlock != 0)
		})
}

// ShapesArriving reports whether a goal has a queue for what arrives without being told how fast that is.
func (g Goal) ShapesArriving() bool {
	return g.Rate != 0 && g.Qdisc == "" && (g.Carries.has(Proxy) || g.Carries.has(Tunnel))
}

// Settled reports whether the tunnels that a goal unpacks are up and say in what they come, and whether its device has
// the peers that it names. One that was made a moment ago does none of that.
func Settled(g Goal, f host.Facts) bool {
	link, _ := f.Link(g.Dev)
	if _, missing, _ := g.Client.of(link); len(missing) > 0 {
		return false
	}
	d := &draft{Goal: g, facts: f, link: link}
	return !g.ShapesArriving() || !slices.ContainsFunc(f.Links, func(l host.Link) bool {
		told := l.Kind == "wireguard" || l.Kind == "tuntap" // of others nobody is
		return told && d.unpacks(l) && (!l.Up || len(l.Ports) == 0)
	})
}

// WithoutIngress says how to ask for the same without a queue for what arrives.
func (g Goal) WithoutIngress() string {
	if g.ShapesArriving() {
		return "--role relay --carries forward, which shapes what leaves alone"
	}
	return "without --ingress"
}

// endsHere plans the queue of what arrives at a relay.
func (d *draft) endsHere() error {
	g, how := d.Goal, d.arriving()
	if how.why != "" && !g.Carries.has(Proxy) {
		d.note("tunnel", "incoming traffic is not shaped: %s. Everybody inside waits for everybody, 10 to 30 ms at "+
			"most times and 100 or more at some", how.why)
		return nil
	}
	if how.why != "" {
		how.tunnels = nil
		d.note("tunnel", "shaped packed, as one flow a peer: %s. Keystrokes in it wait for its uploads", how.why)
	}
	switch tunnels := g.Carries.Tunnels(); {
	case tunnels && len(how.tunnels) == 0 && how.why == "":
		d.note("tunnel", "no device of it is up now, so nothing is unpacked: weir up again when it is")
	case tunnels && !d.facts.Admin:
		d.note("tunnel", "in what packets it comes only root is told")
	}
	what := "What a proxy sends is its own, so no share of what leaves slows down those who send to it"
	if g.Carries.has(Tunnel) {
		what = "What a program puts into a tunnel is one flow when it leaves; here each connection is one"
	}
	q := d.newCake(part(how.share, g.Inward()), d.relayInterval())
	q.NAT, q.Ingress = true, true
	stack, reason, err := d.relayStack(q, fmt.Sprintf("incoming traffic waits here and not at the provider. %s. "+
		"%.3g %% of the %s that come in keep the provider's queue empty", what, 100*how.share, g.Inward()))
	if err != nil {
		return err
	}
	return d.ingress(qdisc.NewArriving(stack, how.tunnels, how.outer), reason, g.Carries.evidence())
}

// kindNotes says what of a relay no queue can mend.
func (d *draft) kindNotes() {
	k := d.Goal.Carries
	for _, kind := range k.list() {
		switch kind {
		case XFRM:
			d.note("xfrm", "fair queueing reorders what is inside one security association: give it a replay "+
				"window of 1024 packets or more")
		case Proxy:
			d.note("proxy", "it can be fair to connections, not to clients: which client an arriving packet is "+
				"for, only the program knows")
			if d.facts.MPTCP > 0 {
				d.note(notsentLowat, "a program here listens by MPTCP, as Go's do by default, and what it accepts "+
					"ignores this setting: GODEBUG=multipathtcp=0 for its service")
			}
		}
	}
	if d.Goal.NAT {
		d.note("--nat", "not set for what leaves %s: %v", d.link.Name, natOptionEvidence)
	}
	if !k.has(Proxy) && !k.has(Tunnel) {
		d.note("own traffic", "what this host itself downloads still queues at the provider; if it does that for "+
			"long: --carries %s", kindsOf(append(k.list(), Proxy)))
	}
}

// evidence is what was measured of the kind that asks most of a plan.
func (k Kinds) evidence() string {
	switch {
	case k.has(Proxy) && k.Tunnels():
		return mixedEvidence.String()
	case k.has(Proxy):
		return proxyEvidence.String()
	case k.has(Tunnel):
		return tunnelEvidence.String()
	case k.Tunnels():
		return wireguardEvidence.String()
	}
	return natEvidence.String()
}
