// SPDX-License-Identifier: Apache-2.0

package far

import (
	"strings"
	"testing"
	"time"

	"weir/internal/meter"
)

// ssh is called the limit where it surely is one, and nowhere else.
func TestLimitsOf(t *testing.T) {
	const took = 8 * time.Second
	// flows are n connections that carry so many Mbit/s each, with a share of a core.
	flows := func(direction string, n int, mbit, core float64) (all []carriedLoad) {
		for range n {
			all = append(all, carriedLoad{direction: direction, bytes: int64(mbit * 1e6 / 8 * took.Seconds()),
				took: took, cpu: time.Duration(core * float64(took)), wall: took})
		}
		return all
	}
	const ms = time.Millisecond
	const core, cores, reached = "a whole core", "all 2 cores", "2 MiB under way"
	for _, c := range []struct {
		name  string
		flows []carriedLoad
		idle  time.Duration
		cores int
		want  []string
	}{
		{"a slow link", flows(meter.Download, 4, 12, 0.1), 48 * ms, 8, nil},
		{"a core", flows(meter.Download, 1, 900, 0.95), ms, 8,
			[]string{core + " of this computer, for 1 of 1 connection."}},
		{"less than a core", flows(meter.Download, 1, 900, 0.85), ms, 8, nil},
		{"one of two", append(flows(meter.Upload, 1, 300, 0.95), flows(meter.Upload, 1, 300, 0.2)...), ms, 8,
			[]string{"for 1 of 2 connections"}},
		{"all cores, none whole", flows(meter.Download, 4, 200, 0.48), ms, 2, []string{cores}},
		{"its only core, shared", flows(meter.Download, 4, 200, 0.24), ms, 1, nil},
		// 2 MiB in 167 ms are 100.5 Mbit/s.
		{"the window", flows(meter.Download, 1, 95, 0.2), 167 * ms, 8, []string{"At 167 ms that is 100 Mbit/s"}},
		{"each of four", flows(meter.Upload, 4, 95, 0.2), 167 * ms, 8, []string{reached +
			", its window. At 167 ms that is 100 Mbit/s, and uploads came close"}},
		{"what a busy computer gets of it", flows(meter.Download, 1, 76, 0.2), 167 * ms, 8, []string{reached}},
		{"well below it", flows(meter.Download, 1, 70, 0.2), 167 * ms, 8, nil},
		{"four share what one could have", flows(meter.Download, 4, 25, 0.1), 167 * ms, 8, nil},
		// A FIFO of half a second in front of 33 Mbit/s: the window holds the queue, and the link is full.
		{"a full link with a queue", flows(meter.Download, 1, 33, 0.1), 50 * ms, 8, nil},
		{"no idle round trip", flows(meter.Download, 1, 95, 0.2), 0, 8, nil},
		{"CPU unknown", flows(meter.Download, 1, 900, 0), ms, 8, nil},
		{"nothing", nil, 50 * ms, 8, nil},
		{"both", append(flows(meter.Upload, 1, 95, 1), flows(meter.Download, 1, 20, 0.1)...), 167 * ms, 8,
			[]string{"for 1 of 2", "uploads came close"}},
	} {
		notes := limitsOf("load", c.flows, c.idle, c.cores)
		if len(notes) != len(c.want) {
			t.Errorf("%s: %q, want %q", c.name, notes, c.want)
			continue
		}
		for i, want := range c.want {
			if !strings.Contains(notes[i], want) || !strings.HasPrefix(notes[i], "load: ") {
				t.Errorf("%s: %q, want %q", c.name, notes[i], want)
			}
		}
	}
}

// What is slow while TCP speeds up does not count, and neither do round trips under load.
func TestCarried(t *testing.T) {
	f := meter.Flow{Direction: meter.Upload, Bins: make([]int64, 50)}
	for i := range f.Bins {
		if f.Bins[i] = 10; i >= 20 {
			f.Bins[i] = 1000
		}
	}
	if c := carriedBy(f, time.Second, 5*time.Second); c.bytes != 30_000 || c.took != 3*time.Second {
		t.Errorf("%+v", c)
	}
	f.Bins = f.Bins[:30]
	if c := carriedBy(f, 0, 0); c.bytes != 10_200 || c.took != 3*time.Second {
		t.Errorf("short: %+v", c)
	}
	samples := []meter.Sample{{At: 0.5, RTT: 40}, {At: 0.6, RTT: 50}, {At: 0.7, RTT: -1}, {At: 0.8, RTT: 60},
		{At: 3, RTT: 500}}
	spans := []meter.Span{{Name: meter.Idle, From: 0, To: 1}, {Name: meter.Download, From: 1, To: 5}}
	if rtt := idleOf(samples, spans); rtt != 50*time.Millisecond {
		t.Errorf("%v", rtt)
	}
	if rtt := idleOf(samples, spans[1:]); rtt != 0 {
		t.Errorf("no idle phase: %v", rtt)
	}
}
