// SPDX-License-Identifier: Apache-2.0

package dualpi2

import (
	"testing"

	"weir/internal/lab/qemu/kerneltest"
)

func TestMain(m *testing.M) { kerneltest.Main(m) }

// TestKernels: what an instance does, on stock kernels, in a time that is exact.
func TestKernels(t *testing.T) {
	kerneltest.Run(t, kerneltest.Options{Tests: "Life|Classes|Change|Gone|Refused|Controller|CatchUp"})
}

// TestKernelsAtWork: the same under load on two CPUs, and with loaders that are killed.
func TestKernelsAtWork(t *testing.T) {
	kerneltest.Run(t, kerneltest.Options{Tests: "Storm|Killed", CPUs: 2, Files: map[string]string{"/killat": kerneltest.Build(t, "weir/internal/lab/machine/killat")}})
}

// defaults are sch_dualpi2's.
func defaults() Config { return Defaults() }
