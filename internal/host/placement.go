// SPDX-License-Identifier: Apache-2.0

package host

import (
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Interrupt is one of a device's, such as a queue's.
type Interrupt struct {
	Dev    string `json:"dev"`
	Number int    `json:"number"`
	CPU    int    `json:"cpu"` // to which it goes (/proc/irq/*/effective_affinity_list)
}

// Count is the name of the counter of how often it came, on whichever CPU.
func (i Interrupt) Count() string { return fmt.Sprintf("irq.%d", i.Number) }

// CPUCounts are the names of a CPU's time in softirqs, which is where packets are taken in, and of all of it, in ticks.
func CPUCounts(cpu int) (softirq, had string) {
	return fmt.Sprintf("cpu%d.softirq", cpu), fmt.Sprintf("cpu%d.had", cpu)
}

// interrupts are those of devices with hardware that go to one CPU, as /proc/interrupts names them: by the device
// (eth0-TxRx-0), or by what is below it (virtio4-input.0, mlx5_comp0@pci:0000:3b:00.0). Those for sending alone are
// left out: one queue has one of each, which go to the same CPU on purpose. How often they came is counted.
func (t *tree) interrupts(all Counts) (list []Interrupt) {
	const most = 256
	entries, _ := fs.ReadDir(t.root, "sys/class/net")
	owners := map[string]string{}
	for _, e := range entries {
		if below, err := fs.ReadLink(t.root, path.Join("sys/class/net", e.Name(), "device")); err == nil {
			owners[e.Name()], owners[path.Base(below)] = e.Name(), e.Name()
		}
	}
	text := string(t.read("proc/interrupts"))
	blocks := map[string]int{}
	for _, m := range gveBlock.FindAllStringSubmatch(text, -1) {
		blocks[m[2]]++
	}
	for l := range strings.Lines(text) {
		number, rest, _ := strings.Cut(strings.TrimSpace(l), ":")
		n, err := strconv.Atoi(number)
		dev := interruptDevice(rest, owners)
		if err != nil || dev == "" || len(list) == most || isGveTxLine(rest, blocks) {
			continue
		}
		i := Interrupt{Dev: dev, Number: n}
		place := strings.TrimSpace(string(t.read(fmt.Sprintf("proc/irq/%d/effective_affinity_list", n))))
		if i.CPU, err = strconv.Atoi(place); err != nil {
			continue
		}
		came := uint64(0)
		for field := range strings.FieldsSeq(rest) {
			once, err := strconv.ParseUint(field, 10, 64)
			if err != nil { // behind the counters, one a CPU
				break
			}
			came += once
		}
		all[i.Count()] = came
		list = append(list, i)
	}
	return list
}

// gveBlock is how Google's gve names an interrupt: by its number among the device's, and the device.
var gveBlock = regexp.MustCompile(`(?m)\bgve-ntfy-blk(\d+)@pci:(\S+)$`)

// isGveTxLine reports whether a line of /proc/interrupts is one of gve's for sending alone: of so many of a device the
// first half is (gve_rx_idx_to_ntfy in drivers/net/ethernet/google/gve/gve.h).
func isGveTxLine(line string, blocks map[string]int) bool {
	m := gveBlock.FindStringSubmatch(line)
	if m == nil {
		return false
	}
	number, err := strconv.Atoi(m[1])
	return err == nil && number < blocks[m[2]]/2
}

// txName is how drivers name what is for sending alone.
var txName = regexp.MustCompile(`^(?:tx\d*|output\..*)$`)

// interruptDevice is the device that a line of /proc/interrupts names at its end; "" if it names none of them.
func interruptDevice(line string, owners map[string]string) string {
	fields := strings.Fields(line)
	if len(fields) == 0 {
		return ""
	}
	parts := strings.FieldsFunc(fields[len(fields)-1], func(r rune) bool { return r == '-' || r == '@' })
	if slices.ContainsFunc(parts, txName.MatchString) {
		return ""
	}
	i := slices.IndexFunc(parts, func(part string) bool { return owners[strings.TrimPrefix(part, "pci:")] != "" })
	if i < 0 {
		return ""
	}
	return owners[strings.TrimPrefix(parts[i], "pci:")]
}
