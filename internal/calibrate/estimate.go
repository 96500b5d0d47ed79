// SPDX-License-Identifier: Apache-2.0

package calibrate

import (
	"math"
	"slices"
	"weir/internal/stats"
	"weir/internal/wire"
)

// idleLink is a link on which nothing of ours is under way, in seconds.
type idleLink struct {
	base  float64 // median RTT
	noise float64 // what nine tenths of the RTTs lie within
}

func measureIdle(probes []Probe, a, b float64) idleLink {
	_, rtt := answers(probes, a, b)
	return idleLink{stats.QuantileAbove(rtt, 0.5), stats.QuantileAbove(rtt, 0.95) - stats.QuantileAbove(rtt, 0.05)}
}

// queueThreshold is how long a sparse packet has to wait until a queue is said to stand.
func (i idleLink) queueThreshold() float64 { return math.Max(0.002, i.noise) }

// plateau is what a time of saturation has shown: the rate at its end, and what came before it.
type plateau struct {
	from, to    float64 // s, where the rate was taken
	own, other  flow    // that were carried
	probeFlow   flow    // of other, the probes
	otherSent   flow    // that this host sent beside it
	uncertainty float64 // half of the interval of the rate, as a share
	lost        float64
	windows     int     // in which this host has looked often enough
	stable      bool    // it has stood for long enough
	byDatagrams bool    // the peer has counted datagrams
	peak        float64 // bit/s, nine tenths were below it
	credit      float64 // bytes above the rate, before
	burst       float64 // of these, bytes in windows that were far above it
	bestShare   float64 // share of the rate that the best windows had
	minWait     float64 // s, that nine of ten probes waited
	medianWait  float64 // s, of the median probe
	depth       float64 // s, that 98 of 100 probes stayed below
	bulkWait    float64 // s, that the connections' own packets waited
	floodWait   float64 // s, that the median probe waited behind datagrams of its own flow
	packetGap   float64 // s, between two packets of a connection: so long an ACK waits for the second
}

func (p plateau) flow() flow { return p.own.plus(p.other) }

// queuesBulk reports whether the connections' own packets stand in a queue. A delayed ACK is none.
func (p plateau) queuesBulk(i idleLink) bool { return p.bulkWait > 2*i.queueThreshold()+p.packetGap }

// The rate is that of windows. One is above the plateau where it is a part above the median of the last four: a credit
// that ends halves the rate or takes off a tenth of it, and noise does less.
const (
	windowTime        = 0.25 // s
	plateauFactor     = 1.12
	minPlateauTime    = 1.2   // s
	maxDisagreement   = 0.004 // share by which slope and windows may differ
	minUncertainty    = 0.0002
	raggedUncertainty = 0.01 // half of an interval from which on a link may not have been full
)

// findPlateau finds the plateau in the saturation from a to b, by so many connections.
func findPlateau(all series, probes []Probe, i idleLink, connections int, a, b float64) plateau {
	p := plateau{to: b}
	sent := all
	all = all.passedQueue(probes)
	rates, from := windowRates(all, a, b, windowTime)
	if p.windows = len(rates); p.windows == 0 {
		return p
	}
	last := stats.QuantileAbove(rates[max(0, len(rates)-16):], 0.5)
	begin := a
	for k := len(rates) - 1; k >= 4; k-- {
		if rates[k] > plateauFactor*last && rates[k-4] > plateauFactor*last {
			begin = from[k] + windowTime
			break
		}
	}
	p.stable = b-begin >= minPlateauTime
	p.peak = stats.QuantileAbove(rates, 0.9)
	p.from = math.Max(begin+windowTime, b-(b-a)/2)
	part := all.between(p.from, b)
	p.own, p.other, p.lost = part.delivered(), part.other(), part.lossShare()
	p.otherSent = sent.between(p.from, b).other()
	p.refineRate(all, i)
	p.discountOthers(all, probes)
	rate := p.flow().bitRate(wire.EthernetHeader)
	for k, r := range rates {
		if from[k] < p.from {
			p.credit += math.Max(0, r-rate) * windowTime / 4 / 8
			if r > plateauFactor*rate {
				p.burst += (r - rate) * windowTime / 4 / 8
			}
		}
	}
	_, rtt := answers(probes, p.from, b-i.base)
	p.medianWait, p.minWait = stats.QuantileAbove(rtt, 0.5)-i.base, stats.QuantileAbove(rtt, 0.1)-i.base
	_, rtt = answers(probes, a, b-i.base)
	p.depth = stats.QuantileAbove(rtt, 0.98) - i.base
	var bulk []float64
	for _, s := range part {
		if s.RTT > 0 {
			bulk = append(bulk, s.RTT.Seconds())
		}
	}
	p.bulkWait = stats.QuantileAbove(bulk, 0.5) - i.base
	p.packetGap = float64(connections) / math.Max(1, p.own.packets)
	if p.idledAtTimes(i) { // it carries as much as in its best windows, at least
		p.uncertainty = math.Max(p.uncertainty, p.bestShare-1)
	}
	return p
}

