// SPDX-License-Identifier: Apache-2.0

package host

import (
	"encoding/binary"
	"slices"
	"strings"
)

// providerCounts are the counters of what exceeds an allowance of the provider's, by the names that drivers give them:
// of ENA in packets, of virtio in bytes (drivers/net/ethernet/amazon/ena/ena_ethtool.c, drivers/net/virtio_net.c). What
// gve, mana and hv_netvsc count is their own rings and errors.
func providerCounts() []string {
	return []string{"bw_in_allowance_exceeded", "bw_out_allowance_exceeded", "pps_allowance_exceeded",
		"conntrack_allowance_exceeded", "linklocal_allowance_exceeded", "rx_hw_ratelimit_bytes",
		"tx_hw_ratelimit_bytes"}
}

// Bytes of a driver's names, padded with NULs, and of its values (ETH_GSTRING_LEN, include/uapi/linux/ethtool.h).
const nameLen, valueLen = 32, 8

// allowances picks those of a device's counters; the names that its driver has besides are kept nowhere.
func (c Counts) allowances(dev string, names, values []byte) {
	for i := range min(len(names)/nameLen, len(values)/valueLen) {
		name, _, _ := strings.Cut(string(names[i*nameLen:(i+1)*nameLen]), "\x00")
		if slices.Contains(providerCounts(), name) {
			c[dev+"."+name] = binary.NativeEndian.Uint64(values[i*valueLen:])
		}
	}
}
