// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"fmt"

	"weir/internal/plan"
)

// faulty is about a queue in force that this kernel is known to do wrong.
func faulty(p *patient) (found []Finding) {
	seen := map[string]bool{}
	for _, q := range p.link.Tree.Qdiscs {
		f, is := plan.FaultOf(q.Kind, p.Kernel)
		if !is || seen[q.Kind] {
			continue
		}
		seen[q.Kind] = true
		found = append(found, Finding{
			Code: "kernel-fault", Severity: Harmful,
			Plain: "This server's kernel has a known fault in the queue that it uses.",
			Title: fmt.Sprintf("%s on %s has a known fault.", q.Kind, p.link.Name),
			Seen:  fmt.Sprintf("Linux %s; %s.", p.Kernel, f),
			Why:   "A distribution may have mended it earlier, which its version does not tell.",
			Try:   "weir plan --rate RATE", Remark: "plans without it; or boot a kernel that has it mended",
		})
	}
	return found
}
