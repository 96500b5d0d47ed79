// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"slices"
	"strings"

	"weir/internal/host"
	"weir/internal/plan"
	"weir/internal/qdisc"
)

// cannotShape is of a kernel that can enforce no rate in the way that plans do.
const cannotShape Code = "kernel-cannot-shape"

// checkKernel says what there is to build with.
func checkKernel(p *patient) []Finding {
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
	if p.Qdiscs["dualpi2"] == host.No && p.Qdiscs[qdisc.BPF] == host.Yes {
		seen += " Debian builds no sch_dualpi2; weir dualpi2 brings it as BPF."
	}
	f := Finding{Code: "kernel", Severity: Fine, Title: "Linux " + p.Kernel + ".", Seen: seen}
	// Not of a host that shapes already, with what its kernel has.
	if !p.canShape() && p.enforced() == 0 {
		f.Code, f.Severity = cannotShape, Notable
		f.Plain = "This server's kernel has nothing to shape with: weir up --rate would be refused."
		f.Why = "There is nothing here to shape with and keep connections apart: where the provider enforces a rate " +
			"the queue stays there."
		f.Remark = host.AllModules(p.Kernel)
	}
	return []Finding{f}
}

// canShape reports whether the kernel has, as far as is known, what plans with a rate need: CAKE, Weir's own shaper
// above fq, or htb above fq_codel.
func (p *patient) canShape() bool {
	has := func(kind string) bool {
		f, _ := plan.FaultOf(kind, p.Facts)
		return p.Qdiscs[kind] != host.No && !f.Known()
	}
	return has("cake") || has(qdisc.BPFShaping) && has("fq") || has("htb") && has("fq_codel")
}

// planned is a plan to try; on a kernel that would refuse it, what is to be done before.
func (p *patient) planned(try, remark string) (toTry, instead string) {
	if p.canShape() {
		return try, remark
	}
	return "", host.AllModules(p.Kernel)
}
