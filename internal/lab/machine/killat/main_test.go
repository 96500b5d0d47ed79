// SPDX-License-Identifier: Apache-2.0

//go:build linux && amd64

package main

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

func TestMain(m *testing.M) {
	if os.Args[0] == tracee {
		panic(become(os.Args[1], os.Args[2:]))
	}
	os.Exit(m.Run())
}

// TestKilledBeforeTheStep: what step N would have done has not been done, and what came before it has.
func TestKilledBeforeTheStep(t *testing.T) {
	dir := t.TempDir()
	a, b, c := filepath.Join(dir, "a"), filepath.Join(dir, "b"), filepath.Join(dir, "c")
	run := func(at int, args ...string) (*tracer, int) { t.Helper(); return traced(t, at, args...) }
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

// TestWhatItStarts: what the command starts takes its steps whole, is not counted, and is waited for.
func TestWhatItStarts(t *testing.T) {
	dir := t.TempDir()
	script := "mkdir " + dir + "/a; (sleep 0.1; mkdir " + dir + "/c) & >" + dir + "/b; kill -TERM $$"
	tr, status := traced(t, 0, "sh", "-c", script)
	if tr.steps != 4 || status != 128+int(unix.SIGTERM) { // two processes, a file and a signal
		t.Errorf("%d steps, status %d", tr.steps, status)
	}
	for _, name := range []string{"a", "b", "c"} {
		if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
			t.Error(err)
		}
	}
	if tr, status = traced(t, 2, "sh", "-c", "mkdir "+dir+"/d; mkdir "+dir+"/e"); status != statusKilled {
		t.Errorf("%d steps, status %d", tr.steps, status)
	}
	if names, err := filepath.Glob(dir + "/[de]"); err != nil || len(names) != 1 {
		t.Errorf("killed before it started a second process: %v %v", names, err)
	}
}

func traced(t *testing.T, at int, args ...string) (*tracer, int) {
	t.Helper()
	tr := &tracer{at: at, threads: map[int]bool{}}
	status, err := tr.run(args)
	if err != nil {
		t.Fatal(err)
	}
	return tr, status
}
