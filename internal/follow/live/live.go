// SPDX-License-Identifier: Apache-2.0

// Package live follows the links of this host: it looks at queues and connections, asks follow what they mean, and has
// change set the rate.
//
// It may not decide anything, nor touch the host in any other way. It reads what the kernel keeps anyway, sends nothing
// and needs no other host.
package live

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"net/netip"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"weir/internal/change"
	"weir/internal/follow"
	"weir/internal/follow/presence"
	"weir/internal/host"
	"weir/internal/journal"
	"weir/internal/qdisc"
	"weir/internal/shaper"
	"weir/internal/units"
	"weir/internal/wire"
)

// Event is that another rate was set, or why none can be.
type Event struct {
	At   time.Time  `json:"at"`
	Dev  string     `json:"dev"`            // empty: it is about all of them
	Rate units.Rate `json:"rate,omitempty"` // bit/s, that the shaper has now
	Why  string     `json:"why"`
	// the link has moved, or more was tried: there may be many of these in a second
	Moves bool `json:"moves"`
}

// Run follows each goal in force that asks for it, until ctx is done. It calls onEvent for every rate that it sets and
// every reason why it cannot set one, and onChange when what it does about a device changes; both from several
// goroutines at once: the caller serializes. If the goals cannot be read for now it reports that as an event and tries
// again. It returns an error only if this process lacks the permission to read them.
func Run(ctx context.Context, store change.Store, onEvent func(Event),
	onChange func(dev string, does presence.Doing)) error {
	ctx, stop := context.WithCancel(ctx)
	at := work{each: onEvent, tell: onChange, on: map[string]bool{}, ended: make(chan string),
		said: map[string]string{}}
	defer func() {
		stop()
		for range at.on {
			<-at.ended
		}
	}()
	tick := time.NewTicker(journalInterval)
	defer tick.Stop()
	changed := store.Changed()
	for {
		begun := time.Now()
		all, err := at.begin(ctx, store)
		if errors.Is(err, fs.ErrPermission) {
			return err
		}
		if err != nil {
			at.sayOnce("", err.Error())
		} else {
			delete(at.said, "")
		}
		for look := false; !look; {
			select {
			case <-ctx.Done():
				return nil
			case dev := <-at.ended:
				delete(at.on, dev)
				all = false
			case <-tick.C:
				look = changed() || !all && time.Since(begun) >= retryInterval
			}
		}
	}
}

// work is what is done about devices, each in a goroutine.
type work struct {
	each  func(Event)
	tell  func(string, presence.Doing)
	on    map[string]bool // devices on which it is
	ended chan string
	said  map[string]string // why a device is not followed, that was told last
}

// begin looks for what is to be done, and starts what is not done yet. It reports whether all of it is done then: if
// not, it is to be looked again.
func (w work) begin(ctx context.Context, store change.Store) (all bool, err error) {
	unknown, err := store.Unknown()
	if err != nil {
		return false, err
	}
	shapers, why, err := store.Shapers()
	if err != nil {
		for _, s := range shapers {
			s.Close()
		}
		return false, err
	}
	for _, note := range why {
		w.sayOnce(note.Subject, note.Text)
	}
	for _, s := range shapers {
		if w.on[s.Dev] { // it ends by itself where the goal is another
			s.Close()
			continue
		}
		delete(w.said, s.Goal.Dev)
		w.start(ctx, s.Dev, func(tell func(presence.Doing)) error { return one(ctx, s, w.each, tell) })
	}
	for _, u := range unknown {
		if w.on[u.Goal.Dev] {
			continue
		}
		s, err := prepare(u, maxListCPU) // not in the goroutine, whose thread may have another network namespace
		w.start(ctx, u.Goal.Dev, func(tell func(presence.Doing)) error {
			if err != nil {
				return err
			}
			return s.learn(ctx, store, w.each, tell)
		})
	}
	return len(why) == 0 && len(w.on) > 0, nil
}

// sayOnce sends an event that says why a device is not followed, or all are not, unless that was told last.
func (w work) sayOnce(dev, why string) {
	if w.said[dev] != why {
		w.each(Event{At: time.Now(), Dev: dev, Why: why})
	}
	w.said[dev] = why
}

