// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"weir/internal/host"
)

func TestCarries(t *testing.T) {
	const gb, packets = 1e9, 1e6
	ether := func(l *host.Link) { l.MAC = "52:54:00:00:00:07" }
	port := func(of string) func(*host.Link) { return func(l *host.Link) { l.Master = of } }
	parent := func(of string) func(*host.Link) { return func(l *host.Link) { l.Parent = of } }
	pkts := func(n float64) func(*host.Link) { return func(l *host.Link) { l.RxPkts = uint64(n) } }
	down := func(l *host.Link) { l.Up = false }
	loopback := func(n float64) func(*host.Facts) { return func(f *host.Facts) { f.Links[0].RxPkts = uint64(n) } }
	uplinkIs := func(name string) func(*host.Facts) { return func(f *host.Facts) { f.Uplink = name } }
	forwards := sysctl("ipv4.ip_forward", "1")

	for _, test := range []struct {
		name  string
		edits edits
		want  string // kinds, "one card", "sure"
	}{
		// No relays.
		{"nothing known", nil, ""},
		{"idle, with forwarding on", edits{forwards, traffic(2e6, 2e6, 9000, 0)}, ""},
		{"idle, a test passed through", edits{forwards, traffic(15e6, 15.9e6, 9000, 8000)}, ""},
		{"a server", edits{traffic(20*gb, 900*gb, packets, 0), tcp(packets)}, ""},
		{"a server that dials what it serves", edits{traffic(100*gb, 900*gb, packets, 0), tcp(packets), pairs(0.1)},
			""},
		{"a server with haproxy before a program of its own", edits{traffic(20*gb, 900*gb, packets, 0), tcp(packets),
			runs(host.ProxyProgram, "haproxy")}, ""},
		{"downloads", edits{traffic(900*gb, 20*gb, packets, 0), tcp(packets)}, ""},
		{"as much down as up", edits{traffic(900*gb, 900*gb, packets, 0), tcp(packets)}, ""},
		{"as much down as up by UDP, beside an idle proxy", edits{traffic(900*gb, 900*gb, packets, 0),
			tcp(packets / 5), runs(host.ProxyProgram, "tor")}, ""},
		{"containers", edits{forwards, traffic(20*gb, 900*gb, packets, 0.99*packets), device("bridge", "docker0",
			880*gb, 18*gb),
			device("veth", "veth1", 880*gb, 18*gb, port("docker0"))}, ""},
		{"containers that send what they fetch", edits{forwards, traffic(900*gb, 900*gb, packets, 0.99*packets),
			device("bridge", "docker0", 880*gb, 880*gb)}, ""},
		{"containers whose bridge is new", edits{forwards, traffic(20*gb, 900*gb, packets, 0.99*packets),
			device("bridge", "docker0", 70*gb, 2*gb)}, ""},
		{"containers without a bridge", edits{forwards, traffic(20*gb, 900*gb, packets, 0.99*packets), device("veth",
			"cali1", 440*gb, 9*gb), device("veth", "cali2", 440*gb, 9*gb)}, ""},
		{"virtual machines", edits{forwards, traffic(20*gb, 900*gb, packets, 0.99*packets), device("tuntap", "vnet0",
			880*gb, 18*gb, ether)}, ""},
		{"a node of a cluster, by vxlan", edits{forwards, traffic(400*gb, 900*gb, 2*packets, 0.99*packets),
			device("vxlan", "flannel.1", 300*gb, 800*gb, pkts(packets)), device("bridge", "cni0", 800*gb, 300*gb)}, ""},
		{"a client of a tunnel", edits{traffic(900*gb, 20*gb, 2*packets, 0), device("wireguard", "wg0", 880*gb, 18*gb,
			pkts(packets))}, ""},
		{"a client whose default route is the tunnel", edits{uplinkIs("wg0"), device("wireguard", "wg0", 880*gb,
			880*gb, pkts(packets)), func(f *host.Facts) {
			f.Passing = host.Passing{IPIn: packets,
				IPForwarded: packets}
		}}, ""},
		{"a server within a tunnel", edits{forwards, traffic(500*gb, 500*gb, 2*packets, 1000), device("wireguard",
			"wg0", 480*gb, 480*gb, pkts(packets))}, ""},
		{"no uplink", edits{measuredNAT, func(f *host.Facts) { f.Uplink = "" }}, ""},

		// As measured.
		{"NAT", edits{measuredNAT}, "forward, one card, sure"},
		{"WireGuard", edits{measuredWireGuard}, "wireguard, one card, sure"},
		{"a user-space tunnel", edits{measuredTun}, "tunnel, one card, sure"},
		{"a proxy, not looked at", edits{measuredProxy}, ""},
		{"a proxy by its pairs", edits{measuredProxy, pairs(0.97)}, "proxy, one card, sure"},
		{"a proxy by its name", edits{measuredProxy, runs(host.ProxyProgram, "haproxy")}, "proxy, one card"},
		{"a proxy that the pairs do not show", edits{measuredProxy, pairs(0.79)}, ""},

		// One card.
		{"just enough", edits{traffic(16e6, 16e6, 9000, 8000)}, "forward, one card, sure"},
		{"one packet of them all", edits{traffic(16e6, 16e6, 1, 1)}, "forward, one card, sure"},
		{"one packet, and none of TCP", edits{traffic(16e6, 16e6, 1, 0), tcp(0), pairs(0.97)}, ""},
		{"near enough", edits{traffic(80*gb, 100*gb, packets, 0.51*packets)}, "forward, one card, sure"},
		{"not near enough", edits{traffic(79*gb, 100*gb, packets, 0.99*packets)}, "forward"},
		{"half of it", edits{traffic(100*gb, 100*gb, packets, packets/2)}, ""},
		{"beside loopback", edits{traffic(100*gb, 100*gb, 10*packets, 0.9*packets), loopback(9 * packets)},
			"forward, one card, sure"},
		{"peers to each other", edits{traffic(100*gb, 100*gb, 2*packets, packets), device("wireguard", "wg0", 96*gb,
			96*gb, pkts(packets))}, "wireguard, one card, sure"},
		{"an idle tunnel beside NAT", edits{measuredNAT, device("wireguard", "wg0", 1000, 1000)},
			"forward, one card, sure"},
		{"fallback devices", edits{measuredNAT, device("ipip", "tunl0", 0, 0, down), device("ip6tnl", "ip6tnl0", 0,
			0), device("sit", "sit0", 0, 0, down)}, "forward, one card, sure"},
		{"a tunnel that is down", edits{measuredNAT, device("wireguard", "wg0", 20e6, 20e6, down)},
			"forward, one card, sure"},
		{"a quarter by a tunnel", edits{traffic(100*gb, 100*gb, 1.25*packets, packets), device("ipip", "t1", 12*gb,
			13*gb, pkts(packets/4))}, "forward ipip, one card, sure"},
		{"two tunnels", edits{traffic(100*gb, 100*gb, 2*packets, packets), device("tuntap", "tun0", 20*gb, 20*gb),
			device("wireguard", "wg0", 26*gb, 26*gb, pkts(packets))}, "wireguard tunnel, one card, sure"},
		{"all the kernel's", edits{traffic(100*gb, 100*gb, 2*packets, packets), device("geneve", "g1", 10*gb, 9*gb,
			ether), device("ovpn", "o1", 10*gb, 9*gb),
			device("vti", "v1", 10*gb, 9*gb), device("xfrm", "x1", 10*gb, 9*gb), device("amneziawg", "a1", 10*gb,
				9*gb, pkts(packets)), device("gretap", "gre1", 10*gb, 9*gb, ether)},
			"wireguard ovpn xfrm geneve gre, one card, sure"},
		{"a tap device with openvpn", edits{traffic(100*gb, 100*gb, 2*packets, 1.2*packets), device("tuntap", "tap0",
			50*gb, 48*gb, ether, pkts(packets)), runs(host.TunnelProgram, "openvpn")}, "tunnel, one card, sure"},
		{"WireGuard beside a proxy", edits{traffic(100*gb, 100*gb, 2*packets, 0.6*packets), device("wireguard", "wg0",
			30*gb, 28*gb, pkts(packets)), tcp(0.4 * packets), pairs(0.9)}, "wireguard proxy, one card, sure"},
		{"containers beside a relay", edits{traffic(100*gb, 100*gb, packets, 0.99*packets), device("bridge",
			"docker0", 10*gb, 1*gb)}, "forward, one card"},
		{"few containers beside a relay", edits{traffic(100*gb, 100*gb, packets, 0.99*packets), device("bridge",
			"docker0", 4*gb, 4*gb),
			device("veth", "veth1", 4*gb, 4*gb, port("docker0"))}, "forward, one card, sure"},
		{"WireGuard beside a proxy that is idle", edits{measuredWireGuard, runs(host.ProxyProgram, "haproxy"),
			tcp(30000), loopback(29000)}, "wireguard, one card, sure"},
		{"a bridge for the uplink", edits{uplinkIs("vmbr0"), device("bridge", "vmbr0", 100*gb, 100*gb),
			traffic(100*gb, 100*gb, packets, 0.99*packets),
			device("", "eno1", 150*gb, 160*gb, port("vmbr0")), device("tuntap", "tap100", 50*gb, 50*gb, ether,
				port("vmbr0"))}, "forward, one card, sure"},
		{"a bond's VLAN for the uplink", edits{uplinkIs("bond0.5"), device("vlan", "bond0.5", 100*gb, 100*gb,
			parent("bond0")), traffic(100*gb, 100*gb, packets, 0.99*packets),
			device("bond", "bond0", 101*gb, 101*gb), device("", "eno1", 50*gb, 50*gb, port("bond0")), device("",
				"eno2", 51*gb, 51*gb, port("bond0"))}, "forward, one card, sure"},

		// On either side of each bound.
		{"containers, a twentieth", edits{traffic(20*gb, 900*gb, packets, 0.99*packets), device("bridge", "docker0",
			26*gb, 20*gb)}, "forward"},
		{"containers, a little more", edits{traffic(20*gb, 900*gb, packets, 0.99*packets), device("bridge", "docker0",
			26.1*gb, 20*gb)}, ""},
		{"containers, half of what relays", edits{traffic(100*gb, 100*gb, packets, 0.99*packets), device("bridge",
			"docker0", 50*gb, 50*gb)}, ""},
		{"containers, a little less", edits{traffic(100*gb, 100*gb, packets, 0.99*packets), device("bridge",
			"docker0", 50*gb, 49.9*gb)}, "forward, one card"},
		{"other cards, half of it", edits{traffic(100*gb, 100*gb, packets, 0.99*packets), device("", "lan", 10*gb,
			90*gb)}, "forward"},
		{"other cards, a little less", edits{traffic(100*gb, 100*gb, packets, 0.99*packets), device("", "lan", 10*gb,
			89.9*gb)}, "forward, one card, sure"},
		{"a quarter for sockets", edits{traffic(100*gb, 100*gb, packets, 0.2*packets), tcp(packets / 4), pairs(0.9)},
			"proxy, one card, sure"},
		{"a little less than a quarter", edits{traffic(100*gb, 100*gb, packets, 0.2*packets), tcp(packets/4 - 1),
			pairs(0.9)}, ""},
		{"pairs, just so many", edits{measuredProxy, pairs(0.8)}, "proxy, one card, sure"},
		{"a twentieth by a tunnel", edits{traffic(100*gb, 100*gb, packets, 0.99*packets), device("ipip", "t1", 3*gb,
			2*gb)}, "forward ipip, one card, sure"},
		{"a little less by a tunnel", edits{traffic(100*gb, 100*gb, packets, 0.99*packets), device("ipip", "t1", 3*gb,
			1.9*gb)}, "forward, one card, sure"},
		{"half by a tunnel", edits{traffic(100*gb, 100*gb, packets, 0.99*packets), device("ipip", "t1", 30*gb, 20*gb)},
			"ipip, one card, sure"},
		{"a little less than half", edits{traffic(100*gb, 100*gb, packets, 0.99*packets), device("ipip", "t1", 30*gb,
			19.9*gb)}, "forward ipip, one card, sure"},
		{"another card's VLAN", edits{traffic(100*gb, 100*gb, packets, 0.99*packets), device("vlan", "lan.7", 40*gb,
			10*gb, parent("lan"))}, "forward, one card, sure"},
		{"a device of no kind that counts", edits{traffic(100*gb, 100*gb, packets, 0.99*packets), device("dummy", "d0",
			90*gb, 90*gb)}, "forward, one card, sure"},

		// Several cards.
		{"a router", edits{traffic(900*gb, 100*gb, packets, 0.99*packets), device("", "lan", 98*gb, 890*gb)},
			"forward, sure"},
		{"a router, as much down as up", edits{traffic(500*gb, 500*gb, packets, 0.99*packets), device("", "lan",
			490*gb, 490*gb)}, "forward, sure"},
		{"a router on a stick", edits{traffic(1000*gb, 1000*gb, packets, 0.99*packets), device("vlan", "eth0.7",
			100*gb, 890*gb, parent("eth0"))}, "forward, sure"},
		{"a gateway of WireGuard", edits{traffic(900*gb, 100*gb, 2*packets, 0.99*packets), device("", "lan", 90*gb,
			860*gb), device("wireguard", "wg0", 860*gb, 90*gb, pkts(packets))}, "wireguard, sure"},
		{"a proxy before a network of its own", edits{traffic(20*gb, 900*gb, packets, 0), tcp(packets), pairs(0.98),
			device("", "back", 890*gb, 19*gb)}, "proxy, sure"},
		{"two cards that have nothing to do with each other", edits{traffic(500*gb, 500*gb, packets, 0), tcp(packets),
			runs(host.ProxyProgram, "squid"), device("", "storage", 9000*gb, 200*gb)}, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			f := with(t, test.edits...)
			c := Carries(f)
			var words []string
			for _, k := range c.Kinds {
				words = append(words, string(k))
			}
			got := strings.Join(words, " ")
			if c.OneCard {
				got += ", one card"
			}
			if c.Sure {
				got += ", sure"
			}
			if got != test.want {
				t.Errorf("carries %q, want %q: %+v", got, test.want, c)
			}
			if len(c.Seen) != len(c.Kinds) || c.Relay() != (strings.HasSuffix(test.want, ", one card, sure")) {
				t.Errorf("%+v", c)
			}
			for _, s := range c.Seen {
				if !strings.HasSuffix(s, ".") || strings.Contains(s, "%!") || strings.Contains(s, "e+") {
					t.Errorf("no sentence: %s", s)
				}
			}
			if again := Carries(f); !reflect.DeepEqual(again, c) {
				t.Errorf("not the same twice: %+v, %+v", c, again)
			}
		})
	}
}

