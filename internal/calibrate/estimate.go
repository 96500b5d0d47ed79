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

func quiet(probes []Probe, a, b float64) idleLink {
	_, rtt := answers(probes, a, b)
	return idleLink{stats.QuantileAbove(rtt, 0.5), stats.QuantileAbove(rtt, 0.95) - stats.QuantileAbove(rtt, 0.05)}
}

// stands is how long a sparse packet has to wait until a queue is said to stand.
func (i idleLink) stands() float64 { return math.Max(0.002, i.noise) }

// plateau is what a time of saturation has shown: the rate at its end, and what came before it.
type plateau struct {
	from, to   float64 // s, where the rate was taken
	own, other flow    // that were carried
	asked      flow    // of other, the probes
	beside     flow    // that this host sent beside it
	off        float64 // half of the interval of the rate, as a share
	lost       float64
	windows    int     // in which this host has looked often enough
	stable     bool    // it has stood for long enough
	counted    bool    // the peer has counted datagrams
	peak       float64 // bit/s, nine tenths were below it
	credit     float64 // bytes above the rate, before
	burst      float64 // of these, bytes in windows that were far above it
	top        float64 // share of the rate that the best windows had
	least      float64 // s, that nine of ten probes waited
	waits      float64 // s, of the median probe
	depth      float64 // s, that 98 of 100 probes stayed below
	bulk       float64 // s, that the connections' own packets waited
	flooded    float64 // s, that the median probe waited behind datagrams of its own flow
	gap        float64 // s, between two packets of a connection: so long an ACK waits for the second
}

func (p plateau) flow() flow { return p.own.plus(p.other) }

// holds reports whether the connections' own packets stand in a queue. A delayed ACK is none.
func (p plateau) holds(i idleLink) bool { return p.bulk > 2*i.stands()+p.gap }

// The rate is that of windows. One is above the plateau where it is a part above the median of the last four: a credit
// that ends halves the rate or takes off a tenth of it, and noise does less.
const (
	window   = 0.25 // s
	above    = 1.12
	minStand = 1.2   // s
	disagree = 0.004 // share by which slope and windows may differ
	minOff   = 0.0002
	ragged   = 0.01 // half of an interval from which on a link may not have been full
)

// level finds the plateau in the saturation from a to b, by so many connections.
func level(all series, probes []Probe, i idleLink, connections int, a, b float64) plateau {
	p := plateau{to: b}
	sent := all
	all = all.passed(probes)
	rates, from := ratesOf(all, a, b, window)
	if p.windows = len(rates); p.windows == 0 {
		return p
	}
	last := stats.QuantileAbove(rates[max(0, len(rates)-16):], 0.5)
	begin := a
	for k := len(rates) - 1; k >= 4; k-- {
		if rates[k] > above*last && rates[k-4] > above*last {
			begin = from[k] + window
			break
		}
	}
	p.stable = b-begin >= minStand
	p.peak = stats.QuantileAbove(rates, 0.9)
	p.from = math.Max(begin+window, b-(b-a)/2)
	part := all.between(p.from, b)
	p.own, p.other, p.lost = part.delivered(), part.other(), part.lost()
	p.beside = sent.between(p.from, b).other()
	p.settle(all, i)
	p.forget(all, probes)
	rate := p.flow().counted(wire.EthernetHeader)
	for k, r := range rates {
		if from[k] < p.from {
			p.credit += math.Max(0, r-rate) * window / 4 / 8
			if r > above*rate {
				p.burst += (r - rate) * window / 4 / 8
			}
		}
	}
	_, rtt := answers(probes, p.from, b-i.base)
	p.waits, p.least = stats.QuantileAbove(rtt, 0.5)-i.base, stats.QuantileAbove(rtt, 0.1)-i.base
	_, rtt = answers(probes, a, b-i.base)
	p.depth = stats.QuantileAbove(rtt, 0.98) - i.base
	var bulk []float64
	for _, s := range part {
		if s.RTT > 0 {
			bulk = append(bulk, s.RTT.Seconds())
		}
	}
	p.bulk = stats.QuantileAbove(bulk, 0.5) - i.base
	p.gap = float64(connections) / math.Max(1, p.own.packets)
	if p.idles(i) { // it carries as much as in its best windows, at least
		p.off = math.Max(p.off, p.top-1)
	}
	return p
}

// probeSize is about what a probe has of IP, in bytes.
const probeSize = 92

// idles reports whether a link was full at times only: what it carried went up and down, and no queue stood in between.
func (p plateau) idles(i idleLink) bool { return p.off > ragged && p.least <= i.stands() && !p.counted }

