// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"slices"
	"strconv"
	"testing"

	"weir/internal/host"
	"weir/internal/qdisc"
	"weir/internal/units"
)

// bound is a host, and what limits it.
type bound struct {
	name  string
	facts host.Facts
	want  Limit
}

func bounds(t *testing.T) []bound {
	facts := func(edits ...func(*host.Facts)) host.Facts {
		return with(t, append([]func(*host.Facts){looked}, edits...)...)
	}
	shaped := uplink(t, "cake bandwidth 50mbit dual-dsthost", 1)
	loadOf := func(edit func(*host.Sockets)) func(*host.Facts) {
		return func(f *host.Facts) {
			load(f)
			f.Deep.Sockets.Queueing, f.Deep.Sockets.Rate = 0, 30_000_000
			edit(&f.Deep.Sockets)
		}
	}
	nothing := func(*host.Sockets) {}
	soon := func(ms int) func(*host.Facts) {
		return func(f *host.Facts) {
			uplink(t, fmt.Sprintf("cake bandwidth 100mbit dual-dsthost rtt %dms", ms), 1)(f)
			rose("eth0.queue_drops", 17, "eth0.tx_packets", 9000)(f)
		}
	}
	speed := func(r units.Rate) func(*host.Facts) { return func(f *host.Facts) { f.Links[1].Speed = r } }
	cpu := func(f *host.Facts) { f.Deep.CPU = 0.5 }
	forwards := sysctl("ipv4.ip_forward", "1")
	return []bound{
		{"nothing read", host.Facts{}, limitUnknown},
		{"not looked deeper", with(t), limitUnknown},
		{"idle", facts(), limitNone},
		{"busy, and nothing to be seen", facts(loadOf(nothing)), limitUnknown},
		{"no uplink", facts(loadOf(nothing), func(f *host.Facts) { f.Uplink = "" }), limitUnknown},
		{"a queue, no uplink", facts(load, func(f *host.Facts) { f.Uplink = "" }), limitUnknown},
		{"connections unknown", facts(sockets(func(s *host.Sockets) { *s = host.Sockets{} })), limitUnknown},
		{"a relay", facts(forwards), limitUnknown},
		{"a relay that shapes", facts(forwards, shaped, counts(qdisc.Stats{Backlog: 1514})), LimitShaper},
		{"a relay whose shaper is idle", facts(forwards, shaped), limitUnknown},

		{"queue elsewhere", facts(load), LimitRate},
		{"queue elsewhere, CPU short", facts(load, cpu), LimitRate},
		{"queue elsewhere, receivers too", facts(load, sockets(func(s *host.Sockets) { s.Receiver, s.Lossy = 17, 17 })),
			LimitRate},
		{"queue besides the shaper's", facts(uplink(t, "cake bandwidth 100mbit dual-dsthost", 1), load), LimitRate},
		{"few queue", facts(load, sockets(func(s *host.Sockets) { s.Queueing = 4 })), limitUnknown},
		{"queue here", facts(load, counts(qdisc.Stats{Backlog: 900_000})), limitDevice},
		{"queue here, shaped", facts(shaped, load, counts(qdisc.Stats{Backlog: 900_000})), LimitShaper},
		{"shaped, no queue to speak of", facts(shaped, loadOf(func(s *host.Sockets) { s.Rate = 45_000_000 })),
			LimitShaper},
		{"shaped, below the rate", facts(shaped, loadOf(func(s *host.Sockets) { s.Rate = 44_000_000 })), limitUnknown},
		{"a shaper with little room", facts(shaped, rose("eth0.queue_drops", 40, "Ip.OutRequests", 9000),
			loadOf(func(s *host.Sockets) { s.Rate = 37_000_000 })), LimitShaper},
		{"htb at its rate", facts(uplink(t, "htb rate 50mbit | fq_codel", 1),
			loadOf(func(s *host.Sockets) { s.Rate = 48_000_000 })), LimitShaper},

		{"lossy", facts(loadOf(func(s *host.Sockets) { s.Lossy = 5 })), LimitPath},
		{"lossy, CPU short", facts(cpu, loadOf(func(s *host.Sockets) { s.Lossy = 5 })), LimitPath},
		{"lossy behind a shaper", facts(shaped, loadOf(func(s *host.Sockets) { s.Lossy = 5 })), limitUnknown},
		{"lossy behind a shaper, far below its rate", facts(shaped, left(1e9, 6e6), lossyAt(0.03, 4.8e6)), LimitPath},
		{"lossy behind a shaper, and hardly lossy", facts(shaped, left(1e9, 6e6), lossyAt(0.005, 4.7e6)), limitUnknown},
		{"lossy behind a shaper that dropped as much", facts(shaped, rose("eth0.queue_drops", 3, "Ip.OutRequests", 9),
			left(1e9, 6e6), lossyAt(0.03, 4.8e6)), limitUnknown},
		{"lossy behind a shaper that dropped less", facts(shaped, rose("eth0.queue_drops", 2, "Ip.OutRequests", 9),
			left(1e9, 6e6), lossyAt(0.03, 4.8e6)), LimitPath},
		{"lossy behind a shaper and a filter that drops", facts(shaped, policer(0, 9), listened(3), left(1e9, 6e6),
			lossyAt(0.03, 4.8e6)), limitUnknown},
		{"lossy behind a shaper, and a filter that drops what arrives", facts(shaped, policer(0, 9),
			hangs(ingressFilters), listened(3), left(1e9, 6e6), lossyAt(0.03, 4.8e6)), LimitPath},
		{"lossy near a shaper's rate", facts(shaped, left(1e9, 6e6), lossyAt(0.03, 35e6)), limitUnknown},
		{"lossy, less near a shaper's rate", facts(shaped, left(1e9, 6e6), lossyAt(0.03, 34.9e6)), LimitPath},
		{"lossy beside much that passes a shaper", facts(shaped, left(1e9, 43_750_000), lossyAt(0.03, 4.8e6)),
			limitUnknown},
		{"few lossy behind a shaper", facts(shaped, left(1e9, 6e6), lossyAt(0.03, 4.8e6),
			sockets(func(s *host.Sockets) { s.Lossy = 4 })), limitUnknown},
		{"lossy behind a policer that drops now", facts(policer(1e6, 900), listened(100), lossyAt(0.03, 4.8e6)),
			limitUnknown},
		{"lossy behind a policer that dropped less", facts(policer(1e6, 900), listened(2), lossyAt(0.03, 4.8e6)),
			LimitPath},
		{"lossy behind a policer that dropped as much", facts(policer(1e6, 900), listened(3), lossyAt(0.03, 4.8e6)),
			limitUnknown},
		{"lossy behind a policer that dropped before", facts(policer(1e6, 900), listened(0), lossyAt(0.03, 4.8e6)),
			LimitPath},
		{"lossy behind a filter that has dropped, at one look", facts(policer(0, 20), lossyAt(0.03, 4.8e6)),
			limitUnknown},
		{"lossy behind a filter that has hardly dropped, at one look", facts(policer(0, 19), lossyAt(0.03, 4.8e6)),
			LimitPath},
		{"lossy, and a filter at the ingress, at one look", facts(policer(0, 900), hangs(ingressFilters),
			lossyAt(0.03, 4.8e6)), LimitPath},
		{"lossy, and a filter of another device", facts(policer(0, 900), func(f *host.Facts) {
			f.Deep.Droppers[0].Dev = "eth1"
		}, lossyAt(0.03, 4.8e6)), LimitPath},
		{"lossy behind a policer of as much, at one look", facts(policer(5e6, 9), lossyAt(0.03, 4.8e6)),
			LimitPolicer},
		{"lossy behind a firewall rule", facts(lossyAt(0.03, 4.8e6), limits(behind, 3)), limitUnknown},
		{"lossy behind a firewall rule that dropped less", facts(lossyAt(0.03, 4.8e6), limits(behind, 2)), LimitPath},
		{"lossy behind a firewall rule that has dropped, at one look", facts(lossyAt(0.03, 4.8e6), limits(behind),
			dropped(20)), limitUnknown},
		{"lossy behind one that has hardly dropped, at one look", facts(lossyAt(0.03, 4.8e6), limits(behind),
			dropped(19)), LimitPath},
		{"lossy, and a firewall rule for UDP", facts(lossyAt(0.03, 4.8e6), limits(datagrams, 900)), LimitPath},
		{"lossy behind a firewall rule that drops most", facts(lossyAt(0.03, 4.8e6), refuses, limits(behind, 900)),
			limitRule},
		{"lossy where this host refuses", facts(lossyAt(0.03, 4.8e6), refuses), limitRefusal},
		{"lossy behind netem", facts(uplink(t, "netem corrupt 3%", 1), lossyAt(0.03, 4.8e6)), LimitEmulator},
		{"lossy beside a netem that nothing passes", facts(lossyAt(0.03, 4.8e6), inBand(t, "netem loss 3%", 5e7, 0)),
			LimitPath},
		{"a CoDel with a quarter of the RTT", facts(soon(12), loadOf(nothing), roundTrip(48)), limitUnknown},
		{"a CoDel with less", facts(soon(11), loadOf(nothing), roundTrip(48)), LimitQueue},
		{"the same, and it drops less", facts(soon(11), loadOf(nothing), roundTrip(48),
			rose("eth0.queue_drops", 16, "eth0.tx_packets", 9000)), limitUnknown},
		{"the same near its rate", facts(soon(11), loadOf(func(s *host.Sockets) { s.Rate = 70e6 }), roundTrip(48)),
			LimitShaper},
		{"the same at one look", facts(soon(11), loadOf(nothing), roundTrip(48),
			func(f *host.Facts) { f.Deep.Listened, f.Deep.Rose = 0, nil }), limitUnknown},
		{"the same, and programs that are slow", facts(soon(11), roundTrip(48),
			loadOf(func(s *host.Sockets) { s.App = 9 }), roundTrip(48)), LimitProgram},
		{"the same, and receivers", facts(soon(11), loadOf(func(s *host.Sockets) { s.Receiver = 5 }), roundTrip(48)),
			limitReceiver},
		{"the same, and send buffers", facts(soon(11), loadOf(func(s *host.Sockets) { s.Buffer = 5 }), roundTrip(48)),
			LimitBuffer},
		{"the same, and a queue elsewhere", facts(soon(11), load, roundTrip(48)), LimitRate},
		{"the same, and what it drops is lost", facts(soon(11), lossyAt(0.03, 4.8e6), roundTrip(48)), LimitQueue},
		{"the same, and a path that loses far more", facts(soon(11), lossyAt(0.03, 31e6), roundTrip(48)), LimitPath},
		{"a CoDel without a rate", facts(soon(11), uplink(t, "codel interval 11ms", 1), lossyAt(0.03, 4.8e6),
			roundTrip(48)), LimitQueue},
		{"the same of a full device", facts(soon(11), uplink(t, "codel interval 11ms", 1), roundTrip(48),
			loadOf(func(s *host.Sockets) { s.Rate = 940e6 })), limitDevice},
		{"an fq without room", facts(uplink(t, "fq limit 3", 1), rose("eth0.queue_drops", 20, "Ip.OutRequests", 9),
			loadOf(nothing), refuses), LimitQueue},
		{"an fq that hardly drops", facts(uplink(t, "fq limit 3", 1), rose("eth0.queue_drops", 19, "Ip.OutRequests", 9),
			loadOf(nothing), refuses), limitUnknown},
		{"an fq that drops others' packets", facts(uplink(t, "fq", 1),
			rose("eth0.queue_drops", 900, "Ip.OutRequests", 9), loadOf(nothing)), limitUnknown},
		{"an fq_codel that drops", facts(rose("eth0.queue_drops", 900, "Ip.OutRequests", 9), loadOf(nothing), refuses),
			limitUnknown},
		{"an fq_codel without room", facts(uplink(t, "fq_codel limit 4", 1), loadOf(nothing),
			rose("eth0.queue_overflows", 20, "Ip.OutRequests", 9)), LimitQueue},
		{"the same of an idle host", facts(uplink(t, "fq_codel limit 4", 1),
			rose("eth0.queue_overflows", 20, "Ip.OutRequests", 9)), limitNone},
		{"a cake that drops", facts(shaped, rose("eth0.queue_drops", 900, "Ip.OutRequests", 9), loadOf(nothing),
			refuses), limitUnknown},
		{"a red that drops", facts(opaque("red", 0), rose("eth0.queue_drops", 900, "Ip.OutRequests", 9),
			loadOf(nothing), refuses), limitUnknown},
		{"a FIFO without room behind a shaper", facts(uplink(t, "htb rate 50mbit | pfifo limit 4", 1),
			rose("eth0.queue_drops", 40, "Ip.OutRequests", 9), loadOf(nothing), refuses), LimitQueue},
		{"the same near the shaper's rate", facts(uplink(t, "htb rate 50mbit | pfifo limit 4", 1),
			rose("eth0.queue_drops", 40, "Ip.OutRequests", 9), refuses,
			loadOf(func(s *host.Sockets) { s.Rate, s.Refused = 35e6, s.Busy })), LimitShaper},
		{"TCP's memory", facts(loadOf(func(s *host.Sockets) { s.Lossy = 17 }), tcpHolds(246_000)), limitSetting},
		{"TCP's memory, and enough of it", facts(loadOf(func(s *host.Sockets) { s.Lossy = 17 }), tcpHolds(245_999)),
			LimitPath},
		// Transfers that it starves look idle.
		{"TCP's memory, and no traffic", facts(tcpHolds(246_000)), limitSetting},
		{"a slow pace", facts(uplink(t, "fq", 1), sysctl("ipv4.tcp_pacing_ss_ratio", "5"), loadOf(nothing)),
			limitSetting},
		{"a pace of nearly all", facts(uplink(t, "fq", 1), sysctl("ipv4.tcp_pacing_ca_ratio", "99"), loadOf(nothing)),
			limitSetting},
		{"a pace of all", facts(uplink(t, "fq", 1), sysctl("ipv4.tcp_pacing_ca_ratio", "100"), loadOf(nothing)),
			limitUnknown},
		{"a slow pace without fq", facts(sysctl("ipv4.tcp_pacing_ss_ratio", "5"), loadOf(nothing)), limitUnknown},
		{"a slow pace, and no traffic", facts(uplink(t, "fq", 1), sysctl("ipv4.tcp_pacing_ss_ratio", "5")), limitNone},
		{"a policer of uploads", facts(policer(30e6, 9), hangs(ingressFilters), listened(1), uploads(29e6)),
			LimitPolicer},
		{"a policer of uploads, beside downloads", facts(policer(30e6, 9), hangs(ingressFilters), listened(1),
			loadOf(nothing), uploads(29e6)), LimitPolicer},
		{"a policer of uploads, at two thirds more", facts(policer(30e6, 9), hangs(ingressFilters), listened(1),
			uploads(44_900_000)), LimitPolicer},
		{"a policer of uploads, exceeded", facts(policer(30e6, 9), hangs(ingressFilters), listened(1), uploads(45e6)),
			limitNone},
		{"a policer of uploads, a third", facts(policer(30e6, 9), hangs(ingressFilters), listened(1), uploads(10e6)),
			limitNone},
		{"a policer of uploads that drops nothing now", facts(policer(30e6, 9), hangs(ingressFilters), listened(0),
			uploads(29e6)), limitNone},
		{"a policer of what leaves, and uploads", facts(policer(30e6, 9), listened(1), uploads(29e6)), limitNone},
		{"a policer of another device's uploads", facts(policer(30e6, 9), hangs(ingressFilters), listened(1),
			uploads(29e6), func(f *host.Facts) { f.Deep.Droppers[0].Dev = "eth1" }), limitNone},
		{"send buffers", facts(loadOf(func(s *host.Sockets) { s.Buffer, s.Receiver = 5, 5 })), LimitBuffer},
		{"send buffers that are set", facts(loadOf(func(s *host.Sockets) { s.Buffer, s.SendBuffer = 5, 65536 })),
			LimitBuffer},
		{"receivers", facts(loadOf(func(s *host.Sockets) { s.Receiver, s.App = 5, 17 })), limitReceiver},
		{"receivers whose windows this host keeps small", facts(sysctl("ipv4.tcp_window_scaling", "0"),
			loadOf(func(s *host.Sockets) { s.Receiver = 5 })), limitSetting},
		{"receivers behind a shaper", facts(shaped, loadOf(func(s *host.Sockets) { s.Receiver = 5 })), limitReceiver},
		{"a card's queues", facts(txQueues(10e6, 10e6), loadOf(func(s *host.Sockets) { s.Rate = 15e6 })), limitDevice},
		{"one of a card's queues", facts(txQueues(10e6, 10e6),
			loadOf(func(s *host.Sockets) { s.Busy, s.Rate = 1, 9e6 })), limitDevice},
		{"less than a card's queues", facts(txQueues(10e6, 10e6), loadOf(func(s *host.Sockets) { s.Rate = 13e6 })),
			limitUnknown},
		{"more than a card's queues", facts(txQueues(10e6, 10e6), loadOf(func(s *host.Sockets) { s.Rate = 27e6 })),
			limitUnknown},
		{"a card of which one queue is not bounded", facts(txQueues(10e6, 10e6), another,
			loadOf(func(s *host.Sockets) { s.Rate = 15e6 })), limitUnknown},
		{"a card's queues, and no traffic", facts(txQueues(10e6)), limitNone},
		{"a cbs", facts(opaque("cbs", 20e6), loadOf(func(s *host.Sockets) { s.Rate = 19e6 })), LimitShaper},
		{"a route's cwnd", facts(loadOf(func(s *host.Sockets) { s.Clamped = 5 }),
			routed(map[string]int{"cwnd": 10}, "cwnd")), limitRoute},
		{"a route's cwnd, of few", facts(loadOf(func(s *host.Sockets) { s.Clamped = 4 }),
			routed(map[string]int{"cwnd": 10}, "cwnd")), limitUnknown},
		{"a route's cwnd, and a queue", facts(load, sockets(func(s *host.Sockets) { s.Clamped = 17 }),
			routed(map[string]int{"cwnd": 10}, "cwnd")), LimitRate},
		{"another device's route's cwnd", facts(loadOf(func(s *host.Sockets) { s.Clamped = 5 }),
			routed(map[string]int{"cwnd": 10}, "cwnd"),
			func(f *host.Facts) { f.Deep.Routes[0].Dev = "eth1" }), limitUnknown},
		{"a small receive buffer", facts(brings(8, host.Windows{Maximum: 2, Largest: 49152})), limitWindow},
		{"a small receive buffer of few", facts(brings(9, host.Windows{Maximum: 2})), limitNone},
		{"small windows of three kinds", facts(brings(9, host.Windows{Maximum: 1, Scale: 1, Fixed: 1})), limitWindow},
		{"a small window of a busy host", facts(loadOf(nothing), brings(1, host.Windows{Scale: 1})), limitWindow},
		{"a small window, and a queue", facts(load, brings(1, host.Windows{Fixed: 1})), LimitRate},
		{"receive buffers that may not grow", facts(sysctl("ipv4.tcp_moderate_rcvbuf", "0"),
			brings(1, host.Windows{Fixed: 1})), limitSetting},
		{"windows that this host keeps small", facts(sysctl("ipv4.tcp_window_scaling", "0"),
			brings(1, host.Windows{Scale: 1})), limitSetting},
		{"a program that does not read", facts(brings(4, host.Windows{Unread: 1, Maximum: 1})), LimitProgram},
		{"CPU", facts(cpu, loadOf(nothing)), limitCPU},
		{"CPU, no traffic", facts(cpu), limitNone},
		{"CPU, connections unknown", facts(cpu, sockets(func(s *host.Sockets) { *s = host.Sockets{} })), limitUnknown},
		{"a quota of CPU", facts(rose("throttled.", 50, "periods.", 100),
			loadOf(func(s *host.Sockets) { s.App = 17 })), LimitProgram},
		{"a quota of something else", facts(rose("throttled.backup.service", 50, "periods.backup.service", 100),
			loadOf(func(s *host.Sockets) { s.Lossy = 5 })), LimitPath},
		{"a queue elsewhere, and a DNS server that drops",
			facts(load, rose("Udp.RcvbufErrors", 50, "Udp.InDatagrams", 9)), LimitRate},
		{"a DNS server that drops, and no tunnel", facts(rose("Udp.RcvbufErrors", 50, "Udp.InDatagrams", 9),
			loadOf(func(s *host.Sockets) { s.Lossy = 5 })), LimitPath},
		{"a queue elsewhere, and a little steal", facts(load, rose("cpu.steal", 300, "cpu.had", 700)), LimitRate},
		{"drops of the card before the path", facts(rose("eth0.tx_dropped", 50, "eth0.tx_packets", 9000),
			loadOf(func(s *host.Sockets) { s.Lossy = 5 })), limitDevice},
		{"full sockets are no bottleneck of what runs", facts(rose("TcpExt.ListenDrops", 50, "Tcp.PassiveOpens", 9),
			loadOf(func(s *host.Sockets) { s.Lossy = 5 })), LimitPath},
		{"device", facts(speed(1e9), loadOf(func(s *host.Sockets) { s.Rate = 940_000_000 })), limitDevice},
		{"device has room", facts(speed(1e9), loadOf(func(s *host.Sockets) { s.Rate = 890_000_000 })), limitUnknown},
		{"little more than programs", facts(loadOf(func(s *host.Sockets) { s.Busy, s.App = 18, 9 })), LimitProgram},
		{"a quarter queues", facts(load, sockets(func(s *host.Sockets) { s.Busy, s.Queueing = 16, 4 })), LimitRate},
		{"netem", facts(uplink(t, "netem loss 1%", 1), loadOf(nothing)), LimitEmulator},
		{"netem, and no traffic", facts(uplink(t, "netem loss 1%", 1)), limitNone},
		{"netem that nothing passes", facts(load, inBand(t, "netem delay 100ms", 5e7, 0)), LimitRate},
		{"netem that most passes", facts(loadOf(nothing), inBand(t, "netem delay 100ms", 5e7, 4e7)), LimitEmulator},
		{"netem without an effect", facts(uplink(t, "netem limit 1000", 1), loadOf(nothing)), limitUnknown},
		{"fq's maxrate that nothing passes", facts(loadOf(func(s *host.Sockets) { s.Lossy, s.Rate = 17, 17*5e6 }),
			inBand(t, "fq maxrate 5mbit", 5e7, 0)), LimitPath},
		{"fq's maxrate that most passes", facts(loadOf(func(s *host.Sockets) { s.Lossy, s.Rate = 17, 17*5e6 }),
			inBand(t, "fq maxrate 5mbit", 5e7, 4e7)), LimitFlow},
		{"fq's maxrate", facts(uplink(t, "fq maxrate 10mbit", 1),
			loadOf(func(s *host.Sockets) { s.Busy, s.Rate = 3, 21e6 })), LimitFlow},
		{"fq's maxrate, at most", facts(uplink(t, "fq maxrate 10mbit", 1),
			loadOf(func(s *host.Sockets) { s.Busy, s.Rate = 3, 39e6 })), LimitFlow},
		{"fq's maxrate, and less", facts(uplink(t, "fq maxrate 10mbit", 1),
			loadOf(func(s *host.Sockets) { s.Busy, s.Rate = 3, 20.9e6 })), limitUnknown},
		{"fq's maxrate, and more", facts(uplink(t, "fq maxrate 10mbit", 1),
			loadOf(func(s *host.Sockets) { s.Busy, s.Rate = 3, 39.1e6 })), limitUnknown},
		{"fq's maxrate, and no traffic", facts(uplink(t, "fq maxrate 10mbit", 1)), limitNone},
		{"a shaper with little room, and less than seven tenths", facts(shaped,
			rose("eth0.queue_drops", 40, "Ip.OutRequests", 9000),
			loadOf(func(s *host.Sockets) { s.Rate = 34_900_000 })), limitUnknown},
		{"a shaper with little room, and seven tenths", facts(shaped,
			rose("eth0.queue_drops", 1, "Ip.OutRequests", 9000),
			loadOf(func(s *host.Sockets) { s.Rate = 35_000_000 })), LimitShaper},
		{"seven tenths, and nothing dropped", facts(shaped, loadOf(func(s *host.Sockets) { s.Rate = 35_000_000 })),
			limitUnknown},
		{"device, nine tenths", facts(speed(1e9), loadOf(func(s *host.Sockets) { s.Rate = 900_000_000 })), limitDevice},
		{"device, whose speed cannot be", facts(speed(1e9), loadOf(func(s *host.Sockets) { s.Rate = 1_300_000_001 })),
			limitUnknown},
		{"device, whose speed is not known", facts(speed(0), loadOf(func(s *host.Sockets) { s.Rate = 940_000_000 })),
			limitUnknown},
		{"CPU, a little", facts(func(f *host.Facts) { f.Deep.CPU = 0.49 }, loadOf(nothing)), limitUnknown},
		{"a policer, at two thirds more", facts(policer(30e6, 9),
			loadOf(func(s *host.Sockets) { s.Rate = 44_900_000 })),
			LimitPolicer},
		{"a policer, exceeded", facts(policer(30e6, 9), loadOf(func(s *host.Sockets) { s.Rate = 45_000_000 })),
			limitUnknown},
		{"a policer, a third", facts(policer(30e6, 9), loadOf(func(s *host.Sockets) { s.Rate = 10_000_000 })),
			limitUnknown},
		{"a policer, a little more", facts(policer(30e6, 9), loadOf(func(s *host.Sockets) { s.Rate = 10_000_001 })),
			LimitPolicer},
		{"a policer of what arrives", facts(policer(30e6, 9), hangs(ingressFilters), loadOf(nothing)), limitUnknown},
		{"a policer of another device", facts(policer(30e6, 9), loadOf(nothing),
			func(f *host.Facts) { f.Deep.Droppers[0].Dev = "eth1" }), limitUnknown},
		{"a policer that has dropped nothing", facts(policer(30e6, 0), loadOf(nothing)), limitUnknown},
		{"a policer, and a queue", facts(policer(47e6, 9), load), LimitRate},
		{"a rule that drops", facts(loadOf(nothing), refuses, limits(outgoing, 20)), limitRule},
		{"a rule that hardly drops", facts(loadOf(nothing), refuses, limits(outgoing, 19)), limitRefusal},
		{"a rule that drops, and nobody suffers", facts(loadOf(nothing), limits(outgoing, 900)), limitUnknown},
		{"a rule that drops less than the queue", facts(loadOf(nothing), refuses, limits(outgoing, 900),
			rose("eth0.queue_drops", 901, "Ip.OutRequests", 9000)), limitUnknown},
		{"a rule that drops before a policer", facts(policer(30e6, 9), listened(9), loadOf(nothing), refuses,
			limits(outgoing, 900)), limitRule},
		{"a rule that drops pings", facts(loadOf(nothing), refuses, limits(pings, 900)), limitRefusal},
		{"a rule that drops what arrives", facts(loadOf(nothing), refuses, limits(passwords, 900)), limitRefusal},
		{"a rule that drops what is forwarded", facts(loadOf(nothing), refuses, limits(passing, 900)), limitRefusal},
		{"something drops, on a path that loses", facts(loadOf(func(s *host.Sockets) { s.Lossy = 5 }), refuses),
			limitRefusal},
		{"something drops, and another device's queue counts it", facts(loadOf(nothing),
			rose("eth1.queue_drops", 1, "Ip.OutRequests", 9), refuses, func(f *host.Facts) {
				f.Links = append(f.Links, host.Link{Name: "eth1", Up: true})
			}), limitUnknown},
		{"something drops, and the queue of what arrives counts other packets", facts(loadOf(nothing),
			rose("ifb0.queue_drops", 1, "Ip.OutRequests", 9), refuses, func(f *host.Facts) {
				f.Links = append(f.Links, host.Link{Name: "ifb0", Up: true})
				f.Links[1].Redirect = "ifb0"
			}), limitRefusal},
		{"an allowance, and a path that loses", facts(rose("eth0.pps_allowance_exceeded", 40, "eth0.tx_packets", 9000),
			loadOf(func(s *host.Sockets) { s.Lossy = 5 })), limitAllowance},
		{"an allowance, and no loss", facts(rose("eth0.pps_allowance_exceeded", 40, "eth0.tx_packets", 9000),
			loadOf(nothing)), limitUnknown},
		{"an allowance, and a queue", facts(rose("eth0.pps_allowance_exceeded", 40, "eth0.tx_packets", 9000), load),
			LimitRate},
		{"a filter that drops, whatever the rate", facts(policer(0, 90), loadOf(nothing), refuses, listened(20)),
			LimitPolicer},
		{"a filter that hardly drops", facts(policer(0, 90), loadOf(nothing), refuses, listened(19)), limitUnknown},
		{"a filter that drops, and nobody suffers", facts(policer(0, 90), loadOf(nothing), listened(90)), limitUnknown},
		{"a filter that drops less than the queue", facts(policer(0, 90), loadOf(nothing), refuses, listened(90),
			rose("eth0.queue_drops", 91, "Ip.OutRequests", 9000)), limitUnknown},
		{"a pace that programs set", facts(loadOf(func(s *host.Sockets) { s.Paced, s.Pace = 5, 5e6 })), limitPace},
		{"a pace, and a queue", facts(load, sockets(func(s *host.Sockets) { s.Paced, s.Pace = 17, 5e6 })), LimitRate},
		{"a pace of one in five", facts(loadOf(func(s *host.Sockets) { s.Paced, s.Pace = 4, 5e6 })), limitUnknown},
		{"half of the wait is here", facts(load, counts(qdisc.Stats{Backlog: 487_900})), limitDevice},
		{"a little less than half", facts(load, counts(qdisc.Stats{Backlog: 487_800})), LimitRate},
		{"nineteen drops", facts(rose("eth0.tx_dropped", 19, "eth0.tx_packets", 9000), loadOf(nothing)), limitUnknown},
		{"twenty drops", facts(rose("eth0.tx_dropped", 20, "eth0.tx_packets", 9000), loadOf(nothing)), limitDevice},
		{"a quota of a tenth", facts(rose("throttled.", 10, "periods.", 100),
			loadOf(func(s *host.Sockets) { s.App = 17 })), LimitProgram},
		{"a quota of less", facts(rose("throttled.", 9, "periods.", 100),
			loadOf(func(s *host.Sockets) { s.App = 17 })), LimitProgram},
		{"several classes", facts(classes, loadOf(func(s *host.Sockets) { s.Rate = 45_000_000 })), LimitShaper},
		{"classes that nothing passes", facts(classes, func(f *host.Facts) {
			for i := range f.Links[1].Tree.Classes {
				f.Links[1].Tree.Classes[i].Stats = qdisc.Stats{}
			}
		}, loadOf(func(s *host.Sockets) { s.Rate = 45_000_000 })), limitUnknown},
		{"far more than a shaper passes", facts(shaped, loadOf(func(s *host.Sockets) { s.Rate = 65_000_001 })),
			limitUnknown},
		{"far more than a shaper passes, and it drops", facts(shaped, rose("eth0.queue_drops", 9, "Ip.OutRequests", 9),
			loadOf(func(s *host.Sockets) { s.Rate = 65_000_001 })), limitUnknown},
		{"a shaper that few packets passed", facts(shaped, counts(qdisc.Stats{Bytes: 7 * 1514}),
			loadOf(func(s *host.Sockets) { s.Rate = 48_000_000 })), limitUnknown},
		{"a shaper that passed much, but not lately", facts(shaped, left(1e9, 31_000_000),
			loadOf(func(s *host.Sockets) { s.Rate = 48_000_000 })), limitUnknown},
		{"a shaper that passed much half of the time", facts(shaped, left(1e9, 31_250_000),
			loadOf(func(s *host.Sockets) { s.Rate = 48_000_000 })), LimitShaper},
		{"a shaper by what left, whatever TCP says", facts(shaped, left(1e9, 57_000_000), loadOf(nothing)),
			LimitShaper},
		{"a relay's shaper, by what left", facts(forwards, shaped, left(1e9, 57_000_000)), LimitShaper},
		{"a shaper by what left, and no traffic of TCP", facts(shaped, left(1e9, 57_000_000)), limitNone},
		{"programs", facts(loadOf(func(s *host.Sockets) { s.App = 9 })), LimitProgram},
		{"some programs", facts(loadOf(func(s *host.Sockets) { s.App = 8 })), limitUnknown},
	}
}

