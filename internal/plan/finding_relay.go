// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"weir/internal/host"
	"weir/internal/qdisc"
	"weir/internal/text"
	"weir/internal/units"
)

const (
	planRelay = "weir plan --role relay --rate RATE"
	relayPlan = planRelay + "    with what the provider sold"
)

// Scenarios that show what holds for each kind of relay.
const (
	natScenario       = "scenarios/relay/nat.toml"
	wireguardScenario = "scenarios/relay/wireguard.toml"
	tunnelScenario    = "scenarios/relay/tunnel.toml"
	proxyScenario     = "scenarios/relay/proxy.toml"
)

// evidence is the scenario of the kind that asks most of a plan.
func (c Carried) evidence() string {
	switch {
	case c.Has(Proxy):
		return proxyScenario
	case c.Has(Tunnel):
		return tunnelScenario
	case c.Has(WireGuard):
		return wireguardScenario
	}
	return natScenario
}

// words name what is carried, as a person would.
func (d *diagnosis) words() string {
	programs := func(kind string) (names []string) {
		for _, r := range d.Relays {
			if r.Kind == kind {
				names = append(names, r.Name)
			}
		}
		return names
	}
	var words []string
	for _, k := range d.carried.Kinds {
		switch k {
		case Forwards:
			words = append(words, "routed packets")
		case WireGuard:
			words = append(words, "WireGuard")
		case OVPN:
			words = append(words, "OpenVPN in the kernel")
		case XFRM:
			words = append(words, "IPsec")
		case Tunnel:
			words = append(words, of("a program's tunnel", programs(host.TunnelProgram)))
		case Proxy:
			words = append(words, of("a proxy's connections", programs(host.ProxyProgram)))
		default:
			words = append(words, string(k))
		}
	}
	return strings.Join(words, " and ")
}

func of(what string, names []string) string {
	if len(names) == 0 {
		return what
	}
	return fmt.Sprintf("%s (%s)", what, strings.Join(names, ", "))
}

// relay says that the host is one, and on which side of its only card the queue stands.
func (d *diagnosis) relay() {
	c := d.carried
	if len(c.Kinds) == 0 {
		return
	}
	f := Finding{Severity: Fine, Title: "This host passes on what others send: " + d.words() + "."}
	f.Seen = strings.Join(c.Seen, " ") + fmt.Sprintf(" %s received %s and sent %s.", d.link.Name,
		text.Bytes(float64(d.link.RxBytes)), text.Bytes(float64(d.link.TxBytes)))
	if !c.OneCard {
		d.add(f)
		return
	}
	f.Title = "This host passes on what others send: " + d.words() + ", on one network card."
	if !c.Sure {
		f.Title = "This host may pass on what others send: " + d.words() + ", on one network card."
	}
	rate, arriving := d.shaper(), d.arriving()
	if rate != 0 {
		f.Seen += fmt.Sprintf(" %s shapes what leaves to %s.", d.shaperName(), rate)
	}
	if arriving != 0 {
		f.Seen += fmt.Sprintf(" What arrives is shaped to %s.", arriving)
	}
	ends := c.Has(Tunnel) || c.Has(Proxy)
	harm := d.soldAlmost(rate) || d.queueing() && d.elsewhere()
	if rate != 0 && (arriving != 0 || !ends && !harm) {
		if arriving == 0 {
			f.Seen += " That is right as long as it is " + c.share() + " of what the provider sold, or less."
		}
		d.add(f)
		return
	}
	f.Severity, f.Try, f.Evidence = Notable, relayPlan, c.evidence()
	f.Why = "What you send has just come in by the same card, so the queue stands in your provider's box on the way in."
	switch {
	case arriving != 0:
		f.Why = "What arrives waits here, and what leaves does not: shape both."
	case rate != 0 && ends:
		f.Why += " What ends on this host is not held back by a shaper on what leaves."
	case rate != 0:
		f.Why += " Shaping what leaves reaches it at " + c.share() + " of the provider's rate, or less."
	default:
		f.Why += " Shaping what leaves at 99.75 % does not reach it."
	}
	if c.Sure && harm {
		f.Severity = Harmful
	}
	d.add(f)
}

// share is how much of the provisioned rate may leave, for the queue of what comes in to run empty.
func (c Carried) share() string {
	if len(c.Kinds) == 1 && c.Has(Forwards) {
		return "94 %"
	}
	return "93 %"
}

// soldAlmost tells whether a rate is known to be nearly all that the provider sold, which the goal that is kept says.
func (d *diagnosis) soldAlmost(rate units.Rate) bool {
	const nearly = 0.98
	goals, err := ParseGoals(d.Files[host.GoalFile].Text)
	return err == nil && slices.ContainsFunc(goals, func(g Goal) bool {
		return (g.Dev == "" || g.Dev == d.link.Name) && g.Rate != 0 && float64(rate) >= nearly*float64(g.Rate)
	})
}

