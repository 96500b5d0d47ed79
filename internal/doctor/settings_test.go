// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"testing"

	"weir/internal/host"
)

// What TuneD applies again after its own wins: the administrator's files, and not the kernel's command line.
func TestAppliedAgain(t *testing.T) {
	const ecn = "net.ipv4.tcp_ecn"
	for file, want := range map[string][2]int{"/etc/sysctl.d/a.conf": {1, 0}, "/etc/sysctl.conf": {1, 0},
		"/usr/lib/sysctl.d/a.conf": {0, 1}, host.CommandLine: {0, 1}} {
		p := &patient{deep: &host.Deep{Settings: []host.Setting{{Sysctl: ecn, Value: "1", File: file, Wins: true}},
			Writers: []host.Writer{{By: "tuned", Sysctl: ecn, Value: "2", Yields: true}}}}
		yields, stays := p.others(ecn)
		if got := [2]int{len(yields), len(stays)}; got != want {
			t.Errorf("%s: %v let the files win, and %v do not", file, got[0], got[1])
		}
	}
}
