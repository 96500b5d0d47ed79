// SPDX-License-Identifier: Apache-2.0

package qdisc

import "weir/internal/dualpi2"

func loaderHere() loader { return kernelBPF{} }

// kernelBPF is the kernel's.
type kernelBPF struct{}

func (kernelBPF) Install(ifindex int, c dualpi2.Config, place func(kind string) error) error {
	return dualpi2.Install(ifindex, c, place)
}
func (kernelBPF) Change(ifindex int, c dualpi2.Config) error       { return dualpi2.Change(ifindex, c) }
func (kernelBPF) Read(ifindex int) (dualpi2.Instance, bool, error) { return dualpi2.Read(ifindex) }
func (kernelBPF) Clean(ifindex int) error                          { return dualpi2.Clean(ifindex) }
