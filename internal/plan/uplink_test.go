// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"slices"
	"strings"
	"testing"

	"weir/internal/hint"
	"weir/internal/host"
	"weir/internal/qdisc"
)

// linked is a host with these links and a default route by the first.
func linked(t *testing.T, links ...host.Link) host.Facts {
	f := with(t, func(f *host.Facts) { f.Links, f.Uplink = nil, links[0].Name })
	for i, l := range links {
		l.Index, l.Up, l.MTU, l.TxQueues = i+2, true, 1500, 1
		l.Tree = tree(t, "fq_codel", 1)
		f.Links = append(f.Links, l)
	}
	f.Defaults = []host.DefaultRoute{{Dev: links[0].Name}}
	return f
}

func TestUplink(t *testing.T) {
	card := func(name, master string) host.Link { return host.Link{Name: name, Master: master} }
	here := []string{"192.0.2.7/24"}
	for name, c := range map[string]struct {
		links  []host.Link
		want   string
		refuse string
	}{
		"a card": {[]host.Link{card("eth0", "")}, "eth0", ""},
		"Proxmox": {[]host.Link{{Name: "vmbr0", Kind: "bridge"}, card("eth0", "vmbr0"),
			{Name: "tap100i0", Kind: "tuntap", Master: "vmbr0"}}, "eth0", ""},
		"a bridge over a bond": {[]host.Link{{Name: "vmbr0", Kind: "bridge"},
			{Name: "bond0", Kind: "bond", Master: "vmbr0"}, card("eth0", "bond0"), card("eth1", "bond0")}, "bond0", ""},
		"a bond": {[]host.Link{{Name: "bond0", Kind: "bond"}, card("eth0", "bond0"),
			card("eth1", "bond0")}, "bond0", ""},
		"a bridge of two cards": {[]host.Link{{Name: "br0", Kind: "bridge"}, card("eth0", "br0"),
			card("eth1", "br0")}, "", "bridge of several cards"},
		"a bridge of guests alone": {[]host.Link{{Name: "br0", Kind: "bridge"},
			{Name: "veth1", Kind: "veth", Master: "br0"}}, "br0", ""},
		"a VLAN alone": {[]host.Link{{Name: "eth0.7", Kind: "vlan", Parent: "eth0"}, card("eth0", "")},
			"eth0.7", ""},
		"a VLAN alone on a bond": {[]host.Link{{Name: "bond0.100", Kind: "vlan", Parent: "bond0"},
			{Name: "bond0", Kind: "bond", Addrs: []string{"fe80::1/64"}}}, "bond0.100", ""},
		"a VLAN on a bond with an address": {[]host.Link{{Name: "bond0.100", Kind: "vlan", Parent: "bond0"},
			{Name: "bond0", Kind: "bond", Addrs: []string{"fe80::1/64", "192.0.2.7/24"}}}, "bond0", ""},
		"a tunnel whose remote is by one of two cards": {[]host.Link{{Name: "gre1", Kind: "gre", Parent: "eth1"},
			{Name: "eth0", Addrs: here}, {Name: "eth1", Addrs: here}}, "eth1", ""},
		"a VLAN of two": {[]host.Link{{Name: "eth0.7", Kind: "vlan", Parent: "eth0"}, card("eth0", ""),
			{Name: "eth0.8", Kind: "vlan", Parent: "eth0"}}, "eth0", ""},
		"a bridge over a VLAN": {[]host.Link{{Name: "br7", Kind: "bridge"},
			{Name: "eth0.7", Kind: "vlan", Parent: "eth0", Master: "br7"}, {Name: "eth0", Addrs: here}}, "eth0", ""},
		"a macvlan": {[]host.Link{{Name: "mac0", Kind: "macvlan", Parent: "eth0"},
			{Name: "eth0", Addrs: here}}, "eth0", ""},
		"a tunnel": {[]host.Link{{Name: "wg0", Kind: "wireguard"}, {Name: "eth0", Addrs: here}}, "eth0",
			""},
		"a tunnel over a bridge": {[]host.Link{{Name: "tun0", Kind: "tuntap"},
			{Name: "br0", Kind: "bridge", Addrs: here}, card("eth0", "br0"),
			{Name: "docker0", Kind: "bridge", Addrs: here}}, "eth0", ""},
		"a multicast VXLAN": {[]host.Link{{Name: "vx1", Kind: "vxlan", Parent: "eth1"}, {Name: "eth0", Addrs: here},
			{Name: "eth1", Addrs: here}}, "eth1", ""},
		"a tunnel and two cards": {[]host.Link{{Name: "wg0", Kind: "wireguard"}, {Name: "eth0", Addrs: here},
			{Name: "eth1", Addrs: here}}, "", "eth0, eth1"},
		"Open vSwitch": {[]host.Link{{Name: "ovs0", Kind: "openvswitch"}, card("eth0", "")}, "",
			"Open vSwitch"},
		"a circle": {[]host.Link{{Name: "a", Kind: "macvlan", Parent: "b"},
			{Name: "b", Kind: "macvlan", Parent: "a", Addrs: here}}, "b", ""},
		"a circle without an end": {[]host.Link{{Name: "a", Kind: "macvlan", Parent: "b", Addrs: here},
			{Name: "b", Kind: "macvlan", Parent: "a", Addrs: here}}, "a", ""},
	} {
		f := linked(t, c.links...)
		got, why, err := Uplink(f)
		if c.refuse != "" {
			refusal, is := err.(*hint.Error)
			if !is || !strings.Contains(refusal.What+refusal.Try, c.refuse) || !strings.Contains(refusal.Try, "--dev") {
				t.Errorf("%s: %v", name, err)
			}
			if _, err := planFor(Goal{Rate: 50e6}, f); err == nil {
				t.Errorf("%s: there is a plan", name)
			}
			continue
		}
		circle := strings.HasPrefix(name, "a circle")
		if got != c.want || err != nil || (why != "") != (got != f.Uplink) && !circle {
			t.Errorf("%s: %s, %q, %v", name, got, why, err)
		}
		p, err := planFor(Goal{Rate: 50e6}, f)
		if err != nil && !circle && got != "br0" {
			t.Errorf("%s: %v", name, err)
		}
		if err == nil && (p.Goals[0].Dev != c.want || len(p.Changes) == 0 || p.Changes[0].Dev() != c.want) {
			t.Errorf("%s: %+v", name, p.Changes)
		}
	}
}

