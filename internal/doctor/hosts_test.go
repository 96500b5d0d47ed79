// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"testing"

	"weir/internal/host"
	"weir/internal/host/hosttest"
	"weir/internal/qdisc"
)

type edits = hosttest.Edits

// Made-up hosts, by the short names that tables of cases need.
var (
	tree       = hosttest.Tree
	with       = hosttest.With
	kernelWith = hosttest.Kernel
	bpfDualPI2 = hosttest.BPFDualPI2
	bpfShaper  = hosttest.BPFShaper
	sysctl     = hosttest.Sysctl

	traffic           = hosttest.Traffic
	device            = hosttest.Device
	runs              = hosttest.Runs
	pairs             = hosttest.Pairs
	measuredNAT       = hosttest.MeasuredNAT
	measuredWireGuard = hosttest.MeasuredWireGuard
	measuredTun       = hosttest.MeasuredTun
	measuredProxy     = hosttest.MeasuredProxy
)

// uplink has this stack at its root, by which much has left.
func uplink(t testing.TB, text string, queues int) func(*host.Facts) {
	return func(f *host.Facts) {
		hosttest.Uplink(t, text, queues)(f)
		passed := qdisc.Stats{Bytes: 1e9}
		for i := range f.Links[1].Tree.Qdiscs {
			f.Links[1].Tree.Qdiscs[i].Stats = passed
		}
		for i := range f.Links[1].Tree.Classes {
			f.Links[1].Tree.Classes[i].Stats = passed
		}
	}
}

// left is what passed the uplink's root in its life, and in the last ten seconds of listening, in bytes.
func left(life, recent uint64) func(*host.Facts) {
	return func(f *host.Facts) {
		f.Deep.Listened = millisecond(10_000)
		f.Links[1].Tree.Qdiscs[0].Stats = qdisc.Stats{Bytes: life, Recent: qdisc.Recent{Bytes: recent}}
	}
}
