// SPDX-License-Identifier: Apache-2.0

// Package follow finds out which rate a link has now, from what the host sends anyway, so that a shaper stays a little
// below it.
//
// It is pure: it takes what was seen of a device and of its connections, and says a rate. It opens no socket, reads no
// clock and changes nothing.
//
// What goes out is measured by what leaves a queue in front of the link (linkRate), and what comes in by what comes at
// the same rate all the time (Inward.level). Package calibrate fills the link itself, and measures otherwise; its
// comment says why.
//
// It follows the provider's queue: how much longer the connections' RTTs are of late than their shortest, less
// what packets wait in this host's own queue. While that queue stands, the link delivers at its own rate: what was
// acknowledged, over time. A policer has no queue: there it follows what is lost without delay, which lowers the rate.
package follow

import (
	"cmp"
	"math"
	"net/netip"
	"slices"
	"time"

	"weir/internal/units"
)

// Look is what was seen at one time. Looks are 10 to 200 ms apart while the link is loaded.
type Look struct {
	At          time.Duration // on a clock that never goes back
	Sent        float64       // bytes that have left the shaper since it was set up, as it counts them
	Came        float64       // bytes that the link has delivered, for Inward alone
	Here        float64       // bytes that have come to the shaper, for Inward alone
	Dropped     float64       // packets that the shaper has dropped
	Backlog     float64       // bytes that wait in the shaper
	Own         time.Duration // that packets waited in the shaper of late
	Connections []Connection  // that have moved since the look before
}

// Connection is what one connection has seen.
type Connection struct {
	ID   uint64        // the same for a connection at each look; 0: it has none
	RTT  time.Duration // smoothed
	Acks uint32        // packets that have come, at most each with a sample for RTT; it wraps
	Base time.Duration // the least that was ever seen
	Rate float64       // packets a second that are delivered; 0: not known

	Delivered float64 // packets, since the look before
	Lost      float64 // packets that were sent again, since the look before

	// Past is a connection that is seen past the shaper: its RTTs hold no wait of this host's, and what the shaper
	// drops is not Lost. How many RTTs there were since it is known is Samples, which wraps; Sum is what they took.
	Past    bool
	Samples uint32
	Sum     time.Duration

	// For Finder alone:
	To        netip.Addr // of a client's network
	Size      float64    // bytes of a full packet, as the shaper counts it
	Waits     bool       // for the network: about as much is under way as its window allows
	Forwarded bool       // another host sends it, and whether that waits is not known
}

// Follower holds what was learnt of a link.
type Follower struct {
	low, high float64 // bit/s, bounds of what it may say
	rate      float64 // bit/s, that is set

	seen       []point // of late, in the order of time
	dropped    float64 // packets, that the shaper had dropped at the last look
	recent     recent
	floor      floor
	floorKnown bool // enough was seen for it
	phase      phase
	setAt      float64 // when the rate was set last; while the queue drains, when it was cut first
	foundRate  float64 // bit/s, what the link was last found to carry; 0: not known
	queueLooks int     // looks in a row that saw a queue

	// of the probe, or of the queue that drains
	rateBefore  float64   // bit/s, the rate before it
	probeWaited float64   // seconds that packets have waited long because of it
	probeSteps  []float64 // bit/s, that the probe has tried; none where a queue came by itself
	emptyLooks  int       // looks of the probe that found nothing waiting here
	nextProbe   float64   // when the next probe is due
	movedAt     float64   // when the link was last found to carry another rate
	movedRate   float64   // bit/s, that was found then
	fellAt      float64   // when the rate that is set last fell far
	fellFrom    float64   // bit/s, the highest that it fell from, of late
	rateAtQueue float64   // bit/s, the rate when the queue was seen
	wasCut      bool      // the rate has been cut
	wasCutFar   bool      // and by far
	queueSeenAt float64   // when the queue was last above the threshold
	maxWait     float64   // seconds, the most that packets have waited since the cut

	loss    losses
	tallies map[netip.Addr]*tally

	witnesses      map[netip.Addr]*witness
	undisputedRate float64 // bit/s, the last rate that nobody has disputed
	disputedAt     float64 // when somebody disputed a lower one; 0: nobody has

	hasDipped   bool    // a queue that may have stood at the start has been looked for
	dipMinRTT   float64 // the shortest RTT that was seen meanwhile
	dipMinRTTAt float64 // and when
}

