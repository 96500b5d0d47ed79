// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"slices"
	"strings"
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
		yields, stays := p.otherSetters(ecn)
		if got := [2]int{len(yields), len(stays)}; got != want {
			t.Errorf("%s: %v let the files win, and %v do not", file, got[0], got[1])
		}
	}
}

// What is said of a value that the kernel refuses is true of where it stands: when the kernel is handed it, and how it
// is written there.
func TestRefusedPlaces(t *testing.T) {
	const size, boot = "16M has a unit, and none is understood.", "The kernel refuses this line, at boot too: "
	const command = "The kernel refuses it: "
	inFile := func(by, text string) func(*host.Facts) {
		return writer(host.Writer{By: by, File: "/a", Line: 2, Sysctl: "net.core.rmem_max", Value: "16M", Text: text})
	}
	for _, c := range []struct {
		edit        func(*host.Facts)
		why, remark string
	}{
		{set("core.rmem_max", "16M", "/etc/sysctl.d/a.conf", 1), boot + size,
			"write:  net.core.rmem_max = 16777216"},
		{set("core.rmem_max", "16M", "/etc/sysctl.conf", 1, unread),
			"No boot reads that file, and when somebody loads it the kernel refuses this line: " + size,
			"write:  net.core.rmem_max = 16777216"},
		{set("core.rmem_max", "16M", host.CommandLine, 0), "The kernel refuses it at every boot: " + size,
			"write:  sysctl.net.core.rmem_max=16777216"},
		{set("ipv4.tcp_rmem", "4096,131072,9000000", host.CommandLine, 0), "The kernel refuses it at every boot: " +
			"numbers are separated by spaces, and 4096,131072,9000000 has a comma.",
			`write:  sysctl.net.ipv4.tcp_rmem="4096 131072 9000000"`},
		{inFile("ufw", ""), command + size, "write:  net.core.rmem_max = 16777216"},
		{inFile("rc.local", "/sbin/sysctl -qw net.core.rmem_max=16M; true"), command + size,
			"write:  /sbin/sysctl -qw net.core.rmem_max=16777216; true"},
		{inFile("rc.local", "echo 16M > /proc/sys/net/core/rmem_max"), command + size,
			"write:  echo 16777216 > /proc/sys/net/core/rmem_max"},
		{inFile("rc.local", "mount -o size=16M /x; sysctl -w net.core.rmem_max=16M"), command + size,
			"write 16777216 there"},
		{inFile("rc.local", "sysctl -w net.core.rmem_max=16M; true "+strings.Repeat("a", 100)+"…"), command + size,
			"write 16777216 there"},
	} {
		found := slices.DeleteFunc(Diagnose(with(t, looked, c.edit)),
			func(f Finding) bool { return f.Severity != Harmful })
		if len(found) != 1 || found[0].Code != "setting-refused" || found[0].Why != c.why ||
			found[0].Remark != c.remark {
			t.Errorf("%q, %q:\n%+v", c.why, c.remark, found)
		}
	}
}
