// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"encoding/binary"
	"encoding/json"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"weir/internal/bbr"
	"weir/internal/host"
	"weir/internal/plan"
	"weir/internal/qdisc"
	"weir/internal/shaper"
	"weir/internal/units"
)

// looked adds what a diagnosis has read: on a server on which nothing is wrong.
func looked(f *host.Facts) {
	f.Sysctls["net.ipv4.ip_forward"], f.Sysctls["net.ipv4.tcp_sack"] = host.Sysctl{Value: "0"}, host.Sysctl{Value: "1"}
	counts := host.Counts{"Ip.OutRequests": 1, "Ip.ReasmReqds": 1, "Udp.InDatagrams": 1, "Udp.OutDatagrams": 1,
		"softnet.processed": 1, "cpu.had": 1, "eth0.tx_packets": 1, "eth0.rx_packets": 1}
	f.Deep = &host.Deep{Loader: host.SystemdSysctl, NAT: host.No, Counts: counts, Netfilter: host.Netfilter{Read: true}}
	f.Deep.Sockets = host.Sockets{
		Read: true, Total: 9, Accepted: 8, Congestion: map[string]int{"cubic": 9}, RTT: millisecond(80),
	}
}

func millisecond(n int) units.Duration { return units.Duration(n) * units.Duration(time.Millisecond) }

// rose is what two counters have risen by in ten seconds of listening.
func rose(part string, n uint64, whole string, of uint64) func(*host.Facts) {
	return func(f *host.Facts) {
		f.Deep.Listened, f.Deep.Rose = millisecond(10_000), host.Counts{part: n, whole: of}
	}
}

// tracks has so many of 65536 connections in netfilter's table.
func tracks(n uint64) func(*host.Facts) {
	return func(f *host.Facts) { f.Deep.Conntrack = host.Conntrack{Count: n, Max: 1 << 16} }
}

// noQueue is a load that waits in no queue.
func noQueue(f *host.Facts) { f.Deep.Sockets.Queueing = 0 }

func usesBBR(f *host.Facts) {
	f.Sysctls[congestionControl] = host.Sysctl{Value: "bbr"}
	f.Congestion.Available = []string{"bbr", "cubic", "reno"}
	f.Deep.Sockets.Congestion = map[string]int{"bbr": f.Deep.Sockets.Total}
}

// takesBPFBBR is a kernel that takes weir's own congestion control.
func takesBPFBBR(f *host.Facts) {
	f.Congestion.Brings, f.Objects = "89abcdef", map[string]host.Support{bbr.Name: host.Yes}
}

// load is 14 of 17 busy connections that wait.
func load(f *host.Facts) {
	s := &f.Deep.Sockets
	s.Total, s.Accepted, s.Busy, s.Queueing, s.QueueRTT, s.QueueMin, s.Rate = 17, 16, 17, 14, millisecond(212),
		millisecond(48), 47_600_000
	s.Congestion = map[string]int{f.Sysctls[congestionControl].Value: 17}
}

func set(name, value, file string, line int, edits ...func(*host.Setting)) func(*host.Facts) {
	return func(f *host.Facts) {
		s := host.Setting{Sysctl: "net." + name, Value: value, File: file, Line: line, Wins: true, Manual: true}
		for _, edit := range edits {
			edit(&s)
		}
		f.Deep.Settings = append(f.Deep.Settings, s)
	}
}

func loses(s *host.Setting)      { s.Wins = false }
func passedOver(s *host.Setting) { s.Manual = false }
func unread(s *host.Setting)     { s.Wins, s.Unread = false, true }

func writer(w host.Writer) func(*host.Facts) {
	return func(f *host.Facts) { f.Deep.Writers = append(f.Deep.Writers, w) }
}

func idle(w host.Writer) func(*host.Facts) {
	return func(f *host.Facts) { f.Deep.Idle = append(f.Deep.Idle, w) }
}

// counts sets the handle that somebody's own discipline has, and its counters.
func counts(s qdisc.Stats) func(*host.Facts) {
	return func(f *host.Facts) {
		f.Links[1].Tree.Qdiscs[0].Stats = s
		f.Links[1].Tree.Qdiscs[0].Handle = 0x80010000
	}
}

// holds has so many bytes wait at the uplink.
func holds(n uint64) func(*host.Facts) {
	return func(f *host.Facts) { f.Links[1].Tree.Qdiscs[0].Stats = qdisc.Stats{Backlog: n, Qlen: n / 1514} }
}

// roundTrip is the minimum RTT of what is busy, in milliseconds.
func roundTrip(n int) func(*host.Facts) {
	return func(f *host.Facts) { f.Deep.Sockets.MinRTT = millisecond(n) }
}

func renamed(f *host.Facts) { f.Links[1].Name, f.Uplink = "ens3", "ens3" }

// bridged is a default route by a bridge over the card.
func bridged(f *host.Facts) {
	f.Links[1].Master = "br0"
	f.Links = append(f.Links, host.Link{Index: 4, Name: "br0", Kind: "bridge", Up: true, MTU: 1500, TxQueues: 1})
	f.Uplink = "br0"
}

func made(f *host.Facts) { f.Links[1].Tree.Qdiscs[0].Handle = 0 } // by the kernel itself

func sockets(edit func(*host.Sockets)) func(*host.Facts) {
	return func(f *host.Facts) { edit(&f.Deep.Sockets) }
}

// brings has so many connections that bring data in, seen for ten seconds.
func brings(n int, w host.Windows) func(*host.Facts) {
	return func(f *host.Facts) {
		f.Deep.Listened, f.Deep.Sockets.Receiving, f.Deep.Sockets.Window = millisecond(10_000), n, w
	}
}

// routed has a default route by the uplink that sets this for connections, and locks some of it.
func routed(metrics map[string]int, locks ...string) func(*host.Facts) {
	return func(f *host.Facts) {
		r := host.RouteMetrics{To: "default", Dev: "eth0", Metrics: metrics, Locked: locks}
		f.Deep.Routes = append(f.Deep.Routes, r)
	}
}

func overIPv6(f *host.Facts) { f.Deep.Routes[len(f.Deep.Routes)-1].IPv6 = true }

func inTable(n int) func(*host.Facts) {
	return func(f *host.Facts) { f.Deep.Routes[len(f.Deep.Routes)-1].Table = n }
}

// txQueues have these rates on the uplink, which has no others; 0: one that may not hold what it would.
func txQueues(rates ...units.Rate) func(*host.Facts) {
	return func(f *host.Facts) {
		f.Links[1].TxQueues = len(rates)
		for i, r := range rates {
			q := host.TxQueue{Dev: "eth0", Number: i, Rate: r}
			if r == 0 {
				q.Most, q.Full = 3000, true
			}
			f.Deep.TxQueues = append(f.Deep.TxQueues, q)
		}
	}
}

// opaque is a root of a kind that has no words here; a rate is that of a cbs.
func opaque(kind string, rate units.Rate) func(*host.Facts) {
	return func(f *host.Facts) {
		q := qdisc.Qdisc{Kind: kind, Handle: 0x10000, Parent: qdisc.Root, Stats: qdisc.Stats{Bytes: 1e9}}
		if rate != 0 {
			q.Options = append([]byte{24, 0, 1, 0}, make([]byte, 20)...)
			binary.NativeEndian.PutUint32(q.Options[16:], uint32(rate/1000))
		}
		f.Links[1].Tree = qdisc.Tree{Qdiscs: []qdisc.Qdisc{q}}
	}
}

// another has one more queue that nobody has bounded.
func another(f *host.Facts) { f.Links[1].TxQueues++ }

// policer puts a filter at the uplink's egress that drops what exceeds a rate, or all where that is 0.
func policer(rate units.Rate, drops uint64) func(*host.Facts) {
	return func(f *host.Facts) {
		d := qdisc.Dropper{Parent: ingressFilters + 1, Filter: "u32", Action: "gact", Rate: rate, Drops: drops}
		f.Deep.Droppers = []host.Dropper{{Dev: "eth0", Dropper: d}}
	}
}

// hangs has that filter somewhere else.
func hangs(parent qdisc.Handle) func(*host.Facts) {
	return func(f *host.Facts) { f.Deep.Droppers[0].Parent = parent }
}

// Rules of netfilter: one that limits what leaves, and others that limit what no transfer meets.
var (
	leaving  = []string{"output"}
	outgoing = host.Rule{Family: "inet", Table: "filter", Chain: "out", Handle: 7, Hooks: leaving,
		Limit: "limit", Rate: 10e6, Drops: true, Counted: true}
	uncounted = host.Rule{Family: "inet", Table: "filter", Chain: "out", Handle: 8, Hooks: leaving, Limit: "quota",
		Drops: true}
	accepting = host.Rule{Family: "ip", Table: "filter", Chain: "OUTPUT", Handle: 9, Hooks: leaving, Limit: "hashlimit"}
	passwords = host.Rule{Family: "ip", Table: "filter", Chain: "INPUT", Handle: 4, Hooks: []string{"input"},
		Limit: "limit", Drops: true, Counted: true}
	pings = host.Rule{Family: "inet", Table: "filter", Chain: "out", Handle: 5, Hooks: leaving, Limit: "limit",
		Drops: true, Narrow: true, Counted: true}
	passing = host.Rule{Family: "ip", Table: "filter", Chain: "FORWARD", Handle: 6, Hooks: []string{"forward"},
		Limit: "hashlimit", Drops: true, Counted: true}
	behind = host.Rule{Family: "ip", Table: "filter", Chain: "OUTPUT", Handle: 10, Hooks: leaving, Drops: true,
		Counted: true}
	byChance = host.Rule{Family: "ip", Table: "t t", Chain: "user", Handle: 3, Hooks: []string{"forward", "output"},
		Limit: "statistic", Drops: true, Counted: true}
	datagrams = host.Rule{Family: "inet", Table: "filter", Chain: "out", Handle: 11, Hooks: leaving,
		Limit: "limit", Drops: true, OnlyUDP: true, Counted: true}
	unreached = host.Rule{Family: "ip", Table: "filter", Chain: "LOGDROP", Handle: 2, Drops: true, Counted: true}
)

// limits gives netfilter a rule, which dropped so many packets in ten seconds of listening.
func limits(r host.Rule, drops ...uint64) func(*host.Facts) {
	return func(f *host.Facts) {
		for _, n := range drops {
			f.Deep.Listened, r.Dropped, r.Now = millisecond(10_000), n+1, n
		}
		f.Deep.Netfilter.Rules += 12
		f.Deep.Netfilter.Suspects = append(f.Deep.Netfilter.Suspects, r)
	}
}

// served has two queues whose interrupts go to CPU 1, and so many of a thousand ticks in softirqs on that, and on the
// others.
func served(first uint64, others ...uint64) func(*host.Facts) {
	return func(f *host.Facts) {
		f.Deep.Listened, f.Deep.Rose = millisecond(10_000), host.Counts{"irq.24": 50_000, "irq.25": 40_000}
		ticks := append([]uint64{first}, others...)
		if len(ticks) > 1 {
			ticks[0], ticks[1] = ticks[1], ticks[0]
		}
		for cpu, n := range ticks {
			softirq, had := host.CPUCounts(cpu)
			f.Deep.Counts[had], f.Deep.Rose[had], f.Deep.Rose[softirq] = 1, 1000, n
		}
		f.Deep.Interrupts = []host.Interrupt{{Dev: "eth0", Number: 24, CPU: 1}, {Dev: "eth0", Number: 25, CPU: 1}}
	}
}

// refuses is that this host itself drops some of what all busy connections send.
func refuses(f *host.Facts) {
	f.Deep.Listened, f.Deep.Sockets.Refused = millisecond(10_000), f.Deep.Sockets.Busy
}