// start does something about a device. Why it ends by itself is told.
func (w work) start(ctx context.Context, dev string, does func(tell func(presence.Doing)) error) {
	w.on[dev] = true
	go func() {
		err := does(func(d presence.Doing) { w.tell(dev, d) })
		if err != nil && ctx.Err() == nil {
			w.each(Event{At: time.Now(), Dev: dev, Why: err.Error()})
			w.tell(dev, presence.Doing{Waits: err.Error()})
		}
		w.ended <- dev
	}()
}

// listener looks for a rate.
type listener struct {
	change.Unmeasured
	conn *qdisc.Conn
	*eye
}

func prepare(u change.Unmeasured, share float64) (s listener, err error) {
	s.Unmeasured = u
	if s.conn, err = qdisc.Dial(0); err != nil {
		return s, err
	}
	if s.eye, err = open(u.Goal.Dev, u.Counts, u.NoLinkHeader, maxSearchLooked, u.Forwarding); err != nil {
		s.conn.Close()
		return s, err
	}
	s.ofAll = share
	return s, nil
}

func (s listener) close() {
	s.eye.close()
	s.conn.Close()
}

// learn finds the rate of a goal that does not say it, and has the goal brought up with that.
func (s listener) learn(
	ctx context.Context, store change.Store, each func(Event), tell func(presence.Doing),
) error {
	rate, err := s.search(ctx, store, each, tell)
	if rate == 0 {
		return err
	}
	if err == nil {
		why := "clients of several networks filled the link"
		tell(presence.Doing{Last: &presence.Step{At: time.Now(), To: rate, Why: why}})
		return nil
	}
	each(Event{At: time.Now(), Dev: s.Goal.Dev, Why: err.Error()})
	tell(presence.Doing{Waits: err.Error()})
	for begun := time.Now(); time.Since(begun) < failurePause && store.Sought(s.Unmeasured); {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(hostInterval):
		}
	}
	return nil
}

// search looks for a rate and has the goal brought up with it, and ends the listening. A rate with an error is one that
// could not be kept.
func (s listener) search(
	ctx context.Context, store change.Store, each func(Event), tell func(presence.Doing),
) (units.Rate, error) {
	defer s.close()
	say := func(why string) { each(Event{At: time.Now(), Dev: s.Goal.Dev, Why: why}) }
	say("its rate is looked for")
	waits := func(w Wait) { tell(presence.Doing{Waits: w.Text}) }
	rate, err := s.find(ctx, waits, func() bool { return !store.Sought(s.Unmeasured) })
	if err != nil {
		return 0, err
	}
	say("the link carries " + rate.String() + ": it is brought up with that")
	for {
		err = store.Learn(s.Goal, rate, s.moves)
		if !errors.Is(err, journal.ErrBusy) || !store.Sought(s.Unmeasured) {
			return rate, err
		}
		select {
		case <-ctx.Done():
			return 0, ctx.Err()
		case <-time.After(retryInterval): // another goal waits to be confirmed
		}
	}
}

// Find looks at the host's own traffic until the rate of the link is known, in bit/s. What it waits for is told as
// often as it changes.
func Find(ctx context.Context, u change.Unmeasured, waits func(Wait)) (units.Rate, error) {
	s, err := prepare(u, maxAwaitedCPU)
	if err != nil {
		return 0, err
	}
	defer s.close()
	return s.find(ctx, waits, func() bool { return false })
}

// Wait is why a rate is not known yet.
type Wait struct {
	Reason follow.Reason
	Text   string     // the reason for a person, with its figures
	Lone   units.Rate // what one client alone gets (follow.Finder.Lone); 0: not known
}

