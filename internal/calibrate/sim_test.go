// SPDX-License-Identifier: Apache-2.0

package calibrate

import (
	"container/heap"
	"context"
	"math"
	"math/rand/v2"
	"time"
	"weir/internal/wire"
)

// provider is a limiter behind which the peer is.
type provider struct {
	rate      float64 // bit/s
	overhead  float64 // bytes beside each IP packet
	atm       bool
	kind      Kind
	buffer    float64 // s of a FIFO
	burst     float64 // bytes that a policer lets through
	credit    float64 // s at twice the rate
	rtt       float64 // s
	loss      float64 // beyond it
	bursts    bool    // only TCP has that loss, where it does not fill the link
	jitter    float64 // s, either way
	own       float64 // bit/s of IP that this host sends beside the test, in packets of 1000 bytes
	ownUDP    bool    // these are no TCP's
	neighbour float64 // bit/s of IP that others send through it, in packets of 1000 bytes
	none      bool    // no probe is answered
	mute      float64 // s after which none is answered any more; 0: never
	look      float64 // s between two samples; 0: 0.01
	stalls    float64 // s after which the peer takes nothing any more; 0: never
	app       float64 // bit/s that the sender can do at most; 0: any
	udp       bool    // the peer counts datagrams
	policed   float64 // bit/s that datagrams have at most; 0: any
	counted   float64 // packets a second that it can count at most; 0: any
}

// sim is a link in a time of its own. Its sender is one for all connections, and like BBR: it uses the highest rate
// that was delivered in the last ten round trips, and keeps twice of what that rate has under way.
type sim struct {
	provider
	rand    *rand.Rand
	now     float64
	events  events
	order   int
	free    float64 // when the queue is empty
	tokens  float64 // bytes
	filled  float64 // when tokens was right
	load    Load
	flight  float64 // packets
	again   int     // packets to be sent again
	next    float64 // when the sender may send
	waiting bool    // a wake-up of the sender is under way
	counts  Sample
	samples []Sample
	probes  []Probe
	rates   []rate // delivered, of packets
	startup bool
	full    int
	best    float64
	srtt    float64
	begun   float64 // of the sender's present gain cycle
}

type rate struct{ at, packets float64 }

type event struct {
	at    float64
	order int
	do    func()
}

type events []event

func (e events) Len() int { return len(e) }
func (e events) Less(i, k int) bool {
	return e[i].at < e[k].at || e[i].at == e[k].at && e[i].order < e[k].order
}
func (e events) Swap(i, k int) { e[i], e[k] = e[k], e[i] }
func (e *events) Push(x any)   { *e = append(*e, x.(event)) }
func (e *events) Pop() any {
	last := (*e)[len(*e)-1]
	*e = (*e)[:len(*e)-1]
	return last
}

func simulate(p provider, seed uint64) *sim {
	s := &sim{provider: p, rand: rand.New(rand.NewPCG(seed, 1)), tokens: p.burst, srtt: p.rtt}
	if p.credit > 0 {
		s.tokens = p.rate / 8 * p.credit
	}
	if p.look == 0 {
		s.look = 0.01
	}
	s.every(s.look, s.sample)
	s.every(0.02, s.probe)
	if p.own > 0 {
		s.every(8000/p.own, func() {
			s.device(1000)
			if !p.ownUDP {
				s.counts.OtherSegments++
			}
			s.enqueue(1000, func(float64) {}, func() {
				if !p.ownUDP { // one of the next is that one again
					s.counts.OtherRetransmitted++
				}
			})
		})
	}
	if p.neighbour > 0 {
		s.every(8000/p.neighbour, func() { s.enqueue(1000, func(float64) {}, func() {}) })
	}
	return s
}

func (s *sim) at(t float64, do func()) {
	s.order++
	heap.Push(&s.events, event{t, s.order, do})
}

func (s *sim) every(step float64, do func()) {
	var again func()
	again = func() { do(); s.at(s.now+step, again) }
	s.at(step, again)
}

func (s *sim) sample() {
	s.counts.At = time.Duration(s.now * 1e9)
	s.counts.RTT = duration(s.srtt)
	s.samples = append(s.samples, s.counts)
}

func (s *sim) device(size float64) {
	s.counts.DevicePackets++
	s.counts.DeviceBytes += size + wire.EthernetHeader
}

func (s *sim) probe() {
	i := len(s.probes)
	s.probes = append(s.probes, Probe{At: time.Duration(s.now * 1e9), RTT: -1})
	sent := s.now
	s.device(92)
	s.enqueue(92, func(t float64) {
		if !s.none && (s.mute == 0 || sent < s.mute) {
			s.probes[i].RTT = duration(t - sent)
			s.probes[i].There, s.probes[i].Arrived = duration(s.now), s.counts.Delivered
		}
	}, func() {})
}

func (s *sim) cost(size float64) float64 {
	if s.atm {
		return atmSize(size + s.overhead)
	}
	return size + s.overhead
}

// enqueue passes a packet through the provider and the path; one of the two is called.
func (s *sim) enqueue(size float64, arrived func(at float64), dropped func()) {
	bytes := s.cost(size)
	left, ok := s.pass(bytes)
	if !ok {
		// The sender learns of it by what comes after.
		s.at(math.Max(s.free, s.now)+s.rtt, dropped)
		return
	}
	back := left + s.rtt
	if s.jitter > 0 {
		back += (2*s.rand.Float64() - 1) * s.jitter
	}
	if s.rand.Float64() < s.loss && !(s.bursts && (s.load.Datagrams || s.load.Rate == 0)) {
		s.at(back, dropped)
		return
	}
	s.at(back, func() { arrived(back) })
}

