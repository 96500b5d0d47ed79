// SPDX-License-Identifier: Apache-2.0

package qdisc

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"weir/internal/lab/uml/umltest"
)

// somebodys is what somebody has made with tc: lines without "tc", of the device DEV, whose peer is far.
type somebodys struct {
	name  string
	lines []string
	lost  string // what Restorable says; "": it comes back
	try   string // and the line that takes it away, if it names one
}

func somebodysTrees() []somebodys {
	htb := []string{"qdisc add dev DEV root handle 1: htb default 1 r2q 1000",
		"class add dev DEV parent 1: classid 1:1 htb rate 50mbit",
		"class add dev DEV parent 1: classid 1:2 htb rate 50mbit"}
	filters := func(list ...string) []string {
		lines := htb
		for _, f := range list {
			if !strings.HasPrefix(f, "filter ") && !strings.HasPrefix(f, "actions ") {
				f = "filter add dev DEV parent 1: " + f
			}
			lines = append(lines[:len(lines):len(lines)], f)
		}
		return lines
	}
	classes := func(n int, kind, class, leaf string) []string {
		lines := []string{"qdisc add dev DEV root handle 1: " + kind, "class add dev DEV parent 1: classid 1:1 " +
			class}
		for i := range n {
			lines = append(lines, fmt.Sprintf("class add dev DEV parent 1:1 classid 1:%x %s", 16+i, class),
				fmt.Sprintf("qdisc add dev DEV parent 1:%x handle %x: %s", 16+i, 16+i, leaf))
		}
		return lines
	}
	root := func(text string) []string { return []string{"qdisc add dev DEV root handle 1: " + text} }
	unproven := func(what string) string { return what + ": no test has shown that" }
	return []somebodys{
		{name: "u32", lines: filters("protocol ip prio 5 u32 match ip dport 22 0xffff flowid 1:2",
			"protocol ip prio 5 u32 match ip sport 22 0xffff flowid 1:2",
			"protocol ip prio 6 u32 match ip src 192.0.2.0/24 match u32 1 1 at 20 flowid 1:1",
			"protocol ipv6 prio 7 u32 match ip6 dst 2001:db8::/32 flowid 1:2",
			"protocol all prio 8 u32 match u32 0 0 flowid 1:2", "protocol ip prio 9 u32 match mark 6 0xff flowid 1:2",
			"protocol ip prio 10 u32 match ip protocol 17 0xff skip_hw flowid 1:2",
			"protocol ip prio 11 u32 match ip tos 0x10 0xff indev far flowid 1:2")},
		{name: "u32 with tables", lines: filters("prio 5 handle 2: protocol ip u32 divisor 256",
			"protocol ip prio 5 u32 ht 800:: match ip dst 10.0.0.0/8 hashkey mask 0x000000ff at 16 link 2:",
			"protocol ip prio 5 u32 ht 2:5: match ip dst 10.0.0.5 flowid 1:2",
			"protocol ip prio 5 handle 2:5:7 u32 ht 2:5: match ip dst 10.1.0.5 flowid 1:1",
			"protocol ip prio 6 u32 divisor 4", "protocol ip prio 6 u32 ht 800:: match ip dst 172.16.0.0/12 offset "+
				"at 0 mask 0x0f00 shift 6 eat link 802:",
			"protocol ip prio 6 u32 ht 802:: match tcp dst 80 0xffff flowid 1:2",
			"protocol ip prio 7 u32 match u32 0 0 flowid 1:1")},
		{name: "u32 with tables that are gone", lines: filters("protocol ip prio 5 u32 match u32 0 0 flowid 1:2",
			"protocol ip prio 6 u32 match u32 0 0 flowid 1:2",
			"protocol ip prio 7 u32 match u32 0 0 flowid 1:2", "filter del dev DEV parent 1: prio 5",
			"filter del dev DEV parent 1: prio 6",
			"protocol ip prio 5 u32 match u32 1 1 flowid 1:2", "protocol ip prio 65535 u32 match u32 0 0 flowid 1:1")},
		{name: "u32 at a class and in a chain", lines: filters(
			"filter add dev DEV parent 1:1 protocol ip prio 4 u32 match u32 0 0 flowid 1:2",
			"protocol ip prio 5 chain 3 u32 match ip dport 22 0xffff flowid 1:2",
			"protocol ip prio 6 u32 match u32 0 0 action goto chain 3")},
		{name: "u32 of one priority in two chains", lines: filters("protocol ip prio 5 u32 match u32 0 0 flowid 1:2",
			"protocol ip prio 5 chain 3 u32 match u32 0 0 flowid 1:2"),
			lost: "the kernel does not tell their tables apart",
			try:  "tc filter del dev DEV parent 1: prio 5 protocol ip chain 3 u32"},
		{name: "flower", lines: filters("protocol ip prio 3 flower ip_proto udp dst_port 53 classid 1:2",
			"protocol ip prio 3 flower src_ip 192.0.2.0/24 dst_ip 10.0.0.1 classid 1:1",
			"protocol ipv6 prio 4 flower src_ip 2001:db8::/32 dst_ip 2001:db8:1::/48 ip_proto tcp src_port 80 "+
				"classid 1:2",
			"protocol ip prio 5 flower ip_proto tcp dst_port 1000-2000 src_port 5-7 classid 1:2",
			"protocol ip prio 6 flower ip_tos 0x10/0xfc ip_ttl 3 classid 1:2",
			"protocol ip prio 7 flower ip_proto tcp tcp_flags 0x2/0x12 classid 1:2",
			"protocol ip prio 8 flower ip_proto icmp type 8 code 0 classid 1:2",
			"protocol ipv6 prio 9 flower ip_proto icmpv6 type 128 code 0 classid 1:2",
			"protocol arp prio 10 flower arp_op request arp_sip 10.0.0.1/24 arp_tip 10.0.0.2 arp_sha "+
				"02:00:00:00:00:01 arp_tha 02:00:00:00:00:02 classid 1:2",
			"protocol 802.1q prio 11 flower vlan_id 7 vlan_prio 3 vlan_ethtype ip classid 1:2",
			"protocol 802.1ad prio 12 flower vlan_id 7 vlan_ethtype 802.1q cvlan_id 5 cvlan_prio 2 "+
				"cvlan_ethtype ip classid 1:2",
			"protocol 802.1q prio 18 flower classid 1:2", "protocol 802.1q prio 19 flower vlan_id 5 classid 1:2",
			"protocol ip prio 13 flower ip_proto sctp src_port 1 dst_port 2 classid 1:2",
			"protocol all prio 14 flower dst_mac 02:00:00:00:00:01/ff:ff:00:00:00:00 src_mac 02:00:00:00:00:02 "+
				"classid 1:2",
			"protocol ip prio 15 flower skip_hw verbose indev far ip_proto udp src_port 53 classid 1:2",
			"protocol ip prio 16 handle 77 flower ip_proto tcp classid 1:2",
			"protocol ip prio 17 flower ip_proto tcp dst_port 0x1000/0xf000 classid 1:2")},
		{name: "flower by a tunnel's key", lines: filters(
			"protocol ip prio 3 flower enc_key_id 5 enc_dst_ip 10.0.0.1 classid 1:2"),
			lost: unproven("filter flower at 1: (protocol ip, pref 3)"),
			try:  "tc filter del dev DEV parent 1: prio 3 protocol ip flower"},
		{name: "matchall", lines: filters("protocol ip prio 3 matchall skip_hw classid 1:2",
			"protocol all prio 4 handle 9 matchall classid 1:1")},
		{name: "gact", lines: filters("protocol ip prio 3 flower ip_proto tcp action drop",
			"protocol ip prio 4 flower ip_proto udp action pass",
			"protocol ip prio 5 flower ip_proto icmp action reclassify",
			"protocol ip prio 6 matchall action ok random determ drop 5",
			"protocol ipv6 prio 7 matchall classid 1:2 action pipe cookie 0011aabb action continue",
			"protocol ip prio 8 chain 7 flower ip_proto udp classid 1:2",
			"protocol ip prio 9 flower dst_ip 10.0.0.0/8 action goto chain 7",
			"protocol arp prio 10 matchall action drop hw_stats disabled no_percpu")},
		{name: "mirred", lines: filters("protocol ip prio 3 matchall action mirred egress redirect dev far",
			"protocol arp prio 4 matchall action mirred egress mirror dev far pipe action drop",
			"protocol ipv6 prio 5 matchall action mirred ingress redirect dev far")},
		{name: "police", lines: filters("protocol ip prio 3 matchall classid 1:2 action police rate 1mbit burst "+
			"10k drop", "protocol ip prio 4 u32 match u32 0 0 police rate 10gbit burst 1m mtu 9000 conform-exceed "+
			"continue flowid 1:2",
			"protocol ip prio 5 flower ip_proto udp action police rate 5mbit burst 10k peakrate 8mbit mtu 1600 "+
				"overhead 14 linklayer atm conform-exceed drop/pipe action pass",
			"protocol ip prio 6 matchall action police rate 64gbit burst 1m conform-exceed pipe",
			"protocol ip prio 7 matchall action police mtu 1000 conform-exceed drop/continue")},
		{name: "police by packets", lines: filters("protocol ip prio 3 matchall action police pkts_rate 1000 " +
			"pkts_burst 200 conform-exceed drop")},
		{name: "police by an average", lines: filters(
			"protocol ip prio 3 estimator 1sec 2sec matchall action police avrate 1mbit drop"),
			lost: "filter matchall at 1: (protocol ip, pref 3): its action police has a rate estimator",
			try:  "tc filter del dev DEV parent 1: prio 3 protocol ip matchall"},
		{name: "skbedit", lines: filters("protocol ip prio 3 matchall action skbedit priority 1:2",
			"protocol ip prio 4 matchall action skbedit mark 6/0xff pipe action skbedit queue_mapping 2 ptype host",
			"protocol ip prio 5 u32 match u32 0 0 action skbedit inheritdsfield")},
		{name: "an action that is shared", lines: filters("actions add action drop index 500",
			"protocol ip prio 3 matchall action gact index 500"),
			lost: "filter matchall at 1: (protocol ip, pref 3): its action gact is shared with others",
			try:  "tc filter del dev DEV parent 1: prio 3 protocol ip matchall"},
		{name: "basic", lines: filters("protocol ip prio 3 basic match 'cmp(u16 at 2 layer network mask 0xff00 gt "+
			"20)' classid 1:2", "protocol ip prio 3 basic match 'u32(u32 0x0a000000 0xff000000 at 12)' classid 1:1",
			"protocol ip prio 4 basic match 'meta(priority eq 6) or not meta(vlan gt 3) and (meta(nf_mark mask 0xf "+
				"lt 2) and cmp(u8 at 9 layer 1 eq 17))' classid 1:2",
			"protocol ip prio 5 basic match 'nbyte(\"ababa\" at 12 layer 1)' action drop",
			"protocol all prio 6 basic classid 1:2", "protocol ip prio 3 basic match 'meta(protocol eq 8)' "+
				"classid 1:2")},
		{name: "fw", lines: filters("protocol ip prio 3 handle 6 fw classid 1:2",
			"protocol ip prio 3 handle 7 fw classid 1:1", "protocol ip prio 4 handle 0x10/0xf0 fw classid 1:2",
			"protocol ip prio 5 handle 8 fw action drop",
			"protocol ip prio 6 handle 9 fw indev far classid 1:2",
			"protocol ip prio 7 handle 9 fw police rate 1mbit burst 10k drop classid 1:2")},
		{name: "fw without a mark", lines: filters("protocol ip prio 3 fw"),
			lost: "filters at 1: the kernel cannot list them", try: "tc filter del dev DEV parent 1:"},
		{name: "classic bpf", lines: filters("protocol ip prio 3 bpf bytecode '1,6 0 0 4294967295,' flowid 1:2",
			"protocol ip prio 3 bpf bytecode '4,40 0 0 12,21 0 1 2048,6 0 0 262144,6 0 0 0,' action drop",
			"protocol ip prio 4 bpf bytecode '1,6 0 0 65538,' direct-action skip_hw")},
		{name: "flow", lines: filters("protocol ip prio 3 handle 1 flow hash keys src,dst divisor 16 baseclass 1:1"),
			lost: unproven("filter flow at 1: (protocol ip, pref 3)"),
			try:  "tc filter del dev DEV parent 1: prio 3 protocol ip flow"},
		{name: "route", lines: filters("protocol ip prio 3 route to 3 classid 1:2"),
			lost: unproven("filter route at 1: (protocol ip, pref 3)"),
			try:  "tc filter del dev DEV parent 1: prio 3 protocol ip route"},
		{name: "filters below prio and its children",
			lines: []string{"qdisc add dev DEV root handle 1: prio bands 4 priomap 1 1 2 2 3 3 0 0 1 2 3 0 0 0 0 0",
				"qdisc add dev DEV parent 1:1 handle 10: pie limit 10",
				"qdisc add dev DEV parent 1:2 handle 20: fq_codel limit 77",
				"filter add dev DEV parent 1: protocol ip prio 5 u32 match ip dport 22 0xffff flowid 1:1",
				"filter add dev DEV parent 20: protocol ip prio 5 u32 match ip dport 22 0xffff flowid 20:7"}},
		{name: "htb of many classes", lines: classes(40, "htb default 10", "htb rate 1mbit ceil 100mbit", "fq_codel")},
		{name: "hfsc of many classes", lines: append(classes(20, "hfsc default 10",
			"hfsc ls rate 1mbit ul rate 100mbit", "fq_codel"),
			"class add dev DEV parent 1:1 classid 1:fff hfsc rt umax 1500 dmax 10ms rate 1mbit ls rate 2mbit",
			"filter add dev DEV parent 1: protocol ip prio 5 u32 match ip dport 22 0xffff flowid 1:11")},
		{name: "drr", lines: append(classes(0, "drr", "drr quantum 1500", ""),
			"class add dev DEV parent 1: classid 1:2 drr quantum 3000",
			"qdisc add dev DEV parent 1:2 handle 2: sfq perturb 10",
			"filter add dev DEV parent 1: protocol all prio 1 matchall classid 1:1")},
		{name: "qfq", lines: append(classes(0, "qfq", "qfq weight 5 maxpkt 1500", ""),
			"class add dev DEV parent 1: classid 1:2 qfq weight 7")},
		{name: "ets", lines: append(root("ets bands 5 strict 2 quanta 4000 3000 2000 priomap 0 1 2 3 4 4 3 2 1 0"),
			"qdisc add dev DEV parent 1:3 handle 3: fq_codel")},
		{name: "multiq", lines: append(root("multiq"), "qdisc add dev DEV parent 1:2 handle 2: fq_codel limit 7")},
		{name: "hhf", lines: root("hhf limit 777 quantum 300 hh_limit 100 reset_timeout 30ms admit_bytes 100000 " +
			"evict_timeout 500ms non_hh_weight 3")},
		{name: "skbprio", lines: root("skbprio limit 77")},
		{name: "red", lines: root("red limit 1M avpkt 1500 min 100K max 300K"), lost: unproven("qdisc red 1"),
			try: "tc qdisc del dev DEV root"},
		{name: "red below htb", lines: append(filters(),
			"qdisc add dev DEV parent 1:1 handle 10: red limit 1M avpkt 1500 min 100K max 300K ecn"),
			lost: unproven("qdisc red 10"), try: "tc qdisc del dev DEV parent 1:1"},
		{name: "choke", lines: root("choke limit 1000 bandwidth 10mbit"), lost: unproven("qdisc choke 1"),
			try: "tc qdisc del dev DEV root"},
		{name: "gred", lines: root("gred setup DPs 3 default 1"), lost: unproven("qdisc gred 1"),
			try: "tc qdisc del dev DEV root"},
		{name: "a qdisc with an estimator", lines: []string{"qdisc add dev DEV root handle 1: estimator 1sec 8sec " +
			"fq_codel"}, lost: "qdisc fq_codel 1: has a rate estimator", try: "tc qdisc del dev DEV root"},
		{name: "a class with an estimator", lines: append(root("htb default 1"), "class add dev DEV parent 1: "+
			"classid 1:1 estimator 1sec 8sec htb rate 50mbit"),
			lost: "class htb 1:1: has a rate estimator", try: "tc qdisc del dev DEV root"},
		{name: "a policer with an estimator", lines: append(root("prio"), "filter add dev DEV parent 1: estimator "+
			"1sec 8sec protocol ip prio 3 matchall action police rate 1mbit burst 10k"),
			lost: "pref 3): its action police has a rate estimator",
			try:  "tc filter del dev DEV parent 1: prio 3 protocol ip matchall"},
		{name: "a chain's template", lines: append(root("prio"), "chain add dev DEV parent 1: protocol ip chain 5 "+
			"flower dst_mac 00:00:00:00:00:00/FF:FF:FF:FF:FF:FF"),
			lost: "chain 5 at 1: its template", try: "tc chain del dev DEV parent 1: chain 5"},
		{name: "a chain without a template", lines: append(root("prio"), "filter add dev DEV parent 1: protocol ip "+
			"prio 3 chain 5 matchall classid 1:2")},
		{name: "netem without a distribution", lines: root("netem delay 20ms loss 1% rate 5mbit")},
		{name: "netem's states and slots", lines: root("netem loss state 1% 30% slot 10us 20us packets 5 bytes 9000")},
		{name: "netem with a distribution", lines: root("netem delay 20ms 3ms distribution pareto"),
			lost: "qdisc netem 1: its delay varies", try: "tc qdisc del dev DEV root"},
		{name: "netem with slots that have one", lines: root("netem slot distribution normal 800us 100us"),
			lost: "qdisc netem 1: its delay varies", try: "tc qdisc del dev DEV root"},
		{name: "a size table without entries", lines: []string{"qdisc add dev DEV root handle 1: stab overhead 24 " +
			"linklayer ethernet htb default 1", "class add dev DEV parent 1: classid 1:1 htb rate 50mbit"}},
		{name: "a size table", lines: root("stab overhead 24 mpu 84 linklayer ethernet fq_codel")},
		{name: "a size table for ATM", lines: []string{"qdisc add dev DEV root handle 1: stab overhead -4 linklayer " +
			"atm mtu 9000 tsize 128 htb default 1", "class add dev DEV parent 1: classid 1:1 htb rate 50mbit"}},
		{name: "a size table in other units", lines: root("stab linklayer atm mtu 262144 pfifo")},
		{name: "sfq with red", lines: root("sfq redflowlimit 100000 min 8000 max 60000 probability 0.20 ecn headdrop")},
		{name: "codel's shortest times", lines: root("fq_codel target 1us interval 1us")},
	}
}

