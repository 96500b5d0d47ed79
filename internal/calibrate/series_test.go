// SPDX-License-Identifier: Apache-2.0

package calibrate

import (
	"math"
	"testing"
	"time"
)

// What others send into a growing queue comes out later, and later still.
func TestPassed(t *testing.T) {
	const growth, others, own = 0.1, 1000.0, 2000.0 // s of a queue a second; packets a second
	var all series
	var probes []Probe
	for i := range 400 {
		at := time.Duration(i) * 10 * time.Millisecond
		sent := own * at.Seconds()
		all = append(all, Sample{At: at, Segments: sent, Payload: 1448 * sent, Headers: 52 * sent,
			DevicePackets: sent + others*at.Seconds(), DeviceBytes: 1514*sent + 514*others*at.Seconds()})
		if i%2 == 0 {
			probes = append(probes, Probe{At: at, RTT: duration(0.05 + growth*at.Seconds())})
		}
	}
	part := all.passedQueue(probes).between(1, 4)
	if got := part.other(); math.Abs(got.packets-others/(1+growth)) > 1 || math.Abs(got.bytes-500*got.packets) > 500 {
		t.Errorf("%+v", got)
	}
	if part.slope(func(s Sample) float64 { return s.Segments }) != all.between(1, 4).
		slope(func(s Sample) float64 { return s.Segments }) {
		t.Error("the test's own has changed")
	}
	if got := all.passedQueue(nil).between(1, 4).other(); math.Abs(got.packets-others) > 1 {
		t.Errorf("with no probe: %+v", got)
	}
}
