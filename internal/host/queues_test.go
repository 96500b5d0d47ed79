// SPDX-License-Identifier: Apache-2.0

package host

import (
	"slices"
	"testing"
	"testing/fstest"
)

// Of a device's queues those are told that somebody has bounded.
func TestTxQueues(t *testing.T) {
	const unbounded = "1879048192\n"
	root := fstest.MapFS{"sys/class/net/eth0/device": link("../../../virtio4"),
		"sys/class/net/eth1/device":                                   link("../../../virtio5"),
		"sys/class/net/eth0/queues/tx-0/tx_maxrate":                   file("100\n"),
		"sys/class/net/eth0/queues/tx-0/byte_queue_limits/limit_max":  file(unbounded),
		"sys/class/net/eth0/queues/tx-0/byte_queue_limits/limit":      file("3028\n"),
		"sys/class/net/eth0/queues/tx-1/tx_maxrate":                   file("0\n"),
		"sys/class/net/eth0/queues/tx-1/byte_queue_limits/limit_max":  file("3000\n"),
		"sys/class/net/eth0/queues/tx-1/byte_queue_limits/limit":      file("3000\n"),
		"sys/class/net/eth0/queues/tx-2/tx_maxrate":                   file("0\n"),
		"sys/class/net/eth0/queues/tx-2/byte_queue_limits/limit_max":  file(unbounded),
		"sys/class/net/eth0/queues/tx-3/byte_queue_limits/limit_max":  file("100000\n"),
		"sys/class/net/eth0/queues/tx-3/byte_queue_limits/limit":      file("9000\n"),
		"sys/class/net/eth0/queues/tx-4/tx_maxrate":                   file("nonsense\n"),
		"sys/class/net/eth0/queues/tx-6/tx_maxrate":                   file("7\n"), // there is no 5
		"sys/class/net/eth1/queues/rx-0/rps_cpus":                     file("0\n"),
		"sys/class/net/veth0/queues/tx-0/byte_queue_limits/limit_max": file("1\n"),
	}
	got := (&tree{root: root, left: 1 << 20, deep: &Deep{}}).txQueues()
	want := []TxQueue{{Dev: "eth0", Number: 0, Rate: 100e6}, {Dev: "eth0", Number: 1, Most: 3000, Full: true},
		{Dev: "eth0", Number: 3, Most: 100000}}
	if !slices.Equal(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
}
