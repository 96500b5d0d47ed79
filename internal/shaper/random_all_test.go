// SPDX-License-Identifier: Apache-2.0

//go:build all

package shaper

// In make test-all: it needs a compiler.

import (
	"fmt"
	"os/exec"
	"testing"

	"weir/internal/bpf/bpftest"
)

// TestRandom: wherever CPUs interrupt each other, those who are active are exactly those whose clocks have not ended,
// no byte is lost or counted twice, no clock is beyond the horizon, and no packet overtakes one of its flow.
func TestRandom(t *testing.T) {
	program := bpftest.Native(t, "bpf/random.c", "-Wextra", "-fsanitize=undefined",
		"-fsanitize-trap=undefined")
	const packets = 1_000_000
	for seed, cpus := range []int{1, 2, 3, 4, 4, 8, 8, 8, 16, 16} {
		t.Run(fmt.Sprintf("seed %d, %d CPUs", seed, cpus), func(t *testing.T) {
			said, err := exec.Command(program, fmt.Sprint(seed), fmt.Sprint(packets),
				fmt.Sprint(cpus)).CombinedOutput()
			if err != nil {
				t.Errorf("%v\n%s", err, said)
			} else {
				t.Logf("%s", said)
			}
		})
	}
}
