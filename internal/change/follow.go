// SPDX-License-Identifier: Apache-2.0

package change

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"weir/internal/bpf"
	"weir/internal/follow/presence"
	"weir/internal/host"
	"weir/internal/journal"
	"weir/internal/kernel"
	"weir/internal/plan"
	"weir/internal/qdisc"
	"weir/internal/units"
	"weir/internal/wire"
)

// Shaper is a queue of a goal's whose rate is followed. It can do one thing only: give that very queue, by its handle,
// another rate between the goal's bounds. Where another queue is in its place the kernel refuses.
type Shaper struct {
	Goal          plan.Goal
	Dev           string     // that has the queue: the goal's, or the one through which its incoming traffic goes
	Link          int        // of that
	Low, High     units.Rate // bit/s, bounds of what may be set
	Usual         units.Rate // bit/s, what the goal's own rate comes to
	AfterProvider bool       // the provider's queue
	Forwards      []int      // indexes of devices, behind whose queue connections are seen that this host forwards
	NoLinkHeader  bool       // the device's packets have no header, as those of PPP and of tunnels
	Tunnels       bool       // of the kernel's end between that and this queue

	conn   *qdisc.Conn
	root   qdisc.Qdisc
	stack  qdisc.Stack // as it was found, whatever its rate is by now
	taken  bool        // the device counts what comes in without the header of Ethernet
	store  Store
	target kernel.Target
	before journal.Edition // of the journal, in which the goal was as it is here
}

// Shapers are the queues of those goals in force that say follow, and why one of them has none. To be closed.
func (s Store) Shapers() (all []*Shaper, why []plan.Note, err error) {
	before := s.disk.Edition()
	at, err := s.read()
	if err != nil || at.journal == nil || at.journal.OnlyForeign() {
		return nil, nil, err
	}
	for _, goal := range at.journal.Goals() {
		if goal.Follow == "" || goal.Unknown() {
			continue
		}
		for _, target := range []kernel.Target{journal.RootOf(goal.Dev), {Kind: kernel.Ingress, Name: goal.Dev}} {
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
			shaper.store, shaper.before = s, before
			all = append(all, shaper)
		}
	}
	return all, why, nil
}

// shaper is one of a goal's queues, or why that cannot be followed. It is neither where there is nothing to follow.
func (at situation) shaper(goal plan.Goal, target kernel.Target) (s *Shaper, why string) {
	entry, dev := at.journal.Entry(target), goal.Dev
	incoming := target.Kind == kernel.Ingress
	if incoming {
		names := kernel.IFBs(at.facts, goal.Dev)
		if entry == nil || len(names) == 0 {
			return nil, ""
		}
		dev = names[0]
	}
	link, there := at.facts.Link(dev)
	root, _ := link.Tree.Root()
	stack := kernel.QueueOf(link.Tree).Stack
	_, followed := plan.Followed(stack)
	switch {
	case !there:
		return nil, "is not there"
	case entry == nil || at.journal.State(at.facts, *entry) != journal.Ours:
		return nil, "its queue is not weir's: weir status"
	case !followed:
		return nil, fmt.Sprintf("its queue is %s, and only the rate of a CAKE or a bpf_shaper can be followed",
			kernel.QueueOf(link.Tree))
	}
	usual := planned(*entry)
	low, high, behind := goal.Room(incoming, usual)
	if behind && low == high {
		return nil, ""
	}
	s = &Shaper{Goal: goal, Dev: dev, Link: link.Index, Low: low, High: high, Usual: usual, AfterProvider: behind,
		Tunnels: behind && !incoming && goal.Carries.Tunnels(), taken: countsWithoutHeader(link), root: root,
		stack: stack, target: target}
	if own, there := at.facts.Link(goal.Dev); there {
		s.NoLinkHeader = own.MAC == ""
	}
	if at.facts.Forwards() && !behind {
		s.Forwards = []int{link.Index}
	}
	return s, ""
}

