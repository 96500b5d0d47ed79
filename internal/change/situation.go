// SPDX-License-Identifier: Apache-2.0

package change

import (
	"errors"
	"fmt"
	"os"
	"slices"

	"weir/internal/hint"
	"weir/internal/host"
	"weir/internal/plan"
)

// The causes where a journal is of no use here: it is about another network namespace.
var (
	errOtherNamespace = errors.New("about another network namespace")
	errHostNamespace  = errors.New("about the host's own network namespace") // what it knows of outlasts reboots
)

// situation is what a run starts from.
type situation struct {
	written *journal // the last that was written, of whatever boot; nil if there is none
	journal *journal // as it is in this boot; nil if nothing is in force
	facts   host.Facts
}

// read looks at the host and at the journal.
func (s Store) read() (at situation, err error) {
	last, err := s.load()
	if err != nil {
		return at, err
	}
	facts, err := s.facts()
	if err != nil {
		return at, err
	}
	var j *journal
	switch {
	case last == nil:
	case last.files() && facts.Files == nil:
		what := s.path() + " is about the host's own network namespace"
		if facts.Hidden {
			what += ", and whether this is it cannot be read (/proc/1/ns/net)"
		}
		return at, &hint.Error{What: what, Try: "the same there, or --state DIR for this one",
			Cause: errHostNamespace}
	case last.Boot == facts.Boot && last.isAbout(facts):
		last.follow(facts)
		j = last
	case last.Boot == facts.Boot && !last.files():
		return at, &hint.Error{Cause: errOtherNamespace,
			What: fmt.Sprintf("%s is about another network namespace, %s", s.path(), last.Namespace),
			Try: "--state DIR, one for each namespace; or, if that namespace is gone, weir down --force, which " +
				"removes the journal",
		}
	default: // a container that was started again may have no boot of its own
		j = last.carry(facts)
	}
	return situation{last, j.adopt(facts), facts}, nil
}

// facts are the host's. Of a store that keeps no goals the files are nobody's business.
func (s Store) facts() (host.Facts, error) {
	f, err := s.host.facts()
	if !s.keeps {
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
		if err := j.unreadableGoal(""); err != nil {
			return nil, err
		}
		all = j.goals()
	case last == nil:
	case last.Pending == nil:
		all = last.goals()
	default:
		if err := last.Pending.Back.check(); err != nil {
			return nil, err
		}
		all = last.Pending.Back.plain()
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
			for _, u := range j.uplinks() {
				if u.FileDev != "" && g.Dev == u.FileDev {
					g.Dev = u.Goal.Dev
				}
			}
			if g.Dev == "" && len(all) > 0 {
				g.Dev = all[0].Dev
			}
			if was, there := about(all, g.Dev); there && g.Means(was) {
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

// begin is how every command that changes something starts: as root, alone, and from what is true now.
func (s Store) begin(command string) (_ Store, at situation, err error) {
	facts, err := s.facts()
	if err != nil {
		return s, at, err
	}
	if !facts.Admin {
		return s, at, &hint.Error{
			What: command + " changes the network, which needs root (CAP_NET_ADMIN)",
			Try:  "sudo weir " + command + " …",
		}
	}
	unlock, err := s.lock()
	if err != nil {
		return s, at, err
	}
	s.run = &run{unlock: unlock}
	begun := false
	defer func() {
		if !begun {
			unlock()
		}
	}()
	_ = os.Remove(s.path() + ".new") // half of one, of a run that was killed
	// What was read before the lock may have been another run's half of a change.
	at, err = s.read()
	begun = err == nil
	return s, at, err
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
