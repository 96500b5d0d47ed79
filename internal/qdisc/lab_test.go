// SPDX-License-Identifier: Apache-2.0

package qdisc

import (
	"testing"

	"weir/internal/lab/uml/umltest"
)

func TestMain(m *testing.M) { umltest.Main(m) }

// The live tests again, on a kernel that has every queueing discipline.
func TestLabKernel(t *testing.T) { umltest.Run(t, "^TestLive") }
