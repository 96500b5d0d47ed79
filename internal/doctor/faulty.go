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
			Code: "kernel-fault", Severity: Notable,
			Plain: "This server's kernel may have a known fault in the queue that it uses.",
			Title: fmt.Sprintf("%s on %s may have a known fault.", q.Kind, p.link.Name),
			Seen:  fmt.Sprintf("Linux %s; %s.", p.Kernel, f),
			Why:   "A stable release or a distribution may have mended it earlier, which is not looked for.",
			Try:   "weir plan --rate RATE", Remark: "plans without it; or boot a kernel that has it mended",
		})
	}
	return found
}
