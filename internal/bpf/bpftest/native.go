// SPDX-License-Identifier: Apache-2.0

package bpftest

import (
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
)

// Native builds a program of this machine's own from the C that a package's BPF has in common with it, and returns its
// path. Without a compiler the test is skipped, by name.
func Native(t *testing.T, source string, flags ...string) string {
	t.Helper()
	const clang = "clang-19"
	if _, err := exec.LookPath(clang); err != nil {
		t.Skipf("skipped, not passed: %s is missing (scripts/need generate)", clang)
	}
	program := filepath.Join(t.TempDir(), "program")
	build := exec.Command(clang, slices.Concat([]string{"-O1", "-g", "-Wall", "-Werror", "-Wno-parentheses"}, flags,
		[]string{"-o", program, source})...)
	if said, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, said)
	}
	return program
}
