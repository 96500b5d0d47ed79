// SPDX-License-Identifier: Apache-2.0

package change

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"weir/internal/bpf"
	"weir/internal/host"
	"weir/internal/journal"
	"weir/internal/kernel"
	"weir/internal/plan"
	"weir/internal/qdisc"
	"weir/internal/text"
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
	taken  bool // the device counts what comes in without the header of Ethernet
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
	_, followed := plan.Followed(kernel.QueueOf(link.Tree).Stack)
	switch {
	case !there:
		return nil, "is not there"
	case entry == nil || at.journal.State(at.facts, *entry) != journal.Ours:
		return nil, "its queue is not weir's: weir status"
	case !followed:
		return nil, fmt.Sprintf("its queue is %s, and only the rate of a CAKE can be followed",
			kernel.QueueOf(link.Tree))
	}
	usual := planned(*entry)
	low, high, behind := goal.Room(incoming, usual)
	if behind && low == high {
		return nil, ""
	}
	s = &Shaper{Goal: goal, Dev: dev, Link: link.Index, Low: low, High: high, Usual: usual, AfterProvider: behind,
		Tunnels: behind && !incoming && goal.Carries.Tunnels(), taken: countsWithoutHeader(link), root: root,
		target: target}
	if own, there := at.facts.Link(goal.Dev); there {
		s.NoLinkHeader = own.MAC == ""
	}
	if at.facts.Forwards() && !behind {
		s.Forwards = []int{link.Index}
	}
	return s, ""
}

// planned is the rate of the CAKE that was set last, in bit/s.
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
	if err := s.asItWas(); err != nil {
		return err
	}
	s.before = now
	return nil
}

// asItWas is an error where the queue is another than was set last: what is taken for its rate would not be that.
func (s *Shaper) asItWas() error {
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
		err = s.asItWas()
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
	next := s.Cake()
	next.Bandwidth = rate
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
	rate := s.left(settled)
	if rate == s.Rate() {
		return nil
	}
	_, err := s.steer(rate, journal.Patience)
	return err
}

// left is the rate that is left, in bit/s.
func (s *Shaper) left(rate units.Rate) units.Rate {
	switch {
	case rate < s.Usual/2:
		return s.Usual
	case s.AfterProvider && rate > s.Usual:
		return max(s.Usual, units.Rate(float64(rate)*float64(s.Usual)/float64(s.Goal.Inward())))
	default:
		return rate
	}
}

// Following is the one follower of a network namespace, as Status sees it.
type Following struct {
	f     *os.File
	alone func() // lets another one begin
	one   sync.Mutex
	all   map[string]Doing
}

// Doing is what a follower tells of a queue.
type Doing struct {
	Waits string `json:"waits,omitempty"` // why it has not found the rate yet
	Tries string `json:"tries,omitempty"` // why the rate is another for a moment
	Last  *Step  `json:"last,omitempty"`  // the last change that stayed
}

// Step is a change of the rate that stayed.
type Step struct {
	At   time.Time  `json:"at"`
	From units.Rate `json:"from,omitempty"` // bit/s; 0: it was not known
	To   units.Rate `json:"to"`
	Why  string     `json:"why"`
}

// Follow keeps a second follower out of this network namespace, and lets Status know of this one, until it is closed.
func (s Store) Follow() (*Following, error) {
	name, err := s.followFile()
	if err != nil {
		return nil, err
	}
	if s.disk.Held != "" {
		_ = os.Chmod(s.disk.Held, 0o755) // it may be of a service, whose umask is strict, and Status needs no root
	}
	alone, err := s.disk.Flock(name+".held", journal.Patience)
	if errors.Is(err, journal.ErrBusy) {
		return nil, journal.Busy("another weir follow is at work here", cmp.Or(s.askFollow(), "weir status"))
	}
	if err != nil {
		return nil, err
	}
	f, err := announce(name)
	if err != nil {
		alone()
		return nil, journal.Unreachable(err)
	}
	return &Following{f: f, alone: alone, all: map[string]Doing{}}, nil
}

// writeLock is a lock of a whole file that takes a descriptor which can write to it (fcntl_locking(2)). Who may only
// read a file can see it, and can neither hold one nor, while it is held, keep it from anybody.
func writeLock(f *os.File, cmd int, kind int16) (held bool, err error) {
	lock := unix.Flock_t{Type: kind, Whence: io.SeekStart}
	err = unix.FcntlFlock(f.Fd(), cmd, &lock)
	return lock.Type == unix.F_WRLCK, err
}