// point is a look, as it is needed later.
type point struct {
	departure
	crossing            // of what is acknowledged
	own, q      float64 // seconds
	rtt         float64 // without a queue, of the connection that q is of
	minRTT      float64 // RTT of all connections, with what they wait
	lag         float64 // seconds by which q is known late
	full, known bool
	isSingle    bool // one connection moved at most

	delivered, lost, dropped float64 // packets, since the start
	networks                 map[netip.Addr]tally
}

type phase int

const (
	calm phase = iota
	probing
	draining
	clearing
	yielding
)

// New follows a link on which a rate is set, between two others, all in bit/s.
func New(rate, low, high units.Rate) *Follower {
	return &Follower{rate: float64(rate), movedRate: float64(rate), undisputedRate: float64(rate), low: float64(low),
		high: float64(high), movedAt: -movedPauseDivisor * probePause, recent: recent{},
		tallies: map[netip.Addr]*tally{}, witnesses: map[netip.Addr]*witness{}}
}

// Rate is what is to be set, in bit/s.
func (f *Follower) Rate() units.Rate { return units.Rate(math.Round(f.rate)) }

// Settled is the rate that is to stay if nobody looks any more, in bit/s: what is tried for a moment, or set until a
// queue is gone, is not.
func (f *Follower) Settled() units.Rate {
	if f.phase == calm {
		return f.Rate()
	}
	return units.Rate(math.Round(f.settled()))
}

// Calm reports whether nothing is under way: neither a queue that drains nor a probe.
func (f *Follower) Calm() bool { return f.phase == calm }

// Look takes what was seen, and says what is to be set and, if that is new, why.
func (f *Follower) Look(l Look) (rate units.Rate, why string) {
	p, waits := f.point(l)
	if n := len(f.seen); n > 0 {
		switch before := f.seen[n-1]; {
		case p.at <= before.at:
			return f.Rate(), "" // a clock that stands still tells nothing
		case p.sent < before.sent || p.at-before.at > 1:
			f.forget() // the counter began anew, or nobody has looked: sleep, suspend, another queue
		}
	}
	f.seen = trimLooks(append(f.seen, p), p.at-3)
	if !p.known {
		return f.Rate(), f.lookUnknown(p)
	}
	f.queueLooks = f.countQueueLooks(p)
	f.hearWitnesses(p, waits)
	if n := len(f.seen); n > 1 && f.phase != calm && p.q > f.floor.level()+longProbeDelay {
		f.probeWaited += p.at - f.seen[n-2].at
	}
	switch f.phase {
	case draining:
		why = f.lookDraining(p)
	case probing:
		why = f.lookProbing(p)
	case clearing:
		why = f.lookClearing(p)
	case yielding:
		why = f.lookYielding(p)
	default:
		why = f.lookCalm(p)
	}
	return f.Rate(), why
}

// point sums a look up, and says what each network has seen.
func (f *Follower) point(l Look) (p point, waits []wait) {
	p = point{departure: departure{l.At.Seconds(), 8 * l.Sent}, own: l.Own.Seconds(), full: l.Backlog > 0,
		isSingle: len(l.Connections) < 2}
	if n := len(f.seen); n > 0 {
		p.delivered, p.lost, p.dropped = f.seen[n-1].delivered, f.seen[n-1].lost, f.seen[n-1].dropped
	}
	all, here := 0., 0. // packets that were delivered, and those of connections that lose what the shaper drops
	for _, c := range l.Connections {
		p.lost, all = p.lost+c.Lost, all+c.Delivered
		if !c.Past {
			here += c.Delivered
		}
	}
	p.delivered += all
	p.networks = f.countLosses(p.at, l.Connections)
	if all > 0 {
		p.dropped += max(0, l.Dropped-f.dropped) * here / all
		f.dropped = l.Dropped
	}
	return p, f.readQueue(&p, l.Connections)
}

