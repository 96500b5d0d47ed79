// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"
	"testing"

	"weir/internal/bench"
)

// What a person reads of it.
func TestPrintBench(t *testing.T) {
	var out strings.Builder
	err := printBench(&out, bench.Report{Kernel: "7.3.4", CPUs: 4, OneCake: 4.1e9, Results: []bench.Result{
		{Name: "one CAKE", Packets: 345678, Rate: 4.187e9}, {Name: "cake_mq", Lacks: "this kernel has it not"}}})
	const want = `linux 7.3.4, 4 CPUs, TCP in packets of 1514 bytes, both ends on this host

one CAKE                          0.35 million packets/s       4.2 Gbit/s
cake_mq                       this kernel has it not

One CAKE carries 4.1gbit here. A network card's own work is not in that, so a
plan uses four fifths of it.
What to do:  weir plan --rate 10gbit --one-cake 4.1gbit, for a link above 2
             Gbit/s
`
	if err != nil || out.String() != want {
		t.Errorf("%v\n%s", err, out.String())
	}
	if err := printBench(&out, bench.Report{}); err == nil {
		t.Error("nothing was measured, and that is no error")
	}
}
