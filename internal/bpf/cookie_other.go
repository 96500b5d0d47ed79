// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package bpf

// NetnsCookie is of Linux alone.
func NetnsCookie() (uint64, error) { return 0, ErrNotSupported }
