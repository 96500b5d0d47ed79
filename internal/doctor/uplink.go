// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"fmt"
	"strings"

	"weir/internal/plan"
)

// checkUplink is about a default route by a device that not all passes, and about none at all.
func checkUplink(p *patient) []Finding {
	dev, why, err := plan.Uplink(p.Facts)
	if err != nil {
		return []Finding{{
			Code: "uplink-ambiguous", Severity: Notable,
			Plain: "Which way this server's traffic leaves cannot be told, so its queue was not looked at.",
			Title: "Which device is the uplink cannot be told.",
			Seen:  err.Error() + ".",
			Why:   "A queue is looked at where all that leaves passes it.",
			Try:   "weir doctor --dev NAME",
		}}
	}
	if p.link.Name == "" && len(p.Defaults) > 0 {
		r := p.Defaults[0]
		return []Finding{{
			Code: "no-default-route", Severity: Notable,
			Plain: "Which way this server's traffic leaves depends on rules, so no queue was looked at.",
			Title: "No default route is in the main table.",
			Seen:  fmt.Sprintf("The first of others is by %s, in table %d.", r.Dev, r.Table),
			Why:   "Policy routing, or a VRF, decides who takes it (ip-rule(8)).",
			Try:   "weir doctor --dev " + r.Dev,
		}}
	}
	if p.link.Name == "" {
		return []Finding{{
			Code: "no-default-route", Severity: Notable,
			Plain: "This server has no way out that is known, so its queue was not looked at.",
			Title: "There is no default route.",
			Seen:  "No route leads everywhere.",
			Why:   "So the uplink is not known, and its queue was not looked at.",
			Try:   "weir doctor --dev NAME",
		}}
	}
	if !p.link.Up {
		return []Finding{{
			Code: "uplink-down", Severity: Harmful,
			Plain:  "Nothing leaves this server by " + dev + " now: the link is down.",
			Title:  dev + " is down.",
			Seen:   "It is not up, or has no carrier.",
			Why:    "What is said here of its queue holds when the link comes up.",
			Remark: "ip link show dev " + dev + " tells which: NO-CARRIER is the cable, or the other end",
		}}
	}
	if dev == p.Uplink {
		return nil
	}
	route, _ := p.Link(p.Uplink)
	if rate := route.Tree.Rate(); rate != 0 && p.enforced() == 0 {
		f := Finding{
			Code: "shaper-beside-uplink", Severity: Harmful,
			Plain: fmt.Sprintf("Part of this server's traffic does not pass the queue of %s, and waits elsewhere.",
				p.Uplink),
			Title: "The queue of " + p.Uplink + " is not the bottleneck's.",
			Seen:  why + ".",
			Why:   "It shapes to " + rate.String() + ", and what does not pass it waits elsewhere.",
		}
		f.Try, f.Remark = p.planned("weir up --dev "+dev+" --rate RATE", whatRate)
		return []Finding{f}
	}
	return []Finding{{Code: "uplink-below-route", Severity: Fine, Title: "The uplink is " + dev + ".", Seen: why + "."}}
}

// checkOtherUplinks names them: what is said of one is not about another.
func checkOtherUplinks(p *patient) []Finding {
	others := plan.OtherUplinks(p.Facts, p.link.Name, p.Uplink)
	if len(others) == 0 || p.link.Name == "" {
		return nil
	}
	var routes []string
	for _, r := range p.Defaults {
		routes = append(routes, fmt.Sprintf("%s (%s)", r.Dev, r))
	}
	return []Finding{{
		Code: "several-uplinks", Severity: Notable,
		Plain: "This server has more than one way out, and what is said here is about " + p.link.Name + ".",
		Title: "There is more than one way out.",
		Seen:  "Default routes: " + strings.Join(routes, ", ") + ".",
		Why:   "What is said here of a queue is about " + p.link.Name + ".",
		Try:   "weir doctor --dev " + others[0].Subject,
	}}
}
