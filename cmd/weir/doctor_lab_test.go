// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"weir/internal/doctor"
	"weir/internal/host"
	"weir/internal/journal"
	"weir/internal/lab/uml/umltest"
	"weir/internal/traffic"
)

// What doctor makes of real TCP: four downloads over 48.3 ms, in the lab kernel and in its virtual time, each case in a
// boot of its own.
func doctorCases() map[string]struct {
	sysctls  map[string]string // of the server
	root     string            // its qdisc
	provider string            // the provider's, towards the client
	inward   string            // and towards the server, which the client then fills, too
	limit    doctor.Limit      // the verdict
	want     []string          // "mark title", those that must be there; no other may be ✗, or blame what is beyond
	fault    func(t *testing.T, link netlink.Link)
} {
	type c = struct {
		sysctls  map[string]string
		root     string
		provider string
		inward   string
		limit    doctor.Limit
		want     []string
		fault    func(t *testing.T, link netlink.Link) // set on this host's device
	}
	const narrow, congestion = "htb rate 50mbit burst 3028b cburst 3028b quantum 1514 | bfifo limit 1250000b",
		"net.ipv4.tcp_congestion_control"
	return map[string]c{
		"found": {nil, "fq_codel", narrow, "", doctor.LimitRate, []string{"✗ The queue is not yours.",
			"✓ cubic: 4 connections."}, nil},
		"weir": {nil, "cake bandwidth 49.875mbit besteffort dual-dsthost rtt 483ms", narrow, "", doctor.LimitShaper,
			[]string{"✓ Nothing to do.", "✓ The queue is yours."}, nil},
		"uploads": {nil, "cake bandwidth 49.875mbit besteffort dual-dsthost rtt 483ms", narrow, narrow,
			doctor.LimitRate, []string{"! The queue may be on the way in."}, nil},
		"seed": {map[string]string{congestion: "bbr", "net.ipv4.tcp_notsent_lowat": "8192",
			"net.ipv4.tcp_rmem": "4096 16384 4194304"}, "dualpi2", narrow, "", doctor.LimitRate,
			[]string{"✗ The queue is not yours.", "✗ tcp_notsent_lowat 8192 makes BBR queue.",
				"! tcp_rmem default is 16384 (kernel: 131072).", "✓ bbr: 4 connections."}, nil},
		"lossy": {nil, "fq_codel", "netem loss 3%", "", doctor.LimitPath,
			[]string{"! The path loses packets without a queue."}, nil},
		// Behind this host's own shaper, too.
		"lossy-shaped": {nil, "cake bandwidth 50mbit besteffort dual-dsthost", "netem loss 3%", "", doctor.LimitPath,
			[]string{"! The path loses packets without a queue.", "✓ The queue is yours."}, nil},
		"lossy-htb": {nil, "htb rate 900mbit | fq_codel", "netem loss 3%", "", doctor.LimitPath,
			[]string{"! The path loses packets without a queue."}, nil},
		"bbr": {map[string]string{congestion: "bbr"}, "fq", "netem loss 3%", "", doctor.LimitPath,
			[]string{"✓ The path loses packets, and BBR does not slow down for it."}, nil},
		"fast": {nil, "fq_codel", "noqueue", "", doctor.LimitBuffer,
			[]string{"✓ fq_codel on up0: no queue is to be seen.", "! Send buffers hold connections back."}, nil},
		// What this host itself does is named before the path, the receivers or the programs.
		"policed": {nil, "fq_codel", "noqueue", "", doctor.LimitPolicer,
			[]string{"✗ A filter on up0 drops what exceeds 10mbit."}, police(netlink.HANDLE_MIN_EGRESS, 10e6)},
		"root-policed": {nil, "htb rate 900mbit | fq_codel", "noqueue", "", doctor.LimitPolicer,
			[]string{"✗ A filter on up0 drops what exceeds 20mbit."}, police(0, 20e6)},
		"policed-as-of-old": {nil, "htb rate 900mbit | fq_codel", "noqueue", "", doctor.LimitPolicer,
			[]string{"✗ A filter on up0 drops what exceeds 10mbit."}, policeAsOfOld},
		"netem": {nil, "netem loss 2%", "noqueue", "", doctor.LimitEmulator, []string{"✗ netem is on up0."}, nil},
		"netem-spoils": {nil, "htb rate 900mbit | netem corrupt 3%", "noqueue", "", doctor.LimitEmulator,
			[]string{"✗ netem is on up0."}, nil},
		"netem-bbr": {map[string]string{congestion: "bbr"}, "netem loss 3%", "noqueue", "", doctor.LimitEmulator,
			[]string{"✗ netem is on up0."}, nil},
		"netem-on-ifb": {nil, "fq_codel", "noqueue", "", doctor.LimitEmulator, []string{"✗ netem is on ifbx."},
			func(t *testing.T, link netlink.Link) {
				ledOut("ifb", 0, netlink.TCA_EGRESS_REDIR, 900)(t, link)
				setRoot("ifbx", "netem loss 2%")
			}},
		"netem-once": {nil, "netem loss 1%", "noqueue", "", doctor.LimitEmulator,
			[]string{"✗ netem is on up0."}, nil},
		"netem-shapes": {nil, "htb rate 900mbit | netem rate 8mbit", "noqueue", "", doctor.LimitEmulator,
			[]string{"✗ netem is on up0.", "✓ The queue is here."}, nil},
		"policed-port": {nil, "fq_codel", "noqueue", "", doctor.LimitPolicer,
			[]string{"✗ A filter on up0 drops what exceeds 10mbit."}, func(t *testing.T, link netlink.Link) {
				bridged(t, link)
				police(netlink.HANDLE_MIN_EGRESS, 10e6)(t, link)
			}},
		"policed-ifb": {nil, "fq_codel", "noqueue", "", doctor.LimitPolicer,
			[]string{"✗ A filter on ifbx drops what exceeds 10mbit."}, func(t *testing.T, link netlink.Link) {
				ledOut("ifb", 0, netlink.TCA_EGRESS_REDIR, 900)(t, link)
				other, err := netlink.LinkByName("ifbx")
				if err != nil {
					t.Fatal(err)
				}
				setRoot("ifbx", "pfifo limit 1000")
				police(netlink.HANDLE_MIN_EGRESS, 10e6)(t, other)
			}},
		"policed-bands": {nil, "prio", "noqueue", "", doctor.LimitPolicer,
			[]string{"✗ A filter on up0 drops what exceeds 10mbit."}, police(0, 10e6)},
		"policed-once": {nil, "fq_codel", "noqueue", "", doctor.LimitPolicer,
			[]string{"✗ A filter on up0 drops what exceeds 10mbit."}, police(netlink.HANDLE_MIN_EGRESS, 10e6)},
		"delays": {nil, "netem delay 80ms 30ms limit 100000", "noqueue", "", doctor.LimitEmulator,
			[]string{"✗ netem is on up0."}, nil},
		"idle-netem": {nil, "fq_codel", narrow, "", doctor.LimitRate, []string{"✗ The queue is not yours."},
			inIdleBand(func(at netlink.QdiscAttrs) netlink.Qdisc {
				return netlink.NewNetem(at, netlink.NetemQdiscAttrs{Latency: 100_000})
			})},
		"idle-maxrate": {nil, "fq_codel", "noqueue", "", doctor.LimitBuffer, nil,
			inIdleBand(func(at netlink.QdiscAttrs) netlink.Qdisc {
				fq := netlink.NewFq(at)
				fq.FlowMaxRate, fq.Pacing = 5_000_000/8, 1
				return fq
			})},
		"few-packets": {nil, "fq limit 3", "noqueue", "", doctor.LimitQueue,
			[]string{"✗ fq on up0 drops what it has no room for."}, nil},
		"few-packets-each": {nil, "fq flow_limit 2", "noqueue", "", doctor.LimitQueue,
			[]string{"✗ fq on up0 drops what it has no room for."}, nil},
		"few-packets-fair": {nil, "htb rate 900mbit | fq_codel limit 2", "noqueue", "", doctor.LimitQueue,
			[]string{"✗ fq_codel on up0 drops what it has no room for."}, nil},
		"few-packets-once": {nil, "fq limit 3", "noqueue", "", "unknown", []string{"✓ Nothing to do."}, nil},
		"rule-once":        {nil, "fq_codel", "noqueue", "", "unknown", []string{"✓ Nothing to do."}, ruleDropsSome},
		"lan": {nil, "cake bandwidth 500mbit rtt 1ms", "noqueue", "", doctor.LimitQueue,
			[]string{"✗ cake on up0 drops too soon, by its rtt of 1ms."}, nil},
		"datacentre": {nil, "cake bandwidth 500mbit rtt 100us", "noqueue", "", doctor.LimitQueue,
			[]string{"✗ cake on up0 drops too soon, by its rtt of 100us."}, nil},
		"hasty": {nil, "htb rate 500mbit | fq_codel interval 3ms target 150us", "noqueue", "", doctor.LimitQueue,
			[]string{"✗ fq_codel on up0 drops too soon, by its interval of 3ms."}, nil},
		"slow-pace": {map[string]string{"net.ipv4.tcp_pacing_ss_ratio": "5", "net.ipv4.tcp_pacing_ca_ratio": "5"},
			"fq", "noqueue", "", "setting", []string{"! tcp_pacing_ss_ratio is 5 (kernel: 200)."}, nil},
		"little-memory": {map[string]string{"net.ipv4.tcp_mem": "40 60 80"}, "fq_codel", "noqueue", "", "setting",
			[]string{"✗ TCP is short of memory."}, nil},
		"policed-uploads": {nil, "fq_codel", "noqueue", "noqueue", doctor.LimitPolicer,
			[]string{"✗ A filter on up0 drops what exceeds 10mbit."}, police(netlink.HANDLE_MIN_INGRESS, 10e6)},
		"class":      {nil, "fq_codel", "noqueue", "", doctor.LimitShaper, nil, classes(0x20)},
		"short":      {nil, "tbf rate 50mbit burst 5kb limit 6kb", "noqueue", "", doctor.LimitShaper, nil, nil},
		"short-leaf": {nil, "htb rate 50mbit | pfifo limit 4", "noqueue", "", doctor.LimitShaper, nil, nil},
		"backlog": {map[string]string{"net.core.netdev_max_backlog": "3"}, "fq_codel", "noqueue", "", "cpu",
			[]string{"! A CPU's backlog is full."}, nil},
		"tbf": {nil, "tbf rate 8mbit burst 5kb limit 60kb", "noqueue", "", doctor.LimitShaper,
			[]string{"✓ Nothing to do."}, nil},
		"netem-rate": {nil, "netem rate 8mbit limit 1000", "noqueue", "", doctor.LimitEmulator,
			[]string{"✗ netem is on up0."}, nil},
		"windows": {map[string]string{"net.ipv4.tcp_window_scaling": "0"}, "fq_codel", "noqueue", "", "setting",
			[]string{"! tcp_window_scaling is off."}, nil},
		"maxrate": {nil, "fq maxrate 5mbit", "noqueue", "", doctor.LimitFlow,
			[]string{"! fq on up0 lets each connection have 5mbit."}, nil},
		"wmem": {map[string]string{"net.ipv4.tcp_wmem": "4096 16384 65536"}, "fq_codel", "noqueue", "",
			doctor.LimitBuffer, []string{"! Send buffers hold connections back."}, nil},
		"dropping": {nil, "fq_codel", "noqueue", "", doctor.LimitPolicer,
			[]string{"✗ A filter on up0 drops packets."},
			dropSome},
		"rule": {nil, "fq_codel", "noqueue", "", "rule", []string{"✗ A firewall rule drops packets."},
			ruleDropsSome},
		"nested": {nil, "htb rate 100mbit | tbf rate 8mbit burst 5kb limit 60kb", "noqueue", "", doctor.LimitShaper,
			nil,
			nil},
		"no-lender": {nil, "htb rate 8mbit ceil 500mbit | fq_codel", "noqueue", "", doctor.LimitShaper, nil, nil},
		"past": {nil, "fq_codel", narrow, "", doctor.LimitRate, []string{"✗ The queue is not yours."},
			classes(0)},
		"hfsc":      {nil, "fq_codel", "noqueue", "", doctor.LimitShaper, nil, hfsc},
		"by-filter": {nil, "fq_codel", "noqueue", "", doctor.LimitShaper, nil, byFilter},
		"band":      {nil, "fq_codel", "noqueue", "", doctor.LimitShaper, nil, band},
		// Filters lead what leaves to another device, or a copy of it, or some of it.
		"led": {nil, "fq_codel", "noqueue", "", doctor.LimitShaper, nil,
			ledOut("ifb", 0, netlink.TCA_EGRESS_REDIR, 8)},
		"led-below": {nil, "htb rate 900mbit | fq_codel", "noqueue", "", doctor.LimitShaper, nil,
			ledOut("ifb", 1, netlink.TCA_EGRESS_REDIR, 8)},
		"led-in-two": {nil, "fq_codel", "noqueue", "", doctor.LimitShaper, nil,
			ledOut("ifb", 2, netlink.TCA_EGRESS_REDIR, 8)},
		"mirrored": {nil, "tbf rate 8mbit burst 5kb limit 60kb", "noqueue", "", doctor.LimitShaper, nil,
			ledOut("ifb", 0, netlink.TCA_EGRESS_MIRROR, 4)},
		"paced": {nil, "fq_codel", "noqueue", "", "pace",
			[]string{"! Programs bound how fast their connections may be."}, nil},
		"rmem": {map[string]string{"net.ipv4.tcp_rmem": "4096 16384 65536"}, "fq_codel", "noqueue", "noqueue", "window",
			[]string{"! Receive buffers hold back what comes in."}, nil},
		"rmem-fixed": {map[string]string{"net.ipv4.tcp_moderate_rcvbuf": "0"}, "fq_codel", "noqueue", "noqueue",
			"setting", []string{"! tcp_moderate_rcvbuf is off."}, nil},
		"rmem-small": {map[string]string{"net.ipv4.tcp_moderate_rcvbuf": "0",
			"net.ipv4.tcp_rmem": "4096 16384 6291456"}, "fq_codel", "noqueue", "noqueue",
			"setting", []string{"! tcp_moderate_rcvbuf is off."}, nil},
		"window": {nil, "fq_codel", "noqueue", "noqueue", "window",
			[]string{"! Receive buffers hold back what comes in.",
				"! The route default by up0 bounds its connections."},
			routeWindow},
		"downloads": {nil, "fq_codel", "noqueue", narrow, "none", []string{"✓ Nothing to do."}, nil},
		"sack": {map[string]string{"net.ipv4.tcp_sack": "0", "net.ipv4.tcp_timestamps": "0"}, "fq_codel", narrow, "",
			doctor.LimitRate, []string{"✗ The queue is not yours.", "! tcp_sack is off.", "! tcp_timestamps is off."},
			nil},
	}
}

