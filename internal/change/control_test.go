// SPDX-License-Identifier: Apache-2.0

package change

import (
	"slices"
	"strings"
	"testing"
	"time"

	"weir/internal/bbr"
	"weir/internal/journal"
	"weir/internal/plan"
)

// A newer weir replaces the congestion control of an older one, and whichever it is goes with weir down.
func TestNewerControl(t *testing.T) {
	s, m := newFake(t)
	goal := plan.Goal{Dev: "eth0", Rate: 50e6, CC: bbr.Name}
	m.f.Congestion.Brings = "0123abcd"
	if _, err := s.Up(goal, 0); err != nil || m.f.Congestion.Registered != "0123abcd" {
		t.Fatalf("%v, %+v", err, m.f.Congestion)
	}
	m.f.Congestion.Brings = "4567cdef"
	status, err := s.Status()
	if err != nil || !status.InForce || len(status.Drift) > 0 {
		t.Errorf("an upgrade alone takes the goal out of force: %+v, %v", status.Drift, err)
	}
	if !slices.ContainsFunc(status.Notes, func(n plan.Note) bool {
		return n.Subject == bbr.Name && strings.Contains(n.Text, "0123abcd")
	}) {
		t.Errorf("the older one is not named: %+v", status.Notes)
	}
	if _, err := s.Up(goal, 0); err != nil || m.f.Congestion.Registered != "4567cdef" {
		t.Fatalf("%v, %+v", err, m.f.Congestion)
	}
	m.f.Congestion.Registered = "89abcdef" // by a weir that nobody has told this one of
	if out, err := s.Down(Undo{}); err != nil || len(out.Left) > 0 {
		t.Errorf("%+v, %v", out, err)
	}
	if m.f.Congestion.Registered != "" || slices.Contains(m.f.Congestion.Available, bbr.Name) {
		t.Errorf("%+v", m.f.Congestion)
	}
}

// A newer weir that nobody confirms is put back to the goal of an older one, whose version it cannot register: its own
// stays.
func TestNewerControlPutBack(t *testing.T) {
	s, m := newFake(t)
	m.f.Congestion.Brings = "0123abcd"
	if _, err := s.Up(plan.Goal{Dev: "eth0", Rate: 50e6, CC: bbr.Name}, 0); err != nil {
		t.Fatal(err)
	}
	m.f.Congestion.Brings = "4567cdef"
	if _, err := s.Up(plan.Goal{Dev: "eth0", Rate: 20e6, CC: bbr.Name}, time.Minute); err != nil {
		t.Fatal(err)
	}
	if out, err := s.Recover(); err != nil || len(out.Failed) > 0 {
		t.Errorf("%+v, %v", out.Failed, err)
	}
	if m.f.Congestion.Registered != "4567cdef" || m.f.Sysctls[defaultControl].Value != bbr.Name {
		t.Errorf("%+v, %+v", m.f.Congestion, m.f.Sysctls[defaultControl])
	}
	m.f.Congestion.Registered, m.f.Congestion.Available = "", []string{"cubic"} // somebody has taken it away
	if _, err := s.Up(plan.Goal{Dev: "eth0", Rate: 50e6, CC: bbr.Name}, 0); err != nil ||
		m.f.Congestion.Registered != "4567cdef" {
		t.Errorf("%+v, %v", m.f.Congestion, err)
	}
}

// What a setting names is there before it, and goes after it.
func TestControlBeforeItsSetting(t *testing.T) {
	s, m := newFake(t)
	if _, err := s.Up(plan.Goal{Dev: "eth0", Rate: 50e6, CC: bbr.Name}, 0); err != nil {
		t.Fatal(err)
	}
	const setting = "net.ipv4.tcp_congestion_control = "
	order := func(first, second string) {
		t.Helper()
		i, j := slices.Index(m.written, first), slices.Index(m.written, second)
		if i < 0 || j < i {
			t.Errorf("%s at %d, %s at %d of %q", first, i, second, j, m.written)
		}
	}
	order(bbr.Name+" = 89abcdef", setting+bbr.Name)
	m.written = nil
	if _, err := s.Down(Undo{}); err != nil {
		t.Fatal(err)
	}
	order(setting+"cubic", bbr.Name+" = ")
}

// Who is not root sees that there is one, and not which.
func TestControlUnseen(t *testing.T) {
	s, m := newFake(t)
	if _, err := s.Up(plan.Goal{Dev: "eth0", Rate: 50e6, CC: bbr.Name}, 0); err != nil {
		t.Fatal(err)
	}
	m.f.Admin, m.f.Congestion.Registered = false, ""
	if status, err := s.Status(); err != nil || len(status.Drift) > 0 || !status.InForce {
		t.Errorf("%+v, %v", status, err)
	}
	m.f.Congestion.Available = []string{"cubic"}
	if status, err := s.Status(); err != nil || len(status.Drift) != 1 {
		t.Errorf("%+v, %v", status, err)
	}
}

// One that nobody registered with BPF stays as it is, and only the setting goes back.
func TestControlOfTheKernel(t *testing.T) {
	s, m := newFake(t)
	m.f.Congestion.Available = append(m.f.Congestion.Available, bbr.Name)
	goal := plan.Goal{Dev: "eth0", Rate: 50e6, CC: bbr.Name}
	if _, err := s.Up(goal, 0); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Down(Undo{}); err != nil {
		t.Fatal(err)
	}
	if !slices.Contains(m.f.Congestion.Available, bbr.Name) || m.f.Sysctls[defaultControl].Value != "cubic" {
		t.Errorf("%+v, %+v", m.f.Congestion, m.f.Sysctls[defaultControl])
	}
	if j, err := (journal.Store{Dir: m.dir}).Load(); j != nil || err != nil {
		t.Errorf("%+v, %v", j, err)
	}
}
