// SPDX-License-Identifier: Apache-2.0

// Package watch shows a host's uplink as it is now and was in the last ten minutes: its queue, where the bottleneck is,
// the connections, the timer, and the findings that came and went.
//
// It changes nothing, and it judges nothing that another package judges: findings are doctor's, networks are live's.
// All of it is pure but reader.go, which reads the host, and screen.go, which is the terminal's.
package watch

import (
	"math"
	"slices"
	"time"

	"weir/internal/bbr"
	"weir/internal/change"
	"weir/internal/doctor"
	"weir/internal/follow/presence"
	"weir/internal/host"
	"weir/internal/kernel"
	"weir/internal/meter/live"
	"weir/internal/qdisc"
	"weir/internal/shaper"
	"weir/internal/units"
)

// Kept is how far back one can see.
const Kept = 10 * time.Minute

// Queue is what stands at a device, and what it has counted up to a moment.
type Queue struct {
	Dev    string        `json:"dev"`
	Kind   string        `json:"kind,omitempty"`  // of the root
	Rate   units.Rate    `json:"rate,omitempty"`  // bit/s that its shaper enforces; 0: it has none
	Speed  units.Rate    `json:"speed,omitempty"` // bit/s of the device; 0: not known
	Stats  qdisc.Stats   `json:"-"`               // the root's
	Parts  []kernel.Part `json:"parts,omitempty"`
	Hidden string        `json:"hidden,omitempty"` // what of it cannot be seen, and why

	// of a bpf_shaper, those that sent or lost something of late: the busiest 100, the fastest first
	Clients []shaper.ClientRate `json:"clients,omitempty"`
}

// Counts is how often a queue is looked at.
const Counts = 4 // a second

// Second is what a queue did in a second or so.
type Second struct {
	At      time.Time      `json:"at"`      // its end
	Span    units.Duration `json:"span"`    // how long it was
	Looks   int            `json:"looks"`   // at the queue
	Empty   int            `json:"empty"`   // of those, the ones that found nothing waiting
	Backlog uint64         `json:"backlog"` // bytes, the most
	Qlen    uint64         `json:"qlen"`    // packets, the most
	Bytes   uint64         `json:"bytes"`   // sent
	Drops   uint64         `json:"drops"`   // packets
	Marks   uint64         `json:"marks"`   // packets
	Parts   []kernel.Part  `json:"parts,omitempty"`
	Shaped  units.Rate     `json:"shaped,omitempty"` // bit/s that the shaper enforced at its end; 0: it has none
}

// Rate is what was sent in it, in bit/s.
func (s Second) Rate() units.Rate {
	if s.Span <= 0 {
		return 0
	}
	return units.Rate(float64(s.Bytes*8) / time.Duration(s.Span).Seconds())
}

// Wait is how long the most that stood in a queue took to leave, at the rate that the queue was served with; 0 if that
// is not known.
func (s Second) Wait() units.Duration {
	serves := max(s.Shaped, s.Rate())
	if serves == 0 {
		return 0
	}
	return units.Duration(float64(s.Backlog*8) / float64(serves) * float64(time.Second))
}

// Fold makes seconds of looks. The zero Fold is ready.
type Fold struct {
	before Queue // as it was when the second began
	began  time.Time
	now    Second
}

// Look is one at the root's counters.
func (f *Fold) Look(s qdisc.Stats) {
	f.now.Looks++
	if s.Qlen == 0 && s.Backlog == 0 {
		f.now.Empty++
	}
	f.now.Backlog, f.now.Qlen = max(f.now.Backlog, s.Backlog), max(f.now.Qlen, s.Qlen)
}

// End ends a second with a look at the whole queue. The first has no length, and counts nothing.
func (f *Fold) End(at time.Time, q Queue) Second {
	f.Look(q.Stats)
	s := f.now
	s.At = at
	if !f.began.IsZero() {
		s.Span = units.Duration(at.Sub(f.began))
		s.Bytes = increase(q.Stats.Bytes, f.before.Stats.Bytes)
		s.Drops = increase(q.Stats.Drops, f.before.Stats.Drops)
		s.Marks = increase(q.Stats.Marks, f.before.Stats.Marks)
		for i, p := range q.Parts {
			if i < len(f.before.Parts) && f.before.Parts[i].Name == p.Name {
				was := f.before.Parts[i]
				p.Packets, p.Bytes = increase(p.Packets, was.Packets), increase(p.Bytes, was.Bytes)
				p.Drops, p.Marks = increase(p.Drops, was.Drops), increase(p.Marks, was.Marks)
				s.Parts = append(s.Parts, p)
			}
		}
	}
	f.before, f.began, f.now = q, at, Second{}
	return s
}

// increase is a counter's growth. One that fell belongs to another queue, and is not believed.
func increase(now, before uint64) uint64 {
	if now < before {
		return 0
	}
	return now - before
}

// Track is a queue and its last seconds, the newest last.
type Track struct {
	Queue
	Seconds []Second
}

func (t *Track) add(q Queue, s Second) {
	if t.Dev != q.Dev {
		t.Seconds = nil
	}
	t.Queue = q
	s.Shaped = q.Rate // it may be another in the next
	t.Seconds = append(t.Seconds, s)
	old := 0
	for old < len(t.Seconds) && s.At.Sub(t.Seconds[old].At) >= Kept {
		old++
	}
	t.Seconds = t.Seconds[old:]
}

// last are the seconds of the last so much time. None is exactly one.
func (t Track) last(d time.Duration) []Second {
	d -= time.Second / 2
	if len(t.Seconds) == 0 {
		return nil
	}
	now := t.Seconds[len(t.Seconds)-1].At
	i := slices.IndexFunc(t.Seconds, func(s Second) bool { return now.Sub(s.At) < d })
	return t.Seconds[i:]
}

