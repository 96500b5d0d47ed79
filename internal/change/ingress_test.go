// SPDX-License-Identifier: Apache-2.0

package change

import (
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"

	"weir/internal/hint"
	"weir/internal/host"
	"weir/internal/kernel"
	"weir/internal/plan"
	"weir/internal/qdisc"
)

const arriving = "cake bandwidth 85mbit besteffort dual-srchost rtt 500ms ingress"

var bothWays = plan.Goal{Rate: 50e6, Ingress: 100e6}

// somebody does something to what Weir has put before a device.
func (m *fake) somebody(what string) {
	ifb := slices.IndexFunc(m.f.Links, func(l host.Link) bool { return l.Name == qdisc.IFB })
	m.f.Links = slices.Clone(m.f.Links)
	noIngress := func() {
		m.f.Links[0].Redirect, m.f.Links[0].Tree.Qdiscs = "",
			slices.DeleteFunc(slices.Clone(m.f.Links[0].Tree.Qdiscs), atIngress)
	}
	switch what {
	case "another queue":
		m.f.Links[ifb].Tree = single(m.t, "fq")
	case "takes the device down":
		m.f.Links[ifb].Up = false
	case "deletes the filter":
		m.f.Links[0].Redirect = ""
	case "deletes the ingress qdisc":
		noIngress()
	case "deletes the device": // and all that arrives is dropped
		m.f.Links = slices.Delete(m.f.Links, ifb, ifb+1)
		m.f.Links[0].Redirect = host.Gone
	}
}

// Whatever somebody has made of it is drift, which up mends; and down leaves nothing of it.
func TestIngressDrifts(t *testing.T) {
	for what, force := range map[string]bool{
		"another queue": true, "takes the device down": false, "deletes the filter": false,
		"deletes the ingress qdisc": false, "deletes the device": false,
	} {
		for _, end := range []string{"up", "down", "the timer"} {
			t.Run(what+", "+end, func(t *testing.T) {
				s, m := newFake(t)
				before, _ := m.facts()
				within := minute
				if end != "the timer" {
					within = 0
				}
				must[Outcome](t)(s.Up(bothWays, within))
				if now := kernel.IncomingAt(m.f, "eth0").String(); now != arriving {
					t.Fatalf("what arrives passes %s", now)
				}
				up, _ := m.facts()
				m.somebody(what)
				status := must[Status](t)(s.Status())
				if status.InForce || len(status.Drift) != 1 || status.Drift[0].Target != incomingAt("eth0") ||
					status.Drift[0].New.String() != arriving {
					t.Fatalf("status: %+v", status)
				}
				switch end {
				case "up":
					out := must[Outcome](t)(s.Up(plan.Goal{}, 0))
					if now, _ := m.facts(); len(out.Failed) != 0 || !reflect.DeepEqual(now, up) {
						t.Errorf("%+v, and\n%+v\nwas\n%+v", out, now, up)
					}
					must[Outcome](t)(s.Down(Undo{}))
				case "down":
					out := must[Outcome](t)(s.Down(Undo{}))
					if force != (len(out.Left) == 1) {
						t.Errorf("%+v", out)
					}
					if force {
						must[Outcome](t)(s.Down(Undo{Force: true}))
					}
				case "the timer":
					must[Outcome](t)(later(s, m).Expire(nil))
				}
				if after, _ := m.facts(); !reflect.DeepEqual(after, before) {
					t.Errorf("after\n%+v\nbefore\n%+v", after, before)
				}
			})
		}
	}
}

// Somebody has taken it away and put filters of his own there: they are his.
func TestIngressIsSomebodyElses(t *testing.T) {
	s, m := newFake(t)
	must[Outcome](t)(s.Up(bothWays, 0))
	m.somebody("deletes the ingress qdisc")
	clsact := qdisc.Qdisc{Kind: "clsact", Handle: 0xFFFF0000, Parent: qdisc.Ingress}
	m.f.Links[0].Tree.Qdiscs = append(m.f.Links[0].Tree.Qdiscs, clsact)
	m.written = nil
	_, err := s.Up(plan.Goal{}, 0)
	if err == nil || !strings.Contains(err.Error(), "somebody else has a qdisc at the ingress (clsact)") ||
		m.written != nil {
		t.Errorf("up: %v, wrote %v", err, m.written)
	}
	if status := must[Status](t)(s.Status()); !status.Up || status.InForce || !strings.Contains(status.Why, "clsact") {
		t.Errorf("status: %+v", status)
	}
}

