// SPDX-License-Identifier: Apache-2.0

package packaging

import (
	"os/exec"
	"strings"
	"testing"
)

// The units are well-formed, and the service may do little: at most 1.5 of 10 points of exposure.
func TestServeUnits(t *testing.T) {
	needs(t, "systemd-analyze")
	out, err := exec.Command("systemd-analyze", "security", "--offline=true", "--no-pager", "--threshold=15",
		"./weir-serve.service").CombinedOutput()
	if err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	// The program is not installed where tests run, and other units of this machine are its own affair.
	out, _ = exec.Command("systemd-analyze", "verify", "--man=no", "./weir-serve.socket",
		"./weir-serve.service").CombinedOutput()
	for line := range strings.Lines(string(out)) {
		if strings.Contains(line, "weir-serve") && !strings.Contains(line, "is not executable") {
			t.Error(line)
		}
	}
}
