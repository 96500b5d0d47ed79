// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"fmt"
	"time"

	"weir/internal/bbr"
	"weir/internal/host"
	"weir/internal/plan"
	"weir/internal/qdisc"
	"weir/internal/text"
	"weir/internal/units"
)

const (
	planRate  = "weir plan --rate RATE"
	planRelay = "weir plan --role relay --rate RATE"
	whatRate  = "with what you pay for, e.g. 50mbit"
	orAuto    = whatRate + "; or auto, which finds it"
)

// checkQueue finds out where the queue is: here, or in front of somebody else's narrower link.
func checkQueue(p *patient) []Finding {
	root, ok := p.holder.Tree.Root()
	if !ok || p.link.Name == "" {
		return nil
	}
	on, rate := p.queueName()+" on "+p.holder.Name, p.enforced()
	switch queueing, elsewhere := p.connectionsWait(), p.waitsElsewhere(); {
	case queueing && elsewhere && rate == 0:
		return []Finding{p.atProvider(root)}
	case queueing && elsewhere:
		return []Finding{p.belowShaper(root)}
	case queueing && p.traits().Plain && p.queueName() != "noqueue":
		return []Finding{{
			Code: "queue-in-fifo", Severity: Notable,
			Plain: "Downloads make everything else on this server slow: replies wait " + p.waitText() +
				" in this server's own queue.",
			Title: "The queue is here, and one for all.",
			Seen:  p.waitingText() + "; " + p.backlogText(root) + ".",
			Why:   "In a plain FIFO each packet waits behind all others.",
			Try:   "weir plan", Evidence: evidence{Scenario: "scenarios/seeds/gso.toml"},
		}}
	case queueing:
		return []Finding{{Code: "queue-here", Severity: Fine, Title: "The queue is here.",
			Seen: p.waitingText() + "; " + p.backlogText(root) + "."}}
	case rate != 0:
		f := Finding{Code: "queue-owned", Severity: Fine, Title: "The queue is yours.",
			Seen: fmt.Sprintf("Shaped to %s by %s.", rate, p.shaperName())}
		if p.carried.OneCard {
			f.Title = "The queue of outgoing traffic is yours."
		}
		return []Finding{f}
	case p.chosenAQM(root):
		return nil // rateless says it
	}
	return p.unseenQueue(on)
}

// atProvider is about a queue in front of somebody else's narrower link, where this host shapes nothing.
func (p *patient) atProvider(root qdisc.Qdisc) Finding {
	f := Finding{
		Code: "queue-at-provider", Severity: Harmful,
		Plain: "Downloads make everything else on this server slow: replies wait " + p.waitText() +
			" in your provider's queue.",
		Title: "The queue is not yours.",
		Seen:  p.waitingText() + "; " + p.backlogText(root) + ".",
		Why: p.queueName() + " has no rate, and acts on a queue at this device only. Yours is in the provider's " +
			"box.",
		Evidence: evidence{Scenario: "scenarios/narrow-link.toml"},
	}
	f.Try, f.Remark = p.planned(planRate, orAuto)
	if p.queueName() == "noqueue" {
		f.Why = "There is no queue at this device. Yours is in the provider's box."
	}
	switch hears := plan.TakesBPFBBR(p.Facts) && p.cc != bbr.Name; {
	case p.carried.OneCard:
		f.Try, f.Remark = p.planned(planRelay, whatRate)
	case hears && f.Try == "":
		f.Try, f.Remark = "weir plan", "without --rate it chooses "+bbr.Name+", a sender that keeps that queue short"
	case hears:
		f.Remark += "; without --rate it chooses " + bbr.Name + ", a sender that keeps that queue short"
	}
	return f
}

