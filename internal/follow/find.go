// SPDX-License-Identifier: Apache-2.0

package follow

import (
	"cmp"
	"fmt"
	"math"
	"net/netip"
	"slices"

	"weir/internal/stats"
	"weir/internal/units"
)

// Finder finds out which rate a link has, of a host that enforces none. It takes looks 100 ms apart.
//
// While a queue stands in front of the link, what leaves that queue is the link's rate. It is the link's queue where
// several clients share what it carries: what one gets changes from second to second, and what all get does not. Where
// each client waits for a line of its own, each gets the same all the time.
type Finder struct {
	seen         []glance // of late, in the order of time
	queueSince   float64  // when the queue began to stand; 0: there is none
	allWaitedAt  float64  // when all clients waited last
	countedUntil float64  // until when it has been counted

	seconds    []second // with a full link, the last ones
	loneShares []share  // what one client alone got, the last looks
	why        Reason
}

// Reason is why a rate is not known yet.
type Reason int

// The reasons, in the order in which they are looked for.
const (
	Known       Reason = iota // it is known
	Quiet                     // little is sent
	Asleep                    // applications send less than the link would take
	Lossy                     // packets are lost, and none waits
	Empty                     // nothing waits beyond this host
	Alone                     // one client alone waits
	Measured                  // the link is full, for too short a time yet
	Apart                     // each client gets the same all the time
	Ragged                    // the rate changes from second to second
	Scattered                 // clients wait at different times
	DeviceLimit               // the link is full at this device's own speed: nothing is to be shaped
)

// String says it to a person; "" of Known.
func (r Reason) String() string {
	return map[Reason]string{
		Quiet:       "little is sent",
		Asleep:      "what is sent waits for its applications, and not for the link",
		Lossy:       "packets are lost and none waits: a policer may limit this host",
		Empty:       "nothing waits beyond this host: the link is not full",
		Alone:       "one client alone waits, and that may be for its own line",
		Measured:    "the link is full, and its rate is being measured",
		Apart:       "each client gets the same all the time: they may wait for lines of their own",
		Ragged:      "what is delivered changes from second to second",
		Scattered:   "clients wait at different times, and so not in one queue",
		DeviceLimit: "the device itself is the limit",
	}[r]
}

// glance is a look, as it is needed later. Times are in seconds, sizes in bits.
type glance struct {
	departure
	clients          map[netip.Addr]clientView
	minWait, maxWait float64 // that the least and the most of them waits
	delivered        float64 // packets
	arrived          float64 // bits of these, if all are full
	waiting          float64 // of those, on connections that wait for the network
	maybeWaiting     float64 // on others' connections, which may do so
	lost             float64
}

// clientView is what a client waits, how late that is known, in seconds, and how many packets it got.
type clientView struct{ wait, lag, packets float64 }

// second is about a second in which the link was full.
type second struct {
	rate        float64                // bit/s
	clientRates map[netip.Addr]float64 // packets a second that clients got
	backlogged  bool                   // connections that are known to have more to send got most of it
	// seconds that clients waited, look by look
	clientWaits map[netip.Addr][]float64
}

// NewFinder has seen nothing yet.
func NewFinder() *Finder { return &Finder{why: Quiet} }

