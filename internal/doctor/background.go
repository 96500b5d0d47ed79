// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"fmt"
	"slices"

	"weir/internal/qdisc"
	"weir/internal/text"
)

// checkBackground is about connections whose program has their packets marked as what can wait. From 7.8 to 10.0
// OpenSSH does so, unless a distribution undid it, for all that is no terminal: scp, rsync, git, and editors at work
// over ssh.
func checkBackground(p *patient) (found []Finding) {
	s := p.deep.Sockets
	if s.Background == 0 {
		return nil
	}
	f := Finding{
		Code: "marked-as-background", Severity: Fine,
		Title: "Some connections are marked as what can wait.",
		Seen:  fmt.Sprintf("DSCP CS1 or LE on %d of %s", s.Background, text.Counted(s.Total, "connection")),
		Why:   "A network that heeds the mark sends them last.",
		Remark: "if they are slow and others are not, the program's own setting takes the mark away; " +
			"weir measure tells whether marks arrive",
	}
	if s.BackgroundSSH > 0 {
		f.Seen += fmt.Sprintf(", %d of them at port 22", s.BackgroundSSH)
		f.Remark = "if they are slow and others are not, IPQoS none in sshd_config(5) takes the mark off what this " +
			"host sends, and in ssh_config(5) what a client does; weir measure tells whether marks arrive"
	}
	f.Seen += "."
	classes := []string{"diffserv3", "diffserv4", "diffserv8"}
	for _, one := range p.stack {
		cake, ok := one.(qdisc.Cake)
		if !ok || cake.Bandwidth == 0 || !slices.Contains(classes, cake.Diffserv) {
			continue
		}
		f.Severity, f.Title = Notable, "CAKE lets some connections wait for others."
		f.Plain = "Some transfers ask to come last, and this server's queue heeds that."
		if s.BackgroundSSH == s.Background {
			f.Title = "CAKE lets ssh's transfers wait for others."
		}
		f.Seen += fmt.Sprintf(" %s on %s has %s.", one.Kind(), p.link.Name, cake.Diffserv)
		// net/sched/sch_cake.c, cake_config_diffserv3 and its like
		f.Why = "While others have something to send, about a sixteenth of the rate is for what is marked so."
		if cake.Diffserv == "diffserv8" {
			f.Why = "While others have something to send, these get the smallest share."
		}
		remark := "which has one class for all"
		if s.BackgroundSSH > 0 {
			remark += "; or IPQoS none in sshd_config(5)"
		}
		f.Try, f.Remark = p.planned(planRate, remark)
		break
	}
	return []Finding{f}
}