// find looks until the rate is known, or nobody wants to know it any more, which it asks from time to time.
func (s listener) find(ctx context.Context, waits func(Wait), enough func() bool) (units.Rate, error) {
	f, said, asked := follow.NewFinder(), "", time.Now()
	for {
		stats, there, err := s.conn.RootStats(s.Link)
		if err != nil {
			return 0, err
		}
		if !there {
			return 0, errors.New(s.Goal.Dev + " has no queue that counts")
		}
		look, err := s.look(stats)
		if err != nil {
			return 0, err
		}
		f.Look(look)
		rate, found := f.Found()
		reason, why := f.Reason(), f.Why()
		if found && s.Speed != 0 && float64(rate) > deviceLimitShare*float64(s.Speed) {
			found, reason = false, follow.DeviceLimit
			why = fmt.Sprintf("%v, %s: nothing is to be shaped", reason, s.Speed)
		}
		if why != said {
			lone, _ := f.Lone()
			said = why
			if s.blind != "" && !found {
				why += "; " + s.blind
			}
			waits(Wait{reason, why, lone})
		}
		if found {
			return rate, nil
		}
		if time.Since(asked) > hostInterval {
			if asked = time.Now(); enough() {
				return 0, errors.New("the goal, or what this host forwards, is another by now")
			}
		}
		pause := searchInterval
		if len(look.Connections) == 0 {
			pause = idleLookInterval
		}
		select {
		case <-ctx.Done():
			return 0, ctx.Err()
		case <-time.After(pause):
		}
	}
}

// controller says which rate to set: follow's.
type controller interface {
	Look(follow.Look) (units.Rate, string)
	Calm() bool
	Settled() units.Rate
}

// follows is what follows a shaper, and what it sees.
func follows(s *change.Shaper) (controller, *eye, error) {
	told := follow.Told{Link: s.Goal.Inward(), Usual: s.Usual, Low: s.Low, High: s.High}
	if s.Tunnels {
		return follow.NewTunnels(s.Rate(), told),
			&eye{begin: sinceBoot(), counts: s.Counts(), bare: s.NoLinkHeader, received: s.Received}, nil
	}
	if s.AfterProvider {
		return follow.NewInward(s.Rate(), told), &eye{begin: sinceBoot(), counts: s.Counts(), bare: s.NoLinkHeader}, nil
	}
	e, err := open(s.Goal.Dev, s.Counts(), s.NoLinkHeader, maxLooked, s.Forwards)
	return follow.New(s.Rate(), s.Low, s.High), e, err
}

// one follows one shaper, until its queue is gone.
func one(ctx context.Context, s *change.Shaper, each func(Event), tell func(presence.Doing)) error {
	defer s.Close()
	f, e, err := follows(s)
	if err != nil {
		return err
	}
	defer e.close()
	say := func(why string, moves bool) { each(Event{time.Now(), s.Dev, s.Rate(), why, moves}) }
	say("followed, between "+s.Low.String()+" and "+s.High.String(), false)
	err = steer(ctx, s, f, e, say, tell)
	if err = cmp.Or(err, s.Leave(f.Settled())); err == nil { // however it ends
		say("stays as it is", false)
	}
	return err
}

// steer gives a shaper the rates that its controller says, until it is told to end. An error is a queue that cannot be
// followed any more.
func steer(
	ctx context.Context, s *change.Shaper, f controller, e *eye, say func(string, bool), tell func(presence.Doing),
) error {
	kept, blind := steps{rate: s.Rate()}, ""
	tell(kept.does)
	for {
		if e.blind != blind {
			blind = e.blind
			say(blind, false)
		}
		before := time.Now()
		stats, err := s.Stats()
		if err != nil {
			return err
		}
		if err := s.CheckCurrent(); err != nil {
			return err
		}
		look, err := e.look(stats)
		if err != nil {
			return err
		}
		rate, why := f.Look(look)
		if apart(rate, s.Rate()) > minRateChange {
			set, err := s.Steer(rate)
			if err != nil {
				return err
			}
			if set {
				say(why, true)
			}
		}
		if kept.add(time.Now(), s.Rate(), why, f.Calm()) {
			tell(kept.does)
		}
		pause := idleLookInterval
		if e.loaded(look, s.Rate()) || !f.Calm() {
			pause = max(minLookInterval, min(maxLookInterval, time.Duration(float64(time.Since(before))/maxLookCPU)))
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(pause):
		}
	}
}

// apart is by which share one rate is not another.
func apart(a, b units.Rate) float64 { return math.Abs(float64(a)/float64(b) - 1) }

// steps sums up what a follower does: what it tries at the moment, and the last change that stayed.
type steps struct {
	rate units.Rate // that stayed, in bit/s
	does presence.Doing
}

