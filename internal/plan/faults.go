// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"slices"

	"weir/internal/host"
	"weir/internal/qdisc"
)

// Fault is what a range of kernels does wrong.
//
// Of each the commits and the releases are read from the changelogs of the stable series and from the records of the
// Linux CNA, which say for each series in which release a fault began and ended. What a normal host does not meet is
// left out: what only a fuzzer reached, or whoever changes a queue's limits as packets wait.
//
// None is tried out on the host. cake_mq's shows as milliseconds under a load of seconds, fq's only where a kernel is
// at hand that has it, UDPSegments' only with some drivers: no trial of two seconds tells a faulty kernel from a slow
// host.
type Fault struct {
	Kind         string // of the queueing discipline, or UDPSegments
	spans        []span // earliest first
	rare         bool   // it takes more than traffic to see it
	introduced   string // upstream's commit
	mended       string
	Consequences string

	// Of a fault that was found on a host.
	release   version // of Linux that the kernel is made from
	mend      version // the first of its series, or the next, that has it mended
	Certainty Certainty
}

// span is releases of Linux, from the first with a fault until the first without.
type span struct{ from, until version }

// Certainty is how sure it is that a kernel has a fault.
type Certainty string

const (
	Certain  Certainty = "certain"  // its builder adds no mends to the release that it is made from
	Possible Certainty = "possible" // its builder may have added the mend
	Untold   Certainty = "untold"   // its builder keeps an old release, and adds mends
)

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
		// Linux 7.1.8 is the first with the mend; the series 7.0 had ended.
		Kind: "cake_mq", spans: []span{{version{7, 0}, version{7, 1, 8}}},
		introduced: "15c2715a5264", mended: "a3729e0df005",
		Consequences: "it sets its rate anew while it sends, and forgets what it sends by: 470 ms under load where " +
			"4 were to be (openwrt/openwrt#25182)",
	}, {
		// In 7.1-rc5 and 7.0.11. Tailscale works around it up to 7.1.4 (tailscale/tailscale#21335).
		Kind: UDPSegments, spans: []span{{version{7, 0}, version{7, 0, 11}}},
		introduced: "b10b446ce7ad", mended: "78effd896eee and 5f17ae0f595a",
		Consequences: "with some drivers datagrams get wrong lengths and checksums, and many are lost " +
			"(tailscale/tailscale#19918)",
	}, {
		// The stable reviews of 6.12.77, 6.18.17 and 6.19.7; in 7.0-rc3.
		Kind: "fq", rare: true, introduced: "29f834aa326e", mended: "a4c2b8be2e53",
		spans: []span{{version{6, 7}, version{6, 12, 77}}, {version{6, 13}, version{6, 18, 17}},
			{version{6, 19}, version{6, 19, 7}}},
		Consequences: "at each reset of the network card it throws packets away and goes on counting them, until it " +
			"takes no more",
	}, {
		// CVE-2025-37953, which only releases of stable series had.
		Kind: "htb", introduced: "5ba8b837b522", mended: "376947861013",
		spans: []span{{version{6, 1, 138}, version{6, 1, 139}}, {version{6, 6, 90}, version{6, 6, 91}},
			{version{6, 12, 28}, version{6, 12, 29}}, {version{6, 14, 6}, version{6, 14, 7}}},
		Consequences: "the kernel may crash when fq_codel below it drops the last packet that waits",
	}}
}

// FaultOf finds what a host's kernel does wrong with a queueing discipline, or with UDPSegments.
func FaultOf(kind string, on host.Facts) (Fault, bool) {
	release, builder := on.Upstream()
	var v version
	if n, _ := fmt.Sscanf(release, "%d.%d.%d", &v[0], &v[1], &v[2]); n < 2 {
		return Fault{}, false
	}
	for _, f := range faults() {
		i := slices.IndexFunc(f.spans, func(s span) bool {
			return slices.Compare(v[:], s.from[:]) >= 0 && slices.Compare(v[:], s.until[:]) < 0
		})
		if f.Kind != kind || i < 0 {
			continue
		}
		f.release, f.mend, f.Certainty = v, f.spans[i].until, Possible
		// A series that upstream has ended without the mend lives on at a builder who adds mends to it.
		ended := !slices.Equal(v[:2], f.mend[:2])
		switch {
		case builder == host.StableBuilder:
			f.Certainty = Certain
		case builder == host.BackportBuilder, f.rare && ended:
			f.Certainty = Untold
		}
		return f, true
	}
	return Fault{}, false
}

// Known reports whether there is a fault, as far as can be told.
func (f Fault) Known() bool { return f.Certainty != "" && f.Certainty != Untold }

// String says where a fault is, and since when it is not any more.
func (f Fault) String() string {
	return fmt.Sprintf("%s of Linux %s has a known fault, mended in %s (upstream %s, by %s): %s", f.Kind, f.release,
		f.mend, f.introduced, f.mended, f.Consequences)
}

// sound reports whether nothing speaks against a queueing discipline of this kernel. Of one with a known fault it notes
// that it is left out.
func (d *draft) sound(kind string) bool {
	f, faulty := FaultOf(kind, d.facts)
	switch {
	case f.Known():
		d.note(kind, "not used: %s", f)
	case faulty:
		d.note(kind, "used, though %s. Whether this kernel has that mended cannot be told", f)
	}
	return !f.Known()
}

// takes reports whether the kernel has these kinds of qdiscs, or might, and nothing speaks against one of them.
func (d *draft) takes(kinds ...string) bool {
	return !slices.ContainsFunc(kinds, func(kind string) bool { return !d.has(kind) }) &&
		!slices.ContainsFunc(kinds, func(kind string) bool { return !d.sound(kind) })
}

// warnOfFaults says what queues do wrong on this kernel that somebody asks for; a rule takes none of them.
func (d *draft) warnOfFaults(s qdisc.Stack) {
	for _, level := range s {
		if f, _ := FaultOf(level.Kind(), d.facts); f.Known() {
			d.warn(d.link.Name, "%s", f)
		}
	}
}