// announce makes the file that everybody may read. It has its lock before anybody can open it: whatever another user
// holds is of an earlier one.
func announce(name string) (*os.File, error) {
	half := name + ".new"
	_ = os.Remove(half) // of a run that was killed
	f, err := os.OpenFile(half, os.O_RDWR|os.O_CREATE|os.O_EXCL|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, err
	}
	_, err = writeLock(f, unix.F_OFD_SETLK, unix.F_WRLCK)
	if err == nil {
		err = f.Chmod(0o644) // whatever the umask: a service has a strict one
	}
	if err == nil {
		err = os.Rename(half, name)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// Close ends it.
func (f *Following) Close() error {
	defer f.alone()
	return f.f.Close()
}

// Tell lets Status know what is done about a device. The last change stays until there is another, or the rate is
// waited for.
func (f *Following) Tell(dev string, now Doing) {
	f.one.Lock()
	defer f.one.Unlock()
	before := f.all[dev]
	if now.Last == nil && now.Waits == "" {
		now.Last = before.Last
	}
	if now == before {
		return
	}
	f.all[dev] = now
	text, _ := json.Marshal(f.all)
	// What cannot be told is told by the log. Whoever reads meanwhile finds the end of what was there after it.
	if _, err := f.f.WriteAt(text, 0); err == nil {
		_ = f.f.Truncate(int64(len(text)))
	}
}

// Idle is why a follower that runs does not follow a rate that is known: it cannot see what it takes. "" where it does.
func (f Followed) Idle() string {
	if !f.Running || f.Rate == 0 {
		return ""
	}
	return f.Waits
}

// Says is what a person should know of a queue whose rate may move, in a line or two.
func (f Followed) Says(now time.Time) []string {
	rate := units.Rounded(float64(f.Rate)).String()
	switch {
	case f.Hidden != "":
		return []string{"Whether anybody follows the rate cannot be seen: " + f.Hidden}
	case f.Rate == 0 && !f.Running:
		return []string{"The rate is not known, and nobody looks for it. To look:  " + f.Start}
	case f.Rate == 0:
		return []string{"The rate is not known yet: " + cmp.Or(f.Waits, "weir follow has just begun") + "."}
	case !f.Running:
		return []string{"The follower does not run: the rate stays " + rate + ".", "To start it:  " + f.Start}
	case f.Idle() != "":
		return []string{"The follower runs, and cannot follow " + f.Dev + ": the rate stays " + rate + ".",
			"Why:  " + f.Idle()}
	}
	what := "Followed:  " + rate + " now,"
	if f.AfterProvider {
		what = "Learnt:    " + rate + " now on " + f.Dev + ","
	}
	says := []string{fmt.Sprintf("%s of %s to %s", what, f.Low, f.High)}
	if f.Tries != "" {
		says[0] += ": " + f.Tries
	}
	if f.Last != nil {
		says = append(says, f.Last.says(now))
	}
	return says
}

// says is when a rate changed, and why.
func (s Step) says(now time.Time) string {
	passed := ago(now.Sub(s.At))
	switch from := units.Rounded(float64(s.From)).String(); {
	case s.From == 0:
		return fmt.Sprintf("Found %s: %s", passed, s.Why)
	case s.To < s.From:
		return fmt.Sprintf("Lowered %s, from %s: %s", passed, from, s.Why)
	default:
		return fmt.Sprintf("Raised %s, from %s: %s", passed, from, s.Why)
	}
}

// ago writes a time that has passed. A clock may have been set back since.
func ago(d time.Duration) string {
	switch d = max(d, 0); {
	case d < 2*time.Minute:
		return fmt.Sprintf("%.0f s ago", d.Seconds())
	case d < 2*time.Hour:
		return fmt.Sprintf("%.0f min ago", d.Minutes())
	}
	return fmt.Sprintf("%.0f h ago", d.Hours())
}

// Ask reports whether a follower is at work on queues, and what it does there.
func (s Store) Ask(all []Followed) []Followed {
	if len(all) == 0 {
		return nil
	}
	running, doing, hidden := s.followed()
	all = slices.Clone(all)
	for i := range all {
		f := &all[i]
		f.Running, f.Hidden, f.Doing = running, hidden, doing[f.Dev]
		f.Waits, f.Tries = text.OneLine(f.Waits), text.OneLine(f.Tries)
		if f.Last != nil {
			last := *f.Last
			last.Why = text.OneLine(last.Why)
			f.Last = &last
		}
	}
	return all
}

// followed reports whether a follower is at work and what it does, by devices, or why that cannot be told.
func (s Store) followed() (running bool, doing map[string]Doing, hidden string) {
	name, err := s.followFile()
	if err != nil {
		return false, nil, err.Error()
	}
	f, err := os.OpenFile(name, os.O_RDONLY|unix.O_NOFOLLOW, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil, ""
	}
	if errors.Is(err, fs.ErrPermission) {
		return false, nil, err.Error() + " (sudo weir status tells)"
	}
	if err != nil {
		return false, nil, err.Error()
	}
	defer f.Close()
	// The question is what would keep this one from reading: a follower alone can have that.
	running, err = writeLock(f, unix.F_OFD_GETLK, unix.F_RDLCK)
	if err != nil {
		return false, nil, fmt.Sprintf("lock of %s: %v", name, err)
	}
	if !running {
		return false, nil, ""
	}
	const most = 1 << 16
	// In one piece, since it is written meanwhile; what was there before may follow. Of an older program it is another.
	said, _ := io.ReadAll(io.LimitReader(f, most))
	_ = json.NewDecoder(bytes.NewReader(said)).Decode(&doing)
	return true, doing, ""
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