// A tunnel whose other end is not known, and over which the host sends, leaves by the other default route: it cannot
// lead through itself.
func TestUplinkBelowVPN(t *testing.T) {
	here := []string{"192.0.2.7/24"}
	tun := host.DefaultRoute{Dev: "tun0"}
	for name, c := range map[string]struct {
		defaults []host.DefaultRoute
		want     string
		refused  bool
	}{
		"with a default route": {[]host.DefaultRoute{tun, {Dev: "eth1", Metric: 100}}, "eth1", false},
		"by a bridge":          {[]host.DefaultRoute{tun, {Dev: "br0"}}, "eth2", false},
		"of two, the first": {[]host.DefaultRoute{tun, {Dev: "eth1"}, {Dev: "eth0", Metric: 9}}, "eth1",
			false},
		"with another of each family": {[]host.DefaultRoute{tun, {Dev: "eth1"}, {Dev: "eth0", IPv6: true}}, "", true},
		"of both families by one": {[]host.DefaultRoute{tun, {Dev: "eth1"}, {Dev: "eth1", IPv6: true}}, "eth1",
			false},
		"with one of another table":     {[]host.DefaultRoute{tun, {Dev: "eth1", Table: 7}}, "", true},
		"without":                       {[]host.DefaultRoute{tun}, "", true},
		"and one by another tunnel":     {[]host.DefaultRoute{tun, {Dev: "wg0"}, {Dev: "eth1"}}, "eth1", false},
		"with a device that is gone":    {[]host.DefaultRoute{tun, {Dev: "eth9"}}, "", true},
		"the tunnel after the own card": {[]host.DefaultRoute{{Dev: "eth0"}, tun}, "eth0", false},
	} {
		f := linked(t, host.Link{Name: "tun0", Kind: "tuntap"}, host.Link{Name: "eth0", Addrs: here},
			host.Link{Name: "eth1", Addrs: here}, host.Link{Name: "wg0", Kind: "wireguard"},
			host.Link{Name: "br0", Kind: "bridge", Addrs: here}, host.Link{Name: "eth2", Master: "br0"})
		f.Uplink, f.Defaults = c.defaults[0].Dev, c.defaults
		if got, _, err := Uplink(f); got != c.want || (err != nil) != c.refused {
			t.Errorf("%s: %s, %v; want %s", name, got, err, c.want)
		}
	}
}

