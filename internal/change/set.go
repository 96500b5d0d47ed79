// SPDX-License-Identifier: Apache-2.0

package change

import (
	"slices"

	"weir/internal/journal"
	"weir/internal/kernel"
	"weir/internal/plan"
)

// set carries out one change. What there was before is put back as it was read, which may be more than a plan can
// write.
func (s Store) set(j *journal.Journal, c plan.Change) error {
	return c.Object().Put(s.host, j.Place(*j.Entry(c.Target)), c.New)
}

// sortChanges puts changes in the order of the table. Before all comes the kernel's default for queues: one that the
// kernel made by itself is put back by letting it make one again. A congestion control goes after the settings that
// name it. Files stay in the order in which they are given.
func sortChanges(changes []plan.Change) []plan.Change {
	first := kernel.Target{Kind: kernel.Sysctl, Name: "net.core.default_qdisc"}
	rank := func(c plan.Change) int {
		if c.Target == first {
			return -1
		}
		order := 2 * c.Kind.Order()
		if c.New == kernel.Value(kernel.Absent) {
			order = 2*kernel.Sysctl.Order() + 1
		}
		return order
	}
	changes = slices.Clone(changes)
	slices.SortStableFunc(changes, func(a, b plan.Change) int { return rank(a) - rank(b) })
	return changes
}