// add takes a rate, why it is set if that is new, and whether it stays. It reports whether there is anything new to
// tell.
func (s *steps) add(at time.Time, rate units.Rate, why string, calm bool) bool {
	const least = 0.03 // of the rate: what is tried every few seconds is not to hide why that is what it is
	before := s.does
	if !calm {
		s.does.Tries = cmp.Or(why, s.does.Tries)
		return s.does != before
	}
	if apart(rate, s.rate) > least {
		s.does.Last = &presence.Step{At: at, From: s.rate, To: rate, Why: cmp.Or(why, s.does.Tries)}
		s.rate = rate
	}
	s.does.Tries = ""
	return s.does != before
}

// sinceBoot goes on while the machine sleeps.
func sinceBoot() time.Duration {
	var t unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_BOOTTIME, &t) // which every kernel has
	return time.Duration(t.Nano())
}

// eye is what looks remember.
type eye struct {
	connections *host.Connections
	ways        *ways
	forwarded   *forwarded
	blind       string        // why forwarded connections are not seen
	few         int           // that are looked at each time
	ofAll       float64       // of a core, that looks at all may take
	begin       time.Duration // since the boot
	counts      qdisc.Framing
	bare        bool                           // the device's packets have no header
	received    func() (qdisc.Received, error) // of a relay with tunnels: what has come in by its card
	due         time.Time                      // of the next look at all connections
	chosen      []host.Connection
	carried     map[uint64]uint32 // segments, by cookie, at the last look at all
	at          time.Time         // of that
	rates       map[uint64]float64
	least       map[netip.Addr]time.Duration
	before      follow.Look
}

// open prepares looks at the connections that pass a device's queue, and at forwarded ones behind some devices.
func open(dev string, counts qdisc.Framing, bare bool, few int, forwarding []int) (*eye, error) {
	connections, err := host.OpenConnections()
	if err != nil {
		return nil, err
	}
	e := &eye{connections: connections, few: few, ofAll: maxListCPU, begin: sinceBoot(), counts: counts,
		bare: bare, least: map[netip.Addr]time.Duration{}}
	if e.ways, err = openWays(dev); err != nil {
		connections.Close()
		return nil, err
	}
	if len(forwarding) > 0 {
		if e.forwarded, err = openForwarded(forwarding); err != nil {
			e.see(err)
		}
	}
	return e, nil
}

// see notes why forwarded connections are not seen any more. The others are.
func (e *eye) see(err error) {
	if err == nil {
		return
	}
	e.blind = "connections that this host forwards are not seen: " + err.Error()
	if e.forwarded != nil {
		e.forwarded.watch.Close()
		e.forwarded = nil
	}
}

func (e *eye) close() {
	if e.connections != nil {
		e.connections.Close()
	}
	if e.ways != nil {
		e.ways.close()
	}
	if e.forwarded != nil {
		e.forwarded.watch.Close()
	}
}

// look sums up what is to be seen now. Behind the provider's queue that is the shaper's counters, and no connection.
func (e *eye) look(stats qdisc.Stats) (follow.Look, error) {
	l := follow.Look{At: sinceBoot() - e.begin, Sent: e.sent(stats), Backlog: float64(stats.Backlog),
		Own: ownDelay(stats), Dropped: float64(stats.Drops)}
	if e.connections == nil {
		l.Here = l.Sent + l.Backlog + float64(stats.Drops)*droppedPacketSize
		l.Came = l.Here
		if e.received == nil {
			return l, nil
		}
		r, err := e.received()
		l.Came = counted(e.counts, float64(r.Bytes), float64(r.Packets), min(wire.EthernetHeader, e.header(stats)))
		return l, err
	}
	if now := time.Now(); !now.Before(e.due) {
		all, err := e.connections.Read()
		if err != nil {
			return follow.Look{}, err
		}
		e.choose(all)
		if e.forwarded != nil {
			e.see(e.forwarded.choose(e.few))
		}
		e.due = now.Add(max(minListInterval, time.Duration(float64(time.Since(now))/e.ofAll)))
	}
	now, err := e.connections.Again(e.chosen)
	if err != nil {
		return follow.Look{}, err
	}
	l.Connections = e.moved(now)
	if e.forwarded != nil {
		flows, err := e.forwarded.again()
		e.see(err)
		l.Connections = append(l.Connections, e.movedPairs(flows)...)
	}
	return l, nil
}

