// SPDX-License-Identifier: Apache-2.0

package host

import (
	"os/exec"
	"reflect"
	"strings"
	"testing"
)

// Of the routes of a namespace those are told that set something for connections, as ip route has it.
func TestMetrics(t *testing.T) {
	inNamespace(t, func() {
		for _, line := range []string{
			"addr add 192.0.2.1/24 dev a", "addr add 2001:db8::1/64 dev b nodad",
			"route add default via 192.0.2.254 window 65535 cwnd lock 10 advmss 1000 mtu lock 1400",
			"route add 198.51.100.0/24 via 192.0.2.254 initcwnd 40 initrwnd 9 congctl reno quickack 1 cwnd 7",
			"route add 203.0.113.0/24 via 192.0.2.254", "route add blackhole 198.51.101.0/24",
			"route add default via 192.0.2.254 rto_min 5ms table 7", "route add 2001:db8:1::/48 dev b window 5000",
			"route add 203.0.114.0/24 window 6000 nexthop via 192.0.2.253 nexthop via 192.0.2.252",
		} {
			if out, err := exec.Command("ip", strings.Fields(line)...).CombinedOutput(); err != nil {
				t.Errorf("%s: %v, %s", line, err, out)
				return
			}
		}
		var f Facts
		if err := readLinks(&f); err != nil {
			t.Error(err)
			return
		}
		got, err := readMetrics(f.Links)
		want := []RouteMetrics{
			{To: "default", Dev: "a", Locked: []string{"cwnd", "mtu"},
				Metrics: map[string]int{"window": 65535, "cwnd": 10, "advmss": 1000, "mtu": 1400}},
			{To: "198.51.100.0/24", Dev: "a", Congestion: "reno",
				Metrics: map[string]int{"initcwnd": 40, "initrwnd": 9, "quickack": 1, "cwnd": 7}},
			{To: "203.0.114.0/24", Dev: "a", Metrics: map[string]int{"window": 6000}},
			{To: "default", Dev: "a", Table: 7, Metrics: map[string]int{"rto_min": 5}, Locked: []string{"rto_min"}},
			{To: "2001:db8:1::/48", Dev: "b", IPv6: true, Metrics: map[string]int{"window": 5000}},
		}
		for _, w := range want {
			found := false
			for _, g := range got {
				found = found || reflect.DeepEqual(g, w)
			}
			if !found {
				t.Errorf("%+v is not among them", w)
			}
		}
		if err != nil || len(got) != len(want) {
			t.Errorf("%+v, %v", got, err)
		}
	})
}

// Whatever the kernel answers, it is read or passed over.
func FuzzReadRoute(f *testing.F) {
	f.Add(append(make([]byte, 12), 8, 0, 3, 0, 1, 0, 0, 0))
	f.Fuzz(func(t *testing.T, b []byte) {
		if r, sets := readRoute(b, nil); sets && len(r.Metrics) == 0 && r.Congestion == "" {
			t.Errorf("%+v sets nothing", r)
		}
	})
}
