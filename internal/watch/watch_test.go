// SPDX-License-Identifier: Apache-2.0

package watch

import (
	"strings"
	"testing"
	"time"

	"weir/internal/doctor"
	"weir/internal/dualpi2"
	"weir/internal/host"
	"weir/internal/kernel"
	"weir/internal/qdisc"
	"weir/internal/units"
)

func at(s int) time.Time { return time.Date(2026, 5, 4, 12, 0, s, 0, time.UTC) }

// A second counts what a queue did in it, and the most that stood there at any look.
func TestFold(t *testing.T) {
	var f Fold
	tin := func(n uint64) []kernel.Part {
		return []kernel.Part{{Name: "voice", Packets: n, Bytes: 10 * n, Drops: n, Marks: 2 * n}}
	}
	first := f.End(at(0), Queue{Stats: qdisc.Stats{Bytes: 5000, Drops: 7}, Parts: tin(100)})
	if first.Bytes != 0 || first.Drops != 0 || first.Span != 0 || first.Looks != 1 || first.Empty != 1 {
		t.Errorf("what was before counts: %+v", first)
	}
	f.Look(qdisc.Stats{Qlen: 9, Backlog: 9000})
	f.Look(qdisc.Stats{})
	f.Look(qdisc.Stats{Qlen: 3, Backlog: 3000})
	s := f.End(at(2), Queue{Stats: qdisc.Stats{Bytes: 255_000, Drops: 9, Marks: 4, Qlen: 1, Backlog: 100},
		Parts: tin(103)})
	if s.Looks != 4 || s.Empty != 1 || s.Qlen != 9 || s.Backlog != 9000 || s.Bytes != 250_000 || s.Drops != 2 ||
		s.Marks != 4 || s.Rate() != 1e6 {
		t.Errorf("%+v at %v", s, s.Rate())
	}
	if p := s.Parts[0]; p.Packets != 3 || p.Bytes != 30 || p.Drops != 3 || p.Marks != 6 {
		t.Errorf("%+v", p)
	}
	if s.Shaped = 720_000; s.Wait() != units.Duration(72*time.Millisecond) {
		t.Errorf("9000 bytes at 1mbit, which is more than the shaper's rate: %v", s.Wait())
	}
	// Another queue is in its place: nothing is taken for growth.
	if s := f.End(at(3), Queue{Stats: qdisc.Stats{Bytes: 10}, Parts: tin(1)}); s.Bytes != 0 || s.Parts[0].Bytes != 0 {
		t.Errorf("%+v", s)
	}
}

func TestParts(t *testing.T) {
	cake := qdisc.CakeStats{Tins: []qdisc.CakeTin{{SentPackets: 1, Drops: 2, AvgDelay: 5}, {Marks: 3}, {}, {}}}
	for name, c := range map[string]struct {
		tree qdisc.Tree
		want string
	}{
		"fq_codel": {qdisc.Tree{Qdiscs: []qdisc.Qdisc{{Parent: qdisc.Root}}}, ""},
		// of cake_mq each queue has its tins
		"cake_mq": {qdisc.Tree{Qdiscs: []qdisc.Qdisc{{Parent: qdisc.Root}, {Stats: qdisc.Stats{X: cake}},
			{Stats: qdisc.Stats{X: cake}}}}, "bulk 2 4 0 5µs, besteffort 0 0 6 0s, video 0 0 0 0s, voice 0 0 0 0s"},
		"dualpi2": {qdisc.Tree{Qdiscs: []qdisc.Qdisc{{Parent: qdisc.Root, Stats: qdisc.Stats{X: qdisc.DualPI2Stats{
			PacketsC: 3, PacketsL: 4, DelayC: 20, DelayL: 1}}}}}, "L 4 0 0 1µs, C 3 0 0 20µs"},
		"bpf_dualpi2": {qdisc.Tree{Qdiscs: []qdisc.Qdisc{{Parent: qdisc.Root, Stats: qdisc.Stats{X: dualpi2.Stats{
			PacketsC: 3, PacketsL: 4, DelayC: 20, DelayL: 1}}}}}, "L 4 0 0 1µs, C 3 0 0 20µs"},
		"at the ingress": {qdisc.Tree{Qdiscs: []qdisc.Qdisc{{Parent: qdisc.Ingress,
			Stats: qdisc.Stats{X: cake}}}}, ""},
	} {
		var got []string
		for _, p := range kernel.Parts(c.tree) {
			got = append(got, strings.TrimSpace(strings.Join([]string{p.Name, perSecond(p.Packets, 1),
				perSecond(p.Drops, 1), perSecond(p.Marks, 1), time.Duration(p.Delay).String()}, " ")))
		}
		if all := strings.Join(got, ", "); all != c.want {
			t.Errorf("%s: %s, want %s", name, all, c.want)
		}
	}
}