// forget takes off what has left beside the test and was not carried. Of the probes it is known which were dropped, but
// for the last ones, which may still be under way. What others' TCP lost, it has sent again. Of the rest nobody knows:
// it may lose nothing, or twice as much as the test's own packets do. The share of the rate that this is adds to the
// interval.
func (p *plateau) forget(all series, probes []Probe) {
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
		p.drop(lost / (end - p.from))
		asked.packets = (sent - lost) / (end - p.from)
		asked.bytes = asked.packets * probeSize
	}
	p.asked = asked
	rest := flow{math.Max(0, p.other.packets-asked.packets), math.Max(0, p.other.bytes-asked.bytes)}
	if rest.packets == 0 {
		return
	}
	part := all.between(p.from, p.to)
	tcp := clamp(part.slope(func(s Sample) float64 { return s.OtherSegments })/rest.packets, 0, 1)
	lost := 0.0
	if tcp > 0 {
		again := part.slope(func(s Sample) float64 { return s.OtherAgain })
		lost = clamp(again/rest.packets, 0, tcp)
	}
	lost += (1 - tcp) * p.lost
	p.off += (1 - tcp) * p.lost * rest.counted(wire.EthernetHeader) / p.flow().counted(wire.EthernetHeader)
	p.other.packets -= lost * rest.packets
	p.other.bytes -= lost * rest.bytes
}

// grow leaves of what others have sent what the queue has let go: as much of a growing one is still to come.
func (p *plateau) grow(probes []Probe) {
	at, rtt := answers(probes, p.from, p.to)
	by := 1 + math.Max(-0.5, stats.Fit(at, rtt).Slope)
	p.other.packets /= by
	p.other.bytes /= by
}

// drop takes off so many probes a second.
func (p *plateau) drop(probes float64) {
	p.other.packets = math.Max(0, p.other.packets-probes)
	p.other.bytes = math.Max(0, p.other.bytes-probes*probeSize)
}

func ratesOf(all series, a, b, length float64) (rates, from []float64) {
	ws, from := all.windows(a, b, length)
	for _, w := range ws {
		rates = append(rates, w.carried().counted(wire.EthernetHeader))
	}
	return rates, from
}

// settle compares the slope over all of the plateau with its windows. The slope is the better of the two where nothing
// happened in between; a BBR that looks for its RTT makes it wrong.
func (p *plateau) settle(all series, i idleLink) {
	rates, _ := ratesOf(all, p.from, p.to, math.Max(0.3, 2*i.base))
	if len(rates) < 4 {
		p.off = 0.01
		return
	}
	m, whole := stats.QuantileAbove(rates, 0.5), all.between(p.from, p.to).carried().counted(wire.EthernetHeader)
	if whole > 0 && math.Abs(whole/m-1) > disagree {
		p.own.packets *= m / whole
		p.own.bytes *= m / whole
	}
	p.top = stats.QuantileAbove(rates, 0.95) / m
	// Windows overlap by three quarters, so a quarter of them are independent.
	spread := (stats.QuantileAbove(rates, 0.84) - stats.QuantileAbove(rates, 0.16)) / 2 / m
	p.off = math.Max(minOff, 2*spread/math.Sqrt(math.Max(1, float64(len(rates))/4)))
}

// below is what was seen while this host sent less than the rate.
type below struct {
	lost    float64 // share
	off     float64 // half of its interval
	most    float64 // share that the path may lose
	again   float64 // packets that were lost, when nothing from before was sent again any more
	sent    float64 // of so many
	waits   float64 // s, of the median probe
	base    float64 // s, median RTT
	packets float64
}

// under looks at a time below the rate. What is sent again late is not of this time: the median of quarters forgets it.
func under(all series, probes []Probe, i idleLink, a, b float64) below {
	var quarters []float64
	for k := range 4 {
		step := (b - a) / 4
		quarters = append(quarters, all.between(a+float64(k)*step, a+float64(k+1)*step).lost())
	}
	whole := all.between(a, b)
	mid := (stats.QuantileAbove(quarters, 0.25) + stats.QuantileAbove(quarters, 0.5)) / 2
	u := below{lost: mid, packets: whole.grown(func(s Sample) float64 { return s.Segments })}
	if mid > 0.002 {
		u.lost = (mid + whole.lost()) / 2
	}
	n := math.Max(tells, u.packets)
	u.off = 2 * math.Sqrt(u.lost*(1-u.lost)/n)
	if u.lost == 0 {
		u.off = 1 / n
	}
	late := all.between(a+(b-a)/4, b)
	u.sent = late.grown(func(s Sample) float64 { return s.Segments })
	u.again = late.lost() * u.sent
	// Of three that are expected, none is seen in one time of twenty.
	u.most = math.Max(u.lost+u.off, (u.again+2*math.Sqrt(u.again)+3)/math.Max(tells, u.sent))
	u.base = i.base
	if _, rtt := answers(probes, a, b-i.base); len(rtt) > 0 {
		u.base = stats.QuantileAbove(rtt, 0.5)
	}
	u.waits = u.base - i.base
	return u
}

// tells is how many packets tell at least what a path loses. Of fewer, a verification could lose them all.
const tells = 50

// allowed is the share that may be lost of what is sent in a time, if it is the path that loses it.
func (u below) allowed(part series) float64 {
	n := math.Max(tells, part.grown(func(s Sample) float64 { return s.Segments }))
	return u.most + 3*math.Sqrt(u.most/n)
}

