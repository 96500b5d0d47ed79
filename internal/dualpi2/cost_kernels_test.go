// SPDX-License-Identifier: Apache-2.0

//go:build kernels

package dualpi2

import (
	"math"
	"regexp"
	"strconv"
	"testing"

	"weir/internal/lab/qemu"
	"weir/internal/lab/qemu/kerneltest"
)

// TestCost: beside the kernel's own qdiscs, of which one is there after make reference. Two boots differ by two
// percent, since what else the kernel does meets other packets, so it is the mean of some that counts, and that it is
// not significantly more.
func TestCost(t *testing.T) {
	const boots = 8
	var order []string
	cost := map[string][]float64{} // one a boot
	line := regexp.MustCompile(`cost (UDP|TCP): (.+) takes (\d+) instructions a packet`)
	for seed := range uint64(boots) {
		kerneltest.Run(t, kerneltest.Options{Tests: "^TestIn(Cost|Split)$", Reference: true, Seed: seed + 1,
			Series: []string{qemu.Newest}, // that make reference is for

			OnLine: func(said string) {
				if m := line.FindStringSubmatch(said); m != nil {
					what := m[1] + ": " + m[2]
					if cost[what] == nil {
						order = append(order, what)
					}
					n, _ := strconv.ParseFloat(m[3], 64)
					cost[what] = append(cost[what], n)
				}
			}})
	}
	if len(order) == 0 && !t.Failed() {
		t.Skip("skipped, not passed: no kernel was booted")
	}
	mean := func(v []float64) (sum float64) {
		for _, x := range v {
			sum += x / boots
		}
		return sum
	}
	for _, what := range order {
		if len(cost[what]) != boots {
			t.Fatalf("%s was measured in %d of %d boots", what, len(cost[what]), boots)
		}
		t.Logf("mean cost %s: %.0f instructions a packet", what, mean(cost[what]))
	}
	for _, c := range []struct {
		one, other string
		most       float64 // times: what is said, and half of its last digit
	}{
		{"TCP: bpf_dualpi2", "TCP: bpf_dualpi2 no_split_gso", wholeCosts + 0.5},
		{"TCP: bpf_dualpi2", "TCP: cake bandwidth 10gbit besteffort", apartCosts},
		{"TCP: cake bandwidth 10gbit besteffort no-split-gso", "TCP: cake bandwidth 10gbit besteffort",
			1.0 / wholeCarries},
		{"UDP: bpf_dualpi2 rate 10gbit", "UDP: cake bandwidth 10gbit besteffort", 0.875},
		{"UDP: bpf_dualpi2 rate 10gbit", "UDP: fq_codel", 1.155},
		{"UDP: bpf_dualpi2 rate 10gbit", "UDP: htb rate 10gbit | dualpi2", 1.005},
	} {
		one, other := cost[c.one], cost[c.other]
		if one == nil || other == nil {
			t.Errorf("%s or %s was not measured (make reference)", c.one, c.other)
			continue
		}
		var more, squares []float64 // than the other may take, in each boot
		for i := range one {
			more = append(more, one[i]-c.most*other[i])
		}
		for _, m := range more {
			squares = append(squares, (m-mean(more))*(m-mean(more)))
		}
		deviation := math.Sqrt(mean(squares) / (boots - 1)) // of the mean
		t.Logf("%s takes %.2f times the instructions of %s: %.0f ± %.0f a packet more than %.3f times", c.one,
			mean(one)/mean(other), c.other, mean(more), deviation, c.most)
		if mean(more) > 2*deviation {
			t.Errorf("%s takes more than %.3f times the instructions of %s, and not by chance", c.one, c.most, c.other)
		}
	}
}

// How many times the instructions a packet costs that superpackets cost when they are left whole, and those that CAKE
// takes apart, as "weir dualpi2 --help" and results/dualpi2.md say; and how many times the rate CAKE carries that
// leaves them whole, as the plan has it.
const (
	wholeCosts   = 8
	apartCosts   = 1.7
	wholeCarries = 3
)