// Look takes what was seen.
func (f *Finder) Look(l Look) {
	g := summarize(l)
	if n := len(f.seen); n > 0 {
		switch before := f.seen[n-1]; {
		case g.at <= before.at:
			return // a clock that stands still tells nothing
		case g.sent < before.sent || g.at-before.at > 2:
			f.seen, f.queueSince = nil, 0 // the counter began anew, or nobody has looked
		}
	}
	f.seen = trimLooks(append(f.seen, g), g.at-5)
	if g.minWait > minStandingDelay {
		f.allWaitedAt = g.at
	}
	switch {
	case len(g.clients) == 0,
		g.minWait <= minStandingDelay &&
			(g.maxWait <= visibleDelays*minStandingDelay || g.at-f.allWaitedAt > seemsEmptyTime):
		f.queueSince = 0
	case f.queueSince == 0:
		f.queueSince, f.countedUntil = g.at, g.at+fullStartGuard
	case g.at-fullEndGuard >= f.countedUntil+1:
		f.countSecond(g.at - fullEndGuard)
	}
	if n := len(f.seen); n > 1 && f.queueSince != 0 && g.at-f.queueSince >= fullStartGuard &&
		g.waiting >= minWaitingShare*g.delivered && !fromSeveralClients(g.packetsPerClient(), g.delivered) {
		// All of it is bulk data, and what is acknowledged has crossed the link.
		f.loneShares = append(f.loneShares, share{g.arrived, g.at - f.seen[n-2].at})
		f.loneShares = f.loneShares[max(0, len(f.loneShares)-maxLoneLooks):]
	}
	f.why = f.reason()
}

// Found is the rate of the link, in bit/s; false where it is not known yet.
func (f *Finder) Found() (units.Rate, bool) {
	if f.why != Known {
		return 0, false
	}
	return units.Rate(math.Round(stats.Mean(rates(withoutOutliers(f.seconds))))), true
}

// share is what was acknowledged from one look to the next.
type share struct{ bits, took float64 }

// Lone is what one client alone gets while something waits on its way, in bit/s, and false where that is not known. It
// is the rate of the link or of the client's own line: one client cannot tell these apart.
func (f *Finder) Lone() (units.Rate, bool) {
	first, last, half := share{}, share{}, 0.
	for _, s := range f.loneShares {
		half += s.took / 2
	}
	for _, s := range f.loneShares {
		of := &first
		if first.took >= half {
			of = &last
		}
		of.bits, of.took = of.bits+s.bits, of.took+s.took
	}
	if 2*half < minLoneTime || len(f.seconds) > 0 {
		return 0, false
	}
	a, b, both := first.bits/first.took, last.bits/last.took, (first.bits+last.bits)/(2*half)
	return units.Rate(math.Round(both)), agree(min(a, b), both, max(a, b))
}

// Why says what is waited for; "" once the rate is known.
func (f *Finder) Why() string {
	if rate, known := f.Lone(); known && f.why == Alone {
		return fmt.Sprintf("%s. It gets %.3g Mbit/s", f.why, float64(rate)/1e6)
	}
	if f.why == Measured {
		return fmt.Sprintf("%s: %d of %d s", f.why, min(len(f.seconds), neededSeconds-1), neededSeconds)
	}
	return f.why.String()
}

// Reason is what is waited for, for who decides by it.
func (f *Finder) Reason() Reason { return f.why }

// summarize reduces a Look to what Finder needs.
func summarize(l Look) glance {
	g := glance{departure: departure{l.At.Seconds(), 8 * l.Sent}, clients: map[netip.Addr]clientView{},
		minWait: math.Inf(1)}
	for _, c := range l.Connections {
		g.delivered, g.lost = g.delivered+c.Delivered, g.lost+c.Lost
		g.arrived += 8 * c.Delivered * c.Size
		switch {
		case c.Waits:
			g.waiting += c.Delivered
		case c.Forwarded && (c.RTT-c.Base).Seconds() > minStandingDelay:
			g.maybeWaiting += c.Delivered
		}
		if c.Delivered == 0 {
			continue
		}
		this := clientView{max(0, (c.RTT - c.Base).Seconds()), max(1e-3, c.Base.Seconds()) + c.lag(), c.Delivered}
		g.minWait, g.maxWait = min(g.minWait, this.wait), max(g.maxWait, this.wait)
		if before, is := g.clients[c.To]; is {
			if before.wait < this.wait {
				this.wait, this.lag = before.wait, before.lag
			}
			this.packets += before.packets
		}
		g.clients[c.To] = this
	}
	return g
}

// packetsPerClient is how many packets each client got.
func (g glance) packetsPerClient() map[netip.Addr]float64 {
	all := make(map[netip.Addr]float64, len(g.clients))
	for to, v := range g.clients {
		all[to] = v.packets
	}
	return all
}