// The queue at the root is taken back with the one for what arrives.
func TestIngressFails(t *testing.T) {
	s, m := newFake(t)
	before, _ := m.facts()
	m.refuse["ingress "+arriving] = errors.New("no such module")
	_, err := s.Up(bothWays, minute)
	var refusal *hint.Error
	if !errors.As(err, &refusal) || refusal.What != "eth0: ingress: "+arriving+
		": no such module; nothing was changed" || !strings.Contains(refusal.Try, "without --ingress") {
		t.Errorf("up: %+v", err)
	}
	if after, _ := m.facts(); !reflect.DeepEqual(after, before) || len(m.armed) != 0 {
		t.Errorf("after\n%+v\nbefore\n%+v", after, before)
	}
	if status := must[Status](t)(s.Status()); status.Up {
		t.Errorf("status: %+v", status)
	}
}

// What it leads through outlives the device that it is for, and is found again when that comes back or has another
// name.
func TestIngressAndTheDevice(t *testing.T) {
	s, m := newFake(t)
	before, _ := m.facts()
	must[Outcome](t)(s.Up(bothWays, 0))
	m.f.Links[0].Name, m.f.Uplink = "wan0", "wan0"
	if status := must[Status](t)(s.Status()); !status.InForce || status.Goals[0].Dev != "wan0" {
		t.Errorf("by another name: %+v", status)
	}
	m.f.Links[0].Name, m.f.Uplink = "eth0", "eth0"

	// It goes, and another takes its place.
	m.f.Links = slices.Clone(m.f.Links)
	m.f.Links[0] = before.Links[0]
	m.f.Links[0].Index = 12
	if out := must[Outcome](t)(s.Up(plan.Goal{}, 0)); len(out.Failed) != 0 ||
		kernel.IncomingAt(m.f, "eth0").String() != arriving {
		t.Errorf("when it is back: %+v", out)
	}
	m.f.Links = slices.DeleteFunc(m.f.Links, func(l host.Link) bool { return l.Name == "eth0" })
	out := must[Outcome](t)(s.Down(Undo{}))
	if _, left := m.f.Link(qdisc.IFB); left || len(out.Failed)+len(out.Left) != 0 {
		t.Errorf("when it is gone: %+v, and %+v", out, m.f.Links)
	}
}

// Nothing of it is there after a reboot, and it is set again.
func TestIngressAfterReboot(t *testing.T) {
	s, m := keeping(t)
	must[Outcome](t)(s.Up(bothWays, 0))
	if text := m.f.Files[host.GoalFile].Text; !strings.Contains(text, "ingress = '100mbit'") {
		t.Errorf("the goal's file is\n%s", text)
	}
	for range 2 {
		m.boot()
		if status := must[Status](t)(s.Status()); status.InForce {
			t.Errorf("before weir.service: %+v", status)
		}
		must[Outcome](t)(s.Boot())
		if status := must[Status](t)(s.Status()); !status.InForce || len(status.Notes) != 0 ||
			kernel.IncomingAt(m.f, "eth0").String() != arriving {
			t.Errorf("%+v", status)
		}
	}
	m.found.Ingress = host.No // the next kernel
	m.boot()
	if out := must[Outcome](t)(s.Boot()); len(out.Failed) != 0 || len(out.Notes) == 0 {
		t.Errorf("%+v", out)
	}
	must[Outcome](t)(s.Down(Undo{}))
	if !reflect.DeepEqual(comparable(m.f), comparable(m.found)) {
		t.Errorf("after down\n%+v\nas found\n%+v", m.f, m.found)
	}
}

func incomingAt(dev string) kernel.Target { return kernel.Target{Kind: kernel.Ingress, Name: dev} }