// limitingObjects are what the verdicts on those cases name.
func limitingObjects() map[string]string {
	return map[string]string{"led": "tbf on ifbx enforces, 8mbit", "led-below": "tbf on ifbx enforces, 8mbit",
		"led-in-two": "tbf on ifbx enforces, 8mbit", "mirrored": "tbf on up0 enforces, 8mbit",
		"class": "class 7:20 of htb on up0", "by-filter": "class 7:20 of htb on up0",
		"hfsc": "class 7:20 of hfsc on up0", "paced": "5mbit", "band": "tbf a: on up0",
		"nested": "tbf 2: on up0 enforces, 8mbit", "no-lender": "htb on up0 enforces, 8mbit",
		"dropping": "the filter u32 on up0, at its egress",
		"rmem":     "receive buffers", "window": "the route default by up0 has window 65535",
		"rule": "ip filter out handle", "tbf": "tbf on up0", "short": "tbf on up0",
		"short-leaf": "htb on up0", "weir": "cake on up0", "policed": "10mbit", "maxrate": "fq on up0",
		"policed-as-of-old": "the filter u32 on up0 (parent 1:) drops what exceeds 10mbit"}
}

// paces are the rates to which programs bound each connection, in bytes per second, in those cases where they do.
func paces() map[string]uint64 { return map[string]uint64{"paced": 625_000} }