// How it is seen is said in the words of who looks.
func TestCarriedSeen(t *testing.T) {
	for _, test := range []struct {
		facts host.Facts
		want  string
	}{
		{with(t, measuredNAT), "99 % of the packets that came were forwarded."},
		{with(t, measuredWireGuard, device("wireguard", "wg1", 0, 0)), "wg0 carried 28.7 MB."},
		{with(t, measuredTun, runs(host.TunnelProgram, "openvpn", "tincd")),
			"tun0 carried 27.8 MB; openvpn, tincd run."},
		{with(t, measuredProxy, pairs(0.97), runs(host.ProxyProgram, "xray")),
			"Accepted connections carry 97 % of what dialled ones do. 99 % of the packets that came were for " +
				"sockets of TCP; xray runs."},
	} {
		if c := Carries(test.facts); !slices.Equal(c.Seen, []string{test.want}) {
			t.Errorf("seen %q, want %q", c.Seen, test.want)
		}
	}
}

// A program's tunnel is one that a program makes, as far as it has carried something.
func TestProgramTunnels(t *testing.T) {
	ether := func(l *host.Link) { l.MAC = "52:54:00:00:00:07" }
	f := with(t, traffic(10e9, 10e9, 10e6, 9e6), device("wireguard", "wg0", 1e9, 1e9), device("tuntap", "tun0", 1e9, 0),
		device("tuntap", "tun1", 0, 0), device("tuntap", "tap0", 1e9, 1e9, ether))
	for name, c := range map[string]struct {
		edit func(*host.Facts)
		want []string
	}{
		"a virtual machine's tap": {func(*host.Facts) {}, []string{"tun0"}},
		"openvpn's tap":           {runs(host.TunnelProgram, "openvpn"), []string{"tun0", "tap0"}},
	} {
		c.edit(&f)
		if got := namesOf(ProgramTunnels(f)); !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
		f.Relays = nil
	}
}