// total adds up what connections carried in some looks.
func total(looks []glance) (all glance) {
	for _, g := range looks {
		all.delivered, all.lost = all.delivered+g.delivered, all.lost+g.lost
		all.waiting, all.maybeWaiting = all.waiting+g.waiting, all.maybeWaiting+g.maybeWaiting
	}
	return all
}

// isWaiting reports whether most of what is carried waits for the network, or seems to.
func (g glance) isWaiting() bool { return g.waiting+g.maybeWaiting >= minWaitingShare*g.delivered }

// countSecond takes what was seen until a time for a second more of a full link, if clients wait for the network.
func (f *Finder) countSecond(until float64) {
	var looks []glance
	got := map[netip.Addr]float64{}
	for _, g := range f.seen {
		if g.at < f.countedUntil || g.at > until {
			continue
		}
		looks = append(looks, g)
		for to, v := range g.clients {
			got[to] += v.packets
		}
	}
	all := total(looks)
	f.countedUntil = until
	var most netip.Addr // who gets most is told soonest
	for to, n := range got {
		if n > got[most] || n == got[most] && to.Less(most) {
			most = to
		}
	}
	if !all.isWaiting() || !fromSeveralClients(got, all.delivered) {
		return
	}
	rate, ok := f.departureRate(looks, most)
	if !ok {
		return
	}
	this := second{rate: rate * all.delivered / (all.delivered + all.lost), clientRates: got,
		backlogged:  all.waiting >= minWaitingShare*all.delivered,
		clientWaits: f.alignedWaits(looks, got, all.delivered)}
	for to := range got {
		got[to] /= looks[len(looks)-1].at - looks[0].at
	}
	f.seconds = append(f.seconds, this)
	f.seconds = f.seconds[max(0, len(f.seconds)-keptSeconds):]
}

// fromSeveralClients reports whether more than one client got some. Who has an address of IPv4 and one of IPv6 is one
// client.
func fromSeveralClients(got map[netip.Addr]float64, all float64) bool {
	clients := map[bool]int{}
	for to, n := range got {
		if n >= minClientShare*all {
			clients[to.Is4()]++
		}
	}
	return max(clients[true], clients[false]) > 1
}

// departureRate is what left the queue in bit/s, as one client's waits tell. What is acknowledged now left it some time
// ago, which is taken to be the same for all looks.
func (f *Finder) departureRate(looks []glance, to netip.Addr) (rate float64, ok bool) {
	late, n := 0., 0.
	for _, g := range looks {
		if v, is := g.clients[to]; is {
			late, n = late+v.lag, n+1
		}
	}
	var all []crossing
	for _, g := range looks {
		v, is := g.clients[to]
		if sent, known := sentAt(f.seen, g.at-late/n-v.wait); is && known {
			all = append(all, crossing{g.at, sent})
		}
	}
	rate, _ = linkRate(all)
	return rate, len(all) >= 6 && rate > 0
}

// withoutOutliers are the seconds without those whose rates are the highest or the lowest eighth, the lowest first.
func withoutOutliers(seconds []second) []second {
	s := slices.SortedFunc(slices.Values(seconds), func(a, b second) int { return cmp.Compare(a.rate, b.rate) })
	return s[len(s)/8 : len(s)-len(s)/8]
}

// agree reports whether rates from low to high agree.
func agree(low, middle, high float64) bool {
	return high-low <= rateTolerance*middle+tolerancePackets*packetBits
}

func rates(seconds []second) (all []float64) {
	for _, s := range seconds {
		all = append(all, s.rate)
	}
	return all
}

// reason is why a rate is not known; Known where it is.
func (f *Finder) reason() Reason {
	if len(f.seconds) < neededSeconds {
		return f.whyTooFew()
	}
	m := withoutOutliers(f.seconds)
	parts, all := variation(m)
	switch {
	case parts < minClientVariation*stats.Mean(rates(m))/packetBits:
		return Apart
	case !agree(m[0].rate, m[len(m)/2].rate, m[len(m)-1].rate):
		return Ragged
	case parts < clientVariationRatio*all:
		return Apart
	case !inOneQueue(f.seconds):
		return Scattered
	}
	return Known
}

