// SPDX-License-Identifier: Apache-2.0

package follow

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"weir/internal/stats"
	"weir/internal/units"
)

// creeper is a client that puts its acknowledgements off as if a link stood in front of it that becomes slower, by a
// twentieth every 1.5 s. It has the first of the connections, and knows no more than what is sent.
type creeper struct {
	of      int                     // connections
	network func(id int) netip.Addr // of each
	until   float64                 // seconds; it begins at 10

	rate, stepped, last float64 // bit/s that its link would carry, and seconds
	queue, srtt         float64 // bits, seconds
	sums                map[uint64]float64
}

func (c *creeper) lie(l Look, rate float64) {
	const begins, pause, buffer = 10, 1.5, .02 // seconds
	now, sent := l.At.Seconds(), 0.
	lies := now > lieBegins && now < c.until
	for _, x := range l.Connections {
		sent += x.Delivered * packetBits
	}
	if lies && now-c.stepped > pause {
		c.stepped, c.rate = now, max(20*mbit, min(c.rate, .95*rate))
	}
	c.queue = min(max(0, c.queue+sent-c.rate*(now-c.last)), buffer*c.rate)
	if !lies {
		c.queue = 0
	}
	c.srtt += (c.queue/c.rate - c.srtt) * min(1, 8*(now-c.last))
	c.last = now
	for i := range l.Connections {
		x := &l.Connections[i]
		if int(x.ID) > c.of {
			continue
		}
		x.To = c.network(int(x.ID))
		x.RTT += time.Duration(c.srtt * 1e9)
		if x.Past {
			c.sums[x.ID] += c.srtt * 1e9 * x.Delivered / 2
			x.Sum += time.Duration(c.sums[x.ID])
		}
	}
}

// Clients that act as if the link became slower lower the rate by little, if others know better.
func TestCreepingClients(t *testing.T) {
	one := func(int) netip.Addr { return netip.MustParseAddr("198.51.100.0") }
	several := func(id int) netip.Addr { return netip.AddrFrom4([4]byte{203, 0, byte(id), 0}) }
	for _, c := range []struct {
		name    string
		network func(id int) netip.Addr
		of      int
		costs   float64 // share of the rate, at most
	}{
		{"one network", one, 5, .02},
		{"one network", one, 6, .02},
		{"one network", one, 7, .02},
		{"several networks", several, 5, .02},
		{"several networks", several, 6, .25},
		{"several networks", several, 7, .25},
		// Nobody knows better: it might be true. The lowest that may be set holds.
		{"one network", one, 8, .8},
		{"several networks", several, 8, .8},
	} {
		for _, forwarded := range []bool{false, true} {
			t.Run(fmt.Sprintf("%d of 8, %s, forwarded %v", c.of, c.name, forwarded), func(t *testing.T) {
				liar := creeper{of: c.of, network: c.network, until: lieEnds, rate: 100 * mbit,
					sums: map[uint64]float64{}}
				lieToFollower(t, liar.lie, forwarded, c.costs)
			})
		}
	}
}

// denier is a client that does not acknowledge all that has come, as if a policer stood in front of it that lets less
// and less through: a tenth less every 17 s, after which what was found is no moment's loss.
type denier struct {
	of      int
	network func(id int) netip.Addr
	until   float64

	rate, stepped, last, credit float64
}

func (c *denier) lie(l Look, rate float64) {
	const pause, bucket = 17, .005 // seconds
	now, sent, own := l.At.Seconds(), 0., 0.
	for _, x := range l.Connections {
		sent += x.Delivered * packetBits
		if int(x.ID) <= c.of {
			own += x.Delivered
		}
	}
	lies := now > lieBegins && now < c.until
	if lies && (c.stepped == 0 || now-c.stepped > pause) {
		c.stepped, c.rate = now, max(20*mbit, min(c.rate, .9*rate))
	}
	c.credit = min(c.credit+c.rate*(now-c.last)-sent, bucket*c.rate)
	denied := 0.
	if c.credit < 0 {
		denied, c.credit = -c.credit/packetBits, 0
	}
	c.last = now
	for i := range l.Connections {
		x := &l.Connections[i]
		if int(x.ID) > c.of {
			continue
		}
		x.To = c.network(int(x.ID))
		if lies && own > 0 {
			n := min(1, denied/own) * x.Delivered
			x.Delivered, x.Lost = x.Delivered-n, x.Lost+n
		}
	}
}