// sumSeconds is several seconds as one, shaped to the mean of what they were.
func sumSeconds(all []Second) (s Second) {
	if len(all) > 0 {
		s.Shaped = all[len(all)-1].Shaped
	}
	bits := 0.0
	for _, x := range all {
		bits += float64(x.Shaped) * time.Duration(x.Span).Seconds()
		s.At, s.Span = x.At, s.Span+x.Span
		s.Looks, s.Empty = s.Looks+x.Looks, s.Empty+x.Empty
		s.Backlog, s.Qlen = max(s.Backlog, x.Backlog), max(s.Qlen, x.Qlen)
		s.Bytes, s.Drops, s.Marks = s.Bytes+x.Bytes, s.Drops+x.Drops, s.Marks+x.Marks
	}
	if s.Span > 0 {
		s.Shaped = units.Rate(math.Round(bits / time.Duration(s.Span).Seconds()))
	}
	return s
}

// Event is what was read of the host in a second. What was not read since is nil.
type Event struct {
	Out, In    *Ended
	Clients    *live.Result
	ClientsWhy string // connections cannot be seen
	Doctor     *Diagnosis
	Goal       *Goal
	Followed   []presence.Queue // of the goal, what the follower does now
	BBR        *Senders
}

// Senders are the connections with bpf_bbr.
type Senders struct {
	Connections int            `json:"connections"`
	States      map[string]int `json:"states,omitempty"` // how many of them are in which, of those that can be read
	OthersQueue int            `json:"others_queue"`     // of how many others keep the queue full
}

// sendersOf sums connections up.
func sendersOf(all []bbr.Connection) *Senders {
	s := &Senders{Connections: len(all), States: map[string]int{}}
	for _, c := range all {
		if c.Model == nil {
			continue
		}
		s.States[c.State]++
		if c.OthersQueue {
			s.OthersQueue++
		}
	}
	return s
}

// Ended is a second that has ended.
type Ended struct {
	Queue  Queue
	Second Second
}

// Diagnosis is what doctor found at a moment.
type Diagnosis struct {
	At         time.Time
	Bottleneck doctor.Bottleneck
	Findings   []doctor.Finding
	Unknown    []host.Unread
}

// Goal is how the host stood to its goal at a moment.
type Goal struct {
	At time.Time
	change.Status
	Err error
}

// State is all that is shown. A copy of it stays as it is while Add goes on with the other.
type State struct {
	Now        time.Time
	Out, In    Track
	Clients    live.Result
	ClientsAt  time.Time
	ClientsWhy string
	Doctor     Diagnosis
	Goal       Goal
	Findings   []Seen // those that are there and then those that went, the newest first
	BBR        Senders
}

// Add takes in what was read.
func (s *State) Add(e Event) {
	if e.Out != nil {
		s.Out.add(e.Out.Queue, e.Out.Second)
		s.Now = e.Out.Second.At
	}
	if e.In != nil {
		s.In.add(e.In.Queue, e.In.Second)
	} else if s.In.Dev != "" {
		s.In = Track{}
	}
	if e.Clients != nil {
		s.Clients, s.ClientsAt = *e.Clients, s.Now
	}
	s.ClientsWhy = e.ClientsWhy
	if e.BBR != nil {
		s.BBR = *e.BBR
	}
	if e.Doctor != nil {
		s.Findings = follow(s.Findings, *e.Doctor, s.Doctor.At.IsZero())
		s.Doctor = *e.Doctor
	}
	if e.Goal != nil {
		s.Goal = *e.Goal
	}
	if e.Followed != nil {
		s.Goal.Followed = s.withCurrentRates(e.Followed)
	}
}

// withCurrentRates is what is followed, with the rates that the queues have now.
func (s State) withCurrentRates(all []presence.Queue) []presence.Queue {
	all = slices.Clone(all)
	for i := range all {
		for _, t := range []Track{s.Out, s.In} {
			if t.Dev == all[i].Dev && t.Rate != 0 && all[i].Rate != 0 {
				all[i].Rate = t.Rate
			}
		}
	}
	return all
}

// Seen is a finding, and when it came and went.
type Seen struct {
	doctor.Finding
	Came time.Time `json:"came,omitzero"` // zero: it was there from the start
	Went time.Time `json:"went,omitzero"` // zero: it is there
}

// follow says which findings came and which went. What is fine is none of them.
func follow(before []Seen, d Diagnosis, first bool) (all []Seen) {
	const most = 50 // of those that went
	there := map[doctor.Code]bool{}
	for _, f := range d.Findings {
		if f.Severity == doctor.Fine || there[f.Code] {
			continue
		}
		there[f.Code] = true
		x := Seen{Finding: f, Came: d.At}
		if was := slices.IndexFunc(before, func(s Seen) bool { return s.Code == f.Code && s.Went.IsZero() }); was >= 0 {
			x.Came = before[was].Came
		} else if first {
			x.Came = time.Time{}
		}
		all = append(all, x)
	}
	slices.SortStableFunc(all, func(a, b Seen) int { return b.Came.Compare(a.Came) })
	var went []Seen
	for _, s := range before {
		if s.Went.IsZero() && !there[s.Code] {
			s.Went = d.At
		}
		if !s.Went.IsZero() {
			went = append(went, s)
		}
	}
	slices.SortStableFunc(went, func(a, b Seen) int { return b.Went.Compare(a.Went) })
	return append(all, went[:min(len(went), most)]...)
}
