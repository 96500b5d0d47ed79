// SPDX-License-Identifier: Apache-2.0

package tcp

import (
	"testing"
	"time"
)

func TestLimitOf(t *testing.T) {
	const s = time.Second
	for _, c := range []struct {
		elapsed, busy, receiver, buffer time.Duration
		want                            Limit
	}{
		{10 * s, 0, 0, 0, NoLimit},
		{0, 0, 0, 0, NoLimit},
		{10 * s, 50 * time.Millisecond, 0, 0, NoLimit},
		{10 * s, 5 * s, 0, 0, Application},
		{10 * s, 10 * s, 0, 0, Network},
		{10 * s, 10 * s, 3 * s, s, Receiver},
		{10 * s, 10 * s, s, 3 * s, SendBuffer},
		{10 * s, 10 * s, s, s, Network},
		{10 * s, 2 * s, 2 * s, 0, Receiver},
		{10 * s, 12 * s, 0, 0, Network}, // a clock that jumped
	} {
		if got := LimitOf(c.elapsed, c.busy, c.receiver, c.buffer); got != c.want {
			t.Errorf("%v: %q, want %q", c, got, c.want)
		}
	}
}