// classes are two of htb's below one, of which the second has sent most.
func classes(f *host.Facts) {
	const root = 0x10000
	f.Links[1].Tree = qdisc.Tree{Qdiscs: []qdisc.Qdisc{{Kind: "htb", Handle: root, Parent: qdisc.Root}},
		Classes: []qdisc.Class{
			{Kind: "htb", Handle: root + 3, Parent: qdisc.Root, Rate: 90e6, Stats: qdisc.Stats{Bytes: 1e9}},
			{Kind: "htb", Handle: root + 1, Parent: root + 3, Rate: 10e6, Stats: qdisc.Stats{Bytes: 1e8}},
			{Kind: "htb", Handle: root + 2, Parent: root + 3, Rate: 20e6, Ceil: 50e6,
				Stats: qdisc.Stats{Bytes: 9e8}}}}
}

// unknownSpec is a queue whose options could not be read.
func unknownSpec(f *host.Facts) {
	for i := range f.Links[1].Tree.Qdiscs {
		f.Links[1].Tree.Qdiscs[i].Spec = nil
	}
}

// listened is that a look took 10 s, in which that policer dropped so many packets.
func listened(drops uint64) func(*host.Facts) {
	return func(f *host.Facts) {
		before, deep := *f, *f.Deep
		before.Deep, deep.Droppers = &deep, slices.Clone(deep.Droppers)
		deep.Droppers[0].Drops -= drops
		f.Listen(before, 10*time.Second)
	}
}

// marked is that so many connections send as what can wait, and so many of them at ssh's port.
func marked(all, ssh int) func(*host.Facts) {
	return func(f *host.Facts) { f.Deep.Sockets.Background, f.Deep.Sockets.BackgroundSSH = all, ssh }
}

// diagnosed is a host, and what is found on it.
type diagnosed struct {
	name  string
	facts host.Facts
	want  []string // "mark title", of all that is not fine; "✓ …" asks for a fine one too
}

