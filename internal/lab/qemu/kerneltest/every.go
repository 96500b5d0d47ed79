// SPDX-License-Identifier: Apache-2.0

//go:build kernels

package kerneltest

// Everything: whether all kernels are asked for (make test-kernels, the tag kernels), and not the newest alone.
const Everything = true