// belowShaper is about a queue that this host's shaper does not reach.
func (p *patient) belowShaper(root qdisc.Qdisc) Finding {
	rate := p.enforced()
	f := Finding{
		Code: "queue-below-shaper", Severity: Notable,
		Plain: "Replies wait " + p.waitText() + " in a queue that is not this server's.",
		Title: "There is a queue besides yours.",
		Seen:  fmt.Sprintf("%s; %s, which shapes to %s.", p.waitingText(), p.backlogText(root), rate),
		Why: "The provider passes less than the shaper's rate, or counts more bytes of each packet. A rate half a " +
			"percent too high fills its queue.",
		Evidence: evidence{Scenario: "scenarios/rules/framing.toml"},
	}
	f.Try, f.Remark = p.planned(p.shapeLessAdvice())
	if p.unshapedIngress() {
		f.Code, f.Title = "queue-on-the-way-in", "The queue may be on the way in."
		f.Plain = "Replies wait " + p.waitText() + " while others upload to this server."
		f.Seen += fmt.Sprintf(" Uploads come in by %s.", text.Counted(p.deep.Sockets.Receiving, "connection"))
		f.Why = "Incoming traffic is not shaped here. Uploads fill the provider's queue, and the acknowledgements of " +
			"downloads wait in it."
		f.Try, f.Remark = p.planned(fmt.Sprintf("weir plan --rate %s --ingress RATE", p.goalRate()),
			"with the rate that you pay for in that direction")
		if p.Ingress == host.No {
			f.Try, f.Remark = "", host.AllModules(p.Kernel)
		}
		f.Evidence = evidence{Scenario: "scenarios/ingress.toml"}
	}
	if p.carried.OneCard {
		f.Why = "Outgoing traffic has just come in by the same card: a queue on the way in is not managed."
		f.Try, f.Remark = p.planned(planRelay, whatRate)
	}
	return f
}

// unshapedIngress reports whether bulk data comes in and waits in nobody's queue but the provider's.
func (p *patient) unshapedIngress() bool {
	return p.deep.Sockets.Receiving > 0 && p.link.Redirect == "" && !p.carried.OneCard
}

// goalRate is the rate that somebody has told, of which plan enforces a little less.
func (p *patient) goalRate() units.Rate {
	told := 10000. / 9975 // of what is enforced
	if root, _ := p.holder.Tree.Root(); root.Kind == qdisc.BPFShaping {
		told = 1 // it takes its own share off
	}
	return units.Rate(told*float64(p.enforced())/1e5+0.5) * 1e5
}

// shapeLessAdvice is how to shape to less: by what each packet counts for, where that is the least, or by the rate.
func (p *patient) shapeLessAdvice() (try, remark string) {
	const lower = 0.98
	rate := p.goalRate()
	stack, _ := p.holder.Tree.Stack()
	for _, spec := range stack {
		if q, is := spec.(qdisc.Cake); is && q.Raw {
			return fmt.Sprintf("weir plan --rate %s --overhead ethernet", rate),
				"and if replies still wait, with a lower rate"
		}
	}
	return fmt.Sprintf("weir plan --rate %s", units.Rate(lower*float64(rate)/1e5)*1e5), "and lower, until none wait"
}

// unseenQueue is about a device where none is to be seen.
func (p *patient) unseenQueue(on string) []Finding {
	seen := ""
	switch s := p.deep.Sockets; {
	case s.Busy > 0:
		seen = text.Counted(s.Busy, "busy connection") + ", none with an RTT far above its minimum."
	case s.Receiving > 0:
		seen = "Nothing is sent that could wait: " + p.incoming() + " alone."
	case s.Read:
		seen = "No connection is busy, so the bottleneck cannot be seen either: look again under load."
	default:
		return nil
	}
	return []Finding{{Code: "no-queue-seen", Severity: Fine, Title: on + ": no queue is to be seen.", Seen: seen}}
}

// waitText is how much longer than need be the connections wait that do.
func (p *patient) waitText() string {
	return durationText(p.deep.Sockets.QueueRTT - p.deep.Sockets.QueueMin)
}

// waitingText says which connections wait, and how long.
func (p *patient) waitingText() string {
	s := p.deep.Sockets
	return fmt.Sprintf("%d of %s: RTT %s, minimum %s", s.Queueing, text.Counted(s.Busy, "busy connection"),
		millis(s.QueueRTT), millis(s.QueueMin))
}

// backlogText says what waits there.
func (p *patient) backlogText(root qdisc.Qdisc) string {
	held := text.Counted(int(root.Stats.Qlen), "packet")
	if p.leadsIn(p.holder) {
		held += " of what comes in"
	}
	return fmt.Sprintf("%s on %s holds %s", p.queueName(), p.holder.Name, held)
}

// durationText writes a time for a sentence, in milliseconds to two digits or more.
func durationText(d units.Duration) string {
	ms := time.Duration(d).Seconds() * 1000
	if ms < 10 {
		return fmt.Sprintf("%.2g ms", ms)
	}
	return fmt.Sprintf("%.0f ms", ms)
}
