// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"fmt"
	"strings"

	"weir/internal/bbr"
	"weir/internal/host"
	"weir/internal/text"
	"weir/internal/units"
)

// checkPathLoss is about packets that are lost with no queue to blame.
func checkPathLoss(p *patient) []Finding {
	s := p.deep.Sockets
	share := units.Share(float64(int(float64(s.LossyShare)*1000+0.5)) / 1000)
	if drops, here := p.dropsHere(); here {
		f := Finding{
			Code: "queue-drops", Severity: Harmful,
			Plain: "Downloads are slower than they could be: this server's own queue is too short, and drops packets.",
			Title: fmt.Sprintf("%s on %s drops what it has no room for.", p.queueName(), p.holder.Name),
			Seen: fmt.Sprintf("%s in %s; %d of %s sent %s of the bytes again, with an RTT near its minimum.",
				text.Counted(int(drops), "packet"), p.deep.Listened, s.Lossy,
				text.Counted(s.Busy, "busy connection"), share),
			Why: "A burst that the device would have taken a moment later is lost. It is no fault of the path.",
			Remark: fmt.Sprintf("tc -s qdisc show dev %s shows its limit; a longer one, or fq_codel, has room",
				p.holder.Name),
		}
		if p.traits().AQM {
			f.Remark = fmt.Sprintf("tc -s qdisc show dev %s shows its limit; without one there is room", p.holder.Name)
		}
		switch {
		case p.connectionsLose():
		case s.Refused == 0: // what it drops had been let in
			f.Seen = fmt.Sprintf("%s in %s, with %s.", text.Counted(int(drops), "packet"), p.deep.Listened,
				text.Counted(s.Busy, "busy connection"))
		default:
			f.Seen = fmt.Sprintf("%s in %s; of %s, %d sent some that did not leave.", text.Counted(int(drops),
				"packet"), p.deep.Listened, text.Counted(s.Busy, "busy connection"), s.Refused)
		}
		if p.queueName() == "fq" {
			f.Remark = fmt.Sprintf("tc -s qdisc show dev %s shows its limit and flow_limit; without one, fq has "+
				"room for 10000 packets, and for 100 of each connection", p.holder.Name)
		}
		return []Finding{f}
	}
	if !p.pathLoses() {
		return nil
	}
	seen := fmt.Sprintf("%d of %s sent %s of the bytes again %s, with an RTT near its minimum.", s.Lossy,
		text.Counted(s.Busy, "busy connection"), share, p.accountPeriodText())
	evidence := evidence{Scenario: "scenarios/seeds/lossy-path.toml"}
	if 2*s.LossyBBR >= s.Lossy {
		return []Finding{{Code: "path-loses-packets-bbr", Severity: Fine, Evidence: evidence, Seen: seen,
			Title: "The path loses packets, and BBR does not slow down for it."}}
	}
	f := Finding{
		Code: "path-loses-packets", Severity: Notable,
		Plain: fmt.Sprintf("Downloads are slower than they could be: %s of what they send is lost on the way.", share),
		Title: "The path loses packets without a queue.",
		Seen:  seen,
		Why: "What these connections use takes each for congestion and slows down; BBR does not. A provider that " +
			"drops what exceeds a rate looks the same: then tell --rate.",
		Try: fmt.Sprintf("weir plan --loss %s", share), Evidence: evidence,
	}
	if p.enforced() != 0 && p.canShape() {
		f.Try = fmt.Sprintf("weir plan --rate %s --loss %s", p.goalRate(), share)
		f.Why = strings.Replace(f.Why, "tell --rate", "tell a lower --rate", 1)
	}
	if p.cc == "bbr" || p.cc == bbr.Name {
		f.Try, f.Remark = "", "restart the services that hold these connections: new ones get BBR"
	}
	return []Finding{f}
}

// dropsHere reports whether this host's own queue has dropped packets for lack of room while one listened, and how
// many: an AQM that counts them; a FIFO without a rate, as connections lose some; or whatever drops for nothing
// else, as their packets did not leave. Near its own rate a shaper with little room is a shaper.
func (p *patient) dropsHere() (drops uint64, holds bool) {
	rate := p.enforced()
	shapes := rate != 0 && (p.sendsNear(rate) || p.overflowsNear(rate) || p.connectionsWait())
	if drops = p.deep.Rose[host.QueueOverflows(p.holder.Name)]; drops > 0 {
		return drops, drops >= minEvents && p.deep.Sockets.Busy > 0 && !shapes && !p.connectionsWait()
	}
	drops = p.deep.Rose[host.QueueDrops(p.holder.Name)]
	lost := p.connectionsLose() && rate == 0 && p.traits().Plain
	return drops, drops >= minEvents && (lost || p.dropsOwn() && p.traits().Overflows && !shapes)
}
