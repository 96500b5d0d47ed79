// SPDX-License-Identifier: Apache-2.0

package dualpi2

//go:generate go run github.com/cilium/ebpf/cmd/bpf2go -cc clang-19 -strip llvm-strip-19 -no-global-types -type instance_data -type config -type configs -type histogram -type status -target bpfel -cflags "-O2 -g -Wall -Werror -Wno-parentheses -mcpu=v3" object bpf/dualpi2.bpf.c
//go:generate go run github.com/cilium/ebpf/cmd/bpf2go -cc clang-19 -strip llvm-strip-19 -no-global-types -type controller -target bpfel -output-suffix _test -cflags "-O2 -g -Wall -Werror -Wno-parentheses -Wno-unused-function -mcpu=v3" control bpf/controller.bpf.c
