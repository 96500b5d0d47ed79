// SPDX-License-Identifier: Apache-2.0

package host

import (
	"weir/internal/dualpi2"
	"weir/internal/qdisc"
)

// objects are those that this program brings along in BPF, by name, and how a kernel is asked whether it takes them.
// A probe's error wraps bpf.ErrNotSupported if it does not.
func objects() map[string]func() error {
	return map[string]func() error{
		qdisc.BPF: dualpi2.Probe,
	}
}