// lossyAt has connections that all lose such a share of what they send, and deliver so much.
func lossyAt(share units.Share, rate units.Rate) func(*host.Facts) {
	return func(f *host.Facts) {
		load(f)
		s := &f.Deep.Sockets
		s.Queueing, s.Lossy, s.LossyShare, s.Rate = 0, s.Busy, share, rate
	}
}

// dropped is what the first rule of netfilter has ever dropped, in packets.
func dropped(n uint64) func(*host.Facts) {
	return func(f *host.Facts) { f.Deep.Netfilter.Suspects[0].Dropped = n }
}

// uploads has four connections that bring in so much.
func uploads(rate units.Rate) func(*host.Facts) {
	return func(f *host.Facts) { f.Deep.Sockets.Receiving, f.Deep.Sockets.Received = 4, rate }
}

// tcpHolds has TCP hold so many bytes, of 246 kB that it may have.
func tcpHolds(n units.Size) func(*host.Facts) {
	return func(f *host.Facts) { f.Deep.TCPMemory = host.TCPMemory{Held: n, Mark: 246_000} }
}

func TestBinds(t *testing.T) {
	for _, test := range bounds(t) {
		t.Run(test.name, func(t *testing.T) {
			got := FindBottleneck(test.facts)
			if got.Limit != test.want || got.Says == "" {
				t.Errorf("%+v, want %s", got, test.want)
			}
			agrees(t, got, Diagnose(test.facts))
		})
	}
}

