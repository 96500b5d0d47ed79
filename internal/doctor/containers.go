// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"fmt"
	"strings"

	"weir/internal/text"
)

// containers is about namespaces with TCP settings of their own.
func containers(p *patient) []Finding {
	if len(p.deep.Namespaces) == 0 || !p.initial() {
		return nil
	}
	processes := 0
	for _, n := range p.deep.Namespaces {
		processes += n.Processes
	}
	seen := fmt.Sprintf("%s in %s.", text.Counted(processes, "process"),
		text.Counted(len(p.deep.Namespaces), "other network namespace"))
	var own []string
	for _, name := range []string{congestionControl, tcpECN, notsentLowat, tcpRmem, tcpWmem} {
		now := p.Sysctls[name].Value
		s, ok := p.deep.AtBoot(name)
		if ok && p.Leaves(name, s.Value, now) && !strings.HasPrefix(s.File, "/usr/") || p.foreign(name, now) {
			own = append(own, text.Short(name))
		}
	}
	if len(own) == 0 {
		return []Finding{{Code: "containers", Severity: Fine, Title: "Containers.",
			Seen: seen + " No setting here is one that they would miss."}}
	}
	return []Finding{{
		Code: "containers-without-settings", Severity: Notable,
		Plain: "The containers on this server do not get its network settings.",
		Title: "Containers do not inherit the settings.",
		Seen:  seen + " Set here: " + strings.Join(own, ", ") + ".",
		Why: "Those settings belong to a network namespace. One that is made later starts with this one's congestion " +
			"control and buffers and the kernel's other values. One that is there already keeps its own. The queue " +
			"of the uplink serves them all.",
		Try: "docker run --sysctl NAME=VALUE", Remark: "sets them where a container is started",
	}}
}
