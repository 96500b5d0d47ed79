// SPDX-License-Identifier: Apache-2.0

package follow

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"weir/internal/stats"
	"weir/internal/units"
)

// behind is a provider's queue in front of a shaper, and senders who see both, in steps of a millisecond. Times are in
// seconds, rates in bit/s.
type behind struct {
	link           func(t float64) float64 // what the provider delivers
	beside         func(t float64) float64 // what another host behind the same queue gets of it
	buffer         float64                 // seconds that packets can wait there at the first rate
	base, interval float64                 // the RTT without a queue, and CoDel's
	told, share    float64                 // of the told rate, that is planned
	low, high      float64                 // that are told, if any
	senders        []sender
	wrote          func(t float64, rate units.Rate, why string)
	looked         func(t float64, f *Inward)
	q              []parcel
	waiting        float64 // bits, of it
	came, shaped   float64 // bits in all, into the shaper and out of it
	dropped        float64 // bits, by the shaper
}

// sender is a connection, or several datagrams a millisecond.
type sender struct {
	bbr       bool
	datagrams float64                 // bit/s, that do not care whether they arrive; 0: TCP
	offered   func(t float64) float64 // what its application has; nil: as much as goes
	from      float64                 // when it begins
	until     float64                 // when it ends; 0: never

	window, flying, peak, lost float64 // bits, and when it was last told of a loss
	slow                       bool    // it has not lost anything yet
	credit                     float64
	here                       []parcel  // in the shaper
	held                       float64   // bits, of these
	above, next, drops         float64   // CoDel
	got                        float64   // bits, by all acknowledgements
	best                       []float64 // bit/s, of the last RTTs: BBR
	round, roundGot            float64
	phase                      int
	pace                       float64
	acks, losses               map[int]float64
}

type parcel struct {
	who  int
	bits float64
	at   float64
}

// moved is what came of it, at each look.
type moved struct{ at, rate, queue, out, lost []float64 }

func (m moved) between(x []float64, a, b float64) (part []float64) {
	for i, t := range m.at {
		if t >= a && t < b {
			part = append(part, x[i])
		}
	}
	return part
}

// used is the mean rate that has left the shaper, in bit/s.
func (m moved) used(a, b float64) float64 {
	x := m.between(m.out, a, b)
	return (x[len(x)-1] - x[0]) / (b - a)
}

// calm is how long after a time a second begins in which nothing waits for 5 ms at the provider.
func (m moved) calm(a, b float64) float64 {
	last := a
	for i, t := range m.at {
		switch {
		case t < a || t >= b:
		case m.queue[i] > 5e-3:
			last = t
		case t-last > 1:
			return last - a
		}
	}
	return math.Inf(1)
}

func (w *behind) run(length float64) (m moved) {
	const dt, packet = 1e-3, 1514 * 8
	usual := w.share * w.told
	low, high := usual, .9975*w.told
	if w.high > 0 {
		low, high = w.share*w.low, .9975*w.high
	}
	f := NewInward(units.Rate(usual), Told{Link: units.Rate(w.told), Usual: units.Rate(usual), Low: units.Rate(low),
		High: units.Rate(high)})
	for i := range w.senders {
		s := &w.senders[i]
		s.window, s.slow, s.acks, s.losses = 10*packet, true, map[int]float64{}, map[int]float64{}
	}
	left := 0.
	for n := 0; float64(n)*dt < length; n++ {
		t := float64(n) * dt
		link, rate := w.link(t), float64(f.Rate())
		if w.beside != nil {
			link -= w.beside(t)
		}
		for i := range w.senders {
			s := &w.senders[i]
			bits := s.sends(n, t, dt, w.base)
			if bits <= 0 {
				continue
			}
			if w.waiting+bits > w.buffer*w.link(0) {
				w.loses(i, n, bits)
				continue
			}
			w.q, w.waiting = append(w.q, parcel{i, bits, t}), w.waiting+bits
		}
		for room := link * dt; room > 1e-6 && len(w.q) > 0; {
			p := &w.q[0]
			b := min(room, p.bits)
			room, p.bits, w.waiting, w.came = room-b, p.bits-b, w.waiting-b, w.came+b
			s := &w.senders[p.who]
			if s.held > .2*rate { // unresponsive: CAKE's BLUE
				w.dropped += b
				w.loses(p.who, n, b)
			} else {
				s.here, s.held = append(s.here, parcel{p.who, b, t}), s.held+b
			}
			if p.bits <= 1e-6 {
				w.q = w.q[1:]
			}
		}
		left = min(left, 0) + rate*dt
		for left > 1e-6 {
			busy := 0.
			for i := range w.senders {
				if w.senders[i].held > 1e-6 {
					busy++
				}
			}
			each := left / max(1, busy)
			if busy == 0 || each <= 1e-6 { // serves lets go of more than that
				break
			}
			for i := range w.senders {
				left -= w.serves(i, n, t, each)
			}
		}
		if n%20 != 0 {
			continue
		}
		held := 0.
		for i := range w.senders {
			held += w.senders[i].held
		}
		came := math.Floor(w.came/packet) * packet / 8
		before := f.Rate()
		now, why := f.Look(Look{At: time.Duration((t + 1) * 1e9), Came: came, Here: came,
			Backlog: math.Floor(held/packet) * packet / 8})
		if w.wrote != nil && now != before {
			w.wrote(t, now, why)
		}
		if w.looked != nil {
			w.looked(t, f)
		}
		m.at, m.rate, m.queue = append(m.at, t), append(m.rate, rate), append(m.queue, w.waiting/link)
		m.out, m.lost = append(m.out, w.shaped), append(m.lost, w.dropped)
	}
	return m
}