// arriving is the rate to which the device shapes to which all that arrives at the uplink is redirected; 0: none.
func (d *diagnosis) arriving() units.Rate {
	to, ok := d.Link(d.link.Redirect)
	if !ok {
		return 0
	}
	return to.Tree.Rate()
}

// relayFairness is about words that make all clients of a relay one, where queues count by clients.
func (d *diagnosis) relayFairness() {
	c := d.carried
	if !c.Relay() || !slices.ContainsFunc(c.Kinds, func(k Kind) bool { return k != Proxy && k != Tunnel }) {
		return
	}
	const more = "Who opens more connections gets more."
	tell := func(dev string, cake qdisc.Cake, why, want string) {
		d.add(Finding{Notable, "CAKE on " + dev + " takes all clients for one.",
			fmt.Sprintf("%s on %s: %s.", cake.Kind(), dev, hostsBy(cake)), why,
			planRelay + "    which takes " + want, c.evidence()})
	}
	for _, s := range d.stack {
		cake, ok := s.(qdisc.Cake)
		switch {
		case !ok || cake.Bandwidth == 0:
		case cake.NAT && cake.FlowMode == "dual-dsthost" && c.Has(Forwards) && d.deep.NAT != host.No:
			tell(d.link.Name, cake, "Behind the translation all that leaves is for this host's own address. "+more,
				"dual-dsthost without nat")
		case cake.FlowMode == "triple-isolate":
			tell(d.link.Name, cake, "It divides by the busier of the two hosts, which is no client. "+more,
				"dual-dsthost")
		}
	}
	to, _ := d.Link(d.link.Redirect)
	stack, _ := to.Tree.Stack()
	for _, s := range stack {
		cake, ok := s.(qdisc.Cake)
		if ok && cake.Bandwidth != 0 && (cake.FlowMode == "dual-srchost" || cake.FlowMode == "triple-isolate" ||
			cake.FlowMode == "dual-dsthost" && !cake.NAT && d.deep.NAT == host.Yes) {
			tell(to.Name, cake, "It tells far servers apart by these words, or nobody, but no clients who "+
				"download. "+more,
				"dual-dsthost nat")
		}
	}
}

// hostsBy are the words by which CAKE tells hosts apart.
func hostsBy(c qdisc.Cake) string {
	if c.NAT {
		return c.FlowMode + " nat"
	}
	return c.FlowMode
}

// ring is about the buffer of a program's tunnel, behind every queue that could be set.
func (d *diagnosis) ring() {
	const short = 100 // packets
	if !d.carried.Has(Tunnel) {
		return
	}
	var longest host.Link
	for _, t := range view(d.Facts).tunnels {
		if t.kind == Tunnel && t.link.TxQLen > max(short, longest.TxQLen) {
			longest = t.link
		}
	}
	if longest.Name == "" {
		return
	}
	rate := d.shaper()
	if rate == 0 {
		rate = 50e6
	}
	holds := units.Duration(float64(longest.TxQLen) * float64(longest.MTU) * 8 / float64(rate) * float64(time.Second))
	d.add(Finding{Notable,
		fmt.Sprintf("The tunnel's own buffer holds %d packets: %s at %s.", longest.TxQLen, twoDigits(holds), rate),
		fmt.Sprintf("%s: txqueuelen %d, mtu %d.", longest.Name, longest.TxQLen, longest.MTU),
		"It is one FIFO behind every queue that can be set, and for all peers: an idle one waits as long as a " +
			"busy one.",
		planRelay, tunnelScenario})
}

// twoDigits leaves a time its first two digits.
func twoDigits(t units.Duration) units.Duration {
	unit := units.Duration(1)
	for t/unit >= 100 {
		unit *= 10
	}
	return t.Round(unit)
}

// mptcp is about listeners whose connections a setting does not reach.
func (d *diagnosis) mptcp() {
	now, err := strconv.ParseInt(d.Sysctls[notsentLowat].Value, 10, 64)
	if d.MPTCP == 0 || err != nil || now < 0 || now >= 1<<31-1 {
		return
	}
	d.add(Finding{Notable, "MPTCP ignores tcp_notsent_lowat.",
		fmt.Sprintf("%s of MPTCP (/proc/net/protocols); %s = %d, %s.", text.Counted(d.MPTCP, "socket"), notsentLowat, now,
			d.source(notsentLowat)),
		"What such a listener accepts keeps as much unsent as without the setting, also from clients of plain TCP. " +
			"Go programs listen by MPTCP since Go 1.24.",
		"GODEBUG=multipathtcp=0 for that service, or net.mptcp.enabled=0 before it starts", proxyScenario})
}
