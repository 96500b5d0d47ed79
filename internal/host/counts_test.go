// SPDX-License-Identifier: Apache-2.0

package host

import (
	"maps"
	"slices"
	"testing"
	"testing/fstest"

	"weir/internal/qdisc"
)

// counting is a host with a counter of each kind.
func counting() fstest.MapFS {
	return fstest.MapFS{
		"proc/net/snmp": file("Ip: OutRequests FragCreates Other\nIp: 1000 40 7\n" +
			"Udp: InDatagrams RcvbufErrors\nUdp: 500 3\nTcp: PassiveOpens\nTcp: 9\n"),
		"proc/net/netstat":      file("TcpExt: ListenDrops Other\nTcpExt: 2 8\n"),
		"proc/net/snmp6":        file("Ip6OutRequests 100\nIp6FragCreates 5\nUdp6RcvbufErrors x\nIp6Other 6\n"),
		"proc/net/softnet_stat": file("000000ff 00000002 00000000\n00000001 00000001\n"),
		"proc/stat":             file("cpu  1 2 3 4 5 6 7 8 9 10\ncpu0 1 1 1 1 1 1 1 1 1 1\n"),
		"proc/net/stat/nf_conntrack": file("entries clashres found drop early_drop\n" +
			"00000001 0 0 0000000a 0\n00000001 0 0 00000001 0\n"),
		"proc/sys/net/netfilter/nf_conntrack_count":           file("12\n"),
		"proc/sys/net/netfilter/nf_conntrack_max":             file("65536\n"),
		"proc/net/ip_tables_names":                            file("filter\nnat\n"),
		"proc/net/ip6_tables_names":                           file("filter\n"),
		"sys/class/net/eth0/device":                           link("../pci"),
		"sys/class/net/eth0/statistics/tx_dropped":            file("11\n"),
		"sys/class/net/eth0/statistics/tx_packets":            file("no number\n"),
		"sys/class/net/veth0/statistics/tx_dropped":           file("12\n"),
		"sys/fs/cgroup/system.slice/nginx.service/cpu.max":    file("50000 100000\n"),
		"sys/fs/cgroup/system.slice/nginx.service/cpu.stat":   file("usage_usec 1\nnr_periods 90\nnr_throttled 77\n"),
		"sys/fs/cgroup/system.slice/ssh.service/cpu.max":      file("max 100000\n"),
		"sys/fs/cgroup/system.slice/ssh.service/cpu.stat":     file("nr_throttled 78\n"),
		"sys/fs/cgroup/user.slice/a.slice/too/deep/cpu.max":   file("1 100000\n"),
		"sys/fs/cgroup/user.slice/a.slice/too/deep/cpu.stat":  file("nr_throttled 79\n"),
		"sys/fs/cgroup/machine.slice/odd.service/cpu.max":     file("1 100000\n"),
		"sys/fs/cgroup/machine.slice/odd.service/cpu.stat":    file("nr_throttled -1\n"),
		"sys/fs/cgroup/dev-hugepages.mount/a.service/cpu.max": file("1 100000\n"),
	}
}

// Each counter is read where the kernel has it, those of both IP versions are one, and what is no number is left out.
func TestCounts(t *testing.T) {
	d := settings(counting())
	want := Counts{"Ip.OutRequests": 1100, "Ip.FragCreates": 45, "Udp.InDatagrams": 500, "Udp.RcvbufErrors": 3,
		"Tcp.PassiveOpens": 9, "TcpExt.ListenDrops": 2, "softnet.processed": 256, "softnet.dropped": 3, "cpu.had": 28,
		"cpu.steal": 8, "cpu0.had": 7, "cpu0.softirq": 1,
		"conntrack.drop": 11, "eth0.tx_dropped": 11, "throttled.system.slice/nginx.service": 77,
		"periods.system.slice/nginx.service":  90,
		"throttled.machine.slice/odd.service": 0}
	if !maps.Equal(d.Counts, want) {
		t.Errorf("got %v\nwant %v", d.Counts, want)
	}
	if d.Conntrack != (Conntrack{12, 65536}) {
		t.Errorf("conntrack %+v", d.Conntrack)
	}
	if got := d.Netfilter.Legacy; !slices.Equal(got, []string{"ip filter", "ip nat", "ip6 filter"}) {
		t.Errorf("tables of iptables-legacy: %q", got)
	}
}

// What has risen since is told, and not what was counted anew.
func TestRose(t *testing.T) {
	before, now := &Deep{Counts: Counts{"a": 1, "b": 5, "c": 7}}, &Deep{Counts: Counts{"a": 4, "b": 5, "c": 2, "d": 9}}
	f := Facts{Deep: now}
	f.Listen(Facts{Deep: before}, 10_044_444_444)
	if !maps.Equal(now.Rose, Counts{"a": 3}) || now.Listened != 10e9 {
		t.Errorf("%v in %s", now.Rose, now.Listened)
	}
	if f.Listen(Facts{Deep: before}, 1); now.Listened == 0 {
		t.Error("nothing was listened to")
	}
}

// A filter that was not there, or had dropped nothing, has dropped all of it since; unless filters could not be read.
func TestDroppersListen(t *testing.T) {
	dropper := func(handle uint32, drops uint64) Dropper {
		return Dropper{Dev: "eth0", Dropper: qdisc.Dropper{Handle: handle, Drops: drops}}
	}
	for _, c := range []struct {
		what   string
		before Deep
		want   uint64
	}{
		{"not there", Deep{}, 9},
		{"another", Deep{Droppers: []Dropper{dropper(2, 4)}}, 9},
		{"there", Deep{Droppers: []Dropper{dropper(2, 1), dropper(1, 4)}}, 5},
		{"anew", Deep{Droppers: []Dropper{dropper(1, 40)}}, 0},
		{"not read", Deep{Unknown: []Unread{{What: DroppingFilters}}}, 0},
	} {
		now := Facts{Deep: &Deep{Droppers: []Dropper{dropper(1, 9)}}}
		if now.Listen(Facts{Deep: &c.before}, 1e9); now.Deep.Droppers[0].Now != c.want {
			t.Errorf("%s: %d, want %d", c.what, now.Deep.Droppers[0].Now, c.want)
		}
	}
}

// Whatever those files hold, reading them ends.
func FuzzCounts(f *testing.F) {
	f.Add("Ip: A B\nIp: 1 2\n", "00000001 drop\n1 2\n", "cpu 1 2 3 4 5 6 7 8\n", "1 2\n")
	f.Fuzz(func(_ *testing.T, snmp, table, stat, group string) {
		root := counting()
		root["proc/net/snmp"], root["proc/net/stat/nf_conntrack"] = file(snmp), file(table)
		root["proc/stat"], root["proc/net/softnet_stat"] = file(stat), file(table)
		root["sys/fs/cgroup/cpu.max"], root["sys/fs/cgroup/cpu.stat"] = file(group), file(group)
		settings(root)
	})
}
