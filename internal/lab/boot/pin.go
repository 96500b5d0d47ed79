// SPDX-License-Identifier: Apache-2.0

package boot

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"

	"golang.org/x/sys/unix"
)

// StartPinned starts the command on one core, or on any if cpu is negative: the child inherits the affinity of the
// thread that makes it.
func StartPinned(command *exec.Cmd, cpu int) error {
	// The parent-death signal is tied to the thread that forks: it has to live as long as the child. Locking without
	// unlocking would end it; so the thread is the caller's, who waits in Run.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if cpu < 0 {
		return command.Start()
	}
	var before, only unix.CPUSet
	if err := unix.SchedGetaffinity(0, &before); err != nil {
		return err
	}
	only.Set(cpu)
	if err := unix.SchedSetaffinity(0, &only); err != nil {
		return fmt.Errorf("pin to CPU %d: %w", cpu, err)
	}
	defer unix.SchedSetaffinity(0, &before)
	return command.Start()
}

// AllowedCPUs lists the cores that this process may use; -1 alone, which is any, if the kernel does not say.
func AllowedCPUs() []int {
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &set); err != nil {
		return []int{-1}
	}
	var list []int
	for i := 0; i < len(set)*64; i++ {
		if set.IsSet(i) {
			list = append(list, i)
		}
	}
	return list
}

// ReserveCPU returns a core that no other process has reserved, and the function that gives it back. If all are
// reserved it is one that this process's number picks.
func ReserveCPU() (cpu int, release func()) {
	cpus := AllowedCPUs()
	for _, cpu := range cpus {
		path := filepath.Join(os.TempDir(), fmt.Sprintf("weir-cpu-%d-%d", os.Getuid(), cpu))
		f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR|unix.O_NOFOLLOW, 0o600)
		if err != nil {
			continue
		}
		if unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) == nil {
			return cpu, func() { f.Close() }
		}
		f.Close()
	}
	return cpus[os.Getpid()%len(cpus)], func() {}
}
