// SPDX-License-Identifier: Apache-2.0

package live

import (
	"math"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"weir/internal/follow"
	"weir/internal/host"
	"weir/internal/qdisc"
)

// What a CAKE has sent is counted as its shaper counts it.
func TestCounted(t *testing.T) {
	thousand := qdisc.Stats{Bytes: 1_514_000, Packets: 1000}
	for text, want := range map[string]float64{
		"cake bandwidth 50mbit raw":                   1_514_000,
		"cake bandwidth 50mbit overhead 38":           1_538_000,
		"cake bandwidth 50mbit overhead 0":            1_500_000,
		"cake bandwidth 50mbit ethernet":              1_538_000,
		"cake bandwidth 50mbit atm overhead 40":       (1_540_000. + 24_000) * 53 / 48,
		"cake bandwidth 50mbit overhead 38 diffserv4": 1_538_000,
	} {
		stack, err := qdisc.ParseStack(text)
		if err != nil {
			t.Fatal(err)
		}
		if got := Counted(stack[0].(qdisc.Cake), thousand); math.Abs(got-want) > 1 {
			t.Errorf("%s: %.0f, want %.0f", text, got, want)
		}
	}
	thousand.X = qdisc.CakeStats{AvgOverhead: 18}
	if got := Counted(qdisc.Cake{Overhead: 38}, thousand); got != 1_534_000 {
		t.Errorf("with a VLAN's header: %.0f", got)
	}
}

// A queue of this host's own counts while something waits in it.
func TestOwnDelay(t *testing.T) {
	stats := qdisc.Stats{X: qdisc.CakeStats{Tins: []qdisc.CakeTin{
		{Backlog: 0, PeakDelay: 90_000}, {Backlog: 1514, PeakDelay: 3000, AvgDelay: 1000},
		{Backlog: 1514, PeakDelay: 1000, AvgDelay: 5000},
	}}}
	if got := ownDelay(stats); got != 5*time.Millisecond {
		t.Errorf("%s", got)
	}
	if got := ownDelay(qdisc.Stats{}); got != 0 {
		t.Errorf("of no CAKE: %s", got)
	}
}

func connection(cookie uint64, to string, delivered, least uint32) host.Connection {
	return host.Connection{Cookie: cookie, Remote: netip.MustParseAddrPort(to),
		Info: unix.TCPInfo{Delivered: delivered, Min_rtt: least, Rtt: 50_000}}
}

// Those that carry most are looked at, and their base is the least of all to the same address.
func TestChoose(t *testing.T) {
	e := eye{few: few, least: map[netip.Addr]time.Duration{}}
	many := func(more uint32) (all []host.Connection) {
		for i := range uint64(20) {
			all = append(all, connection(i, "192.0.2.1:443", 1000+uint32(i)*more, 40_000+1000*uint32(i)))
		}
		return all
	}
	e.choose(many(0))
	e.at = e.at.Add(-time.Second)
	e.choose(many(10))
	if len(e.chosen) != few || e.chosen[0].Cookie != 19 || e.chosen[few-1].Cookie != 20-few {
		t.Errorf("%d, from %d on", len(e.chosen), e.chosen[0].Cookie)
	}
	if rate := e.rates[19]; rate <= 0 || rate > 200 {
		t.Errorf("%g packets a second", rate)
	}
	for _, c := range e.chosen {
		if base := e.base(c); base != 40*time.Millisecond {
			t.Errorf("%s", base)
		}
	}
	if base := e.base(connection(99, "192.0.2.2:443", 1, math.MaxUint32)); base != 0 {
		t.Errorf("of one that knows none: %s", base)
	}
}

func TestLoaded(t *testing.T) {
	for name, c := range map[string]struct {
		sent, backlog float64
		want          bool
	}{"idle": {0, 0, false}, "half": {40_000, 0, false}, "much": {90_000, 0, true}, "it waits": {10_000, 1, true}} {
		e := eye{before: follow.Look{At: time.Second, Sent: 1e6}}
		l := follow.Look{At: time.Second + 10*time.Millisecond, Sent: 1e6 + c.sent, Backlog: c.backlog}
		if got := e.loaded(l, 100e6); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// Neighbours in a network may share a line.
func TestNetwork(t *testing.T) {
	for a, want := range map[string]string{"192.0.2.7": "192.0.2.0", "2001:db8:1:2::3": "2001:db8:1::", "fe80::1%eth0": "fe80::"} {
		if got := network(netip.MustParseAddr(a)); got.WithZone("") != netip.MustParseAddr(want) {
			t.Errorf("%s: %s", a, got)
		}
	}
}

// A full packet is as long as the shaper says, whatever IP and TCP it is of.
func TestSize(t *testing.T) {
	const mss = 1448
	for _, c := range []struct {
		cake    qdisc.Cake
		to      string
		options uint8
		want    float64
	}{
		{qdisc.Cake{Raw: true}, "192.0.2.1:443", 1, 1514},
		{qdisc.Cake{Raw: true}, "[::ffff:192.0.2.1]:443", 1, 1514},
		{qdisc.Cake{Raw: true}, "192.0.2.1:443", 0, 1502},
		{qdisc.Cake{Raw: true}, "[2001:db8::1]:443", 1, 1534},
		{qdisc.Cake{Overhead: 38}, "192.0.2.1:443", 1, 1538},
		{qdisc.Cake{MPU: 1600}, "192.0.2.1:443", 1, 1600},
		{qdisc.Cake{ATM: "atm", Overhead: 32}, "192.0.2.1:443", 1, 32 * 53},
	} {
		connection := host.Connection{Remote: netip.MustParseAddrPort(c.to)}
		connection.Info.Snd_mss, connection.Info.Options = mss, c.options
		if got := size(c.cake, connection); got != c.want {
			t.Errorf("%+v to %s: %g, and not %g", c.cake, c.to, got, c.want)
		}
	}
}
