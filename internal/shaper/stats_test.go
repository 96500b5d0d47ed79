// SPDX-License-Identifier: Apache-2.0

package shaper

import (
	"net/netip"
	"reflect"
	"slices"
	"testing"
	"time"
)

// TestNamedClients: a client has a rule of its own where that is about nobody else.
func TestNamedClients(t *testing.T) {
	var all []ClientStats
	var rules []Client
	for _, c := range []string{"10.8.0.9/32", "2001:db8:1::/64", "::/128", "10.8.0.7/32", "10.8.0.8/32"} {
		all = append(all, ClientStats{Client: netip.MustParsePrefix(c)})
	}
	for _, r := range []string{"0.0.0.0/0", "::/0", "10.8.0.0/24", "10.8.0.9/32", "2001:db8:1::/64", "10.8.0.7/32",
		"10.8.0.99/32"} {
		rules = append(rules, Client{Prefix: netip.MustParsePrefix(r), Weight: 1})
	}
	var got []string
	for _, c := range NamedClients(all, rules) {
		got = append(got, c.Name())
	}
	if want := []string{"10.8.0.7", "10.8.0.9", "2001:db8:1::/64"}; !slices.Equal(got, want) {
		t.Errorf("%q, not %q", got, want)
	}
}

// Clients are told by what they did between two looks, and one that was forgotten in between begins anew.
func TestRates(t *testing.T) {
	prefix := netip.MustParsePrefix
	before := []ClientStats{{Client: prefix("10.8.0.7/32"), Bytes: 1000, Drops: 5},
		{Client: prefix("10.8.0.8/32"), Bytes: 500},
		{Client: prefix("10.8.0.9/32"), Bytes: 9000, Marks: 7}}
	after := []ClientStats{{Client: prefix("10.8.0.7/32"), Bytes: 2000, Drops: 7, Marks: 1, Limit: 8000, Weight: 2},
		{Client: prefix("10.8.0.8/32"), Bytes: 500}, {Client: prefix("10.8.0.9/32"), Bytes: 3000, Marks: 4},
		{Client: prefix("2001:db8::/64"), Bytes: 250}, {Client: prefix("::/128"), Drops: 1}}
	want := []ClientRate{
		{Client: "10.8.0.9", Rate: 12000, Share: 3000. / 4250, Marks: 4},
		{Client: "10.8.0.7", Rate: 4000, Share: 1000. / 4250, Limit: 8000, Weight: 2, Drops: 2, Marks: 1},
		{Client: "2001:db8::/64", Rate: 1000, Share: 250. / 4250},
		{Client: NoIP, Drops: 1},
	}
	if got := Rates(before, after, 2*time.Second); !reflect.DeepEqual(got, want) {
		t.Errorf("%+v", got)
	}
	if got := Rates(before, before, time.Second); got == nil || len(got) > 0 {
		t.Errorf("when nothing happens: %+v", got)
	}
}
