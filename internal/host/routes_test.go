// SPDX-License-Identifier: Apache-2.0

package host

import (
	"net/netip"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// A connection leaves by the device that its address routes to, or the rule of its own address, or that it is bound to.
func TestRoutes(t *testing.T) {
	inNamespace(t, func() {
		for _, line := range [][]string{
			{"addr", "add", "192.0.2.1/24", "dev", "a"}, {"addr", "add", "198.51.100.1/24", "dev", "b"},
			{"addr", "add", "2001:db8::1/64", "dev", "b", "nodad"},
			{"route", "add", "default", "via", "192.0.2.254"},
			{"rule", "add", "from", "198.51.100.1", "lookup", "7"},
			{"route", "add", "default", "via", "198.51.100.254", "table", "7"},
			{"link", "add", "br0", "type", "bridge"}, {"link", "add", "c", "type", "veth", "peer", "name", "d"},
			{"link", "set", "c", "master", "br0"},
		} {
			if out, err := exec.Command("ip", line...).CombinedOutput(); err != nil {
				t.Errorf("%q: %v, %s", line, err, out)
				return
			}
		}
		r, err := OpenRoutes()
		if err != nil {
			t.Error(err)
			return
		}
		defer r.Close()
		links, err := r.Links()
		if err != nil {
			t.Error(err)
			return
		}
		index := map[string]int{"": 0}
		for _, l := range links {
			index[l.Name] = l.Index
		}
		if at := slices.IndexFunc(links, func(l Link) bool { return l.Name == "c" }); at < 0 ||
			links[at].Kind != "veth" || links[at].Parent != "" || links[at].Master != "br0" || links[at].MAC == "" {
			t.Errorf("the links are %+v", links)
		}
		for _, c := range []struct {
			from, to, bound, want string
		}{
			{"192.0.2.1", "203.0.113.9", "", "a"},
			{"198.51.100.1", "203.0.113.9", "", "b"},
			{"192.0.2.1", "198.51.100.9", "", "b"},
			{"192.0.2.1", "203.0.113.9", "b", "b"},
			{"2001:db8::1", "2001:db8::9", "", "b"},
			{"2001:db8::1", "2001:db8:1::9", "", ""}, // no route
		} {
			x := Connection{Local: netip.MustParseAddr(c.from), device: uint32(index[c.bound]),
				Remote: netip.AddrPortFrom(netip.MustParseAddr(c.to), 443)}
			for range 2 { // the second time from memory
				if got := r.Device(x); got != index[c.want] {
					t.Errorf("%+v: by %d, and %q is %d", c, got, c.want, index[c.want])
				}
			}
		}
		for what, c := range map[string]struct {
			msg  []byte
			want string
		}{
			"a connection": {socket{state: tcpEstablished, to: "198.51.100.9"}.bytes(), "b"},
			"a listener":   {socket{state: tcpListen, to: "198.51.100.9"}.bytes(), ""},
			"half of one":  {socket{state: tcpEstablished, to: "198.51.100.9"}.bytes()[:diagLen-1], ""},
		} {
			if got := r.deviceOf(c.msg); got != index[c.want] {
				t.Errorf("%s: by %d, and %q is %d", what, got, c.want, index[c.want])
			}
		}
	})
}

// The uplink is where the kernel sends what is for the Internet, and a tunnel's packets leave by the device that it is
// bound to, or that leads to its other end.
func TestWaysOut(t *testing.T) {
	const card = "route add default via 192.0.2.254 metric 100"
	for name, c := range map[string]struct {
		lines          []string
		uplink, others string // of the default routes
	}{
		"a card":           {[]string{card}, "a", ""},
		"two":              {[]string{card, "route add default via 198.51.100.254 metric 7"}, "b", "a"},
		"def1 over a card": {[]string{card, "route add 0/1 dev tun0", "route add 128/1 dev tun0"}, "tun0", "a"},
		"def1 alone":       {[]string{"route add 0.0.0.0/1 dev tun0", "route add 128.0.0.0/1 dev tun0"}, "tun0", ""},
		"and a default route by the tunnel, too": {[]string{card, "route add default dev tun0",
			"route add 0/1 dev tun0",
			"route add 128/1 dev tun0"}, "tun0", "a"},
		"one half":        {[]string{card, "route add 0.0.0.0/1 dev tun0"}, "a", ""},
		"a half for each": {[]string{"route add 0.0.0.0/1 dev tun0", "route add 128.0.0.0/1 dev b"}, "", ""},
		"quarters":        {[]string{"route add 0/2 dev b", "route add 64/2 dev b", "route add 128/1 dev b"}, "b", ""},
		"all but what is private": {[]string{card, "route add 0/5 dev tun0", "route add 8/7 dev tun0",
			"route add 11/8 dev tun0", "route add 12/6 dev tun0", "route add 16/4 dev tun0", "route add 32/3 dev tun0",
			"route add 64/2 dev tun0", "route add 128/3 dev tun0", "route add 160/5 dev tun0",
			"route add 168/6 dev tun0",
			"route add 172.0.0.0/12 dev tun0", "route add 172.32.0.0/11 dev tun0", "route add 172.64.0.0/10 dev tun0",
			"route add 172.128.0.0/9 dev tun0", "route add 173/8 dev tun0", "route add 174/7 dev tun0",
			"route add 176/4 dev tun0", "route add 192.0.0.0/9 dev tun0", "route add 192.128.0.0/11 dev tun0",
			"route add 192.176.0.0/12 dev tun0", "route add 192.192.0.0/10 dev tun0", "route add 193/8 dev tun0",
			"route add 194/7 dev tun0", "route add 196/6 dev tun0", "route add 200/5 dev tun0",
			"route add 208/4 dev tun0"}, "tun0", "a"},
		"some of the Internet, twice": {[]string{card, "route add 0/1 dev b", "route add 0/2 dev b",
			"route add 64/2 dev b"}, "a", ""},
		"def1 of IPv6": {[]string{card, "-6 route add 2000::/4 dev tun0", "-6 route add 3000::/4 dev tun0",
			"-6 route add fc00::/7 dev tun0"}, "a", "tun0"},
		"def1 in another table": {[]string{card, "route add 0/1 dev tun0 table 7", "route add 128/1 dev tun0 table 7"},
			"a", "tun0"},
	} {
		inNamespace(t, func() {
			f, ok := readAfter(t, c.lines...)
			if !ok {
				return
			}
			var others []string
			for _, r := range f.Defaults {
				if r.Dev != f.Uplink {
					others = append(others, r.Dev)
				}
			}
			if f.Uplink != c.uplink || strings.Join(others, " ") != c.others {
				t.Errorf("%s: %q of %+v, want %q, then %q", name, f.Uplink, f.Defaults, c.uplink, c.others)
			}
		})
	}
	for line, want := range map[string]string{
		"link add x type vxlan id 5 group 239.1.1.1 dev b dstport 4789": "b",
		"link add x type vxlan id 5 dev b dstport 4789":                 "b",
		"link add x type vxlan id 5 remote 192.0.2.9 dstport 4789":      "a",
		"link add x type vxlan id 5 dstport 4789":                       "",
	} {
		inNamespace(t, func() {
			if f, ok := readAfter(t, card, line); ok {
				if l, _ := f.Link("x"); l.Parent != want || l.Kind != "vxlan" {
					t.Errorf("%s: by %q, want %q", line, l.Parent, want)
				}
			}
		})
	}
}

// readAfter gives the facts of a network namespace after these commands of ip's; not ok if it cannot have them.
func readAfter(t *testing.T, lines ...string) (f Facts, ok bool) {
	t.Helper()
	for _, line := range slices.Concat([]string{"addr add 192.0.2.1/24 dev a", "addr add 198.51.100.1/24 dev b",
		"link add tun0 type veth peer name far0", "addr add 10.8.0.2/24 dev tun0", "link set far0 up",
		"link set tun0 up"}, lines) {
		out, err := exec.Command("ip", strings.Fields(line)...).CombinedOutput()
		if strings.Contains(string(out), "Unknown device type") {
			t.Logf("skipped, not passed: this kernel has no device as in %q", line)
			return f, false
		} else if err != nil {
			t.Errorf("%q: %v, %s", line, err, out)
			return f, false
		}
	}
	f, err := Read()
	if err != nil {
		t.Error(err)
	}
	return f, err == nil
}
