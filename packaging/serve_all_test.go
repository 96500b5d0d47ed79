// SPDX-License-Identifier: Apache-2.0

//go:build all

package packaging

// In make test-all: systemd judges units.

import (
	"bytes"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
)

// The units are well-formed, and the services may do little: at most 1.5 of 10 points of exposure.
func TestServeUnits(t *testing.T) {
	secure(t, "weir-serve", "./weir-serve.service", "./weir-serve.socket")
	secure(t, "weir-serve-domain@", "./weir-serve-domain@.service")
}

// A name that fails is tried again, and at most as often as Let's Encrypt allows: five failures of a name an hour.
func TestServeDomainWaits(t *testing.T) {
	needs(t, "systemd-analyze")
	unit, err := os.ReadFile("weir-serve-domain@.service")
	if err != nil {
		t.Fatal(err)
	}
	wait := regexp.MustCompile(`(?m)^RestartSec=(.*)$`).FindSubmatch(unit)
	if wait == nil || !bytes.Contains(unit, []byte("\nStartLimitIntervalSec=0\n")) {
		t.Fatal("it does not wait, or is given up")
	}
	out := output(t, "systemd-analyze", "timespan", string(wait[1]))
	span := regexp.MustCompile(`\x{03bc}s: (\d+)`).FindStringSubmatch(out)
	if span == nil {
		t.Fatal(out)
	}
	if us, err := strconv.Atoi(span[1]); err != nil || us < int(time.Hour/5/time.Microsecond) {
		t.Errorf("%v, %v", out, err)
	}
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
