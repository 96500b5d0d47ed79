// SPDX-License-Identifier: Apache-2.0

//go:build all

package rtt

// In make test-all: it boots two kernels.

import (
	"testing"

	"weir/internal/lab/qemu/kerneltest"
)

// TestKernels: what is seen of connections that a stock kernel forwards, in a time that is exact.
func TestKernels(t *testing.T) {
	o := kerneltest.Options{Tests: "^TestIn(RTT|Tunnel|Big|Queue|Losses|Segments|Own|Passes|Gone|Many|Flood|Cost)$"}
	o.Series = append([]string{"6.1"}, kerneltest.Series()...)
	if kerneltest.Everything {
		o.Series = append(o.Series, "6.12")
	}
	kerneltest.Run(t, o)
}