// serves lets go of what one sender has in the shaper, as CoDel does, and says how much that was.
func (w *behind) serves(i, n int, t, most float64) (sent float64) {
	const target, packet = 20, 1514 * 8
	s := &w.senders[i]
	for most-sent > 1e-6 && len(s.here) > 0 {
		p := &s.here[0]
		if t-p.at < w.interval/target {
			s.above, s.drops = t, 0
		} else if t-s.above > w.interval && t >= s.next && s.held > packet {
			s.drops++
			s.next = t + w.interval/math.Sqrt(s.drops)
			w.dropped += packet
			w.loses(i, n, 0)
		}
		b := min(most-sent, p.bits)
		sent, p.bits, s.held = sent+b, p.bits-b, s.held-b
		s.acks[n+int(w.base/1e-3)] += b
		w.shaped += b
		if p.bits <= 1e-6 {
			s.here = s.here[1:]
		}
	}
	if len(s.here) == 0 {
		s.held = 0
	}
	return sent
}

func (w *behind) loses(i, n int, bits float64) {
	at := n + int((w.base+w.waiting/w.link(float64(n)/1e3))/1e-3)
	w.senders[i].losses[at] += bits + 1
}

// sends is what a sender sends in one step.
func (s *sender) sends(n int, t, dt, base float64) float64 {
	const packet = 1514 * 8
	a, l := s.acks[n], s.losses[n]
	delete(s.acks, n)
	delete(s.losses, n)
	if t < s.from || s.until > 0 && t >= s.until {
		return 0
	}
	room := math.Inf(1)
	if s.offered != nil {
		s.credit = min(s.credit+s.offered(t)*dt, 64*8*1024)
		room = s.credit
	}
	switch {
	case s.datagrams > 0:
		return s.datagrams * dt
	case s.bbr:
		room = min(room, s.paced(a, l, t, dt, base))
	default:
		room = min(room, s.cubic(a, l, t, base))
	}
	if room < packet/4 {
		return 0
	}
	s.credit, s.pace = s.credit-room, s.pace-room
	s.flying += room
	return room
}

// cubic is what its window lets go (RFC 9438).
func (s *sender) cubic(acked, lost, t, base float64) float64 {
	const c, beta, packet = .4, .7, 1514 * 8
	limited := s.flying > .9*s.window
	s.flying = max(0, s.flying-acked-max(0, lost-1))
	if lost > 0 && t-s.lost > base+.05 {
		s.lost, s.peak, s.slow = t, s.window/packet, false
		s.window = max(2*packet, beta*s.window)
	}
	switch {
	case s.slow && limited:
		s.window += acked
	case acked > 0 && limited:
		k := math.Cbrt(s.peak * (1 - beta) / c)
		want := packet * (c*math.Pow(t-s.lost-k, 3) + s.peak)
		if want > s.window {
			s.window += min((want-s.window)/s.window, .5) * acked
		}
		s.window += .01 * packet * acked / s.window
	}
	return s.window - s.flying
}

