// SPDX-License-Identifier: Apache-2.0

package bpf

import (
	"os"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

// Each network namespace has a cookie of its own, which stays the same.
func TestNetnsCookie(t *testing.T) {
	first, err := NetnsCookie()
	if err != nil {
		t.Skipf("skipped, not passed: %v", err)
	}
	if again, err := NetnsCookie(); err != nil || again != first || first == 0 {
		t.Errorf("%d and then %d: %v", first, again, err)
	}
	if os.Geteuid() != 0 {
		t.Skip("skipped, not passed: another network namespace needs root")
	}
	done := make(chan uint64)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with its namespace
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			t.Error(err)
		}
		other, err := NetnsCookie()
		if err != nil {
			t.Error(err)
		}
		done <- other
	}()
	if other := <-done; other == first {
		t.Errorf("two namespaces have %d", other)
	}
}

// A kernel with kCFI is taken only if it has a function of the right type to let go of packets.
func TestTraps(t *testing.T) {
	for types, want := range map[string]bool{"": false, "report_cfi_failure": true, "bpf_kfree_skb_dtor": false,
		"report_cfi_failure\x00bpf_kfree_skb_dtor": false, "report_cfi_failure_early": false} {
		if traps([]byte("\x00"+types+"\x00")) != want {
			t.Errorf("%q: %v", types, !want)
		}
	}
}
