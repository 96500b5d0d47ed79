// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"fmt"

	"weir/internal/text"
)

// checkTCPMemory is about a kernel that takes memory back from connections, as they need more than TCP may have in all.
func checkTCPMemory(p *patient) []Finding {
	m := p.deep.TCPMemory
	if m.Mark == 0 || !p.memoryShort() && m.Pressures == 0 {
		return nil
	}
	f := Finding{
		Code: "tcp-memory-short", Severity: Notable,
		Plain: "Connections may have stalled: together they needed more memory than the kernel lets them have.",
		Title: "TCP has been short of memory.",
		Seen: fmt.Sprintf("TCP holds %s now, and the mark is %s (tcp_mem).", text.Bytes(float64(m.Held)),
			text.Bytes(float64(m.Mark))),
		Why: "Beyond the mark the kernel throws away what has arrived, and lets no buffer grow.",
		Remark: "raise the second and third value of net.ipv4.tcp_mem, in pages, if the host has memory to spare; " +
			"else fewer connections, or smaller maxima of tcp_rmem and tcp_wmem",
		Evidence: evidence{Scenario: "scenarios/rules/tcp-memory.toml"},
	}
	if m.Pressures > 0 {
		f.Seen += fmt.Sprintf(" It was reached %s since the boot (/proc/net/netstat).",
			text.Counted(int(m.Pressures), "time"))
	}
	if p.memoryShort() {
		f.Severity = Harmful
		f.Plain = "Connections may stall now: together they need more memory than the kernel lets them have."
		f.Title = "TCP is short of memory."
	}
	return []Finding{f}
}

// memoryShort reports whether the kernel takes memory back from connections now.
func (p *patient) memoryShort() bool {
	m := p.deep.TCPMemory
	return m.Mark > 0 && m.Held >= m.Mark
}
