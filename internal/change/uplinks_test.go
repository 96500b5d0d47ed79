// SPDX-License-Identifier: Apache-2.0

package change

import (
	"encoding/json"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"weir/internal/host"
	"weir/internal/plan"
	"weir/internal/units"
)

const (
	wmem = "net.ipv4.tcp_wmem"
	ms   = units.Duration(time.Millisecond)
)

// twoCards has another card, with an address of its own.
func twoCards(t *testing.T) (Store, *fake) {
	s, m := keeping(t)
	m.f.Links[1].MAC = "52:54:00:00:00:77"
	m.found, _ = m.facts()
	return s, m
}

func root(m *fake, dev string) string { return plan.Describe(m.named(dev).Tree) }

func TestTwoUplinks(t *testing.T) {
	near := plan.Goal{Dev: "eth0", Rate: 500e6, RTT: 10 * ms}
	far := plan.Goal{Dev: "eth1", Rate: 500e6, RTT: 100 * ms}
	for name, order := range map[string][]plan.Goal{"the larger last": {near, far}, "the larger first": {far, near}} {
		t.Run(name, func(t *testing.T) {
			s, m := twoCards(t)
			before, _ := m.facts()
			alone := map[string]host.Facts{}
			for _, g := range order {
				must[Outcome](t)(s.Up(g, 0))
				alone[g.Dev], _ = m.facts()
				must[Outcome](t)(s.Down(false))
			}
			for i, g := range order {
				must[Outcome](t)(s.Up(g, minute))
				status, confirmed, err := s.Confirm()
				if err != nil || !confirmed || !status.InForce || len(status.Goals()) != i+1 {
					t.Fatalf("%+v, %v", status, err)
				}
			}
			for _, g := range order {
				if !strings.HasPrefix(root(m, g.Dev), "cake") {
					t.Errorf("%s has %s", g.Dev, root(m, g.Dev))
				}
			}
			if got, want := m.f.Sysctls[wmem], alone["eth1"].Sysctls[wmem]; got != want {
				t.Errorf("%s is %v, and the larger wants %v", wmem, got, want)
			}
			if written, err := plan.ParseGoals(m.f.Files[host.GoalFile].Text); err != nil || len(written) != 2 {
				t.Errorf("%v, %v", written, err)
			}
			for range 2 {
				m.boot()
				if out := must[Outcome](t)(s.Boot()); len(out.Failed) != 0 {
					t.Errorf("%+v", out)
				}
				if status := must[Status](t)(s.Status()); !status.InForce || len(status.Goals()) != 2 {
					t.Errorf("after a boot: %+v", status)
				}
			}
			if p := must[plan.Plan](t)(s.Plan(plan.Goal{})); !p.Empty() {
				t.Errorf("%+v", p.Changes)
			}

			gone, stays := order[0], order[1]
			if out := must[Outcome](t)(s.DownOne(gone.Dev, false)); len(out.Left)+len(out.Failed) != 0 {
				t.Errorf("%+v", out)
			}
			status := must[Status](t)(s.Status())
			if !status.InForce || !slices.Equal(status.Goals(), []plan.Goal{stays}) {
				t.Errorf("one down: %+v", status)
			}
			if got, want := m.f.Sysctls[wmem], alone[stays.Dev].Sysctls[wmem]; got != want {
				t.Errorf("%s is %v, and what stays wants %v", wmem, got, want)
			}
			if root(m, gone.Dev) != plan.Describe(m.found.Links[slices.IndexFunc(m.found.Links, func(l host.Link) bool { return l.Name == gone.Dev })].Tree) {
				t.Errorf("%s has %s", gone.Dev, root(m, gone.Dev))
			}
			if goals, err := plan.ParseGoals(m.f.Files[host.GoalFile].Text); err != nil || len(goals) != 1 || goals[0].Dev != stays.Dev {
				t.Errorf("%v, %v", goals, err)
			}
			must[Outcome](t)(s.Down(false))
			after, _ := m.facts()
			for i := range after.Links { // since the boots
				after.Links[i].Index = before.Links[i].Index
			}
			after.Boot = before.Boot
			if !reflect.DeepEqual(after, before) {
				t.Errorf("after\n%+v\nbefore\n%+v", after, before)
			}
		})
	}
}

