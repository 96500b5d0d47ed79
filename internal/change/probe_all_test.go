// SPDX-License-Identifier: Apache-2.0

//go:build all

package change

import (
	"os"
	"testing"
)

// In make test-all: this machine's own kernel takes real time to give a queue another's place.

// TestProbeWhileChangingHere is TestProbeWhileChanging in this machine's kernel.
func TestProbeWhileChangingHere(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("skipped, not passed: a network namespace needs root")
	}
	unshared(t, probeWhileChanging)
}