// probeSize is about what a probe has of IP, in bytes.
const probeSize = 92

// idledAtTimes reports whether a link was full at times only: what it carried went up and down, and no queue stood in
// between.
func (p plateau) idledAtTimes(i idleLink) bool {
	return p.uncertainty > raggedUncertainty && p.minWait <= i.queueThreshold() && !p.byDatagrams
}

// discountOthers takes off what has left beside the test and was not carried. Of the probes it is known which were
// dropped, but for the last ones, which may still be under way. What others' TCP lost, it has sent again. Of the rest
// nobody knows: it may lose nothing, or twice as much as the test's own packets do. The share of the rate that this is
// adds to the interval.
func (p *plateau) discountOthers(all series, probes []Probe) {
	asked := flow{}
	if _, rtt := answers(probes, p.from, p.to); len(rtt) > 0 {
		end := p.to - stats.QuantileAbove(rtt, 0.98)
		sent, lost := 0.0, 0.0
		for _, x := range probes {
			if t := x.At.Seconds(); t >= p.from && t < end {
				sent++
				if x.RTT < 0 {
					lost++
				}
			}
		}
		p.discountProbes(lost / (end - p.from))
		asked.packets = (sent - lost) / (end - p.from)
		asked.bytes = asked.packets * probeSize
	}
	p.probeFlow = asked
	otherFlow := flow{math.Max(0, p.other.packets-asked.packets), math.Max(0, p.other.bytes-asked.bytes)}
	if otherFlow.packets == 0 {
		return
	}
	part := all.between(p.from, p.to)
	tcp := clamp(part.slope(func(s Sample) float64 { return s.OtherSegments })/otherFlow.packets, 0, 1)
	lost := 0.0
	if tcp > 0 {
		repeats := part.slope(func(s Sample) float64 { return s.OtherRetransmitted })
		lost = clamp(repeats/otherFlow.packets, 0, tcp)
	}
	lost += (1 - tcp) * p.lost
	p.uncertainty += (1 - tcp) * p.lost * otherFlow.bitRate(wire.EthernetHeader) / p.flow().bitRate(wire.EthernetHeader)
	p.other.packets -= lost * otherFlow.packets
	p.other.bytes -= lost * otherFlow.bytes
}

// discountQueued leaves of what others have sent what the queue has let go: as much of a growing one is still to come.
func (p *plateau) discountQueued(probes []Probe) {
	at, rtt := answers(probes, p.from, p.to)
	by := 1 + math.Max(-0.5, stats.Fit(at, rtt).Slope)
	p.other.packets /= by
	p.other.bytes /= by
}

// discountProbes takes off so many probes a second.
func (p *plateau) discountProbes(probes float64) {
	p.other.packets = math.Max(0, p.other.packets-probes)
	p.other.bytes = math.Max(0, p.other.bytes-probes*probeSize)
}

func windowRates(all series, a, b, length float64) (rates, from []float64) {
	ws, from := all.windows(a, b, length)
	for _, w := range ws {
		rates = append(rates, w.carried().bitRate(wire.EthernetHeader))
	}
	return rates, from
}

// refineRate compares the slope over all of the plateau with its windows. The slope is the better of the two where
// nothing happened in between; a BBR that looks for its RTT makes it wrong.
func (p *plateau) refineRate(all series, i idleLink) {
	rates, _ := windowRates(all, p.from, p.to, math.Max(0.3, 2*i.base))
	if len(rates) < 4 {
		p.uncertainty = 0.01
		return
	}
	m, whole := stats.QuantileAbove(rates, 0.5), all.between(p.from, p.to).carried().bitRate(wire.EthernetHeader)
	if whole > 0 && math.Abs(whole/m-1) > maxDisagreement {
		p.own.packets *= m / whole
		p.own.bytes *= m / whole
	}
	p.bestShare = stats.QuantileAbove(rates, 0.95) / m
	// Windows overlap by three quarters, so a quarter of them are independent.
	spread := (stats.QuantileAbove(rates, 0.84) - stats.QuantileAbove(rates, 0.16)) / 2 / m
	p.uncertainty = math.Max(minUncertainty, 2*spread/math.Sqrt(math.Max(1, float64(len(rates))/4)))
}

