// SPDX-License-Identifier: Apache-2.0

package dualpi2

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestObject: the objects that are shipped, and what Go knows of them, are what make generate makes of the C beside
// them.
func TestObject(t *testing.T) {
	for _, tool := range []string{"clang-19", "llvm-strip-19"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("skipped, not passed: %s is missing (scripts/need generate)", tool)
		}
	}
	text, err := os.ReadFile("generate.go")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for line := range strings.Lines(string(text)) {
		command, ok := strings.CutPrefix(line, "//go:generate go run github.com/cilium/ebpf/cmd/bpf2go ")
		if !ok {
			continue
		}
		build := exec.Command("sh", "-c", "exec go run github.com/cilium/ebpf/cmd/bpf2go -output-dir '"+dir+"' "+
			command)
		build.Env = append(os.Environ(), "GOPACKAGE=dualpi2")
		if said, err := build.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, said)
		}
	}
	made, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil || len(made) != 4 {
		t.Fatalf("it makes %v", made)
	}
	for _, path := range made {
		name := filepath.Base(path)
		want, _ := os.ReadFile(path)
		if have, err := os.ReadFile(name); err != nil || !bytes.Equal(have, want) {
			t.Errorf("%s is not what make generate makes: %v", name, err)
		}
	}
}
