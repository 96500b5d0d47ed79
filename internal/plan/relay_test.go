// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"weir/internal/hint"
	"weir/internal/host"
	"weir/internal/qdisc"
)

// passed are facts of a host that has passed on 10 GB each way by its one card.
func passed(f *host.Facts) {
	f.Links = slices.Clone(f.Links)
	f.Links[1].RxBytes, f.Links[1].TxBytes = 10e9, 10e9
	f.Passing = host.Passing{IPIn: 10e6, IPForwarded: 9.9e6}
}

// served are those of one that has sent ten times as much as it was sent.
func served(f *host.Facts) {
	f.Links = slices.Clone(f.Links)
	f.Links[1].RxBytes, f.Links[1].TxBytes = 1e9, 10e9
	f.Passing = host.Passing{IPIn: 10e6, TCPIn: 10e6, TCPOut: 10e6}
}

func TestAsSeen(t *testing.T) {
	carried := tunnel("wg0", "wireguard")
	for _, c := range []struct {
		name    string
		goal    Goal
		facts   host.Facts
		role    string
		carries Kinds
		says    string // in the note, or in the refusal
		refused bool
	}{
		{"a server", Goal{Rate: 50e6}, with(t, served), "", "", "", false},
		{"a server that forwards for its containers", Goal{Rate: 50e6}, with(t, served, forwards), "", "", "", false},
		{"a relay by its traffic", Goal{Rate: 50e6}, with(t, passed, forwards), "relay", "forward",
			"looks like a one-card relay",
			false},
		{"a relay that shall have a server's plan", Goal{Rate: 50e6, Role: "server"}, with(t, passed, forwards),
			"server", "", "carries for others", false},
		{"a server that is told so", Goal{Rate: 50e6, Role: "server"}, with(t, served, forwards), "server", "", "",
			false},
		{"a relay by what is asked", Goal{Rate: 50e6, Role: "relay"}, with(t, forwards, carried), "relay", "wireguard",
			"carrying wireguard", false},
		{"a tunnel without traffic", Goal{Rate: 50e6}, with(t, served, forwards, carried), "", "", "it may be a relay",
			true},
		{"the same, where a person has said", Goal{Rate: 50e6, Role: "server"}, with(t, served, forwards, carried),
			"server", "", "", false},
		{"a tunnel, and nothing is forwarded", Goal{Rate: 50e6}, with(t, served, carried), "", "", "", false},
		{"no rate", Goal{}, with(t, passed, forwards), "", "", "", false},
		{"a recipe", Goal{Rate: 50e6, Recipe: "server-cake"}, with(t, passed, forwards), "", "", "", false},
		{"another device", Goal{Rate: 50e6, Dev: "eth7"}, with(t, passed, forwards), "", "", "", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			g, notes, err := c.goal.AsSeen(c.facts)
			var refusal *hint.Error
			switch {
			case errors.As(err, &refusal) != c.refused:
				t.Fatalf("error %v", err)
			case c.refused:
				if !strings.Contains(refusal.What, c.says) || !strings.Contains(refusal.Try, "--role") {
					t.Errorf("refused with %q, %q", refusal.What, refusal.Try)
				}
				return
			}
			if g.Role != c.role || g.Carries != c.carries {
				t.Errorf("role %q, carries %q; want %q and %q", g.Role, g.Carries, c.role, c.carries)
			}
			if (len(notes) > 0) != (c.says != "") || c.says != "" && !strings.Contains(notes[0].Text, c.says) {
				t.Errorf("notes %v, want %q", notes, c.says)
			}
			// Seen once, it is not seen anew: a goal that is in force stays what it was.
			if again, _, err := g.AsSeen(with(t, served)); err != nil || c.role == "relay" && again != g {
				t.Errorf("seen again it is %+v, %v", again, err)
			}
		})
	}
}

