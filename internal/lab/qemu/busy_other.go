// SPDX-License-Identifier: Apache-2.0

//go:build !amd64

package qemu

// neverIdle has nothing to do: the kernels are amd64's.
func neverIdle() error { return nil }
