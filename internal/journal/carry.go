// SPDX-License-Identifier: Apache-2.0

package journal

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"weir/internal/hint"
	"weir/internal/host"
	"weir/internal/kernel"
	"weir/internal/plan"
)

// How a journal keeps up with a host that goes on without it: another boot, another name, a journal that was lost.

// Current is a journal as it is on a host now.
type Current struct {
	*Journal      // nil if nothing is in force
	Carried  bool // it is from an earlier boot: the journal on disk does not say this
	Adopted  bool // it was found by its files alone
}

// The causes where a journal is of no use here: it is about another network namespace.
var (
	ErrOtherNamespace = errors.New("about another network namespace")
	ErrHostNamespace  = errors.New("about the host's own network namespace") // what it knows of outlasts reboots
)

// Current is what the last journal says of a host by now. An error wraps ErrOtherNamespace or ErrHostNamespace.
func (s Store) Current(last *Journal, f host.Facts) (now Current, err error) {
	switch {
	case last == nil:
	case last.HasFiles() && f.Files == nil:
		what := s.Path() + " is about the host's own network namespace"
		if f.Hidden {
			what += ", and whether this is it cannot be read (/proc/1/ns/net)"
		}
		return now, &hint.Error{What: what, Try: "the same there, or --state DIR for this one",
			Cause: ErrHostNamespace}
	case last.IsCurrent(f):
		last.follow(f)
		now.Journal = last
	case last.Boot == f.Boot && !last.HasFiles():
		return now, &hint.Error{Cause: ErrOtherNamespace,
			What: fmt.Sprintf("%s is about another network namespace, %s", s.Path(), last.Namespace),
			Try: "--state DIR, one for each namespace; or, if that namespace is gone, weir down --force, which " +
				"removes the journal",
		}
	default: // a container that was started again may have no boot of its own
		now.Journal = last.carry(f)
		now.Carried = now.Journal != nil
	}
	now.adopt(f)
	return now, nil
}

// follow keeps to the devices that were changed when they have other names now. Its index is what one is known by,
// until it is gone.
func (j *Journal) follow(f host.Facts) {
	j.rename(j.found(f, func(u Uplink, l host.Link) bool { return l.Index == u.Link }))
}

// found gives each uplink's device its name of now: as one is surely known, or else by its address, or else by its
// name. No two are the same device, and what is none of them any more has a name that no device has.
func (j *Journal) found(f host.Facts, surely func(Uplink, host.Link) bool) map[string]string {
	names, taken := map[string]string{}, map[string]bool{}
	take := func(u Uplink, name string) {
		if name != "" && names[u.Goal.Dev] == "" && !taken[name] {
			names[u.Goal.Dev], taken[name] = name, true
		}
	}
	for _, u := range j.Uplinks {
		for _, l := range f.Links {
			if surely(u, l) {
				take(u, l.Name)
			}
		}
	}
	for _, u := range j.Uplinks {
		if _, there := f.Link(u.Goal.Dev); !there || taken[u.Goal.Dev] {
			card, _ := u.card(f) // out, and in again under another name
			take(u, card.Name)
		}
	}
	for _, u := range j.Uplinks {
		take(u, u.Goal.Dev)
		if names[u.Goal.Dev] == "" {
			names[u.Goal.Dev] = strings.TrimSuffix(u.Goal.Dev, absent) + absent
		}
	}
	return names
}

// absent ends the name of a device that is not there, while another has its name: no name has a slash.
const absent = "/gone"

// rename gives devices their new names, all at once: two may have swapped theirs.
func (j *Journal) rename(names map[string]string) {
	for i := range j.Uplinks {
		u := &j.Uplinks[i]
		dev := names[u.Goal.Dev]
		if dev == "" || dev == u.Goal.Dev {
			continue
		}
		u.FileDev, u.Goal.Dev = cmp.Or(u.FileDev, u.Goal.Dev), dev
		if u.FileDev == dev {
			u.FileDev = ""
		}
	}
	if j.Pending != nil {
		j.Pending.Dev = cmp.Or(names[j.Pending.Dev], j.Pending.Dev)
		for i, g := range j.Pending.Back {
			j.Pending.Back[i].Dev = cmp.Or(names[g.Dev], g.Dev)
		}
	}
	for i := range j.Entries {
		j.Entries[i].Target = renamed(j.Entries[i].Target, names)
	}
	for i := range j.Promised {
		j.Promised[i].Target = renamed(j.Promised[i].Target, names)
	}
}

