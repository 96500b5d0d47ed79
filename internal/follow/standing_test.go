// SPDX-License-Identifier: Apache-2.0

package follow

import (
	"testing"
	"time"
)

// What stood goes at the rate that is not used, and how long less is sent follows from it.
func TestStanding(t *testing.T) {
	const ms = time.Millisecond
	for name, c := range map[string]struct {
		queue       time.Duration // that stands at first
		rate        float64       // packets a second of one connection
		jitter      time.Duration
		empty       bool // nothing waits here
		none, app   bool // no connection tells; it waits for its application
		blink       bool // every two seconds no connection tells
		from, until time.Duration
		fell        time.Duration
	}{
		"nothing stood": {rate: 1000, from: 300 * ms, until: 600 * ms},
		"200 ms":        {queue: 200 * ms, rate: 1000, from: 667 * ms, until: 1200 * ms, fell: 195 * ms},
		"a second, by fifty slow connections": {queue: time.Second, rate: 80, from: 3333 * ms,
			until: 4100 * ms, fell: 990 * ms},
		"jitter ends, too": {queue: 200 * ms, rate: 1000, jitter: 10 * ms, from: 600 * ms,
			until: 2 * time.Second, fell: 180 * ms},
		"longer than anybody waits for": {queue: 9 * time.Second, rate: 1000, from: 10 * time.Second,
			until: 10100 * ms, fell: 2900 * ms},
		"the link is not full": {queue: 100 * ms, rate: 1000, empty: true, from: 200 * ms,
			until: 300 * ms, fell: 50 * ms},
		"four seconds, and looks that see nobody": {queue: 4 * time.Second, rate: 1000, blink: true,
			from: 10 * time.Second, until: 10100 * ms, fell: 2900 * ms},
		"nobody tells": {none: true, from: 1500 * ms, until: 1600 * ms},
		"only who has nothing more to send": {queue: 200 * ms, rate: 1000, app: true, from: 1500 * ms,
			until: 1600 * ms},
	} {
		var s Standing
		at, random := time.Duration(0), uint32(1)
		for on := true; on && at < time.Minute; at += 50 * ms {
			queue := max(0, c.queue-time.Duration((1-StandingShare)*float64(at)))
			random = random*1664525 + 1013904223
			shaken := time.Duration(float64(c.jitter) * float64(random>>8) / (1 << 24))
			l := Look{At: at, Own: 5 * ms, Backlog: 3000, Connections: []Connection{
				{RTT: 53*ms + queue + shaken, Rate: c.rate, Waits: !c.app}, {RTT: 100 * time.Microsecond, Rate: 1e5}}}
			if c.empty {
				l.Backlog = 0
			}
			if c.none || c.blink && at > 0 && at%(2*time.Second) == 0 {
				l.Connections = nil
			}
			on = s.Look(l)
		}
		at -= 50 * ms
		if at < c.from || at > c.until || s.Fell < c.fell || s.Fell > c.queue+c.jitter {
			t.Errorf("%s: %v, from %v to %v; fell by %v of %v", name, at, c.from, c.until, s.Fell, c.queue)
		}
	}
}
