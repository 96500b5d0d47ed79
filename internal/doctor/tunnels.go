// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"cmp"
	"fmt"
	"strings"
)

// checkTunnels is about UDP that carries other people's TCP.
func checkTunnels(p *patient) []Finding {
	var names []string
	for _, l := range p.Links {
		if l.Kind == "wireguard" || l.Kind == "tuntap" {
			names = append(names, l.Name)
		}
	}
	if len(names) == 0 {
		return nil
	}
	all, below := strings.Join(names, ", "), cmp.Or(p.link.Name, "the uplink")
	switch {
	case p.cc == "bbr":
		f := Finding{
			Code: "bbr-with-tunnel", Severity: Notable,
			Plain: "A setting makes no difference to what goes through " + all + ": BBR.",
			Title: "BBR does nothing for what is tunnelled.",
			Seen:  fmt.Sprintf("%s; congestion control bbr, %s.", all, p.source(congestionControl)),
			Why: "The TCP inside has its ends elsewhere, and their congestion control. What helps it here is the " +
				"queue of " + below + ".",
			Evidence: evidence{Scenario: "scenarios/narrow-link.toml"},
		}
		f.Try, f.Remark = p.planned(planRelay, whatRate)
		return []Finding{f}
	case len(p.carried.Kinds) > 0:
		return nil // what they carry, and what manages it, has been said
	}
	return []Finding{{Code: "tunnels", Severity: Fine, Title: "Tunnels.",
		Seen: all + ": what they carry is managed by the queue of " + below + "."}}
}
