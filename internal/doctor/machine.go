// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"fmt"

	"weir/internal/text"
)

// checkCPUAndDevice is about limits of the host itself: its CPU, and its device.
func checkCPUAndDevice(p *patient) (found []Finding) {
	if p.cpuShort() {
		waited := fmt.Sprintf("%.0f %%", 100*float64(p.deep.CPU))
		short := Finding{
			Code: "cpu-short", Severity: Notable,
			Plain: "This server's processor is too busy: in " + waited + " of the last 10 s something waited for it.",
			Title: "The CPU is short.",
			Seen:  "In " + waited + " of the last 10 s something waited for a CPU (/proc/pressure/cpu).",
			Why: "Where the CPU is the limit a shaper costs more than it gives: fq without one is the cheapest " +
				"queue.",
			Try: "weir plan", Remark: "without --rate",
		}
		if p.deep.Sockets.Busy == 0 { // who waits may have nothing to do with the network
			short = Finding{Code: "cpu-pressure", Severity: Fine, Title: "Programs wait for the CPU.",
				Seen: short.Seen, Why: "No busy connection was seen, so it says nothing about the network."}
		}
		found = append(found, short)
	}
	if p.deviceFull() {
		found = append(found, Finding{
			Code: "device-full", Severity: Fine, Title: "The device is the limit.",
			Seen: fmt.Sprintf("%s deliver %s of %s.", text.Counted(p.deep.Sockets.Busy, "busy connection"),
				threeDigits(p.deep.Sockets.Rate), p.link.Speed),
		})
	}
	return found
}
