// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package qdisc

func loadersHere() (loader, shaperLoader) { return noBPF{}, noShaper{} }
