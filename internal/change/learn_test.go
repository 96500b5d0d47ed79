// SPDX-License-Identifier: Apache-2.0

package change

import (
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"weir/internal/host"
	"weir/internal/journal"
	"weir/internal/kernel"
	"weir/internal/plan"
)

// upUnknown is a host on which nobody knows the rate.
func upUnknown(t *testing.T) (Store, *fake, plan.Goal) {
	t.Helper()
	s, m := newFake(t)
	m.kept()
	if _, err := s.Up(plan.Goal{Follow: plan.Auto, RTT: 50e6}, 0); err != nil {
		t.Fatal(err)
	}
	st, err := s.Status()
	if err != nil || !st.InForce || len(st.Followed) != 1 || st.Followed[0].Rate != 0 {
		t.Fatalf("%+v, %v", st, err)
	}
	return s, m, st.Goals[0]
}

func always() bool { return true }

// A rate that was found is brought up and confirmed; the goal's file goes on to leave it open.
func TestLearn(t *testing.T) {
	s, m, goal := upUnknown(t)
	file := m.f.Files[host.GoalFile]
	all, err := s.Unknown()
	if err != nil || len(all) != 1 || all[0].Link != 2 || !all[0].Counts.Raw {
		t.Fatalf("to be found: %+v, %v", all, err)
	}
	if root, _ := m.f.Links[0].Tree.Root(); root.Kind == "cake" {
		t.Error("a rate that is not known is enforced")
	}
	asked := 0
	if err := s.Learn(goal, 48e6, func() bool { asked++; return asked == 2 }); err != nil {
		t.Fatal(err)
	}
	st, err := s.Status()
	if err != nil || !st.InForce || st.Unconfirmed || st.Goals[0].Rate != 48e6 || st.Goals[0].Follow != plan.Auto ||
		!strings.HasPrefix(kernel.QueueOf(m.f.Links[0].Tree).String(), "cake bandwidth 47.88mbit ") {
		t.Errorf("after a rate was found: %+v, %v", st, err)
	}
	if m.f.Files[host.GoalFile] != file {
		t.Errorf("the goal's file is now\n%s", m.f.Files[host.GoalFile].Text)
	}
	if len(m.armed) != 0 {
		t.Errorf("still armed: %v", m.armed)
	}
	if all, err := s.Unknown(); err != nil || len(all) != 0 {
		t.Errorf("still to be found: %+v, %v", all, err)
	}
	// The same goal again, and that of the file, keep what was found.
	for _, again := range []plan.Goal{{}, {Follow: plan.Auto, RTT: 50e6}} {
		if out, err := s.Up(again, 0); err != nil || len(out.Done) != 0 {
			t.Errorf("%+v again makes %v, %v", again, out.Done, err)
		}
	}
	m.found = m.f
	m.boot()
	if _, err := s.Boot(); err != nil {
		t.Fatal(err)
	}
	if st, err := s.Status(); err != nil || !st.InForce || st.Goals[0].Rate != 48e6 {
		t.Errorf("after a boot: %+v, %v", st, err)
	}
}

// What it changes is in the log, also where the journal has what this process prints: nobody prints that.
func TestLearnIsLogged(t *testing.T) {
	asService(t)
	for _, stream := range []string{"", os.Getenv("JOURNAL_STREAM")} {
		t.Setenv("JOURNAL_STREAM", stream)
		for _, moves := range []bool{true, false} {
			s, _, goal := upUnknown(t)
			var lines []string
			s.log = func(said []string) { lines = append(lines, said...) }
			if err := s.Learn(goal, 48e6, func() bool { return moves }); (err == nil) != moves {
				t.Fatal(err)
			}
			all := "\n" + strings.Join(lines, "\n")
			if !strings.Contains(all, "\nfollow: eth0  root qdisc: cake bandwidth 47.88mbit") ||
				strings.Contains(all, "\nrecover: eth0  root qdisc: ") == moves {
				t.Errorf("JOURNAL_STREAM=%q, moves %v: it logs\n%s", stream, moves, all)
			}
			lines = nil
			if _, err := s.Up(plan.Goal{Rate: 20e6, RTT: 50e6}, 0); err != nil || (len(lines) > 0) != (stream == "") {
				t.Errorf("JOURNAL_STREAM=%q: of what is printed it logs %q, %v", stream, lines, err)
			}
		}
	}
}