// agrees reports whether findings say of the limit what the verdict says.
func agrees(t *testing.T, b Bottleneck, findings []Finding) {
	t.Helper()
	says := func(codes ...Code) bool {
		return slices.ContainsFunc(findings, func(f Finding) bool { return slices.Contains(codes, f.Code) })
	}
	wrong := !says(b.Limit.codes()...)
	if b.Limit.codes() == nil { // nothing that binds was seen
		wrong = says(slices.Concat(LimitRate.codes(), LimitPath.codes(), LimitBuffer.codes(), limitReceiver.codes(),
			limitWindow.codes(),
			limitCPU.codes(), []Code{"queue-in-fifo", "queue-here", "device-full"})...)
	}
	unless := func(l Limit) bool { return b.Limit != l && says(l.codes()...) }
	others := unless(LimitRate) || unless(LimitQueue)
	switch b.Limit {
	case LimitPolicer, LimitEmulator, limitRule, limitRefusal, limitSetting: // they drop what the path seems to lose
		others = others || says(LimitPath.codes()...)
	}
	if wrong || others || b.Lacks != "" && b.Try == "" {
		t.Errorf("the verdict is %+v, and the findings are %+v", b, findings)
	}
}

// What is not seen of any busy connection is said of none, and what is seen of some, of those.
func TestSymptoms(t *testing.T) {
	for want, edit := range map[string]func(*host.Sockets){
		"17 busy connections, and none waits in a queue, loses packets or is held back by an end": func(
			*host.Sockets) {
		},
		"17 busy connections, of which 5 lose packets, and none waits in a queue or is held back by an end": func(
			s *host.Sockets) {
			s.Lossy = 5
		},
		"17 busy connections, of which 1 waits in a queue and 1 waits for a receiver's window, and none loses " +
			"packets or waits for room in a send buffer": func(s *host.Sockets) { s.Queueing, s.Receiver = 1, 1 },
		"17 busy connections, of which 2 wait in a queue, 3 lose packets, 4 wait for a receiver's window and 5 wait " +
			"for room in a send buffer": func(s *host.Sockets) {
			s.Queueing, s.Lossy, s.Receiver, s.Buffer = 2, 3, 4, 5
		},
	} {
		f := with(t, looked, load, noQueue, sockets(edit))
		if got := examine(f).symptoms(); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

// What comes in is not said to be nothing; and who has listened is not told to do that.
func TestUploadsAlone(t *testing.T) {
	for _, c := range []struct {
		name  string
		edits edits
		want  Bottleneck
	}{
		{"once", edits{uploads(0)}, Bottleneck{Limit: limitNone,
			Says:  "cannot be told: what holds back 4 incoming transfers is not known.",
			Lacks: "what holds back 4 incoming transfers is not known",
			Try:   "weir doctor --listen 10s", Remark: "while they run"}},
		{"for a while", edits{brings(4, host.Windows{})}, Bottleneck{Limit: limitNone,
			Says: "not this host: it does not hold back the 4 incoming transfers that there are."}},
		{"some with small windows", edits{brings(9, host.Windows{Maximum: 2})}, Bottleneck{Limit: limitNone,
			Says: "not this host: of 9 incoming transfers, 2 used up their window."}},
		{"none, for a while", edits{brings(0, host.Windows{})}, Bottleneck{Limit: limitNone,
			Says: "nothing now: no connection is busy.", Lacks: "no connection is busy",
			Try: "weir doctor --listen 10s", Remark: "again, while a download runs"}},
	} {
		if got := FindBottleneck(with(t, append(edits{looked}, c.edits...)...)); got != c.want {
			t.Errorf("%s: %+v", c.name, got)
		}
	}
}

// A shaper is named where it is: of several below each other, by the one with the lowest rate.
func TestShaperName(t *testing.T) {
	const slow = "tbf rate 50mbit burst 20k limit 200k"
	for stack, want := range map[string]string{
		"cake bandwidth 49.875mbit":                               "the rate that cake on eth0 enforces, 49.875mbit.",
		"htb rate 50mbit | fq_codel":                              "the rate that htb on eth0 enforces, 50mbit.",
		"htb rate 500mbit | " + slow:                              "the rate that tbf 2: on eth0 enforces, 50mbit.",
		"tbf rate 500mbit burst 200k limit 200k | " + slow:        "the rate that tbf 2: on eth0 enforces, 50mbit.",
		"htb rate 50mbit | tbf rate 500mbit burst 20k limit 200k": "the rate that htb on eth0 enforces, 50mbit.",
	} {
		f := with(t, looked, uplink(t, stack, 1), load, noQueue, sockets(func(s *host.Sockets) { s.Rate = 49_000_000 }))
		if got := FindBottleneck(f).Says; got != want {
			t.Errorf("%s: %s", stack, got)
		}
	}
}

// Acknowledgements wait in this host's own queue of what comes in, too: what is held there at its rate explains a wait,
// whatever leaves.
func TestWaitInward(t *testing.T) {
	for _, c := range []struct {
		name    string
		queue   string
		backlog uint64
		want    string
	}{
		{"half of the wait", "tbf rate 150kbit burst 5kb limit 60kb", 1538,
			"the rate that tbf on ifbx enforces, 150kbit."},
		{"a little less", "tbf rate 150kbit burst 5kb limit 60kb", 1537,
			"a rate enforced beyond this host, below what eth0 could send: " +
				"14 of 17 busy connections wait, and not here."},
		{"no rate there", "fq_codel", 60000,
			"a rate enforced beyond this host, below what eth0 could send: " +
				"14 of 17 busy connections wait, and not here."},
	} {
		f := with(t, looked, load, func(f *host.Facts) {
			ifb := host.Link{Index: 9, Name: "ifbx", Kind: "ifb", Up: true, Tree: tree(t, c.queue, 1)}
			ifb.Tree.Qdiscs[0].Stats = qdisc.Stats{Backlog: c.backlog, Qlen: 20}
			f.Links[1].Redirect = "ifbx"
			f.Links = append(f.Links, ifb)
		})
		got := FindBottleneck(f)
		if got.Says != c.want {
			t.Errorf("%s: %+v", c.name, got)
		}
		agrees(t, got, Diagnose(f))
	}
}

// A limit on a device below the uplink is this host's own, too, and named by where it is.
func TestBelowUplink(t *testing.T) {
	below := func(upper host.Link, master, kind string) func(*host.Facts) {
		return func(f *host.Facts) {
			upper.Index, upper.Name, upper.Up = 9, "up0", true
			upper.Tree = tree(t, "noqueue", 1)
			f.Links[1].Master, f.Links[1].Kind, f.Links[1].Addrs = master, kind, nil
			f.Links, f.Uplink = append(f.Links, upper), "up0"
		}
	}
	idlePort := func(f *host.Facts) {
		f.Links = append(f.Links, host.Link{Index: 8, Name: "veth9", Kind: "veth", Master: "up0", Up: true,
			Tree: tree(t, "tbf rate 1mbit burst 32k latency 50ms", 1)})
	}
	arrangements := map[string]func(*host.Facts){
		"a bridge": below(host.Link{Kind: "bridge"}, "up0", "veth"),
		"a bridge of two": func(f *host.Facts) {
			below(host.Link{Kind: "bridge"}, "up0", "veth")(f)
			idlePort(f)
			f.Links[1].Tree.Qdiscs[0].Stats.Recent.Drops = 1
		},
		"a bond": below(host.Link{Kind: "bond"}, "up0", ""),
		"Open vSwitch": func(f *host.Facts) {
			below(host.Link{Kind: "openvswitch"}, "ovs-system", "")(f)
			f.Links = append(f.Links, host.Link{Index: 8, Name: "ovs-system", Kind: "openvswitch"})
		},
		"a VLAN": below(host.Link{Kind: "vlan", Parent: "eth0"}, "", ""),
	}
	loadOf := func(rate units.Rate) func(*host.Facts) {
		return func(f *host.Facts) {
			load(f)
			f.Deep.Sockets.Queueing, f.Deep.Sockets.Rate = 0, rate
		}
	}
	tbf := uplink(t, "tbf rate 20mbit burst 20k limit 200k", 1)
	for _, c := range []struct {
		name  string
		edits edits
		want  Bottleneck
	}{
		{"a shaper with a queue", edits{tbf, load, counts(qdisc.Stats{Backlog: 950_000})},
			Bottleneck{Limit: LimitShaper, Says: "the rate that tbf on eth0 enforces, 20mbit."}},
		{"a shaper", edits{tbf, loadOf(19e6)},
			Bottleneck{Limit: LimitShaper, Says: "the rate that tbf on eth0 enforces, 20mbit."}},
		{"a queue", edits{load, counts(qdisc.Stats{Backlog: 950_000})}, Bottleneck{Limit: limitDevice,
			Says: "eth0 itself: 14 of 17 busy connections wait, and the queue is here."}},
		{"a short queue", edits{uplink(t, "pfifo limit 9", 1), loadOf(30e6),
			rose("eth0.queue_drops", 40, "eth0.tx_packets", 9000),
			sockets(func(s *host.Sockets) { s.Lossy = 9 })}, Bottleneck{Limit: LimitQueue,
			Says: "this host: pfifo on eth0 drops what it has no room for."}},
		{"a bad card", edits{loadOf(30e6), rose("eth0.tx_errors", 40, "eth0.tx_packets", 9000)}, Bottleneck{
			Limit: limitDevice, Says: "this host: the device drops what leaves."}},
		{"netem", edits{uplink(t, "netem loss 1%", 1), loadOf(30e6)}, Bottleneck{Limit: LimitEmulator,
			Says: "this host: netem loss random 1% on eth0, which is there to make things worse."}},
		{"netem, as the kernel reports it", edits{uplink(t, "netem loss 1% seed 7357412090685238692", 1), loadOf(30e6)},
			Bottleneck{Limit: LimitEmulator,
				Says: "this host: netem loss random 1% on eth0, which is there to make things worse."}},
		{"a policer", edits{policer(30e6, 9), loadOf(29e6)}, Bottleneck{Limit: LimitPolicer,
			Says: "this host: the filter u32 on eth0, at its egress drops what exceeds 30mbit."}},
		{"a rate of each connection", edits{uplink(t, "fq maxrate 10mbit", 1), loadOf(17 * 10e6)}, Bottleneck{
			Limit: LimitFlow, Says: "this host: fq on eth0 lets each connection have 10mbit."}},
		{"a queue elsewhere", edits{load}, Bottleneck{Limit: LimitRate, Says: "a rate enforced beyond this host, " +
			"below what up0 could send: 14 of 17 busy connections wait, and not here."}},
	} {
		for over, arrange := range arrangements {
			facts := with(t, append(append(edits{looked}, c.edits...), arrange)...)
			if got := FindBottleneck(facts); got != c.want {
				t.Errorf("%s below %s: %+v", c.name, over, got)
			}
		}
	}
}

// Each limit is at one stage, or it is none that holds anything back.
func TestEachLimitHasAStage(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), "limit.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	limits := 0
	ast.Inspect(file, func(n ast.Node) bool {
		spec, is := n.(*ast.ValueSpec)
		if !is {
			return true
		}
		if kind, named := spec.Type.(*ast.Ident); !named || kind.Name != "Limit" {
			return true
		}
		text, err := strconv.Unquote(spec.Values[0].(*ast.BasicLit).Value)
		if err != nil {
			t.Fatal(err)
		}
		limits++
		want := 1
		if l := Limit(text); l == limitNone || l == limitUnknown {
			want = 0
		}
		var holding []string
		for _, s := range examine(with(t, looked)).stages(Bottleneck{Limit: Limit(text)}) {
			if s.Holds {
				holding = append(holding, s.Name)
			}
		}
		if len(holding) != want {
			t.Errorf("%s holds at %q", text, holding)
		}
		return true
	})
	if limits < 20 {
		t.Errorf("%d limits", limits)
	}
}

// A device to which filters lead what leaves is one that it passes, if it is most of it.
func TestLedOut(t *testing.T) {
	for passed, want := range map[uint64]string{
		5e8: "the rate that tbf on ifbx enforces, 20mbit.",
		5e8 - 1: "a rate enforced beyond this host, below what eth0 could send: " +
			"14 of 17 busy connections wait, and not here.",
	} {
		f := with(t, looked, uplink(t, "fq_codel", 1), load, func(f *host.Facts) {
			ifb := host.Link{Index: 9, Name: "ifbx", Kind: "ifb", Up: true,
				Tree: tree(t, "tbf rate 20mbit burst 20k limit 200k", 1)}
			ifb.Tree.Qdiscs[0].Stats = qdisc.Stats{Bytes: passed, Backlog: 950_000, Qlen: 20}
			f.Links[1].LedOut = []string{"ifbx"}
			f.Links = append(f.Links, ifb)
		})
		if got := FindBottleneck(f).Says; got != want {
			t.Errorf("%d bytes: %s", passed, got)
		}
	}
}
