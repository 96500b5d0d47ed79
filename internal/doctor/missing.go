// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"cmp"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"weir/internal/host"
	"weir/internal/qdisc"
)

// checkMissing finds what files ask for and this kernel does not have.
func checkMissing(p *patient) (found []Finding) {
	if !p.inFirstNamespace() {
		return nil
	}
	asks := map[string][]string{} // where, by what
	ask := func(what, where string) {
		if what != "" && !slices.Contains(asks[what], where) {
			asks[what] = append(asks[what], where)
		}
	}
	for _, s := range p.deep.Settings {
		if s.Masked == "" {
			ask(p.missingName(s.Sysctl, s.Value), s.Where())
		}
	}
	for _, w := range p.deep.Writers {
		if w.Qdisc != "" && p.Qdiscs[w.Qdisc] == host.No {
			ask(w.Qdisc, w.Where())
		}
		ask(p.missingName(w.Sysctl, w.Value), w.Where())
	}
	for _, what := range slices.Sorted(maps.Keys(asks)) {
		verb := "ask"
		if len(asks[what]) == 1 {
			verb = "asks"
		}
		f := Finding{
			Code: "missing-in-kernel", Severity: Harmful,
			Plain: "A setting on this server does nothing: its kernel has no " + what + ".",
			Title: "This kernel has no " + what + ".",
			Seen: fmt.Sprintf("%s %s for it; kernel %s has no such module.", strings.Join(asks[what], ", "), verb,
				p.Kernel),
			Why: "The line has no effect.",
		}
		f.Try, f.Remark = p.planned(planRate, "for what this kernel can do")
		if what == "dualpi2" {
			f.Why = "Linux has it since 6.17, but no Debian kernel builds it. The lines have no effect."
			if p.Qdiscs[qdisc.BPF] == host.Yes {
				f.Try = fmt.Sprintf("weir dualpi2 add dev %s rate RATE", cmp.Or(p.link.Name, "DEV"))
				f.Remark = "the same in BPF, with a shaper"
			}
		}
		found = append(found, f)
	}
	return found
}

// missingName is what a sysctl is set to that this kernel does not have; "" if it has it, or it is no name.
func (p *patient) missingName(sysctl, value string) string {
	switch {
	case host.ModulePrefix.MatchString(value): // which is another mistake: see refused
	case sysctl == "net.core.default_qdisc" && p.Qdiscs[value] == host.No:
		return value
	case sysctl == congestionControl && moduleName.MatchString(value) && len(p.Congestion.Available) > 0 &&
		!p.Congestion.Has(value):
		return value
	}
	return ""
}

// moduleName is how modules of congestion controls are called.
var moduleName = regexp.MustCompile(`^[a-z0-9_]+$`)
