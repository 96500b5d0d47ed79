// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"fmt"

	"weir/internal/plan"
)

// faulty is about what this kernel is known to do wrong: a queue in force, or the datagrams of a program's tunnel.
func faulty(p *patient) (found []Finding) {
	seen := map[string]bool{}
	for _, q := range p.link.Tree.Qdiscs {
		f, is := plan.FaultOf(q.Kind, p.Kernel)
		if !is || seen[q.Kind] {
			continue
		}
		seen[q.Kind] = true
		found = append(found, Finding{
			Code: "kernel-fault", Severity: Notable,
			Plain: "This server's kernel may have a known fault in the queue that it uses.",
			Title: fmt.Sprintf("%s on %s may have a known fault.", q.Kind, p.link.Name),
			Seen:  fmt.Sprintf("Linux %s; %s.", p.Kernel, f),
			Why:   "A stable release or a distribution may have mended it earlier, which is not looked for.",
			Try:   "weir plan --rate RATE", Remark: "plans without it; or boot a kernel that has it mended",
		})
	}
	tunnels := plan.ProgramTunnels(p.Facts)
	if f, is := plan.FaultOf(plan.UDPSegments, p.Kernel); is && len(tunnels) > 0 {
		found = append(found, Finding{
			Code: "kernel-fault", Severity: Notable,
			Plain: "This server's kernel may spoil packets of the tunnel program that runs here.",
			Title: fmt.Sprintf("UDP segments, as programs with tunnels such as %s send them, may have a known fault.",
				tunnels[0].Name),
			Seen: fmt.Sprintf("Linux %s; %s.", p.Kernel, f),
			Why: "A program with a tunnel hands the kernel many datagrams as one. A distribution may have mended it " +
				"earlier, which is not looked for.",
			Remark: fmt.Sprintf("a kernel that has it mended; until then see if ethtool -K %s tx-udp-segmentation off "+
				"makes it faster: where the fault does not show, that costs throughput", p.link.Name),
		})
	}
	return found
}
