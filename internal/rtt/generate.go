// SPDX-License-Identifier: Apache-2.0

package rtt

//go:generate -command bpf go run github.com/cilium/ebpf/cmd/bpf2go -cc clang-19 -strip llvm-strip-19 -no-global-types
//go:generate bpf -target bpfel -type flow_key -type flow -cflags "-O2 -g -Wall -Werror -mcpu=v3" object bpf/rtt.bpf.c