// falls reports whether much less is lost in the second half of a time than in the first: an AQM forgets slowly.
func falls(all series, a, b float64) bool {
	first, second := all.between(a, (a+b)/2), all.between((a+b)/2, b)
	p, n := first.lost(), math.Max(1, first.grown(func(s Sample) float64 { return s.Segments }))
	return second.lost() < 0.7*p-3*math.Sqrt(p/n)
}

// clusters reports whether losses of a time come together, as those do of an application's bursts at a policer that
// still has much to send. A path loses at any time.
func clusters(all series, a, b float64) bool {
	const (
		parts    = 8
		unlikely = 24.3 // chi-square with 7 degrees of freedom, of one time in a thousand
	)
	share, sum := all.between(a, b).lost(), 0.0
	if share == 0 {
		return false
	}
	for k := range parts {
		step := (b - a) / parts
		part := all.between(a+float64(k)*step, a+float64(k+1)*step)
		n := math.Max(1, part.grown(func(s Sample) float64 { return s.Segments }))
		sum += n * (part.lost() - share) * (part.lost() - share) / share
	}
	return sum > unlikely
}

// kindOf returns how the rate is enforced.
func kindOf(p plateau, i idleLink, lost float64) Kind {
	stands, drops := p.waits > i.stands(), p.lost > lost+0.005
	switch {
	case p.holds(i) && p.waits < (p.bulk-p.gap)/3:
		// Its own packets wait, and a sparse flow's do not, or for one turn of the others.
		return FairQueue
	case stands:
		return FIFO
	case p.holds(i) && p.waits < p.bulk/4:
		return FairQueue
	case p.waits > math.Max(0.002, 1.5*i.noise):
		return FIFO
	case drops && p.flooded > i.stands():
		// A probe waits behind its own flow alone.
		return FairQueue
	case drops:
		return Policer
	}
	return Unsaturated
}

// framing is what a provider counts beside each IP packet.
type framing struct {
	overhead, off float64 // bytes
	atm           bool
	likely        float64 // bytes, with cells: the largest of those that fit best
	known         bool
}

// cells is the size of so many bytes in ATM, as tc-cake counts it.
func cells(bytes float64) float64 { return wire.Cell * math.Ceil(bytes/wire.CellPayload-1e-9) }

// counted is bit/s of a plateau, as framing has it.
func (f framing) counted(p plateau) float64 {
	if !f.atm {
		return p.flow().counted(f.overhead)
	}
	sum := 0.0
	rest := flow{p.other.packets - p.asked.packets, p.other.bytes - p.asked.bytes}
	all := []flow{p.own, p.asked, rest}
	if rest.packets < 0 || rest.bytes < 0 {
		all = []flow{p.own, p.other}
	}
	for _, x := range all {
		if x.packets > 0 {
			sum += 8 * x.packets * cells(x.bytes/x.packets+f.overhead)
		}
	}
	return sum
}

// frame compares plateaus of different packet sizes, the largest first: with the right overhead all have one rate.
func frame(ps ...plateau) framing {
	if len(ps) < 2 {
		return framing{overhead: wire.EthernetHeader, off: math.NaN()}
	}
	a, b := ps[0].flow(), ps[1].flow()
	more := b.packets - a.packets
	if more < 0.2*a.packets {
		return framing{overhead: wire.EthernetHeader, off: math.NaN()}
	}
	f := framing{overhead: (a.bytes - b.bytes) / more, known: true}
	f.off = a.counted(f.overhead) / 8 * (ps[0].off + ps[1].off) / more
	if len(ps) < 3 {
		return f
	}
	plain, unsure := f.misfit(ps), 0.0
	for _, p := range ps {
		unsure += p.off / 2
	}
	if low, high, likely, fit := atm(ps, unsure); fit < plain/4 && fit < 0.01 {
		f.known = plain > 2*unsure // else plain bytes may look so by chance
		if f.known {
			f = framing{overhead: math.Round((low + high) / 2), off: (high - low) / 2, atm: true, likely: likely,
				known: true}
		}
	}
	return f
}

// plausible is a framing without what cannot be. Nobody counts less than the IP packet. An interval that holds a third
// of all that is possible tells nothing.
func (f framing) plausible() framing {
	if f.atm || !f.known {
		return f
	}
	const wide = maxOverhead / 6
	if f.off > wide || f.overhead+2*f.off+1 < 0 || f.overhead-2*f.off-1 > maxOverhead {
		f.known = false
	}
	f.overhead = math.Max(0, f.overhead)
	return f
}

// maxOverhead is the largest that ATM is tried with, in bytes.
const maxOverhead = 60

// atm finds the overheads that fit with cells as well as the best does, as far as the plateaus are known. Those of a
// class cost the same for all sizes that were tried.
func atm(ps []plateau, unsure float64) (low, high, likely, fit float64) {
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
		mean += f.counted(p) / float64(len(ps))
	}
	for _, p := range ps {
		worst = math.Max(worst, math.Abs(f.counted(p)/mean-1))
	}
	return worst
}