// downloadsAlone are the cases in which this host sends nothing, and the client sends to it.
func downloadsAlone() []string {
	return []string{"rmem", "rmem-fixed", "rmem-small", "window", "downloads", "policed-uploads"}
}

// glances are the cases in which doctor does not listen.
func glances() []string {
	return []string{"netem-once", "policed-once", "few-packets-once", "rule-once"}
}

// unseen are the stages that those cases do not show as a whole, among others.
func unseen() map[string][]string {
	return map[string][]string{"few-packets-once": {"the queue here"}, "rule-once": {"netfilter"}}
}

// blames are what a finding is called that puts it on what is beyond this host.
func blames() []doctor.Code {
	return []doctor.Code{"path-loses-packets", "path-loses-packets-bbr", "queue-at-provider", "queue-below-shaper",
		"queue-on-the-way-in"}
}

// routeWindow bounds the windows that this host announces by its default route.
func routeWindow(t *testing.T, link netlink.Link) {
	route := &netlink.Route{LinkIndex: link.Attrs().Index, Gw: net.ParseIP("192.0.2.1"), Window: 65535}
	if err := netlink.RouteReplace(route); err != nil {
		t.Fatal(err)
	}
}

// police gives a policer, below the root or, with a clsact, at the egress.
func police(parent, rate uint32) func(*testing.T, netlink.Link) {
	return func(t *testing.T, link netlink.Link) {
		filter := netlink.FilterAttrs{LinkIndex: link.Attrs().Index, Parent: parent, Priority: 1,
			Protocol: unix.ETH_P_ALL}
		if parent == 0 {
			filter.Parent = rootOf(t, link)
		} else if err := netlink.QdiscAdd(&netlink.Clsact{QdiscAttrs: netlink.QdiscAttrs{LinkIndex: filter.LinkIndex,
			Handle: netlink.MakeHandle(0xffff, 0), Parent: netlink.HANDLE_CLSACT}}); err != nil {
			t.Fatal(err)
		}
		action := netlink.NewPoliceAction()
		action.Rate, action.Burst, action.ExceedAction = rate/8, 100_000, netlink.TC_POLICE_SHOT
		action.NotExceedAction = netlink.TC_POLICE_UNSPEC
		all := &netlink.MatchAll{FilterAttrs: filter, Actions: []netlink.Action{action}}
		if err := netlink.FilterAdd(all); err != nil {
			t.Fatal(err)
		}
	}
}

