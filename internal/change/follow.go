// SPDX-License-Identifier: Apache-2.0

package change

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"weir/internal/bpf"
	"weir/internal/plan"
	"weir/internal/qdisc"
	"weir/internal/units"
)

// Shaper is a queue of a goal's whose rate is followed. It takes no lock, since it can do one thing only: give that
// very queue, by its handle, another rate between the goal's bounds. Where another queue is in its place the kernel
// refuses.
type Shaper struct {
	Goal      plan.Goal
	Dev       string     // that has the queue: the goal's, or the one through which its incoming traffic goes
	Link      int        // of that
	Low, High units.Rate // bit/s, bounds of what may be set
	Usual     units.Rate // bit/s, what the goal's own rate comes to
	Behind    bool       // the provider's queue

	conn *qdisc.Conn
	root qdisc.Qdisc
}

// Shapers are the queues of those goals in force that say follow, and why one of them has none. To be closed.
func (s Store) Shapers() (all []*Shaper, why []plan.Note, err error) {
	at, err := s.read()
	if err != nil || at.journal == nil || at.journal.onlyTheirs() {
		return nil, nil, err
	}
	for _, goal := range at.journal.goals() {
		if goal.Follow == "" || goal.Unknown() {
			continue
		}
		for _, target := range []plan.Target{rootOf(goal.Dev), {Kind: plan.Ingress, Name: goal.Dev}} {
			shaper, not := at.shaper(goal, target)
			if not != "" {
				why = append(why, plan.Note{Subject: goal.Dev, Text: not})
			}
			if shaper == nil {
				continue
			}
			if shaper.conn, err = qdisc.Dial(0); err != nil {
				return all, why, err
			}
			all = append(all, shaper)
		}
	}
	return all, why, nil
}

// shaper is one of a goal's queues, or why that cannot be followed. It is neither where there is nothing to follow.
func (at situation) shaper(goal plan.Goal, target plan.Target) (s *Shaper, why string) {
	entry, dev := at.journal.entry(target), goal.Dev
	incoming := target.Kind == plan.Ingress
	if incoming {
		names := plan.IFBs(at.facts, goal.Dev)
		if entry == nil || len(names) == 0 {
			return nil, ""
		}
		dev = names[0]
	}
	link, there := at.facts.Link(dev)
	root, _ := link.Tree.Root()
	_, followed := plan.Followed(plan.QueueOf(link.Tree).Stack)
	switch {
	case !there:
		return nil, "is not there"
	case entry == nil || at.journal.state(at.facts, *entry) != ours:
		return nil, "its queue is not weir's: weir status"
	case !followed:
		return nil, fmt.Sprintf("its queue is %s, and only the rate of a CAKE can be followed", plan.QueueOf(link.Tree))
	}
	planned := entry.planned()
	low, high, behind := goal.Room(incoming, planned)
	if behind && low == high {
		return nil, ""
	}
	return &Shaper{Goal: goal, Dev: dev, Link: link.Index, Low: low, High: high, Usual: planned, Behind: behind,
		root: root}, ""
}

// planned is the rate of the CAKE that was set last, in bit/s.
func (e entry) planned() units.Rate {
	var stack qdisc.Stack
	switch last := e.last().(type) {
	case plan.Queue:
		stack = last.Stack
	case plan.Incoming:
		stack = last.Stack
	}
	rate, _ := plan.Followed(stack)
	return rate
}

// Close ends the looks. The rate stays.
func (s *Shaper) Close() error { return s.conn.Close() }

// Rate is what was set last, in bit/s.
func (s *Shaper) Rate() units.Rate { return qdisc.Rate(s.root.Spec) }

// Cake is the queue.
func (s *Shaper) Cake() qdisc.Cake {
	cake, _ := s.root.Spec.(qdisc.Cake)
	return cake
}

// Stats are the queue's counters. An error is a device or a queue that is gone.
func (s *Shaper) Stats() (qdisc.Stats, error) {
	stats, found, err := s.conn.RootStats(s.Link)
	if err == nil && !found {
		err = errors.New("its queue is gone")
	}
	return stats, err
}

// Set gives the queue another rate, in bit/s, in place: no packet is lost. An error is a queue that is gone.
func (s *Shaper) Set(rate units.Rate) error {
	rate = max(s.Low, min(s.High, rate))
	next := s.Cake()
	next.Bandwidth = rate
	if err := s.conn.Change(s.Link, s.root, next); err != nil {
		return err
	}
	s.root.Spec = next
	return nil
}

// Leave is for the follower's end: what it set last stays, or the goal's own rate where that is more than twice as
// much. Behind the provider's queue the goal's own comes back: other traffic may need it.
func (s *Shaper) Leave() error {
	if s.Behind || s.Rate() < s.Usual/2 {
		return s.Set(s.Usual)
	}
	return nil
}

// Following is the one follower of a network namespace, as Status sees it.
type Following struct {
	f     *os.File
	one   sync.Mutex
	waits map[string]string
}

// Follow keeps a second follower out of this network namespace, and lets Status know of this one, until it is closed.
func (s Store) Follow() (*Following, error) {
	name, err := s.followLock()
	if err != nil {
		return nil, err
	}
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o644)
	if err != nil {
		return nil, unreachable(err)
	}
	const patience, pause = time.Second, 10 * time.Millisecond
	for waited := time.Duration(0); ; waited += pause {
		if err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err == nil {
			return &Following{f: f, waits: map[string]string{}}, f.Truncate(0)
		}
		if waited >= patience {
			f.Close()
			return nil, &busy{plan.Refusal{What: "another weir follow is at work here",
				Try: "systemctl status weir-follow"}}
		}
		s.timer.sleep(pause) // Status asks for a moment
	}
}

// Close ends it.
func (f *Following) Close() error { return f.f.Close() }

// Waits lets Status know why a device's rate is not known yet; "" where it is.
func (f *Following) Waits(dev, why string) {
	f.one.Lock()
	defer f.one.Unlock()
	if f.waits[dev] == why {
		return
	}
	f.waits[dev] = why
	text, _ := json.Marshal(f.waits)
	if f.f.Truncate(0) == nil { // what cannot be told is told by the log
		_, _ = f.f.WriteAt(text, 0)
	}
}

// followed tells whether a follower is at work, and what it waits for, by devices.
func (s Store) followed() (running bool, waits map[string]string) {
	name, err := s.followLock()
	if err != nil {
		return false, nil
	}
	f, err := os.OpenFile(name, os.O_RDONLY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return false, nil
	}
	defer f.Close()
	if !errors.Is(unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB), unix.EWOULDBLOCK) {
		return false, nil
	}
	const most = 1 << 16
	text, _ := io.ReadAll(io.LimitReader(f, most))
	_ = json.Unmarshal(text, &waits) // half of it, while it is written, is nothing
	return true, waits
}

func (s Store) followLock() (string, error) {
	cookie, err := bpf.NetnsCookie()
	if err != nil || s.held == "" {
		return filepath.Join(s.Dir, "follow.lock"), nil
	}
	if err := os.MkdirAll(s.held, 0o755); err != nil && !unwritable(err) && !errors.Is(err, os.ErrPermission) {
		return "", unreachable(err)
	}
	return filepath.Join(s.held, fmt.Sprintf("%x.follow", cookie)), nil
}
