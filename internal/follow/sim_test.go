// SPDX-License-Identifier: Apache-2.0

package follow

import (
	"math"
	"math/rand/v2"
	"net/netip"
	"slices"
	"time"

	"weir/internal/units"
	"weir/internal/wire"
)

// world is a server's shaper, a provider's queue behind it, and TCP connections that cross both, in steps of a
// millisecond. A rate is in bit/s, a size in bytes, a time in seconds.
type world struct {
	rate      func(t float64) float64 // of the provider
	buffer    float64                 // seconds that packets can wait there
	bases     []float64               // RTTs without a queue, of each connection
	jitter    float64                 // of each packet on the way back, to both sides
	longer    func(t float64) float64 // seconds that the path takes more, beyond the provider
	neighbour func(t float64) float64 // what another host sends into the provider's queue
	offered   func(t float64) float64 // all that applications have to send; nil: as much as goes
	access    []float64               // bit/s, of each connection's own line beyond the provider; 0: not limited
	accessed  float64                 // seconds that packets can wait there
	loss      float64                 // of packets, beyond the provider
	since     float64                 // when that begins
	until     float64                 // when that ends; 0: never
	every     float64                 // seconds after which it begins again; 0: never
	stubborn  bool                    // TCP does not go by loss, as BBR
	policed   float64                 // seconds of credit of a provider that drops instead of queueing; 0: it queues
	begin     []float64               // when each connection has something to send; nil: at once
	dual      bool                    // every other connection goes to an address of IPv6
	clients   int                     // at so many addresses the connections are; 0: one each
	forwarded bool                    // no TCP Small Queues, and RTTs begin where packets have left the shaper
	own       int                     // of these, so many connections are this host's own for all that
	unknown   bool                    // what others have to send that this host forwards
	sends     float64                 // packets that a client sends with each acknowledgement
	look      float64                 // seconds between looks
	set       func(Look) float64      // the controller

	rng   *rand.Rand
	now   float64
	stood float64 // seconds that a packet that comes now waits in the provider's queue
}

type chunk struct {
	flow  int     // below 0: the neighbour's
	bytes float64 // left to send
	born  float64 // when TCP sent it
	own   float64 // that it waited in the shaper
	rtt   float64 // that its acknowledgement tells TCP
}

type flow struct {
	base, window, flying, srtt, least float64
	queue                             []chunk // in the shaper
	queued                            float64
	above, marked, backed             float64 // when the shaper's queue was seen to stand, and it was told
	count, pace, credit               float64 // packets; packets a second; what the application has given
	free                              float64 // when its own line is
	delivered, resent                 float64 // packets, since the look before
	unacked                           float64 // packets that no acknowledgement has told of yet
	acks                              uint32
	behind                            struct{ least, srtt, sum float64 } // as where they have left the shaper
	moved                             bool
	bursts                            bool // it has sent all that its window allows at once
}

// seen is what came of it.
type seen struct {
	at, added, sent, set, got []float64 // got: bytes that were acknowledged
	drops                     int
}

const (
	mss    = 1448.
	framed = float64(wire.Frame) / mss
	tick   = 1e-3
)

