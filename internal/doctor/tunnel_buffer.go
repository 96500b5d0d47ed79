// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"fmt"
	"time"

	"weir/internal/host"
	"weir/internal/plan"
	"weir/internal/units"
)

// checkTunnelBuffer is about the buffer of a program's tunnel, behind every queue that could be set.
func checkTunnelBuffer(p *patient) []Finding {
	const short = 100 // packets
	if !p.carried.Has(plan.Tunnel) {
		return nil
	}
	var longest host.Link
	for _, l := range plan.ProgramTunnels(p.Facts) {
		if l.TxQLen > max(short, longest.TxQLen) {
			longest = l
		}
	}
	if longest.Name == "" {
		return nil
	}
	rate := p.enforced()
	if rate == 0 {
		rate = 50e6 // for a figure that a person can picture
	}
	holds := units.Duration(float64(longest.TxQLen) * float64(longest.MTU) * 8 / float64(rate) * float64(time.Second))
	f := Finding{
		Code: "tunnel-buffer", Severity: Notable,
		Plain: fmt.Sprintf("One busy user of %s makes all others wait: it can hold %d packets.", longest.Name,
			longest.TxQLen),
		Title: fmt.Sprintf("The tunnel's own buffer holds %d packets: %s at %s.", longest.TxQLen, twoDigits(holds),
			rate),
		Seen: fmt.Sprintf("%s: txqueuelen %d, mtu %d.", longest.Name, longest.TxQLen, longest.MTU),
		Why: "It is one FIFO behind every queue that can be set, and for all peers: an idle one waits as long as a " +
			"busy one.",
		Evidence: evidence{Scenario: tunnelScenario},
	}
	f.Try, f.Remark = p.planned(planRelay, whatRate)
	return []Finding{f}
}

// twoDigits leaves a time its first two digits.
func twoDigits(t units.Duration) units.Duration {
	unit := units.Duration(1)
	for t/unit >= 100 {
		unit *= 10
	}
	return t.Round(unit)
}