// moved are the chosen connections that have carried something since the look before. A kernel that does not tell
// what was delivered, or no RTT, leaves none: nothing is known then.
func (e *eye) moved(now []host.Connection) (all []follow.Connection) {
	for j, c := range now {
		i := slices.IndexFunc(e.chosen, func(x host.Connection) bool { return x.Cookie == c.Cookie })
		base := e.base(c.Remote.Addr(), leastOf(c))
		if i < 0 {
			continue
		}
		if c.Info.Delivered == e.chosen[i].Info.Delivered || base == 0 {
			now[j].Info = e.chosen[i].Info // nothing new is known of it; what it lost counts when there is
			continue
		}
		before := e.chosen[i].Info
		all = append(all, follow.Connection{ID: c.Cookie, Acks: c.Info.Segs_in,
			RTT: time.Duration(c.Info.Rtt) * time.Microsecond, Base: base, Rate: e.rates[c.Cookie],
			To: network(c.Remote.Addr()), Delivered: float64(c.Info.Delivered - before.Delivered),
			Size: e.size(c.Remote.Addr(), c.Info.Snd_mss, c.Info.Options&timestampsOption != 0),
			Lost: float64(c.Info.Total_retrans - before.Total_retrans), Waits: c.Info.Notsent_bytes > 0})
	}
	e.chosen = now
	return all
}

// loaded reports whether the link may be full.
func (e *eye) loaded(l follow.Look, rate units.Rate) bool {
	took := (l.At - e.before.At).Seconds()
	sent := 8 * (l.Sent - e.before.Sent)
	e.before = l
	return l.Backlog > 0 || took > 0 && sent/took > loadedShare*float64(rate)
}

// choose takes those that have carried most since all were looked at last, of those that may pass the queue.
func (e *eye) choose(all []host.Connection) {
	carried := make(map[uint64]uint32, len(all))
	for _, c := range all {
		carried[c.Cookie] = c.Info.Delivered
		e.base(c.Remote.Addr(), leastOf(c))
	}
	all = spread(all, func(c host.Connection) (uint64, netip.Addr) {
		return uint64(c.Info.Delivered - e.carried[c.Cookie]), c.Remote.Addr()
	})
	old := e.chosen
	e.chosen = make([]host.Connection, 0, e.few)
	for _, c := range all[:min(maxRanked, len(all))] {
		if len(e.chosen) < e.few && (e.ways == nil || e.ways.pass(c)) {
			e.chosen = append(e.chosen, c)
		}
	}
	now := time.Now()
	e.rates = map[uint64]float64{}
	for _, c := range e.chosen {
		if before, seen := e.carried[c.Cookie]; seen && now.After(e.at) {
			e.rates[c.Cookie] = float64(c.Info.Delivered-before) / now.Sub(e.at).Seconds()
		}
	}
	e.carried, e.at = carried, now
	for i, c := range e.chosen { // what it has carried since the last look counts at the next
		if j := slices.IndexFunc(old, func(x host.Connection) bool { return x.Cookie == c.Cookie }); j >= 0 {
			e.chosen[i].Info = old[j].Info
		}
	}
}

// spread puts first what has carried most, but a network's second connection after every other network's first, so that
// no client takes all places by having many. Those that have carried little come last.
func spread[C any](all []C, carried func(C) (much uint64, to netip.Addr)) []C {
	much := func(c C) uint64 { n, _ := carried(c); return n }
	slices.SortFunc(all, func(a, b C) int { return cmp.Compare(much(b), much(a)) })
	var turns [][]C
	places := map[netip.Addr]int{}
	for i, c := range all {
		n, to := carried(c)
		if n <= much(all[0])/littleCarried {
			turns = append(turns, all[i:])
			break
		}
		turn := places[network(to)]
		if places[network(to)]++; turn == len(turns) {
			turns = append(turns, nil)
		}
		turns[turn] = append(turns[turn], c)
	}
	return slices.Concat(turns...)
}

// moves reports whether any connection by the device has carried something since it was asked last.
func (e *eye) moves() bool {
	connections, err := host.OpenConnections()
	if err != nil {
		return false
	}
	defer connections.Close()
	all, err := connections.Read()
	if err != nil {
		return false
	}
	passed := e.forwarded != nil && e.forwarded.moves()
	return e.carryOn(all) || passed
}

