// SPDX-License-Identifier: Apache-2.0

package rtt

//go:generate go run github.com/cilium/ebpf/cmd/bpf2go -cc clang-19 -strip llvm-strip-19 -no-global-types -type flow_key -type flow -target bpfel -cflags "-O2 -g -Wall -Werror -mcpu=v3" object bpf/rtt.bpf.c
