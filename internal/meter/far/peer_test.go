// SPDX-License-Identifier: Apache-2.0

//go:build linux

package far

import (
	"testing"
)

func TestParseConfig(t *testing.T) {
	for text, want := range map[string]endpoint{
		"user me\nhostname 192.0.2.1\nport 22\n": {"192.0.2.1:22", "192.0.2.1"},
		"hostname 2001:db8::1\r\nport 2222\r\nproxyjump none\r\n": {"[2001:db8::1]:2222",
			"[2001:db8::1]:2222"},
		"hostname there\nport 22\nhostkeyalias other\nproxycommand none\n": {"there:22", "other"},
		"hostname there\nport 22\nproxyjump gate\n":                        {},
		"hostname there\nport 22\nproxycommand nc %h %p\n":                 {},
		"port 22\n":        {},
		"hostname\nport\n": {},
		"":                 {},
		"hostname there\nport 22\nlocalcommand hostname elsewhere\nuser a b\n": {"there:22", "there"},
	} {
		got, err := parseConfig("me@there", text)
		if got != want || (err == nil) != (want != endpoint{}) {
			t.Errorf("%q: %+v, %v, want %+v", text, got, err, want)
		}
	}
}
