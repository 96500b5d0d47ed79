// SPDX-License-Identifier: Apache-2.0

//go:build all

package dualpi2

// In make test-all: a compiler for BPF is run.

import (
	"testing"

	"weir/internal/bpf/bpftest"
)

// TestObject: what is shipped is what make generate makes.
func TestObject(t *testing.T) { bpftest.Generated(t, "dualpi2", 4) }
