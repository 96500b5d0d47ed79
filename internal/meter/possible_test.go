// SPDX-License-Identifier: Apache-2.0

package meter

import (
	"slices"
	"testing"
	"time"
)

// How far off a figure may be ends where no round trip could be: none takes less than nothing.
func TestPossible(t *testing.T) {
	rec := &Recording{Target: "192.0.2.1:4747", Time: time.Unix(1_800_000_000, 0), Probe: "udp", Interval: 10,
		Spans: []Span{{Name: Idle, From: 0, To: 4}, {Name: Download, From: 4, To: 10,
			Local: []Flow{{Direction: Download, Bins: slices.Repeat([]int64{125_000}, 60)}}}}}
	for i := range 1000 {
		s := Sample{At: float64(i) / 100, RTT: 40 + float64(i%3)}
		if i >= 700 && i < 780 { // a host that stood still
			s.RTT = 900
		}
		rec.Samples = append(rec.Samples, s)
	}
	p := Summarize(rec).Find(Download)
	if p == nil || p.Added == nil || p.Jitter == nil {
		t.Fatal("nothing is estimated")
	}
	idle := 41.0
	for name, low := range map[string]float64{"p50": p.Added.P50.Low, "p90": p.Added.P90.Low, "p99": p.Added.P99.Low} {
		if low < -idle {
			t.Errorf("added %s may be %.1f ms, of an idle round trip of %.0f", name, low, idle)
		}
	}
	if p.Jitter.Low < 0 {
		t.Errorf("the jitter may be %.1f ms", p.Jitter.Low)
	}
}
