// SPDX-License-Identifier: Apache-2.0

package dualpi2

import (
	"regexp"
	"slices"
	"strconv"
	"testing"
	"time"

	"weir/internal/lab/qemu/kerneltest"
)

func TestMain(m *testing.M) { kerneltest.Main(m) }

// TestKernels: what an instance does, on stock kernels, in a time that is exact.
func TestKernels(t *testing.T) {
	kerneltest.Run(t, kerneltest.Options{Tests: "^TestIn(Life|Classes|Change|Queues|Gone|Segments|Version|Tunnel|Shaper|Stall|Limits|Refused|Controller|CatchUp|Lockdown)$"})
}

// TestCost: beside the kernel's own qdiscs, of which one is there after make reference. Two boots differ by two percent, since what else the kernel does
// meets other packets, so it is the mean of some that counts.
func TestCost(t *testing.T) {
	if !kerneltest.Everything() {
		t.Skip("skipped, not passed: runs in make test-kernels")
	}
	t.Setenv("WEIR_TEST_KERNELS", "") // the kernel that make reference is for
	const boots = 8
	var order []string
	sum := map[string]float64{}
	line := regexp.MustCompile(`cost (UDP|TCP): (.+) takes (\d+) instructions a packet`)
	for seed := range uint64(boots) {
		kerneltest.Run(t, kerneltest.Options{Tests: "^TestIn(Cost|Split)$", Reference: true, Seed: seed + 1, OnLine: func(said string) {
			if m := line.FindStringSubmatch(said); m != nil {
				what := m[1] + ": " + m[2]
				if !slices.Contains(order, what) {
					order = append(order, what)
				}
				n, _ := strconv.ParseFloat(m[3], 64)
				sum[what] += n / boots
			}
		}})
	}
	for _, what := range order {
		t.Logf("mean cost %s: %.0f instructions a packet", what, sum[what])
	}
	bpf := sum["UDP: bpf_dualpi2 rate 10gbit"]
	if bpf == 0 {
		t.Error("nothing was measured")
	}
	for _, other := range []string{"cake bandwidth 10gbit besteffort", "htb rate 10gbit | dualpi2"} {
		if c, ok := sum["UDP: "+other]; ok && bpf > c {
			t.Errorf("bpf_dualpi2 takes %.0f instructions a packet, and %s takes %.0f", bpf, other, c)
		}
	}
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
