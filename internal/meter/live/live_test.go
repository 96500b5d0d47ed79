// SPDX-License-Identifier: Apache-2.0

package live

import (
	"encoding/json"
	"math"
	"net/netip"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"weir/internal/host"
	"weir/internal/tcp"
)

// seen is a connection that has had so many bytes acknowledged, at an RTT in µs.
func seen(cookie uint64, to string, acked uint64, rtt, least uint32, busy uint64) host.Connection {
	return host.Connection{Cookie: cookie, Remote: netip.MustParseAddrPort(to), CC: "cubic", Info: unix.TCPInfo{
		Bytes_acked: acked, Bytes_sent: acked + acked/10, Bytes_retrans: acked / 10, Rtt: rtt, Rttvar: rtt / 8,
		Min_rtt: least, Busy_time: busy}}
}

func TestWatch(t *testing.T) {
	var w Watch
	start := time.Unix(1000, 0)
	at := func(s int) time.Time { return start.Add(time.Duration(s) * time.Second) }
	w.Add(at(0), []host.Connection{
		seen(1, "203.0.113.7:443", 5_000_000, 200_000, 48_000, 9_000_000), // what it did before does not count
		seen(2, "[2001:db8:1:2::3]:22", 1000, 20_000, 20_000, 1000),
	})
	w.Add(at(1), []host.Connection{
		seen(1, "203.0.113.7:443", 6_000_000, 210_000, 48_000, 10_000_000),
		seen(2, "[2001:db8:1:2::3]:22", 1000, 90_000, 20_000, 1000), // no answer since: no sample
	})
	w.Add(at(2), []host.Connection{
		seen(1, "203.0.113.7:443", 7_000_000, 230_000, 48_000, 11_000_000),
		seen(2, "[2001:db8:1:2::3]:22", 2000, 21_000, 20_000, 2000),
		seen(3, "203.0.113.99:443", 500_000, 60_000, 50_000, 300_000), // new: all of it counts
	})
	r := w.Result()
	if r.Seconds != 2 || r.Looks != 3 || len(r.Networks) != 2 || r.All.Connections != 3 {
		t.Fatalf("%+v", r)
	}
	n := r.Networks[0]
	if n.Network != "203.0.113.0/24" || n.Connections != 2 || n.RTT.N != 3 || n.RTT.P50 != 210 || n.Floor != 48 ||
		n.Added.P50 != 162 || n.Out != 10 || math.Abs(n.Retransmitted-0.0909) > 0.001 || n.CC["cubic"] != 2 {
		t.Errorf("%+v", n)
	}
	if n.Limits[tcp.Network] != 1 || n.Limits[tcp.Application] != 1 {
		t.Errorf("limits: %v", n.Limits)
	}
	if n := r.Networks[1]; n.Network != "2001:db8:1::/48" || n.RTT.N != 1 || n.RTT.P50 != 21 || n.Limit() != "" {
		t.Errorf("%+v", n)
	}
	if want := "Packets to 1 of 2 networks wait; to 203.0.113.0/24 for 162 ms"; !strings.HasPrefix(r.Says, want) {
		t.Error(r.Says)
	}
}

func TestSays(t *testing.T) {
	for want, looks := range map[string][]host.Connection{
		"No TCP connection": nil,
		"Connections are open, but none": {seen(1, "192.0.2.1:1", 10, 5000, 4000, 0),
			seen(1, "192.0.2.1:1", 10, 5000, 4000, 0)},
		"Nothing waits: RTTs are 1.0 ms": {seen(1, "192.0.2.1:1", 10, 5000, 4000, 0),
			seen(1, "192.0.2.1:1", 20, 5000, 4000, 0)},
	} {
		var w Watch
		w.Add(time.Unix(0, 0), nil)
		for i, c := range looks {
			if i == 0 {
				w = Watch{}
			}
			w.Add(time.Unix(int64(i), 0), []host.Connection{c})
		}
		if r := w.Result(); !strings.HasPrefix(r.Says, want) {
			t.Errorf("%s, want %s", r.Says, want)
		}
	}
}

// Whatever a kernel says, the numbers can be written.
func FuzzWatch(f *testing.F) {
	f.Add(uint64(1), uint64(2), uint32(3), uint32(4), uint64(5))
	f.Add(uint64(math.MaxUint64), uint64(0), uint32(math.MaxUint32), uint32(math.MaxUint32), uint64(math.MaxUint64))
	f.Add(uint64(0), uint64(math.MaxUint64), uint32(0), uint32(1), uint64(0))
	f.Fuzz(func(t *testing.T, before, after uint64, rtt, least uint32, busy uint64) {
		var w Watch
		w.Add(time.Unix(0, 0), []host.Connection{seen(1, "192.0.2.1:1", before, rtt, least, busy)})
		w.Add(time.Unix(1, 0), []host.Connection{seen(1, "192.0.2.1:1", after, rtt, least, busy/2)})
		r := w.Result()
		if _, err := json.Marshal(r); err != nil {
			t.Error(err)
		}
		if r.All.Added.Min < 0 || r.All.Retransmitted > 1 || r.All.Out < 0 {
			t.Errorf("%+v", r.All)
		}
	})
}
