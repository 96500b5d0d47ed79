// SPDX-License-Identifier: Apache-2.0

package qemu

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// busy starts a process that does nothing, forever.
func busy() (pid int)

// neverIdle keeps the guest's CPU from halting, by a process that runs when no other wants to. The clock of a halted
// guest is advanced by the emulator's main thread, to the next timer, from the instructions that it knows of.
// Whenever it wakes while the other thread has marked the CPU as halted and has not yet counted its last instructions
// (QEMU softmmu/icount.c, icount_start_warp_timer; accel/tcg/tcg-accel-ops-rr.c), time is off by those. A busy host
// makes it wake at odd times. A guest that executes instructions advances its clock itself, in one thread.
func neverIdle() error {
	pid := busy()
	if pid < 0 {
		return fmt.Errorf("clone: %w", unix.Errno(-pid))
	}
	return unix.SchedSetAttr(pid, &unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_IDLE}, 0)
}
