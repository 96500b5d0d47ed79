// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"strings"
	"testing"
)

// What one client alone gets is said with what to do about it; what is known, or not at all, with nothing more.
func TestNextOfHearing(t *testing.T) {
	alone := hearing{Rate: 93e6, Alone: true, Says: "one client alone waits"}
	if next := alone.next(); !strings.Contains(next, "--rate 93mbit") ||
		!strings.Contains(next, "weir plan --rate auto --listen 5m") {
		t.Errorf("%q", next)
	}
	for _, h := range []hearing{{Rate: 93e6, Says: "x"}, {Says: "little is sent"}} {
		if next := h.next(); next != "" {
			t.Errorf("%+v: %q", h, next)
		}
	}
}
