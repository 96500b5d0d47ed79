// SPDX-License-Identifier: Apache-2.0

package boot

import (
	"context"
	"time"
)

// Engine boots guests for runs of the lab: a job goes in and a reply comes out, both as bytes. Whatever ends a boot — a
// result, a panic, a hang, ^C — nothing of it is left behind.
type Engine interface {
	// Boot boots a guest, waits until it powers off, and gives its reply.
	Boot(context.Context, Guest) ([]byte, error)

	// Named is a kernel's release as reports give it, with what else tells its figures from another's.
	Named(release string) string
}

// Guest is one boot, in virtual time: the same guest gives the same reply, bit for bit.
type Guest struct {
	Program string            // becomes process 1; linked statically
	Initrd  string            // a file with nothing but that and Files, for engines that need no modules
	Files   []File            // of the host, which it is to find under the same names
	Job     []byte            // what it is to do
	Seed    uint64            // of all randomness in it
	CPU     int               // of the host, to pin to; -1: none
	Scratch string            // a folder of the host for the boot's files
	Limit   time.Duration     // of wall-clock time
	OnLine  func(line string) // each line of the console; may be nil
}

// MemoryMiB of a guest is enough for 2000 connections behind a second of queue at 1 Gbit/s; pages that are not touched
// cost nothing.
const MemoryMiB = 1536

// What host and guest have agreed on.
const (
	Marker    = "WEIR_LAB"      // in process 1's environment: this is a lab's kernel
	Heartbeat = "weir-lab: at " // on the console, once a virtual second: seconds since the run's start
)
