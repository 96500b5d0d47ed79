// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"fmt"
	"slices"
	"strings"

	"weir/internal/host"
	"weir/internal/plan"
	"weir/internal/text"
	"weir/internal/units"
)

// Scenarios that show what holds for each kind of relay.
const (
	natScenario       = "scenarios/relay/nat.toml"
	wireguardScenario = "scenarios/relay/wireguard.toml"
	tunnelScenario    = "scenarios/relay/tunnel.toml"
	proxyScenario     = "scenarios/relay/proxy.toml"
)

// relayScenario is that of the kind that asks most of a plan.
func relayScenario(c plan.Carried) string {
	switch {
	case c.Has(plan.Proxy):
		return proxyScenario
	case c.Has(plan.Tunnel):
		return tunnelScenario
	case c.Has(plan.WireGuard):
		return wireguardScenario
	}
	return natScenario
}

// checkRelay says that the host is one, and on which side of its only card the queue stands.
func checkRelay(p *patient) []Finding {
	c := p.carried
	if len(c.Kinds) == 0 {
		return nil
	}
	f := Finding{Code: "relay", Severity: Fine, Title: "This host passes on what others send: " + p.carriedText() + "."}
	f.Seen = strings.Join(c.Seen, " ") + fmt.Sprintf(" %s received %s and sent %s.", p.link.Name,
		text.Bytes(float64(p.link.RxBytes)), text.Bytes(float64(p.link.TxBytes)))
	if !c.OneCard {
		return []Finding{f}
	}
	f.Title = "This host passes on what others send: " + p.carriedText() + ", on one network card."
	if !c.Sure {
		f.Title = "This host may pass on what others send: " + p.carriedText() + ", on one network card."
	}
	rate, arriving := p.enforced(), p.ingressRate()
	if rate != 0 {
		f.Seen += fmt.Sprintf(" %s shapes outgoing traffic to %s.", p.shaperName(), rate)
	}
	if arriving != 0 {
		f.Seen += fmt.Sprintf(" Incoming traffic is shaped to %s.", arriving)
	}
	harm := p.isNearlyAllSold(rate) || p.connectionsWait() && p.waitsElsewhere()
	if rate != 0 && (arriving != 0 || !terminates(c) && !harm) {
		if arriving == 0 {
			f.Seen += " That is right as long as it is " + share(c) + " of what the provider sold, or less."
		}
		return []Finding{f}
	}
	f.Code, f.Severity = "relay-queue-arriving", Notable
	f.Plain = "What this server passes on for others may wait at your provider, before it gets here."
	f.Why = whyArriving(c, rate, arriving)
	f.Try, f.Remark = p.planned(planRelay, whatRate)
	f.Evidence.Scenario = relayScenario(c)
	if c.Sure && harm {
		f.Severity = Harmful
		f.Plain = "What this server passes on for others waits at your provider, before it gets here."
	}
	return []Finding{f}
}

// whyArriving says why a queue stands where what arrives comes from, at rates that are enforced each way; 0: none.
func whyArriving(c plan.Carried, rate, arriving units.Rate) string {
	why := "What you send has just come in by the same card, so the queue stands in your provider's box on the way in."
	switch {
	case arriving != 0:
		return "Incoming traffic waits here, and outgoing traffic does not: shape both."
	case rate != 0 && terminates(c):
		return why + " What ends on this host is not held back by a shaper on outgoing traffic."
	case rate != 0:
		return why + " Shaping outgoing traffic reaches it at " + share(c) + " of the provider's rate, or less."
	}
	return why + " Shaping outgoing traffic at 99.75 % does not reach it."
}

// terminates reports whether some of what is carried ends on this host.
func terminates(c plan.Carried) bool { return c.Has(plan.Tunnel) || c.Has(plan.Proxy) }

// share is how much of the provisioned rate may leave, for the queue of what comes in to run empty.
func share(c plan.Carried) string {
	if len(c.Kinds) == 1 && c.Has(plan.Forwards) {
		return "94 %"
	}
	return "93 %"
}

// isNearlyAllSold reports whether a rate is known to be nearly all that the provider sold, which the goal that is kept
// says.
func (p *patient) isNearlyAllSold(rate units.Rate) bool {
	const nearly = 0.98
	goals, err := plan.ParseGoals(p.Files[host.GoalFile].Text)
	return err == nil && slices.ContainsFunc(goals, func(g plan.Goal) bool {
		return (g.Dev == "" || g.Dev == p.link.Name) && g.Rate != 0 && float64(rate) >= nearly*float64(g.Rate)
	})
}

// ingressRate is the rate to which the device shapes to which all that arrives at the uplink is redirected; 0: none.
func (p *patient) ingressRate() units.Rate {
	to, ok := p.Link(p.link.Redirect)
	if !ok {
		return 0
	}
	return to.Tree.Rate()
}

// carriedText names what is carried, as a person would.
func (p *patient) carriedText() string {
	var words []string
	for _, k := range p.carried.Kinds {
		switch k {
		case plan.Forwards:
			words = append(words, "routed packets")
		case plan.WireGuard:
			words = append(words, "WireGuard")
		case plan.OVPN:
			words = append(words, "OpenVPN in the kernel")
		case plan.XFRM:
			words = append(words, "IPsec")
		case plan.Tunnel:
			words = append(words, "a program's tunnel"+p.programs(host.TunnelProgram))
		case plan.Proxy:
			words = append(words, "a proxy's connections"+p.programs(host.ProxyProgram))
		default:
			words = append(words, string(k))
		}
	}
	return strings.Join(words, " and ")
}

// programs names those of a kind that run, in brackets; "" if none does.
func (p *patient) programs(kind string) string {
	var names []string
	for _, r := range p.Relays {
		if r.Kind == kind {
			names = append(names, r.Name)
		}
	}
	if len(names) == 0 {
		return ""
	}
	return " (" + strings.Join(names, ", ") + ")"
}
