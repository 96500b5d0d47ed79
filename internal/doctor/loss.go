// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"fmt"

	"weir/internal/text"
	"weir/internal/units"
)

// lossyPath is about packets that are lost with no queue to blame.
func lossyPath(p *patient) []Finding {
	s := p.deep.Sockets
	if !p.lossy() {
		return nil
	}
	share := units.Share(float64(int(float64(s.LossyShare)*1000+0.5)) / 1000)
	seen := fmt.Sprintf("%d of %s sent %s of the bytes again, with an RTT near its minimum.", s.Lossy,
		text.Counted(s.Busy, "busy connection"), share)
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
	if p.cc == "bbr" {
		f.Try, f.Remark = "", "restart the services that hold these connections: new ones get BBR"
	}
	return []Finding{f}
}
