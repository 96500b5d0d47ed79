// SPDX-License-Identifier: Apache-2.0

package qemu

import (
	"context"

	"weir/internal/lab/boot"
)

// Engine boots a stock kernel in virtual time.
type Engine struct{ Kernel Kernel }

// Named is the release, which Debian gives to one kernel.
func (e Engine) Named(release string) string { return release }

// Boot hands job and reply over by the emulated machine's serial port.
func (e Engine) Boot(ctx context.Context, g boot.Guest) ([]byte, error) {
	reply, _, err := Boot{
		Kernel: e.Kernel, Program: g.Program, Files: g.Files, Job: g.Job, Env: []string{boot.Marker + "=1"},
		MemoryMiB: boot.MemoryMiB,
		Exact:     true, Seed: g.Seed, CPU: g.CPU, Limit: g.Limit, Scratch: g.Scratch, OnLine: g.OnLine,
	}.Run(ctx)
	return reply, err
}
