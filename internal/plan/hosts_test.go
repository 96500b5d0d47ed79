// SPDX-License-Identifier: Apache-2.0

package plan

import "weir/internal/host/hosttest"

type edits = hosttest.Edits

// Made-up hosts, by the short names that tables of cases need.
var (
	tree              = hosttest.Tree
	server            = hosttest.Server
	with              = hosttest.With
	kernelWith        = hosttest.Kernel
	bpfDualPI2        = hosttest.BPFDualPI2
	bpfShaper         = hosttest.BPFShaper
	sysctl            = hosttest.Sysctl
	uplink            = hosttest.Uplink
	traffic           = hosttest.Traffic
	device            = hosttest.Device
	runs              = hosttest.Runs
	tcp               = hosttest.TCP
	pairs             = hosttest.Pairs
	measuredNAT       = hosttest.MeasuredNAT
	measuredWireGuard = hosttest.MeasuredWireGuard
	measuredTun       = hosttest.MeasuredTun
	measuredProxy     = hosttest.MeasuredProxy
)