// What is planned for a tunnel, or followed below it, is for the card that its packets leave by, also where it has the
// default route itself.
func TestBelowOwnTunnel(t *testing.T) {
	f := linked(t, host.Link{Name: "tun0", Kind: "tuntap"}, host.Link{Name: "eth0", MAC: "52:54:00:12:34:56",
		Addrs: []string{"192.0.2.7/24"}})
	f.Links[1].Driver = "r8169" // a machine's own, whose card has 24 bytes around each frame
	f.Sysctls["net.ipv4.ip_forward"] = host.Sysctl{Value: "1"}
	if got := Forwarding(f, "eth0"); !slices.Equal(got, []int{2, 3}) {
		t.Errorf("followed: %v", got)
	}
	p, err := planFor(Goal{Dev: "tun0", Rate: 50e6}, f)
	if err != nil {
		t.Fatal(err)
	}
	f.Uplink, f.Defaults[0].Dev = "eth0", "eth0"
	tunneled, err := planFor(Goal{Dev: "tun0", Rate: 50e6}, f)
	if err != nil || p.Changes[0].New.String() != tunneled.Changes[0].New.String() {
		t.Errorf("%v, %v, %v", p.Changes, tunneled.Changes, err)
	}
}

// A bridge that is named is refused for its port: it would be said to be in force, and hold nothing.
func TestBridgeIsNoUplink(t *testing.T) {
	f := linked(t, host.Link{Name: "vmbr0", Kind: "bridge"}, host.Link{Name: "eth0", Master: "vmbr0"})
	_, err := planFor(Goal{Dev: "vmbr0", Rate: 50e6}, f)
	if refusal, is := err.(*hint.Error); !is || !strings.Contains(refusal.Try, "--dev eth0") {
		t.Errorf("%v", err)
	}
}

// What leaves by a tunnel is larger than what its queue counts.
func TestTunnelIsCountedOutside(t *testing.T) {
	f := linked(t, host.Link{Name: "wg0", Kind: "wireguard"}, host.Link{Name: "eth0", Addrs: []string{"192.0.2.7/24"}})
	p, err := planFor(Goal{Dev: "wg0", Rate: 50e6}, f)
	if err != nil || len(p.Changes) == 0 || !strings.Contains(p.Changes[0].New.String(), "overhead 74") {
		t.Errorf("%+v, %v", p.Changes, err)
	}
}

// Each other way out is named.
func TestOtherUplinks(t *testing.T) {
	f := linked(t, host.Link{Name: "eth0"}, host.Link{Name: "br1", Kind: "bridge"},
		host.Link{Name: "eth1", Master: "br1"})
	f.Defaults = []host.DefaultRoute{{Dev: "eth0"}, {Dev: "eth0", IPv6: true}, {Dev: "br1", Metric: 200}}
	p, err := planFor(Goal{Rate: 50e6}, f)
	if err != nil {
		t.Fatal(err)
	}
	said := ""
	for _, n := range p.Considered {
		if n.Subject == "br1" {
			said += n.Text
		}
	}
	if !strings.Contains(said, "metric 200") || !strings.Contains(said, "--dev eth1") {
		t.Errorf("%q in %+v", said, p.Considered)
	}
	both, err := Make([]Goal{{Rate: 50e6}, {Dev: "eth1", Rate: 50e6}}, f)
	for _, n := range both.Considered {
		if n.Subject == "br1" || err != nil {
			t.Errorf("%v, %v", n, err)
		}
	}
}