// planned is the rate of the queue that was set last, in bit/s.
func planned(e journal.Entry) units.Rate {
	var stack qdisc.Stack
	switch last := e.Last().(type) {
	case kernel.Queue:
		stack = last.Stack
	case kernel.Incoming:
		stack = last.Stack
	}
	rate, _ := plan.Followed(stack)
	return rate
}

// Close ends the looks. The rate stays.
func (s *Shaper) Close() error { return s.conn.Close() }

// Rate is what was set last, in bit/s.
func (s *Shaper) Rate() units.Rate { return qdisc.Rate(s.root.Spec) }

// Counts is how the queue counts packets.
func (s *Shaper) Counts() qdisc.Framing { return qdisc.FramingOf(s.root.Spec) }

// Stats are the queue's counters. An error is a device or a queue that is gone.
func (s *Shaper) Stats() (stats qdisc.Stats, err error) {
	found := true
	if s.root.Kind == qdisc.BPFShaping { // the kernel does not know how long packets wait in it
		tree, err := s.store.host.tree(s.conn, s.Link)
		if err != nil {
			return stats, err
		}
		root, _ := tree.Root()
		stats, found = root.Stats, root.Kind == qdisc.BPFShaping
	} else {
		stats, found, err = s.conn.RootStats(s.Link)
	}
	if err == nil && !found {
		err = errors.New("its queue is gone")
	}
	return stats, err
}

// Received is what has come in by the device that has the queue, with the header of Ethernet where there is one.
func (s *Shaper) Received() (qdisc.Received, error) {
	r, err := s.conn.Received(s.Link)
	if s.taken {
		r.Bytes += r.Packets * wire.EthernetHeader
	}
	return r, err
}

// countsWithoutHeader reports whether the byte counter of incoming traffic of l excludes the Ethernet header.
func countsWithoutHeader(l host.Link) bool { return l.Kind == "bridge" || l.Kind == "vlan" }

// CheckCurrent returns an error if another goal or run has replaced this one. It costs a look at the journal's file.
func (s *Shaper) CheckCurrent() error {
	now := s.store.disk.Edition()
	if now == s.before {
		return nil
	}
	j, err := s.store.disk.Load()
	if err != nil {
		return err
	}
	if e := j.Entry(s.target); e == nil || planned(*e) != s.Usual || !slices.Contains(j.Goals(), s.Goal) {
		return errors.New("another goal is in force by now")
	}
	if err := s.checkUnchanged(); err != nil {
		return err
	}
	s.before = now
	return nil
}

// checkUnchanged is an error where the queue is another than was set last: what is taken for its rate would not be
// that.
func (s *Shaper) checkUnchanged() error {
	tree, err := s.store.host.tree(s.conn, s.Link)
	if err != nil {
		return err
	}
	if root, _ := tree.Root(); root.Handle != s.root.Handle || root.Spec == nil ||
		root.Spec.String() != s.root.Spec.String() {
		return errors.New("its queue was set anew")
	}
	return nil
}

// Steer gives the queue another rate, in bit/s, where the goal is still in force. It is false while another run of weir
// changes this host, for which it does not wait. An error is another goal, or a queue that is gone.
func (s *Shaper) Steer(rate units.Rate) (done bool, err error) { return s.steer(rate, 0) }

func (s *Shaper) steer(rate units.Rate, patience time.Duration) (done bool, err error) {
	if err := s.CheckCurrent(); err != nil {
		return false, err
	}
	unlock, err := s.store.disk.Lock(patience)
	if errors.Is(err, journal.ErrBusy) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer unlock()
	if err = s.CheckCurrent(); err == nil {
		err = s.checkUnchanged()
	}
	if err != nil {
		return false, err
	}
	return true, s.Set(rate)
}