// policeAsOfOld gives u32 a policer below the root as tc makes one without the word action.
func policeAsOfOld(t *testing.T, link netlink.Link) {
	const rate, burst, mtu = 10e6 / 8, 100_000, 65535 // bytes per second; bytes
	parent := rootOf(t, link)
	req := nl.NewNetlinkRequest(unix.RTM_NEWTFILTER, unix.NLM_F_CREATE|unix.NLM_F_EXCL|unix.NLM_F_ACK)
	req.AddData(&nl.TcMsg{Family: nl.FAMILY_ALL, Ifindex: int32(link.Attrs().Index), Parent: parent,
		Info: netlink.MakeHandle(1, nl.Swap16(unix.ETH_P_ALL))})
	req.AddData(nl.NewRtAttr(nl.TCA_KIND, nl.ZeroTerminated("u32")))
	options := nl.NewRtAttr(nl.TCA_OPTIONS, nil)
	all := &nl.TcU32Sel{Flags: nl.TC_U32_TERMINAL, Nkeys: 1, Keys: []nl.TcU32Key{{}}}
	options.AddRtAttr(nl.TCA_U32_SEL, all.Serialize())
	options.AddRtAttr(nl.TCA_U32_CLASSID, nl.Uint32Attr(parent|1))
	police := nl.TcPolice{Action: int32(netlink.TC_POLICE_SHOT), Mtu: mtu, Burst: netlink.Xmittime(rate, burst)}
	police.Rate.Rate = rate
	var table [256]uint32
	netlink.CalcRtable(&police.Rate, table[:], -1, mtu, nl.LINKLAYER_ETHERNET)
	older := options.AddRtAttr(nl.TCA_U32_POLICE, nil)
	older.AddRtAttr(nl.TCA_POLICE_TBF, police.Serialize())
	older.AddRtAttr(nl.TCA_POLICE_RATE, netlink.SerializeRtab(table))
	req.AddData(options)
	if _, err := req.Execute(unix.NETLINK_ROUTE, 0); err != nil {
		t.Fatal(err)
	}
}

