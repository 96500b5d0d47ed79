// SPDX-License-Identifier: Apache-2.0

package host

import (
	"io/fs"
	"path"
	"strconv"
	"strings"
)

// Counts are counters of what passes through a host, since its boot.
//
// Those of /proc/net/snmp and netstat have the names that stand there ("Ip.FragCreates", "TcpExt.ListenDrops"), with
// those of IPv6 added to them. Those of a device have its name before them, as in /sys/class/net ("eth0.tx_dropped"),
// and so have those by which a driver says what the provider held back ("eth0.bw_out_allowance_exceeded").
// What its root qdisc dropped is by QueueDrops, and what was lack of room by QueueOverflows. The others are
// "softnet.processed" and "softnet.dropped", in packets (/proc/net/softnet_stat); "cpu.had" and "cpu.steal", in ticks
// (proc_stat(5)): what this machine had, idle or not, and what others had of it; the same and "softirq" of each CPU
// ("cpu0.had"); "irq.24", how often an interrupt of a device came; "conntrack.drop", in packets; "periods.GROUP", those
// of a control group with a limit of CPU time, and "throttled.GROUP", in how many of them it used that up (cgroups(7)).
type Counts map[string]uint64

// QueueOverflows is the name of the counter of packets that the qdiscs of a device have dropped for lack of room, where
// they count them apart.
func QueueOverflows(dev string) string { return dev + ".queue_overflows" }

// QueueDrops is the name of the counter of packets that the root qdisc of a device has dropped.
func QueueDrops(dev string) string { return dev + ".queue_drops" }

// since are the counters that have risen since an earlier look, and by how much.
func (c Counts) since(before Counts) Counts {
	rose := Counts{}
	for name, now := range c {
		if was, there := before[name]; there && now > was {
			rose[name] = now - was
		}
	}
	return rose
}

// Of the many that the kernel has, those that tell of a bottleneck, and what they are a share of.
var (
	ipCounts = []string{"Ip.OutRequests", "Ip.ForwDatagrams", "Ip.FragCreates", "Ip.ReasmReqds", "Ip.ReasmFails",
		"Udp.InDatagrams", "Udp.RcvbufErrors", "Udp.OutDatagrams", "Udp.SndbufErrors", "Tcp.PassiveOpens"}
	netstatCounts = []string{"TcpExt.ListenDrops"}
	ip6Counts     = map[string]string{"Ip6OutRequests": "Ip.OutRequests", "Ip6OutForwDatagrams": "Ip.ForwDatagrams",
		"Ip6FragCreates": "Ip.FragCreates", "Ip6ReasmReqds": "Ip.ReasmReqds", "Ip6ReasmFails": "Ip.ReasmFails",
		"Udp6InDatagrams": "Udp.InDatagrams", "Udp6RcvbufErrors": "Udp.RcvbufErrors",
		"Udp6OutDatagrams": "Udp.OutDatagrams", "Udp6SndbufErrors": "Udp.SndbufErrors"}
	deviceCounts = []string{"tx_packets", "tx_dropped", "tx_errors", "rx_packets", "rx_missed_errors", "rx_fifo_errors",
		"tx_bytes", "rx_bytes"}
)

// counts reads all of them, net from the folder that has the reader's network namespace.
func (t *tree) counts(net string) Counts {
	all := Counts{}
	addNamed(all, counters(string(t.read(net+"/snmp"))), ipCounts)
	addNamed(all, counters(string(t.read(net+"/netstat"))), netstatCounts)
	for name, n := range counters6(string(t.read(net + "/snmp6"))) {
		if sum, ok := ip6Counts[name]; ok {
			all[sum] += n
		}
	}
	addSoftnet(all, string(t.read(net+"/softnet_stat")))
	addCPUTimes(all, string(t.read("proc/stat")))
	if text := t.read(net + "/stat/nf_conntrack"); text != nil {
		all["conntrack.drop"] = sumColumn(string(text), "drop")
	}
	t.addDevices(all)
	t.addThrottled(all, "sys/fs/cgroup", "")
	return all
}

func addNamed(all Counts, from map[string]uint64, names []string) {
	for _, name := range names {
		if n, ok := from[name]; ok {
			all[name] = n
		}
	}
}