// Nobody confirms: the device that was confirmed before stays, and the host's settings are as that one wants them.
func TestSecondUplinkIsNotConfirmed(t *testing.T) {
	s, m := twoCards(t)
	must[Outcome](t)(s.Up(plan.Goal{Dev: "eth0", Rate: 500e6, RTT: 10 * ms}, 0))
	before, _ := m.facts()
	must[Outcome](t)(s.Up(plan.Goal{Dev: "eth1", Rate: 500e6, RTT: 100 * ms}, minute))
	if status := must[Status](t)(s.Status()); !status.Unconfirmed || !status.InForce {
		t.Errorf("%+v", status)
	}
	must[Outcome](t)(later(s, m).Expire(nil))
	if after, _ := m.facts(); !reflect.DeepEqual(after, before) {
		t.Errorf("after\n%+v\nbefore\n%+v", after, before)
	}
	status := must[Status](t)(s.Status())
	if !status.InForce || len(status.Goals()) != 1 || status.Reverted == nil || status.Reverted.Goal.Dev != "eth1" {
		t.Errorf("%+v", status)
	}
	if _, _, err := s.Confirm(); err == nil || !strings.Contains(err.Error(), "too late") {
		t.Errorf("confirm: %v", err)
	}
}

// What one goal wants and the other cannot have is said before anything is changed.
func TestGoalsThatDisagree(t *testing.T) {
	s, m := twoCards(t)
	must[Outcome](t)(s.Up(plan.Goal{Dev: "eth0", Rate: 50e6, CC: "cubic"}, 0))
	m.written = nil
	_, err := s.Up(plan.Goal{Dev: "eth1", Rate: 50e6, CC: "bbr"}, 0)
	if err == nil || !strings.Contains(err.Error(), "eth0") || !strings.Contains(err.Error(), "eth1") || m.written != nil {
		t.Errorf("%v, wrote %v", err, m.written)
	}
}

// A drift of one device is none of a run's that is about the other, nor what somebody has set there anybody's to overwrite.
func TestUplinksAreApart(t *testing.T) {
	s, m := twoCards(t)
	must[Outcome](t)(s.Up(plan.Goal{Dev: "eth0", Rate: 50e6}, 0))
	m.replace(m.named("eth0"), single(t, "fq"))
	must[Outcome](t)(s.Up(plan.Goal{Dev: "eth1", Rate: 20e6}, minute))
	if _, confirmed, err := s.Confirm(); !confirmed || err != nil {
		t.Error(err)
	}
	status := must[Status](t)(s.Status())
	if root(m, "eth0") != "fq" || status.InForce || status.Holds(status.Goals()[0]) || !status.Holds(status.Goals()[1]) {
		t.Errorf("eth0 has %s: %+v", root(m, "eth0"), status)
	}
	out := must[Outcome](t)(s.DownOne("eth0", false))
	if len(out.Left) != 1 || root(m, "eth0") != "fq" {
		t.Errorf("%+v", out)
	}
	if status := must[Status](t)(s.Status()); !status.InForce || len(status.Goals()) != 1 {
		t.Errorf("%+v", status)
	}
	must[Outcome](t)(s.DownOne("eth0", true))
	if root(m, "eth0") != plan.Describe(m.found.Links[0].Tree) {
		t.Errorf("eth0 has %s", root(m, "eth0"))
	}
	if _, err := s.DownOne("eth0", false); err == nil || !strings.Contains(err.Error(), "not up on eth0") {
		t.Errorf("again: %v", err)
	}
	must[Outcome](t)(s.Down(false))
	if after, _ := m.facts(); !reflect.DeepEqual(after.Links, m.found.Links) || !reflect.DeepEqual(after.Sysctls, m.found.Sysctls) {
		t.Errorf("%+v", after)
	}
}

// A card that is not there keeps nobody from the other, at a boot and on the way back.
func TestOneOfTwoIsGone(t *testing.T) {
	s, m := twoCards(t)
	must[Outcome](t)(s.Up(plan.Goal{Dev: "eth0", Rate: 500e6, RTT: 10 * ms}, 0))
	must[Outcome](t)(s.Up(plan.Goal{Dev: "eth1", Rate: 500e6, RTT: 100 * ms}, 0))
	files := m.f.Files
	m.boot()
	m.gone("eth1")
	if out := must[Outcome](t)(s.Boot()); len(out.Failed) != 0 || !noted(out.Notes, "eth1", "is not there") {
		t.Errorf("%+v", out)
	}
	if status := must[Status](t)(s.Status()); status.InForce || !status.Holds(status.Goals()[0]) || !strings.HasPrefix(root(m, "eth0"), "cake") {
		t.Errorf("%+v", status)
	}
	if !reflect.DeepEqual(m.f.Files, files) {
		t.Errorf("files: %v", m.f.Files)
	}
	must[Outcome](t)(s.DownOne("eth1", false))
	if status := must[Status](t)(s.Status()); !status.InForce || len(status.Goals()) != 1 {
		t.Errorf("%+v", status)
	}
	must[Outcome](t)(s.Down(false))
	if after, _ := m.facts(); !reflect.DeepEqual(after.Sysctls, m.found.Sysctls) {
		t.Errorf("%+v", after.Sysctls)
	}
}

