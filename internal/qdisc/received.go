// SPDX-License-Identifier: Apache-2.0

package qdisc

import (
	"encoding/binary"
	"fmt"
)

// Received is what has come in by an interface, of 64 bits each, since it was made or its driver loaded.
type Received struct {
	Packets uint64 // as the driver counts them: what a card has put together may be one
	Bytes   uint64 // with the header of Ethernet, but for bridges and VLANs
}

// Received reads that, for those who look often: the kernel sends these counters alone (Linux 4.7).
func (c *Conn) Received(ifindex int) (r Received, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	const header = 12               // struct if_stats_msg: family and padding, ifindex, filter_mask
	const packets, bytes = 0, 2 * 8 // of rx_packets, tx_packets, rx_bytes …: struct rtnl_link_stats64
	const wanted = statsLink64 - 1  // its bit in the mask
	request := make([]byte, header)
	binary.NativeEndian.PutUint32(request[4:], uint32(ifindex))
	binary.NativeEndian.PutUint32(request[8:], 1<<wanted)
	fail := func(err error) (Received, error) {
		return Received{}, fmt.Errorf("what interface %d has received: %w", ifindex, err)
	}
	answer, err := c.dump(getStats, 0, request)
	if err != nil {
		return fail(err)
	}
	for _, m := range answer {
		if m.Header.Type != newStats || len(m.Data) < header {
			return fail(fmt.Errorf("an answer of type %d with %d bytes", m.Header.Type, len(m.Data)))
		}
		attributes, err := unpack(m.Data[header:])
		if err != nil {
			return fail(err)
		}
		for _, a := range attributes {
			if a.Type == statsLink64 && len(a.Data) >= bytes+8 {
				return Received{binary.NativeEndian.Uint64(a.Data[packets:]),
					binary.NativeEndian.Uint64(a.Data[bytes:])}, nil
			}
		}
	}
	return fail(fmt.Errorf("the kernel's answer has no counters"))
}
