// SPDX-License-Identifier: Apache-2.0

// Package bpftest is for tests of packages with BPF programs. It knows none of these.
package bpftest

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Generated fails unless the objects that a package ships, and what Go knows of them, are what make generate makes of
// the C beside them: so many files.
func Generated(t *testing.T, pkg string, files int) {
	t.Helper()
	for _, tool := range []string{"clang-19", "llvm-strip-19"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("skipped, not passed: %s is missing (scripts/need generate)", tool)
		}
	}
	text, err := os.ReadFile("generate.go")
	if err != nil {
		t.Fatal(err)
	}
	dir, short := t.TempDir(), map[string]string{}
	for line := range strings.Lines(string(text)) {
		command, ok := strings.CutPrefix(strings.TrimSpace(line), "//go:generate ")
		if !ok {
			continue
		}
		name, rest, _ := strings.Cut(command, " ")
		if name == "-command" { // as go help generate has it
			name, rest, _ = strings.Cut(rest, " ")
			short[name] = rest
			continue
		}
		if is, ok := short[name]; ok {
			command = is + " " + rest
		}
		into := strings.Replace(command, "/bpf2go ", "/bpf2go -output-dir '"+dir+"' ", 1)
		build := exec.Command("sh", "-c", "exec "+into)
		build.Env = append(os.Environ(), "GOPACKAGE="+pkg)
		if said, err := build.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, said)
		}
	}
	made, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil || len(made) != files {
		t.Fatalf("it makes %v", made)
	}
	for _, path := range made {
		want, _ := os.ReadFile(path)
		if have, err := os.ReadFile(filepath.Base(path)); err != nil || !bytes.Equal(have, want) {
			t.Errorf("%s is not what make generate makes: %v", filepath.Base(path), err)
		}
	}
}
