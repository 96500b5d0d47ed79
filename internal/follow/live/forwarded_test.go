// SPDX-License-Identifier: Apache-2.0

package live

import (
	"hash/maphash"
	"net/netip"
	"reflect"
	"testing"
	"time"

	"weir/internal/follow"
	"weir/internal/qdisc"
	"weir/internal/rtt"
)

func passing(to string, acked, again uint64, samples uint32) rtt.Flow {
	return rtt.Flow{ID: rtt.ID{Device: 2, Here: netip.MustParseAddrPort("198.51.100.1:80"),
		There: netip.MustParseAddrPort(to)}, Acked: acked, Again: again, Samples: samples, MSS: 1000,
		Smooth: 60 * time.Millisecond, Least: 50 * time.Millisecond,
		Sum: time.Duration(samples) * 60 * time.Millisecond}
}

// Of forwarded connections those are looked at that carry most; one that was forgotten meanwhile begins anew.
func TestTakeForwarded(t *testing.T) {
	f, at := &forwarded{}, time.Now()
	f.take([]rtt.Flow{passing("192.0.2.1:1", 9e9, 0, 10), passing("192.0.2.2:1", 5000, 0, 10),
		passing("192.0.2.3:1", 1e6, 0, 4e9)}, 1, at)
	f.take([]rtt.Flow{passing("192.0.2.1:1", 9e9, 0, 10), passing("192.0.2.2:1", 9000, 0, 110),
		passing("192.0.2.3:1", 3000, 0, 3)}, 2, at.Add(2*time.Second))
	if len(f.chosen) != 2 || f.chosen[0].There.String() != "192.0.2.2:1" ||
		f.chosen[1].There.String() != "192.0.2.3:1" {
		t.Errorf("chosen are %+v", f.chosen)
	}
	if rate := f.rates[f.chosen[0].ID]; rate != 50 || len(f.rates) != 1 {
		t.Errorf("RTTs come at %v", f.rates)
	}
	// What it has carried since the last look counts at the next.
	f.take([]rtt.Flow{passing("192.0.2.2:1", 20_000, 0, 150)}, 2, at.Add(4*time.Second))
	if len(f.chosen) != 1 || f.chosen[0].Acked != 9000 {
		t.Errorf("chosen anew are %+v", f.chosen)
	}
}

// What is not known of a forwarded connection is not said, and what tells nothing new is left out.
func TestPassed(t *testing.T) {
	before := passing("192.0.2.1:1", 10_000, 2000, 10)
	seed := maphash.MakeSeed()
	want := follow.Connection{ID: maphash.Comparable(seed, before.ID), RTT: 60 * time.Millisecond,
		Base: 50 * time.Millisecond, Rate: 100, Past: true, Samples: 12, Sum: 720 * time.Millisecond,
		To: netip.MustParseAddr("192.0.2.0"), Delivered: 20, Size: 1066, Lost: 3, Forwarded: true}
	for name, c := range map[string]struct {
		now  rtt.Flow
		want []follow.Connection
	}{
		"it moves":         {passing("192.0.2.1:1", 30_000, 5000, 12), []follow.Connection{want}},
		"it stands":        {before, nil},
		"it was forgotten": {passing("192.0.2.1:1", 500, 0, 1), nil},
		"it has no RTT":    {passing("192.0.2.1:1", 30_000, 2000, 0), nil},
	} {
		e := eye{least: map[netip.Addr]time.Duration{}, counts: qdisc.Framing{Raw: true},
			forwarded: &forwarded{seed: seed, rates: map[rtt.ID]float64{before.ID: 50}}}
		if got := e.movedPairs([]pair{{before, c.now}}); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %+v", name, got)
		}
	}
}