func servers(t *testing.T) []diagnosed {
	facts := func(edits ...func(*host.Facts)) host.Facts {
		return with(t, append([]func(*host.Facts){looked}, edits...)...)
	}
	debian12 := func(f *host.Facts) { f.Deep.Writers = nil }
	return []diagnosed{
		{"stock", facts(), []string{"✓ Nothing to do.", "✓ cubic: 9 connections."}},
		{"not looked deeper", with(t), []string{"✓ Nothing wrong is to be seen."}},
		{"nothing known", host.Facts{}, []string{"! There is no default route."}},
		{"a default route of policy routing alone", facts(func(f *host.Facts) {
			f.Uplink, f.Defaults = "", []host.DefaultRoute{{Dev: "eth0", Table: 100}}
		}), []string{"! No default route is in the main table."}},
		{"no default route, and a busy CPU", facts(func(f *host.Facts) { f.Uplink, f.Deep.CPU = "", 0.9 }),
			[]string{"! There is no default route.", "✓ Programs wait for the CPU."}},
		{"stock, mq", facts(uplink(t, "mq | fq_codel", 4)), []string{"✓ Nothing to do."}},
		{"stock, a kernel whose default is bbr", facts(usesBBR), []string{"✓ Nothing to do."}},
		{"bbr set by hand", facts(usesBBR, func(f *host.Facts) { f.Deep.Loaded = []string{"tcp_bbr"} }),
			[]string{"! tcp_congestion_control is bbr, and no file says so."}},
		{"bbr by a file", facts(usesBBR, func(f *host.Facts) { f.Deep.Loaded = []string{"tcp_bbr"} },
			set("ipv4.tcp_congestion_control", "bbr", "/etc/sysctl.d/a.conf", 1)), []string{"✓ Nothing to do."}},

		{"ssh's transfers, marked", facts(marked(3, 3)), []string{"✓ Nothing to do.",
			"✓ Some connections are marked as what can wait."}},
		{"ssh's transfers, marked, and CAKE's classes", facts(marked(3, 3),
			uplink(t, "cake bandwidth 50mbit diffserv4 dual-dsthost", 1)),
			[]string{"! CAKE lets ssh's transfers wait for others."}},
		{"others, too, and CAKE's most classes", facts(marked(4, 3),
			uplink(t, "cake bandwidth 50mbit diffserv8 dual-dsthost", 1)),
			[]string{"! CAKE lets some connections wait for others."}},
		{"marked transfers, and CAKE with one class", facts(marked(1, 0),
			uplink(t, "cake bandwidth 50mbit besteffort dual-dsthost", 1)),
			[]string{"✓ Some connections are marked as what can wait."}},
		{"marked transfers, and CAKE without a rate", facts(marked(1, 0), uplink(t, "cake dual-dsthost", 1)),
			[]string{"! cake on eth0 has no rate.", "✓ Some connections are marked as what can wait."}},

		{"a policer that drops now", facts(load, policer(500e6, 254), sockets(func(s *host.Sockets) {
			s.Queueing, s.Rate = 0, 400e6
		})), []string{"✗ A filter on eth0 drops what exceeds 500mbit."}},
		{"a policer that drops while one listens", facts(load, policer(500e6, 254), listened(7),
			sockets(func(s *host.Sockets) { s.Queueing, s.Rate = 0, 400e6 })),
			[]string{"✗ A filter on eth0 drops what exceeds 500mbit."}},
		{"a firewall that drops something", facts(load, policer(0, 3), listened(1), sockets(func(s *host.Sockets) {
			s.Queueing, s.Rate = 0, 400e6
		})), []string{"! A filter on eth0 drops packets."}},
		{"a policer of something else", facts(load, policer(1e6, 3), listened(1), sockets(func(s *host.Sockets) {
			s.Queueing, s.Rate = 0, 400e6
		})), []string{"! A filter on eth0 drops what exceeds 1mbit."}},
		{"a policer that does not", facts(load, policer(500e6, 254), listened(0), sockets(func(s *host.Sockets) {
			s.Queueing, s.Rate = 0, 400e6
		})), []string{"! A filter on eth0 drops what exceeds 500mbit."}},
		{"a policer that has dropped once", facts(policer(500e6, 254)),
			[]string{"! A filter on eth0 drops what exceeds 500mbit."}},
		{"a policer that has not", facts(policer(500e6, 0)), []string{"✓ Nothing to do."}},
		{"a filter that drops", facts(policer(0, 3)), []string{"! A filter on eth0 drops packets."}},
		{"a pace that a program sets",
			facts(load, noQueue, sockets(func(s *host.Sockets) { s.Paced, s.Pace = 17, 5e6 })),
			[]string{"! Programs bound how fast their connections may be."}},
		{"a card whose queues are bounded", facts(load, noQueue, txQueues(10e6, 10e6)),
			[]string{"! 2 queues of eth0 may send 10mbit at most."}},
		{"a card's queue that may hold little", facts(txQueues(0, 0)),
			[]string{"! 2 queues of eth0 may hold 3 kB at most, and would hold more."}},
		{"another card's queue that is bounded", facts(txQueues(10e6),
			func(f *host.Facts) { f.Deep.TxQueues[0].Dev = "eth1" }), []string{"✓ Nothing to do."}},
		{"a taprio", facts(opaque("taprio", 0)), []string{"✓ Nothing to do."}},
		{"a cbs", facts(opaque("cbs", 20e6)), []string{"✓ The queue is yours."}},
		{"a route's window", facts(routed(map[string]int{"window": 65535}),
			brings(4, host.Windows{Scale: 4, Largest: 65535})),
			[]string{"! Receive buffers hold back what comes in.",
				"! The route default by eth0 bounds its connections."}},
		{"a route's window, and no traffic", facts(routed(map[string]int{"window": 65535}), inTable(7),
			sockets(func(s *host.Sockets) { s.RTT = 0 })),
			[]string{"! The route default of table 7 by eth0 bounds its connections."}},
		{"a route that locks cwnd", facts(load, noQueue, routed(map[string]int{"cwnd": 10}, "cwnd"),
			sockets(func(s *host.Sockets) { s.Clamped = 17 })),
			[]string{"! The route default by eth0 bounds its connections."}},
		{"routes that start slowly and send small packets", facts(routed(map[string]int{"initcwnd": 2, "advmss": 536}),
			routed(map[string]int{"mtu": 1400, "quickack": 1}, "mtu"), overIPv6),
			[]string{"! The route default by eth0 bounds its connections.",
				"! The route default of IPv6 by eth0 bounds its connections."}},
		{"routes that bound nothing", facts(routed(map[string]int{"cwnd": 10, "initcwnd": 40, "advmss": 1200}),
			func(f *host.Facts) { f.Deep.Routes[0].Congestion = "bbr" },
			routed(map[string]int{"mtu": 1400, "rto_min": 5}, "rto_min")),
			[]string{"✓ Routes have settings for their connections."}},
		{"a route by another device that bounds", facts(routed(map[string]int{"window": 9}), func(f *host.Facts) {
			f.Deep.Routes[0].Dev = "eth1"
		}), []string{"✓ Nothing to do."}},
		{"a pace below the kernel's, fq", facts(uplink(t, "fq", 1), sysctl("ipv4.tcp_pacing_ca_ratio", "90"),
			sysctl("ipv4.tcp_pacing_ss_ratio", "200")), []string{"! tcp_pacing_ca_ratio is 90 (kernel: 120)."}},
		{"a pace below the kernel's", facts(sysctl("ipv4.tcp_pacing_ss_ratio", "199")),
			[]string{"✓ tcp_pacing_ss_ratio is 199 (kernel: 200)."}},
		{"a pace below the kernel's, bbr", facts(usesBBR, uplink(t, "fq", 1),
			sysctl("ipv4.tcp_pacing_ss_ratio", "199")),
			[]string{"✓ Nothing to do."}},
		{"a small receive buffer", facts(brings(4, host.Windows{Maximum: 3, Scale: 1, Largest: 49152})),
			[]string{"! Receive buffers hold back what comes in."}},
		{"a receive buffer that a program sets", facts(brings(4, host.Windows{Fixed: 3, Largest: 200_000})),
			[]string{"! Receive buffers hold back what comes in."}},
		{"a window by its scale", facts(brings(1, host.Windows{Scale: 1, Largest: 65535})),
			[]string{"! Receive buffers hold back what comes in."}},
		{"a program that does not read", facts(brings(4, host.Windows{Unread: 4})), []string{"✓ Nothing to do."}},
		{"two queues on one CPU", facts(load, noQueue, served(900, 100, 100)),
			[]string{"! CPU 1 serves 2 busy queues of eth0 alone."}},
		{"two queues on one CPU, and all are busy", facts(load, noQueue, served(900, 500, 500)),
			[]string{"✓ Nothing to do."}},
		{"two queues on one CPU, which has time", facts(load, noQueue, served(790, 10, 10)),
			[]string{"✓ Nothing to do."}},
		{"two queues on one CPU, and no traffic", facts(served(900, 100, 100)), []string{"✓ Nothing to do."}},
		{"two queues on one CPU, one of them idle", facts(load, noQueue, served(900, 100, 100),
			func(f *host.Facts) { f.Deep.Rose["irq.25"] = 999 }), []string{"✓ Nothing to do."}},
		{"two queues on two CPUs", facts(load, noQueue, served(900, 100, 100),
			func(f *host.Facts) { f.Deep.Interrupts[0].CPU = 0 }), []string{"✓ Nothing to do."}},
		{"two queues on one CPU, and CPU 0 offline", facts(load, noQueue, served(900, 0, 100),
			func(f *host.Facts) { delete(f.Deep.Counts, "cpu0.had") }),
			[]string{"! CPU 1 serves 2 busy queues of eth0 alone."}},
		{"a machine with one CPU", facts(load, noQueue, served(900),
			func(f *host.Facts) { f.Deep.Interrupts[0].CPU, f.Deep.Interrupts[1].CPU = 0, 0 }),
			[]string{"✓ Nothing to do."}},
		{"a firewall rule that limits downloads", facts(load, noQueue, refuses, limits(outgoing, 900)),
			[]string{"✗ A firewall rule drops what exceeds 10mbit."}},
		{"a firewall rule that drops by chance", facts(load, noQueue, refuses, limits(byChance, 900)),
			[]string{"✗ A firewall rule drops packets by chance."}},
		{"a firewall rule behind one that limits",
			facts(load, noQueue, refuses, limits(accepting), limits(behind, 900)),
			[]string{"✗ A firewall rule drops packets."}},
		{"a firewall rule without a counter", facts(load, noQueue, refuses, limits(uncounted), limits(accepting)),
			[]string{"! This host drops what TCP sends, and nothing counts it."}},
		{"a relay's firewall rule", facts(sysctl("ipv4.ip_forward", "1"), limits(passing, 900)),
			[]string{"! A firewall rule drops what exceeds its limit."}},
		{"a relay's firewall rule, hardly ever", facts(sysctl("ipv4.ip_forward", "1"),
			rose("Ip.ForwDatagrams", 300_000, "Ip.OutRequests", 1), limits(passing, 29)),
			[]string{"✓ Nothing to do."}},
		{"a firewall rule for UDP", facts(load, noQueue,
			rose("Udp.OutDatagrams", 5000, "Ip.OutRequests", 1), limits(datagrams, 900)),
			[]string{"! A firewall rule drops what exceeds its limit."}},
		{"a firewall rule for UDP, hardly ever",
			facts(load, noQueue, rose("Udp.OutDatagrams", 300_000, "Ip.OutRequests", 1), limits(datagrams, 29)),
			[]string{"✓ Nothing to do."}},
		{"a firewall rule of a chain that nothing is known to reach",
			facts(load, noQueue, refuses, limits(unreached, 900), limits(datagrams)),
			[]string{"! This host drops what TCP sends, and nothing counts it."}},
		{"a firewall against guesses, busy", facts(load, noQueue, limits(passwords, 900), limits(pings, 900),
			limits(accepting)), []string{"✓ Nothing to do."}},
		{"a firewall against guesses", facts(limits(passwords, 900), limits(pings, 900)),
			[]string{"✓ Nothing to do."}},
		{"netem", facts(uplink(t, "netem loss 1%", 1)), []string{"✗ netem is on eth0."}},
		{"fq's maxrate", facts(uplink(t, "fq maxrate 5mbit", 1)),
			[]string{"! fq on eth0 lets each connection have 5mbit."}},
		{"cake_mq, on a kernel that has it wrong", facts(uplink(t, "cake_mq bandwidth 100mbit dual-dsthost", 4),
			kernelWith("cake", "cake_mq"), func(f *host.Facts) { f.Kernel = "7.1.3-1-pve" }),
			[]string{"! cake_mq on eth0 may have a known fault."}},
		{"cake_mq, mended in a stable release", facts(uplink(t, "cake_mq bandwidth 100mbit dual-dsthost", 4),
			kernelWith("cake", "cake_mq"), func(f *host.Facts) { f.Kernel = "7.1.8-1-pve" }),
			[]string{"✓ The queue is yours."}},
		{"fq, on a kernel that has it wrong", facts(uplink(t, "mq | fq", 4),
			func(f *host.Facts) { f.Kernel, f.Build = "6.12.57+deb13-amd64", "Debian 6.12.57-1" }),
			[]string{"! fq on eth0 has a known fault."}},
		{"fq, on a kernel that may have it mended", facts(uplink(t, "mq | fq", 4),
			func(f *host.Facts) { f.Kernel, f.Build = "6.8.0-31-generic", "Ubuntu 6.8.0-31.31-generic 6.8.1" }),
			[]string{"✓ Nothing to do.", "✓ Whether this kernel has a known fault in fq cannot be told."}},
		{"htb, on a kernel that crashes", facts(uplink(t, "htb rate 50mbit | fq_codel", 1),
			func(f *host.Facts) { f.Kernel, f.Build = "6.1.0-36-amd64", "Debian 6.1.138-1" }),
			[]string{"! htb on eth0 has a known fault."}},
		{"a faulty queue of another device", facts(func(f *host.Facts) {
			f.Kernel, f.Links[2].Up, f.Links[2].Tree = "6.12.57", true, tree(t, "fq", 1)
		}), []string{"! fq on eth1 may have a known fault."}},
		{"a faulty queue of a device that is down", facts(func(f *host.Facts) {
			f.Kernel, f.Links[2].Tree = "6.12.57", tree(t, "fq", 1)
		}), []string{"✓ Nothing to do."}},
		{"cake_mq, mended", facts(uplink(t, "cake_mq bandwidth 100mbit dual-dsthost", 4),
			kernelWith("cake", "cake_mq"), func(f *host.Facts) { f.Kernel = "7.2.0" }),
			[]string{"✓ The queue is yours."}},
		{"a filter at the ingress that drops", facts(load, noQueue, policer(500e6, 9), hangs(ingressFilters)),
			[]string{"! A filter on eth0 drops what exceeds 500mbit."}},
		{"a filter below a class that drops", facts(load, noQueue, policer(0, 9), hangs(0x10001)),
			[]string{"! A filter on eth0 drops packets."}},
		{"a filter of the root that drops", facts(load, noQueue, policer(0, 9), hangs(0x10000)),
			[]string{"! A filter on eth0 drops packets."}},
		{"netem that could not be read, under load", facts(load, noQueue, uplink(t, "netem loss 1%", 1), unknownSpec),
			[]string{"✗ netem is on eth0."}},
		{"netem at the ingress", facts(func(f *host.Facts) {
			f.Links[1].Tree.Qdiscs = append(f.Links[1].Tree.Qdiscs, qdisc.Qdisc{Kind: "netem", Parent: qdisc.Ingress})
		}), []string{"✓ Nothing to do."}},
		{"netem's rate below a shaper's", facts(uplink(t, "htb rate 90mbit | netem rate 8mbit", 1), load,
			holds(160_000), sockets(func(s *host.Sockets) { s.Rate = 7_600_000 })),
			[]string{"✗ netem is on eth0.", "✓ The queue is here."}},
		{"fq's maxrate that binds", facts(uplink(t, "fq maxrate 5mbit", 1), load, noQueue,
			sockets(func(s *host.Sockets) { s.Rate = 17 * 5e6 })),
			[]string{"! fq on eth0 lets each connection have 5mbit."}},
		{"a SYN proxy, bbr", facts(usesBBR, func(f *host.Facts) { f.Deep.SYN = host.SYN{Accepted: 1000, Proxy: true} }),
			[]string{"! SYN cookies or a SYN proxy, with BBR."}},
		{"no connections", facts(sockets(func(s *host.Sockets) { *s = host.Sockets{Read: true} })),
			[]string{"✓ cubic, and no connections."}},
		{"mq by default", facts(uplink(t, "mq | fq_codel", 4), made, sysctl("core.default_qdisc", "fq_codel")),
			[]string{"✓ Nothing to do."}},
		{"programs that are slow", facts(load, noQueue, sockets(func(s *host.Sockets) { s.App = 17 })),
			[]string{"✓ Nothing to do."}},
		{"no queue, and waiting elsewhere", facts(uplink(t, "noqueue", 1), load),
			[]string{"✗ The queue is not yours."}},
		{"a rate that counts frames, below a narrower link",
			facts(uplink(t, "cake bandwidth 100mbit dual-dsthost overhead 38", 1), load),
			[]string{"! There is a queue besides yours."}},
		{"the same faulty queue twice", facts(uplink(t, "cake_mq bandwidth 100mbit dual-dsthost", 4),
			kernelWith("cake", "cake_mq"), func(f *host.Facts) {
				f.Kernel = "7.1.3-1-pve"
				f.Links[1].Tree.Qdiscs = append(f.Links[1].Tree.Qdiscs, f.Links[1].Tree.Qdiscs[0])
			}), []string{"! cake_mq on eth0 may have a known fault."}},
		{"ECN 1, no connection", facts(sysctl("ipv4.tcp_ecn", "1"), sockets(func(s *host.Sockets) {
			*s = host.Sockets{Read: true}
		})), []string{"✓ Nothing to do."}},
		{"ECN 1, a server that forwards", facts(sysctl("ipv4.tcp_ecn", "1"), sysctl("ipv4.ip_forward", "1"),
			sockets(func(s *host.Sockets) { s.Accepted = 9 })), []string{"✓ Nothing to do."}},
		{"ECN 0 beside a queue that cannot mark", facts(sysctl("ipv4.tcp_ecn", "0"),
			uplink(t, "tbf rate 50mbit burst 32k latency 50ms", 1)), []string{"✓ Nothing to do."}},
		{"ECN 0 beside a queue that marks, bbr", facts(usesBBR, sysctl("ipv4.tcp_ecn", "0"),
			uplink(t, "cake bandwidth 50mbit dual-dsthost", 1)), []string{"✓ Nothing to do."}},
		{"cake's default fairness, one address", facts(uplink(t, "cake bandwidth 50mbit", 1),
			func(f *host.Facts) { f.Links[1].Addrs = []string{"192.0.2.7/24", "2001:db8::7/64"} }),
			[]string{"! CAKE shares between connections, not between clients."}},
		{"cake's default fairness, and no rate", facts(uplink(t, "cake", 1)), []string{"! cake on eth0 has no rate."}},
		{"a masked line that the kernel would refuse", facts(set("core.rmem_max", "16M", "/etc/sysctl.d/a.conf", 2,
			func(s *host.Setting) { s.Masked = "/etc/sysctl.d/b.conf" })), []string{"✓ Nothing to do."}},
		{"a line that nobody reads and the kernel would refuse", facts(set("core.rmem_max", "16M",
			"/etc/sysctl.d/a.conf", 2, loses, passedOver)), []string{"✓ Nothing to do."}},
		{"lowat at the kernel's most", facts(sysctl("ipv4.tcp_notsent_lowat", "2147483647")),
			[]string{"✓ Nothing to do."}},
		{"a setting in a file without effect, that another file has", facts(
			set("ipv4.tcp_fastopen", "1", "/etc/sysctl.d/z.conf", 1), idle(host.Writer{By: host.SysctlDir,
				File: "/etc/sysctl.d/local", Line: 1, Sysctl: "net.ipv4.tcp_fastopen", Value: "1"})),
			[]string{"✓ Nothing to do."}},
		{"a setting in a file without effect, that another file has otherwise", facts(
			set("ipv4.tcp_fastopen", "1", "/etc/sysctl.d/z.conf", 1), idle(host.Writer{By: host.SysctlDir,
				File: "/etc/sysctl.d/local", Line: 1, Sysctl: "net.ipv4.tcp_fastopen", Value: "3"})),
			[]string{"! /etc/sysctl.d/local has no effect."}},
		{"several classes with a rate", facts(load, noQueue, classes), []string{"✓ The queue is yours."}},
		{"filters that cannot be read", facts(func(f *host.Facts) {
			f.Deep.Unknown = []host.Unread{{What: host.DroppingFilters, Why: "dumping filters needs root"}}
		}), []string{"✓ Nothing to do."}},
		{"an ingress with filters", facts(func(f *host.Facts) {
			f.Links[1].Tree.Qdiscs = append(f.Links[1].Tree.Qdiscs, qdisc.Qdisc{Kind: "clsact", Parent: qdisc.Ingress})
		}), []string{"✓ Nothing to do."}},
		{"counters that this kernel lacks", facts(rose("Udp.RcvbufErrors", 1, "Udp.InDatagrams", 9),
			func(f *host.Facts) {
				delete(f.Deep.Counts, "Udp.OutDatagrams")
				delete(f.Deep.Counts, "eth0.tx_packets")
			}),
			[]string{"✓ Nothing to do."}},
		{"no SACK", facts(sysctl("ipv4.tcp_sack", "0")), []string{"! tcp_sack is off."}},

		{"queue elsewhere", facts(load), []string{"✗ The queue is not yours."}},
		{"queue elsewhere, mq", facts(uplink(t, "mq | fq", 4), load), []string{"✗ The queue is not yours."}},
		{"queue elsewhere, few", facts(load, sockets(func(s *host.Sockets) { s.Queueing = 4 })),
			[]string{"✓ Nothing to do."}},
		{"queue here", facts(load, counts(qdisc.Stats{Backlog: 900_000, Qlen: 600})), []string{"✓ The queue is here."}},
		{"queue here, a FIFO", facts(uplink(t, "pfifo_fast", 1), load,
			counts(qdisc.Stats{Backlog: 900_000, Qlen: 600})), []string{"! The queue is here, and one for all."}},
		{"queue here, shaped", facts(uplink(t, "cake bandwidth 49.875mbit dual-dsthost", 1), load,
			counts(qdisc.Stats{Backlog: 900_000})), []string{"✓ The queue is here."}},
		{"shaper above the limit", facts(uplink(t, "cake bandwidth 100mbit dual-dsthost", 1), load),
			[]string{"! There is a queue besides yours."}},
		{"uploads besides", facts(uplink(t, "cake bandwidth 100mbit dual-dsthost", 1), load,
			sockets(func(s *host.Sockets) { s.Receiving = 2 })), []string{"! The queue may be on the way in."}},
		{"uploads besides, shaped", facts(uplink(t, "cake bandwidth 100mbit dual-dsthost", 1), load,
			func(f *host.Facts) {
				for i := range f.Links {
					f.Links[i].Redirect = "ifb-weir"
				}
			},
			sockets(func(s *host.Sockets) { s.Receiving = 2 })), []string{"! There is a queue besides yours."}},
		{"somebody's ifb", facts(func(f *host.Facts) {
			f.Links[1].Redirect = "ifb4eth0"
			f.Links = append(f.Links, host.Link{Name: "ifb4eth0", Kind: "ifb", Up: true,
				Tree: tree(t, "cake bandwidth 20mbit", 1)})
		}), []string{"✓ Incoming traffic is shaped already."}},
		{"shaped, idle", facts(uplink(t, "htb rate 49mbit | fq_codel", 1)), []string{"✓ The queue is yours."}},
		{"dualpi2, idle", facts(uplink(t, "dualpi2", 1), kernelWith("dualpi2", "fq_codel", "htb"),
			counts(qdisc.Stats{Packets: 10_000})), []string{"✗ dualpi2 on eth0 has no effect."}},
		{"dualpi2, new", facts(uplink(t, "dualpi2", 1), kernelWith("dualpi2", "fq_codel", "htb"),
			counts(qdisc.Stats{Packets: 9_999})), []string{"! dualpi2 on eth0 has no rate."}},
		{"dualpi2 that acts", facts(uplink(t, "dualpi2", 1), kernelWith("dualpi2", "fq_codel", "htb"),
			counts(qdisc.Stats{Packets: 10_000, Marks: 1})), []string{"✓ Nothing to do."}},
		{"dualpi2 in BPF, idle", facts(uplink(t, "bpf_dualpi2", 1), counts(qdisc.Stats{Packets: 10_000})),
			[]string{"✗ bpf_dualpi2 on eth0 has no effect."}},
		{"dualpi2 in BPF, shaped", facts(uplink(t, "bpf_dualpi2 rate 49mbit", 1)), []string{"✓ The queue is yours."}},
		{"cake without a rate", facts(uplink(t, "cake", 1), counts(qdisc.Stats{Packets: 10_000})),
			[]string{"✗ cake on eth0 has no effect."}},
		{"fq without a rate", facts(uplink(t, "fq", 1), counts(qdisc.Stats{Packets: 10_000})),
			[]string{"✓ Nothing to do."}},

		{"dualpi2 asked of Debian", facts(set("core.default_qdisc", "dualpi2", "/etc/sysctl.d/a.conf", 2)),
			[]string{"✗ This kernel has no dualpi2."}},
		{"module asked of Debian", facts(writer(host.Writer{By: "modules-load", File: "/etc/modules-load.d/d.conf",
			Line: 1, Qdisc: "dualpi2"})), []string{"✗ This kernel has no dualpi2."}},
		{"congestion control asked for", facts(set("ipv4.tcp_congestion_control", "prague", "/etc/sysctl.d/a.conf", 2)),
			[]string{"✗ This kernel has no prague."}},
		{"a value that the kernel refuses", facts(set("core.rmem_max", "16M", "/etc/sysctl.d/a.conf", 2)),
			[]string{"✗ The kernel refuses a value for rmem_max."}},
		{"a value that the kernel refuses, in a file that no boot reads", facts(set("core.rmem_max", "16M",
			"/etc/sysctl.conf", 1, unread)), []string{"✗ The kernel refuses a value for rmem_max."}},
		{"a value that the kernel refuses, on its command line", facts(set("ipv4.tcp_rmem", "4096 131072 16M",
			host.CommandLine, 0, passedOver)), []string{"✗ The kernel refuses a value for tcp_rmem."}},
		{"a value that a script's command has for the kernel to refuse", facts(writer(host.Writer{By: "rc.local",
			File: "/etc/rc.local", Line: 2, Sysctl: "net.core.rmem_max", Value: "16M",
			Text: "sysctl -w net.core.rmem_max=16M"})), []string{"✗ The kernel refuses a value for rmem_max."}},
		{"a value of which it takes a part", facts(
			set("ipv4.tcp_rmem", "4096 131072 8589934592", "/etc/sysctl.conf", 2),
			set("ipv4.tcp_rmem", "4096 131072 16777216", "/etc/sysctl.d/a.conf", 2, loses, passedOver)),
			[]string{"✗ The kernel refuses a value for tcp_rmem."}},
		{"a refused value after one that is taken", facts(
			set("ipv4.tcp_fastopen", "3", "/etc/sysctl.d/a.conf", 2, loses, passedOver),
			set("ipv4.tcp_fastopen", "3,", "/etc/sysctl.d/z.conf", 2)),
			[]string{"✗ The kernel refuses a value for tcp_fastopen."}},
		{"a name in capitals", facts(set("ipv4.tcp_congestion_control", "BBR", "/etc/sysctl.d/a.conf", 2)),
			[]string{"✗ The kernel refuses a value for tcp_congestion_control."}},
		{"a name that is none", facts(set("core.default_qdisc", "fq-codel", "/etc/sysctl.d/a.conf", 2)),
			[]string{"✗ The kernel refuses a value for default_qdisc."}},
		{"a value that a script's command has", facts(writer(host.Writer{By: "ifupdown",
			File: "/etc/network/interfaces", Line: 7, Sysctl: "net.ipv4.tcp_wmem", Value: "4096,65536,16777216"})),
			[]string{"✗ The kernel refuses a value for tcp_wmem."}},
		{"values that NixOS reckons", facts(writer(host.Writer{By: "NixOS",
			File: "/etc/nixos/configuration.nix", Line: 4, Sysctl: "net.ipv4.ip_forward", Value: "true",
			Text: "\"net.ipv4.ip_forward\" = true;"})),
			[]string{"✓ Nothing to do."}},
		{"a value that a script's sed looks for", facts(writer(host.Writer{By: "rc.local", File: "/etc/rc.local",
			Line: 4, Sysctl: "net.ipv4.ip_forward", Value: ".*/net.ipv4.ip_forward=1/",
			Text: "sed -i 's/net.ipv4.ip_forward=.*/net.ipv4.ip_forward=1/' /etc/sysctl.conf"})),
			[]string{"✓ Nothing to do."}},
		{"a value that a script's grep looks for", facts(writer(host.Writer{By: "rc.local", File: "/etc/rc.local",
			Line: 4, Sysctl: "net.ipv4.ip_forward", Value: "yes",
			Text: "grep -q net.ipv4.ip_forward=yes /etc/x || exit"})),
			[]string{"✓ Nothing to do."}},
		{"a value that is no plain word", facts(writer(host.Writer{By: "rc.local", File: "/etc/rc.local",
			Line: 4, Sysctl: "net.ipv4.ip_forward", Value: "<yes|no>",
			Text: "usage 'sysctl net.ipv4.ip_forward=<yes|no>'"})),
			[]string{"✓ Nothing to do."}},
		{"a value that a script echoes into the kernel", facts(writer(host.Writer{By: "rc.local", File: "/etc/rc.local",
			Line: 4, Sysctl: "net.ipv4.ip_forward", Value: "yes", Text: "echo yes > /proc/sys/net/ipv4/ip_forward"})),
			[]string{"✗ The kernel refuses a value for ip_forward."}},
		{"a value that a script fills in", facts(writer(host.Writer{By: "ifupdown", File: "/etc/network/interfaces",
			Line: 7, Sysctl: "net.ipv4.tcp_wmem", Value: "$WMEM"})), []string{"✓ Nothing to do."}},
		{"values in other spellings", facts(set("core.rmem_max", "0x34000", "/etc/sysctl.d/a.conf", 2),
			set("ipv4.tcp_rmem", "010000 131072", "/etc/sysctl.d/a.conf", 3),
			set("ipv4.tcp_ecn", "2 # as it is", "/etc/sysctl.d/a.conf", 4)), []string{"✓ Nothing to do."}},
		{"the same twice, spelt differently", facts(set("core.rmem_max", "0x34000", "/etc/sysctl.d/a.conf", 2, loses),
			set("core.rmem_max", "212992", "/etc/sysctl.d/z.conf", 2)), []string{"✓ Nothing to do."}},
		{"masked files ask nothing", facts(set("core.default_qdisc", "dualpi2", "/usr/lib/sysctl.d/a.conf", 2, loses,
			func(s *host.Setting) { s.Masked = "/etc/sysctl.d/a.conf" })), []string{"✓ Nothing to do."}},
		{"no cake, no htb", facts(kernelWith("fq_codel", "mq")), []string{"! Linux 6.12.107."}},
		{"no cake, no htb, and the provider's queue", facts(load, kernelWith("fq_codel", "mq")),
			[]string{"✗ The queue is not yours.", "! Linux 6.12.107."}},
		{"the provider's queue, and a kernel that takes bpf_bbr", facts(load, takesBPFBBR),
			[]string{"✗ The queue is not yours."}},
		{"no cake, no htb, the provider's queue, and bpf_bbr", facts(load, takesBPFBBR, kernelWith("fq_codel", "mq")),
			[]string{"✗ The queue is not yours.", "! Linux 6.12.107."}},
		{"no cake, no fq_codel, and htb shapes", facts(kernelWith("htb", "pfifo", "mq"),
			uplink(t, "htb rate 50mbit | pfifo limit 100", 1)), []string{"✓ Linux 6.12.107."}},

		{"sysctl.conf on Debian 13", facts(sysctl("ipv4.tcp_fastopen", "3"),
			set("ipv4.tcp_fastopen", "3", "/etc/sysctl.conf", 7, unread)),
			[]string{"✗ /etc/sysctl.conf is not read at boot."}},
		{"sysctl.conf on Debian 13, and a drop-in", facts(sysctl("ipv4.tcp_fastopen", "3"),
			set("ipv4.tcp_fastopen", "3", "/etc/sysctl.d/a.conf", 1),
			set("ipv4.tcp_fastopen", "3", "/etc/sysctl.conf", 7, unread)), []string{"✓ Nothing to do."}},
		{"sysctl.conf on Debian 12", facts(debian12, sysctl("ipv4.tcp_fastopen", "3"),
			set("ipv4.tcp_fastopen", "3", "/etc/sysctl.conf", 7)), []string{"✓ Nothing to do."}},

		{"lowat 8192, bbr", facts(usesBBR, set("ipv4.tcp_notsent_lowat", "8192", "/etc/sysctl.d/a.conf", 1),
			sysctl("ipv4.tcp_notsent_lowat", "8192")), []string{"✗ tcp_notsent_lowat 8192 makes BBR queue."}},
		{"lowat 8192, cubic", facts(set("ipv4.tcp_notsent_lowat", "8192", "/etc/sysctl.d/a.conf", 1),
			sysctl("ipv4.tcp_notsent_lowat", "8192")), []string{"! tcp_notsent_lowat 8192 costs wake-ups."}},
		{"lowat 16384, bbr", facts(usesBBR, set("ipv4.tcp_notsent_lowat", "16384", "/etc/sysctl.d/a.conf", 1),
			sysctl("ipv4.tcp_notsent_lowat", "16384")), []string{"! tcp_notsent_lowat 16384 costs wake-ups."}},
		{"lowat as Weir sets it", facts(sysctl("ipv4.tcp_notsent_lowat", "131072"),
			writer(host.Writer{By: "weir", File: "/var/lib/weir/journal.json"})), []string{"✓ Nothing to do."}},
		{"rmem lowered", facts(sysctl("ipv4.tcp_rmem", "4096 16384 4194304")),
			[]string{"! tcp_rmem default is 16384 (kernel: 131072)."}},
		{"wmem lowered", facts(sysctl("ipv4.tcp_wmem", "4096 4096 4194304")),
			[]string{"! tcp_wmem default is 4096 (kernel: 16384)."}},
		{"maxima below the BDP", facts(uplink(t, "cake bandwidth 400mbit dual-dsthost", 1),
			sockets(func(s *host.Sockets) { s.RTT = millisecond(167) })),
			[]string{"! tcp_rmem maximum is below what the path holds.",
				"! tcp_wmem maximum is below what the path holds."}},
		{"maxima above the BDP", facts(uplink(t, "cake bandwidth 50mbit dual-dsthost", 1),
			sockets(func(s *host.Sockets) { s.RTT = millisecond(167) })), []string{"✓ Nothing to do."}},
		{"maxima of twice the BDP, and a little less", facts(uplink(t, "cake bandwidth 400mbit dual-dsthost", 1),
			sockets(func(s *host.Sockets) { s.RTT = millisecond(125) }),
			sysctl("ipv4.tcp_rmem", "4096 131072 12500000"),
			sysctl("ipv4.tcp_wmem", "4096 16384 12499998")),
			[]string{"! tcp_wmem maximum is below what the path holds."}},
		{"the uplink has no carrier", facts(func(f *host.Facts) { f.Links[1].Up = false }),
			[]string{"✗ eth0 is down."}},
		{"send buffers that a program has set",
			facts(load, sockets(func(s *host.Sockets) { s.Queueing, s.Buffer, s.SendBuffer = 0, 9, 65536 })),
			[]string{"! Send buffers hold connections back."}},
		{"send buffers bind", facts(load, sockets(func(s *host.Sockets) { s.Queueing, s.Buffer = 0, 9 })),
			[]string{"! Send buffers hold connections back."}},
		{"receivers bind", facts(load, sockets(func(s *host.Sockets) { s.Queueing, s.Receiver = 0, 9 })),
			[]string{"! Receivers hold connections back."}},

		{"lossy, cubic", facts(load, sockets(func(s *host.Sockets) {
			s.Queueing, s.Lossy, s.LossyShare = 0, 12,
				0.0812
		})), []string{"! The path loses packets without a queue."}},
		{"lossy, bbr", facts(usesBBR, load, sockets(func(s *host.Sockets) {
			s.Queueing, s.Lossy, s.LossyBBR,
				s.LossyShare = 0, 12, 12, 0.08
		})),
			[]string{"✓ The path loses packets, and BBR does not slow down for it."}},
		{"a queue that is too short", facts(load, sockets(func(s *host.Sockets) {
			s.Queueing, s.Lossy, s.LossyShare = 0, 12, 0.03
		}), uplink(t, "pfifo", 1), rose("eth0.queue_drops", 40, "eth0.tx_packets", 9000)),
			[]string{"✗ pfifo on eth0 drops what it has no room for."}},
		{"an fq_codel without room", facts(load, sockets(func(s *host.Sockets) { s.Queueing = 0 }),
			uplink(t, "fq_codel limit 4", 1), rose("eth0.queue_overflows", 30, "Ip.OutRequests", 9000)),
			[]string{"✗ fq_codel on eth0 drops what it has no room for."}},
		{"a cake for a network of short paths, and far clients", facts(load, noQueue,
			uplink(t, "cake bandwidth 90mbit dual-dsthost rtt 1ms", 1),
			rose("eth0.queue_drops", 17, "eth0.tx_packets", 9000), roundTrip(48)),
			[]string{"✗ cake on eth0 drops too soon, by its rtt of 1ms."}},
		{"an fq_codel for a network of short paths, and clients that are farther", facts(load, noQueue,
			uplink(t, "htb rate 90mbit | fq_codel interval 3ms target 150us", 1), roundTrip(210),
			rose("eth0.queue_drops", 17, "eth0.tx_packets", 9000)),
			[]string{"✗ fq_codel on eth0 drops too soon, by its interval of 3ms."}},
		{"a cake with room, and far clients", facts(load, noQueue, uplink(t, "cake bandwidth 90mbit dual-dsthost", 1),
			rose("eth0.queue_drops", 900, "eth0.tx_packets", 9000), roundTrip(400)), []string{"✓ Nothing to do."}},
		{"a queue that has dropped long ago", facts(load, sockets(func(s *host.Sockets) {
			s.Queueing, s.Lossy, s.LossyShare = 0, 12, 0.03
		}), uplink(t, "pfifo", 1), counts(qdisc.Stats{Packets: 9800, Drops: 200})),
			[]string{"! The path loses packets without a queue."}},
		{"losses behind an own shaper", facts(uplink(t, "cake bandwidth 50mbit dual-dsthost", 1), load,
			sockets(func(s *host.Sockets) { s.Queueing, s.Lossy, s.LossyShare = 0, 12, 0.08 })),
			[]string{"✓ Nothing to do."}},

		{"CPU, and no traffic", facts(func(f *host.Facts) { f.Deep.CPU = 0.9 }),
			[]string{"✓ Programs wait for the CPU."}},
		{"CPU", facts(load, noQueue, func(f *host.Facts) { f.Deep.CPU = 0.9 }), []string{"! The CPU is short."}},
		{"connection attempts that are dropped", facts(rose("TcpExt.ListenDrops", 40, "Tcp.PassiveOpens", 1000)),
			[]string{"! A listening socket's queue is full."}},
		{"a stray fragment", facts(load, noQueue, rose("Ip.ReasmFails", 1, "Ip.ReasmReqds", 1)),
			[]string{"✓ Nothing to do."}},
		{"a few fragments beside large packets",
			facts(load, noQueue, rose("Ip.FragCreates", 300, "Ip.OutRequests", 2000)), []string{"✓ Nothing to do."}},
		{"a few connection attempts", facts(rose("TcpExt.ListenDrops", 4, "Tcp.PassiveOpens", 1000)),
			[]string{"✓ Nothing to do."}},
		{"fragments", facts(load, noQueue, rose("Ip.FragCreates", 9000, "Ip.OutRequests", 1000)),
			[]string{"! Packets leave in fragments."}},
		{"fragments that are lost", facts(load, noQueue, rose("Ip.ReasmFails", 40, "Ip.ReasmReqds", 1000)),
			[]string{"! Fragments do not come together."}},
		{"a tunnel that reads too slowly", facts(load, noQueue, rose("Udp.RcvbufErrors", 40, "Udp.InDatagrams", 9000)),
			[]string{"! UDP sockets' receive buffers are full."}},
		{"a tunnel that sends too fast", facts(load, noQueue, rose("Udp.SndbufErrors", 40, "Udp.OutDatagrams", 9000)),
			[]string{"! UDP sockets' send buffers are full."}},
		{"one core for all packets", facts(load, noQueue, rose("softnet.dropped", 40, "softnet.processed", 9000)),
			[]string{"! A CPU's backlog is full."}},
		{"a card that drops", facts(load, noQueue, rose("eth0.tx_errors", 40, "eth0.tx_packets", 9000)),
			[]string{"! The device drops what leaves."}},
		{"another card that drops", facts(rose("eth1.tx_errors", 40, "eth1.tx_packets", 9000)),
			[]string{"✓ Nothing to do."}},
		{"a short ring", facts(load, noQueue, rose("eth0.rx_missed_errors", 40, "eth0.rx_packets", 9000)),
			[]string{"! The device misses what arrives."}},
		{"a cloud's allowance of bandwidth", facts(load, noQueue, sockets(func(s *host.Sockets) { s.Lossy = 9 }),
			rose("eth0.bw_out_allowance_exceeded", 900, "eth0.tx_packets", 9000)),
			[]string{"! The provider's allowance of outgoing bandwidth is used up.",
				"! The path loses packets without a queue."}},
		{"a cloud's allowance of packets, and a queue", facts(load,
			rose("eth0.pps_allowance_exceeded", 900, "eth0.tx_packets", 9000)),
			[]string{"✗ The queue is not yours.", "! The provider's allowance of packets in a second is used up."}},
		{"a cloud's allowance of connections", facts(load, noQueue,
			rose("eth0.conntrack_allowance_exceeded", 900, "eth0.tx_packets", 9000)),
			[]string{"! The provider's allowance of connections is used up."}},
		{"a cloud's allowance of queries", facts(rose("eth0.linklocal_allowance_exceeded", 90, "eth0.tx_packets", 90)),
			[]string{"! The provider's allowance of queries to its DNS and other services is used up."}},
		{"what a virtual card's host held back", facts(rose("eth0.rx_hw_ratelimit_bytes", 9000, "eth0.rx_bytes", 9000)),
			[]string{"! The provider's allowance of incoming bandwidth is used up."}},
		{"a burst beyond the allowance", facts(load, noQueue,
			rose("eth0.bw_in_allowance_exceeded", 19, "eth0.rx_packets", 9000)), []string{"✓ Nothing to do."}},
		{"connections that find no room", facts(rose("conntrack.drop", 40, "Ip.OutRequests", 9000)),
			[]string{"! Connection tracking drops packets."}},
		{"no room for connections", facts(tracks(65500)),
			[]string{"✗ The table of connection tracking is nearly full."}},
		{"room for connections", facts(tracks(60000)), []string{"✓ Nothing to do."}},
		{"a hypervisor with too many guests", facts(load, noQueue, rose("cpu.steal", 300, "cpu.had", 700)),
			[]string{"! The hypervisor takes the CPU."}},
		{"a service with a limit",
			facts(load, noQueue, rose("throttled.system.slice/nginx.service", 20,
				"periods.system.slice/nginx.service", 100)),
			[]string{"! system.slice/nginx.service has used up its CPU time."}},
		{"a container with a limit that it seldom meets", facts(load, noQueue, rose("throttled.", 2, "periods.", 100)),
			[]string{"✓ Nothing to do."}},
		{"device", facts(load, sockets(func(s *host.Sockets) { s.Queueing, s.Rate = 0, 940_000_000 })),
			[]string{"✓ The device is the limit."}},
		{"default_qdisc too late", facts(usesBBR, made, sysctl("core.default_qdisc", "fq"),
			set("core.default_qdisc", "fq", "/etc/sysctl.conf", 1)),
			[]string{"! default_qdisc is fq, and eth0 has fq_codel."}},
		{"default_qdisc, and a queue of one's own", facts(uplink(t, "cake bandwidth 50mbit dual-dsthost", 1),
			set("core.default_qdisc", "fq", "/etc/sysctl.conf", 1), sysctl("core.default_qdisc", "fq")),
			[]string{"✓ Nothing to do."}},
		{"cake's default fairness", facts(uplink(t, "cake bandwidth 50mbit", 1)),
			[]string{"! CAKE shares between connections, not between clients."}},
		{"cake's default fairness, two addresses", facts(uplink(t, "cake bandwidth 50mbit", 1),
			func(f *host.Facts) { f.Links[1].Addrs = []string{"192.0.2.7/24", "2001:db8::7/64", "192.0.2.8/24"} }),
			[]string{"✓ Nothing to do."}},
		{"cake's default fairness, relay", facts(uplink(t, "cake bandwidth 50mbit nat", 1),
			sysctl("ipv4.ip_forward", "1")), []string{"✓ Nothing to do."}},

		{"ECN 1, bbr", facts(usesBBR, sysctl("ipv4.tcp_ecn", "1")),
			[]string{"! ECN is asked for, and BBR does not listen."}},
		{"ECN 1, a server", facts(sysctl("ipv4.tcp_ecn", "1"), sockets(func(s *host.Sockets) { s.Accepted = 9 })),
			[]string{"! tcp_ecn 1 changes nothing here."}},
		{"ECN 1, a relay", facts(sysctl("ipv4.tcp_ecn", "1")), []string{"✓ Nothing to do."}},
		{"ECN 0 beside a queue that marks", facts(sysctl("ipv4.tcp_ecn", "0"),
			uplink(t, "cake bandwidth 50mbit dual-dsthost", 1)),
			[]string{"! ECN is refused, and the queue here could mark."}},

		{"a file that sorts later", facts(sysctl("ipv4.tcp_fastopen", "1"),
			set("ipv4.tcp_fastopen", "3", "/etc/sysctl.d/10-a.conf", 4, loses),
			set("ipv4.tcp_fastopen", "1", "/etc/sysctl.d/99-z.conf", 1)),
			[]string{"! tcp_fastopen is set by several, to different values."}},
		{"a file that says the same", facts(sysctl("ipv4.tcp_fastopen", "3"),
			set("ipv4.tcp_fastopen", "3", "/etc/sysctl.d/10-a.conf", 4, loses),
			set("ipv4.tcp_fastopen", "3 # on", "/etc/sysctl.d/99-z.conf", 1)), []string{"✓ Nothing to do."}},
		{"the distribution's file overridden", facts(sysctl("ipv4.tcp_fastopen", "3"),
			set("ipv4.tcp_fastopen", "1", "/usr/lib/sysctl.d/10-a.conf", 4, loses),
			set("ipv4.tcp_fastopen", "3", "/etc/sysctl.d/99-z.conf", 1)), []string{"✓ Nothing to do."}},
		{"tuned", facts(set("ipv4.tcp_fastopen", "1", "/etc/sysctl.d/99-z.conf", 1),
			writer(host.Writer{By: "tuned", File: "/etc/tuned/p/tuned.conf", Line: 3, Sysctl: "net.ipv4.tcp_fastopen",
				Value: "3"})), []string{"! tcp_fastopen is set by several, to different values."}},
		{"tuned, and its files again", facts(set("ipv4.tcp_fastopen", "1", "/etc/sysctl.d/99-z.conf", 1),
			writer(host.Writer{By: "tuned", File: "/etc/tuned/p/tuned.conf", Line: 3, Sysctl: "net.ipv4.tcp_fastopen",
				Value: "3", Yields: true})), []string{"! tcp_fastopen is set by several, to different values."}},
		{"bbr by ufw", facts(usesBBR, func(f *host.Facts) { f.Deep.Loaded = []string{"tcp_bbr"} },
			writer(host.Writer{By: "ufw", File: "/etc/ufw/sysctl.conf", Line: 3, Sysctl: congestionControl,
				Value: "bbr"})), []string{"✓ Nothing to do."}},
		{"bbr, and a script that may set it", facts(usesBBR,
			func(f *host.Facts) { f.Deep.Loaded = []string{"tcp_bbr"} },
			writer(host.Writer{By: "rc.local", File: "/etc/rc.local", Line: 3, Sysctl: host.SomeSetting})),
			[]string{"! tcp_congestion_control is bbr, and no file says so."}},
		{"bbr by a file of the wrong name", facts(usesBBR, func(f *host.Facts) { f.Deep.Loaded = []string{"tcp_bbr"} },
			idle(host.Writer{By: host.SysctlDir, File: "/etc/sysctl.d/99-bbr", Line: 1, Sysctl: congestionControl,
				Value: "bbr", Idle: "its name does not end in .conf"}),
			idle(host.Writer{By: host.SysctlDir, File: "/etc/sysctl.d/99-bbr", Line: 2, Sysctl: tcpECN, Value: "1",
				Idle: "its name does not end in .conf"})), []string{"! /etc/sysctl.d/99-bbr has no effect."}},
		{"the module's name for its congestion control", facts(set("ipv4.tcp_congestion_control", "tcp_bbr",
			"/etc/sysctl.d/z.conf", 1)), []string{"✗ The kernel refuses a value for tcp_congestion_control."}},
		{"the module's name for its queue", facts(set("core.default_qdisc", "sch_fq", "/etc/sysctl.d/z.conf", 1),
			func(f *host.Facts) { f.OtherQdiscs = nil }),
			[]string{"✗ The kernel refuses a value for default_qdisc."}},
		{"bbr by a line without =", facts(usesBBR, func(f *host.Facts) { f.Deep.Loaded = []string{"tcp_bbr"} },
			idle(host.Writer{By: host.SysctlLine, File: "/etc/sysctl.d/99-bbr.conf", Line: 2, Sysctl: congestionControl,
				Value: "bbr", Idle: "there is no = between the key and the value"})),
			[]string{"! /etc/sysctl.d/99-bbr.conf:2 has no effect."}},
		{"a folder that nothing reads", facts(idle(host.Writer{By: host.SysctlDir, File: "/etc/sysctl.conf.d/a.conf",
			Line: 1, Sysctl: congestionControl, Value: "bbr", Idle: host.UnreadFolder})),
			[]string{"! /etc/sysctl.conf.d/a.conf has no effect."}},
		{"a file whose name a shell would take apart", facts(
			idle(host.Writer{By: host.SysctlDir, File: "/etc/sysctl.d/my file", Line: 1, Sysctl: congestionControl,
				Value: "bbr", Idle: "its name does not end in .conf"})),
			[]string{"! /etc/sysctl.d/my file has no effect."}},
		{"a script whose name run-parts passes over", facts(
			idle(host.Writer{By: "ifupdown", File: "/etc/network/if-up.d/q (1).sh", Line: 2, Qdisc: "cake", Dev: "eth0",
				Idle: host.NameOfNoPart})),
			[]string{"! /etc/network/if-up.d/q (1).sh has no effect."}},
		{"a file of the wrong name that is not missed", facts(idle(host.Writer{By: host.SysctlDir,
			File: "/etc/sysctl.d/old", Line: 1, Sysctl: tcpECN, Value: "0x2", Idle: "its name does not end in .conf"}),
			set("ipv4.tcp_ecn", "2", "/etc/sysctl.d/a.conf", 1)), []string{"✓ Nothing to do."}},
		{"rc.local that is not executable", facts(idle(host.Writer{By: "rc.local", File: "/etc/rc.local", Line: 2,
			Qdisc: "cake", Rate: 20e6, Dev: "eth0", Idle: host.NotExecutable})),
			[]string{"! /etc/rc.local has no effect."}},
		{"a script that run-parts passes over", facts(idle(host.Writer{By: "ifupdown",
			File: "/etc/network/if-up.d/q.sh", Line: 2, Qdisc: "cake", Dev: "eth0", Idle: host.NameOfNoPart})),
			[]string{"! /etc/network/if-up.d/q.sh has no effect."}},
		{"networkd's file that another masks", facts(idle(host.Writer{By: "networkd",
			File: "/run/systemd/network/a.network", Line: 3, Qdisc: "cake", Rate: 20e6, Dev: "eth0",
			Idle: "/etc/systemd/network/a.network takes its place"})),
			[]string{"! /run/systemd/network/a.network has no effect."}},
		{"networkd's file that comes too late", facts(writer(host.Writer{By: "networkd",
			File: "/etc/systemd/network/90.network", Line: 3, Qdisc: "cake", Dev: "eth0",
			Match:  &host.Match{Dev: "eth0"},
			Before: []host.Match{{File: "/etc/systemd/network/05-all.network", Dev: "*"}}})),
			[]string{"! /etc/systemd/network/90.network has no effect."}},
		{"networkd's queue that is set all the same", facts(uplink(t, "cake bandwidth 20mbit dual-dsthost", 1),
			writer(host.Writer{By: "networkd", File: "/etc/systemd/network/a.network", Line: 3, Qdisc: "cake",
				Dev: "eth0", Rate: 20e6}), idle(host.Writer{By: "networkd", File: "/run/systemd/network/a.network",
				Line: 3, Qdisc: "cake", Dev: "eth0", Rate: 20e6,
				Idle: "/etc/systemd/network/a.network takes its place"})),
			[]string{"✓ Nothing to do."}},
		{"networkd sets this queue with another rate", facts(uplink(t, "cake bandwidth 50mbit dual-dsthost", 1),
			writer(host.Writer{By: "networkd", File: "/etc/systemd/network/a.network", Line: 3, Qdisc: "cake",
				Dev: "eth0", Rate: 20e6})), []string{"! networkd sets cake with 20mbit on eth0."}},
		{"networkd sets this queue and this rate", facts(uplink(t, "cake bandwidth 20mbit dual-dsthost", 1),
			writer(host.Writer{By: "networkd", File: "/etc/systemd/network/a.network", Line: 3, Qdisc: "cake",
				Dev: "eth0", Rate: 20e6})), []string{"✓ Nothing to do."}},
		{"tuned alone", facts(sysctl("ipv4.tcp_fastopen", "3"),
			writer(host.Writer{By: "tuned", File: "/etc/tuned/p/tuned.conf", Line: 3, Sysctl: "net.ipv4.tcp_fastopen",
				Value: "3"})), []string{"✓ Nothing to do."}},
		{"changed since the boot", facts(set("ipv4.tcp_fastopen", "3", "/etc/sysctl.d/99-z.conf", 1)),
			[]string{"! tcp_fastopen has changed since the boot."}},
		{"another namespace than the boot's", facts(set("ipv4.tcp_fastopen", "3", "/etc/sysctl.d/99-z.conf", 1),
			func(f *host.Facts) { delete(f.Sysctls, "net.core.default_qdisc") }), []string{"✓ Nothing to do."}},
		{"udev sets another queue", facts(uplink(t, "cake bandwidth 50mbit dual-dsthost", 1),
			writer(host.Writer{By: "udev", File: "/etc/udev/rules.d/a.rules", Line: 1, Qdisc: "fq", Dev: "eth0"})),
			[]string{"! udev sets fq on eth0."}},
		{"udev sets this queue", facts(uplink(t, "cake bandwidth 50mbit dual-dsthost", 1),
			writer(host.Writer{By: "udev", File: "/etc/udev/rules.d/a.rules", Line: 1, Qdisc: "cake", Dev: "eth0"})),
			[]string{"✓ Nothing to do."}},
		{"networkd, by a pattern", facts(writer(host.Writer{By: "networkd", File: "/etc/systemd/network/a.network",
			Line: 3, Qdisc: "cake", Dev: "en* eth[0-3]"})), []string{"! networkd sets cake on en* eth[0-3]."}},
		{"networkd, others by a pattern", facts(writer(host.Writer{By: "networkd",
			File: "/etc/systemd/network/a.network", Line: 3, Qdisc: "cake", Dev: "en*"})),
			[]string{"✓ Nothing to do."}},
		{"udev sets another device's", facts(writer(host.Writer{By: "udev", File: "/etc/udev/rules.d/a.rules", Line: 1,
			Qdisc: "fq", Dev: "eth7"})), []string{"✓ Nothing to do."}},
		{"udev waits for a name", facts(renamed, counts(qdisc.Stats{Marks: 1}),
			writer(host.Writer{By: "udev", File: "/etc/udev/rules.d/a.rules", Line: 1, Qdisc: "fq_codel", Dev: "ens3",
				Name: "ens3"})), []string{"! udev may never set fq_codel on ens3."}},
		{"udev waits for another's name", facts(renamed, writer(host.Writer{By: "udev",
			File: "/etc/udev/rules.d/a.rules", Line: 1, Qdisc: "fq_codel", Dev: "ens4", Name: "ens4"})),
			[]string{"✓ Nothing to do."}},
		{"udev waits for the kernel's name", facts(writer(host.Writer{By: "udev", File: "/etc/udev/rules.d/a.rules",
			Line: 1, Qdisc: "fq_codel", Dev: "eth0", Name: "eth*"})), []string{"✓ Nothing to do."}},
		{"the kernel's command line, changed since", facts(set("ipv4.tcp_fastopen", "3", host.CommandLine, 0)),
			[]string{"! tcp_fastopen has changed since the boot."}},
		{"the kernel's command line, and a file", facts(set("ipv4.tcp_fastopen", "3", host.CommandLine, 0, loses),
			set("ipv4.tcp_fastopen", "1", "/usr/lib/sysctl.d/99-z.conf", 1)),
			[]string{"! tcp_fastopen is set by several, to different values."}},
		{"bpftune", facts(writer(host.Writer{By: "bpftune", File: "/x"})),
			[]string{"! bpftune changes settings by itself."}},
		{"a program after bpf_shaper", facts(func(f *host.Facts) {
			f.Links[1].Tree = tree(t, "bpf_shaper rate 50mbit | fq", 1)
			f.Links[1].Tree.Qdiscs[0].Stats.X = shaper.Stats{After: "cil_to_netdev"}
		}), []string{"! After bpf_shaper on eth0 comes another's program."}},

		{"containers", facts(sysctl("ipv4.tcp_ecn", "1"), set("ipv4.tcp_ecn", "1", "/etc/sysctl.d/a.conf", 1),
			func(f *host.Facts) { f.Deep.Namespaces = []host.Namespace{{ID: "net:[2]", Processes: 3}} }),
			[]string{"! Containers do not inherit the settings."}},
		{"a container with another congestion control", facts(usesBBR, func(f *host.Facts) {
			f.Deep.Loaded = []string{"tcp_bbr"}
			f.Deep.Contained = []host.Contained{
				{By: "docker", Name: "web", File: "/d/hostconfig.json", Sysctl: congestionControl, Value: "cubic"},
				{By: "LXC", Name: "db", File: "/l/config", Line: 3, Sysctl: congestionControl, Value: "bbr"},
				{By: "podman", File: "/p.conf", Sysctl: congestionControl, Value: "reno"},
				{By: "podman", File: "/p.conf", Sysctl: tcpECN, Value: "1"}} // not set here
		}, set("ipv4.tcp_congestion_control", "bbr", "/etc/sysctl.d/99-weir.conf", 1)),
			[]string{"! Containers are given other values of what is set here."}},
		{"containers with values of their own, and none set here", facts(func(f *host.Facts) {
			f.Deep.Contained = []host.Contained{{By: "docker", Name: "web", Sysctl: congestionControl, Value: "bbr"}}
		}), []string{"✓ Nothing to do."}},
		{"a bridge", facts(bridged), []string{"✓ The uplink is eth0."}},
		{"a bridge with the queue", facts(bridged, func(f *host.Facts) {
			f.Links[3].Tree = tree(t, "cake bandwidth 50mbit dual-dsthost", 1)
		}), []string{"✗ The queue of br0 is not the bottleneck's."}},
		{"a bridge of two cards", facts(bridged, func(f *host.Facts) {
			f.Links[2].Master, f.Links[2].Up = "br0",
				true
		}),
			[]string{"! Which device is the uplink cannot be told."}},
		{"two ways out", facts(func(f *host.Facts) {
			f.Defaults = []host.DefaultRoute{{Dev: "eth0"}, {Dev: "eth1", Metric: 200}}
		}), []string{"! There is more than one way out."}},

		{"containers, stock settings", facts(func(f *host.Facts) {
			f.Deep.Namespaces = []host.Namespace{{ID: "net:[2]",
				Processes: 3}}
		}), []string{"✓ Containers."}},
		{"WireGuard", facts(func(f *host.Facts) {
			f.Links = append(f.Links,
				host.Link{Name: "wg0", Kind: "wireguard"})
		}), []string{"✓ Tunnels."}},
		{"WireGuard, bbr", facts(usesBBR, func(f *host.Facts) {
			f.Links = append(f.Links,
				host.Link{Name: "wg0", Kind: "wireguard"})
		}), []string{"! BBR does nothing for what is tunnelled."}},
		{"TCP's memory, used up", facts(func(f *host.Facts) {
			f.Deep.TCPMemory = host.TCPMemory{Held: 96 << 20, Mark: 96 << 20, Pressures: 3}
		}), []string{"✗ TCP is short of memory."}},
		{"TCP's memory, used up once", facts(func(f *host.Facts) {
			f.Deep.TCPMemory = host.TCPMemory{Held: 10 << 20, Mark: 96 << 20, Pressures: 1}
		}), []string{"! TCP has been short of memory."}},
		{"TCP's memory, nearly", facts(func(f *host.Facts) {
			f.Deep.TCPMemory = host.TCPMemory{Held: 95 << 20, Mark: 96 << 20}
		}), []string{"✓ Nothing to do."}},
		{"SYN cookies, bbr", facts(usesBBR,
			func(f *host.Facts) { f.Deep.SYN = host.SYN{Accepted: 1000, CookiesGood: 10} }),
			[]string{"! SYN cookies or a SYN proxy, with BBR."}},
		{"few SYN cookies, bbr", facts(usesBBR, func(f *host.Facts) {
			f.Deep.SYN = host.SYN{Accepted: 1000,
				CookiesGood: 9}
		}), []string{"✓ Nothing to do."}},
		{"SYN cookies, cubic", facts(func(f *host.Facts) {
			f.Deep.SYN = host.SYN{Accepted: 10, CookiesGood: 10,
				Proxy: true}
		}), []string{"✓ Nothing to do."}},
		{"connections that chose", facts(sockets(func(s *host.Sockets) {
			s.Congestion = map[string]int{"bbr": 4,
				"cubic": 5}
		})), []string{"✓ 5 of 9 connections use cubic."}},
		{"a file that only root can read", facts(usesBBR, func(f *host.Facts) {
			f.Deep.Loaded = []string{"tcp_bbr"}
			f.Deep.Unknown = []host.Unread{{Why: "needs root", File: "/etc/sysctl.d/a.conf"}}
		}), []string{"✓ Nothing to do."}},
		{"a start that is no whole part", facts(sysctl("ipv4.tcp_rmem", "4096 100000 6291456")),
			[]string{"! tcp_rmem default is 100000 (kernel: 131072)."}},
		{"no start at all", facts(sysctl("ipv4.tcp_wmem", "4096 0 4194304")),
			[]string{"! tcp_wmem default is 0 (kernel: 16384)."}},
		{"loss, and bbr that old connections have not", facts(usesBBR, func(f *host.Facts) {
			f.Deep.Loaded = []string{"tcp_bbr"}
		}, set("ipv4.tcp_congestion_control", "bbr", "/etc/sysctl.d/a.conf", 1), sockets(func(s *host.Sockets) {
			s.Busy, s.Lossy, s.LossyShare = 4, 3, 0.0234
		})), []string{"! The path loses packets without a queue."}},
		{"a kernel that has all of it", facts(func(f *host.Facts) {
			f.Deep.BPFQdisc, f.Deep.AccECN = host.Yes, host.Yes
		}), []string{"✓ Nothing to do."}},
		{"a kernel that has less of it", facts(func(f *host.Facts) {
			f.Deep.BPFQdisc, f.Deep.AccECN = host.No, host.No
		}), []string{"✓ Nothing to do."}},
		{"an AQM of the kernel's own making", facts(uplink(t, "dualpi2", 1), made),
			[]string{"! default_qdisc is fq_codel, and eth0 has dualpi2."}},
		{"connections that are older", facts(usesBBR,
			set("ipv4.tcp_congestion_control", "bbr", "/etc/sysctl.d/a.conf", 1),
			sockets(func(s *host.Sockets) { s.Congestion = map[string]int{"bbr": 4, "cubic": 5} })),
			[]string{"! 4 of 9 connections use bbr."}},
	}
}