// What somebody has made comes back as it was, over another tree and over one with the same handles; or it is refused,
// with the line that takes it away. Through the journal's JSON, with packets that count on the way.
func TestLiveComesBack(t *testing.T) {
	c, ifindex := live(t)
	enter := namespace(t)
	raw, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW, 0)
	if err == nil {
		defer unix.Close(raw)
	}
	ip := append([]byte("\x02\x00\x00\x00\x00\x02\x02\x00\x00\x00\x00\x01\x08\x00E\x00\x00\x54\x00\x00\x00\x00\x40\x11\x00\x00\x0a\x00\x00\x01\x0a\x00\x00\x05"), make([]byte, 64)...)
	packets := func() {
		for range 3 {
			_ = unix.Sendto(raw, ip, 0, &unix.SockaddrLinklayer{Ifindex: ifindex})
		}
	}
	for _, tree := range somebodysTrees() {
		t.Run(tree.name, func(t *testing.T) {
			enter(t)
			if err := c.Delete(ifindex, Root); err != nil {
				t.Fatal(err)
			}
			for _, line := range tree.lines {
				if said, err := run(t, "tc "+strings.ReplaceAll(line, "DEV", "near")); err != nil {
					if umltest.Inside() {
						t.Fatalf("tc %s: %v: %s", line, err, said)
					}
					t.Skipf("skipped, not passed: on this kernel tc %s says %s", line, said)
				}
			}
			goesAndComes(t, c, ifindex, tree.lost, strings.ReplaceAll(tree.try, "DEV", "near"), packets)
		})
	}
}

