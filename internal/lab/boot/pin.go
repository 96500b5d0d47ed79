// SPDX-License-Identifier: Apache-2.0

package boot

import (
	"fmt"
	"os/exec"
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
