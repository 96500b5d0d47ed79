// SPDX-License-Identifier: Apache-2.0

package qemu

import (
	"context"

	"weir/internal/lab/engine"
)

// Engine boots a stock kernel in virtual time.
type Engine struct{ Kernel Kernel }

// Named is the release, which Debian gives to one kernel.
func (e Engine) Named(release string) string { return release }

// Boot hands job and reply over by the emulated machine's serial port.
func (e Engine) Boot(ctx context.Context, g engine.Guest) ([]byte, error) {
	reply, _, err := Boot{
		Kernel: e.Kernel, Program: g.Program, Files: g.Files, Job: g.Job, Env: []string{engine.Marker + "=1"},
		MemoryMiB: engine.MemoryMiB,
		Exact:     true, Seed: g.Seed, CPU: g.CPU, Limit: g.Limit, Scratch: g.Scratch, OnLine: g.OnLine,
	}.Run(ctx)
	return reply, err
}
