// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"fmt"
	"slices"
	"strings"

	"weir/internal/host"
	"weir/internal/plan"
	"weir/internal/qdisc"
)

// unfair is what a person notices of both.
const unfair = "Who opens more connections gets more of this server's line than others."

// checkFairness is about CAKE's default on a server that sends everything from one address.
func checkFairness(p *patient) (found []Finding) {
	addresses := 0
	for _, a := range p.link.Addrs {
		if !strings.Contains(a, ":") {
			addresses++
		}
	}
	if p.Forwards() || addresses > 1 {
		return nil
	}
	for _, s := range p.stack {
		if cake, ok := s.(qdisc.Cake); ok && cake.Bandwidth != 0 && cake.FlowMode == "triple-isolate" {
			f := Finding{
				Code: "no-fairness-by-client", Severity: Notable,
				Plain: unfair,
				Title: "CAKE shares between connections, not between clients.",
				Seen:  fmt.Sprintf("%s on %s: triple-isolate, its default.", s.Kind(), p.link.Name),
				Why: "It divides by the busier of the two hosts, and on a server that is always the server: who " +
					"opens more connections gets more.",
				Evidence: evidence{Scenario: "scenarios/seeds/shaping.toml"},
			}
			f.Try, f.Remark = p.planned(planRate, "which shares between clients")
			found = append(found, f)
		}
	}
	return found
}

// checkRelayFairness is about words that make all clients of a relay one, where queues count by clients.
func checkRelayFairness(p *patient) (found []Finding) {
	c := p.carried
	if !c.Relay() ||
		!slices.ContainsFunc(c.Kinds, func(k plan.Kind) bool { return k != plan.Proxy && k != plan.Tunnel }) {
		return nil
	}
	tell := func(dev string, cake qdisc.Cake, why, want string) {
		f := Finding{
			Code: "clients-taken-for-one", Severity: Notable,
			Plain:    unfair,
			Title:    "CAKE on " + dev + " takes all clients for one.",
			Seen:     fmt.Sprintf("%s on %s: %s.", cake.Kind(), dev, hostsBy(cake)),
			Why:      why + " Who opens more connections gets more.",
			Evidence: evidence{Scenario: relayScenario(c)},
		}
		f.Try, f.Remark = p.planned(planRelay, "which takes "+want)
		found = append(found, f)
	}
	for _, s := range p.stack {
		cake, ok := s.(qdisc.Cake)
		switch {
		case !ok || cake.Bandwidth == 0:
		case cake.NAT && cake.FlowMode == "dual-dsthost" && c.Has(plan.Forwards) && p.deep.NAT != host.No:
			tell(p.link.Name, cake, "Behind the translation all that leaves is for this host's own address.",
				"dual-dsthost without nat")
		case cake.FlowMode == "triple-isolate":
			tell(p.link.Name, cake, "It divides by the busier of the two hosts, which is no client.", "dual-dsthost")
		}
	}
	to, _ := p.Link(p.link.Redirect)
	stack, _ := to.Tree.Stack()
	for _, s := range stack {
		cake, ok := s.(qdisc.Cake)
		if ok && cake.Bandwidth != 0 && (cake.FlowMode == "dual-srchost" || cake.FlowMode == "triple-isolate" ||
			cake.FlowMode == "dual-dsthost" && !cake.NAT && p.deep.NAT == host.Yes) {
			tell(to.Name, cake, "It tells far servers apart by these words, or nobody, but no clients who download.",
				"dual-dsthost nat")
		}
	}
	return found
}

// hostsBy are the words by which CAKE tells hosts apart.
func hostsBy(c qdisc.Cake) string {
	if c.NAT {
		return c.FlowMode + " nat"
	}
	return c.FlowMode
}