// carry is the journal of an earlier boot in this one. What was set at run time ended with that boot; what is in files
// is there, and so is what those who read them have set again by now. Nil if nothing was in files.
func (j *Journal) carry(f host.Facts) *Journal {
	if !j.HasFiles() {
		return nil
	}
	next := *j
	next.Boot, next.Namespace, next.Cookie = f.Boot, f.Namespace, f.Cookie
	next.Uplinks, next.Entries, next.Promised = slices.Clone(j.Uplinks), slices.Clone(j.Entries),
		slices.Clone(j.Promised)
	if j.Pending != nil {
		p := *j.Pending
		p.Until, p.Unit = 0, "" // its timer ended, too
		p.Back = slices.Clone(p.Back)
		next.Pending = &p
	}
	// Cards may have swapped their names, too.
	names := j.found(f, func(u Uplink, l host.Link) bool { return isCard(u, f, l) })
	for i, u := range j.Uplinks {
		link, _ := f.Link(names[u.Goal.Dev])
		next.Uplinks[i].Link = link.Index
	}
	next.rename(names)
	next.Entries = slices.DeleteFunc(next.Entries, func(e Entry) bool {
		return !e.IsFile() && next.State(f, e) != Ours
	})
	if p := next.Pending; p != nil && !p.Down {
		open := slices.ContainsFunc(next.Entries, func(e Entry) bool {
			want, ours := next.BackTo(e)
			return ours && !next.Reached(f, e, want)
		})
		if !open {
			return next.Afterwards(nil)
		}
	}
	return &next
}

// adopt takes the files that say they are Weir's for that, where the journal that knew of them was lost.
func (c *Current) adopt(f host.Facts) {
	var found []Entry
	take := func(name string, ours bool) {
		target := kernel.Target{Kind: kernel.File, Name: name}
		if ours && c.Entry(target) == nil {
			found = append(found, Entry{Target: target, Was: kernel.Content{File: host.File{Kind: host.NoFile}},
				Set: []kernel.Value{kernel.Content{File: f.Files[name]}}})
		}
	}
	starter, _ := host.StarterOf(cmp.Or(f.Init, host.Systemd))
	for _, name := range []string{starter.File, host.UdevFile, host.GoalFile, host.SysctlFile, starter.Follow} {
		take(name, host.IsOurs(f.Files[name]) && !plan.Packaged(f.Files[name]))
	}
	if len(found) == 0 {
		return
	}
	link := f.Files[starter.Link]
	take(starter.Link, link.Kind == host.Symlink && (link.Text == starter.File || link.Text == host.PackageUnit))
	follow := f.Files[starter.FollowLink]
	take(starter.FollowLink, follow.Kind == host.Symlink && follow.Text == starter.Follow)
	next := Journal{Version: version, Boot: f.Boot, Namespace: f.Namespace, Cookie: f.Cookie}
	if c.Journal != nil {
		next = *c.Journal
	} else if goals, err := plan.ParseGoals(f.Files[host.GoalFile].Text); err == nil {
		for _, g := range goals {
			dev, _, _ := plan.Uplink(f)
			g.Dev = cmp.Or(g.Dev, dev)
			link, _ := f.Link(g.Dev)
			next.Uplinks = append(next.Uplinks, Uplink{Goal: g, Link: link.Index, MAC: address(link)})
		}
	}
	next.Entries = append(found, next.Entries...)
	c.Journal, c.Adopted = &next, true
}

// address is by what a card is known when it has another name. What is on top of a card may have its address, too, and
// none of its own.
func address(l host.Link) string {
	if l.Kind != "" {
		return ""
	}
	return l.MAC
}

// isCard reports whether a link is the card that an uplink was, and not one that shares its address.
func isCard(u Uplink, f host.Facts, l host.Link) bool {
	card, ok := u.card(f)
	return ok && card.Index == l.Index
}

// card finds the card that had the address of an uplink. Where several have it, it is the one of the same name, or
// none. A virtual card of Azure's has that of the real one below it.
func (u Uplink) card(f host.Facts) (host.Link, bool) {
	var found []host.Link
	for _, l := range f.Links {
		if u.MAC != "" && address(l) == u.MAC {
			found = append(found, l)
		}
	}
	if len(found) > 1 {
		found = slices.DeleteFunc(found, func(l host.Link) bool { return l.Name != u.Goal.Dev && l.Name != u.FileDev })
	}
	if len(found) != 1 {
		return host.Link{}, false
	}
	return found[0], true
}
