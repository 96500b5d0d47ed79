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
