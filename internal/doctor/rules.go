// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"fmt"
	"slices"
	"strings"

	"weir/internal/host"
	"weir/internal/text"
)

// checkFirewallRules is about netfilter's rules that limit, and about what this host drops of its own traffic without a
// count.
func checkFirewallRules(p *patient) (found []Finding) {
	if r, holds := p.rule(); holds {
		f := p.dropped(r)
		f.Severity = Harmful
		f.Plain = "Downloads are as slow as a firewall rule on this server makes them: it drops what they send."
		return []Finding{f}
	}
	if r, felt := p.forwardDropRule(); felt {
		found = append(found, p.dropped(r))
	}
	if p.dropsUncounted() {
		f := Finding{
			Code: "packets-refused", Severity: Notable,
			Plain: "Downloads are slowed down on this server itself: something here drops what they send.",
			Title: "This host drops what TCP sends, and nothing counts it.",
			Seen: fmt.Sprintf("%d of %s have sent more than ever left.", p.deep.Sockets.Refused,
				text.Counted(p.deep.Sockets.Busy, "busy connection")),
			Why: "A firewall rule without a counter, one of iptables-legacy, or a BPF program can do that. TCP has " +
				"to try again, later.",
			Remark: "nft -a list ruleset; iptables-legacy-save; bpftool cgroup tree",
		}
		ofUDP := func(r host.Rule) bool { return r.OnlyUDP }
		if uncounted := slices.DeleteFunc(p.uncounted(), ofUDP); len(uncounted) > 0 {
			f.Seen += " Rules that limit, and do not count what they drop: " + named(uncounted) + "."
		}
		found = append(found, f)
	}
	return found
}

func (p *patient) dropped(r host.Rule) Finding {
	name, instead := nftRule(r), ""
	if r.Limit != "" {
		name, instead = name+" ("+r.Limit+")", "; a shaper with the same rate queues instead"
	}
	consequence := "TCP has to send again what it drops, later."
	if r.OnlyUDP {
		consequence = "what it drops of UDP is lost, or sent again by QUIC."
	}
	return Finding{
		Code: "rule-drops", Severity: Notable,
		Plain: "A firewall rule on this server drops some of what leaves it.",
		Title: fmt.Sprintf("A firewall rule drops %s.", exceeding(r)),
		Seen:  fmt.Sprintf("%s: %s dropped in %s.", name, text.Counted(int(r.Now), "packet"), p.deep.Listened),
		Why:   "A rule has no queue: " + consequence + " It is this host's own, and no fault of the path.",
		Remark: fmt.Sprintf("nft -a list chain %s %s %s shows it%s", r.Family, text.Shell(r.Table), text.Shell(r.Chain),
			instead),
	}
}

// nftRule names a rule as nft's own commands do.
func nftRule(r host.Rule) string {
	return fmt.Sprintf("%s %s %s handle %d", r.Family, r.Table, r.Chain, r.Handle)
}

// exceeding is what a rule drops.
func exceeding(r host.Rule) string {
	switch {
	case r.Rate != 0:
		return "what exceeds " + r.Rate.String()
	case r.Limit == "statistic" || r.Limit == "numgen":
		return "packets by chance"
	case r.Limit == "":
		return "packets"
	}
	return "what exceeds its limit"
}

// dropsOwn reports whether, of what connections send now, this host itself lets some not leave; and more of them than
// have no room in a send buffer, which comes before.
func (p *patient) dropsOwn() bool {
	s := p.deep.Sockets
	return p.deep.Listened > 0 && p.manyOfBusy(s.Refused) && s.Refused > s.Buffer
}

// dropsUncounted reports whether this host drops some of what connections send now, and no queue and no filter counts
// it.
func (p *patient) dropsUncounted() bool { return p.dropsOwn() && p.droppedBehind() == 0 }

// queueDrops is what the queues of devices have dropped of what leaves while one listened, in packets.
func (p *patient) queueDrops(links []host.Link) (n uint64) {
	for _, l := range links {
		incoming := slices.ContainsFunc(p.Links, func(from host.Link) bool { return from.Redirect == l.Name })
		if !l.Loopback && !incoming {
			n += p.deep.Rose[host.QueueDrops(l.Name)]
		}
	}
	return n
}

