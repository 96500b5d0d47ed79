// SPDX-License-Identifier: Apache-2.0

//go:build all

package main

// In make test-all: a terminal program (tmux) is started and looked at as a person would, while real time passes.

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// On a real terminal: the screen fills it, keys work, and quitting leaves it as it was.
func TestWatchTerminal(t *testing.T) {
	tmux, err := exec.LookPath("tmux")
	if err != nil {
		t.Skipf("skipped, not passed: %v (scripts/need test)", err)
	}
	dir := t.TempDir()
	command := func(args ...string) string {
		out, err := exec.Command(tmux, append([]string{"-S", filepath.Join(dir, "tmux"), "-f", "/dev/null"},
			args...)...).CombinedOutput()
		if err != nil {
			t.Fatalf("tmux %s: %v\n%s", args, err, out)
		}
		return string(out)
	}
	script := fmt.Sprintf("cd %s; echo before; stty -g >1; %s watch --state %s; s=$?; stty -g >2; echo status $s; cat",
		dir, programLink(t, "weir"), dir)
	cmd := append([]string{"new-session", "-d", "-x", "80", "-y", "24", "-e", "NO_COLOR=1", "-e", "WEIR_NETNS=/-1"},
		"sh", "-c", script)
	command(cmd...)
	t.Cleanup(func() { command("kill-server") })
	// shown waits for a screen on which all of it stands.
	shown := func(all ...string) string {
		screen := ""
	again:
		for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
			screen = command("capture-pane", "-p")
			for _, one := range all {
				if !strings.Contains(screen, one) {
					continue again
				}
			}
			return screen
		}
		t.Fatalf("without %q:\n%s", all, screen)
		return ""
	}
	screen := shown("weir watch · ", "Is the bottleneck here?", "Goal: ", "network ", "\nq quit · p pause")
	if lines := strings.Split(strings.TrimRight(screen, "\n"), "\n"); len(lines) != 24 {
		t.Errorf("%d lines:\n%s", len(lines), screen)
	}
	command("send-keys", "p")
	shown("PAUSED")
	command("resize-window", "-x", "200", "-y", "60")
	shown("in 4 s each", "PAUSED", strings.Repeat("\n", 9)+"q quit")
	command("send-keys", "q")
	if screen := shown("status 0"); !strings.HasPrefix(screen, "before\nstatus 0\n") {
		t.Errorf("it leaves something behind:\n%s", screen)
	}
	before, _ := os.ReadFile(filepath.Join(dir, "1"))
	after, err := os.ReadFile(filepath.Join(dir, "2"))
	if err != nil || len(after) == 0 || string(before) != string(after) {
		t.Errorf("the terminal is not as it was: %s, %s, %v", before, after, err)
	}
}

// A terminal that can move no cursor gets lines, and no commands of a terminal.
func TestWatchDumb(t *testing.T) {
	script, err := exec.LookPath("script")
	if err != nil {
		t.Skipf("skipped, not passed: %v", err)
	}
	dir := t.TempDir()
	said := filepath.Join(dir, "said")
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, script, "-qec", programLink(t, "weir")+" watch --state "+dir, said)
	cmd.Env = append(os.Environ(), "TERM=dumb", "WEIR_NETNS=/-1")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	b, _ := os.ReadFile(said)
	if !strings.Contains(string(b), "so this is one look") || strings.Contains(string(b), "\x1b") {
		t.Errorf("%q", b)
	}
}