// Clients that deny what has come lower the rate by little, if others know better.
func TestDenyingClients(t *testing.T) {
	one := func(int) netip.Addr { return netip.MustParseAddr("198.51.100.0") }
	several := func(id int) netip.Addr { return netip.AddrFrom4([4]byte{203, 0, byte(id), 0}) }
	for _, c := range []struct {
		name    string
		network func(id int) netip.Addr
		of      int
		costs   float64 // share of the rate, at most
	}{
		{"one network", one, 1, .03},
		{"one network", one, 4, .03},
		{"one network", one, 7, .03},
		{"several networks", several, 2, .25},
		{"several networks", several, 4, .25},
		{"several networks", several, 6, .25},
		{"several networks", several, 7, .25},
		{"several networks", several, 8, .8},
	} {
		t.Run(fmt.Sprintf("%d of 8, %s", c.of, c.name), func(t *testing.T) {
			liar := denier{of: c.of, network: c.network, until: lieEnds, rate: 100 * mbit}
			lieToFollower(t, liar.lie, false, c.costs)
		})
	}
}

// When liars begin and end, in seconds.
const lieBegins, lieEnds = 10, 60

// lieToFollower has some of eight clients lie, and looks what share of the rate that costs, and whether it comes back.
func lieToFollower(t *testing.T, lie func(l Look, rate float64), forwarded bool, maxCosts float64) {
	t.Helper()
	f := New(100*units.Rate(mbit), 20*units.Rate(mbit), 120*units.Rate(mbit))
	w := world{rate: steps(100 * mbit), buffer: .2, bases: same(8, .048), look: .02, forwarded: forwarded}
	w.set = func(l Look) float64 {
		if l.At > 0 {
			lie(l, float64(f.Rate()))
			f.Look(l)
		}
		return float64(f.Rate())
	}
	s := w.run(80)
	mean := func(from, to float64) float64 { return stats.Mean(s.between(s.set, from, to)) }
	before, during, after := mean(5, lieBegins), mean(lieBegins, lieEnds), mean(lieEnds+15, 80)
	if costs := 1 - during/before; costs > maxCosts {
		t.Errorf("it costs %.0f %% of the rate, at most %.0f", 100*costs, 100*maxCosts)
	}
	if after < .97*before {
		t.Errorf("15 s after it has ended, the rate is %.1f Mbit/s, and was %.1f", after/mbit, before/mbit)
	}
}

// Who never crosses the provider's bottleneck, as a replica in the same datacentre, says nothing against its queue.
func TestNeighbourIsNoWitness(t *testing.T) {
	for _, c := range []struct {
		to        string
		forwarded bool
	}{
		{"198.51.100.0", true}, {"100.64.1.0", true}, {"100.64.1.0", false}, {"10.1.0.0", true}, {"10.1.0.0", false},
	} {
		f := New(100*units.Rate(mbit), 20*units.Rate(mbit), 120*units.Rate(mbit))
		w := world{rate: steps(100*mbit, 30, 40*mbit), buffer: .2, bases: same(8, .048), look: .02,
			forwarded: c.forwarded}
		w.set = func(l Look) float64 {
			if l.At == 0 {
				return float64(f.Rate())
			}
			for i := range l.Connections {
				x := &l.Connections[i]
				if x.To = netip.AddrFrom4([4]byte{203, 0, byte(x.ID), 0}); x.ID == 1 {
					x.To, x.RTT = netip.MustParseAddr(c.to), x.Base
					if x.Past {
						x.Sum = x.Base * time.Duration(x.Samples)
					}
				}
			}
			f.Look(l)
			return float64(f.Rate())
		}
		s := w.run(60)
		if rate := stats.Mean(s.between(s.set, 40, 60)); rate > 40*mbit {
			t.Errorf("with %s, forwarded %v: %.1f Mbit/s where 40 pass", c.to, c.forwarded, rate/mbit)
		}
	}
}