// Each host has the findings that it should, worst first, and each code there is is found on one.
func TestDiagnose(t *testing.T) {
	seen := map[Code]bool{}
	for _, test := range slices.Concat(servers(t), relays(t)) {
		t.Run(test.name, func(t *testing.T) {
			findings := Diagnose(test.facts)
			var wrong, all []string
			for i, f := range findings {
				seen[f.Code] = true
				shown := f.Severity.Mark() + " " + f.Title
				all = append(all, shown)
				if f.Severity != Fine {
					wrong = append(wrong, shown)
				}
				if i > 0 && f.Severity.order() < findings[i-1].Severity.order() {
					t.Errorf("not worst first: %s", shown)
				}
			}
			whole(t, test.facts, findings)
			want := slices.DeleteFunc(slices.Clone(test.want), func(s string) bool { return strings.HasPrefix(s, "✓") })
			if !slices.Equal(wrong, want) {
				t.Errorf("found wrong\n%s\nwant\n%s", strings.Join(wrong, "\n"), strings.Join(want, "\n"))
			}
			for _, s := range test.want {
				if !slices.Contains(all, s) {
					t.Errorf("%q is not among\n%s", s, strings.Join(all, "\n"))
				}
			}
			// One tunnel, one thing said of how it is managed.
			if slices.Contains(all, "✓ Tunnels.") && len(plan.Carries(test.facts).Kinds) > 0 {
				t.Errorf("twice: %s", strings.Join(all, "\n"))
			}
		})
	}
	for _, code := range documented(t) {
		if !seen[code] {
			t.Errorf("no host here has %s", code)
		}
	}
}