// wait is what a connection has seen of queues, in seconds.
type wait struct {
	recentRTT
	q, base float64
	behind  bool
	to      netip.Addr // of the client's network
}

// readQueue says of a look what connections have seen of a queue beyond this host, if they have seen anything, and what
// each network has. The queue is what a quarter of the networks see less of: those that something else slows down see
// more. A network sees what a quarter of its connections see less of.
func (f *Follower) readQueue(p *point, connections []Connection) (waits []wait) {
	exact := false
	for _, c := range connections {
		t, known := f.recent.rtt(p.at, f.rate, c)
		if !known {
			continue
		}
		w := wait{t, t.rtt - c.Base.Seconds(), c.Base.Seconds(), c.Past, c.To}
		if !c.Past {
			w.q -= f.ownWaitAround(p.at-t.rtt-t.lag, t.lag, p.own)
		}
		waits = append(waits, w)
		exact = exact || c.Past && t.enough
	}
	f.recent.forget(p.at)
	if exact { // a seldom packet of this host's own has seen what was long ago
		waits = slices.DeleteFunc(waits, func(w wait) bool { return !w.enough })
	}
	waits = withoutPrivate(waits)
	if len(waits) == 0 {
		return nil
	}
	least := math.Inf(1) // of this host's own connections, which wait in both queues
	p.minRTT = least
	for _, w := range waits {
		if !w.behind {
			least = min(least, max(0, w.rtt-w.base))
		}
		p.minRTT = min(p.minRTT, w.rtt)
	}
	waits = perNetwork(waits)
	w := waits[len(waits)/4]
	p.q, p.rtt, p.lag, p.known = max(0, min(w.q, least)), max(1e-3, w.base), w.lag, true
	p.crossedAt = p.at - p.rtt - p.lag
	p.sentBits = f.sentAt(p.crossedAt - p.q)
	return waits
}

// carrierNAT are the addresses within a provider's network, and of many overlays (RFC 6598).
var carrierNAT = netip.MustParsePrefix("100.64.0.0/10")

// isPrivate reports whether a network is of private use.
func isPrivate(to netip.Addr) bool {
	return to.IsPrivate() || to.IsLinkLocalUnicast() || carrierNAT.Contains(to)
}

// withoutPrivate leaves out networks of private use, unless there are no others: what goes to a neighbour does not pass
// the provider.
func withoutPrivate(waits []wait) []wait {
	if all := slices.DeleteFunc(slices.Clone(waits), func(w wait) bool { return isPrivate(w.to) }); len(all) > 0 {
		return all
	}
	return waits
}

// perNetwork leaves one wait for each network, so that nobody counts for more by more connections. They are in order.
func perNetwork(waits []wait) (each []wait) {
	slices.SortStableFunc(waits, func(a, b wait) int { return cmp.Compare(a.q, b.q) })
	of, before := map[netip.Addr]int{}, map[netip.Addr]int{}
	for _, w := range waits {
		of[w.to]++
	}
	for _, w := range waits {
		if before[w.to] == of[w.to]/4 {
			each = append(each, w)
		}
		before[w.to]++
	}
	return each
}

// ownWaitAround is what packets waited here when those left of which an RTT is the mean, some time around t. A queue
// that has just begun here would seem to stand beyond this host otherwise.
func (f *Follower) ownWaitAround(t, around, now float64) float64 {
	own := f.ownWaitAt(t, now)
	if f.ownWaitAt(t-around, now) > 0 {
		return own
	}
	return max(own, f.ownWaitAt(t+around, now))
}

// ownWaitAt is what packets waited here at a time.
func (f *Follower) ownWaitAt(t, now float64) float64 {
	for i := len(f.seen) - 1; i >= 0; i-- {
		if o := f.seen[i]; o.at <= t {
			next, at := now, o.at
			if i+1 < len(f.seen) {
				next, at = f.seen[i+1].own, f.seen[i+1].at
			}
			if at == o.at {
				return o.own
			}
			return o.own + (next-o.own)*(t-o.at)/(at-o.at)
		}
	}
	if len(f.seen) > 0 {
		return f.seen[0].own
	}
	return now
}