// belowRate is what was seen while this host sent less than the rate.
type belowRate struct {
	lost        float64 // share
	uncertainty float64 // half of its interval
	maxLoss     float64 // share that the path may lose
	lostLate    float64 // packets that were lost, when nothing from before was sent again any more
	sentLate    float64 // of so many
	medianWait  float64 // s, of the median probe
	base        float64 // s, median RTT
	packets     float64
}

// lookBelowRate looks at a time below the rate. What is sent again late is not of this time: the median of quarters
// forgets it.
func lookBelowRate(all series, probes []Probe, i idleLink, a, b float64) belowRate {
	var quarters []float64
	for k := range 4 {
		step := (b - a) / 4
		quarters = append(quarters, all.between(a+float64(k)*step, a+float64(k+1)*step).lossShare())
	}
	whole := all.between(a, b)
	mid := (stats.QuantileAbove(quarters, 0.25) + stats.QuantileAbove(quarters, 0.5)) / 2
	u := belowRate{lost: mid, packets: whole.growth(func(s Sample) float64 { return s.Segments })}
	if mid > 0.002 {
		u.lost = (mid + whole.lossShare()) / 2
	}
	n := math.Max(minTellingPackets, u.packets)
	u.uncertainty = 2 * math.Sqrt(u.lost*(1-u.lost)/n)
	if u.lost == 0 {
		u.uncertainty = 1 / n
	}
	late := all.between(a+(b-a)/4, b)
	u.sentLate = late.growth(func(s Sample) float64 { return s.Segments })
	u.lostLate = late.lossShare() * u.sentLate
	// Of three that are expected, none is seen in one time of twenty.
	u.maxLoss = math.Max(u.lost+u.uncertainty,
		(u.lostLate+2*math.Sqrt(u.lostLate)+3)/math.Max(minTellingPackets, u.sentLate))
	u.base = i.base
	if _, rtt := answers(probes, a, b-i.base); len(rtt) > 0 {
		u.base = stats.QuantileAbove(rtt, 0.5)
	}
	u.medianWait = u.base - i.base
	return u
}

// minTellingPackets is how many packets tell at least what a path loses. Of fewer, a verification could lose them all.
const minTellingPackets = 50

// allowedLoss is the share that may be lost of what is sent in a time, if it is the path that loses it.
func (u belowRate) allowedLoss(part series) float64 {
	n := math.Max(minTellingPackets, part.growth(func(s Sample) float64 { return s.Segments }))
	return u.maxLoss + 3*math.Sqrt(u.maxLoss/n)
}

// lossFalls reports whether much less is lost in the second half of a time than in the first: an AQM forgets slowly.
func lossFalls(all series, a, b float64) bool {
	first, second := all.between(a, (a+b)/2), all.between((a+b)/2, b)
	p, n := first.lossShare(), math.Max(1, first.growth(func(s Sample) float64 { return s.Segments }))
	return second.lossShare() < 0.7*p-3*math.Sqrt(p/n)
}

// lossClusters reports whether losses of a time come together, as those do of an application's bursts at a policer that
// still has much to send. A path loses at any time.
func lossClusters(all series, a, b float64) bool {
	const (
		parts    = 8
		unlikely = 24.3 // chi-square with 7 degrees of freedom, of one time in a thousand
	)
	share, sum := all.between(a, b).lossShare(), 0.0
	if share == 0 {
		return false
	}
	for k := range parts {
		step := (b - a) / parts
		part := all.between(a+float64(k)*step, a+float64(k+1)*step)
		n := math.Max(1, part.growth(func(s Sample) float64 { return s.Segments }))
		sum += n * (part.lossShare() - share) * (part.lossShare() - share) / share
	}
	return sum > unlikely
}

// kindOf returns how the rate is enforced.
func kindOf(p plateau, i idleLink, lost float64) Kind {
	stands, drops := p.medianWait > i.queueThreshold(), p.lost > lost+0.005
	switch {
	case p.queuesBulk(i) && p.medianWait < (p.bulkWait-p.packetGap)/3:
		// Its own packets wait, and a sparse flow's do not, or for one turn of the others.
		return FairQueue
	case stands:
		return FIFO
	case p.queuesBulk(i) && p.medianWait < p.bulkWait/4:
		return FairQueue
	case p.medianWait > math.Max(0.002, 1.5*i.noise):
		return FIFO
	case drops && p.floodWait > i.queueThreshold():
		// A probe waits behind its own flow alone.
		return FairQueue
	case drops:
		return Policer
	}
	return Unsaturated
}