// rootOf is the handle of a device's root qdisc.
func rootOf(t *testing.T, link netlink.Link) uint32 {
	t.Helper()
	list, err := netlink.QdiscList(link)
	if err != nil {
		t.Fatal(err)
	}
	for _, q := range list {
		if q.Attrs().Parent == netlink.HANDLE_ROOT {
			return q.Attrs().Handle
		}
	}
	t.Fatal("no root qdisc")
	return 0
}

// dropSome gives a filter at the egress that drops one packet in 16, by IPv4's identification.
func dropSome(t *testing.T, link netlink.Link) {
	filter := netlink.FilterAttrs{LinkIndex: link.Attrs().Index, Parent: netlink.HANDLE_MIN_EGRESS, Priority: 1,
		Protocol: unix.ETH_P_IP}
	if err := netlink.QdiscAdd(&netlink.Clsact{QdiscAttrs: netlink.QdiscAttrs{LinkIndex: filter.LinkIndex,
		Handle: netlink.MakeHandle(0xffff, 0), Parent: netlink.HANDLE_CLSACT}}); err != nil {
		t.Fatal(err)
	}
	const identification = 4 // its place in the header
	drop := &netlink.GenericAction{ActionAttrs: netlink.ActionAttrs{Action: netlink.TC_ACT_SHOT}}
	if err := netlink.FilterAdd(&netlink.U32{FilterAttrs: filter, Actions: []netlink.Action{drop},
		Sel: &netlink.TcU32Sel{Flags: netlink.TC_U32_TERMINAL, Nkeys: 1,
			Keys: []netlink.TcU32Key{{Mask: 0x000f0000, Val: 0x00050000, Off: identification}}}}); err != nil {
		t.Fatal(err)
	}
}