func TestSetUp(t *testing.T) {
	program := func(name, kind string) func(*host.Facts) {
		return func(f *host.Facts) { f.Relays = append(f.Relays, host.Relay{Name: name, Kind: kind}) }
	}
	card := func(f *host.Facts) {
		f.Links = append(slices.Clone(f.Links), host.Link{Index: 5, Name: "eth1", Up: true,
			Addrs: []string{"10.0.0.1/24"}})
	}
	ethernet := func(f *host.Facts) { f.Links[len(f.Links)-1].MAC = "52:54:00:12:34:56" }
	down := func(f *host.Facts) {
		f.Links = append(slices.Clone(f.Links), host.Link{Index: 6, Name: "wg9", Kind: "wireguard"})
	}
	for _, c := range []struct {
		name  string
		facts host.Facts
		want  Kinds
	}{
		{"it forwards", with(t, forwards), "forward"},
		{"between two cards", with(t, forwards, card), "route"},
		{"between two cards, and by a tunnel", with(t, forwards, card, tunnel("wg0", "wireguard")), "wireguard"},
		{"by a tunnel that is down", with(t, forwards, down), "forward"},
		{"by several tunnels", with(t, forwards, tunnel("tun0", "tuntap"), tunnel("gre1", "gre"),
			tunnel("wg0", "wireguard")), "wireguard,gre,tunnel"},
		{"it forwards nothing", server(t), "proxy"},
		{"a proxy runs", with(t, forwards, program("danted", host.ProxyProgram)), "forward,proxy"},
		{"a proxy runs on a router", with(t, forwards, card, program("danted", host.ProxyProgram)), "proxy"},
		{"a proxy and a tunnel", with(t, forwards, tunnel("wg0", "wireguard"), program("squid", host.ProxyProgram)),
			"wireguard,proxy"},
		{"by a tap device", with(t, forwards, tunnel("tap0", "tuntap"), ethernet), "forward"},
		{"by a tap device of a program's", with(t, forwards, tunnel("tap0", "tuntap"), ethernet,
			program("openvpn", host.TunnelProgram)), "tunnel"},
		{"by a tunnel that is a bridge's port", with(t, forwards, tunnel("gre1", "gretap"),
			func(f *host.Facts) { f.Links[3].Master = "br0" }), "forward"},
		{"beside a card without an address", with(t, forwards, card, func(f *host.Facts) { f.Links[3].Addrs = nil }),
			"forward"},
		{"beside a card that is down", with(t, forwards, card, func(f *host.Facts) { f.Links[3].Up = false }),
			"forward"},
		{"beside a bridge", with(t, forwards, card, func(f *host.Facts) { f.Links[3].Kind = "bridge" }), "forward"},
		{"beside a port of a bridge", with(t, forwards, card, func(f *host.Facts) { f.Links[3].Master = "br0" }),
			"forward"},
		{"beside loopback", with(t, forwards, func(f *host.Facts) { f.Links[0].Addrs = []string{"127.0.0.1/8"} }),
			"forward"},
		{"what passes is by a tunnel that is gone", with(t, measuredWireGuard, forwards,
			func(f *host.Facts) { f.Links[3].Master = "br0" }), "forward"},
		{"what passes is a proxy's", with(t, measuredProxy, pairs(0.97)), "proxy"},
		{"what comes by a card leaves by another", with(t, forwards, traffic(900e9, 100e9, 1e6, 0.99e6),
			device("", "lan", 98e9, 890e9)), "route"},
		{"all its traffic is by one card", with(t, forwards, card, passed), "forward"},
	} {
		if got := configuredKinds(c.facts); got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
		if err := configuredKinds(c.facts).check(); err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

// unpacked is a host whose tunnel a plan of root's has unpacked, as somebody else sees it.
func unpacked(t *testing.T) host.Facts {
	f := with(t, tunnel("tun0", "tuntap", "udp/1194"))
	p, err := planFor(Goal{Rate: 50e6, Role: "relay", Carries: "tunnel"}, f)
	if err != nil {
		t.Fatal(err)
	}
	f = apply(t, p, f)
	f.Admin = false
	return f
}

func TestOwns(t *testing.T) {
	nobody := func(f *host.Facts) { f.Admin = false }
	for _, c := range []struct {
		name  string
		goal  Goal
		facts host.Facts
		want  string
	}{
		{"a server", Goal{Dev: "eth0", Rate: 50e6}, server(t), ""},
		{"a router", Goal{Dev: "eth0", Rate: 50e6, Role: "relay", Carries: "route"}, server(t), ""},
		{"forwarding", Goal{Dev: "eth0", Rate: 50e6, Role: "relay", Carries: "forward"}, server(t),
			"come in by the same card"},
		{"a faster way in", Goal{Dev: "eth0", Rate: 50e6, Ingress: 100e6, Role: "relay", Carries: "forward"}, server(t),
			"so much faster"},
		{"a proxy", Goal{Dev: "eth0", Rate: 50e6, Role: "relay", Carries: "proxy"}, server(t), "gives up 10 %"},
		{"a tunnel", Goal{Dev: "eth0", Rate: 50e6, Role: "relay", Carries: "tunnel"},
			with(t, tunnel("tun0", "tuntap", "udp/1194")), "by a tunnel"},
		{"no rate", Goal{Dev: "eth0", Role: "relay", Carries: "forward"}, server(t), ""},
		{"a queue of a person's", Goal{Dev: "eth0", Rate: 50e6, Role: "relay", Carries: "forward", Qdisc: "fq"},
			server(t), ""},
		{"a way in that is just as much faster", Goal{Dev: "eth0", Rate: 50e6, Ingress: 53_058_520, Role: "relay",
			Carries: "forward"}, server(t), "so much faster"},
		{"and a little less", Goal{Dev: "eth0", Rate: 50e6, Ingress: 53_057_000, Role: "relay", Carries: "forward"},
			server(t), "gives up 6 % of goodput"},
		{"a proxy and a tunnel that root did not unpack", Goal{Dev: "eth0", Rate: 50e6, Role: "relay",
			Carries: "tunnel,proxy"}, with(t, tunnel("tun0", "tuntap", "udp/1194"), nobody),
			"Incoming and outgoing traffic both wait here. This gives up 10 %"},
		{"a tunnel that root did not unpack", Goal{Dev: "eth0", Rate: 50e6, Role: "relay", Carries: "tunnel"},
			with(t, tunnel("tun0", "tuntap", "udp/1194"), nobody), "gives up 6 %"},
		{"a tunnel that root has unpacked", Goal{Dev: "eth0", Rate: 50e6, Role: "relay", Carries: "tunnel"},
			unpacked(t), "also of what comes by a tunnel"},
		{"a proxy, which who is not root sees as well", Goal{Dev: "eth0", Rate: 50e6, Role: "relay", Carries: "proxy"},
			with(t, nobody), "gives up 10 %"},
		{"a tunnel that cannot be unpacked", Goal{Dev: "eth0", Rate: 50e6, Role: "relay", Carries: "tunnel"},
			with(t, tunnel("tun0", "tuntap")), "gives up 6 %"},
	} {
		if got := Owns(c.goal, c.facts); got != c.want && (c.want == "" || !strings.Contains(got, c.want)) {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

func TestKinds(t *testing.T) {
	for _, bad := range []Kinds{"wireguard,", "vpn", "proxy,proxy", ",", "wireguard proxy"} {
		if err := (Goal{Rate: 50e6, Role: "relay", Carries: bad}).Check(); err == nil ||
			!strings.Contains(err.Error(), "--carries") {
			t.Errorf("%q: %v", bad, err)
		}
	}
	for _, name := range knownKinds() {
		if err := (Goal{Rate: 50e6, Role: "relay", Carries: Kinds(name)}).Check(); err != nil {
			t.Errorf("%q: %v", name, err)
		}
	}
	if err := (Goal{Rate: 50e6, Carries: "proxy"}).Check(); err == nil {
		t.Error("a server carries nothing for others")
	}
	if err := (Goal{Rate: 50e6, Role: "relay", Carries: "proxy", Prefer: "l4s"}).Check(); err == nil {
		t.Error("DualPI2 is not for relays")
	}
}

// What is in the way of unpacking a tunnel, and what is no tunnel.
func TestUnpacked(t *testing.T) {
	const unpacked = "unpacked tun0 from udp/1194"
	tun := tunnel("tun0", "tuntap", "udp/1194")
	another := func(edit func(*host.Link)) func(*host.Facts) {
		return func(f *host.Facts) {
			f.Links = append(slices.Clone(f.Links), host.Link{Index: 9, Name: "tap9", Kind: "tuntap",
				MAC: "fe:54:00:12:34:56", Up: true, MTU: 1500})
			edit(&f.Links[len(f.Links)-1])
		}
	}
	spoil := func(edit func(*host.Link)) func(*host.Facts) {
		return func(f *host.Facts) { edit(&f.Links[len(f.Links)-1]) }
	}
	for _, c := range []struct {
		name  string
		edits []func(*host.Facts)
		want  string // in the plan for what arrives; none if empty
		notes string
	}{
		{"a tunnel", []func(*host.Facts){tun}, unpacked, ""},
		{"and a virtual machine", []func(*host.Facts){tun, another(func(l *host.Link) { l.Master = "br0" })},
			unpacked, ""},
		{"and a virtual machine that is routed", []func(*host.Facts){tun, another(func(*host.Link) {})}, unpacked, ""},
		{"nothing but what may be one", []func(*host.Facts){another(func(*host.Link) {})}, "",
			"tap9 is carried cannot be told"},
		{"and another that nobody knows", []func(*host.Facts){tun, another(func(l *host.Link) { l.MAC = "" })}, "",
			"tap9 is carried cannot be told"},
		{"and both", []func(*host.Facts){tun, another(func(l *host.Link) { l.Name, l.MAC = "tun9", "" }),
			another(func(*host.Link) {})},
			"", "tun9 is carried cannot be told"},
		{"and another that is down", []func(*host.Facts){tun, another(func(l *host.Link) { l.Up = false })}, unpacked,
			""},
		{"somebody's clsact", []func(*host.Facts){tun,
			spoil(func(l *host.Link) { l.Tree.Qdiscs = append(l.Tree.Qdiscs, ingress("clsact")) })},
			"", "somebody else has filters or a redirection for what comes out of tun0"},
		{"filters that are shared with other devices", []func(*host.Facts){tun,
			spoil(func(l *host.Link) {
				q := ingress("ingress")
				q.IngressBlock = 22
				l.Tree.Qdiscs = append(l.Tree.Qdiscs, q)
			})},
			"", "somebody else has filters or a redirection for what comes out of tun0"},
		{"somebody's filters", []func(*host.Facts){tun,
			spoil(func(l *host.Link) { l.Tree.Qdiscs = append(l.Tree.Qdiscs, ingress("ingress")) })}, unpacked, ""},
		{"somebody's redirection", []func(*host.Facts){tun, spoil(func(l *host.Link) { l.Redirect = "ifb0" })}, "",
			"somebody else has"},
		{"one that leads nowhere", []func(*host.Facts){tun, spoil(func(l *host.Link) { l.Redirect = host.Gone })},
			unpacked, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := with(t, append([]func(*host.Facts){forwards}, c.edits...)...)
			p, err := planFor(Goal{Rate: 50e6, Role: "relay", Carries: "tunnel"}, f)
			if err != nil {
				t.Fatal(err)
			}
			if got := summary(p); strings.Contains(got, "ingress: ") != (c.want != "") ||
				!strings.HasSuffix(got, c.want) {
				t.Errorf("changes:\n%s\nwant %q", got, c.want)
			}
			said := ""
			for _, n := range p.Considered {
				said += n.Text + "\n"
			}
			if !strings.Contains(said, c.notes) {
				t.Errorf("notes:\n%s\nwant %q", said, c.notes)
			}
		})
	}
}

// A tunnel that is asked for carries others, not itself.
func TestTunnelIsTheUplink(t *testing.T) {
	f := with(t, forwards, tunnel("tun0", "tuntap", "udp/1194"))
	for name, uplink := range map[string]string{"by its name": "eth0", "by the route": "tun0"} {
		f.Uplink = uplink
		if p, err := planFor(Goal{Dev: "tun0", Rate: 50e6, Role: "relay"}, f); err != nil ||
			p.Goals[0].Carries != Kinds(Forwards) {
			t.Errorf("%s: %q, %v", name, p.Goals[0].Carries, err)
		}
	}
}

// A tunnel as wg-quick makes it comes and goes, and what leaves keeps its rate.
func TestNothingDriftsWithWireGuard(t *testing.T) {
	goal := Goal{Rate: 50e6, Role: "relay", Carries: Kinds(WireGuard)}
	there, err := planFor(goal, with(t, forwards, tunnel("wg0", "wireguard")))
	if err != nil {
		t.Fatal(err)
	}
	gone, err := planFor(goal, with(t, forwards))
	if err != nil || summary(gone) != summary(there) {
		t.Errorf("%s\nand without it\n%s, %v", summary(there), summary(gone), err)
	}
}

func TestSettled(t *testing.T) {
	for _, c := range []struct {
		name    string
		carries Kinds
		facts   host.Facts
		want    bool
	}{
		{"no tunnel", "tunnel", server(t), true},
		{"one that is up", "tunnel", with(t, tunnel("tun0", "tuntap", "udp/1194")), true},
		{"one that says nothing yet", "tunnel", with(t, tunnel("tun0", "tuntap")), false},
		{"one that is not up yet", "wireguard,proxy", with(t, tunnel("wg0", "wireguard", "udp/1"),
			func(f *host.Facts) { f.Links[3].Up = false }), false},
		{"one that never says it", "gre,proxy", with(t, tunnel("gre1", "gre")), true},
		{"one that is not unpacked", "wireguard", with(t, tunnel("wg0", "wireguard")), true},
		{"one that is not carried", "proxy", with(t, tunnel("tun0", "tuntap")), true},
	} {
		if got := Settled(Goal{Dev: "eth0", Rate: 50e6, Role: "relay", Carries: c.carries}, c.facts); got != c.want {
			t.Errorf("%s: %v", c.name, got)
		}
	}
}

// What is refused to a relay for want of a queue for what arrives does not name a flag that it was not given.
func TestRelayRefused(t *testing.T) {
	proxy := Goal{Rate: 50e6, Role: "relay", Carries: "proxy"}
	for name, c := range map[string]struct {
		edit func(*host.Facts)
		try  string
	}{
		"no ifb": {func(f *host.Facts) { f.Ingress = host.No }, "--role relay --carries forward"},
		"somebody's clsact": {func(f *host.Facts) {
			f.Links[1].Tree.Qdiscs = append(f.Links[1].Tree.Qdiscs, ingress("clsact"))
		}, "--role relay --carries forward"},
		"a lost journal": {func(f *host.Facts) {
			tunnel("tun0", "tuntap")(f)
			f.Links[3].Redirect = qdisc.IFB
			f.Links = append(f.Links, host.Link{Name: qdisc.IFB, Kind: "ifb"})
		}, "tc qdisc del dev eth0 ingress; tc qdisc del dev tun0 ingress; ip link del ifb-weir"},
	} {
		p, err := planFor(proxy, with(t, c.edit))
		if err != nil || p.Unavailable == nil || !strings.Contains(p.Unavailable.Try, c.try) ||
			strings.Contains(p.Unavailable.Try, "--ingress") {
			t.Errorf("%s: %+v, %v", name, p.Unavailable, err)
		}
	}
}

// What a tunnel adds to a packet, with IPv4 outside, by the headers that its specification has.
func TestOverhead(t *testing.T) {
	const ip, udp, ether = 20, 8, 14
	for kind, want := range map[Kind]int{
		WireGuard: ip + udp + 32, Tunnel: ip + udp + 32, OVPN: ip + udp + 4 + 4 + 16, "vxlan": ip + udp + 8 + ether,
		"geneve": ip + udp + 8 + ether, "gre": ip + 8, "ip6gre": ip + 8, "ipip": ip, "sit": ip, "ip6tnl": ip,
		XFRM: ip + 8 + 8 + 2 + 16 + udp, Forwards: 0, Proxy: 0, routes: 0,
	} {
		if got := overhead(kind); got != want {
			t.Errorf("%s: %d, want %d", kind, got, want)
		}
	}
}

// Kinds are told in one order: what is forwarded first, then tunnels of the kernel's, then programs'.
func TestOrder(t *testing.T) {
	want := []Kind{Forwards, WireGuard, OVPN, XFRM, "gre", Tunnel, Proxy}
	got := slices.Clone(want)
	slices.Reverse(got)
	slices.SortFunc(got, func(a, b Kind) int { return a.order() - b.order() })
	if !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
}

// What people call what a relay carries, and what a word is too short for.
func TestKindMeant(t *testing.T) {
	for word, want := range map[Kind]string{"ipsec": "--carries xfrm", "wg": "--carries wireguard",
		"nat": "--carries route", "routes": "--carries route", "vxlam": "--carries vxlan",
		"tailscale": "--carries tunnel, for a tunnel of a program's own"} {
		if got := word.meant(); got != want {
			t.Errorf("%s: %s, want %s", word, got, want)
		}
	}
}
