// SPDX-License-Identifier: Apache-2.0

package far

import (
	"fmt"
	"time"

	"weir/internal/meter"
	"weir/internal/stats"
	"weir/internal/text"
)

// carriedLoad is what one ssh has carried in a load, and the CPU time that its process here took for that.
type carriedLoad struct {
	direction string
	bytes     int64 // after the ramp, in took
	took      time.Duration
	cpu, wall time.Duration // of the whole load; no cpu: not known
}

// window is how much one ssh connection has under way at most, in bytes: 64 packets of 32 KiB (OpenSSH's channels.h,
// CHAN_SES_WINDOW_DEFAULT; the receiver gives it back after three packets, channel_check_window in channels.c).
const window = 64 * 32 << 10

// limitsOf tells where ssh itself was the limit of a load.
//
// The window limits where its bound at the idle round trip is mostly reached: on a link of 400 Mbit/s and 300 ms one
// connection got 0.8 of it, between computers that were busy. At a longer round trip under load, which would make the
// bound lower, a queue stands. Then the link is full, and the window bounds no more than that queue.
func limitsOf(phase string, all []carriedLoad, idle time.Duration, cores int) (notes []string) {
	const nearly, mostly = 0.9, 0.75
	busy, used, wall := 0, time.Duration(0), time.Duration(0)
	for _, c := range all {
		if c.wall > 0 && c.cpu.Seconds() >= nearly*c.wall.Seconds() {
			busy++
		}
		used, wall = used+c.cpu, max(wall, c.wall)
	}
	switch {
	case wall > 0 && cores > 1 && used.Seconds() >= nearly*wall.Seconds()*float64(cores):
		notes = append(notes, fmt.Sprintf("%s: ssh used all %d cores of this computer. They were the limit, and the "+
			"link may carry more.", phase, cores))
	case busy > 0:
		notes = append(notes, fmt.Sprintf("%s: ssh used a whole core of this computer, for %d of %s. That was a "+
			"limit, and the link may carry more.", phase, busy, text.Counted(len(all), "connection")))
	}
	if idle <= 0 {
		return notes
	}
	bound := window * 8 / 1e6 / idle.Seconds()
	for _, direction := range []string{meter.Download, meter.Upload} {
		n, sum := 0, 0.0
		for _, c := range all {
			if c.direction == direction && c.took > 0 {
				n, sum = n+1, sum+float64(c.bytes)*8/1e6/c.took.Seconds()
			}
		}
		if n > 0 && sum >= mostly*bound*float64(n) {
			notes = append(notes, fmt.Sprintf("%s: an ssh connection has at most 2 MiB under way, its window. At %s "+
				"ms that is %s Mbit/s, and %ss came close to it. The link may carry more, and --conns with more "+
				"connections shows it.", phase, meter.Figure(float64(idle)/float64(time.Millisecond)),
				meter.Figure(bound), direction))
		}
	}
	return notes
}

// carriedBy sums up a flow. The ramp does not count, if enough is left.
func carriedBy(f meter.Flow, cpu, wall time.Duration) carriedLoad {
	const ramp = int(2 * time.Second / meter.Step)
	bins := f.Bins
	if len(bins) >= 2*ramp {
		bins = bins[ramp:]
	}
	c := carriedLoad{direction: f.Direction, took: time.Duration(len(bins)) * meter.Step, cpu: cpu, wall: wall}
	for _, n := range bins {
		c.bytes += n
	}
	return c
}

// idleOf is the median round trip of the idle phase; 0: not known.
func idleOf(samples []meter.Sample, spans []meter.Span) time.Duration {
	var rtts []float64
	for _, s := range spans {
		for _, x := range samples {
			if s.Name == meter.Idle && x.RTT >= 0 && x.At >= s.From && x.At < s.To {
				rtts = append(rtts, x.RTT)
			}
		}
	}
	if len(rtts) == 0 {
		return 0
	}
	return time.Duration(stats.Quantile(rtts, 0.5) * float64(time.Millisecond))
}
