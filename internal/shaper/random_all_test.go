// SPDX-License-Identifier: Apache-2.0

//go:build all

package shaper

// In make test-all: it needs a compiler.

import (
	"encoding/json"
	"fmt"
	"os/exec"
	"testing"

	"weir/internal/bpf/bpftest"
	"weir/internal/units"
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

// TestThreads: the same on CPUs of this machine's. What they do to words that they share it prints: docs/clients.md
// says from that what fast links take.
func TestThreads(t *testing.T) {
	program := bpftest.Native(t, "bpf/threads.c", "-O2", "-pthread", "-Wno-parentheses")
	for _, rate := range []units.Rate{10_000_000_000, 25_000_000_000} {
		for _, size := range []int{1514, 65226} {
			for _, threads := range []int{1, 2, 4, 8} {
				packets := 600_000_000 / size
				said, err := exec.Command(program, fmt.Sprint(threads), fmt.Sprint(packets), fmt.Sprint(size),
					fmt.Sprint(uint64(rate)/8), numbers(rate)).Output()
				var counts struct {
					Shared, Own, Again                 float64 // a packet
					Bytes, Accounted, Active, Calendar int64
				}
				if err == nil {
					err = json.Unmarshal(said, &counts)
				}
				if err != nil {
					t.Fatal(err, string(said))
				}
				t.Logf("%v, packets of %d bytes, %d threads: a packet has %.2f atomic operations on shared words, "+
					"%.2f on its client's, and %.4f of them again", rate, size, threads, counts.Shared, counts.Own,
					counts.Again)
				if counts.Bytes == 0 || counts.Bytes != counts.Accounted {
					t.Errorf("%d bytes were sent, and %d counted", counts.Bytes, counts.Accounted)
				}
				if counts.Active != 0 || counts.Calendar != 0 {
					t.Errorf("%d parts are active afterwards, and %d in the calendar", counts.Active,
						counts.Calendar)
				}
			}
		}
	}
}
