// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"fmt"
	"slices"

	"weir/internal/plan"
)

// checkKernelFaults is about what this kernel is known to do wrong: a queue in force, or the datagrams of a program's
// tunnel.
func checkKernelFaults(p *patient) (found []Finding) {
	seen := map[string]bool{}
	for _, l := range slices.Concat(p.links, p.Links) {
		for _, q := range l.Tree.Qdiscs {
			f, is := plan.FaultOf(q.Kind, p.Facts)
			if !is || seen[q.Kind] || !l.Up {
				continue
			}
			seen[q.Kind] = true
			g := p.fault(f, q.Kind+" on "+l.Name)
			g.Plain = fmt.Sprintf("This server's kernel %s a known fault in the queue that it uses.",
				faultVerb(f.Certainty))
			switch g.Remark = "a kernel that has it mended"; {
			case q.Kind == "fq":
				g.Remark += "; until then fq_codel in its place"
			case p.canShape():
				g.Try, g.Remark = "weir plan --rate RATE", "plans without it; or boot a kernel that has it mended"
			}
			found = append(found, g.withoutRemedy(f.Certainty))
		}
	}
	tunnels := plan.ProgramTunnels(p.Facts)
	if f, is := plan.FaultOf(plan.UDPSegments, p.Facts); is && len(tunnels) > 0 {
		g := p.fault(f, fmt.Sprintf("UDP segments, as programs with tunnels such as %s send them,", tunnels[0].Name))
		g.Plain = "This server's kernel may spoil packets of the tunnel program that runs here."
		g.Remark = fmt.Sprintf("a kernel that has it mended; until then see if ethtool -K %s tx-udp-segmentation off "+
			"makes it faster: where the fault does not show, that costs throughput", p.link.Name)
		found = append(found, g.withoutRemedy(f.Certainty))
	}
	return found
}

// fault is the finding of one in what is named.
func (p *patient) fault(f plan.Fault, in string) Finding {
	g := Finding{
		Code: "kernel-fault", Severity: Notable,
		Title: fmt.Sprintf("%s %s a known fault.", in, faultVerb(f.Certainty)),
		Seen:  fmt.Sprintf("Linux %s; %s.", p.Kernel, f),
	}
	switch f.Certainty {
	case plan.Certain:
		g.Why = "This kernel is that release of Linux, with little added."
	case plan.Possible:
		g.Why = "Who built this kernel may have mended it, which cannot be seen from here."
	case plan.Untold:
		g.Title = fmt.Sprintf("Whether this kernel has a known fault in %s cannot be told.", f.Kind)
		g.Why = "Who built this kernel keeps an old release of Linux, and adds mends to it."
	}
	return g
}

// withoutRemedy leaves out what to do about a fault of which nothing can be told.
func (f Finding) withoutRemedy(c plan.Certainty) Finding {
	if c == plan.Untold {
		f.Severity, f.Plain, f.Try, f.Remark = Fine, "", "", ""
	}
	return f
}

func faultVerb(c plan.Certainty) string {
	if c == plan.Certain {
		return "has"
	}
	return "may have"
}
