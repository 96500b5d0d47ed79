// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"slices"
	"strings"

	"weir/internal/host"
	"weir/internal/qdisc"
)

// kernelHas says what there is to build with.
func kernelHas(p *patient) []Finding {
	var has, lacks []string
	for _, kind := range []string{"cake", "cake_mq", "htb", "fq", "fq_codel", "dualpi2"} {
		switch p.Qdiscs[kind] {
		case host.Yes:
			has = append(has, kind)
		case host.No:
			lacks = append(lacks, kind)
		}
	}
	if len(has)+len(lacks) == 0 {
		return nil
	}
	if p.deep.BPFQdisc == host.Yes {
		has = append(has, "queues in BPF")
	}
	if p.deep.AccECN == host.Yes {
		has = append(has, "AccECN")
	}
	has = append(has, slices.Concat(p.Congestion.Available, p.Congestion.Loadable)...)
	seen := "Has " + strings.Join(has, ", ") + "."
	if len(lacks) > 0 {
		seen += " Has no " + strings.Join(lacks, ", ") + "."
	}
	no := func(kind string) bool { return slices.Contains(lacks, kind) }
	if no("dualpi2") && p.Qdiscs[qdisc.BPF] == host.Yes {
		seen += " Debian builds no sch_dualpi2; weir dualpi2 brings it as BPF."
	}
	f := Finding{Code: "kernel", Severity: Fine, Title: "Linux " + p.Kernel + ".", Seen: seen}
	if no("cake") && (no("htb") || no("fq_codel")) {
		f.Code, f.Severity = "kernel-cannot-shape", Notable
		f.Plain = "This server's kernel lacks what it takes to keep the queue here."
		f.Why = "There is nothing here to shape with and keep connections apart: where the provider enforces a rate " +
			"the queue stays there."
		f.Remark = "install the package with all of the kernel's modules"
	}
	return []Finding{f}
}
