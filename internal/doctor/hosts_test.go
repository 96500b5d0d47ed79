// SPDX-License-Identifier: Apache-2.0

package doctor

import "weir/internal/host/hosttest"

type edits = hosttest.Edits

// Made-up hosts, by the short names that tables of cases need.
var (
	tree       = hosttest.Tree
	with       = hosttest.With
	kernelWith = hosttest.Kernel
	bpfDualPI2 = hosttest.BPFDualPI2
	sysctl     = hosttest.Sysctl
	uplink     = hosttest.Uplink

	traffic           = hosttest.Traffic
	device            = hosttest.Device
	runs              = hosttest.Runs
	pairs             = hosttest.Pairs
	measuredNAT       = hosttest.MeasuredNAT
	measuredWireGuard = hosttest.MeasuredWireGuard
	measuredTun       = hosttest.MeasuredTun
	measuredProxy     = hosttest.MeasuredProxy
)
