// SPDX-License-Identifier: Apache-2.0

package change

import (
	"slices"
	"strings"
	"testing"

	"weir/internal/host"
	"weir/internal/plan"
	"weir/internal/qdisc"
)

// What a follower sets is in force, and stays so until another goal is brought up.
func TestFollowed(t *testing.T) {
	s, m := newFake(t)
	goal := plan.Goal{Rate: 100e6, Follow: "20mbit..200mbit", RTT: 50e6}
	if _, err := s.Up(goal, 0); err != nil {
		t.Fatal(err)
	}
	set := func(from, to string) {
		t.Helper()
		root, _ := m.f.Links[0].Tree.Root()
		text := strings.Replace(plan.QueueOf(m.f.Links[0].Tree).String(), from, to, 1)
		if root.Kind != "cake" || !strings.Contains(text, to) {
			t.Fatalf("%s", text)
		}
		m.f.Links[0].Tree = single(t, text)
	}
	status := func() Status {
		t.Helper()
		st, err := s.Status()
		if err != nil {
			t.Fatal(err)
		}
		return st
	}
	set("99.75mbit", "63mbit")
	st := status()
	if !st.InForce || len(st.Followed) != 1 || st.Followed[0].Rate != 63e6 || st.Followed[0].Running {
		t.Errorf("followed down to 63 Mbit/s: %+v", st)
	}
	if out, err := s.Up(goal, 0); err != nil || len(out.Done) != 0 {
		t.Errorf("the same goal again makes %v, %v", out.Done, err)
	}
	following, err := s.Follow()
	if err != nil {
		t.Fatal(err)
	}
	if !status().Followed[0].Running {
		t.Error("nobody is seen to follow")
	}
	if _, err := s.Follow(); err == nil || !strings.Contains(err.Error(), "another weir follow") {
		t.Errorf("two follow: %v", err)
	}
	following.Close()
	if status().Followed[0].Running {
		t.Error("somebody is still seen to follow")
	}

	set("63mbit", "10mbit")
	if st := status(); st.InForce || len(st.Drift) != 1 {
		t.Errorf("below the goal's bounds: %+v", st)
	}
	set("10mbit", "63mbit")
	goal.Follow = ""
	out, err := s.Up(goal, 0)
	now := plan.QueueOf(m.f.Links[0].Tree).String()
	if err != nil || len(out.Done) == 0 || !strings.HasPrefix(now, "cake bandwidth 99.75mbit ") {
		t.Errorf("the rate alone makes %v, %v: %s", out.Done, err, now)
	}
	goal.Follow = plan.Auto
	if _, err := s.Up(goal, 0); err != nil {
		t.Fatal(err)
	}
	set("99.75mbit", "33mbit")
	if _, err := s.Down(false); err != nil {
		t.Fatalf("down from a rate that was followed: %v", err)
	}
	if root, _ := m.f.Links[0].Tree.Root(); root.Kind != "pfifo_fast" {
		t.Errorf("after down there is %s", root.Kind)
	}
}

// What a follower has learnt of incoming traffic is in force, too, and gone after down.
func TestFollowedIncoming(t *testing.T) {
	s, m := newFake(t)
	goal := plan.Goal{Rate: 50e6, Ingress: 100e6, Follow: plan.Auto}
	must[Outcome](t)(s.Up(goal, 0))
	set := func(text string) {
		ifb := slices.IndexFunc(m.f.Links, func(l host.Link) bool { return l.Name == qdisc.IFB })
		m.f.Links = slices.Clone(m.f.Links)
		m.f.Links[ifb].Tree = single(t, text)
	}
	for rate, in := range map[string]bool{"85mbit": true, "97.5mbit": true, "84mbit": false, "99.9mbit": false} {
		set(strings.Replace(arriving, "85mbit", rate, 1))
		st := must[Status](t)(s.Status())
		if st.InForce != in || in && (len(st.Followed) != 2 || !st.Followed[1].Behind || st.Followed[0].Behind ||
			st.Followed[1].Rate.String() != rate || st.Followed[1].Low != 85e6 || st.Followed[1].High != 99.75e6) {
			t.Errorf("%s: %+v", rate, st)
		}
	}
	set(strings.Replace(arriving, "85mbit", "97.5mbit", 1))
	if out := must[Outcome](t)(s.Up(goal, 0)); len(out.Done) != 0 {
		t.Errorf("the same goal again makes %v", out.Done)
	}
	must[Outcome](t)(s.Down(false))
	if now := plan.IncomingAt(m.f, "eth0"); now.Other != plan.NoIngress {
		t.Errorf("after down there is %s", now)
	}
}

// The service is among the files that keep such a goal, and of no other.
func TestFollowerIsKept(t *testing.T) {
	for follow, want := range map[plan.Span]host.FileKind{"": host.NoFile, plan.Auto: host.Regular} {
		s, m := newFake(t)
		m.kept()
		if _, err := s.Up(plan.Goal{Rate: 100e6, Follow: follow, RTT: 50e6}, 0); err != nil {
			t.Fatal(err)
		}
		unit, link := m.f.Files[host.FollowFile], m.f.Files[host.FollowLink]
		if unit.Kind != want || (link.Kind == host.Symlink) != (follow != "") {
			t.Errorf("%q: %s and %s", follow, unit.Kind, link.Kind)
		}
		if follow != "" && (link.Text != host.FollowFile ||
			!slices.Contains(strings.Split(unit.Text, "\n"), "ExecStart=/usr/local/bin/weir follow")) {
			t.Errorf("%s\n%s", link.Text, unit.Text)
		}
		if _, err := s.Down(false); err != nil {
			t.Fatal(err)
		}
		if unit := m.f.Files[host.FollowFile]; unit.Kind != host.NoFile {
			t.Errorf("after down there is %s", unit.Kind)
		}
	}
}
