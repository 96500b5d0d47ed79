// SPDX-License-Identifier: Apache-2.0

package meter

import (
	"math"
	"strings"
	"testing"
)

// pinged is recorded, with a first router that is asked each 0.2 s and answers after 3 ms, and in the download later.
func pinged(later float64) *Recording {
	rec := recorded()
	rec.Hop = &HopSeen{Hop: Hop{Address: "192.0.2.254"}}
	for i := range 125 {
		p := Ping{At: float64(i) / 5, RTT: 3}
		if p.At >= 5 && p.At < 15 {
			p.RTT += later
		}
		rec.Hop.Pings = append(rec.Hop.Pings, p)
	}
	return rec
}

// Downloads add 162 ms on the whole path. Where most of it is, is said if the first router's answers tell.
func TestFirstHop(t *testing.T) {
	const (
		here     = " Most of the wait is on the first hop, between this host and 192.0.2.254."
		wireless = " Most of the wait is on this host's Wi-Fi, between it and 192.0.2.254."
		beyond   = " Most of the wait is beyond the first hop, which ends at 192.0.2.254."
	)
	// only answers every so many requests in the spans from a time to another, and else what is given
	only := func(each int, from, to, rtt float64) func(*Recording) {
		return func(rec *Recording) {
			for i := range rec.Hop.Pings {
				if p := &rec.Hop.Pings[i]; p.At >= from && p.At < to && i%each != 0 {
					p.RTT = rtt
				}
			}
		}
	}
	for name, c := range map[string]struct {
		later  float64
		change func(*Recording)
		want   string
	}{
		"all of it":                          {160, nil, here},
		"by Wi-Fi":                           {160, func(rec *Recording) { rec.Hop.Wireless = true }, wireless},
		"a bit more than half":               {85, nil, here},
		"a bit less than half":               {77, nil, ""},
		"a bit more than a quarter":          {44, nil, ""},
		"a bit less than a quarter":          {38, nil, beyond},
		"nothing of it":                      {0, nil, beyond},
		"a router that answers late":         {300, nil, ""},
		"two of three are lost when idle":    {160, only(3, 0, 5, -1), ""},
		"two of three are lost under load":   {160, only(3, 5, 15, -1), ""},
		"one of two is lost":                 {160, only(2, 0, 25, -1), here},
		"none is answered":                   {160, only(1000, 0, 25, -1), ""},
		"no pings":                           {160, func(rec *Recording) { rec.Hop.Pings = nil }, ""},
		"no router":                          {160, func(rec *Recording) { rec.Hop = nil }, ""},
		"too few when idle":                  {160, func(rec *Recording) { rec.Spans[0].From = 3.5 }, ""},
		"figures that no router has":         {160, only(3, 5, 15, math.NaN()), ""},
		"figures that are longer than tests": {160, only(3, 5, 15, 1e300), ""},
		"a wait that nobody notices": {2, func(rec *Recording) {
			for i := range rec.Samples {
				if s := &rec.Samples[i]; s.At >= 5 && s.At < 15 && s.RTT > 0 {
					s.RTT, s.Down = s.RTT-158, s.Down-158
				}
			}
		}, ""},
	} {
		rec := pinged(c.later)
		if c.change != nil {
			c.change(rec)
		}
		r := Summarize(rec)
		_, got, _ := strings.Cut(r.Waits(*r.Find(Download)), "The queue stands on the way back.")
		if got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
		if c.want == here || c.want == wireless {
			c.want += " The other host cannot shorten that."
		} else {
			c.want = ""
		}
		if got := r.Here(); got != strings.TrimSpace(c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
		if got := r.Waits(*r.Find(Upload)); strings.Contains(got, "Most of the wait") {
			t.Errorf("%s: an upload that adds nothing: %s", name, got)
		}
	}
	p := Summarize(pinged(160)).Find(Download)
	if p.Hop == nil || p.Hop.Sent != 40 || p.Hop.RTT.N != 40 || p.Hop.RTT.P50 != 163 || p.Hop.Added != 160 {
		t.Errorf("%+v", p.Hop)
	}
}
