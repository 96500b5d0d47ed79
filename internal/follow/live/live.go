// SPDX-License-Identifier: Apache-2.0

// Package live follows the links of this host: it looks at queues and connections, asks follow what they mean, and has
// change set the rate.
//
// It may not decide anything, nor touch the host in any other way. It reads what the kernel keeps anyway, sends nothing
// and needs no other host.
package live

import (
	"context"
	"math"
	"net/netip"
	"slices"
	"time"

	"weir/internal/change"
	"weir/internal/follow"
	"weir/internal/host"
	"weir/internal/qdisc"
	"weir/internal/units"
)

// Event is that another rate was set, or why none can be.
type Event struct {
	At   time.Time  `json:"at"`
	Dev  string     `json:"dev"`
	Rate units.Rate `json:"rate,omitempty"` // bit/s, that the shaper has now
	Why  string     `json:"why"`
	// the link has moved, or more was tried: there may be many of these in a second
	Moves bool `json:"moves"`
}

const (
	// Looks while the link is loaded and while it is not. A look may take no more of a core than share.
	soonest, latest, idle = 20 * time.Millisecond, 100 * time.Millisecond, 250 * time.Millisecond
	share                 = 0.004
	// All connections are looked at this often, or as often as a tenth of a percent of a core allows. A few of those
	// that carry most are then looked at each time.
	every      = 2 * time.Second
	shareOfAll = 0.001
	few        = 8
	// busy is the share of the rate from which on a link is loaded.
	busy = 0.5
	// again is how long to wait for a queue that is gone.
	again = 5 * time.Second
	// known is how many addresses' base RTTs are kept.
	known = 4096
)

// Run follows every goal in force that says so, until it is told to end. Each event is handed over, from several
// goroutines, one at a time is for the caller to see to.
func Run(ctx context.Context, store change.Store, each func(Event)) error {
	said := map[string]string{}
	for {
		shapers, why, err := store.Shapers()
		if err != nil {
			return err
		}
		for _, note := range why {
			if said[note.Subject] != note.Text {
				each(Event{At: time.Now(), Dev: note.Subject, Why: note.Text})
			}
			said[note.Subject] = note.Text
		}
		done := make(chan error, len(shapers))
		within, stop := context.WithCancel(ctx)
		for _, s := range shapers {
			delete(said, s.Goal.Dev)
			go func() { done <- one(within, s, each) }()
		}
		for i := range shapers {
			if err := <-done; err != nil && i == 0 {
				stop() // another goal, or another queue: all are looked for anew
			}
		}
		stop()
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(again):
		}
	}
}

// one follows one shaper, until its queue is gone.
func one(ctx context.Context, s *change.Shaper, each func(Event)) error {
	defer s.Close()
	connections, err := host.OpenConnections(false)
	if err != nil {
		return err
	}
	defer connections.Close()
	e := eye{connections: connections, begin: time.Now(), cake: s.Cake(), least: map[netip.Addr]time.Duration{}}
	f := follow.New(s.Rate(), s.Low, s.High)
	say := func(why string, moves bool) { each(Event{time.Now(), s.Goal.Dev, s.Rate(), why, moves}) }
	say("followed, between "+s.Low.String()+" and "+s.High.String(), false)
	for {
		before := time.Now()
		stats, err := s.Stats()
		if err != nil {
			return err
		}
		look, err := e.look(stats)
		if err != nil {
			return err
		}
		rate, why := f.Look(look)
		if math.Abs(float64(rate)/float64(s.Rate())-1) > 0.001 {
			if err := s.Set(rate); err != nil {
				return err
			}
			say(why, true)
		}
		pause := idle
		if e.loaded(look, s.Rate()) || !f.Calm() {
			pause = max(soonest, min(latest, time.Duration(float64(time.Since(before))/share)))
		}
		select {
		case <-ctx.Done():
			if err := s.Leave(); err != nil {
				return err
			}
			say("stays as it is", false)
			return nil
		case <-time.After(pause):
		}
	}
}

// eye is what looks remember.
type eye struct {
	connections *host.Connections
	begin       time.Time
	cake        qdisc.Cake
	due         time.Time // of the next look at all connections
	chosen      []host.Connection
	carried     map[uint64]uint32 // segments, by cookie, at the last look at all
	at          time.Time         // of that
	rates       map[uint64]float64
	least       map[netip.Addr]time.Duration
	before      follow.Look
}

