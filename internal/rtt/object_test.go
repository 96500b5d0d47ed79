// SPDX-License-Identifier: Apache-2.0

package rtt

import (
	"testing"

	"weir/internal/bpf/bpftest"
)

// TestObject: what is shipped is what make generate makes.
func TestObject(t *testing.T) { bpftest.Generated(t, "rtt", 2) }
