// SPDX-License-Identifier: Apache-2.0

//go:build all

package meter

// In make test-all: flent is run.

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"
)

// flent itself reads the file.
func TestFlentReads(t *testing.T) {
	if _, err := exec.LookPath("flent"); err != nil {
		t.Skipf("skipped, not passed: %v (scripts/need test)", err)
	}
	path := filepath.Join(t.TempDir(), "x.flent.gz")
	var b bytes.Buffer
	if err := Flent(&b, recorded()); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, b.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("flent", "-f", "summary", "-i", path)
	cmd.Env = append(os.Environ(), "HOME="+t.TempDir())
	out, err := cmd.CombinedOutput()
	for _, want := range []string{`rrul test run`, `Ping \(ms\) avg +: +112\.\d\d +48\.03`,
		`TCP download sum : +\d+\.\d\d +48\.00`} {
		if err != nil || !regexp.MustCompile(want).Match(out) {
			t.Errorf("no %s: %v\n%s", want, err, out)
		}
	}
}
