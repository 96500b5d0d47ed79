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
	o := kerneltest.Options{Tests: "^TestIn(RTT|Tunnel|Big|Queue|Losses|Segments|Own|Passes|Gone|Many|Flood|Cost)$"}
	o.Series = append([]string{"6.1"}, kerneltest.Series()...)
	if kerneltest.Everything() {
		o.Series = append(o.Series, "6.12")
	}
	kerneltest.Run(t, o)
}
