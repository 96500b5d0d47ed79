// SPDX-License-Identifier: Apache-2.0

package change

import (
	"fmt"
	"slices"
	"time"

	"weir/internal/journal"
	"weir/internal/plan"
	"weir/internal/qdisc"
)

// set carries out one change. What the queueing disciplines were before is put back as it was read, which may be more
// than a plan can write.
func (s Store) set(j *journal.Journal, c plan.Change) error {
	e := j.Entry(c.Target)
	switch want := c.New.(type) {
	case plan.Setting:
		return s.host.setSysctl(c.Name, string(want))
	case plan.Content:
		at := time.Time{}
		if want.Meets(e.Was) {
			at = e.WasTime
		}
		return s.host.setFile(c.Name, want.File, at)
	case plan.Incoming:
		return s.setIngress(j, c.Name, want)
	case plan.Queue:
		u := j.Uplink(c.Name)
		switch {
		case want.Meets(e.Was):
			return s.host.restoreTree(u.Link, u.Tree)
		case want.Stack == nil:
			return fmt.Errorf("%q is no queue that can be set", want)
		}
		return s.host.setTree(u.Link, want.Stack)
	}
	return fmt.Errorf("%s: nothing to set", c.Target)
}

// setIngress sets what plan.IncomingAt gave. Of half of it nothing is to stay, at no tunnel that was ever unpacked.
func (s Store) setIngress(j *journal.Journal, dev string, want plan.Incoming) error {
	switch {
	case want.Stack != nil:
		return s.host.setIngress(j.Index(dev), want.Arriving)
	case want.Other == plan.NoIngress, want.Other == plan.HalfIngress:
		return s.host.setIngress(j.Index(dev), qdisc.Arriving{Tunnels: j.Tunnels(dev)})
	}
	return fmt.Errorf("%q is no queue that can be set", want)
}

// inOrder puts the queues first: without them the rest is not wanted. Before them comes only the kernel's default for
// queues. A queue that the kernel made by itself is put back by letting it make one again. Files come last, in the
// order in which they are given.
func inOrder(changes []plan.Change) []plan.Change {
	rank := func(c plan.Change) int {
		switch {
		case c.Target == plan.Target{Kind: plan.Sysctl, Name: "net.core.default_qdisc"}:
			return 0
		case c.Kind == plan.Root:
			return 1
		case c.Kind == plan.Ingress:
			return 2
		case c.Kind == plan.Sysctl:
			return 3
		}
		return 4
	}
	changes = slices.Clone(changes)
	slices.SortStableFunc(changes, func(a, b plan.Change) int { return rank(a) - rank(b) })
	return changes
}