// pass is when a packet has left the provider.
func (s *sim) pass(bytes float64) (at float64, ok bool) {
	per := 8 / s.rate
	switch {
	case s.kind == Policer:
		s.tokens = math.Min(s.burst, s.tokens+(s.now-s.filled)/per)
		s.filled = s.now
		if s.tokens < bytes {
			return 0, false
		}
		s.tokens -= bytes
		return s.now, true
	case s.free-s.now > s.buffer:
		return 0, false
	}
	start := math.Max(s.now, s.free)
	if s.credit > 0 { // a token bucket that lets twice the rate through
		s.tokens = math.Min(s.rate/8*s.credit, s.tokens+(start-s.filled)/per)
		if s.tokens < bytes {
			start += (bytes - s.tokens) * per
			s.tokens = bytes
		}
		s.tokens -= bytes
		s.filled = start
		per /= 2
	}
	s.free = start + bytes*per
	return s.free, true
}

func (s *sim) size() float64 {
	if s.load.Segment > 0 {
		return float64(s.load.Segment)
	}
	return wire.EthernetMTU
}

func (s *sim) Send(_ context.Context, l Load) error {
	if l.Datagrams {
		s.load = l
		s.datagram(l)
		return nil
	}
	if l.Connections > s.load.Connections || l.Segment != s.load.Segment {
		s.startup, s.full, s.best, s.rates = true, 0, 0, nil
	}
	s.load = l
	if l.Rate == 0 {
		s.next = s.now
	}
	s.next = math.Min(s.next, s.now+1/s.pacing())
	s.send()
	return nil
}

func (s *sim) Datagrams() bool { return s.udp }

// datagram sends one, and the next, as long as the load is that.
func (s *sim) datagram(l Load) {
	if s.load != l {
		return
	}
	size := s.size()
	s.counts.Segments++
	s.counts.Headers += 28
	s.counts.Payload += size - 28
	s.device(size)
	lost := s.policed > 0 && s.rand.Float64() > s.policed/l.Rate ||
		s.counted > 0 && s.rand.Float64() > s.counted/(l.Rate/8/size)
	if !lost {
		s.enqueue(size, func(float64) { s.counts.Delivered++ }, func() {})
	}
	s.at(s.now+8*size/l.Rate, func() { s.datagram(l) })
}

// bandwidth is what was delivered at best in the last ten round trips, packets a second.
func (s *sim) bandwidth() float64 {
	most := 0.0
	for len(s.rates) > 1 && s.rates[0].at < s.now-10*math.Max(s.rtt, 0.01) {
		s.rates = s.rates[1:]
	}
	for _, r := range s.rates {
		most = math.Max(most, r.packets)
	}
	return math.Max(most, 10*float64(s.load.Connections)/math.Max(s.rtt, 0.01))
}

func (s *sim) pacing() float64 {
	gain := []float64{1.25, 0.75, 1, 1, 1, 1, 1, 1}[int(s.now/math.Max(s.rtt, 0.01))%8]
	if gain < 1 && s.flight <= s.bandwidth()*s.rtt {
		gain = 1 // the queue that it has made is gone
	}
	if s.startup {
		gain = 2.9
	}
	r := gain * s.bandwidth()
	if s.load.Rate > 0 {
		r = math.Min(r, s.load.Rate/8/s.size())
	}
	if s.app > 0 {
		r = math.Min(r, s.app/8/s.size())
	}
	return r
}

func (s *sim) send() {
	for s.load.Connections > 0 && !s.load.Datagrams {
		most := math.Max(4*float64(s.load.Connections), 2*s.bandwidth()*s.rtt)
		if s.flight >= most {
			return // the next answer goes on
		}
		if s.next > s.now {
			if !s.waiting {
				s.waiting = true
				s.at(s.next, func() { s.waiting = false; s.send() })
			}
			return
		}
		s.next = math.Max(s.next, s.now-0.001) + 1/s.pacing()
		s.transmit()
	}
}

func (s *sim) transmit() {
	size := s.size()
	s.flight++
	s.counts.Segments++
	s.counts.Headers += 52
	s.counts.Payload += size - 52
	s.device(size)
	if s.again > 0 {
		s.again--
		s.counts.Retransmitted++
	}
	sent, delivered := s.now, s.counts.Delivered
	s.enqueue(size, func(at float64) {
		if s.stalls > 0 && s.now > s.stalls {
			return
		}
		s.flight--
		s.counts.Delivered++
		s.srtt += (at - sent - s.srtt) / 8
		s.learn((s.counts.Delivered - delivered) / (at - sent))
		s.send()
	}, func() { s.flight--; s.again++; s.send() })
}

func (s *sim) learn(r float64) {
	if n := len(s.rates); n > 0 && s.rates[n-1].at > s.now-s.rtt/4 {
		s.rates[n-1].packets = math.Max(r, s.rates[n-1].packets)
	} else {
		s.rates = append(s.rates, rate{s.now, r})
	}
	if s.startup {
		if s.full++; r > 1.02*s.best {
			s.best, s.full = r, 0
		}
		s.startup = float64(s.full) < 3*s.bandwidth()*s.rtt+30
	}
}

func (s *sim) Watch(ctx context.Context, d time.Duration) error {
	end := s.now + d.Seconds()
	for len(s.events) > 0 && s.events[0].at <= end {
		e := heap.Pop(&s.events).(event)
		s.now = e.at
		e.do()
	}
	s.now = end
	return ctx.Err()
}

func (s *sim) Seen() ([]Sample, []Probe) { return s.samples, s.probes }
