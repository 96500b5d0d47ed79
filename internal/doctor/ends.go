// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"fmt"

	"weir/internal/text"
)

// ends is about ends that hold a connection back: then the link is not the problem.
func ends(p *patient) (found []Finding) {
	s := p.deep.Sockets
	busy := text.Counted(s.Busy, "busy connection")
	if p.paced() {
		found = append(found, Finding{
			Code: "pace-set", Severity: Notable,
			Plain: fmt.Sprintf("Downloads are as fast as a program on this server lets them be: %s each.", s.Pace),
			Title: "Programs bound how fast their connections may be.",
			Seen: fmt.Sprintf("%d of %s deliver about the most that they may have, up to %s (SO_MAX_PACING_RATE).",
				s.Paced, busy, s.Pace),
			Why:    "The kernel paces what such a connection sends, whatever the link carries (socket(7)).",
			Remark: "a setting of that program; ss -ti shows pacing_rate, and the most that is allowed behind a slash",
		})
	}
	if p.bufferBound() {
		f := Finding{
			Code: "send-buffers-bind", Severity: Notable,
			Plain: "Downloads are slower than they could be: this server does not let them keep enough on the way.",
			Title: "Send buffers hold connections back.",
			Seen: fmt.Sprintf("%d of %s wait for room in the send buffer, or have all that fits into it on its way; "+
				"%s = %s, %s.", s.Buffer, busy, tcpWmem, p.Sysctls[tcpWmem].Value, p.source(tcpWmem)),
			Why:      "They could send more than they may keep in flight.",
			Evidence: evidence{Scenario: "scenarios/long-fast-link.toml"},
		}
		f.Try, f.Remark = p.plannedBuffer("weir plan --rate RATE --rtt TIME", tcpWmem)
		found = append(found, f)
	}
	if p.receiverBound() && p.scales() {
		found = append(found, Finding{
			Code: "receivers-bind", Severity: Notable,
			Plain: "Downloads are as fast as those who receive them allow; this server is not the reason.",
			Title: "Receivers hold connections back.",
			Seen: fmt.Sprintf("%d of %s spent a fifth of their time or more waiting for the receiver's window.",
				s.Receiver, busy),
			Why:    "The limit is at the other end, and nothing that is set here changes it.",
			Remark: "nothing here; those who receive would need larger windows",
		})
	}
	return found
}

// scales reports whether TCP may have windows above 64 KiB here.
func (p *patient) scales() bool { return p.Sysctls[windowScaling].Value != "0" }