// framing is what a provider counts beside each IP packet.
type framing struct {
	overhead, uncertainty float64 // bytes
	atm                   bool
	bestOverhead          float64 // bytes, with cells: the largest of those that fit best
	known                 bool
}

// atmSize is the size of so many bytes in ATM, as tc-cake counts it.
func atmSize(bytes float64) float64 { return wire.Cell * math.Ceil(bytes/wire.CellPayload-1e-9) }

// bitRate is bit/s of a plateau, as framing has it.
func (f framing) bitRate(p plateau) float64 {
	if !f.atm {
		return p.flow().bitRate(f.overhead)
	}
	sum := 0.0
	otherFlow := flow{p.other.packets - p.probeFlow.packets, p.other.bytes - p.probeFlow.bytes}
	all := []flow{p.own, p.probeFlow, otherFlow}
	if otherFlow.packets < 0 || otherFlow.bytes < 0 {
		all = []flow{p.own, p.other}
	}
	for _, x := range all {
		if x.packets > 0 {
			sum += 8 * x.packets * atmSize(x.bytes/x.packets+f.overhead)
		}
	}
	return sum
}

// fitFraming compares plateaus of different packet sizes, the largest first: with the right overhead all have one rate.
func fitFraming(ps ...plateau) framing {
	if len(ps) < 2 {
		return framing{overhead: wire.EthernetHeader, uncertainty: math.NaN()}
	}
	a, b := ps[0].flow(), ps[1].flow()
	more := b.packets - a.packets
	if more < 0.2*a.packets {
		return framing{overhead: wire.EthernetHeader, uncertainty: math.NaN()}
	}
	f := framing{overhead: (a.bytes - b.bytes) / more, known: true}
	f.uncertainty = a.bitRate(f.overhead) / 8 * (ps[0].uncertainty + ps[1].uncertainty) / more
	if len(ps) < 3 {
		return f
	}
	plain, unsure := f.misfit(ps), 0.0
	for _, p := range ps {
		unsure += p.uncertainty / 2
	}
	if low, high, likely, fit := fitATM(ps, unsure); fit < plain/4 && fit < 0.01 {
		f.known = plain > 2*unsure // else plain bytes may look so by chance
		if f.known {
			f = framing{overhead: math.Round((low + high) / 2), uncertainty: (high - low) / 2, atm: true,
				bestOverhead: likely, known: true}
		}
	}
	return f
}

// withoutImpossible leaves out of a framing what cannot be. Nobody counts less than the IP packet. An interval that
// holds a third of all that is possible tells nothing.
func (f framing) withoutImpossible() framing {
	if f.atm || !f.known {
		return f
	}
	const wide = maxOverhead / 6
	if f.uncertainty > wide || f.overhead+2*f.uncertainty+1 < 0 || f.overhead-2*f.uncertainty-1 > maxOverhead {
		f.known = false
	}
	f.overhead = math.Max(0, f.overhead)
	return f
}

// maxOverhead is the largest that ATM is tried with, in bytes.
const maxOverhead = 60

// fitATM finds the overheads that fit with cells as well as the best does, as far as the plateaus are known. Those of a
// class cost the same for all sizes that were tried.
func fitATM(ps []plateau, unsure float64) (low, high, likely, fit float64) {
	const alike = 0.004
	misfits := make([]float64, maxOverhead+1)
	for o := range misfits {
		misfits[o] = framing{overhead: float64(o), atm: true}.misfit(ps)
	}
	fit = slices.Min(misfits)
	low = -1
	for o, m := range misfits {
		if m <= fit+alike {
			likely = float64(o)
		}
		if m > fit+alike+unsure {
			continue
		}
		if high = float64(o); low < 0 {
			low = high
		}
	}
	return low, high, likely, fit
}

// misfit is by how much the plateaus differ, as a share.
func (f framing) misfit(ps []plateau) float64 {
	mean, worst := 0.0, 0.0
	for _, p := range ps {
		mean += f.bitRate(p) / float64(len(ps))
	}
	for _, p := range ps {
		worst = math.Max(worst, math.Abs(f.bitRate(p)/mean-1))
	}
	return worst
}