func (w *world) run(length float64) (s seen) {
	if w.rng == nil {
		w.rng = rand.New(rand.NewPCG(1, 2))
	}
	flows := make([]*flow, len(w.bases))
	for i, b := range w.bases {
		flows[i] = &flow{base: b, window: 10 * mss, least: 1e9}
		flows[i].behind.least = 1e9
	}
	var (
		there   []chunk             // the provider's queue
		waiting float64             // bytes in it
		acks    = map[int][]chunk{} // by the tick in which they come
		total   float64
		peak    float64
		left    float64 // of the shaper's and the provider's tick, not used
		shaped  = 0.
		credit  = 0.
		got     = 0.
	)
	lose := func(n, flow int, bytes float64) { // which is noticed a round trip later
		at := n + 1 + int(math.Max(flows[flow].srtt, flows[flow].base)/tick)
		acks[at] = append(acks[at], chunk{flow: flow, bytes: bytes})
	}
	c := w.set(Look{})
	for n := 0; float64(n)*tick < length; n++ {
		w.now = float64(n) * tick
		t, r := w.now, w.rate(w.now)
		for _, a := range acks[n] {
			if a.rtt == 0 {
				flows[a.flow].lost(t, a.bytes, w.stubborn)
			} else {
				flows[a.flow].acked(t, a)
				got += a.bytes
			}
		}
		delete(acks, n)
		for i, f := range flows {
			f.send(i, t, w)
			if n%1000 == 999 {
				f.pace, f.count = f.count, 0
			}
		}
		// The shaper serves the connections in turn.
		shaped = math.Min(shaped, 0) + c/8*tick
		for shaped > 0 {
			busy := 0
			for _, f := range flows {
				if f.queued > 0 {
					busy++
				}
			}
			if busy == 0 {
				break
			}
			share := shaped / float64(busy)
			for i, f := range flows {
				if f.queued <= 0 {
					continue
				}
				f.serve(t, math.Min(share, f.queued), func(k chunk) {
					shaped -= k.bytes
					total += k.bytes
					weight := k.bytes / 1514
					if k.own > peak {
						weight *= 64 // CAKE's peak rises by a quarter, and falls by 1/256 a packet
					}
					peak += (k.own - peak) * (1 - math.Exp(-weight/256))
					if waiting+k.bytes > w.buffer*r/8 {
						s.drops++
						lose(n, i, k.bytes)
						return
					}
					there, waiting = append(there, k), waiting+k.bytes
				})
			}
			if shaped < 1 {
				break
			}
		}
		if w.neighbour != nil {
			if b := w.neighbour(t) / 8 * tick; b > 0 && waiting+b <= w.buffer*r/8 {
				there, waiting = append(there, chunk{flow: -1, bytes: b}), waiting+b
			}
		}
		left = r / 8 * tick
		if w.policed > 0 {
			credit = math.Min(credit+left, r/8*w.policed)
			left = 1e12
		}
		for len(there) > 0 && left > 0 {
			k := &there[0]
			b := math.Min(left, k.bytes)
			left, waiting, k.bytes = left-b, waiting-b, k.bytes-b
			if w.policed > 0 {
				if credit < b {
					there = there[1:]
					s.drops++
					lose(n, k.flow, b)
					continue
				}
				credit -= b
			}
			if k.flow >= 0 {
				j := w.jitter * (2*w.rng.Float64() - 1)
				if w.longer != nil {
					j += w.longer(t)
				}
				at := n + 1 + max(0, int((flows[k.flow].base+w.jitter+j)/tick+0.5)) - int(w.jitter/tick)
				gone := t + tick*(1-math.Min(1, left/(r/8*tick)))
				f := flows[k.flow]
				if w.loses(t) && w.rng.Float64() < w.loss*b/1514 {
					lose(n, k.flow, b)
					if k.bytes <= 0 {
						there = there[1:]
					}
					continue
				}
				if len(w.access) > 0 && w.access[k.flow] > 0 {
					if f.free-gone > w.accessed {
						lose(n, k.flow, b)
						if k.bytes <= 0 {
							there = there[1:]
						}
						continue
					}
					f.free = math.Max(f.free, gone) + 8*b/w.access[k.flow]
					at += int((f.free - gone) / tick)
					gone = f.free
				}
				acks[max(at, n+1)] = append(acks[max(at, n+1)],
					chunk{flow: k.flow, bytes: b, own: k.own, rtt: gone - k.born + flows[k.flow].base + w.jitter + j})
			}
			if k.bytes <= 0 {
				there = there[1:]
			}
		}
		s.at, s.added, s.sent, s.set = append(s.at, t), append(s.added, waiting*8/r), append(s.sent, total), append(s.set, c)
		s.got = append(s.got, got)
		w.stood = waiting * 8 / r
		if n%int(w.look/tick+0.5) == 0 {
			l := Look{At: time.Duration(t * 1e9), Sent: total, Own: time.Duration(peak * 1e9)}
			for i, f := range flows {
				l.Backlog += f.queued
				if f.moved && f.srtt > 0 {
					f.moved = false
					c := Connection{ID: uint64(i + 1),
						RTT: time.Duration(f.srtt * 1e9), Acks: uint32((1 + w.sends) * float64(f.acks)),
						Base: time.Duration(f.least * 1e9),
						Rate: f.pace, To: w.to(i), Delivered: f.delivered, Size: mss * framed, Lost: f.resent,
						Forwarded: w.unknown, Waits: !w.unknown && (w.offered == nil || f.credit >= mss)}
					if w.passes(i) {
						c.Past, c.Samples = true, f.acks
						c.RTT, c.Base = time.Duration(f.behind.srtt*1e9), time.Duration(f.behind.least*1e9)
						c.Sum = time.Duration(f.behind.sum * 1e9)
					}
					l.Connections = append(l.Connections, c)
					f.delivered, f.resent = 0, 0
				}
			}
			if l.Backlog <= 0 {
				l.Own, peak = 0, peak*0.9
			}
			c = w.set(l)
		}
	}
	return s
}

// passes reports whether a connection is another host's.
func (w *world) passes(i int) bool { return w.forwarded && i >= w.own }

// loses reports whether packets are lost now.
func (w *world) loses(t float64) bool {
	into := t - w.since
	if w.every > 0 && into > 0 {
		into = math.Mod(into, w.every)
	}
	return into >= 0 && (w.until == 0 || into < w.until-w.since)
}

// to is where a connection goes.
func (w *world) to(i int) netip.Addr {
	if w.clients > 0 {
		i %= w.clients
	}
	if w.dual && i%2 == 1 {
		return netip.AddrFrom16([16]byte{0x20, 1, 0x0d, 0xb8, 15: byte(i + 1)})
	}
	return netip.AddrFrom4([4]byte{192, 0, 2, byte(i + 1)})
}

