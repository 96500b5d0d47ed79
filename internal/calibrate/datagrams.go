// SPDX-License-Identifier: Apache-2.0

package calibrate

import (
	"context"
	"errors"
	"fmt"
	"math"
	"weir/internal/stats"
	"weir/internal/wire"
)

// Datagrams are sent a little faster than the link is, so that what arrives has its rate: TCP's bursts, its answers to
// losses and its searches do not enter. Above sureBits a host may be too slow to send or to count them: what makes no
// sense there tells nothing. Who loses how much beside them nobody can tell, so there may be no other traffic of this
// host's.
const (
	maxBeside    = 0.02  // of the rate
	maxLost      = 0.002 // by the path: it is not known well enough to be added to what arrives
	sureBits     = 200e6
	maxBits      = 1.1e9
	smallBits    = 50e6 // up to here the small ones may be as many as 26,000 a second
	largest      = 1400 // bytes of IP, which pass where a tunnel takes some of 1500
	fasterFactor = 1.04
	maxTries     = 3
)

// countable reports whether datagrams tell more than TCP does.
func (r *run) countable() bool {
	rate := r.big.flow().counted(wire.EthernetHeader)
	return r.link.Datagrams() && r.filled(r.big) && rate <= maxBits && r.beside <= maxBeside*rate
}

// datagrams finds the rate and the framing by datagrams of two sizes, and a third where they look like cells. It tells
// false where they do not fill the link, or where they and TCP disagree: then neither is to be believed.
func (r *run) datagrams(ctx context.Context) (f framing, ok bool, err error) {
	r.begin(Datagrams)
	connections := r.load.Connections
	defer func() { // none of TCP's is left
		if r.load.Datagrams {
			err = errors.Join(err, r.send(ctx, Load{}))
			r.load = Load{Connections: int(clamp(float64(connections), 2, 4))}
		}
	}()
	large, ok, err := r.flood(ctx, largest, r.big.flow().counted(wire.EthernetHeader)/8/(largest+wire.EthernetHeader))
	if err != nil || !ok {
		return f, false, err
	}
	plateaus := []plateau{large}
	sizes := []int{small, third}
	rate := large.flow().counted(wire.EthernetHeader)
	if rate > smallBits {
		sizes = []int{middle}
	}
	if r.NoFraming {
		sizes = nil
	}
	for _, size := range sizes {
		if size == third && !f.celled(rate) {
			break
		}
		p, filled, err := r.flood(ctx, size, large.own.bytes/float64(size))
		if err != nil {
			return f, false, err
		}
		if !filled {
			break
		}
		plateaus = append(plateaus, p)
		f = frame(plateaus...)
	}
	if !r.believes(f, large) {
		return f, false, nil
	}
	r.tcp = r.big
	r.big.own, r.big.other, r.big.asked = large.own, large.other, large.asked
	r.big.beside, r.big.off = large.beside, large.off
	r.big.counted, r.big.flooded = true, large.waits
	return f, f.known || r.NoFraming, nil
}

// believes reports whether datagrams tell the rate, and keeps what TCP and they disagree about. On a fast link, this
// host or the peer may be too slow for them; and where no queue stood, TCP has not filled it: the verification shows
// whether it can.
func (r *run) believes(f framing, udp plateau) bool {
	differ := disagreement(f, r.big, udp)
	if udp.flow().counted(wire.EthernetHeader) > sureBits {
		if f = f.plausible(); !f.known && !r.NoFraming || differ != "" && f.counted(udp) < f.counted(r.big) {
			return false
		}
		if r.big.waits <= r.idle.stands() {
			return true
		}
	}
	r.differ = differ
	return differ == ""
}

// disagreement tells by how much TCP and datagrams differ, if that is more than they may be wrong.
func disagreement(f framing, tcp, udp plateau) string {
	const further = 0.002
	if !f.known {
		f.overhead = wire.EthernetHeader
	}
	a, b := f.counted(tcp), f.counted(udp)
	if math.Abs(a/b-1) <= 2*(tcp.off+udp.off)+further {
		return ""
	}
	return fmt.Sprintf("TCP is carried at %.4g Mbit/s, and UDP at %.4g. One of them has a limit of its own, or the "+
		"rate has changed meanwhile.", a/1e6, b/1e6)
}

