// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"fmt"
	"strings"

	"weir/internal/text"
)

// checkUnreadFile finds settings in /etc/sysctl.conf where the boot does not read it.
func checkUnreadFile(p *patient) []Finding {
	if !p.inFirstNamespace() {
		return nil
	}
	var lost []string
	file := ""
	for _, s := range p.deep.Settings {
		if !s.Unread || !s.Manual {
			continue
		}
		if boot, ok := p.deep.AtBoot(s.Sysctl); ok && p.sameToKernel(s.Sysctl, boot.Value, s.Value) {
			continue
		}
		taken := p.Takes(s.Sysctl, s.Value, p.Sysctls[s.Sysctl].Value)
		if taken.Refused != "" && taken.Numbers == 0 {
			continue // which sets nothing, whoever loads it: refused tells of it
		}
		file = s.File
		lost = append(lost, text.Short(s.Sysctl))
	}
	if len(lost) == 0 {
		return nil
	}
	return []Finding{{
		Code: "file-not-read-at-boot", Severity: Harmful,
		Plain: "The next reboot loses the settings in " + file + ".",
		Title: file + " is not read at boot.",
		Seen: fmt.Sprintf("It sets %s; %s reads /etc/sysctl.d, where nothing points to it.", strings.Join(lost, ", "),
			p.deep.Loader),
		Why: "These settings last until the next boot, and come back only when somebody runs sysctl -p.",
		Try: "mv " + file + " /etc/sysctl.d/90-local.conf", Remark: "for those that shall stay",
		Evidence: evidence{Doc: "sysctl.d(5); Debian 13's release notes"},
	}}
}