// Where nothing moves any more it is put back at once.
func TestLearnsNothing(t *testing.T) {
	s, _, goal := upUnknown(t)
	err := s.Learn(goal, 48e6, func() bool { return false })
	if err == nil || !strings.Contains(err.Error(), "nothing has moved: put back") {
		t.Errorf("nothing moves: %v", err)
	}
	if st, err := s.Status(); err != nil || !st.InForce || st.Unconfirmed || st.Goals[0].Rate != 0 {
		t.Errorf("after that: %+v, %v", st, err)
	}
}

// What somebody brings up in those seconds is not put back for it.
func TestLearnsWhileOthers(t *testing.T) {
	s, m, goal := upUnknown(t)
	asked := 0
	err := s.Learn(goal, 48e6, func() bool {
		if asked++; asked == 2 {
			must[Outcome](t)(s.Up(plan.Goal{Rate: 20e6, RTT: 50e6}, time.Hour))
		}
		return false
	})
	if !errors.Is(err, journal.ErrBusy) {
		t.Errorf("it says %v", err)
	}
	if st := must[Status](t)(s.Status()); !st.Unconfirmed || st.Goals[0].Rate != 20e6 || len(m.armed) != 1 {
		t.Errorf("%+v, timers %v", st, m.armed)
	}
}

// What somebody else does meanwhile is not confirmed for them, and their goal is not replaced.
func TestLearnKeepsOff(t *testing.T) {
	theirs := plan.Goal{Rate: 20e6, RTT: 50e6}
	s, _, goal := upUnknown(t)
	if _, err := s.Up(theirs, time.Minute); err != nil {
		t.Fatal(err)
	}
	err := s.Learn(goal, 48e6, always)
	if err == nil || errors.Is(err, journal.ErrBusy) || !strings.Contains(err.Error(), "is another by now") {
		t.Errorf("over a goal that waits for a person: %v", err)
	}
	if all, err := s.Unknown(); err != nil || len(all) != 0 {
		t.Errorf("to be found meanwhile: %+v, %v", all, err)
	}

	s, m, goal := upUnknown(t)
	m.slept = func() {
		m.slept = nil
		if _, err := s.Up(theirs, time.Minute); err != nil {
			t.Error(err)
		}
	}
	if err := s.Learn(goal, 48e6, always); err == nil || !strings.Contains(err.Error(), "another run has begun") {
		t.Errorf("another run meanwhile: %v", err)
	}
	if st, err := s.Status(); err != nil || !st.Unconfirmed || st.Goals[0].Rate != 20e6 {
		t.Errorf("theirs: %+v, %v", st, err)
	}
}

// Killed at any step, it leaves a goal with the rate or, after the timer, one without.
func TestLearnKilled(t *testing.T) {
	for step := 1; ; step++ {
		s, m, goal := upUnknown(t)
		if survives(m, step, func() { _ = s.Learn(goal, 48e6, always) }) {
			if step < 4 {
				t.Fatalf("it takes %d steps only", step)
			}
			return
		}
		s = later(s, m)
		if _, err := s.Expire(nil); err != nil {
			t.Fatalf("step %d: %v", step, err)
		}
		st, err := s.Status()
		if err != nil || !st.InForce || st.Unconfirmed || st.Goals[0].Rate != 0 && st.Goals[0].Rate != 48e6 {
			t.Errorf("killed at step %d: %+v, %v", step, st, err)
		}
		if _, err := s.Down(Undo{}); err != nil {
			t.Errorf("killed at step %d, then down: %v", step, err)
		}
	}
}

