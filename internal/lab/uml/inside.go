// SPDX-License-Identifier: Apache-2.0

package uml

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// share is where the run's folder on the host is mounted, inside.
const share = "/host"

// Begin mounts the file systems that everybody expects, and gives the job. Process 1 calls it first.
func Begin() ([]byte, error) {
	mounts := []struct{ source, target, kind, data string }{
		{"proc", "/proc", "proc", ""},
		{"sysfs", "/sys", "sysfs", ""},
		{"devtmpfs", "/dev", "devtmpfs", ""},
		{"tmpfs", "/run", "tmpfs", ""},
		{"none", share, "hostfs", "/"},
	}
	for _, m := range mounts {
		if err := os.MkdirAll(m.target, 0o755); err != nil {
			return nil, err
		}
		if err := unix.Mount(m.source, m.target, m.kind, 0, m.data); err != nil {
			return nil, fmt.Errorf("mount %s: %w", m.target, err)
		}
	}
	return os.ReadFile(share + "/" + jobFile)
}

// Send gives the host the reply. It goes to a file of another name first: the host takes a reply that is there to be
// whole.
func Send(text []byte) error {
	f, err := os.Create(share + "/" + replyFile + ".part")
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	err = errors.Join(err, f.Sync(), f.Close())
	if err != nil {
		return err
	}
	return os.Rename(share+"/"+replyFile+".part", share+"/"+replyFile)
}
