// SPDX-License-Identifier: Apache-2.0

package shaper

//go:generate -command bpf go run github.com/cilium/ebpf/cmd/bpf2go -cc clang-19 -strip llvm-strip-19 -no-global-types -target bpfel -cflags "-O2 -g -Wall -Werror -Wno-parentheses -mcpu=v3"
//go:generate bpf -type instance -type configs -type config -type params -type entry -type policy -type prefix -type address -type totals -type shaper object bpf/shaper.bpf.c
//go:generate bpf -output-suffix _test arrivals bpf/arrivals.bpf.c
