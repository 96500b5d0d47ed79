// SPDX-License-Identifier: Apache-2.0

package change

import (
	"slices"
	"time"

	"weir/internal/hint"
	"weir/internal/host"
	"weir/internal/journal"
	"weir/internal/plan"
)

// situation is what a run starts from, and what it is about.
type situation struct {
	written *journal.Journal // the last that was written, of whatever boot; nil if there is none
	journal *journal.Journal // as it is in this boot; nil if nothing is in force
	facts   host.Facts

	carried bool // the journal is of an earlier boot
	adopted bool // it was found by its files alone

	only         string   // the device that a run is about; "" for all
	without      []string // devices whose goals cannot be planned, and keep nobody from the others
	keepGoalFile bool     // the goal's file stays as somebody has made it
	keepRemoved  bool     // and files that somebody has removed stay away
	saidCarries  bool     // a person has said what the goal carries, or that it carries nothing

	// Nobody is there to refuse anything to: a run goes as far as it can, and promises nothing new.
	atBoot bool
	// What somebody else has set since is put back, too.
	force bool
}

// transaction is one run of a command that changes this host: alone, as root, and from what is true now. The facts are
// read once before the first change, and once after the last.
type transaction struct {
	Store
	situation
}

// after is the situation of the same run when another journal is written, on a host with these facts.
func (at situation) after(next *journal.Journal, facts host.Facts) situation {
	at.written, at.journal, at.facts, at.carried, at.adopted = next, next, facts, false, false
	return at
}

// before is the situation in which nothing had been set.
func (at situation) before() situation {
	return situation{facts: at.journal.Before(at.facts)}
}

// next is the journal to write before p is carried out.
func (at situation) next(p plan.Plan) *journal.Journal {
	return at.journal.Next(journal.Run{Plan: p, Facts: at.facts, Only: at.only, Without: at.without,
		Adopted: at.adopted})
}

// read looks at the host and at the journal.
func (s Store) read() (at situation, err error) {
	last, err := s.disk.Load()
	if err != nil {
		return at, err
	}
	facts, err := s.readFacts()
	if err != nil {
		return at, err
	}
	now, err := s.disk.Current(last, facts)
	return situation{written: last, journal: now.Journal, facts: facts, carried: now.Carried,
		adopted: now.Adopted}, err
}

// readFacts returns the host's facts. Of a store that keeps no goals the files are nobody's business.
func (s Store) readFacts() (host.Facts, error) {
	f, err := s.host.facts()
	if !s.disk.Files {
		f.Files = nil
	}
	return f, err
}

// wanted are the goals of a host of which nobody says any: those in /etc/weir.toml and those that no file keeps or,
// where there is no such file, those that were last brought up. What an earlier boot ended before it was confirmed is
// not brought up again: it may have been what made somebody reboot.
func (s Store) wanted(at situation) (all []plan.Goal, err error) {
	last, j, facts := at.written, at.journal, at.facts
	switch {
	case j != nil:
		if err := j.Readable(""); err != nil {
			return nil, err
		}
		all = j.Goals()
	case last == nil:
	case last.Pending == nil:
		all = last.Goals()
	default:
		if err := last.Pending.Back.Readable(); err != nil {
			return nil, err
		}
		all = last.Pending.Back.Plain()
	}
	switch file := facts.Files[host.GoalFile]; {
	case file.Kind == host.Regular:
		written, err := plan.ParseGoals(file.Text)
		switch {
		case err != nil:
			return nil, err
		case len(written) == 0 && len(all) > 0:
			return nil, &hint.Error{What: host.GoalFile + " has no goal",
				Try: "weir down, to have none; or weir up with one"}
		}
		if plan.Says(file, all...) {
			return all, nil
		}
		unkept := slices.DeleteFunc(slices.Clone(all), func(g plan.Goal) bool { return !g.Runtime && !g.Only })
		for i, g := range written {
			g.Dev = j.NamedNow(g.Dev)
			if g.Dev == "" && len(all) > 0 {
				g.Dev = all[0].Dev
			}
			if was, there := plan.GoalOf(all, g.Dev); there && g.Means(was) {
				g = was
			}
			unkept = slices.DeleteFunc(unkept, func(other plan.Goal) bool { return other.Dev == g.Dev })
			written[i] = g
		}
		return append(written, unkept...), nil
	case file.Kind == host.Symlink:
		return nil, &hint.Error{What: host.GoalFile + " is a link, and links are not followed",
			Try: "the file itself in its place, or none"}
	case file.Kind != "" && file.Kind != host.NoFile:
		return nil, &hint.Error{Try: "a regular file in its place, or none",
			What: host.GoalFile + " is not read: it is no regular file, is over 64 KiB, or has hard links"}
	}
	return all, nil
}

// NeedsAdmin is the error for a command, and for how it is typed, that may not change the network as this user.
func NeedsAdmin(command, typed string, uid int) error {
	if uid == 0 { // within a container
		return &hint.Error{
			What: command + " changes the network, which needs CAP_NET_ADMIN, which root does not have here",
			Try:  typed + " … on the host itself, or in a container with --cap-add NET_ADMIN"}
	}
	return &hint.Error{What: command + " changes the network, which needs root (CAP_NET_ADMIN)",
		Try: "sudo " + typed + " …"}
}

// begin is how every command that changes something starts. The error is ErrBusy's while another is at it.
func (s Store) begin(command string) (t *transaction, err error) {
	return s.beginWithin(command, journal.Patience)
}

// beginWithin is begin that waits for another's end as long as is said.
func (s Store) beginWithin(command string, patience time.Duration) (t *transaction, err error) {
	if !s.host.admin() {
		return nil, NeedsAdmin(command, "weir "+command, s.host.uid())
	}
	unlock, err := s.disk.Lock(patience)
	if err != nil {
		return nil, err
	}
	defer func() {
		if t == nil {
			unlock()
		}
	}()
	s.held = &lock{unlock: unlock}
	s.disk.Sweep()
	at, err := s.read()
	if err != nil {
		return nil, err
	}
	return &transaction{s, at}, nil
}

// isUp finds the likeliest mistake in naming a device: that it is one by which nothing leaves. It is no reason to give
// up a goal that is kept.
func isUp(goal plan.Goal, facts host.Facts) error {
	link, ok := facts.Link(goal.Dev)
	switch {
	case ok && !link.Up && link.Kind == "bridge":
		return &hint.Error{What: link.Name + ": the bridge is down: none of its ports is up",
			Try: "another device: weir plan without --dev takes the default route's"}
	case ok && !link.Up:
		return &hint.Error{What: link.Name + ": the link is down", Try: "ip link set " + link.Name +
			" up, and see that its other end is up too"}
	}
	return nil
}