// A connection by another card tells nothing of the uplink. One that may leave by it in the end does.
func TestPassing(t *testing.T) {
	f := linked(t,
		host.Link{Name: "eth0"},
		host.Link{Name: "eth1"},
		host.Link{Name: "docker0", Kind: "bridge"}, host.Link{Name: "veth1", Kind: "veth", Master: "docker0"},
		host.Link{Name: "eth0.7", Kind: "vlan", Parent: "eth0"},
		host.Link{Name: "eth1.7", Kind: "vlan", Parent: "eth1"},
		host.Link{Name: "wg0", Kind: "wireguard"},
		host.Link{Name: "br-vx", Kind: "bridge"}, host.Link{Name: "vx", Kind: "vxlan", Master: "br-vx"},
		host.Link{Name: "vmbr0", Kind: "bridge"}, host.Link{Name: "eth2", Master: "vmbr0"},
		host.Link{Name: "tap0", Kind: "tuntap", MAC: "52:54:00:00:00:01", Master: "vmbr0"},
		host.Link{Name: "a", Kind: "macvlan", Parent: "b"}, host.Link{Name: "b", Kind: "macvlan", Parent: "a"},
		host.Link{Name: "vrf0", Kind: "vrf"}, host.Link{Name: "ovs0", Kind: "openvswitch"})
	for dev, want := range map[string]string{
		"eth0":  "eth1 docker0 veth1 eth1.7 vmbr0 eth2 a b",
		"eth2":  "eth0 eth1 docker0 veth1 eth0.7 eth1.7 a b",
		"vmbr0": "eth0 eth1 docker0 veth1 eth0.7 eth1.7 eth2 a b",
	} {
		may, not := Passing(f.Links, dev), []string{}
		for _, l := range f.Links {
			if !may[l.Index] {
				not = append(not, l.Name)
			}
		}
		if got := strings.Join(not, " "); got != want {
			t.Errorf("not by %s: %s, and not %s", dev, got, want)
		}
	}
}

