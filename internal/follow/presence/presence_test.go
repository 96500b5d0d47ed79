// SPDX-License-Identifier: Apache-2.0

package presence

import (
	"strings"
	"testing"
	"time"
	"weir/internal/units"
)

func TestSays(t *testing.T) {
	now := time.Unix(1e9, 0)
	at := func(rate units.Rate, d Doing) Queue {
		return Queue{Dev: "eth0", Rate: rate, Low: 10e6, High: 400e6, Running: true, Start: "weir follow", Doing: d}
	}
	step := func(ago time.Duration, from, to units.Rate, why string) *Step {
		return &Step{now.Add(-ago), from, to, why}
	}
	for _, c := range []struct {
		f    Queue
		want string
	}{
		{at(60_123_456, Doing{}), "Followed:  60.123mbit now, of 10mbit to 400mbit"},
		{at(60e6, Doing{Last: step(8*time.Second, 99.75e6, 60e6, "packets waited 42 ms beyond this host")}),
			"Followed:  60mbit now, of 10mbit to 400mbit / Lowered 8 s ago, from 99.75mbit: packets waited 42 ms " +
				"beyond this host"},
		{at(60e6, Doing{Tries: "more is tried", Last: step(5*time.Minute, 50e6, 60e6, "it was free")}),
			"Followed:  60mbit now, of 10mbit to 400mbit: more is tried / Raised 5 min ago, from 50mbit: it was free"},
		{at(60e6, Doing{Last: step(30*time.Hour, 0, 60e6, "it was heard")}),
			"Followed:  60mbit now, of 10mbit to 400mbit / Found 30 h ago: it was heard"},
		{at(60e6, Doing{Last: step(-time.Hour, 0, 60e6, "the clock was set back")}),
			"Followed:  60mbit now, of 10mbit to 400mbit / Found 0 s ago: the clock was set back"},
		{Queue{Dev: "ifb4eth0", AfterProvider: true, Running: true, Rate: 85e6, Low: 85e6, High: 99.75e6},
			"Learnt:    85mbit now on ifb4eth0, of 85mbit to 99.75mbit"},
		{at(60e6, Doing{Waits: "no permission", Last: step(time.Hour, 50e6, 60e6, "it was free")}),
			"The follower runs, and cannot follow eth0: the rate stays 60mbit. / Why:  no permission"},
		{at(0, Doing{Waits: "little is sent"}), "The rate is not known yet: little is sent."},
		{at(0, Doing{}), "The rate is not known yet: weir follow has just begun."},
		{Queue{Start: "weir follow"}, "The rate is not known, and nobody looks for it. To look:  weir follow"},
		{Queue{Rate: 60e6, Start: "systemctl start weir-follow"},
			"The follower does not run: the rate stays 60mbit. / To start it:  systemctl start weir-follow"},
		{Queue{Rate: 60e6, Hidden: "too many links"},
			"Whether anybody follows the rate cannot be seen: too many links"},
	} {
		if got := strings.Join(c.f.Says(now), " / "); got != c.want {
			t.Errorf("%s\nwant %s", got, c.want)
		}
	}
}