// send gives the shaper what the window, TCP Small Queues and the application let go.
func (f *flow) send(i int, t float64, w *world) {
	if w.begin != nil && t < w.begin[i] {
		return
	}
	room := f.window - f.flying
	if !w.passes(i) { // about a millisecond at the pacing rate, and two packets at least
		rtt := math.Max(f.srtt, f.base)
		room = math.Min(room, math.Max(2*mss, 1.2*f.window/rtt*tick)-f.queued/framed)
	}
	if w.offered != nil {
		f.credit = math.Min(f.credit+w.offered(t)/8*tick/float64(len(w.bases)), 64*mss)
		room = math.Min(room, f.credit)
	}
	if room < mss/2 {
		return
	}
	f.credit -= room
	f.flying += room
	f.bursts = w.passes(i) && f.window-f.flying < mss
	f.queue, f.queued = append(f.queue, chunk{flow: i, bytes: room * framed, born: t}), f.queued+room*framed
}

// serve takes bytes out of the shaper's queue. It marks as CoDel does.
func (f *flow) serve(t, bytes float64, out func(chunk)) {
	for bytes > 1e-9 && len(f.queue) > 0 {
		k := &f.queue[0]
		b := math.Min(bytes, k.bytes)
		own := t - k.born
		switch {
		case own < 0.005:
			f.above = t
		case t-f.above > 0.1 && t-f.marked > 0.1:
			f.marked = t
			f.back(t)
		}
		out(chunk{flow: k.flow, bytes: b, born: k.born, own: own})
		bytes, f.queued, k.bytes = bytes-b, f.queued-b, k.bytes-b
		if k.bytes <= 1e-9 {
			f.queue = f.queue[1:]
		}
	}
	if len(f.queue) == 0 {
		f.queued = 0 // what is left is rounding
	}
}

func (f *flow) back(t float64) {
	if t-f.backed > math.Max(f.srtt, f.base) {
		f.backed, f.window = t, math.Max(2*mss, 0.7*f.window)
	}
}

func (f *flow) lost(t, bytes float64, stubborn bool) {
	f.flying -= bytes / framed
	f.resent += bytes / 1514
	if !stubborn {
		f.back(t)
	}
}

func (f *flow) acked(t float64, a chunk) {
	b := a.bytes / framed
	f.flying = math.Max(0, f.flying-b)
	f.count += b / mss
	f.delivered += b / mss
	f.moved = true
	rtt := math.Max(tick, a.rtt)
	f.least = math.Min(f.least, rtt)
	if f.srtt == 0 {
		f.srtt = rtt
	}
	const each = 2 // packets that an acknowledgement is of (RFC 9293 §3.8.6.3)
	for f.unacked += b / mss; f.unacked >= each; f.unacked -= each {
		f.srtt += (rtt - f.srtt) / 8
		b := &f.behind
		left := math.Max(tick, a.rtt-a.own)
		if f.acks == 0 {
			b.srtt = left
		}
		b.srtt, b.sum, b.least = b.srtt+(left-b.srtt)/8, b.sum+left, math.Min(b.least, left)
		f.acks++
	}
	if f.window-f.flying > 2*mss+f.window/10 && !f.bursts {
		return // what is not used does not grow
	}
	if f.backed == 0 {
		f.window += b
		return
	}
	f.window += 3 * mss * b / f.window
}

// between are the values from one time to another.
func (s seen) between(x []float64, a, b float64) []float64 {
	at := func(t float64) int { i, _ := slices.BinarySearch(s.at, t); return i }
	return x[at(a):at(b)]
}

// used is the share of a rate that was sent.
func (s seen) used(a, b, rate float64) float64 {
	x := s.between(s.sent, a, b)
	return 8 * (x[len(x)-1] - x[0]) / (b - a) / rate
}

// arrived is the share of a rate that was acknowledged.
func (s seen) arrived(a, b, rate float64) float64 {
	x := s.between(s.got, a, b)
	return 8 * (x[len(x)-1] - x[0]) / (b - a) / rate
}

// calm is how long after a time a second begins in which nothing waits longer than 5 ms.
func (s seen) calm(from, until float64) float64 {
	last := from
	for i, t := range s.at {
		if t < from || t >= until {
			continue
		}
		if s.added[i] > 0.005 {
			last = t + tick
		} else if t-last >= 1 {
			return last - from
		}
	}
	return math.Inf(1)
}

// first is how long after a time the rate that is set is first as wanted.
func (s seen) first(from float64, wanted func(rate float64) bool) float64 {
	for i, t := range s.at {
		if t > from && wanted(s.set[i]) {
			return t - from
		}
	}
	return math.Inf(1)
}

// follower is a controller.
func follower(rate, low, high float64) func(Look) float64 {
	f := New(units.Rate(rate), units.Rate(low), units.Rate(high))
	return func(l Look) float64 {
		if l.At > 0 {
			f.Look(l)
		}
		return float64(f.Rate())
	}
}