// scene is a state after some seconds, each of four looks of which so many found nothing waiting.
func scene(q Queue, seconds, empty int, rate, backlog uint64) State {
	var s State
	for i := range seconds {
		s.Add(Event{Out: &Ended{q, Second{At: at(i), Span: units.Duration(time.Second), Looks: 4, Empty: empty,
			Bytes: rate / 8, Backlog: backlog, Qlen: backlog / 1500}}})
	}
	return s
}

// waiting is a state in which connections wait so many ms. 15 kB take 2.4 at 50 Mbit/s.
func waiting(s State, added float64) State {
	s.Clients.All.Added.P50 = added
	return s
}

func TestVerdict(t *testing.T) {
	shaped := Queue{Dev: "eth0", Kind: "cake", Rate: 50e6}
	fell := scene(shaped, 5, 0, 49_900_000, 15e3)
	for i := range 5 {
		fell.Add(Event{Out: &Ended{Queue{Dev: "eth0", Kind: "cake", Rate: 30e6}, Second{At: at(5 + i), Looks: 4,
			Span: units.Duration(time.Second), Bytes: 29_900_000 / 8, Backlog: 15e3}}})
	}
	// What waited before takes as long as it took then.
	if was, is := fell.Out.Seconds[0].Wait(), fell.Out.Seconds[9].Wait(); was != 2_400_000 || is != 4_000_000 {
		t.Errorf("15 kB waited %v at 50mbit and %v at 30mbit", time.Duration(was), time.Duration(is))
	}
	beyond := doctor.Bottleneck{Limit: doctor.LimitRate, Says: "a rate enforced beyond this host."}
	for name, c := range map[string]struct {
		s     State
		binds doctor.Bottleneck
		here  Here
		says  string
	}{
		"full": {s: scene(shaped, 20, 0, 49_900_000, 15e3), here: Yes,
			says: "Yes: packets waited here at 40 of 40 looks in 10 s, and 100 % of 50mbit are in use. The queue never "},
		"full, and little is sent": {s: scene(shaped, 20, 0, 20e6, 15e3), here: Yes,
			says: "Yes, or right below it: packets waited here at 40 of 40 looks in 10 s, and 40 % of 50mbit "},
		"bursts": {s: scene(shaped, 20, 2, 20e6, 15e3), here: Partly, says: "Now and then: packets waited here at 20 "},
		"it drains": {s: scene(shaped, 20, 4, 20e6, 0), here: No,
			says: "No: the queue here drains. Packets waited at 0 of 40 looks in 10 s, and 40 % of 50mbit are in use. T"},
		// doctor has looked once, between two bursts
		"bursts, and doctor saw none": {s: scene(shaped, 20, 2, 20e6, 15e3), binds: beyond, here: Partly,
			says: "Now and then: packets waited here at 20 of 40 looks "},
		"bursts, and what waits waits elsewhere": {s: waiting(scene(shaped, 20, 2, 20e6, 15e3), 10), binds: beyond,
			here: No, says: "No: connections wait, and packets waited here at 20 of 40 looks in 10 s. It is "},
		"bursts, and what waits waits here": {s: waiting(scene(shaped, 20, 2, 20e6, 15e3), 9), binds: beyond,
			here: Partly, says: "Now and then: "},
		"at the provider": {s: scene(shaped, 20, 4, 20e6, 0), binds: beyond, here: No,
			says: "No: connections wait, and packets waited here at 0 of 40 looks in 10 s. It is a rate enforced "},
		"full says more than one look at connections": {s: scene(shaped, 20, 0, 50e6, 15e3), binds: beyond, here: Yes,
			says: "Yes: "},
		"no rate is known": {s: scene(Queue{Dev: "eth0", Kind: "fq"}, 20, 0, 50e6, 15e3), here: Yes,
			says: "Yes: packets waited here at 40 of 40 looks in 10 s. The queue never drains."},
		"the card's own": {s: scene(Queue{Dev: "eth0", Kind: "fq", Speed: 1e9}, 20, 0, 980e6, 15e3), here: Yes,
			says: "Yes: packets waited here at 40 of 40 looks in 10 s, and 98 % of 1gbit are in use."},
		"idle": {s: scene(shaped, 20, 4, 20e3, 0), here: Idle, says: "Nothing to tell: this host sends 0.02 Mbit/s,"},
		"the rate has fallen meanwhile": {s: fell, here: Yes,
			says: "Yes: packets waited here at 40 of 40 looks in 10 s, and 100 % of a rate that moves (30mbit now) a"},
		"no uplink": {s: scene(Queue{}, 3, 0, 0, 0), here: Unknown, says: "Cannot be told: there is no default route"},
		"noqueue": {s: scene(Queue{Dev: "v", Kind: "noqueue"}, 3, 0, 0, 0), here: Unknown,
			says: "Cannot be told: v has no queue (noqueue)"},
		"gone":    {s: scene(Queue{Dev: "v", Hidden: "v is gone"}, 3, 0, 0, 0), here: Unknown, says: "Cannot be told: v is"},
		"not yet": {here: Unknown, says: "Looking …"},
	} {
		c.s.Doctor.Bottleneck = c.binds
		if v := c.s.Verdict(); v.Here != c.here || !strings.HasPrefix(v.Says, c.says) {
			t.Errorf("%s: %s: %q, want %s: %q", name, v.Here, v.Says, c.here, c.says)
		}
	}
}

