// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"os"
	"testing"

	"weir/internal/host"
	"weir/internal/plan"
	"weir/internal/qdisc"
)

// arrives redirects what arrives at the uplink to a device with this queue.
func arrives(t testing.TB, text string) func(*host.Facts) {
	return func(f *host.Facts) {
		f.Links[1].Redirect = qdisc.IFB
		f.Links = append(f.Links, host.Link{Index: 9, Name: qdisc.IFB, Kind: "ifb", Up: true, MTU: 1500, Tree: tree(t,
			text, 1)})
	}
}

// kept is a goal that is kept, of 50 Mbit/s.
func kept(f *host.Facts) {
	f.Files = map[string]host.File{host.GoalFile: {Kind: host.Regular, Text: "dev = \"eth0\"\nrate = \"50mbit\"\n"}}
}

func release(of string) func(f *host.Facts) { return func(f *host.Facts) { f.Kernel = of } }

func nat(f *host.Facts) { f.Deep.NAT = host.Yes }

func relays(t *testing.T) []diagnosed {
	const (
		routes = "This host passes on what others send: routed packets, on one network card."
		guards = "This host passes on what others send: WireGuard, on one network card."
		tun    = "This host passes on what others send: a program's tunnel (openvpn), on one network card."
		proxy  = "This host passes on what others send: a proxy's connections, on one network card."
		one    = "CAKE on eth0 takes all clients for one."
		yours  = "✓ The queue of outgoing traffic is yours."
		ring   = "! The tunnel's own buffer holds 500 packets: 110ms at 50mbit."
	)
	forwards := sysctl("ipv4.ip_forward", "1")
	openvpn := runs(host.TunnelProgram, "openvpn")
	cake := func(text string) func(*host.Facts) { return uplink(t, "cake bandwidth "+text, 1) }
	lowat := sysctl("ipv4.tcp_notsent_lowat", "131072")
	weir := writer(host.Writer{By: "weir", File: "/var/lib/weir/journal.json"})
	mptcp := func(f *host.Facts) { f.MPTCP = 2 }
	short := func(f *host.Facts) { f.Links[len(f.Links)-1].TxQLen = 50 }
	none := []string{}
	var all []diagnosed
	for _, test := range []struct {
		name  string
		edits edits
		want  []string
	}{
		// Where the queue stands.
		{"NAT", edits{measuredNAT}, []string{"! " + routes}},
		{"NAT under load", edits{measuredNAT, load}, []string{"✗ The queue is not yours.", "✗ " + routes}},
		{"NAT, shaped", edits{measuredNAT, cake("46.5mbit dual-dsthost")}, []string{"✓ " + routes, yours}},
		{"NAT, shaped, under load", edits{measuredNAT, cake("46.5mbit dual-dsthost"), load}, []string{"✗ " + routes,
			"! There is a queue besides yours."}},
		{"NAT, shaped as a server is", edits{measuredNAT, cake("49.875mbit dual-dsthost"), kept},
			[]string{"✗ " + routes, yours}},
		{"NAT, shaped below that", edits{measuredNAT, cake("48.5mbit dual-dsthost"), kept}, []string{"✓ " + routes,
			yours}},
		{"NAT, shaped as a server is, and what arrives", edits{measuredNAT, cake("49.875mbit dual-dsthost"),
			arrives(t, "cake bandwidth 42mbit dual-dsthost nat ingress"), kept}, []string{"✓ " + routes, yours}},
		{"NAT, what arrives alone", edits{measuredNAT, arrives(t, "cake bandwidth 42mbit dual-dsthost nat ingress")},
			[]string{"! " + routes}},
		{"NAT, redirected to no shaper", edits{measuredNAT, arrives(t, "fq_codel")}, []string{"! " + routes}},
		{"WireGuard", edits{measuredWireGuard}, []string{"! " + guards}},
		{"WireGuard, shaped", edits{measuredWireGuard, cake("46.5mbit dual-dsthost")}, []string{"✓ " + guards}},
		{"a proxy", edits{measuredProxy, pairs(0.97)}, []string{"! " + proxy}},
		{"a proxy, shaped", edits{measuredProxy, pairs(0.97), cake("46.5mbit dual-dsthost")}, []string{"! " + proxy,
			yours}},
		{"a proxy, shaped both ways", edits{measuredProxy, pairs(0.97), cake("49.875mbit dual-dsthost"), arrives(t,
			"cake bandwidth 42mbit dual-dsthost ingress"), kept}, []string{"✓ " + proxy}},
		{"perhaps a proxy", edits{measuredProxy, runs(host.ProxyProgram, "haproxy"), load},
			[]string{"✗ The queue is not yours.",
				"! This host may pass on what others send: a proxy's connections (haproxy), on one network card."}},
		{"a router", edits{traffic(900e9, 100e9, 1e6, 0.99e6), device("", "lan", 98e9, 890e9)},
			[]string{"✓ This host passes on what others send: routed packets."}},
		{"all of it", edits{traffic(100e9, 100e9, 2e6, 1e6), device("ovpn", "o1", 20e9, 18e9), device("xfrm", "x1",
			20e9, 18e9), device("ipip", "i1", 20e9, 18e9, func(l *host.Link) { l.RxPkts = 1e6 })},
			[]string{"! This host passes on what others send: OpenVPN in the kernel and IPsec and ipip, on one " +
				"network card."}},

		// A program's tunnel.
		{"a tunnel", edits{measuredTun, openvpn}, []string{"! " + tun, ring}},
		{"a tunnel with a short buffer", edits{measuredTun, openvpn, short}, []string{"! " + tun}},
		{"a tunnel, on a kernel that spoils datagrams", edits{measuredTun, openvpn, short, release("7.0.10-1-pve")},
			[]string{"! UDP segments, as programs with tunnels such as tun0 send them, may have a known fault.",
				"! " + tun}},
		{"a tunnel, that is mended", edits{measuredTun, openvpn, short, release("7.0.11-1-pve")}, []string{"! " + tun}},
		{"WireGuard, on that kernel", edits{measuredWireGuard, release("7.0.10-1-pve")}, []string{"! " + guards}},
		{"a tunnel, shaped", edits{measuredTun, openvpn, cake("10mbit dual-dsthost")}, []string{"! " + tun,
			"! The tunnel's own buffer holds 500 packets: 570ms at 10mbit."}},
		{"a tunnel without traffic", edits{device("tuntap", "tun0", 0, 0, func(l *host.Link) { l.TxQLen = 500 })},
			[]string{"✓ Tunnels."}},
		{"a client's tunnel", edits{traffic(900e6, 20e6, 1e6, 0), device("tuntap", "tun0", 880e6, 18e6,
			func(l *host.Link) { l.RxPkts, l.TxQLen = 5e5, 500 })}, []string{"✓ Tunnels."}},
		{"a tunnel, bbr", edits{usesBBR, measuredTun, openvpn}, []string{"! " + tun, ring,
			"! BBR does nothing for what is tunnelled."}},

		// Who is told apart.
		{"egress, nat", edits{measuredNAT, nat, forwards, cake("46.5mbit dual-dsthost nat")}, []string{"! " + one}},
		{"egress, nat, nothing translated", edits{measuredNAT, forwards, cake("46.5mbit dual-dsthost nat")}, none},
		{"egress, nat, WireGuard", edits{measuredWireGuard, nat, forwards, cake("46.5mbit dual-dsthost nat")}, none},
		{"egress, nat, who sends", edits{measuredNAT, nat, forwards, cake("46.5mbit dual-srchost nat")}, none},
		{"egress, nat, a server of containers", edits{nat, forwards, cake("46.5mbit dual-dsthost nat")}, none},
		{"egress, its default", edits{measuredWireGuard, forwards, cake("46.5mbit")}, []string{"! " + one}},
		{"egress, no rate", edits{measuredNAT, nat, forwards, uplink(t, "cake dual-dsthost nat", 1),
			counts(qdisc.Stats{Marks: 1})}, []string{"! " + routes}},
		{"ingress, far servers", edits{measuredNAT, nat, cake("46.5mbit dual-dsthost"), arrives(t,
			"cake bandwidth 42mbit dual-srchost nat ingress")},
			[]string{"! CAKE on " + qdisc.IFB + " takes all clients for one."}},
		{"ingress, this host", edits{measuredNAT, nat, cake("46.5mbit dual-dsthost"), arrives(t,
			"cake bandwidth 42mbit dual-dsthost ingress")},
			[]string{"! CAKE on " + qdisc.IFB + " takes all clients for one."}},
		{"egress, its default, a router", edits{traffic(900e9, 100e9, 1e6, 0.99e6), device("", "lan", 98e9, 890e9),
			forwards, cake("46.5mbit")}, none},
		{"ingress, nothing translated", edits{measuredWireGuard, cake("46.5mbit dual-dsthost"), arrives(t,
			"cake bandwidth 42mbit dual-dsthost ingress")}, none},
		{"ingress, clients", edits{measuredNAT, nat, cake("46.5mbit dual-dsthost"), arrives(t,
			"cake bandwidth 42mbit dual-dsthost nat ingress")}, none},
		{"ingress, a proxy", edits{measuredProxy, pairs(0.97), cake("46.5mbit dual-dsthost"), arrives(t,
			"cake bandwidth 42mbit dual-srchost ingress")}, none},

		// MPTCP.
		{"MPTCP", edits{mptcp}, none},
		{"lowat", edits{lowat, weir}, none},
		{"lowat and MPTCP", edits{lowat, weir, mptcp}, []string{"! MPTCP ignores tcp_notsent_lowat."}},
		{"lowat of no effect, and MPTCP", edits{sysctl("ipv4.tcp_notsent_lowat", "-1"), mptcp}, none},
	} {
		all = append(all, diagnosed{test.name, with(t, append(edits{looked}, test.edits...)...), test.want})
	}
	return all
}

// Each kind cites a scenario of its own.
func TestRelayEvidence(t *testing.T) {
	for kind, want := range map[plan.Kind]string{plan.Forwards: natScenario, "ipip": natScenario,
		plan.WireGuard: wireguardScenario, plan.Tunnel: tunnelScenario, plan.Proxy: proxyScenario} {
		if got := relayScenario(plan.Carried{Kinds: []plan.Kind{plan.Forwards, kind}}); got != want {
			t.Errorf("%s: %s, want %s", kind, got, want)
		}
		if _, err := os.Stat("../../" + want); err != nil {
			t.Error(err)
		}
	}
}
