// SPDX-License-Identifier: Apache-2.0

// Package bbr is Weir's own congestion control, a BBR that hears what a queue's delay, its losses and its marks say, as
// BPF for stock kernels from 6.1 on (bpf/bbr.h). The kernel holds it once it is registered: it needs no process, no pin
// and no module.
//
// It may not decide who uses it: no sysctl is written here.
package bbr

// Name is what programs and sysctls call it.
const Name = "bpf_bbr"
