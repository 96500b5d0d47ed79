// SPDX-License-Identifier: Apache-2.0

package host

import (
	"encoding/binary"
	"maps"
	"testing"
)

// described is what a driver answers: names of 32 bytes, and values.
func described(counters ...string) (names, values []byte) {
	for i, c := range counters {
		var name [nameLen]byte
		copy(name[:], c)
		names, values = append(names, name[:]...), binary.NativeEndian.AppendUint64(values, uint64(i+1))
	}
	return names, values
}

// Of what a driver counts, what the provider's allowances exceed is kept, whatever the others are called.
func TestAllowances(t *testing.T) {
	names, values := described("queue_0_tx_cnt", "bw_out_allowance_exceeded", "\x1b[2J", "pps_allowance_exceeded",
		"bw_in_allowance_exceeded2", "conntrack_allowance_available", "tx_hw_ratelimit_bytes",
		"a_name_that_takes_all_32_bytes_of_it")
	for _, c := range []struct {
		name          string
		names, values []byte
		want          Counts
	}{
		{"all", names, values, Counts{"eth0.bw_out_allowance_exceeded": 2, "eth0.pps_allowance_exceeded": 4,
			"eth0.tx_hw_ratelimit_bytes": 7}},
		{"fewer values", names, values[:23], Counts{"eth0.bw_out_allowance_exceeded": 2}},
		{"fewer names", names[:63], values, Counts{}},
		{"none", nil, nil, Counts{}},
	} {
		got := Counts{}
		if got.allowances("eth0", c.names, c.values); !maps.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

// Whatever a driver answers, reading it ends, and no name of its own is kept.
func FuzzAllowances(f *testing.F) {
	names, values := described("bw_out_allowance_exceeded", "x")
	f.Add(names, values)
	f.Fuzz(func(t *testing.T, names, values []byte) {
		got := Counts{}
		got.allowances("eth0", names, values)
		if len(got) > len(providerCounts()) {
			t.Errorf("%v", got)
		}
	})
}
