// SPDX-License-Identifier: Apache-2.0

package host

import (
	"fmt"
	"io/fs"
	"path"
	"strconv"
	"strings"

	"weir/internal/units"
)

// TxQueue is a queue of a device's by which it sends, where somebody has bounded it.
type TxQueue struct {
	Dev    string     `json:"dev"`
	Number int        `json:"number"`
	Rate   units.Rate `json:"rate,omitempty"` // that its driver lets it have (tx_maxrate); 0: any
	// what the driver may hold at most (byte_queue_limits/limit_max), and that it would hold more; 0: as it comes
	Most units.Size `json:"most,omitempty"`
	Full bool       `json:"full,omitempty"`
}

// txQueues are those of devices with hardware that are bounded (Documentation/ABI/testing/sysfs-class-net-queues).
func (t *tree) txQueues() (all []TxQueue) {
	const devices, queues = 16, 256         // that are looked at
	const unbounded = 1<<31 - 1 - 1<<28 + 1 // bytes: DQL_MAX_LIMIT (include/linux/dynamic_queue_limits.h)
	entries, _ := fs.ReadDir(t.root, "sys/class/net")
	read := 0
	for _, e := range entries {
		// Devices are links to folders, which the root's own resolve does not follow.
		if _, err := fs.Lstat(t.root, path.Join("sys/class/net", e.Name(), "device")); err != nil || read == devices {
			continue
		}
		read++
		for n := range queues {
			dir := path.Join("sys/class/net", e.Name(), fmt.Sprintf("queues/tx-%d", n))
			number := func(name string) (n uint64, known bool) {
				text, err := fs.ReadFile(t.root, path.Join(dir, name))
				n, bad := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 64)
				return n, err == nil && bad == nil
			}
			if _, err := fs.Stat(t.root, dir); err != nil {
				break
			}
			q := TxQueue{Dev: e.Name(), Number: n}
			if mbit, known := number("tx_maxrate"); known {
				q.Rate = units.Rate(mbit) * 1e6
			}
			most, known := number("byte_queue_limits/limit_max")
			now, _ := number("byte_queue_limits/limit")
			if known && most < unbounded {
				q.Most, q.Full = units.Size(most), now >= most
			}
			if q.Rate != 0 || q.Most != 0 {
				all = append(all, q)
			}
		}
	}
	return all
}
