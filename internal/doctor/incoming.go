// SPDX-License-Identifier: Apache-2.0

package doctor

import "weir/internal/kernel"

// checkIncoming is about somebody else's shaper of what arrives at the uplink.
func checkIncoming(p *patient) []Finding {
	shaper := kernel.ShapedByOthers(p.Facts, p.link.Name)
	if shaper == "" {
		return nil
	}
	return []Finding{{Code: "incoming-shaped-by-others", Severity: Fine,
		Title: "Incoming traffic is shaped already.",
		Seen:  "By " + shaper + ". Weir did not make that, and leaves it."}}
}
