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
// losses and its searches do not enter. Above sureRate a host may be too slow to send or to count them: what makes no
// sense there tells nothing. Who loses how much beside them nobody can tell, so there may be no other traffic of this
// host's.
const (
	maxOtherShare   = 0.02  // of the rate
	maxLost         = 0.002 // by the path: it is not known well enough to be added to what arrives
	sureRate        = 200e6
	maxDatagramRate = 1.1e9
	slowRate        = 50e6 // up to here the small ones may be as many as 26,000 a second
	largestDatagram = 1400 // bytes of IP, which pass where a tunnel takes some of 1500
	fasterFactor    = 1.04
	maxTries        = 3
)

// canCountDatagrams reports whether datagrams tell more than TCP does.
func (r *run) canCountDatagrams() bool {
	rate := r.large.flow().bitRate(wire.EthernetHeader)
	return r.link.Datagrams() && r.filledLink(r.large) && rate <= maxDatagramRate && r.otherRate <= maxOtherShare*rate
}

// measureByDatagrams finds the rate and the framing by datagrams of two sizes, and a third where they look like cells.
// It tells false where they do not fill the link, or where they and TCP disagree: then neither is to be believed.
func (r *run) measureByDatagrams(ctx context.Context) (f framing, ok bool, err error) {
	r.startPhase(Datagrams)
	connections := r.load.Connections
	defer func() { // none of TCP's is left
		if r.load.Datagrams {
			err = errors.Join(err, r.send(ctx, Load{}))
			r.load = Load{Connections: int(clamp(float64(connections), 2, 4))}
		}
	}()
	const frame = largestDatagram + wire.EthernetHeader
	large, ok, err := r.floodDatagrams(ctx, largestDatagram, r.large.flow().bitRate(wire.EthernetHeader)/8/frame)
	if err != nil || !ok {
		return f, false, err
	}
	plateaus := []plateau{large}
	sizes := []int{smallSize, thirdSize}
	rate := large.flow().bitRate(wire.EthernetHeader)
	if rate > slowRate {
		sizes = []int{middleSize}
	}
	if r.NoFraming {
		sizes = nil
	}
	for _, size := range sizes {
		if size == thirdSize && !f.mayBeCells(rate) {
			break
		}
		p, filled, err := r.floodDatagrams(ctx, size, large.own.bytes/float64(size))
		if err != nil {
			return f, false, err
		}
		if !filled {
			break
		}
		plateaus = append(plateaus, p)
		f = fitFraming(plateaus...)
	}
	if !r.acceptsDatagrams(f, large) {
		return f, false, nil
	}
	r.tcpPlateau = r.large
	r.large.own, r.large.other, r.large.probeFlow = large.own, large.other, large.probeFlow
	r.large.otherSent, r.large.uncertainty = large.otherSent, large.uncertainty
	r.large.byDatagrams, r.large.floodWait = true, large.medianWait
	return f, f.known || r.NoFraming, nil
}

// acceptsDatagrams reports whether datagrams tell the rate, and keeps what TCP and they disagree about. On a fast link,
// this host or the peer may be too slow for them; and where no queue stood, TCP has not filled it: the verification
// shows whether it can.
func (r *run) acceptsDatagrams(f framing, udp plateau) bool {
	differ := disagreement(f, r.large, udp)
	if udp.flow().bitRate(wire.EthernetHeader) > sureRate {
		if f = f.withoutImpossible(); !f.known && !r.NoFraming || differ != "" && f.bitRate(udp) < f.bitRate(r.large) {
			return false
		}
		if r.large.medianWait <= r.idle.queueThreshold() {
			return true
		}
	}
	r.disagreement = differ
	return differ == ""
}

// disagreement tells by how much TCP and datagrams differ, if that is more than they may be wrong.
func disagreement(f framing, tcp, udp plateau) string {
	const further = 0.002
	if !f.known {
		f.overhead = wire.EthernetHeader
	}
	a, b := f.bitRate(tcp), f.bitRate(udp)
	if math.Abs(a/b-1) <= 2*(tcp.uncertainty+udp.uncertainty)+further {
		return ""
	}
	return fmt.Sprintf("TCP is carried at %.4g Mbit/s, and UDP at %.4g. One of them has a limit of its own, or the "+
		"rate has changed meanwhile.", a/1e6, b/1e6)
}

