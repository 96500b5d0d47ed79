// SPDX-License-Identifier: Apache-2.0

//go:build all

package qdisc

// In make test-all: it boots stock kernels.

import (
	"path/filepath"
	"testing"

	"weir/internal/lab/qemu/kerneltest"
)

// What comes back does so on the stock kernels that users have.
func TestStockKernels(t *testing.T) {
	series := kerneltest.Series()
	if kerneltest.Everything {
		series = append([]string{"6.1", "6.12"}, series...)
	}
	files := map[string]string{}
	for _, f := range tcPaths(t) {
		files[tcPlace(f)] = filepath.Join(tcCache(), f)
	}
	kerneltest.Run(t, kerneltest.Options{Tests: "^TestLiveComesBack$", Series: series, Files: files, CPUs: 2})
}
