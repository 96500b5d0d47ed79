// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"weir/internal/text"
)

// tally is a counter of this host that tells of a bottleneck while it rises.
type tally struct {
	Finding          // without what was seen; DEV stands for the uplink
	lost    []string // counters of what went wrong
	whole   []string // the counters of which that is a share
	least   float64  // the share from which on it matters
	unit    string   // of what is counted, for one of them
	limit   Limit    // that it shows; limitNone: it slows no transfer that is under way
}

// The shares are where what TCP makes of such losses at 50 ms begins to cost a tenth of 100 Mbit/s (RFC 3649,
// section 2), or where what is not lost but done twice costs as much.
const (
	costlyLoss = 1e-4
	costlyWork = 0.1
	// of packets as the kernel counts them, which may be as large as 44 fragments (64 KB)
	costlyFragments = 0.8
)

// minEvents are so many as are no accident, whatever they are a share of.
const minEvents = 20

func tallies() []tally {
	return append([]tally{
		{Finding: Finding{Code: "listen-queue-full", Severity: Notable,
			Plain: "Some who connect to this server have to try again: a program here takes connections too slowly.",
			Title: "A listening socket's queue is full.",
			Why: "What finds no room is dropped, and comes again after a second or more (listen(2); " +
				"net.core.somaxconn bounds every queue).",
			Remark: "ss -lnt shows it: the socket whose Recv-Q is at its Send-Q"},
			lost: []string{"TcpExt.ListenDrops"}, whole: []string{"Tcp.PassiveOpens"},
			least: 0.01, unit: "connection attempt",
			limit: limitNone},
		{Finding: Finding{Code: "packets-in-fragments", Severity: Notable,
			Plain: "Packets that leave this server are cut in pieces: a tunnel, or a program that uses UDP, makes " +
				"them too large.",
			Title: "Packets leave in fragments.",
			Why: "Each costs two packets, and many networks drop fragments. A tunnel's MTU plus what it adds has to " +
				"fit into the MTU of the device below it, and into the path's.",
			Remark: "a smaller MTU for the tunnel, such as 1280: ip link set dev TUNNEL mtu 1280"},
			lost: []string{"Ip.FragCreates"}, whole: []string{"Ip.OutRequests", "Ip.ForwDatagrams"},
			least: costlyFragments, unit: "fragment",
			limit: limitFragments},
		{Finding: Finding{Code: "fragments-lost", Severity: Notable,
			Plain:  "Packets that reach this server in pieces are lost, as not all pieces arrive.",
			Title:  "Fragments do not come together.",
			Why:    "Who sends them, a tunnel's other end as a rule, makes packets that are too large for the way.",
			Remark: "a smaller MTU for the tunnel at the other end, such as 1280"},
			lost: []string{"Ip.ReasmFails"}, whole: []string{"Ip.ReasmReqds"},
			least: costlyLoss, unit: "datagram",
			limit: limitFragments},
		{Finding: Finding{Code: "udp-buffers-full", Severity: Notable,
			Plain: "A program on this server, a tunnel or a game or a DNS server, reads too slowly what reaches it.",
			Title: "UDP sockets' receive buffers are full.",
			Why: "What finds no room is dropped here, and to a tunnel's TCP that looks like a path that loses " +
				"packets.",
			Remark: "ss -lunpm shows the socket, behind d; net.core.rmem_max bounds what its program may ask for"},
			lost: []string{"Udp.RcvbufErrors"}, whole: []string{"Udp.InDatagrams"},
			least: costlyLoss, unit: "datagram",
			limit: limitUDP},
		{Finding: Finding{Code: "udp-buffers-full-out", Severity: Notable,
			Plain: "A program on this server, such as a tunnel, sends faster than its buffer allows.",
			Title: "UDP sockets' send buffers are full.",
			Why: "What finds no room is dropped here, and to a tunnel's TCP that looks like a path that loses " +
				"packets.",
			Remark: "ss -unpm shows the socket; net.core.wmem_max bounds what its program may ask for"},
			lost: []string{"Udp.SndbufErrors"}, whole: []string{"Udp.OutDatagrams"},
			least: costlyLoss, unit: "datagram",
			limit: limitUDP},
		{Finding: Finding{Code: "backlog-drops", Severity: Notable,
			Plain:  "Packets that reach this server are dropped, as no processor takes them in time.",
			Title:  "A CPU's backlog is full.",
			Why:    "One core takes all that is received, or has no time for it (net.core.netdev_max_backlog).",
			Remark: "cat /proc/net/softnet_stat has a line a CPU, the second number is what was dropped"},
			lost: []string{"softnet.dropped"}, whole: []string{"softnet.processed"},
			least: costlyLoss, unit: "packet",
			limit: limitCPU},
		{Finding: Finding{Code: "device-drops", Severity: Notable,
			Plain: "This server's network card, or its driver, loses packets that leave.",
			Title: "The device drops what leaves.",
			Why: "It happens behind every queue that can be set, and to TCP it looks like a path that loses " +
				"packets.",
			Remark: "ip -s -s link show dev DEV; ethtool -S DEV"},
			lost: []string{"DEV.tx_dropped", "DEV.tx_errors"}, whole: []string{"DEV.tx_packets"},
			least: costlyLoss, unit: "packet",
			limit: limitDevice},
		{Finding: Finding{Code: "device-misses", Severity: Notable,
			Plain:  "This server's network card has no room for packets that arrive.",
			Title:  "The device misses what arrives.",
			Why:    "Its ring is full, as nobody empties it in time.",
			Remark: "ethtool -g DEV shows the ring, ethtool -G DEV rx N makes it longer"},
			lost: []string{"DEV.rx_missed_errors", "DEV.rx_fifo_errors"}, whole: []string{"DEV.rx_packets"},
			least: costlyLoss, unit: "packet",
			limit: limitDevice},
		{Finding: Finding{Code: "conntrack-drops", Severity: Notable,
			Plain:  "This server's firewall drops packets of connections that it cannot keep track of.",
			Title:  "Connection tracking drops packets.",
			Why:    "Its table has no room, or two packets opened the same connection at once, as DNS's do.",
			Remark: "sysctl net.netfilter.nf_conntrack_count net.netfilter.nf_conntrack_max"},
			lost: []string{"conntrack.drop"}, whole: []string{"Ip.OutRequests"},
			least: costlyLoss, unit: "packet",
			limit: limitNone},
		{Finding: Finding{Code: "cpu-stolen", Severity: Notable,
			Plain:  "The machine that this server runs on gives its processors to others.",
			Title:  "The hypervisor takes the CPU.",
			Why:    "A virtual CPU that does not run sends nothing, and packets wait in bursts.",
			Remark: "nothing here helps: a plan whose CPUs are your own, or another provider"},
			lost: []string{"cpu.steal"}, whole: []string{"cpu.had"},
			least: costlyWork, unit: "tick",
			limit: limitCPU},
	}, allowances()...)
}

