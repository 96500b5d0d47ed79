// SPDX-License-Identifier: Apache-2.0

//go:build all

package shaper

// In make test-all: it boots stock kernels, and a compiler for BPF is run.

import (
	"testing"
	"time"

	"weir/internal/bpf/bpftest"
	"weir/internal/lab/qemu/kerneltest"
)

// TestObject: what is shipped is what make generate makes.
func TestObject(t *testing.T) { bpftest.Generated(t, "shaper", 4) }

// TestKernels: the oldest stock kernel that is to have it, and the newest; in make test-kernels all that users have.
func TestKernels(t *testing.T) {
	o := kerneltest.Options{Tests: "^TestIn", Series: append([]string{"6.1"}, kerneltest.Series()...),
		Limit: 2 * time.Hour}
	if kerneltest.Everything {
		o.Series = append(o.Series, "6.12")
	}
	kerneltest.Run(t, o)
}

// TestKernelsAtWork: CPUs that are at it at the same time lose no byte, and leave nobody active who is not.
func TestKernelsAtWork(t *testing.T) {
	o := kerneltest.Options{Tests: "^TestInQuiet$", CPUs: 4}
	kerneltest.Run(t, o)
	if kerneltest.Everything {
		o.CPUs = 8
		kerneltest.Run(t, o)
	}
}
