// SPDX-License-Identifier: Apache-2.0

package host

import (
	"strings"
	"testing"
)

func TestUpstream(t *testing.T) {
	for name, c := range map[string]struct {
		kernel, version, signature string // uname -r, uname -v, /proc/version_signature
		build, release             string
		by                         Builder
	}{
		"Debian 12": {"6.1.0-50-cloud-amd64", "#1 SMP PREEMPT_DYNAMIC Debian 6.1.187-1 (2026-09-07)", "",
			"Debian 6.1.187-1", "6.1.187", StableBuilder},
		"Debian's backports": {"7.3.4+deb13-amd64", "#1 SMP PREEMPT_DYNAMIC Debian 7.3.4-1~bpo13+1 (2026-11-20)", "",
			"Debian 7.3.4-1~bpo13+1", "7.3.4", StableBuilder},
		"Debian experimental": {"6.18-rc4-amd64", "#1 SMP Debian 6.18~rc4-1~exp1", "", "Debian 6.18~rc4-1~exp1",
			"6.18", StableBuilder},
		"Ubuntu": {"6.8.0-31-generic", "#31-Ubuntu SMP PREEMPT_DYNAMIC Sat Apr 20 00:40:06 UTC 2024",
			"Ubuntu 6.8.0-31.31-generic 6.8.1", "Ubuntu 6.8.0-31.31-generic 6.8.1", "6.8.1", ""},
		"Ubuntu, without that file": {"6.8.0-31-generic", "#31-Ubuntu SMP", "", "", "6.8.0-31-generic", ""},
		"another signature":         {"6.8.0-31-generic", "", "Ubuntu", "Ubuntu", "6.8.0-31-generic", ""},
		"Proxmox": {"7.0.14-5-pve", "#1 SMP PREEMPT_DYNAMIC PMX 7.0.14-5 (2026-08-05T08:55Z)", "", "",
			"7.0.14-5-pve", ""},
		"Arch": {"6.17.1-arch1-1", "#1 SMP PREEMPT_DYNAMIC Mon, 06 Oct 2025", "", "", "6.17.1-arch1-1", ""},
		"RHEL": {"6.12.0-55.9.1.el10_0.x86_64", "#1 SMP PREEMPT_DYNAMIC", "", "", "6.12.0-55.9.1.el10_0.x86_64",
			BackportBuilder},
		"Oracle":     {"6.12.0-1.23.3.2.el9uek.x86_64", "", "", "", "6.12.0-1.23.3.2.el9uek.x86_64", BackportBuilder},
		"SLES":       {"6.4.0-150600.23.25-default", "", "", "", "6.4.0-150600.23.25-default", BackportBuilder},
		"Tumbleweed": {"6.17.1-1-default", "", "", "", "6.17.1-1-default", ""},
		"nothing":    {},
	} {
		f := Facts{Kernel: c.kernel, Build: build(c.version, c.signature)}
		if release, by := f.Upstream(); f.Build != c.build || release != c.release || by != c.by {
			t.Errorf("%s: %q, %q, %q", name, f.Build, release, by)
		}
	}
}

func FuzzUpstream(f *testing.F) {
	f.Add("#1 SMP PREEMPT_DYNAMIC Debian 6.1.187-1 (2026-09-07)", "")
	f.Add("#31-Ubuntu SMP", "Ubuntu 6.8.0-31.31-generic 6.8.1")
	f.Add("Debian ", "Ubuntu 6.8")
	f.Fuzz(func(t *testing.T, version, signature string) {
		facts := Facts{Kernel: "6.12.1", Build: build(version, signature)}
		release, by := facts.Upstream()
		if release == "" || by == BackportBuilder || !strings.Contains("6.12.1"+version+signature, release) {
			t.Errorf("%q of %q, by %q", release, facts.Build, by)
		}
	})
}
