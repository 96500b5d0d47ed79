// SPDX-License-Identifier: Apache-2.0

package change

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// timer is what puts a run back that nobody confirms. It must outlive this process, its session, and whatever ends them.
type timer interface {
	now() time.Duration // on the clock of this boot
	sleep(time.Duration)
	arm(unit, dir string, after time.Duration) error
	disarm(unit string)
}

// timers are the names that a timer can have.
const (
	firstTimer  = "weir-revert"
	secondTimer = "weir-revert-2"
)

// otherUnit is a name for a new timer while the one given may be armed.
func otherUnit(unit string) string {
	if unit == firstTimer {
		return secondTimer
	}
	return firstTimer
}

// disarmStale stops what a run has left armed that was killed when it had been confirmed: it has nothing to do, but its name. The names
// are those of the one store that keeps goals; another has to leave them alone.
func (s Store) disarmStale(units ...string) {
	if s.keeps {
		for _, unit := range units {
			s.timer.disarm(unit)
		}
	}
}

// disarm stops a timer that has nothing to do any more. Should that fail, it finds that out by itself.
func (s Store) disarm(unit string) {
	if unit != "" {
		s.timer.disarm(unit)
	}
}

// outside is a timer of systemd's or, without it, a process of its own session.
type outside struct{}

// now is the time since the boot, suspended or not: in it a deadline passes at the latest when a timer does that stands still in suspension.
func (outside) now() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &t); err != nil {
		return 0
	}
	return time.Duration(t.Nano())
}

func (outside) sleep(d time.Duration) { time.Sleep(d) }

func (outside) arm(unit, dir string, after time.Duration) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	if dir, err = filepath.Abs(dir); err != nil {
		return err
	}
	recover := []string{"recover", "--unconfirmed", "--state", dir}
	if !bySystemd() {
		return detach(self, recover)
	}
	args := []string{"--collect", "--unit", unit, fmt.Sprintf("--on-active=%gs", after.Seconds()), "--timer-property=AccuracySec=100ms", self}
	if said, err := exec.Command("systemd-run", append(args, recover...)...).CombinedOutput(); err != nil {
		return fmt.Errorf("systemd-run: %w: %s", err, strings.Join(strings.Fields(string(said)), " "))
	}
	return nil
}

// disarm stops the timer alone: what it has started already may be half done. A process of ours ends by itself when it sees the journal.
func (outside) disarm(unit string) {
	if bySystemd() {
		_ = exec.Command("systemctl", "stop", unit+".timer").Run()
	}
}

// bySystemd tells whether systemd is there (sd_booted(3)) and would start what it starts in this network namespace.
func bySystemd() bool {
	if info, err := os.Stat("/run/systemd/system"); err != nil || !info.IsDir() {
		return false
	}
	its, err := os.Readlink("/proc/1/ns/net")
	ours, errOurs := os.Readlink("/proc/thread-self/ns/net")
	return err == nil && errOurs == nil && its == ours
}

// DetachedReady is the file descriptor on which a detached process says that it waits.
const DetachedReady = 3

// detach starts this program in a session of its own, and returns when it waits.
func detach(self string, args []string) error {
	ready, says, err := os.Pipe()
	if err != nil {
		return err
	}
	defer ready.Close()
	cmd := exec.Command(self, append(args, "--detached")...)
	cmd.Args[0] = "weir"
	cmd.Dir = "/" // it holds no file system
	cmd.ExtraFiles = []*os.File{says}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	err = cmd.Start()
	says.Close()
	if err != nil {
		return err
	}
	const patience = 10 * time.Second
	if err := ready.SetReadDeadline(time.Now().Add(patience)); err != nil {
		return errors.Join(err, cmd.Process.Kill())
	}
	if _, err := ready.Read(make([]byte, 1)); err != nil {
		_ = cmd.Process.Kill()
		return fmt.Errorf("the process that would do it did not start: %w", err)
	}
	return cmd.Process.Release()
}
