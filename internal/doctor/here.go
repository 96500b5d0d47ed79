// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"fmt"
	"slices"
	"strings"

	"weir/internal/host"
	"weir/internal/qdisc"
	"weir/internal/text"
	"weir/internal/units"
)

// checkHostLimits is about limits that this host itself sets, before anything is said of the path or of the other ends.
func checkHostLimits(p *patient) (found []Finding) {
	return append(append(p.droppingFilters(), p.emulated()...), append(p.boundFlows(), checkTCPSwitchedOff(p)...)...)
}

// policer is a filter that what leaves passes, and that drops, while busy connections wait in no queue and get about
// what it lets pass, less what TCP loses by being policed; or while they show that this host drops what they send, and
// no queue does.
func (p *patient) policer() (d host.Dropper, holds bool) {
	for _, d := range p.outgoingDroppers() {
		s := p.deep.Sockets
		drops := d.Drops > 0 && (d.Now > 0 || p.deep.Listened == 0)
		about := s.Rate > d.Rate/3 && s.Rate < d.Rate/2*3
		suffered := p.dropsOwn() && d.Now >= minEvents && d.Now >= p.queueDrops(p.links)
		if drops && (about || suffered) && s.Busy > 0 && !p.connectionsWait() {
			return d, true
		}
	}
	return d, false
}

// outgoingDroppers are the filters that what leaves passes.
func (p *patient) outgoingDroppers() (droppers []host.Dropper) {
	for _, d := range p.deep.Droppers {
		if p.onWayOut(d.Dev) && d.Parent != ingressFilters {
			droppers = append(droppers, d)
		}
	}
	return droppers
}

// inwardPolicer is a filter that what arrives passes, and that dropped some of it while one listened, as connections
// brought in about what it lets pass.
func (p *patient) inwardPolicer() (d host.Dropper, holds bool) {
	for _, d := range p.deep.Droppers {
		s := p.deep.Sockets
		about := s.Received > d.Rate/3 && s.Received < d.Rate/2*3
		if p.onWayOut(d.Dev) && d.Parent == ingressFilters && d.Now > 0 && about && s.Receiving > 0 {
			return d, true
		}
	}
	return d, false
}

// onWayOut reports whether what leaves passes a device.
func (p *patient) onWayOut(dev string) bool {
	return slices.ContainsFunc(p.links, func(l host.Link) bool { return l.Name == dev })
}

// exceededBy is what a filter drops.
func exceededBy(d host.Dropper) string {
	if d.Rate == 0 {
		return "packets"
	}
	return "what exceeds " + d.Rate.String()
}

// ingressFilters is where filters for what arrives hang (TC_H_MIN_INGRESS).
const ingressFilters qdisc.Handle = 0xFFFFFFF2

// filterText is a filter, for a person: "the filter u32 on eth0, at its egress", or "the filter u32 on eth0 (parent
// 1:)".
func filterText(d host.Dropper) string {
	place := fmt.Sprintf(" (parent %s)", d.Parent)
	switch d.Parent {
	case ingressFilters:
		place = ", at its ingress"
	case ingressFilters + 1:
		place = ", at its egress"
	}
	return fmt.Sprintf("the filter %s on %s%s", d.Filter, d.Dev, place)
}

func (p *patient) droppingFilters() (found []Finding) {
	now, holds := p.policer()
	inward, bringing := p.inwardPolicer()
	for _, d := range p.deep.Droppers {
		if d.Drops == 0 {
			continue
		}
		what, show := "drops "+exceededBy(d), "tc -s filter show dev "+d.Dev
		if d.Parent == ingressFilters {
			show += " ingress"
		} else if d.Parent == ingressFilters+1 {
			show += " egress"
		}
		f := Finding{
			Code: "filter-drops", Severity: Notable,
			Plain: "A rule on this server " + what + ".",
			Title: fmt.Sprintf("A filter on %s %s.", d.Dev, what),
			Seen: fmt.Sprintf("%s: %s dropped by its action %s%s.", upperFirst(filterText(d)),
				text.Counted(int(d.Drops), "packet"), d.Action, p.dropPeriodText(d)),
			Why: "A policer has no queue: TCP takes each drop for congestion, and gets less than the rate. It is " +
				"this host's own, and no fault of the path.",
			Remark: show + " shows it; a shaper with the same rate queues instead",
		}
		if holds && d == now {
			f.Severity = Harmful
			f.Plain = "Downloads are as slow as a rule on this server makes them: it " + what + "."
		}
		if bringing && d == inward {
			if p.deep.Sockets.Busy == 0 { // else what leaves may have a limit of its own
				f.Severity = Harmful
			}
			f.Plain = "Uploads to this server are as slow as a rule on it makes them: it " + what + "."
		}
		found = append(found, f)
	}
	return found
}

// dropPeriodText says over which time a filter has dropped.
func (p *patient) dropPeriodText(d host.Dropper) string {
	if p.deep.Listened == 0 {
		return " since it was made"
	}
	return fmt.Sprintf(" since it was made, %d of them in the last %s", d.Now, p.deep.Listened)
}

