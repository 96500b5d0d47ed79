// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"fmt"

	"weir/internal/host"
)

// checkDefaultQdisc is about a default that came too late for the device that matters.
func checkDefaultQdisc(p *patient) []Finding {
	const sysctl = "net.core.default_qdisc"
	want := p.Sysctls[sysctl].Value
	root, ok := p.link.Tree.Root()
	if !ok || want == "" || root.Handle != 0 || p.link.Kind != "" || len(p.stack) == 0 || p.Qdiscs[want] == host.No {
		return nil
	}
	kind := p.stack[len(p.stack)-1].Kind()
	if kind == want || kind == "mq" || kind == "noqueue" {
		return nil
	}
	f := Finding{
		Code: "default-qdisc-too-late", Severity: Notable,
		Plain: fmt.Sprintf("A setting has not reached %s: it has %s, and not %s.", p.link.Name, kind, want),
		Title: fmt.Sprintf("default_qdisc is %s, and %s has %s.", want, p.link.Name, kind),
		Seen:  fmt.Sprintf("%s = %s, %s.", sysctl, want, p.source(sysctl)),
		Why:   "Only devices that come up later get it.",
		Try:   "weir plan --qdisc " + want, Remark: "if it is wanted there",
	}
	if p.cc == "bbr" && want == "fq" {
		f.Why += " BBR does without fq: it has paced itself since Linux 4.13."
		f.Evidence.Scenario = "scenarios/seeds/lossy-path.toml"
	}
	return []Finding{f}
}