// paced is BBR's, in a few words: 1.25, 0.75 and six times 1 of the best rate of ten RTTs.
func (s *sender) paced(acked, lost, t, dt, base float64) float64 {
	const packet = 1514 * 8
	s.flying = max(0, s.flying-acked-max(0, lost-1))
	s.got += acked
	if t-s.round >= base {
		s.best = append(s.best, (s.got-s.roundGot)/(t-s.round))
		s.best = s.best[max(0, len(s.best)-10):]
		s.round, s.roundGot, s.phase = t, s.got, s.phase+1
	}
	best := 1e6
	for _, r := range s.best {
		best = max(best, r)
	}
	gain := []float64{1.25, .75, 1, 1, 1, 1, 1, 1}[s.phase%8]
	if s.slow {
		gain = 2.89
		if n := len(s.best); n >= 4 && s.best[n-1] < 1.25*s.best[n-4] && best > 2e6 {
			s.slow = false
		}
	}
	s.pace = min(s.pace+gain*best*dt, 4*packet)
	if s.pace < packet {
		return 0
	}
	return min(s.pace, 2*best*base+3*packet-s.flying)
}

func times(n int, s sender) (all []sender) {
	for range n {
		all = append(all, s)
	}
	return all
}

// A link that moves is followed, and what is no link's holds nobody up for long.
func TestInwardMoves(t *testing.T) {
	const rests = 85
	stands := steps(50 * mbit)
	often := func(t float64) float64 { return []float64{50, 30, 40, 25, 45}[int(t/8)%5] * mbit }
	cubic, bbr, stream := sender{}, sender{bbr: true}, sender{offered: steps(30 * mbit)}
	datagrams := sender{datagrams: 30 * mbit}
	at := func(s sender, from, until float64) sender { s.from, s.until = from, until; return s }
	for name, c := range map[string]struct {
		w    behind
		use  [3]float64 // Mbit/s at least: before the fall, after it, and after the rise
		calm float64    // seconds after the fall, at most; 0: not asked
		lost float64    // % of what came, at most; 0: not asked
	}{
		"1 cubic":          {behind{senders: times(1, cubic)}, [3]float64{45, 27.5, 40}, 1, 0},
		"4 cubic":          {behind{senders: times(4, cubic)}, [3]float64{45, 27.5, 41}, 1, 0},
		"16 cubic":         {behind{senders: times(16, cubic)}, [3]float64{45, 27.5, 41}, 1, 0},
		"4 cubic, at 85 %": {behind{senders: times(4, cubic), share: .85}, [3]float64{42, 26.5, 38}, 1, 0},
		"1 bbr":            {behind{senders: times(1, bbr)}, [3]float64{44, 27, 38}, 0, 0},
		"4 bbr":            {behind{senders: times(4, bbr)}, [3]float64{44, 27, 40}, 0, 0},
		"it moves often":   {behind{senders: times(4, cubic), link: often}, [3]float64{30, 34, 30}, 0, 0},
		"a span": {behind{senders: times(4, cubic), link: stands, told: 20 * mbit, low: 20 * mbit, high: 60 * mbit},
			[3]float64{45, 45, 45}, 0, 0},
		"a neighbour": {behind{senders: times(4, cubic), link: stands, beside: steps(0, 25, 20*mbit, 50, 0)},
			[3]float64{45, 27.5, 45}, 1, 0},
		"datagrams": {behind{senders: times(1, datagrams), link: stands}, [3]float64{29.5, 29.3, 29.9}, 1, 1},
		"a stream":  {behind{senders: times(1, stream), link: stands}, [3]float64{28, 28.5, 28}, 1, 0},
		"a stream, at 85 %": {behind{senders: times(1, stream), link: stands, share: .85},
			[3]float64{26, 26.5, 26.5}, 1, 0},
		"a stream, and others until 25 s": {behind{senders: append(times(4, at(cubic, 0, 25)), stream), link: stands},
			[3]float64{45, 26.5, 28.5}, 0, 0},
		"it falls in a pause": {behind{senders: append(times(4, at(cubic, 0, 20)), times(4, at(cubic, 28, rests))...)},
			[3]float64{20, 26.5, 40}, 0, 0},
		"it rises in a pause": {behind{senders: append(times(4, at(cubic, 0, 45)), times(4, at(cubic, 60, rests))...)},
			[3]float64{45, 20, 40}, 1, 0},
		"it stands": {behind{senders: times(4, cubic), link: stands}, [3]float64{45, 47, 48}, 1, 0},
	} {
		t.Run(name, func(t *testing.T) {
			w := c.w
			w.buffer, w.base, w.interval = .2, .048, .5
			if w.share == 0 {
				w.share = .94
			}
			if w.told == 0 {
				w.told, w.low, w.high = 50*mbit, 12.5*mbit, 50*mbit
			}
			if w.link == nil {
				w.link = steps(50*mbit, 25, 30*mbit, 50, 45*mbit)
			}
			w.wrote = func(at float64, rate units.Rate, why string) { t.Logf("%5.2f s: %s, %s", at, rate, why) }
			m := w.run(rests)
			for i, of := range [][2]float64{{15, 25}, {32, 50}, {65, 85}} {
				if used := m.used(of[0], of[1]) / mbit; used < c.use[i] {
					t.Errorf("%.1f Mbit/s from %g s on, at least %g", used, of[0], c.use[i])
				}
			}
			if calm := m.calm(25, 50); c.calm > 0 && calm > c.calm {
				t.Errorf("calm %.2f s after 25 s, at most %g", calm, c.calm)
			}
			if lost := 100 * w.dropped / w.came; c.lost > 0 && lost > c.lost {
				t.Errorf("%.2f %% lost, at most %g", lost, c.lost)
			}
		})
	}
}