// A tunnel that comes, and a rate that waits to be confirmed, are about one goal: the search for another goes on.
func TestSought(t *testing.T) {
	s, m := twoCards(t)
	m.f.Sysctls["net.ipv4.ip_forward"] = host.Sysctl{Value: "1"}
	for _, dev := range []string{"eth0", "eth1"} {
		must[Outcome](t)(s.Up(plan.Goal{Dev: dev, Follow: plan.Auto, RTT: 50e6}, 0))
	}
	all := must[[]Unmeasured](t)(s.Unknown())
	if len(all) != 2 {
		t.Fatalf("to be found: %+v", all)
	}
	sought := func(when string, want ...bool) {
		t.Helper()
		for i, u := range all {
			if got := s.Sought(u); got != want[i] {
				t.Errorf("%s, %s is sought: %v", when, u.Goal.Dev, got)
			}
		}
	}
	sought("at first", true, true)
	m.f.Links = append(m.f.Links, host.Link{Index: 9, Name: "wg0", Kind: "wireguard", Up: true})
	sought("with a tunnel that leaves by the uplink", false, true)
	m.f.Links = m.f.Links[:2]
	sought("without it", true, true)
	asked := false
	err := s.Learn(all[0].Goal, 48e6, func() bool {
		sought("before the other is confirmed", false, true)
		if found := must[[]Unmeasured](t)(s.Unknown()); len(found) != 0 {
			t.Errorf("begun meanwhile: %+v", found)
		}
		if err := s.Learn(all[1].Goal, 30e6, always); !errors.Is(err, journal.ErrBusy) {
			t.Errorf("the other one's rate meanwhile: %v", err)
		}
		asked = true
		return true
	})
	if err != nil || !asked {
		t.Fatal(asked, err)
	}
	sought("once the other is confirmed", false, true)
	if err := s.Learn(all[1].Goal, 30e6, always); err != nil {
		t.Error(err)
	}
}

// A rate is to be found where a queue could have it and none has: by the card that the route leads to, or another.
func TestUnmeasured(t *testing.T) {
	for name, c := range map[string]struct {
		dev  string
		edit func(m *fake)
		link int // 0: there is nothing to be found
	}{
		"the uplink":        {"", func(*fake) {}, 2},
		"by its name":       {"eth0", func(*fake) {}, 2},
		"another":           {"eth1", func(*fake) {}, 3},
		"no such device":    {"eth9", func(*fake) {}, 0},
		"shaped already":    {"", func(m *fake) { m.f.Links[0].Tree = single(t, "cake bandwidth 5mbit") }, 0},
		"cake, and no rate": {"", func(m *fake) { m.f.Links[0].Tree = single(t, "cake") }, 2},
		"without cake":      {"", func(m *fake) { m.f.Qdiscs["cake"] = host.No }, 0},
	} {
		s, m := newFake(t)
		m.f.Links[0].MAC, m.f.Links[0].Speed = "52:54:00:12:34:56", 1e9
		c.edit(m)
		u, ok, err := s.Unmeasured(plan.Goal{Dev: c.dev, Follow: plan.Auto})
		if err != nil || ok != (c.link != 0) || ok && (u.Link != c.link || !u.Counts.Raw ||
			u.NoLinkHeader != (c.link == 3) || (u.Speed == 1e9) != (c.link == 2)) {
			t.Errorf("%s: %+v, %v, %v", name, u, ok, err)
		}
	}
	s, m := newFake(t)
	m.f.Links = append(m.f.Links, host.Link{Index: 9, Name: "br0", Kind: "bridge", Up: true})
	m.f.Links[0].Master, m.f.Links[1].Master, m.f.Uplink = "br0", "br0", "br0"
	if _, ok, err := s.Unmeasured(plan.Goal{Follow: plan.Auto}); ok || err == nil {
		t.Errorf("by a bridge of two cards: %v, %v", ok, err)
	}
}
