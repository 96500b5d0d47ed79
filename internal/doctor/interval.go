// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"fmt"
	"time"

	"weir/internal/host"
	"weir/internal/qdisc"
	"weir/internal/text"
	"weir/internal/units"
)

// checkInterval is about a CoDel whose interval, which cake calls rtt, is far below the RTT of what passes it.
func checkInterval(p *patient) []Finding {
	const usual = units.Duration(100 * time.Millisecond) // every kernel's own
	q, holds := p.dropsTooSoon()
	if _, here := p.dropsHere(); here || !holds || p.bottleneck().Limit != LimitQueue {
		return nil
	}
	s := p.deep.Sockets
	delivers, longer := threeDigits(s.Rate).String(), (s.MinRTT+usual-1)/usual*usual
	change := fmt.Sprintf("%s %s %s", q.Kind, qdisc.IntervalOption(q.Kind), longer)
	if q.Kind == "codel" || q.Kind == "fq_codel" { // whose target does not follow: a 20th of it
		change += fmt.Sprintf(" target %s", longer/20)
	}
	if rate := p.enforced(); rate != 0 {
		delivers += " of " + rate.String()
	}
	return []Finding{{
		Code: "aqm-interval-short", Severity: Harmful,
		Plain: "Downloads are slower than they could be: a setting of this server's own queue makes it drop packets " +
			"too soon.",
		Title: p.earlyDropText(q) + ".",
		Seen: fmt.Sprintf("%s in %s; %s with a minimum RTT of %s, which deliver %s.",
			text.Counted(int(p.deep.Rose[host.QueueDrops(p.holder.Name)]), "packet"), p.deep.Listened,
			text.Counted(s.Busy, "busy connection"), millis(s.MinRTT), delivers),
		Why: "For so long CoDel lets a queue stand before it drops, and that is meant to be a round trip (RFC 8289). " +
			"In far less a sender's bursts look like a queue that stays, and each costs it a part of its rate.",
		Remark: fmt.Sprintf("tc qdisc change dev %s %s %s, until it is set up anew", p.holder.Name, parentText(q),
			change),
	}}
}

// earlyDropText says of a CoDel that it drops too soon.
func (p *patient) earlyDropText(q qdisc.Qdisc) string {
	return fmt.Sprintf("%s on %s drops too soon, by its %s of %s", q.Kind, p.holder.Name,
		qdisc.IntervalOption(q.Kind), qdisc.Interval(q.Spec))
}

// dropsTooSoon is a CoDel that has dropped while one listened, with an interval below a quarter of the least RTT of
// what passes, while busy connections have less than its rate and nothing else holds them back: each has lost a packet,
// as one of CUBIC does every few seconds that is held back so.
//
// In the lab four downloads over 48 ms, behind cake with 500 Mbit/s, have in their first 12 s 484 Mbit/s with an rtt of
// 48 ms or more, 240 with 24, 318 with 12, 96 with 6, and 76 with 3 (fq_codel: 292 with 12, 108 with 3).
func (p *patient) dropsTooSoon() (q qdisc.Qdisc, holds bool) {
	const part = 4
	s := p.deep.Sockets
	q, some := p.holder.Tree.Passed(func(q qdisc.Qdisc) bool {
		d := qdisc.Interval(q.Spec)
		return d != 0 && part*d < s.MinRTT
	})
	drops := p.deep.Rose[host.QueueDrops(p.holder.Name)]
	free := !p.connectionsWait() && !p.bufferBound() && !p.receiverBound() && 2*s.App < s.Busy && !p.deviceFull()
	return q, some && s.Busy > 0 && drops >= uint64(s.Busy) && free && p.belowRate() && !p.lostBeyond()
}