// goesAndComes shows that what is at near comes back, or is refused as said.
func goesAndComes(t *testing.T, c *Conn, ifindex int, lost, try string, packets func()) {
	t.Helper()
	tree, err := c.Tree(ifindex)
	if err != nil {
		t.Fatal(err)
	}
	before := ""
	if lost == "" {
		before = shown(t, "near", tree)
	}
	if err := tree.Restorable(); err != nil || lost != "" {
		var by *Lost
		switch {
		case err == nil || lost == "" || !strings.Contains(err.Error(), lost):
			t.Fatalf("%v, want %q; of:\n%s", err, lost, before)
		case !errors.As(err, &by) || by.Remove("near") != try:
			t.Fatalf("%v: try %q, want %q", err, by.Remove("near"), try)
		}
		// The line does take it away.
		if said, err := run(t, try); err != nil {
			t.Fatalf("%s: %v: %s", try, err, said)
		}
		return
	}
	sent := bytesOf(t, c, ifindex, packets)
	if now, err := c.Tree(ifindex); err != nil || !now.Same(tree) {
		t.Fatalf("it is another since some packets have passed: %+v, was %+v, %v", now, tree, err)
	}
	written, err := json.Marshal(tree)
	var read Tree
	if err == nil {
		err = json.Unmarshal(written, &read)
	}
	if err != nil {
		t.Fatal(err)
	}
	root, _ := tree.Root()
	for name, other := range map[string]string{"another tree": "qdisc replace dev near root handle fe: pfifo limit 5",
		"one with its handle": fmt.Sprintf("qdisc replace dev near root handle %s pfifo limit 5", root.Handle)} {
		if root.Handle == 0 && name != "another tree" {
			continue
		}
		if err := c.Delete(ifindex, Root); err != nil {
			t.Fatal(err)
		}
		if said, err := run(t, "tc "+other); err != nil {
			t.Fatalf("tc %s: %v: %s", other, err, said)
		}
		if err := c.Restore(ifindex, read); err != nil {
			t.Errorf("over %s: %v; of:\n%s", name, err, before)
		}
		if after := shown(t, "near", tree); after != before {
			t.Errorf("restored over %s it is not as it was:\n%s", name, difference(before, after))
		}
		if now, err := c.Tree(ifindex); err != nil || !now.Same(tree) {
			t.Errorf("over %s: not the same: %+v, was %+v, %v", name, now, tree, err)
		}
		if now := bytesOf(t, c, ifindex, packets); root.SizeTable != nil && now != sent {
			t.Errorf("restored over %s it counts %d bytes, and counted %d", name, now, sent)
		}
	}
}

// bytesOf is how many bytes the root counts of some packets.
func bytesOf(t *testing.T, c *Conn, ifindex int, packets func()) uint64 {
	t.Helper()
	before, _, err := c.RootStats(ifindex)
	packets()
	after, _, afterErr := c.RootStats(ifindex)
	if err := errors.Join(err, afterErr); err != nil {
		t.Fatal(err)
	}
	return after.Bytes - before.Bytes
}
