// SPDX-License-Identifier: Apache-2.0

package shaper

import (
	"testing"

	"weir/internal/lab/qemu/kerneltest"
)

func TestMain(m *testing.M) { kerneltest.Main(m) }
