// SPDX-License-Identifier: Apache-2.0

package qdisc

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	links "github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

func TestParseArriving(t *testing.T) {
	for _, text := range []string{
		"fq_codel",
		"cake bandwidth 45mbit besteffort dual-dsthost rtt 500ms nat ingress, unpacked tun0 from udp/1194",
		"htb rate 45mbit | fq_codel, unpacked tun0 wg0 from tcp/443 udp/1194 udp/51820",
		"fq_codel, unpacked from udp/7000", // the tunnel has gone
		"fq_codel, unpacked tun0 from",     // nobody knows in what it comes
	} {
		a, err := ParseArriving(text)
		if err != nil {
			t.Errorf("%q: %v", text, err)
			continue
		}
		if got := a.String(); got != text {
			t.Errorf("%q reads as %q", text, got)
		}
	}
	for _, bad := range []string{
		"", "nosuch", "fq_codel, unpacked", "fq_codel, unpacked tun0", "fq_codel, unpacked tun0 from udp",
		"fq_codel, unpacked tun0 from udp/0",
		"fq_codel, unpacked tun0 from udp/65536", "fq_codel, unpacked tun0 from sctp/1",
		"fq_codel, unpacked a;b from udp/1", "fq_codel, unpacked -x from udp/1",
	} {
		if a, err := ParseArriving(bad); err == nil {
			t.Errorf("%q is %+v", bad, a)
		}
	}
}

func TestArrivingMeets(t *testing.T) {
	for _, c := range []struct {
		is, want string
		meets    bool
	}{
		{"fq_codel", "fq_codel", true},
		{"fq_codel", "pfifo", false},
		{"fq_codel", "fq_codel, unpacked tun0 from udp/1", false},
		{"fq_codel, unpacked tun0 from udp/1", "fq_codel", false},
		{"fq_codel, unpacked tun0 from udp/1", "fq_codel, unpacked tun0 from udp/1", true},
		{"fq_codel, unpacked tun0 from udp/1", "fq_codel, unpacked tun0 from udp/2", false},
		{"fq_codel, unpacked tun0 from udp/1", "fq_codel, unpacked tun0 from", true},
		{"fq_codel, unpacked tun0 from", "fq_codel, unpacked tun0 from udp/1", false},
		{"fq_codel, unpacked tun1 from udp/1", "fq_codel, unpacked tun0 from", false},
	} {
		is, err := ParseArriving(c.is)
		if err != nil {
			t.Fatal(err)
		}
		want, err := ParseArriving(c.want)
		if err != nil {
			t.Fatal(err)
		}
		if is.Meets(want) != c.meets {
			t.Errorf("%q where %q is wanted: %v", c.is, c.want, !c.meets)
		}
	}
}

func FuzzArriving(f *testing.F) {
	f.Add("cake bandwidth 45mbit, unpacked tun0 wg0 from udp/1194 tcp/443")
	f.Add("htb rate 1mbit | fq_codel, unpacked from")
	f.Fuzz(func(t *testing.T, text string) {
		a, err := ParseArriving(text)
		if err != nil {
			return
		}
		again, err := ParseArriving(a.String())
		if err != nil || !again.Meets(a) || !slices.Equal(again.Outer, a.Outer) {
			t.Errorf("%q is written as %q, which reads as %+v, %v", text, a, again, err)
		}
	})
}