// ruleDropsSome gives a rule of nf_tables that lets one in four pass; SYN-ACKs, which have 0, too.
func ruleDropsSome(t *testing.T, _ netlink.Link) {
	conn, err := nftables.New()
	if err != nil {
		t.Fatal(err)
	}
	table := conn.AddTable(&nftables.Table{Family: nftables.TableFamilyIPv4, Name: "filter"})
	chain := conn.AddChain(&nftables.Chain{Name: "out", Table: table, Type: nftables.ChainTypeFilter,
		Hooknum: nftables.ChainHookOutput, Priority: nftables.ChainPriorityFilter})
	const register, identification = 1, 4
	conn.AddRule(&nftables.Rule{Table: table, Chain: chain, Exprs: []expr.Any{
		&expr.Payload{DestRegister: register, Base: expr.PayloadBaseNetworkHeader, Offset: identification, Len: 2},
		&expr.Bitwise{SourceRegister: register, DestRegister: register, Len: 2, Mask: []byte{0, 3}, Xor: []byte{0, 0}},
		&expr.Cmp{Op: expr.CmpOpNeq, Register: register, Data: []byte{0, 0}},
		&expr.Counter{},
		&expr.Verdict{Kind: expr.VerdictDrop},
	}})
	if err := conn.Flush(); err != nil {
		t.Fatal(err)
	}
}

// hfsc gives one whose default class has little.
func hfsc(t *testing.T, link netlink.Link) {
	root := netlink.NewHfsc(netlink.QdiscAttrs{LinkIndex: link.Attrs().Index, Handle: netlink.MakeHandle(7, 0),
		Parent: netlink.HANDLE_ROOT})
	root.Defcls = 0x20
	if err := netlink.QdiscReplace(root); err != nil {
		t.Fatal(err)
	}
	for minor, mbit := range map[uint16]uint32{0x10: 100, 0x20: 8} {
		class := netlink.NewHfscClass(netlink.ClassAttrs{LinkIndex: link.Attrs().Index,
			Parent: netlink.MakeHandle(7, 0), Handle: netlink.MakeHandle(7, minor)})
		class.SetLS(0, 0, mbit*1e6)
		class.SetUL(0, 0, mbit*1e6)
		if err := netlink.ClassAdd(class); err != nil {
			t.Fatal(err)
		}
	}
}

// byFilter gives an htb to whose class with little a filter leads.
func byFilter(t *testing.T, link netlink.Link) {
	classes(0x10)(t, link)
	if err := netlink.FilterAdd(&netlink.MatchAll{ClassId: netlink.MakeHandle(7, 0x20),
		FilterAttrs: netlink.FilterAttrs{LinkIndex: link.Attrs().Index, Parent: netlink.MakeHandle(7, 0), Priority: 1,
			Protocol: unix.ETH_P_ALL}}); err != nil {
		t.Fatal(err)
	}
}

// band gives a prio with a tbf in the band that all traffic takes.
func band(t *testing.T, link netlink.Link) {
	if err := netlink.QdiscReplace(netlink.NewPrio(netlink.QdiscAttrs{LinkIndex: link.Attrs().Index,
		Handle: netlink.MakeHandle(7, 0), Parent: netlink.HANDLE_ROOT})); err != nil {
		t.Fatal(err)
	}
	for minor, mbit := range map[uint16]uint64{1: 100, 2: 8, 3: 100} {
		if err := netlink.QdiscAdd(&netlink.Tbf{QdiscAttrs: netlink.QdiscAttrs{LinkIndex: link.Attrs().Index,
			Handle: netlink.MakeHandle(8+minor, 0), Parent: netlink.MakeHandle(7, minor)}, Rate: mbit * 1e6 / 8,
			Limit: 60_000, Buffer: 100_000}); err != nil {
			t.Fatal(err)
		}
	}
}

// inIdleBand gives a prio with a discipline in a band that nothing takes.
func inIdleBand(discipline func(netlink.QdiscAttrs) netlink.Qdisc) func(*testing.T, netlink.Link) {
	return func(t *testing.T, link netlink.Link) {
		const root, other, band = 7, 9, 3
		prio := netlink.NewPrio(netlink.QdiscAttrs{LinkIndex: link.Attrs().Index,
			Handle: netlink.MakeHandle(root, 0), Parent: netlink.HANDLE_ROOT})
		prio.PriorityMap = [16]uint8{}
		if err := netlink.QdiscReplace(prio); err != nil {
			t.Fatal(err)
		}
		if err := netlink.QdiscAdd(discipline(netlink.QdiscAttrs{LinkIndex: link.Attrs().Index,
			Handle: netlink.MakeHandle(other, 0), Parent: netlink.MakeHandle(root, band)})); err != nil {
			t.Fatal(err)
		}
	}
}