// What leaves by a device passes those below it; of several of which one may carry it, those alone that show it.
func TestLeaving(t *testing.T) {
	port := func(name, kind, master string, stats qdisc.Stats) host.Link {
		return host.Link{Name: name, Kind: kind, Master: master, TxBytes: stats.Backlog, RxBytes: stats.Recent.Drops}
	}
	waits, drops := qdisc.Stats{Backlog: 1}, qdisc.Stats{Recent: qdisc.Recent{Drops: 1}}
	card := func(name string) host.Link { return host.Link{Name: name, Addrs: []string{"192.0.2.7/24"}} }
	bridge := host.Link{Name: "br0", Kind: "bridge"}
	none := qdisc.Stats{}
	for name, c := range map[string]struct {
		links []host.Link
		want  string
	}{
		"a card":   {[]host.Link{card("eth0"), card("eth1")}, "eth0"},
		"a bridge": {[]host.Link{bridge, port("v0", "veth", "br0", none)}, "br0 v0"},
		"a bridge with guest": {[]host.Link{bridge, port("v0", "veth", "br0", waits),
			port("eth0", "", "br0", none)}, "br0 eth0"},
		"a bridge of guests": {[]host.Link{bridge, port("v0", "veth", "br0", none),
			port("v1", "veth", "br0", none)}, "br0"},
		"a bridge of guests, of which some hold packets": {[]host.Link{bridge, port("v0", "veth", "br0", drops),
			port("v1", "veth", "br0", none), port("v2", "veth", "br0", waits)}, "br0 v0 v2"},
		"a bridge of cards": {[]host.Link{bridge, port("eth0", "", "br0", none), port("eth1", "", "br0", drops)},
			"br0 eth1"},
		"a bond": {[]host.Link{{Name: "bond0", Kind: "bond"}, port("eth0", "", "bond0", none),
			port("eth1", "", "bond0", none)}, "bond0 eth0 eth1"},
		"a VLAN on a bond": {[]host.Link{{Name: "bond0.7", Kind: "vlan", Parent: "bond0"},
			{Name: "bond0", Kind: "bond"},
			port("eth0", "", "bond0", none)}, "bond0.7 bond0 eth0"},
		"a tunnel": {[]host.Link{{Name: "gre1", Kind: "gre", Parent: "eth1"}, card("eth0"), card("eth1")}, "gre1 eth1"},
		"a tunnel whose other end is not known": {[]host.Link{{Name: "wg0", Kind: "wireguard"}, card("eth0"),
			card("eth1")}, "wg0"},
		"a tunnel over the only card": {[]host.Link{{Name: "wg0", Kind: "wireguard"}, card("eth0")}, "wg0 eth0"},
		"a circle": {[]host.Link{{Name: "a", Kind: "macvlan", Parent: "b"}, {Name: "b", Kind: "macvlan", Parent: "a"}},
			"a b"},
	} {
		f := linked(t, c.links...)
		for i, l := range f.Links {
			f.Links[i].Tree.Qdiscs[0].Stats = qdisc.Stats{Backlog: l.TxBytes, Recent: qdisc.Recent{Drops: l.RxBytes}}
		}
		if got := strings.Join(namesOf(Leaving(f, f.Uplink)), " "); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
	if got := Leaving(linked(t, card("eth0")), "eth9"); got != nil {
		t.Errorf("a device that is not there: %v", got)
	}
}

// A device to which filters lead what leaves is on the way where as much has passed there of late, and a plan says what
// passes there first, or never comes back.
func TestLedOut(t *testing.T) {
	for name, c := range map[string]struct {
		passed, led qdisc.Stats
		kind, queue string
		want, says  string
	}{
		"all of it": {qdisc.Stats{Bytes: 100}, qdisc.Stats{Bytes: 100}, "ifb", "tbf rate 8mbit burst 5kb limit 60kb",
			"eth0 to0", "through to0 first, which lets 8mbit pass"},
		"some": {qdisc.Stats{Bytes: 100}, qdisc.Stats{Bytes: 49}, "ifb", "tbf rate 8mbit burst 5kb limit 60kb",
			"eth0", "through to0 first"},
		"once, and not of late": {qdisc.Stats{Bytes: 100, Recent: qdisc.Recent{Bytes: 10}}, qdisc.Stats{Bytes: 90},
			"ifb", "fq_codel", "eth0", ""},
		"all of late": {qdisc.Stats{Bytes: 1000, Recent: qdisc.Recent{Bytes: 10}},
			qdisc.Stats{Bytes: 20, Recent: qdisc.Recent{Bytes: 10}}, "ifb", "fq_codel", "eth0 to0", ""},
		"before it comes to the queue": {qdisc.Stats{}, qdisc.Stats{Bytes: 20}, "veth", "fq_codel", "eth0 to0",
			"weir plan --dev to0 --rate"},
	} {
		f := linked(t, host.Link{Name: "eth0", LedOut: []string{"to0", "gone0"}}, host.Link{Name: "to0", Kind: c.kind})
		f.Links[1].Tree = tree(t, c.queue, 1)
		f.Links[0].Tree.Qdiscs[0].Stats, f.Links[1].Tree.Qdiscs[0].Stats = c.passed, c.led
		if got := strings.Join(namesOf(Leaving(f, "eth0")), " "); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
		p, err := planFor(Goal{Rate: 50e6}, f)
		if err != nil {
			t.Fatal(err)
		}
		said := ""
		for _, n := range p.Considered {
			if n.Subject == "eth0" && strings.HasPrefix(n.Text, "filters lead") {
				said += n.Text
			}
		}
		if !strings.Contains(said, c.says) || c.says == "" && said != "" {
			t.Errorf("%s: %q, want %q", name, said, c.says)
		}
	}
}
