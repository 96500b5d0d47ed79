// SPDX-License-Identifier: Apache-2.0

package dualpi2

import (
	"testing"
	"time"

	"weir/internal/lab/qemu/kerneltest"
)

func TestMain(m *testing.M) { kerneltest.Main(m) }

// TestKernels: what an instance does, on stock kernels, in a time that is exact.
func TestKernels(t *testing.T) {
	kerneltest.Run(t, kerneltest.Options{Tests: "^TestIn(Life|Classes|Change|Queues|Gone|Segments|Version|Tunnel|Shaper|Limits|Refused|Controller|CatchUp|Lockdown)$"})
}

// TestCost: beside the kernel's own qdiscs, of which one is there after make reference.
func TestCost(t *testing.T) {
	if !kerneltest.Everything() {
		t.Skip("skipped, not passed: runs in make test-kernels")
	}
	t.Setenv("WEIR_TEST_KERNELS", "") // the kernel that make reference is for
	kerneltest.Run(t, kerneltest.Options{Tests: "^TestIn(Cost|Split)$", Reference: true})
}

// TestKernelsAtWork: the same under load on two CPUs, and with loaders that are killed.
func TestKernelsAtWork(t *testing.T) {
	o := kerneltest.Options{Tests: "^TestInStorm$", CPUs: 2, Limit: 10 * time.Minute}
	if kerneltest.Everything() {
		o.Tests = "^TestIn(Storm|Killed)$"
		o.Files = map[string]string{kerneltest.Killat: kerneltest.Build(t, "weir/internal/lab/machine/killat")}
	}
	kerneltest.Run(t, o)
}

// defaults are sch_dualpi2's.
func defaults() Config { return Defaults() }