// What comes out of tunnels passes the queue, what they came in goes past it, and of all that nothing is left,
// whoever else has filters there.
func TestLiveUnpacked(t *testing.T) {
	c, near := live(t)
	known(t, c, mustParse(t, "fq_codel"))
	devices := dummies(t, "tnl0", "tnl1")
	const text = "fq_codel, unpacked tnl0 tnl1 from tcp/443 udp/1194"
	set := func(text string) error {
		t.Helper()
		a, err := ParseArriving(text)
		if err != nil {
			t.Fatal(err)
		}
		return SetIngress(near, a)
	}
	if err := set(text); errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.ENOENT) {
		t.Skipf("skipped, not passed: this kernel cannot redirect to an ifb: %v", err)
	} else if err != nil {
		t.Fatal(err)
	}
	led := func(name string) bool {
		t.Helper()
		ifb, err := links.LinkByName(IFB)
		if err != nil {
			t.Fatal(err)
		}
		to, ok, err := c.Redirect(devices[name])
		if err != nil {
			t.Fatal(err)
		}
		return ok && to == ifb.Attrs().Index
	}
	past := func() string {
		t.Helper()
		outer, err := c.Passes(near)
		if err != nil {
			t.Fatal(err)
		}
		return fmt.Sprint(outer)
	}
	if !led("tnl0") || !led("tnl1") || past() != "[tcp/443 udp/1194]" {
		t.Errorf("tnl0 %v, tnl1 %v, past %s", led("tnl0"), led("tnl1"), past())
	}
	if err := set(text); err != nil {
		t.Errorf("again: %v", err)
	}
	filters := func(index int) int {
		t.Helper()
		list, err := c.filters(index, atIngress)
		if err != nil {
			t.Fatal(err)
		}
		return len(list)
	}
	if n := filters(near); n != 5 { // two kinds of packets, each for both versions of IP, and all others
		t.Errorf("%d filters", n)
	}
	// Another tunnel, other packets: nothing of before stays.
	if err := set("fq_codel, unpacked tnl1 from udp/51820"); err != nil {
		t.Fatal(err)
	}
	if led("tnl0") || !led("tnl1") || past() != "[udp/51820]" || filters(near) != 3 || filters(devices["tnl0"]) != 0 {
		t.Errorf("tnl0 %v, tnl1 %v, past %s, %d filters, %d", led("tnl0"), led("tnl1"), past(), filters(near),
			filters(devices["tnl0"]))
	}
	// A filter of somebody else's at the same place.
	proto := nl.IPProto(unix.IPPROTO_UDP)
	theirs := &links.Flower{FilterAttrs: links.FilterAttrs{LinkIndex: near, Parent: uint32(atIngress), Priority: 7,
		Protocol: unix.ETH_P_IP},
		EthType: unix.ETH_P_IP, IPProto: &proto, DestPort: 53}
	if err := links.FilterAdd(theirs); err != nil {
		t.Fatal(err)
	}
	if err := set("fq_codel, unpacked tnl9 from udp/51820"); err == nil ||
		!strings.Contains(err.Error(), "not all of the tunnels") {
		t.Errorf("a tunnel that is not there: %v", err)
	}
	if err := SetIngress(near, Arriving{}); err != nil {
		t.Fatal(err)
	}
	if filters(near) != 1 || filters(devices["tnl1"]) != 0 || past() != "[]" {
		t.Errorf("left: %d filters, %d, past %s", filters(near), filters(devices["tnl1"]), past())
	}
	if ifb, err := links.LinkByName(IFB); !errors.As(err, new(links.LinkNotFoundError)) {
		t.Errorf("%v is left, %v", ifb, err)
	}
	// Somebody has taken the device away: what led there goes, too, and packets are not lost any more.
	if err := set(text); err != nil {
		t.Fatal(err)
	}
	ifb, err := links.LinkByName(IFB)
	if err != nil {
		t.Fatal(err)
	}
	if err := links.LinkDel(ifb); err != nil {
		t.Fatal(err)
	}
	if err := SetIngress(near, Arriving{}); err != nil {
		t.Fatal(err)
	}
	if filters(near) != 1 || filters(devices["tnl0"]) != 0 || filters(devices["tnl1"]) != 0 {
		t.Errorf("left without the device: %d filters, %d, %d", filters(near), filters(devices["tnl0"]),
			filters(devices["tnl1"]))
	}
}

// dummies makes devices of that kind, and gives their indices.
func dummies(t *testing.T, names ...string) map[string]int {
	t.Helper()
	devices := map[string]int{}
	for _, name := range names {
		attrs := links.NewLinkAttrs()
		attrs.Name = name
		if err := links.LinkAdd(&links.Dummy{LinkAttrs: attrs}); err != nil {
			t.Skipf("skipped, not passed: no dummy device: %v", err)
		}
		l, err := links.LinkByName(name)
		if err != nil {
			t.Fatal(err)
		}
		devices[name] = l.Attrs().Index
	}
	return devices
}