// carryOn reports whether one of these that may pass the device has carried something since the last look.
func (e *eye) carryOn(all []host.Connection) (moved bool) {
	before := e.carried
	e.carried = make(map[uint64]uint32, len(all))
	for _, c := range all {
		e.carried[c.Cookie] = c.Info.Delivered
		moved = moved || c.Info.Delivered != before[c.Cookie] && (e.ways == nil || e.ways.pass(c))
	}
	return moved
}

// network is that of a client's provider: who shares one may share a line. Those of IPv6 have a /48: it is the most
// that a site is given (RFC 6177), and a client that has one has 256 of /56 to speak from.
func network(a netip.Addr) netip.Addr {
	const four, six = 24, 48
	bits := six
	if a.Is4() {
		bits = four
	}
	p, err := a.Prefix(bits)
	if err != nil {
		return a
	}
	return p.Addr()
}

// leastOf is the least RTT that a connection has seen; 0 where it knows none.
func leastOf(c host.Connection) time.Duration {
	if c.Info.Min_rtt == math.MaxUint32 {
		return 0
	}
	return time.Duration(c.Info.Min_rtt) * time.Microsecond
}

// base is the least RTT that was ever seen to where a connection goes: its own may have begun in a queue.
func (e *eye) base(to netip.Addr, own time.Duration) time.Duration {
	least, seen := e.least[to]
	if own > 0 && (!seen || own < least) {
		if len(e.least) >= maxKnownAddresses {
			clear(e.least)
		}
		e.least[to], least = own, own
	}
	return least
}

// sent is how many bytes a queue has sent, as its shaper counts them.
func (e *eye) sent(s qdisc.Stats) float64 {
	return counted(e.counts, float64(s.Bytes), float64(s.Packets), e.header(s))
}

// header is what there is before each packet, in bytes, as a CAKE has seen it: a mean that begins with 0. It is
// Ethernet's at least, unless the device has none.
func (e *eye) header(s qdisc.Stats) float64 {
	x, _ := s.X.(qdisc.CakeStats)
	if e.bare {
		return float64(x.AvgOverhead)
	}
	return max(wire.EthernetHeader, float64(x.AvgOverhead))
}

// counted is what a shaper counts of bytes in packets that a device counts with that header.
func counted(q qdisc.Framing, bytes, packets, header float64) float64 {
	if q.Raw {
		return bytes
	}
	bytes += packets * (float64(q.Overhead) - header)
	if q.ATM == "atm" {
		// each packet fills its last cell by half
		bytes = (bytes + packets*wire.CellPayload/2) * wire.Cell / wire.CellPayload
	}
	return bytes
}

// timestampsOption is of a connection whose packets carry the time (TCPI_OPT_TIMESTAMPS, of include/uapi/linux/tcp.h).
const timestampsOption = 1

// size is what a shaper counts of a connection's full packet, in bytes.
func (e *eye) size(to netip.Addr, mss uint32, times bool) float64 {
	const four, six, tcp, stamps = 20, 40, 20, 12 // RFC 791, 8200, 9293, 7323
	q, packet := e.counts, int64(mss)+tcp+six
	if to.Unmap().Is4() {
		packet += four - six
	}
	if times {
		packet += stamps
	}
	if q.Raw && !e.bare {
		packet += wire.EthernetHeader
	}
	if q.Raw {
		return float64(packet)
	}
	packet = max(packet+int64(q.Overhead), int64(q.MPU))
	if q.ATM == "atm" {
		packet = int64(wire.Cells(int(packet)))
	}
	return float64(packet)
}

// ownDelay is how long packets have waited in a queue of late: in CAKE the peak of those tins in which some wait now.
func ownDelay(s qdisc.Stats) (most time.Duration) {
	if x, is := s.X.(shaper.Stats); is && s.Backlog > 0 {
		return time.Duration(x.Wait)
	}
	x, _ := s.X.(qdisc.CakeStats)
	for _, tin := range x.Tins {
		if tin.Backlog > 0 {
			most = max(most, time.Duration(max(tin.PeakDelay, tin.AvgDelay))*time.Microsecond)
		}
	}
	return most
}
