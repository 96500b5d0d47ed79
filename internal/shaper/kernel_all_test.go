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

// TestKernels: the oldest stock kernel that is to have it, and the newest; or all.
func TestKernels(t *testing.T) {
	o := kerneltest.Options{Tests: "^TestIn", Series: append([]string{"6.1"}, kerneltest.Series()...),
		Limit: 20 * time.Minute}
	if kerneltest.Everything { // in make test-kernels
		o.Series = append(o.Series, "6.12")
	}
	kerneltest.Run(t, o)
}
