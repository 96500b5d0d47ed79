// SPDX-License-Identifier: Apache-2.0

package calibrate

import (
	"math"
	"slices"
	"sort"
	"time"
	"weir/internal/stats"
	"weir/internal/wire"
)

// series is samples in the order of time.
type series []Sample

// between are the samples from a to b, in seconds.
func (s series) between(a, b float64) series {
	at := func(t float64) int {
		return sort.Search(len(s), func(i int) bool { return s[i].At >= time.Duration(t*1e9) })
	}
	i, k := at(a), at(b)
	if k < i {
		return nil
	}
	return s[i:k]
}

// slope is the least-squares slope of f, a second.
func (s series) slope(f func(Sample) float64) float64 {
	x, y := make([]float64, len(s)), make([]float64, len(s))
	for i, p := range s {
		x[i], y[i] = p.At.Seconds(), f(p)
	}
	return stats.Fit(x, y).Slope
}

// growth is how much f has grown.
func (s series) growth(f func(Sample) float64) float64 {
	if len(s) < 2 {
		return 0
	}
	return f(s[len(s)-1]) - f(s[0])
}

// meanSize is the mean IP packet of the calibration's own, in bytes.
func (s series) meanSize() float64 {
	n := s.growth(func(p Sample) float64 { return p.Segments })
	if n <= 0 {
		return wire.EthernetMTU
	}
	return s.growth(func(p Sample) float64 { return p.Payload + p.Headers }) / n
}

// flow is what went by a second: packets, and bytes of IP.
type flow struct{ packets, bytes float64 }

// bitRate is a flow as a provider counts it that counts so many bytes beside each packet, in bit/s.
func (f flow) bitRate(overhead float64) float64 { return 8 * (f.bytes + overhead*f.packets) }

func (f flow) plus(g flow) flow { return flow{f.packets + g.packets, f.bytes + g.bytes} }

// delivered is what of ours has arrived.
func (s series) delivered() flow {
	p := s.slope(func(p Sample) float64 { return p.Delivered })
	return flow{p, p * s.meanSize()}
}

// other is what this host has sent beside it: its own traffic, the probes, acknowledgements.
func (s series) other() flow {
	if s.growth(func(p Sample) float64 { return p.DevicePackets }) == 0 {
		return flow{}
	}
	packets := s.slope(func(p Sample) float64 { return p.others().packets })
	bytes := s.slope(func(p Sample) float64 { return p.others().bytes })
	return flow{math.Max(0, packets), math.Max(0, bytes)}
}

// passedQueue are samples that have of others what had left when a packet did that is acknowledged now. The rest is
// still in the queue, and what of the test's own is there does not count either. Probes tell how long that takes.
func (s series) passedQueue(probes []Probe) series {
	var back, out []time.Duration // when answers came, and when what they answer had left
	for _, p := range probes {
		if n := len(back); p.RTT >= 0 && (n == 0 || p.At+p.RTT > back[n-1]) {
			back, out = append(back, p.At+p.RTT), append(out, p.At)
		}
	}
	if len(back) < 2 {
		return s
	}
	point := func(k int) (came, left float64) { return back[k].Seconds(), out[k].Seconds() }
	all := slices.Clone(s)
	for i, now := range s {
		left, known := stats.Between(len(back), point, now.At.Seconds())
		if !known { // before the first answer, or after the last one
			k := 0
			if now.At > back[0] {
				k = len(back) - 1
			}
			left = (now.At - (back[k] - out[k])).Seconds()
		}
		others := func(f func(flow) float64) (float64, bool) {
			return stats.Between(len(s), func(j int) (at, sent float64) {
				return s[j].At.Seconds(), f(s[j].others())
			}, left)
		}
		packets, seen := others(func(f flow) float64 { return f.packets })
		bytes, _ := others(func(f flow) float64 { return f.bytes })
		if seen && now.DevicePackets > 0 {
			all[i].DevicePackets = now.Segments + packets
			all[i].DeviceBytes = now.Payload + now.Headers + bytes + wire.EthernetHeader*all[i].DevicePackets
		}
	}
	return all
}

// carried is all of this host's that the link has carried. What other TCP sends again has been lost before.
func (s series) carried() flow {
	other := s.other()
	repeats := s.slope(func(p Sample) float64 { return p.OtherRetransmitted })
	if repeats > 0 && other.packets > 0 {
		kept := 1 - math.Min(1, repeats/other.packets)
		other.packets *= kept
		other.bytes *= kept
	}
	return s.delivered().plus(other)
}

// lossShare is the share of our packets that got lost beyond this host.
func (s series) lossShare() float64 {
	n := s.growth(func(p Sample) float64 { return p.Segments })
	repeats := s.growth(func(p Sample) float64 { return p.Retransmitted })
	own := math.Max(0, s.growth(func(p Sample) float64 { return p.DeviceDrops }))
	if n <= 0 {
		return 0
	}
	return clamp((repeats-own)/n, 0, 1)
}

// windows cuts a time into windows of some length, a quarter of it apart, that have enough samples.
func (s series) windows(a, b, length float64) (all []series, from []float64) {
	const least = 5
	for x := a; x+length <= b+1e-9; x += length / 4 {
		if w := s.between(x, x+length); len(w) > least {
			all, from = append(all, w), append(from, x)
		}
	}
	return all, from
}

// answers are the RTTs of probes sent from a to b, in seconds, and when.
func answers(probes []Probe, a, b float64) (at, rtt []float64) {
	for _, p := range probes {
		if t := p.At.Seconds(); t >= a && t < b && p.RTT >= 0 {
			at, rtt = append(at, t), append(rtt, p.RTT.Seconds())
		}
	}
	return at, rtt
}

// slopeError is the standard error of a slope, as a share of it; 1 of too few points, or of one that does not rise.
func slopeError(x, y []float64) float64 {
	line := stats.Fit(x, y)
	if len(x) < 3 || line.Slope <= 0 {
		return 1
	}
	return line.SlopeErr / line.Slope
}
