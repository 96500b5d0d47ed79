// SPDX-License-Identifier: Apache-2.0

package meter

import (
	"math"
	"testing"

	"weir/internal/calibrate"
	"weir/internal/wire"
)

// The connections of a load send all of it, and no two at one pace: the packets of two that have one meet all the time
// or never.
func TestPayload(t *testing.T) {
	const headers = 52
	for n := range 17 {
		l := calibrate.Load{Connections: n, Rate: 50e6}
		sum, seen := 0.0, map[float64]bool{}
		for i := range n {
			p := payload(l, i, headers)
			if even := l.Rate / 8 / float64(n); seen[p] || p < 0.9*even || p > 1.06*even {
				t.Errorf("connection %d of %d: %.0f bytes/s of payload", i, n, p)
			}
			seen[p] = true
			sum += p
		}
		want := l.Rate / 8 * (wire.EthernetMTU - headers) / wire.EthernetMTU
		if n > 0 && math.Abs(sum/want-1) > 1e-9 {
			t.Errorf("%d connections: %.0f bytes/s of payload, want %.0f", n, sum, want)
		}
	}
	if p := payload(calibrate.Load{Connections: 2}, 0, headers); p != 0 {
		t.Errorf("a load without a rate is bounded to %.0f bytes/s", p)
	}
}
