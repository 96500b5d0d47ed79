// SPDX-License-Identifier: Apache-2.0

package qemu

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// busy starts a process that does nothing, forever.
func busy() (pid int)

// neverIdle keeps the guest's CPU from halting, by a process that runs when no other wants to. To advance the clock of a halted guest the
// emulator has two threads, and once in some thousand times they race: its time is then a few nanoseconds off. A guest that executes
// instructions advances its clock itself, in one thread.
func neverIdle() error {
	pid := busy()
	if pid < 0 {
		return fmt.Errorf("clone: %w", unix.Errno(-pid))
	}
	return unix.SchedSetAttr(pid, &unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_IDLE}, 0)
}
