// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"fmt"

	"weir/internal/qdisc"
)

// checkAQMWithoutRate is about a discipline without a rate that somebody has chosen: it could act, and may have no
// reason to.
func checkAQMWithoutRate(p *patient) []Finding {
	const enough = 10_000 // packets, after which never having acted means something
	root, ok := p.link.Tree.Root()
	if !ok || p.link.Name == "" || p.connectionsWait() || p.enforced() != 0 || !p.chosenAQM(root) {
		return nil
	}
	stats, name := root.Stats, queueOf(p.link)
	on := name + " on " + p.link.Name
	seen := fmt.Sprintf("Of %d packets it has dropped %d and marked %d; %d wait.",
		stats.Packets, stats.Drops, stats.Marks, stats.Qlen)
	if stats.Drops+stats.Marks+stats.Backlog > 0 {
		return []Finding{{Code: "aqm-at-work", Severity: Fine, Title: on + " has something to do.", Seen: seen}}
	}
	f := Finding{
		Code: "aqm-without-rate", Severity: Notable,
		Plain: on + " can only help where this server is the narrowest place, and has had nothing to do.",
		Title: on + " has no rate.",
		Seen:  seen,
		Why: name + " without a rate acts on a queue at this device only. Where the provider enforces a lower rate " +
			"the queue is there, and this changes nothing.",
		Evidence: evidence{Scenario: "scenarios/seeds/narrow-link.toml"},
	}
	f.Try, f.Remark = p.planned(planRate, orAuto)
	if stats.Packets >= enough {
		f.Code, f.Severity, f.Title = "aqm-without-effect", Harmful, on+" has no effect."
		f.Plain = "The queue that somebody has set up on this server does nothing: nothing ever waits in it."
	}
	return []Finding{f}
}

// chosenAQM reports whether somebody has put an active queue management without a rate there: no kernel comes with one
// of these for a default.
func (p *patient) chosenAQM(root qdisc.Qdisc) bool {
	traits := qdisc.TraitsOf(queueOf(p.link))
	return root.Handle != 0 && traits.AQM && !traits.Default
}
