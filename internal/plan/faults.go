// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"slices"

	"weir/internal/host"
	"weir/internal/qdisc"
)

// Fault is what a range of kernels does wrong. A distribution may have mended it earlier: that is not looked for.
type Fault struct {
	Kind         string  // of the queueing discipline, or UDPSegments
	from, until  version // the last of them without it
	introduced   string  // upstream's commit
	mended       string
	Consequences string
}

// UDPSegments is the cutting of a large datagram into many, which programs have the kernel do (UDP_SEGMENT, udp(7)).
const UDPSegments = "UDP GSO"

// version of a kernel. One that does not say its last number has 0.
type version [3]int

func (v version) String() string {
	if v[2] == 0 {
		return fmt.Sprintf("%d.%d", v[0], v[1])
	}
	return fmt.Sprintf("%d.%d.%d", v[0], v[1], v[2])
}

// faults is the table of those that are known.
func faults() []Fault {
	return []Fault{{
		Kind: "cake_mq", from: version{7, 0}, until: version{7, 2}, introduced: "15c2715a5264", mended: "a3729e0df005",
		Consequences: "it sets its rate anew while it sends, and forgets what it sends by: 470 ms under load where " +
			"4 were to be (openwrt/openwrt#25182)",
	}, {
		Kind: UDPSegments, from: version{7, 0}, until: version{7, 1, 5}, introduced: "b10b446",
		mended: "78effd8 and 5f17ae0",
		Consequences: "with some drivers datagrams get wrong lengths and checksums, and are lost: 2.2 Mbit/s where " +
			"400 were to be (tailscale/tailscale#19918, #21335)",
	}}
}

// FaultOf finds what a kernel of this release does wrong with a queueing discipline, or with UDPSegments.
func FaultOf(kind, release string) (Fault, bool) {
	var v version
	if n, _ := fmt.Sscanf(release, "%d.%d.%d", &v[0], &v[1], &v[2]); n < 2 {
		return Fault{}, false
	}
	for _, f := range faults() {
		if f.Kind == kind && slices.Compare(v[:], f.from[:]) >= 0 && slices.Compare(v[:], f.until[:]) < 0 {
			return f, true
		}
	}
	return Fault{}, false
}

// String says where a fault is, and since when it is not any more.
func (f Fault) String() string {
	return fmt.Sprintf("%s of Linux %s has a known fault, mended in %s (upstream %s, by %s): %s", f.Kind, f.from,
		f.until, f.introduced, f.mended, f.Consequences)
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
