// SPDX-License-Identifier: Apache-2.0

//go:build all

package packaging

// In make test-all: systemd judges units.

import (
	"os/exec"
	"strings"
	"testing"
)

// The units are well-formed, and the services may do little: at most 1.5 of 10 points of exposure.
func TestServeUnits(t *testing.T) {
	secure(t, "weir-serve", "./weir-serve.service", "./weir-serve.socket")
	secure(t, "weir-serve-domain@", "./weir-serve-domain@.service")
}

// secure has systemd judge a service, which is the first of the units.
func secure(t *testing.T, name string, units ...string) {
	t.Helper()
	needs(t, "systemd-analyze")
	out, err := exec.Command("systemd-analyze", "security", "--offline=true", "--no-pager", "--threshold=15",
		units[0]).CombinedOutput()
	if err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	// The program is not installed where tests run, and other units of this machine are its own affair.
	out, _ = exec.Command("systemd-analyze", append([]string{"verify", "--man=no"}, units...)...).CombinedOutput()
	for line := range strings.Lines(string(out)) {
		if strings.Contains(line, name) && !strings.Contains(line, "/usr/bin/weir is not executable") {
			t.Error(line)
		}
	}
}
