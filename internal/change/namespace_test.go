// SPDX-License-Identifier: Apache-2.0

package change

import (
	"os"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

// inNamespace runs a test, or a part of it, on a thread with a network namespace of its own.
func inNamespace(t *testing.T, run func(t *testing.T)) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("skipped, not passed: a network namespace needs root")
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // never unlocked: the thread ends with its namespace
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			t.Error(err)
			return
		}
		run(t)
	}()
	<-done
}
