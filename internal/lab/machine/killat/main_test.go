// SPDX-License-Identifier: Apache-2.0

//go:build linux && amd64

package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestMain(m *testing.M) {
	switch os.Args[0] {
	case tracee, "killat":
		main()
	case "busy": // a command with threads that wait, and one that makes a directory
		go func() {
			for {
				time.Sleep(time.Millisecond)
			}
		}()
		fmt.Println(os.Mkdir(os.Args[1], 0o755))
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// TestHang: before the step all of the command stands still, and nothing ends it.
func TestHang(t *testing.T) {
	dir := t.TempDir()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	busy := filepath.Join(dir, "busy")
	if err := os.Symlink(self, busy); err != nil {
		t.Fatal(err)
	}
	t.Chdir(dir)
	t.Setenv("PATH", dir)
	killat := exec.CommandContext(t.Context(), self)
	killat.Args = []string{"killat", "-hang", "1", "busy", filepath.Join(dir, "a")}
	if err := killat.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = killat.Process.Kill(); _ = killat.Wait() }()
	still := func() bool {
		threads, _ := filepath.Glob("/proc/[0-9]*/task/*/stat")
		stopped := 0
		for _, thread := range threads {
			stat, _ := os.ReadFile(thread)
			ppid, state := 0, ""
			_, after, _ := strings.Cut(string(stat), ") ")
			_, _ = fmt.Sscan(after, &state, &ppid)
			switch {
			case ppid != killat.Process.Pid:
			case state != "t" || !strings.Contains(string(stat), "(busy)"):
				return false
			default:
				stopped++
			}
		}
		return stopped > 2
	}
	for range 1000 {
		if still() {
			if _, err := os.Stat(filepath.Join(dir, "a")); err == nil {
				t.Error("it took the step")
			}
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Error("it does not stand still")
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
