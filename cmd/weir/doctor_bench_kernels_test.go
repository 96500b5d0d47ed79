// SPDX-License-Identifier: Apache-2.0

//go:build kernels

package main

import (
	"testing"

	"weir/internal/lab/qemu"
	"weir/internal/lab/qemu/kerneltest"
)

// TestBenchCounted: what it measures on a machine of one CPU and 10⁹ instructions a second. scripts/packet-costs lays
// that beside what was counted.
func TestBenchCounted(t *testing.T) {
	kerneltest.Run(t, kerneltest.Options{Tests: "^TestInBench$", Series: []string{qemu.Newest}})
}
