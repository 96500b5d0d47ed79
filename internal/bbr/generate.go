// SPDX-License-Identifier: Apache-2.0

package bbr

//go:generate -command bpf go run github.com/cilium/ebpf/cmd/bpf2go -cc clang-19 -strip llvm-strip-19 -no-global-types
//go:generate bpf -target bpfel -cflags "-O2 -g -Wall -Werror -Wno-parentheses -mcpu=v3" object bpf/bbr.bpf.c
//go:generate bpf -target bpfel -cflags "-O2 -g -Wall -Werror -Wno-parentheses -mcpu=v3" -type shown show bpf/show.bpf.c
