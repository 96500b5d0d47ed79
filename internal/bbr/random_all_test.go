// SPDX-License-Identifier: Apache-2.0

//go:build all

package bbr

// In make test-all: it needs a compiler.

import (
	"fmt"
	"os/exec"
	"testing"

	"weir/internal/bpf/bpftest"
)

// TestRandom: whatever happens to a connection, in whatever order, window, pacing and what is kept stay within their
// bounds, nothing overflows, and on a calm path it comes back.
func TestRandom(t *testing.T) {
	program := bpftest.Native(t, "bpf/random.c", "-Wno-unknown-attributes", // kernel.h: of BPF alone
		"-fsanitize=undefined,integer", "-fno-sanitize-recover=all", "-fsanitize-recover=unsigned-integer-overflow",
		"-fno-sanitize-link-runtime") // it has its own
	const sequences = 250000
	for seed := 1; seed <= 4; seed++ {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			said, err := exec.Command(program, fmt.Sprint(seed), "0", fmt.Sprint(sequences)).CombinedOutput()
			if err != nil {
				t.Errorf("%v\n%s", err, said)
			} else {
				t.Logf("%s", said)
			}
		})
	}
}