// Killed at each step, a host with two uplinks is as it was, as it should be, or put right by weir recover.
func TestTwoUplinksKilled(t *testing.T) {
	second := plan.Goal{Dev: "eth1", Rate: 500e6, RTT: 100 * ms}
	for name, run := range map[string]func(Store){
		"up": func(s Store) { _, _ = s.Up(second, minute) },
		"down of one": func(s Store) {
			_, _ = s.DownOne("eth0", false)
		},
	} {
		t.Run(name, func(t *testing.T) {
			for step := 1; ; step++ {
				s, m := twoCards(t)
				must[Outcome](t)(s.Up(plan.Goal{Dev: "eth0", Rate: 500e6, RTT: 10 * ms}, 0))
				if name != "up" {
					must[Outcome](t)(s.Up(second, 0))
				}
				before := comparable(m.f)
				m.steps = 0
				if survives(m, step, func() { run(s) }) {
					return
				}
				m.crashAt = 0
				must[Outcome](t)(s.Recover())
				if now := comparable(m.f); !reflect.DeepEqual(now, before) && name == "up" {
					t.Fatalf("step %d: after\n%+v\nbefore\n%+v", step, now, before)
				}
				must[Outcome](t)(s.Down(false))
				if after, _ := m.facts(); !reflect.DeepEqual(after.Links, m.found.Links) || !reflect.DeepEqual(after.Sysctls, m.found.Sysctls) {
					t.Fatalf("step %d: taken down:\n%+v", step, after)
				}
			}
		})
	}
}

// A journal of a newer version keeps nobody from going back, and loses nothing when it is saved.
func TestNewerJournal(t *testing.T) {
	for name, edit := range map[string]func(string) string{
		"a word": func(j string) string {
			return strings.Replace(j, `"rate": "50mbit"`, `"rate": "50mbit", "recipe": "tomorrow"`, 1)
		},
		"a value": func(j string) string { return strings.Replace(j, `"rate": "50mbit"`, `"rate": "auto"`, 1) },
		"a member": func(j string) string {
			return strings.Replace(j, `"rate": "50mbit"`, `"rate": "50mbit", "overhead": "18"`, 1)
		},
		"of its own": func(j string) string {
			return strings.Replace(j, `"version": 1`, `"version": 1, "tomorrow": [1, 2]`, 1)
		},
		"of the past": func(j string) string { return strings.Replace(j, `"rate": "50mbit"`, `"rate": "1kbit"`, 1) },
	} {
		for how, back := range map[string]func(Store) (Outcome, error){
			"down":    func(s Store) (Outcome, error) { return s.Down(false) },
			"force":   func(s Store) (Outcome, error) { return s.Down(true) },
			"recover": Store.Recover,
		} {
			t.Run(name+", "+how, func(t *testing.T) {
				s, m := newFake(t)
				before, _ := m.facts()
				within := minute
				if how != "recover" {
					within = 0
				}
				must[Outcome](t)(s.Up(plan.Goal{Rate: 50e6}, within))
				text := string(must[[]byte](t)(os.ReadFile(s.path())))
				edited := edit(text)
				if edited == text {
					t.Fatal(text)
				}
				if err := os.WriteFile(s.path(), []byte(edited), 0o600); err != nil {
					t.Fatal(err)
				}
				if status, err := s.Status(); err != nil || name != "of its own" && (status.InForce || status.Why == "") {
					t.Errorf("status: %+v, %v", status, err)
				}
				if name != "of its own" {
					if _, err := s.Up(plan.Goal{}, 0); err == nil {
						t.Error("it is brought up")
					}
				}
				// What is not understood is saved as it was.
				j := must[*journal](t)(s.load())
				if err := s.save(j); err != nil {
					t.Fatal(err)
				}
				var was, is any
				saved := must[[]byte](t)(os.ReadFile(s.path()))
				if err := json.Unmarshal([]byte(edited), &was); err != nil {
					t.Fatal(err)
				}
				if err := json.Unmarshal(saved, &is); err != nil || !reflect.DeepEqual(is, was) {
					t.Errorf("saved as\n%s\nwas\n%s", saved, edited)
				}
				if out, err := back(s); err != nil || len(out.Failed)+len(out.Left) != 0 {
					t.Errorf("%+v, %v", out, err)
				}
				if after, _ := m.facts(); !reflect.DeepEqual(after, before) {
					t.Errorf("after\n%+v\nbefore\n%+v", after, before)
				}
			})
		}
	}
}
