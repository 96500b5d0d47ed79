// SPDX-License-Identifier: Apache-2.0

package change

import (
	"runtime"
	"testing"

	"weir/internal/lab/uml/umltest"

	"golang.org/x/sys/unix"
)

// TestLabKernel runs the tests that change a real kernel in one that has every queue.
func TestLabKernel(t *testing.T) { umltest.Run(t, "^(TestLive.*|TestProbeWhileChanging)$") }

// inNamespace runs a test, or a part of it, in the lab's kernel, on a thread with a network namespace of its own.
func inNamespace(t *testing.T, run func(t *testing.T)) {
	t.Helper()
	if !umltest.Inside() {
		t.Skip("skipped here: TestLabKernel runs it in the lab's kernel")
	}
	unshared(t, run)
}

// unshared is inNamespace in any kernel.
func unshared(t *testing.T, run func(t *testing.T)) {
	t.Helper()
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