// Set gives the queue another rate, in bit/s, in place: no packet is lost. An error is a queue that is gone. The lock
// is the caller's.
func (s *Shaper) Set(rate units.Rate) error {
	rate = max(s.Low, min(s.High, rate))
	next := plan.AtRate(s.stack, rate)[0]
	if err := s.conn.Change(s.Link, s.root, next); err != nil {
		return err
	}
	s.root.Spec = next
	return nil
}

// Leave sets the rate that remains when the follower stops, in bit/s: settled, or the goal's own if settled is below
// half of it. After the provider's queue the goal's own rate is the least: other traffic may need the share of
// the link that was planned for it.
func (s *Shaper) Leave(settled units.Rate) error {
	rate := s.rateToLeave(settled)
	if rate == s.Rate() {
		return nil
	}
	_, err := s.steer(rate, journal.Patience)
	return err
}

// rateToLeave is the rate that is left, in bit/s.
func (s *Shaper) rateToLeave(rate units.Rate) units.Rate {
	switch {
	case rate < s.Usual/2:
		return s.Usual
	case s.AfterProvider && rate > s.Usual:
		return max(s.Usual, units.Rate(float64(rate)*float64(s.Usual)/float64(s.Goal.Inward())))
	default:
		return rate
	}
}

// Follower is the one follower of a network namespace.
type Follower struct {
	*presence.Announcement
	unlock func()
}

// Close lets another one begin.
func (f Follower) Close() error {
	defer f.unlock()
	return f.Announcement.Close()
}

// Follow keeps a second follower out of this network namespace, and announces this one, until it is closed.
func (s Store) Follow() (f Follower, err error) {
	name, err := s.followFile()
	if err != nil {
		return f, err
	}
	if s.disk.Held != "" {
		_ = os.Chmod(s.disk.Held, 0o755) // it may be of a service, whose umask is strict, and Status needs no root
	}
	unlock, err := s.disk.Flock(name+".held", journal.Patience)
	if errors.Is(err, journal.ErrBusy) {
		return f, journal.Busy("another weir follow is at work here", cmp.Or(s.askFollow(), "weir status"))
	}
	if err != nil {
		return f, err
	}
	announcement, err := presence.Announce(name)
	if err != nil {
		unlock()
		return f, journal.Unreachable(err)
	}
	return Follower{announcement, unlock}, nil
}

// hasFollower reports whether a follower is at work, as far as that can be seen.
func (s Store) hasFollower() bool {
	name, err := s.followFile()
	if err != nil {
		return false
	}
	running, _, _ := presence.Read(name)
	return running
}

// Ask fills in whether a follower is at work on queues, and what it does there.
func (s Store) Ask(all []presence.Queue) []presence.Queue {
	name, err := s.followFile()
	all = presence.Fill(name, all)
	for i := range all {
		if err != nil {
			all[i].Hidden = err.Error()
		}
	}
	return all
}

// followStarter is what a person types to start a follower, and to ask why a service has none; "" where no service
// should have.
func followStarter(facts host.Facts) (start, ask string) {
	starter, known := host.StarterOf(facts.Init)
	if !known || facts.Files[starter.FollowLink].Kind != host.Symlink {
		return "weir follow", ""
	}
	return starter.StartFollow, starter.AskFollow
}

// askFollow is what a person types to ask for the service.
func (s Store) askFollow() string {
	facts, err := s.readFacts()
	if err != nil {
		return ""
	}
	_, ask := followStarter(facts)
	return ask
}

// followFile is what a follower announces itself by. Beside it is the lock that keeps a second one out, which is
// root's alone.
func (s Store) followFile() (string, error) {
	cookie, err := bpf.NetnsCookie()
	if err != nil || s.disk.Held == "" {
		return filepath.Join(s.disk.Dir, "follow"), nil
	}
	err = os.MkdirAll(s.disk.Held, 0o755)
	if err != nil && !journal.Unwritable(err) && !errors.Is(err, fs.ErrPermission) {
		return "", journal.Unreachable(err)
	}
	return filepath.Join(s.disk.Held, fmt.Sprintf("%x.follow", cookie)), nil
}
