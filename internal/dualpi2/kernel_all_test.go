// SPDX-License-Identifier: Apache-2.0

//go:build all

package dualpi2

// In make test-all: two CPUs have the host's time, or it takes many boots.

import (
	"testing"
	"time"

	"weir/internal/lab/qemu/kerneltest"
)

// TestKernelsAtLength: what takes longer, in a time that is exact.
func TestKernelsAtLength(t *testing.T) {
	kerneltest.Run(t, kerneltest.Options{Tests: "^TestIn(Change|Queues|Segments|Tunnel|Shaper|Limits|Note|Segmented|" +
		"UDPSegments)$"})
}

// TestKernelsAtWork: the same under load on two CPUs, and with loaders that are killed.
func TestKernelsAtWork(t *testing.T) {
	o := kerneltest.Options{Tests: "^TestInStorm$", CPUs: 2, Limit: time.Hour}
	if kerneltest.Everything {
		o.Tests = "^TestIn(Storm|Killed)$"
		o.Files = map[string]string{kerneltest.Killat: kerneltest.Build(t, "weir/internal/lab/machine/killat")}
	}
	kerneltest.Run(t, o)
}
