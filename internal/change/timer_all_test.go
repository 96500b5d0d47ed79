// SPDX-License-Identifier: Apache-2.0

//go:build all

package change

// In make test-all: programs of the host hang for real time.

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"weir/internal/journal"
	"weir/internal/plan"
)

// ofTest are programs of the host's init that are scripts, by name.
func ofTest(t *testing.T, scripts map[string]string) programs {
	t.Helper()
	p := programs{[]string{filepath.Join(t.TempDir(), "none"), t.TempDir()}, time.Second}
	for name, script := range scripts {
		if err := os.WriteFile(filepath.Join(p.dirs[1], name), []byte("#!/bin/sh\n"+script+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return p
}

// A program of the host's init may fail, hang, or leave behind what holds its output. None of it is waited for.
func TestProgramsOfInit(t *testing.T) {
	const hangs = "exec sleep infinity"
	for _, c := range []struct{ name, script, says string }{
		{"well", "echo fine", ""},
		{"failed", "echo no; exit 1", "failed: exit status 1: no"},
		{"hangs", hangs, "hangs does not answer"},
		{"child", "sleep infinity & echo $! >$0.pid; wait", "child does not answer"}, // which outlives it
		{"daemon", "sleep infinity & echo $! >$0.pid; exit 0", ""},
		{"reads", "cat; echo $# $1 $2 >&2; exit 1", "reads: exit status 1: 2 a b c"},
		{"absent", "", "there is no absent"},
	} {
		t.Run(c.name, func(t *testing.T) {
			scripts := map[string]string{c.name: c.script}
			if c.name == "absent" {
				scripts = nil
			}
			p := ofTest(t, scripts)
			// Not before: a child that is forked while a script is written keeps it busy (execve(2), ETXTBSY).
			t.Parallel()
			t.Cleanup(func() { // of what it has left behind
				text, _ := os.ReadFile(filepath.Join(p.dirs[1], c.name+".pid"))
				if pid, err := strconv.Atoi(strings.TrimSpace(string(text))); err == nil {
					_ = unix.Kill(pid, unix.SIGKILL)
				}
			})
			err := p.run(c.name, "a", "b c") // one that is waited for ends with the tests' own limit
			if c.says == "" && err != nil || c.says != "" && (err == nil || err.Error() != c.says) {
				t.Errorf("%v, want %q", err, c.says)
			}
		})
	}
	for _, dir := range ofInit().dirs {
		if !filepath.IsAbs(dir) {
			t.Errorf("%s is the caller's", dir)
		}
	}
}

// hung is a machine whose init answers nobody; a run waits for it no longer than its patience, and keeps nobody out.
type hung struct {
	*fake
	store *Store
	init  programs
	arms  bool // systemd-run does answer
	asked map[string]int
}

// ask hangs, while somebody else takes the lock.
func (h *hung) ask(name string) error {
	h.t.Helper()
	h.asked[name]++
	ended := make(chan error, 1)
	go func() { ended <- h.init.run(name) }()
	other := *h.store
	other.timer = h.fake
	unlock, err := other.disk.Lock(0)
	for errors.Is(err, journal.ErrBusy) { // our own child, until it is a program
		time.Sleep(time.Millisecond)
		unlock, err = other.disk.Lock(0)
	}
	if err != nil {
		h.t.Errorf("while %s hangs: %v", name, err)
	} else {
		unlock()
	}
	return <-ended
}

func (h *hung) arm(unit, dir string) error {
	err := h.ask("systemd-run")
	if h.arms {
		return h.fake.arm(unit, dir)
	}
	return err
}

func (h *hung) disarm(string)        { _ = h.ask("systemctl") }
func (h *hung) reload([]plan.Change) { _ = h.ask("systemctl") }

// Whatever asks systemd, and gets no answer, has given the lock back by then.
func TestInitHangs(t *testing.T) {
	dev := plan.Goal{Dev: "eth0", Rate: 50e6}
	for _, c := range []struct {
		name   string
		before func(s Store, m *fake) // systemd answers
		arms   bool                   // and goes on to arm
		do     func(s Store, m *fake) error
		asks   string
		fails  string
	}{
		{"up, not armed", nil, false, func(s Store, m *fake) error { return second(s.Up(dev, minute)) },
			"systemd-run systemctl", "systemd-run does not answer; nothing was changed"},
		{"up", nil, true, func(s Store, m *fake) error { return second(s.Up(dev, minute)) },
			"systemd-run systemctl", ""},
		{"up, and the queue fails", nil, true, func(s Store, m *fake) error {
			m.refuse["eth0"] = os.ErrInvalid
			return second(s.Up(dev, minute))
		}, "systemd-run systemctl", "nothing was changed"},
		{"up --yes", nil, true, func(s Store, m *fake) error { return second(s.Up(dev, 0)) }, "systemctl", ""},
		{"up over what is not confirmed", func(s Store, m *fake) { _, _ = s.Up(dev, minute) }, true,
			func(s Store, m *fake) error { return second(s.Up(plan.Goal{Dev: "eth0", Rate: 20e6}, 2*minute)) },
			"systemd-run systemctl", ""},
		{"confirm", func(s Store, m *fake) { _, _ = s.Up(dev, minute) }, true, func(s Store, m *fake) error {
			_, _, err := s.Confirm()
			return err
		}, "systemctl", ""},
		{"recover", func(s Store, m *fake) { _, _ = s.Up(dev, minute) }, true,
			func(s Store, m *fake) error { return second(s.Recover()) }, "systemctl", ""},
		{"the time is over", func(s Store, m *fake) { _, _ = s.Up(dev, minute) }, true,
			func(s Store, m *fake) error { m.clock += minute; return second(s.Expire(nil)) }, "systemctl", ""},
		{"down", func(s Store, m *fake) { _, _ = s.Up(dev, minute) }, true,
			func(s Store, m *fake) error { return second(s.Down(Undo{})) }, "systemctl", ""},
		{"down of one of two", func(s Store, m *fake) {
			_, _ = s.Up(dev, 0)
			_, _ = s.Up(plan.Goal{Dev: "eth1", Rate: 20e6}, 0)
		}, true, func(s Store, m *fake) error { return second(s.Down(Undo{Dev: "eth1"})) }, "systemctl", ""},
		{"forget", func(s Store, m *fake) { _, _ = s.Up(dev, minute) }, true,
			func(s Store, m *fake) error { return s.Forget() }, "systemctl", ""},
		{"boot", func(s Store, m *fake) { _, _ = s.Up(dev, minute) }, true,
			func(s Store, m *fake) error { return second(s.Boot()) }, "", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			// Not beside others: a child holds what locks there are until it has become its program.
			s, m := newFake(t)
			m.kept()
			if c.before != nil {
				c.before(s, m)
			}
			h := &hung{fake: m, store: &s, arms: c.arms, asked: map[string]int{},
				init: ofTest(t, map[string]string{"systemd-run": "exec sleep 30", "systemctl": "exec sleep 30"})}
			h.init.patience = 100 * time.Millisecond
			s.host, s.timer = h, h
			err := c.do(s, m)
			if c.fails == "" && err != nil || c.fails != "" && (err == nil || !strings.Contains(err.Error(), c.fails)) {
				t.Errorf("%v, want %q", err, c.fails)
			}
			for _, name := range strings.Fields(c.asks) {
				if h.asked[name] == 0 {
					t.Errorf("%s was not asked", name)
				}
			}
		})
	}
}
