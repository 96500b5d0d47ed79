// SPDX-License-Identifier: Apache-2.0

package dualpi2

import (
	"testing"

	"weir/internal/lab/qemu/kerneltest"
)

func TestMain(m *testing.M) { kerneltest.Main(m) }

// TestKernels: what an instance does, on stock kernels, in a time that is exact. The same boot has the programs of
// package rtt: of make test it is the only one.
func TestKernels(t *testing.T) {
	kerneltest.Run(t, kerneltest.Options{Tests: "^TestIn(Life|Classes|Gone|Version|Stall|Refused|Controller|" +
		"CatchUp|Lockdown|LargeMTU)$",
		Beside: map[string]string{"weir/internal/rtt": "^TestIn(RTT|Tunnel|Own|Gone)$"}})
}

// defaults are sch_dualpi2's.
func defaults() Config { return Defaults() }
