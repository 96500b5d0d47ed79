// SPDX-License-Identifier: Apache-2.0

//go:build all

package main

// In make test-all: it boots a stock kernel.

import (
	"testing"

	"weir/internal/lab/qemu/kerneltest"
)

// The whole life of what is in BPF, on stock kernels, which have what it takes.
func TestStockKernel(t *testing.T) {
	kerneltest.Run(t, kerneltest.Options{Tests: "^TestScripts$/^(dualpi2|control|shaper)$"})
}

// The same on the oldest that has what a shaper takes, which has no TCX.
func TestOldestStockKernel(t *testing.T) {
	kerneltest.Run(t, kerneltest.Options{Series: []string{"6.1"}, Tests: "^TestScripts$/^shaper$"})
}
