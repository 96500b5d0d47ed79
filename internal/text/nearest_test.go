// SPDX-License-Identifier: Apache-2.0

package text

import "testing"

func TestNearest(t *testing.T) {
	known := []string{"rate", "rtt", "role", "ingress", "one-cake"}
	for word, want := range map[string]string{"rat": "rate", "raet": "rate", "in": "ingress", "r": "", "": "",
		"one": "one-cake", "xyz": "", "ingres": "ingress", "ratee": "rate", "mtu": "", "nat": "", "rloe": "role",
		"one_kake": "one-cake"} {
		if got := Nearest(word, known); got != want {
			t.Errorf("%q: %q, want %q", word, got, want)
		}
	}
}

// What is nearly the name of a command may be another word altogether.
func TestMistyped(t *testing.T) {
	for word, want := range map[string]bool{"confrim": true, "confim": true, "confirmm": true, "config": false,
		"confine": false, "confirm": true} {
		if got := Mistyped(word, "confirm"); got != want {
			t.Errorf("%q: %v", word, got)
		}
	}
}
