// SPDX-License-Identifier: Apache-2.0

package shaper

//go:generate -command bpf go run github.com/cilium/ebpf/cmd/bpf2go -cc clang-19 -strip llvm-strip-19 -target bpfel
//go:generate bpf -cflags "-Wall -Werror -mcpu=v3" -type config object bpf/shaper.bpf.c
//go:generate bpf -cflags "-Wall -Werror -mcpu=v3" -output-suffix _test arrivals bpf/arrivals.bpf.c
