// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"weir/internal/bbr"
	"weir/internal/hint"
	"weir/internal/host"
	"weir/internal/qdisc"
)

// recipes are the seeds' own, to the letter: what they say to set and nothing else, with what was measured of it beside
// each setting, whether or not that speaks for it.
var recipes = map[string][]rule{
	"dualpi2-bbr": {dualpi2BBR},
	"server-cake": {serverCake},
	"lossy-bbr":   {lossyBBR},
}

// recipeNames lists the recipes.
func recipeNames() []string { return slices.Sorted(maps.Keys(recipes)) }

// dualpi2BBR is seed 000: a 50 Mbit/s relay whose SSH went from 50 to 200 ms.
func dualpi2BBR(d *draft) error {
	const (
		says     = "the recipe"
		untested = "not measured: no claim of the recipe rests on it"
	)
	if err := d.kernelHas("bbr"); err != nil {
		return err
	}
	err := d.root(plainStack("dualpi2"), says+`: "actively controls queuing delay"`,
		recipeQueueEvidence.String())
	if err != nil {
		return err
	}
	for _, s := range []struct{ name, value, reason, evidence string }{
		{"net.core.default_qdisc", "dualpi2", "", "only devices that come up later get it"},
		{congestionControl, "bbr", "", recipeBBREvidence.String()},
		{"net.ipv4.tcp_ecn", "1", `: "essential for dualpi2"`, recipeECNEvidence.String()},
		{"net.ipv4.tcp_fastopen", "3", "", untested},
		{"net.ipv4.tcp_recovery", "1", "", untested},
		{notsentLowat, "8192", `: "lower BBR kernel buffering"`, recipeLowatEvidence.String()},
		{"net.core.rmem_max", "4194304", "", untested},
		{"net.core.wmem_max", "4194304", "", untested},
		{tcpRmem, "4096 16384 4194304", `: "preventing bloat"`,
			"the kernel's default is 131072; 4 MiB is below what 200mbit over 167ms has in flight"},
		{tcpWmem, "4096 16384 4194304", `: "preventing bloat"`, recipeBuffersEvidence.String()},
		{"net.core.somaxconn", "2048", "", untested},
		{"net.ipv4.tcp_max_syn_backlog", "2048", "", untested},
		{"net.mptcp.enabled", "1", "", untested},
	} {
		d.sysctl(s.name, s.value, says+s.reason, s.evidence)
	}
	return nil
}

// serverCake is seed 001, with the options that it names.
func serverCake(d *draft) error {
	q := qdisc.New[qdisc.Cake]()
	q.Bandwidth, q.Diffserv = shapedRate(d.Goal.Rate), "besteffort"
	err := d.root(qdisc.Stack{q}, "the recipe: "+hereReason(d.Goal.Rate),
		recipeCAKEEvidence.String())
	if err != nil {
		return err
	}
	d.sysctl(notsentLowat, "131072", "the recipe: quicker backpressure, no loss of throughput",
		lowatEvidence.String())
	return nil
}

// lossyBBR is seed 002. It sets no qdisc on a device, only what new devices get.
func lossyBBR(d *draft) error {
	if err := d.kernelHas("bbr"); err != nil {
		return err
	}
	if d.facts.Qdiscs["fq"] == host.No {
		return &hint.Error{What: fmt.Sprintf("kernel %s has no fq", d.facts.Kernel),
			Try: "--loss 10%: BBR has paced itself since Linux 4.13, and does without fq"}
	}
	d.warnOfFaults(plainStack("fq"))
	d.sysctl("net.core.default_qdisc", "fq", `the recipe: "required" by BBR`,
		recipeFQEvidence.String())
	d.sysctl(congestionControl, "bbr", "the recipe: does not take loss for congestion", lossEvidence.String())
	return nil
}

func (d *draft) kernelHas(cc string) error {
	if cc == bbr.Name {
		return d.register()
	}
	if d.facts.Congestion.Has(cc) {
		return nil
	}
	return &hint.Error{
		What: fmt.Sprintf("kernel %s has no congestion control %s", d.facts.Kernel, cc),
		Try: "--cc keep, or one of: " + strings.Join(
			slices.Concat(d.facts.Congestion.Available, d.facts.Congestion.Loadable), ", "),
	}
}
