// SPDX-License-Identifier: Apache-2.0

package meter

import (
	"math"
	"testing"
	"time"
)

// A load of 20 Mbit/s whose sender takes 2.5 MB at once, each second, is never said to be much more.
func TestGoodputMeter(t *testing.T) {
	var l goodputMeter
	now := time.Unix(1000, 0)
	l.look(now, 0)
	for k := 1; k <= 50; k++ {
		now = now.Add(200 * time.Millisecond)
		got := l.look(now, int64(k/5)*2_500_000)
		if got > 30 || k >= 10 && got < 15 {
			t.Errorf("after %d looks: %.1f Mbit/s", k, got)
		}
	}
	// Steady, it is exact; when nothing comes any more, that is seen within two seconds.
	l = goodputMeter{}
	for k := range 50 {
		now = now.Add(200 * time.Millisecond)
		if got := l.look(now, int64(k)*500_000); k > 0 && math.Abs(got-20) > 1e-6 {
			t.Errorf("after %d looks: %.3f Mbit/s", k, got)
		}
	}
	for range 10 {
		now = now.Add(200 * time.Millisecond)
		l.look(now, 49*500_000)
	}
	if got := l.look(now, 49*500_000); got != 0 {
		t.Errorf("%.1f Mbit/s of nothing", got)
	}
}
