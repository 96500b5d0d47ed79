// SPDX-License-Identifier: Apache-2.0

//go:build linux && amd64

package main

import (
	"os"
	"path/filepath"
	"testing"
)

// TestKilledBeforeTheStep: what step N would have done has not been done, and what came before it has.
func TestKilledBeforeTheStep(t *testing.T) {
	dir := t.TempDir()
	a, b, c := filepath.Join(dir, "a"), filepath.Join(dir, "b"), filepath.Join(dir, "c")
	run := func(at int, args ...string) (*tracer, int) {
		t.Helper()
		tr := &tracer{at: at, threads: map[int]bool{}}
		status, err := tr.run(args)
		if err != nil {
			t.Fatal(err)
		}
		return tr, status
	}
	exists := func(path string) bool { _, err := os.Stat(path); return err == nil }

	tr, status := run(0, "mkdir", a, b, c)
	if tr.steps != 3 || status != 0 {
		t.Errorf("mkdir of three: %d steps, status %d", tr.steps, status)
	}
	if _, status = run(2, "rmdir", a, b, c); status != statusKilled || exists(a) || !exists(b) || !exists(c) {
		t.Errorf("killed at the second of three: status %d; a %v b %v c %v", status, exists(a), exists(b), exists(c))
	}
	if tr, status = run(3, "rmdir", b, c); tr.steps != 2 || status != 0 || exists(b) {
		t.Errorf("with fewer steps: %d, status %d", tr.steps, status)
	}
}
