// SPDX-License-Identifier: Apache-2.0

// Package shaper is Weir's shaper for many cores, fair between clients, with a weight and a rate for each where one is
// wanted: a BPF program at a device's egress that gives each packet its time of departure, for stock kernels from 6.1
// on (bpf/shaper.h).
//
// It holds no packet and puts no qdisc in place: fq, or mq with fq below it, is its caller's part, as it is to decide
// who uses it, and at what rate. It keeps nothing: the program is held by the device, and goes with it.
package shaper
