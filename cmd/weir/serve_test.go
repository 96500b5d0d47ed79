// SPDX-License-Identifier: Apache-2.0

package main

import "testing"

// Who names another host's address is told which addresses this host has.
func TestOtherAddress(t *testing.T) {
	for want, has := range map[string][]string{
		"--listen :4747, which is all of its addresses":                         nil,
		"--listen :4747, which is all of its addresses: 192.0.2.1, 2001:db8::1": {"192.0.2.1", "2001:db8::1"},
	} {
		if got := otherAddress("--listen", "4747", has); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

// Where no route leads out, the address to name is the first that others may reach; a host's name leads nowhere.
func TestFirstAddress(t *testing.T) {
	for want, has := range map[string][]string{noAddress: nil, "192.0.2.1": {"192.0.2.1", "2001:db8::1"}} {
		if got := firstAddress(has); got != want {
			t.Errorf("%v: %s", has, got)
		}
	}
}
