// SPDX-License-Identifier: Apache-2.0

package uml

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"weir/internal/lab/boot"
)

// Engine boots the lab kernel. Host and guest share a folder.
type Engine struct{ Kernel Kernel }

// Named adds the recipe: another configuration of the same source is another kernel.
func (e Engine) Named(release string) string {
	return fmt.Sprintf("%s (lab kernel %s)", release, e.Kernel.Recipe)
}

// In that folder are the job, from the host, and the reply.
const (
	jobFile   = "job.json"
	replyFile = "reply.json"
)

// Boot hands the job over in the folder, and takes the reply from there.
func (e Engine) Boot(ctx context.Context, g boot.Guest) ([]byte, error) {
	folder, err := os.MkdirTemp(g.Scratch, "run-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(folder)
	if err := os.WriteFile(filepath.Join(folder, jobFile), g.Job, 0o600); err != nil {
		return nil, err
	}
	err = Boot{
		Kernel: e.Kernel, Initrd: g.Initrd, Folder: folder, Reply: replyFile, Seed: g.Seed, CPU: g.CPU,
		MemoryMiB: boot.MemoryMiB, Env: []string{boot.Marker + "=1"}, Limit: g.Limit, OnLine: g.OnLine,
	}.Run(ctx)
	if err != nil {
		return nil, err
	}
	return os.ReadFile(filepath.Join(folder, replyFile))
}
