// SPDX-License-Identifier: Apache-2.0

// Package shaper is Weir's shaper for many cores, fair between clients: BPF for stock kernels from 6.1 on, with the
// kernel's mq and fq below it (bpf/shaper.h). So far it is the algorithm, and what tries that.
//
// It may not decide who uses it, or at what rate.
package shaper