// A slow link is not taken for a faster one: packets take long there, and few of them tell.
func TestInwardSlow(t *testing.T) {
	const found, rests = 100, 200 // from a half of the link on, stretches of a second and more take their time
	type told struct{ link, high float64 }
	for _, rate := range []float64{1 * mbit, 2 * mbit, 5 * mbit, 10 * mbit} {
		for _, told := range []told{{1, 1}, {1, 4}, {.5, 4}} {
			for _, n := range []int{1, 4} {
				t.Run(fmt.Sprintf("%g, told %g to %g, %d cubic", rate, told.link, told.high, n), func(t *testing.T) {
					w := behind{link: steps(rate), buffer: .2, base: .048, interval: .5, senders: times(n, sender{}),
						told: told.link * rate, low: rate / 4, high: told.high * rate, share: .94}
					w.wrote = func(at float64, r units.Rate, why string) { t.Logf("%5.2f s: %s, %s", at, r, why) }
					m := w.run(rests)
					q, used := m.between(m.queue, found, rests), m.used(found, rests)/rate
					highest := stats.QuantileAbove(m.between(m.rate, found, rests), 1) / rate
					if used < .94 || highest > 1.025 {
						t.Errorf("%.3f of the link used, and at most %.3f set", used, highest)
					}
					// A packet takes 12 ms at 1 Mbit/s.
					if p50, p90 := ms(stats.QuantileAbove(q, .5)), ms(stats.QuantileAbove(q, .9)); p50 > 6 || p90 > 80 {
						t.Errorf("packets wait %.1f ms at p50, and %.1f at p90", p50, p90)
					}
				})
			}
		}
	}
}

// What is left at an end in the middle of a probe or a drain is what was before it, or what it has found.
func TestInwardSettled(t *testing.T) {
	w := behind{link: steps(50*mbit, 25, 30*mbit, 50, 45*mbit), buffer: .2, base: .048, interval: .5,
		senders: times(4, sender{}), told: 50 * mbit, low: 12.5 * mbit, high: 50 * mbit, share: .94}
	calm, probes, drains := 0., 0, 0
	w.looked = func(at float64, f *Inward) {
		settled, now := float64(f.Settled()), float64(f.Rate())
		switch {
		case f.Calm():
			if settled != now {
				t.Errorf("%.2f s: %.3f Mbit/s stays of %.3f, and all is calm", at, settled/mbit, now/mbit)
			}
			calm = now
		case f.probing:
			probes++
		case f.draining:
			drains++
		}
		if link := w.link(at); at > 27 && at < 50 && (settled > link || settled < .93*link) {
			t.Errorf("%.2f s: %.3f Mbit/s stays of %.3f, and %.3f are set", at, settled/mbit, calm/mbit, now/mbit)
		}
		if f.probing && !f.hasRisen && math.Abs(settled-calm) > 1 {
			t.Errorf("%.2f s: %.3f Mbit/s stays, not %.3f from before the probe", at, settled/mbit, calm/mbit)
		}
		slept := *f
		r, _ := slept.Look(Look{At: f.last.At + 2*time.Second, Came: f.last.Came, Here: f.last.Here})
		if f.probing && r != f.Settled() {
			t.Errorf("%.2f s: after a sleep in a probe %s are set, not %s", at, r, f.Settled())
		}
	}
	w.run(85)
	if probes < 100 || drains < 100 {
		t.Errorf("%d looks at probes and %d at drains", probes, drains)
	}
}