// droppedBehind is what this host has dropped of what leaves, by whichever device, behind netfilter: by a queue, or by
// a filter, in packets.
func (p *patient) droppedBehind() (n uint64) {
	n = p.queueDrops(p.Links)
	for _, d := range p.deep.Droppers {
		n += d.Now
	}
	return n
}

// rule is the one that drops most of what leaves this host, where connections show that they suffer by that: on many
// hosts a rule limits who guesses at passwords, and nothing else slows down for it.
func (p *patient) rule() (most host.Rule, holds bool) {
	for _, r := range p.outgoingRules() {
		if r.Now > most.Now {
			most = r
		}
	}
	return most, p.dropsOwn() && most.Now >= minEvents && most.Now > p.droppedBehind()
}

// outgoingRules are those that drop some of what this host sends by TCP.
func (p *patient) outgoingRules() (rules []host.Rule) {
	for _, r := range p.deep.Netfilter.Suspects {
		if r.Drops && !r.Narrow && !r.OnlyUDP && r.Outgoing() {
			rules = append(rules, r)
		}
	}
	return rules
}

// forwardDropRule is the one that drops most of what this host passes on, or sends by UDP, if it is enough to be felt.
func (p *patient) forwardDropRule() (most host.Rule, felt bool) {
	for _, r := range p.deep.Netfilter.Suspects {
		var passed uint64
		switch {
		case slices.Contains(r.Hooks, "forward"):
			passed = p.deep.Rose["Ip.ForwDatagrams"]
		case r.OnlyUDP && r.Outgoing():
			passed = p.deep.Rose["Udp.OutDatagrams"]
		default:
			continue
		}
		enough := r.Now >= minEvents && float64(r.Now) >= costlyLoss*float64(passed+r.Now)
		if r.Limit != "" && r.Drops && !r.Narrow && enough && r.Now > most.Now {
			most, felt = r, true
		}
	}
	return most, felt
}

// uncounted are rules that can limit what leaves, and count no drops: their own, or those of a rule behind them.
func (p *patient) uncounted() (rules []host.Rule) {
	for _, r := range p.deep.Netfilter.Suspects {
		if r.Outgoing() && !r.Narrow && !r.Counted {
			rules = append(rules, r)
		}
	}
	return rules
}

// named lists rules as nft's own commands name them, the first few.
func named(rules []host.Rule) string {
	const some = 3
	var names []string
	for _, r := range rules[:min(some, len(rules))] {
		names = append(names, nftRule(r))
	}
	if more := len(rules) - some; more > 0 {
		names = append(names, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(names, ", ")
}

// netfilter tells of connection tracking, and of rules that limit.
func (p *patient) netfilter() (saw, lacks string) {
	n, c := p.deep.Netfilter, p.deep.Conntrack
	var parts, unseen []string
	limiting := 0
	for _, r := range n.Suspects {
		if r.Limit != "" {
			limiting++
		}
	}
	if c.Max > 0 {
		parts = append(parts, fmt.Sprintf("%d of %d connections tracked", c.Count, c.Max))
	}
	switch {
	case limiting > 0:
		parts = append(parts, fmt.Sprintf("%d of %s can limit", limiting, text.Counted(n.Rules, "rule")))
	case n.Read && n.Rules > 0:
		parts = append(parts, fmt.Sprintf("none of %s can limit", text.Counted(n.Rules, "rule")))
	case n.Read && n.Legacy == nil:
		parts = append(parts, "no rules")
	}
	for _, r := range n.Suspects {
		if r.Now > 0 {
			parts = append(parts, fmt.Sprintf("%s dropped %s", nftRule(r), text.Counted(int(r.Now), "packet")))
		}
	}
	switch {
	case n.Lacks != "":
		unseen = append(unseen, n.Lacks)
	case !n.Read:
		unseen = append(unseen, "its rules cannot be read")
	}
	if n.Legacy != nil {
		unseen = append(unseen, fmt.Sprintf("rules of iptables-legacy (%s): iptables-legacy-save",
			strings.Join(n.Legacy, ", ")))
	}
	if p.deep.Listened == 0 {
		unseen = append(unseen, unlistened)
	}
	uncounted := slices.DeleteFunc(p.uncounted(), func(r host.Rule) bool { return !r.Drops })
	if len(uncounted) > 0 {
		unseen = append(unseen, "what rules without a counter drop: "+named(uncounted))
	}
	return strings.Join(parts, ", "), strings.Join(unseen, "; ")
}
