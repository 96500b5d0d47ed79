// SPDX-License-Identifier: Apache-2.0

package rtt

import (
	"os"
	"testing"

	"weir/internal/lab/qemu/kerneltest"
)

func TestMain(m *testing.M) {
	if os.Getenv(holds) != "" {
		hold()
	}
	kerneltest.Main(m)
}

// TestKernels: what is seen of connections that a stock kernel forwards, in a time that is exact.
func TestKernels(t *testing.T) {
	o := kerneltest.Options{Tests: "^TestIn(RTT|Tunnel|Losses|Own|Passes|Gone|Many|Cost)$"}
	if kerneltest.Everything() {
		o.Series = append([]string{"6.12"}, kerneltest.Series()...)
	}
	kerneltest.Run(t, o)
}

// TestKernelsBefore: a kernel without the hook takes the programs, and says what is missing.
func TestKernelsBefore(t *testing.T) {
	kerneltest.Run(t, kerneltest.Options{Tests: "^TestInBefore$", Series: []string{"6.1"}})
}
