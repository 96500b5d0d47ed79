// SPDX-License-Identifier: Apache-2.0

package qdisc

import (
	"weir/internal/dualpi2"
	"weir/internal/shaper"
)

func loadersHere() (loader, shaperLoader) { return kernelBPF{}, kernelShaper{} }

// kernelBPF is the kernel's.
type kernelBPF struct{}

func (kernelBPF) Install(ifindex int, c dualpi2.Config, place func(kind string) error) error {
	return dualpi2.Install(ifindex, c, place)
}
func (kernelBPF) Change(ifindex int, c dualpi2.Config) error       { return dualpi2.Change(ifindex, c) }
func (kernelBPF) Read(ifindex int) (dualpi2.Instance, bool, error) { return dualpi2.Read(ifindex) }
func (kernelBPF) Clean(ifindex int) error                          { return dualpi2.Clean(ifindex) }

// kernelShaper is the kernel's, too.
type kernelShaper struct{}

func (kernelShaper) Install(ifindex, from int, c shaper.Config) error {
	return shaper.Install(ifindex, from, c)
}
func (kernelShaper) Change(ifindex int, c shaper.Config) error       { return shaper.Change(ifindex, c) }
func (kernelShaper) Read(ifindex int) (shaper.Instance, bool, error) { return shaper.Read(ifindex) }
func (kernelShaper) Remove(ifindex int) error                        { return shaper.Remove(ifindex) }
func (kernelShaper) Clean(ifindex int) error                         { return shaper.Clean(ifindex) }
