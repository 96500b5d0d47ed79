// SPDX-License-Identifier: Apache-2.0

package qdisc

import "slices"

// Passed is, of the disciplines for which something holds, that which most of what leaves passes: false if less than a
// quarter of it passes such. It goes by what has left recently, where that was counted.
func (t Tree) Passed(holds func(Qdisc) bool) (found Qdisc, ok bool) {
	root, ok := t.Root()
	if !ok {
		return Qdisc{}, false
	}
	count := counter(root)
	way := t.way(root, map[Handle]bool{})
	onWay := func(q Qdisc) bool {
		return slices.ContainsFunc(way, func(s Step) bool {
			return !s.Class && s.Kind == q.Kind && s.Handle == q.Handle && s.Parent == q.Parent
		})
	}
	sum := uint64(0)
	for _, q := range t.Qdiscs {
		if q.Parent == Ingress || !holds(q) {
			continue
		}
		if onWay(q) {
			return q, true
		}
		if sum += count(q.Stats); found.Kind == "" || count(q.Stats) > count(found.Stats) {
			found = q
		}
	}
	const quarter = 4
	if sum == 0 || quarter*sum < count(root.Stats) {
		return Qdisc{}, false
	}
	return found, true
}

// counter reads of statistics what has left, in bytes: recently, if any has left q then; else ever.
func counter(q Qdisc) func(Stats) uint64 {
	if q.Stats.Recent.Bytes == 0 {
		return func(s Stats) uint64 { return s.Bytes }
	}
	return func(s Stats) uint64 { return s.Recent.Bytes }
}

// Emulates reports whether a netem delays, loses or spoils packets, or bounds their rate: one with a limit alone is a
// plain queue. One without words here may.
func Emulates(q Qdisc) bool {
	n, read := q.Spec.(netemSpec)
	return q.Kind == "netem" && (!read || n.Delay > 0 || n.Jitter > 0 || n.Loss > 0 || n.Gilbert != gilbertModel{} ||
		n.Duplicate > 0 || n.Corrupt > 0 || n.Reorder > 0 || n.Rate > 0)
}