// allowances are what clouds give an instance, as far as a driver counts what exceeds them: queued or dropped, AWS says
// (docs.aws.amazon.com/AWSEC2/latest/UserGuide/monitoring-network-performance-ena.html). So it is a limit only of
// connections that lose packets besides.
func allowances() (all []tally) {
	for _, a := range []struct {
		counter, unit string
		what          string // is used up
		limit         Limit
		whole         []string
	}{
		{"bw_in_allowance_exceeded", "packet", "incoming bandwidth", limitAllowance, []string{"DEV.rx_packets"}},
		{"rx_hw_ratelimit_bytes", "byte", "incoming bandwidth", limitAllowance, []string{"DEV.rx_bytes"}},
		{"bw_out_allowance_exceeded", "packet", "outgoing bandwidth", limitAllowance, []string{"DEV.tx_packets"}},
		{"tx_hw_ratelimit_bytes", "byte", "outgoing bandwidth", limitAllowance, []string{"DEV.tx_bytes"}},
		{"pps_allowance_exceeded", "packet", "packets in a second", limitAllowance,
			[]string{"DEV.tx_packets", "DEV.rx_packets"}},
		{"conntrack_allowance_exceeded", "packet", "connections", limitNone,
			[]string{"DEV.tx_packets", "DEV.rx_packets"}},
		{"linklocal_allowance_exceeded", "packet", "queries to its DNS and other services", limitNone,
			[]string{"DEV.tx_packets"}},
	} {
		all = append(all, tally{Finding: Finding{Code: "allowance-exceeded", Severity: Notable,
			Plain:  fmt.Sprintf("This server has used up what the provider allows it of %s.", a.what),
			Title:  fmt.Sprintf("The provider's allowance of %s is used up.", a.what),
			Why:    "What exceeds it the provider queues or drops, and no setting here changes that.",
			Remark: "a larger instance, or less traffic; ethtool -S DEV shows the counter"},
			lost: []string{"DEV." + a.counter}, whole: a.whole, least: costlyLoss, unit: a.unit, limit: a.limit})
	}
	return all
}

