// SPDX-License-Identifier: Apache-2.0

package change

import (
	"errors"
	"os"
	"reflect"
	"strings"
	"testing"

	"weir/internal/hint"
	"weir/internal/host"
	"weir/internal/kernel"
	"weir/internal/plan"
	"weir/internal/qdisc"
)

// A goal that takes the BPF DualPI2 is one like any other: confirmed, kept, looked at, taken down.
func TestDualPI2InBPF(t *testing.T) {
	s, m := newFake(t)
	m.kept()
	m.f.Qdiscs["dualpi2"] = host.No
	before, _ := m.facts()
	goal := plan.Goal{Rate: 50e6, Prefer: "l4s", RTT: 1e7}

	out := must[Outcome](t)(s.Up(goal, minute))
	if len(out.Done) == 0 || out.Done[0].New.String() != "bpf_dualpi2 rate 49.875mbit" || out.RevertsIn == 0 ||
		!out.Kept {
		t.Fatalf("up: %+v", out)
	}
	if status := must[Status](t)(s.Status()); !status.InForce || !status.Unconfirmed {
		t.Errorf("status: %+v", status)
	}
	if _, confirmed, err := s.Confirm(); err != nil || !confirmed {
		t.Fatalf("confirm: %v, %v", confirmed, err)
	}
	if status := must[Status](t)(s.Status()); !status.InForce || !status.Kept || status.Unconfirmed {
		t.Errorf("status when it is confirmed: %+v", status)
	}

	// Somebody changes an option: that is drift, and up brings it back.
	there := m.link(2).Tree
	m.link(2).Tree = single(t, "bpf_dualpi2 rate 60mbit")
	if status := must[Status](t)(s.Status()); status.InForce || len(status.Drift) != 1 ||
		status.Drift[0].Old.String() != "bpf_dualpi2 rate 60mbit" {
		t.Errorf("status after a drift: %+v", status)
	}
	if out := must[Outcome](t)(s.Up(plan.Goal{}, 0)); len(out.Done) != 1 {
		t.Errorf("up again: %+v", out)
	}
	if now := m.link(2).Tree; !now.Same(there) {
		t.Errorf("up again has %s", kernel.QueueOf(now).String())
	}

	// To nobody but root it is a kind of which nothing is known, and that is no drift.
	m.f.Admin, m.link(2).Tree = false, qdisc.Tree{Qdiscs: []qdisc.Qdisc{{Kind: "dualpi2.0a1b2c", Handle: 0x10000,
		Parent: qdisc.Root}}}
	var refusal *hint.Error
	if status, err := s.Status(); !errors.As(err, &refusal) || !strings.Contains(refusal.What, "needs root") {
		t.Errorf("status for anybody: %+v, %v", status, err)
	}
	m.f.Admin, m.link(2).Tree = true, there

	must[Outcome](t)(s.Down(Undo{}))
	if after, _ := m.facts(); !reflect.DeepEqual(after, before) {
		t.Errorf("after down\n%+v\nbefore up\n%+v", after, before)
	}
}

// One that was there before comes back, and one that weir dualpi2 has put there is kept by a goal of its own in
// another journal.
func TestQueueOnly(t *testing.T) {
	s, m := newFake(t)
	s.disk.Files = false
	m.kept()
	m.link(2).Tree = single(t, "htb rate 5mbit | fq_codel")
	before, _ := m.facts()
	own := func(text string) plan.Goal {
		return plan.Goal{Dev: "eth0", Qdisc: "bpf_dualpi2" + text, Only: true}
	}
	for _, text := range []string{"", " rate 50mbit", " any_ect rate 60mbit"} {
		out := must[Outcome](t)(s.Up(own(text), 0))
		if len(out.Done) != 1 || len(out.Failed) != 0 || out.Kept ||
			kernel.QueueOf(m.link(2).Tree).String() != "bpf_dualpi2"+text {
			t.Errorf("%q: %+v", text, out)
		}
	}
	if status := must[Status](t)(s.Status()); !status.InForce || status.Kept || !status.Goals[0].Only {
		t.Errorf("status: %+v", status)
	}

	// Another goal on top, in a journal of its own, and gone again.
	other := s
	other.disk.Dir = t.TempDir()
	m.dir = other.disk.Dir
	must[Outcome](t)(other.Up(plan.Goal{Dev: "eth0", Rate: 20e6, RTT: 1e7}, 0))
	if status := must[Status](t)(s.Status()); status.InForce {
		t.Errorf("status below another: %+v", status)
	}
	if out := must[Outcome](t)(s.Down(Undo{})); len(out.Left) != 1 {
		t.Errorf("down below another: %+v", out)
	}
	must[Outcome](t)(other.Down(Undo{}))
	m.dir = s.disk.Dir
	if now := kernel.QueueOf(m.link(2).Tree).String(); now != "bpf_dualpi2 any_ect rate 60mbit" {
		t.Errorf("after the other's down %s", now)
	}

	must[Outcome](t)(s.Down(Undo{}))
	if after, _ := m.facts(); !reflect.DeepEqual(after, before) {
		t.Errorf("after down\n%+v\nbefore up\n%+v", after, before)
	}
	if left := must[[]os.DirEntry](t)(os.ReadDir(s.disk.Dir)); len(left) != 0 {
		t.Errorf("down leaves %v", left)
	}

	// Somebody has deleted it: it can be forgotten.
	must[Outcome](t)(s.Up(own(""), 0))
	m.link(2).Tree = single(t, "fq")
	if err := s.Forget(); err != nil {
		t.Fatal(err)
	}
	if status := must[Status](t)(s.Status()); status.Up {
		t.Errorf("status of what was forgotten: %+v", status)
	}
	must[Outcome](t)(s.Up(own(""), 0))
	must[Outcome](t)(s.Down(Undo{}))
	if now := kernel.QueueOf(m.link(2).Tree).String(); now != "fq" {
		t.Errorf("goes back to %s", now)
	}

	// Or taken down: there is nothing to put back, and still something to take away.
	must[Outcome](t)(s.Up(own(""), 0))
	m.link(2).Tree, m.cleaned = single(t, "fq"), 0
	m.refuse["clean"] = errors.New("busy")
	if out := must[Outcome](t)(s.Down(Undo{})); len(out.Failed) != 1 {
		t.Errorf("down that cannot clean: %+v", out)
	}
	delete(m.refuse, "clean")
	if out := must[Outcome](t)(s.Down(Undo{})); len(out.Done)+len(out.Failed)+len(out.Left) != 0 || m.cleaned != 2 {
		t.Errorf("down of what was deleted: %+v, cleaned %d times", out, m.cleaned)
	}

	// What no way leads back from is not replaced.
	m.link(2).Tree = qdisc.Tree{Qdiscs: []qdisc.Qdisc{{Kind: "dualpi2.0a1b2c", Handle: 0x10000, Parent: qdisc.Root}}}
	if _, err := s.Up(own(""), 0); err == nil || !strings.Contains(err.Error(), "could not be put back") {
		t.Errorf("over one that cannot be read: %v", err)
	}
	m.link(2).Tree = single(t, "fq")
	m.refuse["eth0"] = errors.New("not supported: no BPF qdiscs")
	var refusal *hint.Error
	if _, err := s.Up(own(""), 0); !errors.As(err, &refusal) ||
		!strings.Contains(refusal.What, "nothing was changed") || strings.Contains(refusal.Try, "--qdisc") {
		t.Errorf("one that fails: %+v", err)
	}
}
