// SPDX-License-Identifier: Apache-2.0

package host

import (
	"net/netip"
	"os/exec"
	"slices"
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
			if got := r.of(c.msg); got != index[c.want] {
				t.Errorf("%s: by %d, and %q is %d", what, got, c.want, index[c.want])
			}
		}
	})
}