// classes gives an htb with a class for much and one for little, of which one is the default.
func classes(preset uint32) func(*testing.T, netlink.Link) {
	return func(t *testing.T, link netlink.Link) {
		root := netlink.NewHtb(netlink.QdiscAttrs{LinkIndex: link.Attrs().Index, Handle: netlink.MakeHandle(7, 0),
			Parent: netlink.HANDLE_ROOT})
		root.Defcls = preset
		if err := netlink.QdiscReplace(root); err != nil {
			t.Fatal(err)
		}
		for minor, mbit := range map[uint16]uint64{0x10: 100, 0x20: 8} {
			if err := netlink.ClassAdd(netlink.NewHtbClass(netlink.ClassAttrs{LinkIndex: link.Attrs().Index,
				Parent: netlink.MakeHandle(7, 0), Handle: netlink.MakeHandle(7, minor)},
				netlink.HtbClassAttrs{Rate: mbit * 1e6, Ceil: mbit * 1e6})); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// ledOut gives a filter that redirects or mirrors what leaves to another device with a rate in Mbit/s: at the egress,
// or at the root (1), or one at the egress that takes only what goes to the client (2).
func ledOut(kind string, place int, how netlink.MirredAct, mbit uint64) func(*testing.T, netlink.Link) {
	return func(t *testing.T, link netlink.Link) {
		other := netlink.NewLinkAttrs()
		other.Name = "ifbx"
		if err := netlink.LinkAdd(&netlink.GenericLink{LinkAttrs: other, LinkType: kind}); err != nil {
			t.Fatal(err)
		}
		to, err := netlink.LinkByName(other.Name)
		if err != nil {
			t.Fatal(err)
		}
		if err := netlink.LinkSetUp(to); err != nil {
			t.Fatal(err)
		}
		setRoot(other.Name, fmt.Sprintf("tbf rate %dmbit burst 5kb limit 60kb", mbit))
		filter := netlink.FilterAttrs{LinkIndex: link.Attrs().Index, Parent: netlink.HANDLE_MIN_EGRESS, Priority: 1,
			Protocol: unix.ETH_P_ALL}
		if place == 1 {
			list, err := netlink.QdiscList(link)
			if err != nil {
				t.Fatal(err)
			}
			for _, q := range list {
				if q.Attrs().Parent == netlink.HANDLE_ROOT {
					filter.Parent = q.Attrs().Handle
				}
			}
		} else if err := netlink.QdiscAdd(&netlink.Clsact{QdiscAttrs: netlink.QdiscAttrs{LinkIndex: filter.LinkIndex,
			Handle: netlink.MakeHandle(0xffff, 0), Parent: netlink.HANDLE_CLSACT}}); err != nil {
			t.Fatal(err)
		}
		action := netlink.NewMirredAction(to.Attrs().Index)
		action.MirredAction = how
		if how == netlink.TCA_EGRESS_MIRROR {
			action.Action = netlink.TC_ACT_PIPE
		}
		var all netlink.Filter = &netlink.MatchAll{FilterAttrs: filter, Actions: []netlink.Action{action}}
		if place == 2 {
			const destination = 16
			filter.Protocol = unix.ETH_P_IP
			all = &netlink.U32{FilterAttrs: filter, Actions: []netlink.Action{action},
				Sel: &netlink.TcU32Sel{Flags: netlink.TC_U32_TERMINAL, Nkeys: 1,
					Keys: []netlink.TcU32Key{{Mask: 0xffffffff, Val: 0xc6336402, Off: destination}}}}
		}
		if err := netlink.FilterAdd(all); err != nil {
			t.Fatal(err)
		}
	}
}

func TestLabDoctor(t *testing.T) {
	for name := range doctorCases() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			umltest.Run(t, "^TestDoctorUnderLoad$/^"+name+"$")
		})
	}
}