// A link may fall below what may be set when the lowest rate is set already, or nearly. That is said for as long as it
// lasts.
func TestInwardBelowFromLowest(t *testing.T) {
	w := behind{link: steps(50*mbit, 25, 12.6*mbit, 55, 5*mbit, 75, 50*mbit), buffer: .2, base: .048, interval: .5,
		senders: times(4, sender{}), told: 50 * mbit, low: 12.5 * mbit, high: 50 * mbit, share: .94}
	looks, calm, said, end := 0, 0, "", false
	w.wrote = func(at float64, rate units.Rate, why string) {
		t.Logf("%5.2f s: %s, %s", at, rate, why)
		said = why
	}
	w.looked = func(at float64, f *Inward) {
		if at > 60 && at < 75 {
			looks++
			if f.Calm() {
				calm++
			}
		}
		end = f.Calm()
	}
	w.run(105)
	if calm > 0 || looks == 0 || !end {
		t.Errorf("in %d of %d looks it takes the rate for one that stays, at the end %v; it said %q", calm, looks, end,
			said)
	}
}

// Of a link that delivers less than may be set, the lowest rate is set, and that is said. It ends where more comes.
func TestInwardBelow(t *testing.T) {
	pause := append(times(4, sender{until: 25}), times(4, sender{from: 45})...)
	stream, little := sender{datagrams: 5 * mbit}, sender{datagrams: .3 * mbit}
	for name, c := range map[string]struct {
		link    func(t float64) float64
		senders []sender
		use     float64 // Mbit/s at least, from 55 s on
		stays   bool    // the rate
	}{
		"far, and back":        {steps(50*mbit, 25, 5*mbit, 45, 50*mbit), times(4, sender{}), 46, false},
		"far, and up a little": {steps(50*mbit, 25, 5*mbit, 45, 20*mbit), times(4, sender{}), 18, false},
		"a stream in a pause":  {steps(50 * mbit), slices.Concat(pause, times(1, stream)), 46, false},
		"little in a pause":    {steps(50 * mbit), slices.Concat(pause, times(1, little)), 46, true},
		"a pause":              {steps(50 * mbit), pause, 46, true},
	} {
		t.Run(name, func(t *testing.T) {
			w := behind{link: c.link, buffer: .2, base: .048, interval: .5, senders: slices.Clone(c.senders),
				told: 50 * mbit, low: 12.5 * mbit, high: 50 * mbit, share: .94}
			said := ""
			w.wrote = func(at float64, rate units.Rate, why string) {
				t.Logf("%5.2f s: %s, %s", at, rate, why)
				if at > 25 && at < 45 {
					said += why
				}
			}
			m := w.run(85)
			highest := stats.QuantileAbove(m.between(m.rate, 26, 45), 1)
			says := strings.Count(said, "less than the lowest rate that may be set")
			if lowest := .94 * 12.5 * mbit; (highest == lowest) == c.stays || (says == 1) == c.stays {
				t.Errorf("%.2f Mbit/s are set, of at least %.2f, and it says %q", highest/mbit, lowest/mbit, said)
			}
			if used := m.used(55, 85) / mbit; used < c.use {
				t.Errorf("%.1f Mbit/s from 55 s on, at least %g", used, c.use)
			}
			if p50 := ms(stats.QuantileAbove(m.between(m.queue, 52, 85), .5)); p50 > 1 {
				t.Errorf("packets wait %.1f ms at p50 from 52 s on", p50)
			}
		})
	}
}

