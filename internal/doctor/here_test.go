// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"slices"
	"testing"

	"weir/internal/host"
	"weir/internal/qdisc"
)

// inBand is a prio with a discipline in the third of its bands, and what has left by all, and by that, while one
// listened.
func inBand(t *testing.T, text string, all, third uint64) func(*host.Facts) {
	const root, other = 0x10000, 0x90000
	return func(f *host.Facts) {
		f.Deep.Listened = millisecond(10_000)
		q := tree(t, text, 1).Qdiscs[0]
		q.Handle, q.Parent, q.Stats = other, root+3, qdisc.Stats{Bytes: third, Recent: qdisc.Recent{Bytes: third}}
		f.Links[1].Tree = qdisc.Tree{Qdiscs: []qdisc.Qdisc{{Kind: "prio", Handle: root, Parent: qdisc.Root,
			Stats: qdisc.Stats{Bytes: all, Recent: qdisc.Recent{Bytes: all}}}, q}}
	}
}

// What takes an emulator away takes nothing else away with it.
func TestEmulatorsPlace(t *testing.T) {
	const shows = "tc qdisc show dev eth0 shows it; tc qdisc del dev eth0 "
	for want, edit := range map[string]func(*host.Facts){
		shows + "root takes it away, if no test needs it":       uplink(t, "netem loss 1%", 1),
		shows + "parent 1:3 takes it away, if no test needs it": inBand(t, "netem loss 1%", 4e7, 1e7),
	} {
		found := Diagnose(with(t, looked, edit))
		i := slices.IndexFunc(found, func(f Finding) bool { return f.Code == "netem-here" })
		if i < 0 || found[i].Remark != want {
			t.Errorf("%+v, want %q", found, want)
		}
	}
}

// A filter is named by where it hangs, and with one colon.
func TestFiltersPlace(t *testing.T) {
	for parent, place := range map[qdisc.Handle]string{
		0x10000:            " (parent 1:)",
		0x10002:            " (parent 1:2)",
		ingressFilters:     ", at its ingress",
		ingressFilters + 1: ", at its egress",
	} {
		found := Diagnose(with(t, looked, policer(0, 9), hangs(parent)))
		i := slices.IndexFunc(found, func(f Finding) bool { return f.Code == "filter-drops" })
		want := "The filter u32 on eth0" + place + ": 9 packets dropped by its action gact since it was made."
		if i < 0 || found[i].Seen != want {
			t.Errorf("%+v, want %q", found, want)
		}
	}
}