// On a kernel that can shape no more than it does already, nothing is suggested that it would refuse.
func TestShapesOnThisKernel(t *testing.T) {
	for _, test := range slices.Concat(servers(t), relays(t)) {
		facts := test.facts
		facts.Qdiscs, facts.Ingress = map[string]host.Support{}, host.No
		for kind := range test.facts.Qdiscs {
			facts.Qdiscs[kind] = host.No
		}
		for _, l := range facts.Links {
			for _, q := range l.Tree.Qdiscs {
				facts.Qdiscs[strings.TrimSuffix(q.Kind, "_mq")] = host.Yes // both are in sch_cake
			}
		}
		able := examine(facts).canShape()
		for _, f := range Diagnose(facts) {
			words := strings.Fields(f.Try)
			if slices.Contains(words, "--rate") && !able || slices.Contains(words, "--ingress") {
				t.Errorf("%s: %s: %s, which this kernel would refuse", test.name, f.Code, f.Try)
			}
			if f.Severity != Fine && f.Try+f.Remark == "" {
				t.Errorf("%s: %s says nothing of what to do", test.name, f.Code)
			}
		}
	}
}

// whole reports whether findings have all that a person and a program need, and agree with the verdict and the summary.
func whole(t *testing.T, facts host.Facts, findings []Finding) {
	t.Helper()
	agrees(t, FindBottleneck(facts), findings)
	words := func(text string) {
		for sentence := range strings.SplitSeq(text, ". ") {
			if n := len(strings.Fields(sentence)); n > 25 {
				t.Errorf("%d words: %s", n, sentence)
			}
		}
	}
	for _, f := range findings {
		if f.Title == "" || f.Seen == "" || f.Severity.order() < 0 || !slices.Contains(documented(t), f.Code) ||
			f.Severity != Fine && (f.Plain == "" || f.Why == "" || f.Try+f.Remark == "") {
			t.Errorf("not whole: %+v", f)
		}
		program, _, _ := strings.Cut(f.Try, " ")
		if !slices.Contains([]string{"", "weir", "sysctl", "mv", "docker"}, program) || strings.Contains(f.Try, "  ") {
			t.Errorf("not a command: %q", f.Try)
		}
		words(f.Why)
		words(f.Plain)
		if f.Evidence.Scenario != "" {
			if _, err := os.Stat("../../" + f.Evidence.Scenario); err != nil {
				t.Errorf("%s: %v", f.Code, err)
			}
		}
	}
	s := Summarize(facts)
	words(s.Says)
	harmful := findings[0].Severity == Harmful
	if s.Says == "" || s.Try+s.Remark == "" || s.Told == (s.Code == "") || harmful && s.Code != findings[0].Code {
		t.Errorf("%+v sums up %+v", s, findings)
	}
}