// emulator is a netem that what leaves passes and that does something to it, and where that is.
func (p *patient) emulator() (q qdisc.Qdisc, link host.Link, holds bool) {
	for _, l := range p.links {
		if q, holds := l.Tree.Passed(qdisc.Emulates); holds {
			return q, l, true
		}
	}
	return q, link, false
}

// emulates is what a netem does, as tc has it but for the seed.
func emulates(q qdisc.Qdisc) string {
	if q.Spec == nil {
		return q.Kind
	}
	return qdisc.Unseeded(q.Spec).String()
}

func (p *patient) emulated() []Finding {
	q, link, holds := p.emulator()
	if !holds {
		return nil
	}
	return []Finding{{
		Code: "netem-here", Severity: Harmful,
		Plain: "This server delays or loses packets on purpose: somebody has tested something.",
		Title: fmt.Sprintf("netem is on %s.", link.Name),
		Seen:  emulates(q) + ".",
		Why:   "netem emulates a bad path (tc-netem(8)). What it loses and delays is no fault of the path.",
		Remark: fmt.Sprintf("tc qdisc show dev %s shows it; tc qdisc del dev %s %s takes it away, if no test "+
			"needs it", link.Name, link.Name, parentText(q)),
	}}
}

// parentText is where a discipline hangs, as tc has it: "root", or "parent 1:1".
func parentText(q qdisc.Qdisc) string {
	if q.Parent == qdisc.Root {
		return "root"
	}
	return "parent " + q.Parent.String()
}

// flowBound is a rate that a device's queue lets each connection have.
type flowBound struct {
	rate units.Rate // bit/s; 0: any
	dev  string
}

// flowRate is the lowest of those that what leaves passes, and whether the busy connections are near it.
func (p *patient) flowRate() (bound flowBound, holds bool) {
	for _, l := range p.links {
		q, some := l.Tree.Passed(func(q qdisc.Qdisc) bool { return qdisc.FlowRate(q.Spec) != 0 })
		if r := qdisc.FlowRate(q.Spec); some && (bound.rate == 0 || r <= bound.rate) {
			bound = flowBound{r, l.Name}
		}
	}
	connections := units.Rate(p.deep.Sockets.Busy)
	if connections == 0 {
		return bound, false
	}
	each := p.deep.Sockets.Rate / connections // by whichever device: far more than the rate has not passed it
	return bound, bound.rate != 0 && each >= bound.rate/10*7 && each <= bound.rate/10*13
}

func (p *patient) boundFlows() []Finding {
	bound, holds := p.flowRate()
	if bound.rate == 0 {
		return nil
	}
	f := Finding{
		Code: "flow-rate-here", Severity: Notable,
		Plain:  fmt.Sprintf("A setting on this server lets no download have more than %s.", bound.rate),
		Title:  fmt.Sprintf("fq on %s lets each connection have %s.", bound.dev, bound.rate),
		Seen:   fmt.Sprintf("fq maxrate %s, at the uplink.", bound.rate),
		Why:    "It bounds each connection (tc-fq(8)), whatever the link carries.",
		Remark: fmt.Sprintf("tc qdisc show dev %s shows it", bound.dev),
	}
	if holds {
		f.Seen = fmt.Sprintf("fq maxrate %s; %s deliver %s.", bound.rate, text.Counted(p.deep.Sockets.Busy,
			"busy connection"),
			threeDigits(p.deep.Sockets.Rate))
	}
	return []Finding{f}
}

// checkTCPSwitchedOff is about what TCP may not do here, that every kernel does by itself.
func checkTCPSwitchedOff(p *patient) (found []Finding) {
	for _, s := range []struct{ sysctl, without string }{
		{windowScaling, "No connection can have more than 64 KiB on its way: 10 Mbit/s at 50 ms."},
		{"net.ipv4.tcp_sack", "After a loss a sender has to guess what arrived, and sends much again."},
		{"net.ipv4.tcp_timestamps",
			"RTTs are measured less well, and a sender takes more for lost that only came late."},
		{growingBuffers,
			"Receive windows do not grow: uploads stay at the default's size, a window for " +
				"each round trip."},
	} {
		if p.Sysctls[s.sysctl].Value != "0" {
			continue
		}
		found = append(found, Finding{
			Code: "tcp-switched-off", Severity: Notable,
			Plain:  "Transfers are slower than they could be: a part of TCP is switched off on this server.",
			Title:  text.Short(s.sysctl) + " is off.",
			Seen:   fmt.Sprintf("%s = 0, %s.", s.sysctl, p.source(s.sysctl)),
			Why:    s.without,
			Remark: fmt.Sprintf("sysctl %s=1, until the next boot; then mend the file that sets it", s.sysctl),
		})
	}
	return found
}

func upperFirst(s string) string { return strings.ToUpper(s[:1]) + s[1:] }
