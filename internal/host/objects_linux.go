// SPDX-License-Identifier: Apache-2.0

package host

import (
	"weir/internal/bbr"
	"weir/internal/dualpi2"
	"weir/internal/qdisc"
	"weir/internal/shaper"
)

// objects are those that this program brings along in BPF, by name, and how a kernel is asked whether it takes them.
// A probe's error wraps bpf.ErrNotSupported if it does not.
func objects() map[string]func() error {
	return map[string]func() error{
		qdisc.BPF:        dualpi2.Probe,
		qdisc.BPFShaping: shaper.Probe,
		bbr.Name:         bbr.Probe,
	}
}

// readBBR asks the kernel whose bpf_bbr it has, where it has one.
func (f *Facts) readBBR() {
	f.Congestion.Brings = bbr.Version()
	if f.Congestion.Has(bbr.Name) {
		f.Congestion.Registered, _ = bbr.Registered()
	}
}