// A time has the digits that are known of it: whole milliseconds from ten on, two digits below, no nanoseconds.
func TestMillis(t *testing.T) {
	for ns, want := range map[units.Duration]string{
		212_400_000: "212ms",
		10_600_000:  "11ms",
		9_940_000:   "9.9ms",
		1_040_000:   "1ms",
		944_000:     "940us",
		94_400:      "94us",
		9_440:       "9us",
		1_440:       "1us",
		0:           "0s",
	} {
		if got := millis(ns); got != want {
			t.Errorf("%d ns reads %q, want %q", ns, got, want)
		}
	}
}

// Of a goal in force a status says who waits elsewhere, and which filters drop what leaves.
func TestBesideAGoal(t *testing.T) {
	cake := func(text string) func(*host.Facts) { return uplink(t, "cake bandwidth "+text, 1) }
	raw, framed := cake("100mbit dual-dsthost"), cake("100mbit dual-dsthost overhead 38")
	const waits = "14 of 17 busy connections wait: RTT 212ms, minimum 48ms, and cake on eth0 holds 3 packets. "
	const passes = waits + "The provider passes less than this rate, or what is sent does not pass here: "
	three := counts(qdisc.Stats{Qlen: 3})
	for name, c := range map[string]struct {
		dev   string
		edits edits
		want  string
	}{
		"elsewhere":       {"eth0", edits{raw, load, three}, passes + "weir plan --rate 100.3mbit --overhead ethernet"},
		"counting frames": {"eth0", edits{framed, load, three}, passes + "weir plan --rate 98.2mbit"},
		"uploads": {"eth0", edits{raw, load, three, sockets(func(s *host.Sockets) { s.Receiving = 1 })},
			waits + "Incoming traffic is not shaped: weir plan --rate 100.3mbit --ingress RATE"},
		"uploads that are shaped": {"eth0", edits{raw, load, three, arrives(t, "cake bandwidth 42mbit ingress"),
			sockets(func(s *host.Sockets) { s.Receiving = 1 })},
			passes + "weir plan --rate 100.3mbit --overhead ethernet"},
		"here":           {"eth0", edits{raw, load, counts(qdisc.Stats{Backlog: 2_000_000})}, ""},
		"no queue":       {"eth0", edits{raw, load, noQueue}, ""},
		"no rate":        {"eth0", edits{load}, ""},
		"another device": {"eth1", edits{raw, load}, ""},
		"no such device": {"eth9", edits{raw, load}, ""},
	} {
		f := with(t, append(edits{looked}, c.edits...)...)
		if got := Elsewhere(plan.Goal{Dev: c.dev}, f); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}

	for name, c := range map[string]struct {
		dev   string
		edits edits
		want  []string
	}{
		"a policer": {"eth0", edits{policer(500e6, 254)},
			[]string{"the filter u32 on eth0, at its egress, drops what exceeds 500mbit: 254 packets so far"}},
		"below a class": {"eth0", edits{policer(0, 1), hangs(0x10002)},
			[]string{"the filter u32 on eth0 (parent 1:2), drops packets: 1 packet so far"}},
		"of what arrives": {"eth0", edits{policer(500e6, 254), hangs(ingressFilters)}, nil},
		"nothing so far":  {"eth0", edits{policer(500e6, 0)}, nil},
		"another device":  {"eth1", edits{policer(500e6, 254)}, nil},
		"none":            {"eth0", nil, nil},
	} {
		f := with(t, append(edits{looked}, c.edits...)...)
		if got := Filtered(plan.Goal{Dev: c.dev}, f); !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// A rate is nearly what was sold where the goal that is kept says so, for this device or for none by its name.
func TestIsNearlyAllSold(t *testing.T) {
	for text, want := range map[string]bool{
		"rate = '50mbit'": true, "rate = '50.001mbit'": false, "rate = '40mbit'": true,
		"dev = 'eth0'\nrate = '50mbit'": true, "dev = 'eth1'\nrate = '50mbit'": false, "dev = 'eth0'": false, "": false,
		"[eth0]\n[eth1]\nrate = '50mbit'": false, "[eth1]\n[eth0]\nrate = '50mbit'": true, "rate = 50": false,
	} {
		f := with(t, looked, func(f *host.Facts) {
			f.Files = map[string]host.File{host.GoalFile: {Kind: host.Regular, Text: text}}
		})
		if got := examine(f).isNearlyAllSold(49e6); got != want {
			t.Errorf("%q: %v", text, got)
		}
	}
}

// Looking changes nothing, and gives the same twice.
func TestDiagnoseIsPure(t *testing.T) {
	f := with(t, looked, load, set("ipv4.tcp_fastopen", "3", "/etc/sysctl.d/10-a.conf", 4, loses),
		set("ipv4.tcp_fastopen", "1", "/etc/sysctl.d/99-z.conf", 1))
	before := maps.Clone(f.Sysctls)
	first, second := Diagnose(f), Diagnose(f)
	if !slices.Equal(first, second) || !maps.Equal(before, f.Sysctls) || len(f.Deep.Settings) != 2 {
		t.Errorf("%v\n%v", first, second)
	}
}

// Whatever a host is read as, a diagnosis ends.
func FuzzDiagnose(f *testing.F) {
	for _, facts := range []host.Facts{{}, with(f, looked, load),
		with(f, looked, usesBBR, uplink(f, "mq | fq", 4), set("ipv4.tcp_ecn", "1", "/etc/sysctl.conf", 1, unread))} {
		text, err := json.Marshal(facts)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		var facts host.Facts
		if json.Unmarshal(text, &facts) != nil {
			return
		}
		found := Diagnose(facts)
		if len(found) == 0 {
			t.Error("nothing to say")
		}
		whole(t, facts, found)
	})
}

// Where the kernel has no dualpi2 and takes Weir's own, that is said.
func TestDualPI2InBPF(t *testing.T) {
	f := with(t, bpfDualPI2)
	f.Deep = &host.Deep{Settings: []host.Setting{{Sysctl: "net.core.default_qdisc", Value: "dualpi2",
		File: "/etc/sysctl.d/a.conf", Line: 2, Wins: true}}}
	said := map[string]string{}
	for _, finding := range Diagnose(f) {
		said[finding.Title] = finding.Seen + finding.Try
	}
	for title, want := range map[string]string{
		"This kernel has no dualpi2.": "weir dualpi2 add dev eth0 rate RATE",
		"Linux 6.12.107.":             "Debian builds no sch_dualpi2; weir dualpi2 brings it as BPF.",
	} {
		if !strings.Contains(said[title], want) {
			t.Errorf("%s: %q, want %q", title, said[title], want)
		}
	}
}

// Each stage is there once, at most one holds, and of what was not looked at it says why.
func TestStages(t *testing.T) {
	stages := func(edits ...func(*host.Facts)) []Stage {
		return FindStages(with(t, append([]func(*host.Facts){looked}, edits...)...))
	}
	holding := func(all []Stage) (names []string) {
		for _, s := range all {
			if s.Holds {
				names = append(names, s.Name)
			}
			if s.Saw == "" && s.Lacks == "" {
				t.Errorf("nothing is said of %s", s.Name)
			}
		}
		return names
	}
	listens := func(f *host.Facts) { f.Deep.Listened = millisecond(10_000) }
	legacy := func(f *host.Facts) { f.Deep.Netfilter.Legacy = []string{"ip nat"} }
	unseenRules := func(f *host.Facts) { f.Deep.Netfilter = host.Netfilter{} }
	for _, c := range []struct {
		name   string
		stages []Stage
		holds  string
		unseen string
	}{
		{"nothing read", FindStages(host.Facts{}), "", "programs, send buffers, receive buffers, TCP's settings, " +
			"netfilter, " +
			"fragmentation, UDP buffers, filters, the queue here, CPU, the device, the provider, the path, receivers"},
		{"a taprio", stages(listens, opaque("taprio", 0)), "", "the queue here"},
		{"an Open vSwitch without a card", stages(listens, func(f *host.Facts) { f.Links[1].Kind = "openvswitch" }), "",
			"the queue here"},
		{"a card's bounded queue", stages(listens, load, noQueue, txQueues(10e6),
			sockets(func(s *host.Sockets) { s.Rate = 9e6 })), "the device", ""},
		{"downloads, not listened to", stages(sockets(func(s *host.Sockets) { s.Receiving = 1 })), "",
			"receive buffers, netfilter, fragmentation, UDP buffers, the queue here, CPU, the device"},
		{"a small receive buffer", stages(brings(1, host.Windows{Maximum: 1})), "receive buffers", ""},
		{"idle", stages(), "", "netfilter, fragmentation, UDP buffers, the queue here, CPU, the device"},
		{"idle, listened", stages(listens), "", ""},
		{"rules that can limit", stages(listens, limits(outgoing)), "", ""},
		{"a rule that does", stages(listens, load, noQueue, refuses, limits(outgoing, 900)), "netfilter", ""},
		{"a rule without a counter", stages(listens, limits(uncounted)), "", "netfilter"},
		{"rules of iptables-legacy", stages(listens, legacy), "", "netfilter"},
		{"rules that were not read", stages(listens, unseenRules), "", "netfilter"},
		{"a queue elsewhere", stages(listens, load), "the provider", ""},
		{"a slow program", stages(listens, load, noQueue, sockets(func(s *host.Sockets) { s.App = 17 })), "programs",
			""},
		{"fragments", stages(load, noQueue, measuredWireGuard,
			rose("Ip.FragCreates", 9000, "Ip.OutRequests", 1000)), "fragmentation", ""},
		{"an allowance", stages(load, noQueue, sockets(func(s *host.Sockets) { s.Lossy = 9 }),
			rose("eth0.bw_in_allowance_exceeded", 40, "eth0.rx_packets", 9000)), "the provider", ""},
		{"steal", stages(load, noQueue, rose("cpu.steal", 300, "cpu.had", 700)), "CPU", ""},
		{"a bad card", stages(load, noQueue, rose("eth0.tx_errors", 40, "eth0.tx_packets", 9000)), "the device", ""},
	} {
		if got := strings.Join(holding(c.stages), ", "); got != c.holds {
			t.Errorf("%s: %q holds, not %q", c.name, got, c.holds)
		}
		if got := unseenStages(c.stages); got != c.unseen {
			t.Errorf("%s: unseen are %q, not %q", c.name, got, c.unseen)
		}
	}
}
