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