// addSoftnet adds up the lines of /proc/net/softnet_stat, one a CPU: hexadecimal, the first two are what was processed
// and what was dropped as the backlog was full (net/core/net-procfs.c).
func addSoftnet(all Counts, text string) {
	for l := range strings.Lines(text) {
		for i, name := range []string{"softnet.processed", "softnet.dropped"} {
			if fields := strings.Fields(l); len(fields) > i {
				n, _ := strconv.ParseUint(fields[i], 16, 64)
				all[name] += n
			}
		}
	}
}

// MostCPUs is how many CPUs are looked at.
const MostCPUs = 512

// addCPUTimes reads the line "cpu": user nice system idle iowait irq softirq steal, in ticks; and of those of each CPU
// what softirqs took.
func addCPUTimes(all Counts, text string) {
	const softirq, steal = 6, 7
	for l := range strings.Lines(text) {
		fields := strings.Fields(l)
		if len(fields) <= steal+1 {
			continue
		}
		name, is := strings.CutPrefix(fields[0], "cpu")
		if cpu, err := strconv.Atoi(name); !is || name != "" && (err != nil || cpu < 0 || cpu >= MostCPUs) {
			continue
		}
		for i, field := range fields[1 : steal+2] {
			n, _ := strconv.ParseUint(field, 10, 64)
			switch {
			case i == steal && name == "":
				all["cpu.steal"] = n
			case i < steal:
				all[fields[0]+".had"] += n
			}
			if i == softirq && name != "" {
				all[fields[0]+".softirq"] = n
			}
		}
	}
}

// sumColumn adds up a column of a table with a line of names above hexadecimal numbers.
func sumColumn(text, name string) (sum uint64) {
	at := -1
	for l := range strings.Lines(text) {
		fields := strings.Fields(l)
		if at < 0 {
			for i, f := range fields {
				if f == name {
					at = i
				}
			}
			if at < 0 {
				return 0
			}
		} else if at < len(fields) {
			n, _ := strconv.ParseUint(fields[at], 16, 64)
			sum += n
		}
	}
	return sum
}

// readNumber reads a file that has nothing but a number; false if there is none.
func (t *tree) readNumber(name string) (uint64, bool) {
	n, err := strconv.ParseUint(strings.TrimSpace(string(t.read(name))), 10, 64)
	return n, err == nil
}

// addDevices reads the counters of devices that have hardware, or a driver that stands for it.
func (t *tree) addDevices(all Counts) {
	const most = 16
	entries, _ := fs.ReadDir(t.root, "sys/class/net")
	read := 0
	for _, e := range entries {
		if _, err := fs.Lstat(t.root, path.Join("sys/class/net", e.Name(), "device")); err != nil || read == most {
			continue
		}
		read++
		for _, name := range deviceCounts {
			// Devices are links to folders, which the root's own resolve does not follow.
			text, err := fs.ReadFile(t.root, path.Join("sys/class/net", e.Name(), "statistics", name))
			if n, bad := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 64); err == nil && bad == nil {
				all[e.Name()+"."+name] = n
			}
		}
	}
}

// addThrottled reads the control groups that have a limit of CPU time: of a container its own, and of slices and
// services.
func (t *tree) addThrottled(all Counts, dir, group string) {
	const deepest = 1 // slashes in the name of a group: "system.slice/nginx.service"
	if quota, _, _ := strings.Cut(string(t.read(dir+"/cpu.max")), " "); quota != "" && quota != "max" {
		for l := range strings.Lines(string(t.read(dir + "/cpu.stat"))) {
			for field, name := range map[string]string{"nr_periods ": "periods.", "nr_throttled ": "throttled."} {
				if value, ok := strings.CutPrefix(l, field); ok {
					all[name+group], _ = strconv.ParseUint(strings.TrimSpace(value), 10, 64)
				}
			}
		}
	}
	if strings.Count(group, "/") >= deepest {
		return
	}
	entries, _ := fs.ReadDir(t.root, dir)
	for _, e := range entries {
		if e.IsDir() && path.Ext(e.Name()) != ".mount" {
			t.addThrottled(all, dir+"/"+e.Name(), path.Join(group, e.Name()))
		}
	}
}

// Conntrack is netfilter's table of connections: of a network namespace that tracks none, nothing.
type Conntrack struct {
	Count uint64 `json:"count"` // entries
	Max   uint64 `json:"max"`   // from which on packets of new connections are dropped; 0: nothing is tracked
}

func (t *tree) conntrack() (c Conntrack) {
	const dir = "proc/sys/net/netfilter/"
	c.Count, _ = t.readNumber(dir + "nf_conntrack_count")
	c.Max, _ = t.readNumber(dir + "nf_conntrack_max")
	return c
}
