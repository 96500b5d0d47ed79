// SPDX-License-Identifier: Apache-2.0

package qdisc

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/mdlayher/netlink"
	links "github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// What tc (iproute2 6.1.0) sends for: tc filter add dev lo parent ffff:fff2 protocol all matchall action mirred
// egress redirect dev lo
const redirectsToLo = "38000200" + "34000100" + "0b000100" + "6d697272656400" + "00" + "24000280" + "20000200" +
	"00000000" + "00000000" + "04000000" + "00000000" + "00000000" + "01000000" + "01000000"

func redirectOptions(t testing.TB) []byte {
	t.Helper()
	b, err := hex.DecodeString(redirectsToLo)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestRedirectAsTC(t *testing.T) {
	if got, err := redirectTo(1); err != nil || !bytes.Equal(got, redirectOptions(t)) {
		t.Errorf("%x, %v", got, err)
	}
}

func TestRedirects(t *testing.T) {
	good := Filter{Kind: "matchall", Protocol: unix.ETH_P_ALL, Options: redirectOptions(t)}
	if to, ok := good.redirects(); to != 1 || !ok {
		t.Errorf("%d, %v", to, ok)
	}
	spoiled := func(at int, b byte) (f Filter) {
		f = good
		f.Options = redirectOptions(t)
		f.Options[at] = b
		return f
	}
	for name, f := range map[string]Filter{
		"another kind":     {Kind: "u32", Protocol: unix.ETH_P_ALL, Options: good.Options},
		"one protocol":     {Kind: "matchall", Protocol: unix.ETH_P_IP, Options: good.Options},
		"another chain":    {Kind: "matchall", Protocol: unix.ETH_P_ALL, Chain: 1, Options: good.Options},
		"no action":        {Kind: "matchall", Protocol: unix.ETH_P_ALL},
		"another action":   spoiled(12, 'M'),
		"a mirror":         spoiled(48, 2),
		"a short struct":   spoiled(24, 30),
		"a cut attribute":  {Kind: "matchall", Protocol: unix.ETH_P_ALL, Options: good.Options[:20]},
		"too long a claim": spoiled(0, 255),
	} {
		if to, ok := f.redirects(); ok {
			t.Errorf("%s: redirects to %d", name, to)
		}
	}
}

// Who else leads what arrives to a device of their own is heard, however their filter says it.
func TestLiveDiverted(t *testing.T) {
	c, near := live(t)
	to := dummies(t, "ifb4near")["ifb4near"]
	const redirect = "action mirred egress redirect dev ifb4near"
	for filter, want := range map[string]bool{
		"protocol all prio 10 u32 match u32 0 0 flowid 1:1 " + redirect:                true, // sqm-scripts'
		"protocol ip prio 10 u32 match u32 0 0 at 4 match u32 0 0 " + redirect:         true,
		"protocol all matchall action skbedit priority 1 pipe " + redirect:             true,
		"protocol all matchall " + redirect:                                            true,
		"protocol ipv6 matchall " + redirect:                                           false,
		"protocol ip u32 match ip dport 22 0xffff " + redirect:                         false,
		"protocol all chain 3 matchall " + redirect:                                    false,
		"protocol all matchall action mirred egress mirror dev ifb4near":               false,
		"protocol all matchall " + redirect + " action skbedit priority 1":             false,
		"protocol all u32 match u32 0 0 flowid 1:1 action police rate 1mbit burst 10k": false,
	} {
		for _, line := range []string{"qdisc add dev near ingress", "filter add dev near parent ffff: " + filter} {
			if said, err := run(t, "tc "+line); err != nil {
				t.Fatalf("tc %s: %v: %s", line, err, said)
			}
		}
		got, ok, err := c.Diverted(near)
		if err != nil || ok != want || ok && got != to {
			t.Errorf("%s: to %d, %v, %v", filter, got, ok, err)
		}
		if err := c.Delete(near, Ingress); err != nil {
			t.Fatal(err)
		}
	}
}

func FuzzRedirects(f *testing.F) {
	f.Add(redirectOptions(f))
	f.Fuzz(func(t *testing.T, b []byte) {
		_, _ = (Filter{Kind: "u32", Protocol: unix.ETH_P_ALL, Handle: 0x80000800, Options: b}).diverts()
		Filter{Kind: "matchall", Protocol: unix.ETH_P_ALL, Options: b}.redirects()
	})
}

// All that arrives passes a stack, which is changed in place and goes without a trace; whoever else has filters there
// keeps them.
func TestLiveIngress(t *testing.T) {
	c, near := live(t)
	known(t, c, mustParse(t, "htb rate 1mbit | fq_codel"))
	before, err := c.Tree(near)
	if err != nil {
		t.Fatal(err)
	}
	set := func(text string) (Tree, int) {
		t.Helper()
		if err := SetIngress(near, Arriving{Stack: mustParse(t, text)}); errors.Is(err, unix.EOPNOTSUPP) ||
			errors.Is(err, unix.ENOENT) {
			t.Skipf("skipped, not passed: this kernel cannot redirect to an ifb: %v", err)
		} else if err != nil {
			t.Fatal(err)
		}
		ifb, err := links.LinkByName(IFB)
		if err != nil {
			t.Fatal(err)
		}
		to, ok, err := c.Redirect(near)
		if err != nil || !ok || to != ifb.Attrs().Index || ifb.Attrs().Flags&1 == 0 {
			t.Fatalf("redirects to %d, %v, %v; the device is %+v", to, ok, err, ifb.Attrs())
		}
		tree, err := c.Tree(to)
		if now, _ := tree.Stack(); err != nil || !now.Equal(mustParse(t, text)) {
			t.Fatalf("%s, %v", now, err)
		}
		return tree, to
	}
	gone := func() {
		t.Helper()
		if err := SetIngress(near, Arriving{}); err != nil {
			t.Fatal(err)
		}
		if ifb, err := links.LinkByName(IFB); !errors.As(err, new(links.LinkNotFoundError)) {
			t.Errorf("%v is left, %v", ifb, err)
		}
	}
	asBefore := func() {
		t.Helper()
		if now, err := c.Tree(near); err != nil || len(now.Qdiscs) != len(before.Qdiscs) || !now.Same(before) {
			t.Errorf("%+v, was %+v, %v", now, before, err)
		}
	}
	first, to := set("htb rate 20mbit burst 3028b cburst 3028b quantum 1514 | fq_codel")
	second, again := set("htb rate 10mbit burst 3028b cburst 3028b quantum 1514 | fq_codel")
	if a, b := first.Qdiscs[0].Handle, second.Qdiscs[0].Handle; a != b || to != again {
		t.Errorf("not changed in place: %s of %d, then %s of %d", a, to, b, again)
	}
	if now, err := c.Tree(near); err != nil || !now.Same(before) {
		t.Errorf("the root is not as it was: %+v, %v", now, err)
	}
	if said, err := exec.Command("tc", "filter", "show", "dev", "near", "ingress").CombinedOutput(); err == nil {
		if !strings.Contains(string(said), "(Egress Redirect to device "+IFB+") stolen") {
			t.Errorf("tc says %s", said)
		}
	}
	gone()
	asBefore()
	gone() // again

	// Half of it, as when a run is cut short, and the rest taken away by somebody.
	_, to = set("htb rate 10mbit | fq_codel")
	if err := c.unredirect(near, leadsTo(to), false); err != nil {
		t.Fatal(err)
	}
	gone()
	asBefore()
	set("htb rate 10mbit | fq_codel")
	ifb, _ := links.LinkByName(IFB)
	if err := links.LinkDel(ifb); err != nil {
		t.Fatal(err)
	}
	if to, ok, err := c.Redirect(near); err != nil || !ok || to != 0 {
		t.Errorf("to a device that is gone: %d, %v, %v", to, ok, err)
	}
	set("htb rate 10mbit | fq_codel")
	gone()
	asBefore()

	// Somebody else's.
	set("htb rate 10mbit | fq_codel")
	drop := &links.MatchAll{
		FilterAttrs: links.FilterAttrs{LinkIndex: near, Parent: uint32(atIngress), Priority: 3,
			Protocol: unix.ETH_P_IP},
		Actions: []links.Action{&links.MirredAction{ActionAttrs: links.ActionAttrs{Action: links.TC_ACT_PIPE},
			MirredAction: links.TCA_EGRESS_MIRROR, Ifindex: 1}},
	}
	if err := links.FilterAdd(drop); err != nil {
		t.Fatal(err)
	}
	gone()
	c.mu.Lock()
	left, err := c.filters(near, atIngress)
	c.mu.Unlock()
	if err != nil || len(left) != 1 || left[0].Priority != 3 {
		t.Errorf("left are %+v, %v", left, err)
	}
	if err := c.Delete(near, Ingress); err != nil {
		t.Fatal(err)
	}
	clsact := func(flags netlink.HeaderFlags, typ uint16) {
		r, err := newRequest(typ, flags, tcmsg{ifindex: near, handle: 0xFFFF0000, parent: Ingress}, "clsact",
			attributes("clsact", nil)...)
		if err != nil {
			t.Fatal(err)
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		if err := c.send([]request{r}); err != nil {
			t.Fatal(err)
		}
	}
	clsact(netlink.Create, unix.RTM_NEWQDISC)
	if err := SetIngress(near, Arriving{Stack: mustParse(t, "fq_codel")}); err == nil {
		t.Error("it takes the place of a clsact")
	}
	gone()
	if now, err := c.Tree(near); err != nil || len(now.Qdiscs) != len(before.Qdiscs)+1 {
		t.Errorf("%+v, %v", now, err)
	}
	clsact(0, unix.RTM_DELQDISC)

	// A device of our name that is none of ours.
	if err := links.LinkAdd(&links.Dummy{LinkAttrs: links.LinkAttrs{Name: IFB}}); err != nil {
		t.Skip("skipped, not passed: this kernel makes no dummy device")
	}
	if err := SetIngress(near, Arriving{Stack: mustParse(t, "fq_codel")}); err == nil ||
		!strings.Contains(err.Error(), "of kind dummy") {
		t.Errorf("%v", err)
	}
	asBefore()
}

// Two uplinks have a device each, with a queue of its own, and what comes out of tunnels stays where it was led.
func TestLiveIngressAtTwo(t *testing.T) {
	c, near := live(t)
	known(t, c, mustParse(t, "fq_codel"))
	devices := dummies(t, "wan2", "tnl0")
	set := func(ifindex int, text string) error {
		t.Helper()
		a, err := ParseArriving(text)
		if err != nil {
			t.Fatal(err)
		}
		return SetIngress(ifindex, a)
	}
	if err := set(near, "fq_codel limit 100, unpacked tnl0 from udp/1194"); errors.Is(err, unix.EOPNOTSUPP) ||
		errors.Is(err, unix.ENOENT) {
		t.Skipf("skipped, not passed: this kernel cannot redirect to an ifb: %v", err)
	} else if err != nil {
		t.Fatal(err)
	}
	through := func(ifindex int) string {
		t.Helper()
		to, ok, err := c.Redirect(ifindex)
		if err != nil || !ok {
			return fmt.Sprint("nothing ", err)
		}
		ifb, err := links.LinkByIndex(to)
		if err != nil {
			return err.Error()
		}
		tree, err := c.Tree(to)
		stack, _ := tree.Stack()
		return fmt.Sprint(ifb.Attrs().Name, " ", stack, " ", err)
	}
	is := func(what string, near, wan, tunnel string) {
		t.Helper()
		for dev, want := range map[int]string{devices["near"]: near, devices["wan2"]: wan, devices["tnl0"]: tunnel} {
			if got := through(dev); !strings.HasPrefix(got, want) {
				t.Errorf("%s: %s, not %s", what, got, want)
			}
		}
	}
	devices["near"] = near
	small := func() int {
		c.mu.Lock()
		defer c.mu.Unlock()
		filters, err := c.filters(devices["tnl0"], atIngress)
		if err != nil {
			t.Fatal(err)
		}
		return len(filters)
	}
	first, both := IFB+" fq_codel limit 100", small()
	if err := set(devices["wan2"], "fq_codel limit 200"); err != nil {
		t.Fatal(err)
	}
	second := IFB + "2 fq_codel limit 200"
	is("both", first, second, first)
	if now := small(); now != both {
		t.Errorf("the tunnel had %d filters and has %d", both, now)
	}
	if err := set(devices["wan2"], "fq_codel limit 200p, unpacked tnl0 from udp/1"); err == nil ||
		!strings.Contains(err.Error(), "another device already") {
		t.Errorf("the other's tunnel: %v", err)
	}
	if err := set(devices["wan2"], "fq_codel limit 300"); err != nil {
		t.Fatal(err)
	}
	is("changed", first, IFB+"2 fq_codel limit 300", first)
	if err := SetIngress(near, Arriving{Tunnels: []string{"tnl0"}}); err != nil {
		t.Fatal(err)
	}
	is("one gone", "nothing", IFB+"2 fq_codel limit 300", "nothing")
	if err := set(near, "fq_codel limit 100"); err != nil {
		t.Fatal(err)
	}
	is("back", first, IFB+"2 fq_codel limit 300", "nothing")
	for _, dev := range []int{near, devices["wan2"]} {
		if err := SetIngress(dev, Arriving{}); err != nil {
			t.Fatal(err)
		}
	}
	all, err := links.LinkList()
	if err != nil || slices.ContainsFunc(all, func(l links.Link) bool { return IsIFB(l.Attrs().Name) }) {
		t.Errorf("left: %v, %v", all, err)
	}
}

func TestIsIFB(t *testing.T) {
	for name, want := range map[string]bool{"ifb-weir": true, "ifb-weir2": true, "ifb-weir10": true, "ifb-weir1": false,
		"ifb-weir02": false, "ifb-weirx": false, "ifb-weir-2": false, "ifb0": false, "": false} {
		if IsIFB(name) != want {
			t.Error(name)
		}
	}
}

// Whatever filters somebody else has where things arrive stay as tc shows them, while ours come and go.
func TestLiveIngressBesideOthers(t *testing.T) {
	c, near := live(t)
	known(t, c, mustParse(t, "fq_codel"))
	for _, line := range []string{"qdisc add dev near ingress",
		"filter add dev near ingress protocol ip prio 3 u32 match ip dport 22 0xffff police rate 1mbit burst 10k " +
			"drop flowid :1",
		"filter add dev near ingress protocol ip prio 4 flower ip_proto udp dst_port 53 action pass",
		"filter add dev near ingress protocol ipv6 prio 5 matchall action drop",
		"filter add dev near ingress protocol ip prio 49150 flower ip_proto udp dst_port 7 classid 1:1"} {
		if said, err := run(t, "tc "+line); err != nil {
			t.Skipf("skipped, not passed: on this kernel tc %s says %s", line, said)
		}
	}
	show := func() string {
		said, err := run(t, "tc -d filter show dev near ingress")
		if err != nil {
			t.Fatal(said)
		}
		return counted.ReplaceAllString(said, "")
	}
	before := show()
	for range 2 {
		if err := SetIngress(near, Arriving{Stack: mustParse(t, "fq_codel"),
			Outer: []Outer{{"udp", 51820}}}); err != nil {
			t.Fatal(err)
		}
		if now := show(); !strings.Contains(now, "51820") || !strings.Contains(now, "dst_port 7") {
			t.Errorf("beside ours there is:\n%s", now)
		}
		if err := SetIngress(near, Arriving{}); err != nil {
			t.Fatal(err)
		}
		if now := show(); now != before {
			t.Errorf("left is not what was there:\n%s", difference(before, now))
		}
	}
}

// What leaves is led to other devices by filters at the egress, and by those at the root and below.
func TestLedOut(t *testing.T) {
	to := func(dev int) []byte {
		options, err := redirectTo(dev)
		if err != nil {
			t.Fatal(err)
		}
		return options
	}
	listed := object(2, 1, atEgress, 5<<16|8, "matchall", to(9))
	below := Filter{Kind: "matchall", Parent: 0x10000, Handle: 1, Options: to(7)}
	for _, c := range []struct {
		place   string
		filters []Filter
		want    string
	}{
		{"", nil, "[]"},
		{"ingress", nil, "[]"},
		{"clsact", nil, "[9]"},
		{"clsact", []Filter{below, below}, "[7 9]"},
		{"", []Filter{below}, "[7]"},
		{"", []Filter{withAction("gact")}, "[]"},
		{"", []Filter{{Kind: "matchall", Options: to(0)}}, "[]"},
		{"", []Filter{{Kind: "nonesuch", Options: to(7)}}, "[]"},
	} {
		tree := Tree{Filters: c.filters, Qdiscs: []Qdisc{{Kind: c.place, Handle: 0xFFFF0000, Parent: Ingress}}}
		got, err := (&kernel{filters: [][]byte{listed}}).dial(t).LedOut(2, tree)
		if fmt.Sprint(got) != c.want || err != nil {
			t.Errorf("%q, %v: %v, %v; want %s", c.place, c.filters, got, err, c.want)
		}
	}
}