// Ten minutes are kept and no more, and another device starts anew.
func TestHistory(t *testing.T) {
	s := scene(Queue{Dev: "eth0"}, 1000, 0, 0, 0)
	if n := len(s.Out.Seconds); n != 600 || !s.Out.Seconds[0].At.Equal(at(400)) {
		t.Errorf("%d seconds from %v on", n, s.Out.Seconds[0].At)
	}
	s.Add(Event{Out: &Ended{Queue{Dev: "eth1"}, Second{At: at(1000)}}})
	if n := len(s.Out.Seconds); n != 1 {
		t.Errorf("%d seconds", n)
	}
}

// A finding came, went, and came again.
func TestFindings(t *testing.T) {
	var s State
	see := func(second int, codes ...doctor.Code) string {
		d := &Diagnosis{At: at(second)}
		for _, c := range codes {
			d.Findings = append(d.Findings, doctor.Finding{Code: c, Severity: doctor.Notable})
		}
		d.Findings = append(d.Findings, doctor.Finding{Code: "kernel", Severity: doctor.Fine})
		s.Add(Event{Doctor: d})
		var all []string
		for _, f := range s.Findings {
			text := string(f.Code)
			if !f.Came.IsZero() {
				text += f.Came.Format(" +5")
			}
			if !f.Went.IsZero() {
				text += f.Went.Format(" -5")
			}
			all = append(all, text)
		}
		return strings.Join(all, ", ")
	}
	for _, c := range []struct {
		second int
		codes  []doctor.Code
		want   string
	}{
		{0, []doctor.Code{"a"}, "a"},
		{1, []doctor.Code{"a", "b"}, "b +1, a"},
		{2, []doctor.Code{"b"}, "b +1, a -2"},
		{3, []doctor.Code{"b", "a"}, "a +3, b +1, a -2"},
		{4, nil, "a +3 -4, b +1 -4, a -2"},
	} {
		if got := see(c.second, c.codes...); got != c.want {
			t.Errorf("second %d: %s, want %s", c.second, got, c.want)
		}
	}
}

// Without a name the queue is looked at by which all leaves: nothing that a bridge or a VPN's device has says how long
// packets wait.
func TestWatched(t *testing.T) {
	f := host.Facts{Uplink: "tun0", Links: []host.Link{{Name: "tun0", Kind: "tuntap", Up: true},
		{Name: "eth0", Up: true, Addrs: []string{"192.0.2.7/24"}}}}
	for named, want := range map[string]string{"": "eth0", "tun0": "tun0"} {
		if got := watchedDevice(f, named); got != want {
			t.Errorf("%q: %s, want %s", named, got, want)
		}
	}
}