// unevenRate is a rate that is higher or lower by up to a share, anew each tenth of a second.
func unevenRate(share float64, rate func(t float64) float64) func(t float64) float64 {
	rng, by := rand.New(rand.NewPCG(1, 2)), map[int]float64{}
	return func(t float64) float64 {
		n := int(t * 10)
		if _, is := by[n]; !is {
			by[n] = 1 + share*(2*rng.Float64()-1)
		}
		return rate(t) * by[n]
	}
}

// A fall of a link is seen though its rate is uneven.
func TestInwardUneven(t *testing.T) {
	once := steps(50*mbit, 25, 30*mbit, 65, 45*mbit)
	stairs := steps(50*mbit, 25, 40*mbit, 40, 30*mbit, 55, 20*mbit, 65, 45*mbit)
	for _, share := range []float64{.01, .02, .05, .1} {
		for name, c := range map[string]struct {
			link    func(t float64) float64
			senders []sender
			use     [2]float64 // of what the link delivers, at least: before the rise, and after it
		}{
			"1 cubic":         {once, times(1, sender{}), [2]float64{.9, .87}},
			"4 cubic":         {once, times(4, sender{}), [2]float64{.9, .9}},
			"4 cubic, stairs": {stairs, times(4, sender{}), [2]float64{.9, .9}},
			"1 bbr":           {once, times(1, sender{bbr: true}), [2]float64{.9, .87}},
			"4 bbr":           {once, times(4, sender{bbr: true}), [2]float64{.9, .9}},
		} {
			t.Run(fmt.Sprintf("%s, %g %%", name, 100*share), func(t *testing.T) {
				w := behind{link: unevenRate(share, c.link), buffer: .2, base: .048, interval: .5, senders: c.senders,
					told: 50 * mbit, low: 12.5 * mbit, high: 50 * mbit, share: .94}
				w.wrote = func(at float64, rate units.Rate, why string) { t.Logf("%5.2f s: %s, %s", at, rate, why) }
				m := w.run(120)
				for i, of := range [][2]float64{{57, 65}, {90, 120}} {
					if used := m.used(of[0], of[1]) / c.link(of[0]); used < c.use[i] {
						t.Errorf("%.3f of the link used from %g s on, at least %g", used, of[0], c.use[i])
					}
				}
				q := m.between(m.queue, 30, 120)
				if p50, p90 := ms(stats.QuantileAbove(q, .5)), ms(stats.QuantileAbove(q, .9)); p50 > 2 || p90 > 40 {
					t.Errorf("packets wait %.1f ms at p50, and %.1f at p90, from 5 s after the fall on", p50, p90)
				}
			})
		}
	}
}

// What varies by itself on a link that stands gets hardly less, and holds up downloads beside it for moments.
func TestInwardVaries(t *testing.T) {
	downloads := sender{offered: func(t float64) float64 {
		if math.Mod(t, 20) < 10 {
			return 50 * mbit
		}
		return 0
	}}
	for _, share := range []float64{.02, .05, .1} {
		for name, c := range map[string]struct {
			n, downloads int     // connections
			least        float64 // Mbit/s, that are carried in every other ten seconds
		}{
			"1 application":                 {1, 0, 35},
			"4 applications":                {4, 0, 35},
			"4 applications, and downloads": {4, 3, 41},
		} {
			t.Run(fmt.Sprintf("%s, %g %%", name, 100*share), func(t *testing.T) {
				offered := unevenRate(share, steps(36*mbit/float64(c.n)))
				w := behind{link: steps(50 * mbit), buffer: .2, base: .048, interval: .5,
					told: 50 * mbit, low: 12.5 * mbit, high: 50 * mbit, share: .94}
				w.senders = slices.Concat(times(c.n, sender{offered: offered}), times(c.downloads, downloads))
				w.wrote = func(at float64, rate units.Rate, why string) { t.Logf("%5.2f s: %s, %s", at, rate, why) }
				m := w.run(180)
				used := 0.
				for at := 20.; at < 180; at += 20 {
					used += m.used(at, at+9.9) / 8 / mbit
				}
				t.Logf("%.2f Mbit/s are carried", used)
				if used < c.least {
					t.Errorf("%.2f Mbit/s are carried, at least %g", used, c.least)
				}
			})
		}
	}
}
