// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"

	"weir/internal/host"
	"weir/internal/qdisc"
)

// Fault is what a range of kernels does wrong with a queueing discipline. A stable release or a distribution may have
// mended it earlier: that is not looked for.
type Fault struct {
	Kind         string // of the queueing discipline
	from, until  [2]int // versions, the last of them without it
	introduced   string // upstream's commit
	mended       string
	Consequences string
}

// faults is the table of those that are known.
func faults() []Fault {
	return []Fault{{
		Kind: "cake_mq", from: [2]int{7, 0}, until: [2]int{7, 2}, introduced: "15c2715a5264", mended: "a3729e0df005",
		Consequences: "it sets its rate anew while it sends, and forgets what it sends by: 470 ms under load where " +
			"4 were to be (openwrt/openwrt#25182)",
	}}
}

// FaultOf finds what a kernel of this release does wrong with a queueing discipline.
func FaultOf(kind, release string) (Fault, bool) {
	var v [2]int
	if _, err := fmt.Sscanf(release, "%d.%d", &v[0], &v[1]); err != nil {
		return Fault{}, false
	}
	before := func(a, b [2]int) bool { return a[0] < b[0] || a[0] == b[0] && a[1] < b[1] }
	for _, f := range faults() {
		if f.Kind == kind && !before(v, f.from) && before(v, f.until) {
			return f, true
		}
	}
	return Fault{}, false
}

// String says where a fault is, and since when it is not any more.
func (f Fault) String() string {
	return fmt.Sprintf("%s of Linux %d.%d has a known fault, mended in %d.%d (upstream %s, by %s): %s", f.Kind,
		f.from[0], f.from[1], f.until[0], f.until[1], f.introduced, f.mended, f.Consequences)
}

// takes reports whether the kernel has a queueing discipline that does what it is for. Of one with a known fault it
// notes that it is left out.
func (d *draft) takes(kind string) bool {
	if d.facts.Qdiscs[kind] != host.Yes {
		return false
	}
	f, faulty := FaultOf(kind, d.facts.Kernel)
	if faulty {
		d.note(kind, "not used: %s", f)
	}
	return !faulty
}

// warnOfFaults says what a queue that somebody asks for does wrong on this kernel.
func (d *draft) warnOfFaults(s qdisc.Stack) {
	for _, level := range s {
		kind := level.Kind()
		if q, is := level.(qdisc.Cake); is && q.MultiQueue {
			kind = "cake_mq"
		}
		if f, faulty := FaultOf(kind, d.facts.Kernel); faulty {
			d.warn(d.link.Name, "%s", f)
		}
	}
}
