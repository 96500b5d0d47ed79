// SPDX-License-Identifier: Apache-2.0

package host

import (
	"fmt"
	"maps"
	"testing"
	"testing/fstest"
)

// The interrupts of devices are told by the names that drivers give them, and by where they go.
func TestInterrupts(t *testing.T) {
	root := fstest.MapFS{
		"sys/class/net/eth0/device": link("../../../virtio4"),
		"sys/class/net/ens5/device": link("../../../0000:3b:00.0"),
		"proc/interrupts": file("           CPU0       CPU1\n" +
			"  1:  5  0  IO-APIC  1-edge  i8042\n" +
			" 36:  7  9  PCI-MSIX-0000:00:02.0  1-edge  virtio1-req.0\n" +
			" 40:  2  30  PCI-MSIX-0000:00:05.0  1-edge  virtio4-input.0\n" +
			" 41:  4  10  PCI-MSIX-0000:00:05.0  2-edge  virtio4-output.0\n" +
			" 50:  1  1  PCI-MSIX-0000:3b:00.0  0-edge  mlx5_comp0@pci:0000:3b:00.0\n" +
			" 51:  3  4  PCI-MSIX-0000:3b:00.0  1-edge  ens5-TxRx-1\n" +
			" 53:  3  4  PCI-MSIX-0000:3b:00.0  1-edge  ens5-tx-1\n" +
			" 54:  3  5  PCI-MSIX-0000:3b:00.0  1-edge  ens5-Tx-Rx-2\n" +
			" 52:  3  4  PCI-MSIX-0000:3b:00.0  1-edge  ens50-TxRx-1\n" +
			"NMI:  0  0  Non-maskable interrupts\n:\n"),
		"proc/irq/40/effective_affinity_list": file("1\n"),
		"proc/irq/41/effective_affinity_list": file("1\n"),
		"proc/irq/50/effective_affinity_list": file("0-1\n"),
		"proc/irq/51/effective_affinity_list": file("0\n"),
		"proc/irq/53/effective_affinity_list": file("0\n"),
		"proc/irq/54/effective_affinity_list": file("0\n"),
	}
	got := Counts{}
	tree := &tree{root: root, left: 1 << 20, deep: &Deep{}}
	list := fmt.Sprint(tree.interrupts(got))
	if want := "[{eth0 40 1} {ens5 51 0} {ens5 54 0}]"; list != want {
		t.Errorf("%s, want %s", list, want)
	}
	if want := (Counts{"irq.40": 32, "irq.51": 7, "irq.54": 8}); !maps.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}
