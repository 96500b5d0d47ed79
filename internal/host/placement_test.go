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
		"sys/class/net/ens8/device": link("../../../0000:00:08.0"),
		"proc/interrupts": file("           CPU0       CPU1\n" +
			"  1:  5  0  IO-APIC  1-edge  i8042\n" +
			" 36:  7  9  PCI-MSIX-0000:00:02.0  1-edge  virtio1-req.0\n" +
			" 40:  2  30  PCI-MSIX-0000:00:05.0  1-edge  virtio4-input.0\n" +
			" 41:  4  10  PCI-MSIX-0000:00:05.0  2-edge  virtio4-output.0\n" +
			" 50:  1  1  PCI-MSIX-0000:3b:00.0  0-edge  mlx5_comp0@pci:0000:3b:00.0\n" +
			" 51:  3  4  PCI-MSIX-0000:3b:00.0  1-edge  ens5-TxRx-1\n" +
			" 53:  3  4  PCI-MSIX-0000:3b:00.0  1-edge  ens5-tx-1\n" +
			" 54:  3  5  PCI-MSIX-0000:3b:00.0  1-edge  ens5-Tx-Rx-2\n" +
			" 55:  3  4  PCI-MSIX-0000:3b:00.0  1-edge  ens5-tx0\n" +
			" 56:  3  6  PCI-MSIX-0000:3b:00.0  1-edge  ens5-rx0\n" +
			" 60:  1  0  PCI-MSIX-0000:00:08.0  0-edge  gve-ntfy-blk0@pci:0000:00:08.0\n" +
			" 61:  1  0  PCI-MSIX-0000:00:08.0  1-edge  gve-ntfy-blk1@pci:0000:00:08.0\n" +
			" 62:  1  0  PCI-MSIX-0000:00:08.0  2-edge  gve-ntfy-blk2@pci:0000:00:08.0\n" +
			" 63:  0  9  PCI-MSIX-0000:00:08.0  3-edge  gve-ntfy-blk3@pci:0000:00:08.0\n" +
			" 52:  3  4  PCI-MSIX-0000:3b:00.0  1-edge  ens50-TxRx-1\n" +
			"NMI:  0  0  Non-maskable interrupts\n:\n"),
		"proc/irq/40/effective_affinity_list": file("1\n"),
		"proc/irq/41/effective_affinity_list": file("1\n"),
		"proc/irq/50/effective_affinity_list": file("0-1\n"),
		"proc/irq/51/effective_affinity_list": file("0\n"),
		"proc/irq/53/effective_affinity_list": file("0\n"),
		"proc/irq/54/effective_affinity_list": file("0\n"),
	}
	for irq, cpu := range map[int]string{55: "0", 56: "0", 60: "0", 61: "1", 62: "0", 63: "1"} {
		root[fmt.Sprintf("proc/irq/%d/effective_affinity_list", irq)] = file(cpu)
	}
	got := Counts{}
	tree := &tree{root: root, left: 1 << 20, deep: &Deep{}}
	list := fmt.Sprint(tree.interrupts(got))
	if want := "[{eth0 40 1} {ens5 51 0} {ens5 54 0} {ens5 56 0} {ens8 62 0} {ens8 63 1}]"; list != want {
		t.Errorf("%s, want %s", list, want)
	}
	want := Counts{"irq.40": 32, "irq.51": 7, "irq.54": 8, "irq.56": 9, "irq.62": 1, "irq.63": 9}
	if !maps.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}