// forget keeps the rate and nothing else of what was under way.
func (f *Follower) forget() {
	if f.phase != calm {
		f.rate = f.settled()
	}
	f.seen, f.phase, f.queueLooks, f.floor, f.floorKnown = nil, calm, 0, floor{}, false
	clear(f.recent)
	clear(f.witnesses)
	f.movedRate, f.undisputedRate, f.disputedAt = f.rate, f.rate, 0
	f.nextProbe, f.loss.beganAt, f.loss.cuts = 0, 0, 0
}

// settled is the rate to keep where an event or a probe does not come to its end.
func (f *Follower) settled() float64 {
	if f.phase == draining && f.foundRate > 0 {
		return f.clamp(rateMargin * f.foundRate)
	}
	return f.rateBefore
}

// lookUnknown is a look at which no connection moved. Nothing can be learnt from it.
func (f *Follower) lookUnknown(p point) string {
	const patience = 1 // seconds without a word
	if f.phase == calm {
		return ""
	}
	for i := len(f.seen) - 1; i >= 0 && p.at-f.seen[i].at < patience; i-- {
		if f.seen[i].known {
			return ""
		}
	}
	f.setRate(f.settled(), p)
	f.endPhase(p, probePause)
	return "no connection moves"
}

// countQueueLooks is how many looks in a row have seen a queue.
func (f *Follower) countQueueLooks(p point) int {
	if p.q > f.threshold() {
		return f.queueLooks + 1
	}
	return 0
}

// threshold is what is taken for a queue.
func (f *Follower) threshold() float64 {
	least := minQueueDelay
	if f.phase == probing {
		least = f.negligibleWait()
	}
	return f.floor.level() + max(least, 5*f.floor.spread())
}

// negligibleWait is what is no queue yet while more is tried, in seconds: on a slow link, half of a packet's own time.
func (f *Follower) negligibleWait() float64 {
	const most, share = 2e-3, 0.5
	return max(minProbedDelay, min(most, share*packetBits/f.rate))
}

// sentRate is what was sent from one time to another, in bit/s.
func (f *Follower) sentRate(from, to float64) float64 {
	a, b := f.sentAt(from), f.sentAt(to)
	if to <= from {
		return 0
	}
	return (b - a) / (to - from)
}

// sentAt is what had left here by a time, in bits. Before the first look it is taken to have left at the rate that is
// set.
func (f *Follower) sentAt(t float64) float64 {
	if len(f.seen) == 0 {
		return 0
	}
	first, last := f.seen[0], f.seen[len(f.seen)-1]
	sent, known := sentAt(f.seen, t)
	switch {
	case known:
		return sent
	case t > last.at:
		return last.sent
	}
	return first.sent + f.rate*(t-first.at)
}

// endPhase ends an event or a probe. The next probe may begin after a pause, in seconds.
func (f *Follower) endPhase(p point, pause float64) {
	f.settleDispute(p)
	f.phase, f.queueLooks, f.nextProbe = calm, 0, p.at+pause
	if math.Abs(f.rate-f.movedRate) > movedShare*f.movedRate {
		f.movedAt, f.movedRate = p.at, f.rate
		f.floor.noteNewRate()
	}
}

// probePauseFor is how long to pause before the next probe, in seconds.
func (f *Follower) probePauseFor(p point) float64 {
	return min(probePause, max(minProbePause, (p.at-f.movedAt)/movedPauseDivisor))
}

func (f *Follower) clamp(r float64) float64 { return max(f.low, min(f.high, r)) }

func (f *Follower) setRate(r float64, p point) {
	r = f.clamp(max(r, f.minWhileDisputed(p.at)))
	if r < farFallShare*f.rate {
		if p.at-f.fellAt > recentFallTime || f.fellFrom < f.rate {
			f.fellFrom = f.rate
		}
		f.fellAt = p.at
	}
	f.rate, f.setAt = r, p.at
}
