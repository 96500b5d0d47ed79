// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"strings"
	"testing"

	"weir/internal/host"
)

func TestFaultOf(t *testing.T) {
	for _, c := range []struct {
		kind, release, build string
		want                 Certainty // empty: no fault
	}{
		{"cake_mq", "6.12.48+deb13-amd64", "", ""},
		{"cake_mq", "7.0.0", "", Possible},
		{"cake_mq", "7.0-rc3", "", Possible},
		{"cake_mq", "7.1.7-4-pve", "", Possible},
		{"cake_mq", "7.1.8-amd64", "", ""}, // a stable release that has the mend
		{"cake_mq", "7.1.12-4-pve", "", ""},
		{"cake_mq", "7.2.0", "", ""},
		{"cake_mq", "7.10.1", "", ""},
		{"cake_mq", "8.0", "", ""},
		{"cake_mq", "", "", ""},
		{"cake_mq", "seven", "", ""},
		{"cake_mq", "7", "", ""},
		{"cake", "7.0.0", "", ""},

		// The builder names the release of Linux, which the kernel's own does not tell.
		{"cake_mq", "7.0.0-15-generic", "Ubuntu 7.0.0-15.15-generic 7.0.3", Possible},
		{"cake_mq", "7.1.0-15-generic", "Ubuntu 7.1.0-15.15-generic 7.1.9", ""},
		{"cake_mq", "7.1.3+deb14-amd64", "Debian 7.1.3-1", Certain},
		{"htb", "6.1.0-35-amd64", "Debian 6.1.137-1", ""},
		{"htb", "6.1.0-36-amd64", "Debian 6.1.138-1", Certain},
		{"htb", "6.1.0-37-amd64", "Debian 6.1.139-1", ""},
		{"htb", "6.1.0-37-amd64", "", ""},
		{"htb", "6.12.28", "", Possible},
		{"htb", "6.12.29", "", ""},
		{"htb", "6.15.0", "", ""},

		{UDPSegments, "6.18.1", "", ""},
		{UDPSegments, "7.0.10-1-pve", "", Possible},
		{UDPSegments, "7.0.11-1-pve", "", ""},
		{UDPSegments, "7.1.0", "", ""},

		// A series that upstream has ended without the mend.
		{"fq", "6.6.100", "", ""},
		{"fq", "6.8.0-31-generic", "Ubuntu 6.8.0-31.31-generic 6.8.1", Untold},
		{"fq", "6.17.13-arch1-1", "", Untold},
		{"fq", "6.17.5-amd64", "Debian 6.17.5-1", Certain},
		{"fq", "6.12.76-1-lts", "", Possible},
		{"fq", "6.12.77-1-lts", "", ""},
		{"fq", "6.18.16", "", Possible},
		{"fq", "6.18.17", "", ""},
		{"fq", "6.19.6", "", Possible},
		{"fq", "6.19.7", "", ""},
		{"fq", "7.0.0", "", ""},

		// An old release with mends.
		{"fq", "6.12.0-55.9.1.el10_0.x86_64", "", Untold},
		{"fq", "6.12.0-160000.5-default", "", Untold},
		{"cake_mq", "7.0.0-1.el11.x86_64", "", Untold},
	} {
		f, is := FaultOf(c.kind, host.Facts{Kernel: c.release, Build: c.build})
		if is != (c.want != "") || f.Certainty != c.want {
			t.Errorf("%s of %q, %q: %q, %s", c.kind, c.release, c.build, f.Certainty, f)
		}
	}
	f, _ := FaultOf("fq", host.Facts{Kernel: "6.17.5"})
	const want = "fq of Linux 6.17.5 has a known fault, mended in 6.18.17 (upstream "
	if got := f.String(); !strings.HasPrefix(got, want) {
		t.Error(got)
	}
}

// Every place that chooses a queue leaves out one that has a fault, and says so. What somebody asks for is taken, with
// a warning.
func TestFaultyLeftOut(t *testing.T) {
	kernelOf := func(release, build string) func(*host.Facts) {
		return func(f *host.Facts) { f.Kernel, f.Build = release, build }
	}
	unknownSpeed := func(f *host.Facts) { f.Links[1].Speed = 0 }
	l4s := func(f *host.Facts) { f.Qdiscs["dualpi2"] = host.Yes }
	noCAKE := kernelWith("fq", "fq_codel", "htb", "mq")
	htb := kernelOf("6.1.0-36-amd64", "Debian 6.1.138-1")
	fq := kernelOf("6.12.57+deb13-amd64", "Debian 6.12.57-1")
	const faultyHTB, faultyFQ = "htb of Linux 6.1.138 has a known fault", "fq of Linux 6.12.57 has a known fault"
	for name, c := range map[string]struct {
		goal   Goal
		facts  host.Facts
		want   string // the changes begin so
		says   string // a note, or why nothing is planned
		spoken bool
	}{
		"htb, for want of CAKE": {Goal{Rate: 50e6}, with(t, noCAKE, htb), "", "shape with: " + faultyHTB, true},
		"htb of a relay": {Goal{Rate: 50e6, Role: "relay", Carries: "proxy"}, with(t, noCAKE, htb), "",
			"shape with: " + faultyHTB, true},
		"htb at the ingress": {Goal{Ingress: 50e6}, with(t, noCAKE, htb), "", "shape with: " + faultyHTB, true},
		"htb above dualpi2": {Goal{Rate: 50e6, Prefer: "l4s"}, with(t, l4s, htb),
			"root: cake bandwidth 49.875mbit", "not used: " + faultyHTB, true},
		"fq below mq": {Goal{}, with(t, uplink(t, "mq | pfifo_fast", 4), fq), "root: mq | fq_codel",
			"not used: " + faultyFQ, true},
		"fq below mq and htb": {Goal{Rate: 40e9, OneCAKE: 5e9}, with(t, uplink(t, "mq | fq_codel", 4), unknownSpeed,
			fq), "root: mq | htb rate 9.975gbit | fq_codel", "not used: " + faultyFQ, true},
		"fq, of which nothing can be told": {Goal{}, with(t, uplink(t, "mq | pfifo_fast", 4),
			kernelOf("6.12.0-55.9.1.el10_0.x86_64", "")), "root: mq | fq", "cannot be told", true},
		"fq, asked for":    {Goal{Qdisc: "fq"}, with(t, fq), "root: fq", faultyFQ, true},
		"fq, of a recipe":  {Goal{Recipe: "lossy-bbr"}, with(t, fq), "default_qdisc: fq", faultyFQ, true},
		"fq, mended":       {Goal{}, with(t, uplink(t, "mq | pfifo_fast", 4)), "root: mq | fq", faultyFQ, false},
		"cake, beside htb": {Goal{Rate: 50e6}, with(t, htb), "root: cake bandwidth", faultyHTB, false},
	} {
		p, err := planFor(c.goal, c.facts)
		said := fmt.Sprint(p.Considered, err)
		if !strings.HasPrefix(summary(p), c.want) || strings.Contains(said, c.says) != c.spoken {
			t.Errorf("%s:\n%s\n%s", name, summary(p), said)
		}
	}
}
