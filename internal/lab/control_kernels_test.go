// SPDX-License-Identifier: Apache-2.0

//go:build kernels

package lab_test

// In make test-kernels: minutes for each kernel.

import (
	"testing"

	"weir/internal/lab/qemu"
	"weir/internal/lab/scenario"
	"weir/internal/lab/verdict"
)

// Weir's congestion control keeps on the stock kernels that people have what its page promises. results/cc-kernels.md
// has the figures.
func TestControlOnKernels(t *testing.T) {
	r := runner(t)
	for _, kernel := range []string{"6.1", "6.12", qemu.Newest} {
		t.Run(kernel, func(t *testing.T) {
			stock, err := qemu.Find(kernel)
			if err != nil {
				t.Skipf("skipped, not passed: %v", err)
			}
			r.Engines[scenario.QEMU] = qemu.Engine{Kernel: stock}
			files := []string{"fifo", "policer", "answers"}
			if kernel == qemu.Newest { // for which make reference builds the provider's queue
				files = append(files, "dualpi2")
			}
			for _, file := range files {
				s, err := scenario.Load("../../scenarios/cc-kernels/" + file + ".toml")
				if err != nil {
					t.Fatal(err)
				}
				report := run(t, r, s)
				if len(report.Claims) == 0 {
					t.Errorf("%s claims nothing", file)
				}
				for _, c := range report.Claims {
					t.Logf("%s: %s: %s %v", file, c.Claim.Says, c.Claim.Metric, c.Verdict)
					if c.Verdict != verdict.Reproduced && c.Note == "" { // else it says why not
						t.Errorf("%s: %q is %v: %+v", file, c.Claim.Says, c.Verdict, c)
					}
				}
			}
		})
	}
}