// whyTooFew is why there are not enough seconds with a full link.
func (f *Finder) whyTooFew() Reason {
	single := 0
	looks := f.seen[max(0, len(f.seen)-20):]
	all := total(looks)
	for _, g := range looks {
		if !fromSeveralClients(g.packetsPerClient(), g.delivered) {
			single++
		}
	}
	first, last := looks[0], looks[len(looks)-1]
	switch {
	case last.sent-first.sent <= idleRate*(last.at-first.at) || all.delivered == 0:
		return Quiet
	case !all.isWaiting():
		return Asleep
	case f.queueSince == 0 && all.lost > 0.01*all.delivered:
		return Lossy
	case f.queueSince == 0:
		return Empty
	case 2*single > len(looks):
		return Alone
	}
	return Measured
}

// variation is by how much what single clients get varies from second to second, and what all get: packets a second.
func variation(seconds []second) (parts, all float64) {
	each := map[netip.Addr][]float64{}
	for i, s := range seconds {
		for to, n := range s.clientRates {
			if each[to] == nil {
				each[to] = make([]float64, len(seconds))
			}
			each[to][i] = n
		}
	}
	for _, x := range each {
		parts += math.Pow(stats.Deviation(x), 2)
	}
	return math.Sqrt(parts), stats.Deviation(rates(seconds)) / packetBits
}

// alignedWaits is what each client waited, look by look: of that each is told late, and not equally.
func (f *Finder) alignedWaits(looks []glance, got map[netip.Addr]float64, all float64) map[netip.Addr][]float64 {
	each := map[netip.Addr][]float64{}
	for to, n := range got {
		var waits []float64
		for _, g := range looks {
			if v, is := g.clients[to]; is && n >= minClientShare*all {
				if q, known := f.waitAt(to, g.at-(maxLag(g)-v.lag)); known {
					waits = append(waits, q)
				}
			}
		}
		if len(waits) == len(looks) {
			each[to] = waits
		}
	}
	return each
}

// waitAt is what was last seen of a client's wait at a time; false where that is long before.
func (f *Finder) waitAt(to netip.Addr, t float64) (float64, bool) {
	for i := len(f.seen) - 1; i >= 0 && f.seen[i].at > t-fullEndGuard; i-- {
		if v, is := f.seen[i].clients[to]; is && f.seen[i].at <= t {
			return v.wait, true
		}
	}
	return 0, false
}

// maxLag is by how much the client's wait is late that is told last.
func maxLag(g glance) (late float64) {
	for _, v := range g.clients {
		late = max(late, v.lag)
	}
	return late
}

// inOneQueue reports whether clients waited in one queue: their waits rise and fall together. Where it is known that
// they waited for the network it need not be asked.
func inOneQueue(seconds []second) bool {
	told := 0
	var clients []netip.Addr
	for _, s := range seconds {
		if s.backlogged {
			told++
		}
		for to := range s.clientWaits {
			if !slices.Contains(clients, to) {
				clients = append(clients, to)
			}
		}
	}
	if 4*told >= 3*len(seconds) {
		return true
	}
	sum, pairs := 0., 0.
	for i, a := range clients {
		for _, b := range clients[:i] {
			var x, y []float64
			for _, s := range seconds {
				if s.clientWaits[a] != nil && s.clientWaits[b] != nil {
					x, y = append(x, s.clientWaits[a]...), append(y, s.clientWaits[b]...)
				}
			}
			if looks := 10; 2*len(x) >= looks*len(seconds) {
				sum, pairs = sum+stats.Correlation(x, y), pairs+1
			}
		}
	}
	return pairs > 0 && sum >= minWaitCorrelation*(pairs+0.5) // one pair may do so by chance
}
