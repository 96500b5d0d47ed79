// SPDX-License-Identifier: Apache-2.0

package change

import (
	"cmp"
	"slices"

	"weir/internal/host"
	"weir/internal/plan"
)

// How a journal keeps up with a host that goes on without it: another boot, another name, a journal that was lost.

// follow keeps to the device that was changed when it has another name now. Its index is what it is known by, until it is gone.
func (j *journal) follow(f host.Facts) {
	i := slices.IndexFunc(f.Links, func(l host.Link) bool { return l.Index == j.Link })
	now := host.Link{}
	if i >= 0 {
		now = f.Links[i]
	} else if _, there := f.Link(j.Goal.Dev); !there {
		now, _ = j.card(f) // out, and in again under another name
	}
	if now.Name != "" && j.Goal.Dev != "" && j.Goal.Dev != now.Name {
		j.rename(now.Name)
	}
}

func (j *journal) rename(dev string) {
	j.FileDev, j.Goal.Dev = cmp.Or(j.FileDev, j.Goal.Dev), dev
	if j.FileDev == dev {
		j.FileDev = ""
	}
	if j.Pending != nil && j.Pending.Back != nil {
		j.Pending.Back.Dev = dev
	}
	for i := range j.Entries {
		j.Entries[i].Target = renamed(j.Entries[i].Target, dev)
	}
	for i := range j.Promised {
		j.Promised[i].Target = renamed(j.Promised[i].Target, dev)
	}
}

// carry is the journal of an earlier boot in this one. What was set at run time ended with that boot; what is in files is there, and so is what
// those who read them have set again by now. Nil if nothing was in files.
func (j *journal) carry(f host.Facts) *journal {
	if !j.files() {
		return nil
	}
	next := *j
	next.Boot, next.Namespace, next.Link, next.carried = f.Boot, f.Namespace, 0, true
	next.Entries, next.Promised = slices.Clone(j.Entries), slices.Clone(j.Promised)
	if j.Pending != nil {
		p := *j.Pending
		p.Until, p.Unit = 0, "" // its timer ended, too
		if p.Back != nil {
			back := *p.Back
			p.Back = &back
		}
		next.Pending = &p
	}
	link, ok := f.Link(j.Goal.Dev)
	// Cards may have swapped their names, too.
	if card, found := j.card(f); found && (!ok || address(link) != j.MAC) {
		link, ok = card, true
		next.rename(card.Name)
	}
	if ok {
		next.Link = link.Index
	}
	next.Entries = slices.DeleteFunc(next.Entries, func(e entry) bool { return e.File == "" && next.state(f, e) != ours })
	if p := next.Pending; p != nil && !p.Down {
		open := slices.ContainsFunc(next.Entries, func(e entry) bool {
			want, ours := next.aim(e)
			return ours && !next.is(f, e, want)
		})
		if !open {
			return next.afterwards(nil)
		}
	}
	return &next
}

// adopt takes the files that say they are Weir's for that, where the journal that knew of them was lost.
func (j *journal) adopt(f host.Facts) *journal {
	var found []entry
	take := func(name string, ours bool) {
		if ours && j.entry(plan.Target{File: name}) == nil {
			found = append(found, entry{Target: plan.Target{File: name}, Was: string(host.NoFile), Set: []string{f.Files[name].String()}})
		}
	}
	for _, name := range []string{host.UnitFile, host.UdevFile, host.GoalFile, host.SysctlFile} {
		take(name, plan.IsOurs(f.Files[name]))
	}
	if len(found) == 0 {
		return j
	}
	link := f.Files[host.UnitLink]
	take(host.UnitLink, link.Kind == host.Symlink && (link.Text == host.UnitFile || link.Text == host.PackageUnit))
	next := journal{Version: journalVersion, Boot: f.Boot, Namespace: f.Namespace}
	if j != nil {
		next = *j
	} else if goal, err := plan.ParseGoal(f.Files[host.GoalFile].Text); err == nil {
		next.Goal = goal
	}
	next.Entries, next.adopted = append(found, next.Entries...), true
	return &next
}

// address is by what a card is known when it has another name. What is on top of a card may have its address, too, and none of its own.
func address(l host.Link) string {
	if l.Kind != "" {
		return ""
	}
	return l.MAC
}

// card finds the card that had the journal's device's address.
func (j *journal) card(f host.Facts) (host.Link, bool) {
	i := slices.IndexFunc(f.Links, func(l host.Link) bool { return j.MAC != "" && address(l) == j.MAC })
	if i < 0 {
		return host.Link{}, false
	}
	return f.Links[i], true
}
