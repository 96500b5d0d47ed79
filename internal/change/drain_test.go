// SPDX-License-Identifier: Apache-2.0

package change

import (
	"testing"

	"golang.org/x/sys/unix"

	"weir/internal/host"
	"weir/internal/journal"
	"weir/internal/kernel"
	"weir/internal/plan"
	"weir/internal/qdisc"
	"weir/internal/units"
)

// Who is killed while less is sent leaves a queue that status names, up mends, and down takes for ours.
func TestKilledWhileItDrains(t *testing.T) {
	for _, back := range []string{"down", "recover", "up"} {
		s, m := newFake(t)
		goal := plan.Goal{Rate: 100e6, RTT: 50e6}
		before := kernel.QueueOf(m.f.Links[0].Tree).String()
		if _, err := s.Up(goal, 0); err != nil {
			t.Fatal(err)
		}
		set := kernel.QueueOf(m.f.Links[0].Tree)
		j, err := s.disk.Load()
		if err != nil {
			t.Fatal(err)
		}
		slower := kernel.Queue{Stack: plan.AtRate(set.Stack, 70e6)}
		j.Entry(journal.RootOf("eth0")).AddTemporary(slower)
		if err := s.disk.Save(j); err != nil {
			t.Fatal(err)
		}
		if st, err := s.Status(); err != nil || !st.InForce {
			t.Errorf("before it is slower: %+v, %v", st, err)
		}
		m.f.Links[0].Tree = single(t, slower.String())
		if st, err := s.Status(); err != nil || st.InForce {
			t.Errorf("slower, and in force: %+v, %v", st, err)
		}
		want := before
		switch back {
		case "down":
			_, err = s.Down(Undo{})
		case "recover":
			_, err = s.Recover()
			want = slower.String() // nothing is pending
		case "up":
			_, err = s.Up(goal, 0)
			want = set.String()
		}
		if got := kernel.QueueOf(m.f.Links[0].Tree).String(); err != nil || got != want {
			t.Errorf("%s: %s, want %s; %v", back, got, want, err)
		}
	}
}

// A queue in which packets wait sends less for a moment, and as much as before after it; one in which none waits, or
// that is no goal's, is left.
func TestLiveDrain(t *testing.T) {
	inNamespace(t, liveDrain)
}

func liveDrain(t *testing.T) {
	if err := crossLink(); err != nil {
		t.Error(err)
		return
	}
	facts, err := host.Read()
	if err != nil || facts.Qdiscs["cake"] != host.Yes {
		t.Skip("skipped, not passed: this kernel has no cake: ", err)
	}
	link, _ := facts.Link("up0")
	s := liveStore(t.TempDir())
	goal := plan.Goal{Dev: "up0", Rate: 1e6, RTT: 50e6, CC: "keep"}
	const whole, half = units.Rate(997_500), units.Rate(498_750)
	rate := func(when string, want units.Rate) {
		t.Helper()
		facts, err := host.Read()
		now, _ := facts.Link("up0")
		if got := now.Tree.Rate(); err != nil || got != want/8*8 { // the kernel counts bytes
			t.Errorf("%s: %s, not %s; %v", when, got, want, err)
		}
	}
	fill := func() {
		t.Helper()
		raw, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			t.Error(err)
			return
		}
		defer unix.Close(raw)
		frame := append([]byte("\xff\xff\xff\xff\xff\xff\x02\x00\x00\x00\x00\x01\x88\xb5"), make([]byte, 1000)...)
		for range 100 {
			if err := unix.Sendto(raw, frame, 0, &unix.SockaddrLinklayer{Ifindex: link.Index}); err != nil {
				t.Error(err)
				return
			}
		}
	}
	slow := func(when string, dev string, slows bool) *Shaper {
		t.Helper()
		shaper, err := s.Slow(dev, 0.5)
		if err != nil || (shaper != nil) != slows {
			t.Errorf("%s: slowed %v, %v", when, shaper != nil, err)
		}
		return shaper
	}
	restore := func(when string, shaper *Shaper, want bool) {
		t.Helper()
		if shaper == nil {
			return
		}
		if still, err := s.Restore(shaper); still != want || err != nil {
			t.Errorf("%s: %v, %v", when, still, err)
		}
	}

	slow("without a goal", "up0", false)
	must[Outcome](t)(s.Up(goal, 0))
	slow("idle", "up0", false)
	rate("idle", whole)
	fill()
	slow("another device's", "lo", false)
	shaper := slow("full", "up0", true)
	rate("full", half)
	if j, err := s.disk.Load(); err != nil || j.State(must[host.Facts](t)(host.Read()),
		*j.Entry(journal.RootOf("up0"))) != journal.Ours {
		t.Errorf("slower, it is not weir's: %v", err)
	}
	restore("full", shaper, true)
	rate("restored", whole)

	fill()
	shaper = slow("full, beside another run", "up0", true)
	unlock, err := s.disk.Lock(journal.Patience)
	if err != nil {
		t.Error(err)
		return
	}
	restore("beside another run", shaper, true)
	unlock()
	rate("beside another run", whole)

	fill()
	shaper = slow("full, before somebody else's", "up0", true)
	theirs := must[qdisc.Stack](t)(qdisc.ParseStack("cake bandwidth 600kbit"))
	if err := (live{}).SetTree(link.Index, theirs); err != nil {
		t.Error(err)
	}
	restore("somebody else's", shaper, false)
	rate("somebody else's", 600_000)
	slow("somebody else's", "up0", false)

	goal.Follow = "500kbit..2mbit"
	must[Outcome](t)(s.Up(goal, 0))
	follower := must[Follower](t)(s.Follow())
	fill()
	slow("with a follower", "up0", false)
	if err := follower.Close(); err != nil {
		t.Error(err)
	}
	fill()
	restore("after the follower", slow("after the follower", "up0", true), true)
	steered(t, s, rate)
	if _, err := s.Down(Undo{}); err != nil {
		t.Error(err)
	}
}

// steered has a follower set rates: within its bounds, and what remains when it stops.
func steered(t *testing.T, s Store, rate func(string, units.Rate)) {
	t.Helper()
	all, why, err := s.Shapers()
	if err != nil || len(all) != 1 || len(why) != 0 {
		t.Errorf("%v, %v, %v", all, why, err)
		return
	}
	defer all[0].Close()
	for _, c := range []struct{ asked, want units.Rate }{{1.5e6, 1.5e6}, {9e6, 1_995_000}, {1000, 498_750}} {
		if done, err := all[0].Steer(c.asked); !done || err != nil || all[0].Rate() != c.want {
			t.Errorf("%s: %v, %v, %s", c.asked, done, err, all[0].Rate())
		}
		rate("steered to "+c.asked.String(), c.want)
	}
	for _, c := range []struct{ settled, want units.Rate }{{1.5e6, 1.5e6}, {498_000, 997_500}} {
		if err := all[0].Leave(c.settled); err != nil {
			t.Error(err)
		}
		rate("left at "+c.settled.String(), c.want)
	}
	if stats, err := all[0].Stats(); err != nil || stats.Packets == 0 {
		t.Errorf("%+v, %v", stats, err)
	}
}