// risenTallies are the tallies whose counters rose enough while one listened, with the share.
func (p *patient) risenTallies() (risen []tally, shares []float64) {
	for _, t := range tallies() {
		n, whole := p.increase(t)
		if share := n / max(1, whole+n); n >= minEvents && share >= t.least {
			risen, shares = append(risen, t), append(shares, share)
		}
	}
	return risen, shares
}

// slowingTallies are those that hold back a connection that is under way. UDP's buffers and fragments do where a host
// carries a tunnel: TCP of its own meets neither. What exceeds an allowance does where it is lost.
func (p *patient) slowingTallies() []tally {
	risen, _ := p.risenTallies()
	return slices.DeleteFunc(risen, func(t tally) bool {
		switch t.limit {
		case limitNone:
			return true
		case limitUDP, limitFragments:
			return len(p.carried.Kinds) == 0
		case limitAllowance:
			return !p.pathLoses()
		}
		return false
	})
}

// increase is by how much a tally's counters rose, and that of which they are a share.
func (p *patient) increase(t tally) (n, whole float64) {
	count := func(name string) (sum float64) {
		counter, ofDevice := strings.CutPrefix(name, "DEV.")
		if !ofDevice {
			return float64(p.deep.Rose[name])
		}
		for _, l := range p.links {
			sum += float64(p.deep.Rose[l.Name+"."+counter])
		}
		return sum
	}
	for _, name := range t.lost {
		n += count(name)
	}
	for _, name := range t.whole {
		whole += count(name)
	}
	return n, whole
}

// device is the one of which a tally's counters rose most, by its name; the uplink where none did.
func (p *patient) device(t tally) string {
	most, dev := uint64(0), p.link.Name
	for _, l := range p.links {
		n := uint64(0)
		for _, name := range t.lost {
			n += p.deep.Rose[strings.Replace(name, "DEV.", l.Name+".", 1)]
		}
		if n > most {
			most, dev = n, l.Name
		}
	}
	return dev
}

// checkTallies is about what the kernel counts on a packet's way through this host, and what it holds back.
func checkTallies(p *patient) (found []Finding) {
	risen, shares := p.risenTallies()
	for i, t := range risen {
		n, _ := p.increase(t)
		seen := fmt.Sprintf("%s in %s: %s (%s).", text.Counted(int(n), t.unit), p.deep.Listened, percent(shares[i]),
			strings.ReplaceAll(strings.Join(t.lost, ", "), "DEV", p.device(t)))
		t.Seen, t.Remark = seen, strings.ReplaceAll(t.Remark, "DEV", p.device(t))
		found = append(found, t.Finding)
	}
	if c := p.deep.Conntrack; c.Max > 0 && float64(c.Count) >= 0.95*float64(c.Max) {
		found = append(found, Finding{
			Code: "conntrack-full", Severity: Harmful,
			Plain: "This server's firewall has hardly any room for more connections.",
			Title: "The table of connection tracking is nearly full.",
			Seen:  fmt.Sprintf("%d of %d entries.", c.Count, c.Max),
			Why:   "Once it is full, new connections are dropped. Those that are in the table go on.",
			Remark: "sysctl net.netfilter.nf_conntrack_max=N for more, or rules with notrack for what needs no " +
				"tracking",
		})
	}
	if group, share := p.cappedGroup(); share >= costlyWork {
		found = append(found, Finding{
			Code: "cpu-capped", Severity: Notable,
			Plain: fmt.Sprintf("A limit on this server lets %s have no more of the processor.", group),
			Title: group + " has used up its CPU time.",
			Seen: fmt.Sprintf("It used up its time in %s of the periods of the last %s (nr_throttled of its cpu.stat).",
				percent(share), p.deep.Listened),
			Why:    "What has to wait sends nothing meanwhile, then all at once.",
			Remark: "its cpu.max is the limit: CPUQuota= of a unit, --cpus of a container",
		})
	}
	return found
}

// cappedGroup is the control group that used up its CPU time most often, and in which share of its periods (100 ms as a
// rule).
func (p *patient) cappedGroup() (group string, share float64) {
	for _, name := range slices.Sorted(maps.Keys(p.deep.Rose)) {
		g, is := strings.CutPrefix(name, "throttled.")
		if !is {
			continue
		}
		if throttled := float64(p.deep.Rose[name]) / float64(max(1, p.deep.Rose["periods."+g])); throttled > share {
			group, share = g, throttled
		}
	}
	if group == "" {
		group = "this container"
	}
	return group, min(1, share)
}

// percent writes a share with two digits.
func percent(share float64) string { return fmt.Sprintf("%.2g %%", 100*share) }
