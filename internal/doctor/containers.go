// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"weir/internal/text"
)

// checkContainers is about namespaces with TCP settings of their own.
func checkContainers(p *patient) []Finding {
	if !p.inFirstNamespace() {
		return nil
	}
	var own []string
	for _, name := range []string{congestionControl, tcpECN, notsentLowat, tcpRmem, tcpWmem} {
		now := p.Sysctls[name].Value
		s, ok := p.deep.AtBoot(name)
		if ok && p.Leaves(name, s.Value, now) && !strings.HasPrefix(s.File, "/usr/") || p.surelySet(name, now) {
			own = append(own, name)
		}
	}
	return append(p.namespacesWithoutSettings(own), p.differingContainers(own)...)
}

// namespacesWithoutSettings is about those that get none of the settings that are this host's own.
func (p *patient) namespacesWithoutSettings(own []string) []Finding {
	if len(p.deep.Namespaces) == 0 {
		return nil
	}
	processes := 0
	for _, n := range p.deep.Namespaces {
		processes += n.Processes
	}
	seen := fmt.Sprintf("%s in %s.", text.Counted(processes, "process"),
		text.Counted(len(p.deep.Namespaces), "other network namespace"))
	if len(own) == 0 {
		return []Finding{{Code: "containers", Severity: Fine, Title: "Containers.",
			Seen: seen + " No setting here is one that they would miss."}}
	}
	return []Finding{{
		Code: "containers-without-settings", Severity: Notable,
		Plain: "The containers on this server do not get its network settings.",
		Title: "Containers do not inherit the settings.",
		Seen:  seen + " Set here: " + shortNames(own) + ".",
		Why: "Those settings belong to a network namespace. One that is made later starts with this one's congestion " +
			"control and buffers and the kernel's other values. One that is there already keeps its own. The queue " +
			"of the uplink serves them all.",
		Try: "docker run --sysctl NAME=VALUE", Remark: "sets them where a container is started",
	}}
}

// differingContainers is about containers that are given another value of such a setting.
func (p *patient) differingContainers(own []string) []Finding {
	var seen []string
	for _, c := range p.deep.Contained {
		now := p.Sysctls[c.Sysctl].Value
		if slices.Contains(own, c.Sysctl) && !p.sameToKernel(c.Sysctl, c.Value, now) {
			seen = append(seen, fmt.Sprintf("%s of %s: %s (%s), here %s", text.Short(c.Sysctl),
				cmp.Or(c.Name, "all of "+c.By+"'s"), c.Value, c.Where(), now))
		}
	}
	if len(seen) == 0 {
		return nil
	}
	const maxNamed = 3
	if more := len(seen) - maxNamed; more > 0 {
		seen = append(seen[:maxNamed], fmt.Sprintf("and %d more", more))
	}
	return []Finding{{
		Code: "container-sets-its-own", Severity: Notable,
		Plain:  "Containers on this server have network settings of their own.",
		Title:  "Containers are given other values of what is set here.",
		Seen:   strings.Join(seen, "; ") + ".",
		Why:    "For the connections of such a container its own value counts, whatever this host has.",
		Remark: "change it where the container is defined, if that is not meant",
	}}
}

func shortNames(sysctls []string) string {
	var names []string
	for _, name := range sysctls {
		names = append(names, text.Short(name))
	}
	return strings.Join(names, ", ")
}
