// SPDX-License-Identifier: Apache-2.0

package plan

import "testing"

func TestFaultOf(t *testing.T) {
	segments := map[string]bool{"7.0.0": true, "7.0-rc3": true, "7.1.4": true}
	for release, want := range map[string]bool{"6.12.48+deb13-amd64": false, "7.0.0": true, "7.0-rc3": true,
		"7.1.12-4-pve": true, "7.1.4": true, "7.1.5-amd64": true, "7.2.0": false, "7.10.1": false, "8.0": false,
		"": false, "seven": false, "7": false} {
		if f, got := FaultOf("cake_mq", release); got != want {
			t.Errorf("%q: %v, %v", release, got, f)
		}
		// Which has its last release in the middle of a series.
		if f, got := FaultOf(UDPSegments, release); got != segments[release] {
			t.Errorf("%q: %v, %v", release, got, f)
		}
		if f, got := FaultOf("cake", release); got {
			t.Errorf("cake of %q: %v", release, f)
		}
	}
}
