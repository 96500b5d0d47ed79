// SPDX-License-Identifier: Apache-2.0

package dualpi2

import (
	"testing"

	"weir/internal/bpf/bpftest"
)

// TestObject: what is shipped is what make generate makes.
func TestObject(t *testing.T) { bpftest.Generated(t, "dualpi2", 4) }
