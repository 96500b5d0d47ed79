// SPDX-License-Identifier: Apache-2.0

package qdisc

import (
	"encoding/binary"
	"slices"
)

// sfqReplay makes of a reported discipline one that can be sent.
func sfqReplay(options []byte) []byte {
	const config, all = 48, 72 // struct tc_sfq_qopt_v1 ends in counters
	if len(options) != all {
		return options
	}
	options = append(slices.Clone(options[:config]), make([]byte, all-config)...)
	limit, flows := options[8:12], options[16:20]
	// A limit that is sent bounds the flows; where it does not, it is the kernel's own, which it only keeps if none
	// is sent.
	if binary.NativeEndian.Uint32(flows) > binary.NativeEndian.Uint32(limit) {
		clear(limit)
	}
	return options
}