// countDatagrams sends datagrams for so many seconds, or for two round trips, and returns what of them arrived.
func (r *run) countDatagrams(ctx context.Context, l Load, length float64) (p plateau, err error) {
	if err = r.send(ctx, l); err != nil {
		return p, err
	}
	// Those of the load before come out of the queue first.
	if _, _, err = r.watch(ctx, r.queueWait()+r.idle.base+0.15); err != nil {
		return p, err
	}
	// Of the probes of the last round trip no answer is there at the end.
	a, b, err := r.watch(ctx, math.Max(length, 2*(r.idle.base+r.queueWait())))
	if err != nil {
		return p, err
	}
	return datagramPlateau(r.samples(), r.probes(), a, b), nil
}

// floodDatagrams sends datagrams until they fill the link, beginning with a little more than so many a second. It
// follows on a load that filled the link: a queue stands already, and no credit has gathered.
func (r *run) floodDatagrams(ctx context.Context, size int, packets float64) (p plateau, filled bool, err error) {
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
		l := Load{Connections: 1, Segment: size, Rate: 8 * float64(size) * packets, Datagrams: true}
		p, err = r.countDatagrams(ctx, l, length)
		if err != nil || p.own.packets*(p.to-p.from) < few {
			return p, false, err
		}
		if p.lost > 0.01 {
			_, rtt := answers(r.probes(), p.from, p.to)
			p.medianWait = stats.QuantileAbove(rtt, 0.5) - r.idle.base
			return p, true, nil
		}
		packets *= 1.3
	}
	return p, false, nil
}

// measureLossByDatagrams sends datagrams below the rate, where TCP has lost much there: on a fast link a policer may be
// too short for its bursts. True if hardly one of them is lost: then the path loses that much, and not what was seen of
// TCP.
func (r *run) measureLossByDatagrams(ctx context.Context, seen belowRate) (u belowRate, ok bool, err error) {
	const long = 1.0 // s
	connections := r.load.Connections
	l := Load{Connections: 1, Segment: largestDatagram, Rate: belowShare * 8 * r.large.own.bytes, Datagrams: true}
	p, err := r.countDatagrams(ctx, l, long)
	err = errors.Join(err, r.send(ctx, Load{}))
	r.load = Load{Connections: connections}
	if err != nil || p.lost > maxLost {
		return seen, false, err
	}
	u.packets = math.Max(minTellingPackets, r.samples().between(p.from, p.to).
		growth(func(s Sample) float64 { return s.Segments }))
	u.sentLate, u.lostLate, u.uncertainty, u.base = u.packets, p.lost*u.packets, 1/u.packets, r.idle.base
	u.maxLoss = (u.lostLate + 2*math.Sqrt(u.lostLate) + 3) / u.sentLate
	return u, true, nil
}

// queueWait is how long a packet waits that is sent now: as the last ones that were answered have, and half as much
// again.
func (r *run) queueWait() float64 {
	_, rtt := answers(r.probes(), r.now()-3, r.now())
	longest := 0.0
	for _, t := range rtt[max(0, len(rtt)-10):] {
		longest = math.Max(longest, t-r.idle.base)
	}
	return 1.5 * longest
}

// datagramPlateau is a plateau of datagrams: what of them arrived, by the peer's clock, and what of others.
func datagramPlateau(all series, probes []Probe, a, b float64) plateau {
	p := plateau{from: a, to: b, byDatagrams: true}
	part := all.between(a, b)
	var there, arrived []float64
	for _, x := range probes {
		if t := x.At.Seconds(); t >= a && t < b && x.RTT >= 0 {
			there, arrived = append(there, x.There.Seconds()), append(arrived, x.Arrived)
		}
	}
	p.own.packets = stats.Fit(there, arrived).Slope
	p.own.bytes = p.own.packets * part.meanSize()
	p.other = part.other()
	p.otherSent = p.other
	p.lost = clamp(1-p.own.packets/part.slope(func(s Sample) float64 { return s.Segments }), 0, 1)
	p.discountOthers(all, probes)
	p.discountQueued(probes)
	// Neighbours in a series resemble each other, so the slope is known less well than if they did not.
	const alike = 3
	p.uncertainty += math.Max(minUncertainty, alike*slopeError(there, arrived))
	return p
}