func TestDoctorUnderLoad(t *testing.T) {
	if !umltest.Inside() {
		t.Skip("skipped here: it changes the machine, so it runs in the lab kernel: TestLabDoctor")
	}
	for name, c := range doctorCases() {
		t.Run(name, func(t *testing.T) {
			runtime.LockOSThread()
			for sysctl, value := range c.sysctls {
				if err := os.WriteFile(host.SysctlPath(sysctl), []byte(value), 0); err != nil {
					t.Fatal(err)
				}
			}
			server, client := narrowPath(t, c.root, c.provider, c.inward)
			if c.fault != nil {
				link, err := netlink.LinkByName("up0")
				if err != nil {
					t.Fatal(err)
				}
				c.fault(t, link)
			}
			loop, err := traffic.NewLoop()
			if err != nil {
				t.Fatal(err)
			}
			defer loop.Close()
			before, err := journal.ReadHost()
			if err != nil {
				t.Fatal(err)
			}
			start := loop.Now()
			if !slices.Contains(downloadsAlone(), name) {
				if _, err := loop.StartBulk(traffic.BulkSpec{Source: server, Sink: client, Port: 7000, Count: 4,
					Start: start, Pace: paces()[name]}, nil); err != nil {
					t.Fatal(err)
				}
			}
			if c.inward != "" {
				if _, err := loop.StartBulk(traffic.BulkSpec{Source: client, Sink: server, Port: 7001, Count: 4,
					Start: start}, nil); err != nil {
					t.Fatal(err)
				}
			}
			if err := loop.Run(start + 12*time.Second); err != nil {
				t.Fatal(err)
			}
			facts, err := journal.ReadHost()
			if err != nil {
				t.Fatal(err)
			}
			if !slices.Contains(glances(), name) {
				facts.Listen(before, 12*time.Second)
			}
			var out strings.Builder
			findings := doctor.Diagnose(facts)
			printDiagnosis(&out, facts, findings)
			t.Logf("%s\n%+v\n%v", out.String(), facts.Deep.Sockets, facts.Deep.Rose)
			if got := doctor.FindBottleneck(facts); got.Limit != c.limit ||
				!strings.Contains(got.Says, limitingObjects()[name]) {
				t.Errorf("%+v, want %s %s", got, c.limit, limitingObjects()[name])
			}
			var all []string
			for _, f := range findings {
				all = append(all, f.Severity.Mark()+" "+f.Title)
				accuses := f.Severity == doctor.Harmful || slices.Contains(blames(), f.Code)
				if accuses && !slices.Contains(c.want, all[len(all)-1]) {
					t.Errorf("%s", all[len(all)-1])
				}
			}
			for _, stage := range doctor.FindStages(facts) {
				if slices.Contains(unseen()[name], stage.Name) && stage.Lacks == "" {
					t.Errorf("%+v, which was not seen", stage)
				}
			}
			for _, want := range c.want {
				if !slices.Contains(all, want) {
					t.Errorf("not found: %s", want)
				}
			}
		})
	}
}

// narrowPath makes a provider and a client, each in a network namespace; this one is the server's.
func narrowPath(t *testing.T, root, provider, inward string) (server, client traffic.Host) {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	open := func() int {
		fd, err := unix.Open("/proc/thread-self/ns/net", unix.O_RDONLY|unix.O_CLOEXEC, 0)
		must(err)
		return fd
	}
	home := open()
	var spaces [2]int // provider, client
	for i := range spaces {
		must(unix.Unshare(unix.CLONE_NEWNET))
		spaces[i] = open()
	}
	must(unix.Setns(home, unix.CLONE_NEWNET))
	veth := func(name, peer string, space int) {
		attrs := netlink.NewLinkAttrs()
		attrs.Name = name
		must(netlink.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: peer, PeerNamespace: netlink.NsFd(space)}))
	}
	set := func(dev, address, gateway, queue string) {
		link, err := netlink.LinkByName(dev)
		must(err)
		addr, err := netlink.ParseAddr(address)
		must(err)
		must(netlink.AddrAdd(link, addr))
		must(netlink.LinkSetUp(link))
		if gateway != "" {
			must(netlink.RouteAdd(&netlink.Route{LinkIndex: link.Attrs().Index, Gw: net.ParseIP(gateway)}))
		}
		if queue != "" {
			setRoot(dev, queue)
		}
	}
	veth("up0", "door0", spaces[0])
	set("up0", "192.0.2.2/24", "192.0.2.1", root)
	must(unix.Setns(spaces[0], unix.CLONE_NEWNET))
	veth("down0", "far0", spaces[1])
	set("door0", "192.0.2.1/24", "", inward)
	set("down0", "198.51.100.1/24", "", provider)
	must(os.WriteFile(host.SysctlPath("net.ipv4.ip_forward"), []byte("1"), 0))
	must(unix.Setns(spaces[1], unix.CLONE_NEWNET))
	set("far0", "198.51.100.2/24", "198.51.100.1", "netem delay 48.3ms limit 100000")
	must(unix.Setns(home, unix.CLONE_NEWNET))
	return traffic.Host{Addr: netip.MustParseAddr("192.0.2.2")},
		traffic.Host{NetNS: spaces[1], Addr: netip.MustParseAddr("198.51.100.2")}
}

// bridged puts the uplink into a bridge, which takes over its address and its route.
func bridged(t *testing.T, link netlink.Link) {
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	attrs := netlink.NewLinkAttrs()
	attrs.Name = "br0"
	must(netlink.LinkAdd(&netlink.Bridge{LinkAttrs: attrs}))
	bridge, err := netlink.LinkByName(attrs.Name)
	must(err)
	addr, err := netlink.ParseAddr("192.0.2.2/24")
	must(err)
	must(netlink.AddrDel(link, addr))
	must(netlink.LinkSetMaster(link, bridge))
	must(netlink.AddrAdd(bridge, addr))
	must(netlink.LinkSetUp(bridge))
	must(netlink.RouteAdd(&netlink.Route{LinkIndex: bridge.Attrs().Index, Gw: net.ParseIP("192.0.2.1")}))
}