// count sends datagrams for so many seconds, or for two round trips, and returns what of them arrived.
func (r *run) count(ctx context.Context, l Load, length float64) (p plateau, err error) {
	if err = r.send(ctx, l); err != nil {
		return p, err
	}
	// Those of the load before come out of the queue first.
	if _, _, err = r.watch(ctx, r.queued()+r.idle.base+0.15); err != nil {
		return p, err
	}
	// Of the probes of the last round trip no answer is there at the end.
	a, b, err := r.watch(ctx, math.Max(length, 2*(r.idle.base+r.queued())))
	if err != nil {
		return p, err
	}
	return arriving(r.samples(), r.probes(), a, b), nil
}

// flood sends datagrams until they fill the link, beginning with a little more than so many a second. It follows on a
// load that filled the link: a queue stands already, and no credit has gathered.
func (r *run) flood(ctx context.Context, size int, packets float64) (p plateau, filled bool, err error) {
	const (
		long  = 1.0    // s
		least = 1000.0 // packets
		noisy = 0.002  // s of jitter, in which packets do not come as they were sent
		few   = 50     // packets that arrive: fewer tell no rate, and where UDP does not pass there are none
	)
	for range maxTries {
		packets *= fasterFactor
		length := clamp(least/packets, long, 3*long)
		if r.idle.noise > noisy {
			length = math.Max(length, 2.2*long)
		}
		p, err = r.count(ctx, Load{Connections: 1, Segment: size, Rate: 8 * float64(size) * packets, Datagrams: true},
			length)
		if err != nil || p.own.packets*(p.to-p.from) < few {
			return p, false, err
		}
		if p.lost > 0.01 {
			_, rtt := answers(r.probes(), p.from, p.to)
			p.waits = stats.QuantileAbove(rtt, 0.5) - r.idle.base
			return p, true, nil
		}
		packets *= 1.3
	}
	return p, false, nil
}

// smooth sends datagrams below the rate, where TCP has lost much there: on a fast link a policer may be too short for
// its bursts. True if hardly one of them is lost: then the path loses that much, and not what was seen of TCP.
func (r *run) smooth(ctx context.Context, seen below) (u below, ok bool, err error) {
	const long = 1.0 // s
	connections := r.load.Connections
	p, err := r.count(ctx, Load{Connections: 1, Segment: largest, Rate: lower * 8 * r.big.own.bytes, Datagrams: true},
		long)
	err = errors.Join(err, r.send(ctx, Load{}))
	r.load = Load{Connections: connections}
	if err != nil || p.lost > maxLost {
		return seen, false, err
	}
	u.packets = math.Max(tells, r.samples().between(p.from, p.to).
		grown(func(s Sample) float64 { return s.Segments }))
	u.sent, u.again, u.off, u.base = u.packets, p.lost*u.packets, 1/u.packets, r.idle.base
	u.most = (u.again + 2*math.Sqrt(u.again) + 3) / u.sent
	return u, true, nil
}

// queued is how long a packet waits that is sent now: as the last ones that were answered have, and half as much again.
func (r *run) queued() float64 {
	_, rtt := answers(r.probes(), r.now()-3, r.now())
	longest := 0.0
	for _, t := range rtt[max(0, len(rtt)-10):] {
		longest = math.Max(longest, t-r.idle.base)
	}
	return 1.5 * longest
}

// arriving is a plateau of datagrams: what of them arrived, by the peer's clock, and what of others.
func arriving(all series, probes []Probe, a, b float64) plateau {
	p := plateau{from: a, to: b, counted: true}
	part := all.between(a, b)
	var there, arrived []float64
	for _, x := range probes {
		if t := x.At.Seconds(); t >= a && t < b && x.RTT >= 0 {
			there, arrived = append(there, x.There.Seconds()), append(arrived, x.Arrived)
		}
	}
	p.own.packets = stats.Fit(there, arrived).Slope
	p.own.bytes = p.own.packets * part.size()
	p.other = part.other()
	p.beside = p.other
	p.lost = clamp(1-p.own.packets/part.slope(func(s Sample) float64 { return s.Segments }), 0, 1)
	p.forget(all, probes)
	p.grow(probes)
	// Neighbours in a series resemble each other, so the slope is known less well than if they did not.
	const alike = 3
	p.off += math.Max(minOff, alike*doubt(there, arrived))
	return p
}