// look sums up what is to be seen now.
func (e *eye) look(stats qdisc.Stats) (follow.Look, error) {
	if now := time.Now(); !now.Before(e.due) {
		all, err := e.connections.Read()
		if err != nil {
			return follow.Look{}, err
		}
		e.choose(all)
		e.due = now.Add(max(every, time.Duration(float64(time.Since(now))/shareOfAll)))
	}
	now, err := e.connections.Again(e.chosen)
	if err != nil {
		return follow.Look{}, err
	}
	l := follow.Look{At: time.Since(e.begin), Sent: Counted(e.cake, stats), Backlog: float64(stats.Backlog)}
	l.Own = ownDelay(stats)
	for _, c := range now {
		i := slices.IndexFunc(e.chosen, func(x host.Connection) bool { return x.Cookie == c.Cookie })
		base := e.base(c)
		if c.Info.Delivered == e.chosen[i].Info.Delivered || base == 0 {
			continue // nothing new is known of it
		}
		l.Connections = append(l.Connections, follow.Connection{RTT: time.Duration(c.Info.Rtt) * time.Microsecond,
			Base: base, Rate: e.rates[c.Cookie]})
	}
	e.chosen = now
	return l, nil
}

// loaded tells whether the link may be full.
func (e *eye) loaded(l follow.Look, rate units.Rate) bool {
	took := (l.At - e.before.At).Seconds()
	sent := 8 * (l.Sent - e.before.Sent)
	e.before = l
	return l.Backlog > 0 || took > 0 && sent/took > busy*float64(rate)
}

// choose takes those that have carried most since all were looked at last.
func (e *eye) choose(all []host.Connection) {
	carried := make(map[uint64]uint32, len(all))
	for _, c := range all {
		carried[c.Cookie] = c.Info.Delivered
		e.base(c)
	}
	since := func(c host.Connection) uint32 { return c.Info.Delivered - e.carried[c.Cookie] }
	slices.SortFunc(all, func(a, b host.Connection) int { return int(int64(since(b)) - int64(since(a))) })
	e.chosen = slices.Clone(all[:min(few, len(all))])
	now := time.Now()
	e.rates = map[uint64]float64{}
	for _, c := range e.chosen {
		if before, seen := e.carried[c.Cookie]; seen && now.After(e.at) {
			e.rates[c.Cookie] = float64(c.Info.Delivered-before) / now.Sub(e.at).Seconds()
		}
	}
	e.carried, e.at = carried, now
}

// base is the least RTT that was ever seen to where a connection goes: its own may have begun in a queue.
func (e *eye) base(c host.Connection) time.Duration {
	to := c.Remote.Addr()
	least, seen := e.least[to]
	if own := time.Duration(c.Info.Min_rtt) * time.Microsecond; own > 0 && c.Info.Min_rtt != math.MaxUint32 &&
		(!seen || own < least) {
		if len(e.least) >= known {
			clear(e.least)
		}
		e.least[to], least = own, own
	}
	return least
}

// Counted is how many bytes a CAKE has sent, as its shaper counts them.
func Counted(q qdisc.Cake, s qdisc.Stats) float64 {
	bytes, packets := float64(s.Bytes), float64(s.Packets)
	if q.Raw {
		return bytes
	}
	header := 14. // of Ethernet; CAKE says what it has seen
	if x, ok := s.X.(qdisc.CakeStats); ok && x.AvgOverhead > 0 {
		header = float64(x.AvgOverhead)
	}
	bytes += packets * (float64(q.Overhead) - header)
	if q.ATM == "atm" {
		const cell, payload = 53, 48
		bytes = (bytes + packets*payload/2) * cell / payload // each packet fills its last cell by half
	}
	return bytes
}

// ownDelay is how long packets have waited in a CAKE of late: the peak of those tins in which some wait now.
func ownDelay(s qdisc.Stats) (most time.Duration) {
	x, _ := s.X.(qdisc.CakeStats)
	for _, tin := range x.Tins {
		if tin.Backlog > 0 {
			most = max(most, time.Duration(max(tin.PeakDelay, tin.AvgDelay))*time.Microsecond)
		}
	}
	return most
}