// A run that is killed may leave half of anything. The next one completes it, or takes it away.
func TestLiveUnpackedInHalves(t *testing.T) {
	c, near := live(t)
	known(t, c, mustParse(t, "fq_codel"))
	tunnel := dummies(t, "tnl0")["tnl0"]
	whole, err := ParseArriving("fq_codel, unpacked tnl0 from udp/1194")
	if err != nil {
		t.Fatal(err)
	}
	listed := func(index int) (list []Filter) {
		t.Helper()
		list, err := c.filters(index, atIngress)
		if err != nil {
			t.Fatal(err)
		}
		return slices.DeleteFunc(list, Filter.table)
	}
	drop := func(index int, which func(Filter) bool) {
		t.Helper()
		before := len(listed(index))
		if err := c.dropFilters(index, which); err != nil || len(listed(index)) != before-1 {
			t.Fatalf("%v; %d filters, were %d", err, len(listed(index)), before)
		}
	}
	set := func(a Arriving) {
		t.Helper()
		if err := SetIngress(near, a); errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.ENOENT) {
			t.Skipf("skipped, not passed: this kernel cannot redirect to an ifb: %v", err)
		} else if err != nil {
			t.Fatal(err)
		}
	}
	for protocol := range smallKeys {
		ofIt := func(f Filter) bool { return f.Protocol == protocol && !f.table() }
		set(whole)
		if n := len(listed(tunnel)); n != 3 {
			t.Fatalf("%d filters at the tunnel", n)
		}
		drop(tunnel, ofIt)
		set(whole)
		if n := len(listed(tunnel)); n != 3 {
			t.Errorf("without the small ones of %#x, and set again: %d filters at the tunnel", protocol, n)
		}
		// Nothing shall go past any more, and half of a pair is there.
		drop(near, ofIt)
		set(Arriving{Stack: whole.Stack, Tunnels: whole.Tunnels})
		if n := len(listed(near)); n != 1 {
			t.Errorf("half of a pair stays: %+v", listed(near))
		}
	}
	set(Arriving{})
	// The ingress discipline was there, and no filter yet.
	set(Arriving{Stack: whole.Stack})
	if err := c.installIngress(tunnel); err != nil {
		t.Fatal(err)
	}
	set(Arriving{Tunnels: whole.Tunnels})
	if tree, err := c.Tree(tunnel); err != nil || slices.ContainsFunc(tree.Qdiscs, atTheIngress) {
		t.Errorf("left at the tunnel: %+v, %v", tree.Qdiscs, err)
	}
}

// What others have at other devices stays, though tc has given it the same priorities.
func TestLiveOthersStay(t *testing.T) {
	c, near := live(t)
	known(t, c, mustParse(t, "fq_codel"))
	devices := dummies(t, "tnl0", "oth0", "oth1")
	theirs := func(key nl.TcU32Key, class uint32) *links.U32 {
		return &links.U32{
			FilterAttrs: links.FilterAttrs{LinkIndex: devices["oth0"], Parent: uint32(atIngress),
				Priority: passPriority(unix.ETH_P_IP), Protocol: unix.ETH_P_IP},
			ClassId: class,
			Sel:     &nl.TcU32Sel{Flags: nl.TC_U32_TERMINAL, Nkeys: 1, Keys: []nl.TcU32Key{key}},
		}
	}
	for _, name := range []string{"oth0", "oth1"} {
		if err := c.installIngress(devices[name]); errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.ENOENT) {
			t.Skipf("skipped, not passed: this kernel has no ingress: %v", err)
		} else if err != nil {
			t.Fatal(err)
		}
	}
	ours := smallKeys[unix.ETH_P_IP]
	for _, f := range []*links.U32{
		theirs(nl.TcU32Key{Mask: 0xffffffff, Val: 0x0a000001, Off: 12}, 0),
		theirs(nl.TcU32Key{Mask: ours.mask, Val: 0x00000100, Off: ours.off}, 0),
		theirs(nl.TcU32Key{Mask: ours.mask, Off: ours.off}, 0x10001),
	} {
		if err := links.FilterAdd(f); err != nil {
			t.Skipf("skipped, not passed: no u32: %v", err)
		}
	}
	proto := nl.IPProto(unix.IPPROTO_UDP)
	if err := c.installIngress(devices["tnl0"]); err != nil {
		t.Fatal(err)
	}
	if err := links.FilterAdd(&links.Flower{FilterAttrs: links.FilterAttrs{LinkIndex: devices["tnl0"],
		Parent: uint32(atIngress), Priority: 7,
		Protocol: unix.ETH_P_IP}, EthType: unix.ETH_P_IP, IPProto: &proto, DestPort: 53}); err != nil {
		t.Fatal(err)
	}
	a, err := ParseArriving("fq_codel, unpacked tnl0 from udp/1194")
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range []Arriving{a, {Tunnels: []string{"tnl0"}}} {
		if err := SetIngress(near, a); errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.ENOENT) {
			t.Skipf("skipped, not passed: this kernel cannot redirect to an ifb: %v", err)
		} else if err != nil {
			t.Fatal(err)
		}
		list, err := c.filters(devices["oth0"], atIngress)
		if list = slices.DeleteFunc(list, Filter.table); err != nil || len(list) != 3 {
			t.Errorf("left of three filters: %+v, %v", list, err)
		}
		tree, err := c.Tree(devices["oth1"])
		if err != nil || !slices.ContainsFunc(tree.Qdiscs, func(q Qdisc) bool { return q.Parent == Ingress }) {
			t.Errorf("an ingress without filters: %+v, %v", tree.Qdiscs, err)
		}
	}
	if left, err := c.filters(devices["tnl0"], atIngress); err != nil || len(left) != 1 || left[0].Priority != 7 {
		t.Errorf("at a tunnel that had a filter of its own: %+v, %v", left, err)
	}
}
