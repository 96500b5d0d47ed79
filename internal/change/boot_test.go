// SPDX-License-Identifier: Apache-2.0

package change

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"weir/internal/bbr"
	"weir/internal/hint"
	"weir/internal/host"
	"weir/internal/journal"
	"weir/internal/kernel"
	"weir/internal/plan"
	"weir/internal/units"
)

// keeping is a machine that keeps goals over a reboot.
func keeping(t *testing.T) (Store, *fake) {
	s, m := newFake(t)
	m.f.Qdiscs["htb"] = host.Yes
	m.kept()
	m.found, _ = m.facts()
	return s, m
}

// What is confirmed is there after the reboot, and what is not is not; down then goes back to the host without weir.
func TestKeptOverReboot(t *testing.T) {
	first, second := plan.Goal{Rate: 50e6}, plan.Goal{Rate: 500e6, Loss: 0.1}
	confirm := func(s Store) { _, _, _ = s.Confirm() }
	for name, c := range map[string]struct {
		before func(Store)
		want   units.Rate
	}{
		"confirmed":           {func(s Store) { s.Up(first, minute); confirm(s) }, 50e6},
		"--yes":               {func(s Store) { s.Up(first, 0) }, 50e6},
		"not confirmed":       {func(s Store) { s.Up(first, minute) }, 0},
		"the second not":      {func(s Store) { s.Up(first, 0); s.Up(second, minute) }, 50e6},
		"the second":          {func(s Store) { s.Up(first, 0); s.Up(second, minute); confirm(s) }, 500e6},
		"--runtime":           {func(s Store) { g := first; g.Runtime = true; s.Up(g, 0) }, 0},
		"kept, then not":      {func(s Store) { s.Up(first, 0); g := second; g.Runtime = true; s.Up(g, 0) }, 0},
		"not kept, then kept": {func(s Store) { g := first; g.Runtime = true; s.Up(g, 0); s.Up(second, 0) }, 500e6},
		"down":                {func(s Store) { s.Up(first, 0); s.Down(Undo{}) }, 0},
	} {
		t.Run(name, func(t *testing.T) {
			s, m := keeping(t)
			c.before(s)
			for boot := range 3 {
				m.boot()
				if started := m.started(); started != (c.want != 0) {
					t.Fatalf("boot %d: weir.service is started: %v, and the files are %v", boot, started, m.f.Files)
				}
				if c.want != 0 {
					must[Outcome](t)(s.Boot())
				}
				status := must[Status](t)(s.Status())
				if status.InForce != (c.want != 0) || c.want != 0 &&
					(status.Goals[0].Rate != c.want || status.Reboot || !status.Kept || len(status.Notes) != 0) {
					t.Errorf("boot %d: %+v", boot, status)
				}
			}
			must[Outcome](t)(s.Down(Undo{}))
			if !reflect.DeepEqual(comparable(m.f), comparable(m.found)) {
				t.Errorf("after down\n%+v\nas found\n%+v", m.f, m.found)
			}
		})
	}
}

// A reboot that ended what nobody had confirmed may have been the way out of it.
func TestBareUpAfterReboot(t *testing.T) {
	s, m := newFake(t)
	must[Outcome](t)(s.Up(plan.Goal{Rate: 50e6}, 0))
	must[Outcome](t)(s.Up(plan.Goal{Rate: 20e6}, minute))
	m.found = m.f
	m.f.Boot = "boot-2"
	if p := must[plan.Plan](t)(s.Plan(plan.Goal{})); p.Goals[0].Rate != 50e6 {
		t.Errorf("after a reboot: %+v", p.Goals[0])
	}
}

// Another kernel has less: the same goal is reached as far as it goes, and status says what is not as it was confirmed.
func TestAnotherKernel(t *testing.T) {
	s, m := keeping(t)
	must[Outcome](t)(s.Up(plan.Goal{Rate: 50e6, Loss: 0.1}, 0))
	m.found.Kernel, m.found.Qdiscs = "6.13", map[string]host.Support{"cake": host.No, "htb": host.Yes,
		"fq_codel": host.Yes}
	brings := m.found.Congestion.Brings
	m.found.Congestion = host.Congestion{Available: []string{"cubic"}, Brings: brings}
	m.found.Objects = map[string]host.Support{bbr.Name: host.No}
	for range 2 { // and it still says so after the next
		m.boot()
		m.f.Sysctls["net.ipv4.tcp_congestion_control"] = host.Sysctl{Value: "cubic"} // the kernel refuses the file's
		out := must[Outcome](t)(s.Boot())
		status := must[Status](t)(s.Status())
		if len(out.Failed) != 0 || !status.InForce {
			t.Fatalf("%+v\n%+v", out, status)
		}
		said := map[string]string{}
		for _, n := range status.Notes {
			said[n.Subject] = n.Text
		}
		if !strings.Contains(said["eth0  root qdisc"], "cake bandwidth 49.875mbit") ||
			!strings.Contains(said["eth0  root qdisc"], "fair between connections, not between clients") ||
			!strings.Contains(said["net.ipv4.tcp_congestion_control"], "was bpf_bbr when it was confirmed") {
			t.Errorf("%+v", status.Notes)
		}
	}
	// Back on the first kernel all is well again.
	m.found.Qdiscs, m.found.Congestion = map[string]host.Support{"cake": host.Yes},
		host.Congestion{Available: []string{"bbr", "cubic"}, Brings: brings}
	m.found.Objects = map[string]host.Support{bbr.Name: host.Yes}
	m.boot()
	must[Outcome](t)(s.Boot())
	if status := must[Status](t)(s.Status()); !status.InForce || len(status.Notes) != 0 {
		t.Errorf("%+v", status)
	}
	must[Outcome](t)(s.Down(Undo{}))
	if !reflect.DeepEqual(comparable(m.f), comparable(m.found)) {
		t.Errorf("after down\n%+v\nas found\n%+v", m.f, m.found)
	}
}

// Until a boot has brought the goal up, status says what is to be done, and not that it can no longer be.
func TestStatusBeforeBoot(t *testing.T) {
	s, m := keeping(t)
	must[Outcome](t)(s.Up(plan.Goal{Rate: 50e6, Loss: 0.1}, 0))
	m.boot()
	if status := must[Status](t)(s.Status()); status.InForce || len(status.Drift) == 0 || len(status.Notes) != 0 {
		t.Errorf("%+v", status)
	}
	m.f.Qdiscs["cake"] = host.No
	notes := must[Status](t)(s.Status()).Notes
	if len(notes) != 1 || !strings.Contains(notes[0].Text, "no longer available") {
		t.Errorf("on another kernel: %+v", notes)
	}
}

// Nobody is told that a goal is in force where there is none.
func TestBootWithoutAGoal(t *testing.T) {
	s, _ := keeping(t)
	if out := must[Outcome](t)(s.Boot()); len(out.Done) != 0 || len(out.Notes) != 1 ||
		!strings.Contains(out.Notes[0].Text, "there is no /etc/weir.toml") {
		t.Errorf("%+v", out)
	}
}

// What was masked since it was confirmed brings nothing up after a reboot, and status says so.
func TestMaskedSince(t *testing.T) {
	s, m := keeping(t)
	m.f.Files[host.PackageUnit] = host.File{Kind: host.Regular, Text: plan.Unit("/usr/bin/weir")}
	must[Outcome](t)(s.Up(plan.Goal{Rate: 50e6}, 0))
	if status := must[Status](t)(s.Status()); !status.InForce || !status.Kept || len(status.Notes) != 0 {
		t.Errorf("%+v", status)
	}
	m.f.Files[host.UnitFile] = host.File{Kind: host.Symlink, Text: "/dev/null"}
	status := must[Status](t)(s.Status())
	if !status.InForce || status.Kept || len(status.Notes) != 1 ||
		!strings.HasSuffix(status.Notes[0].Text, "To keep it: systemctl unmask weir.service") {
		t.Errorf("masked: %+v", status)
	}
}

// Another kernel has no way to shape what arrives: what leaves is shaped all the same, and a person who asks for both
// is told.
func TestAnotherKernelWithoutIngress(t *testing.T) {
	s, m := keeping(t)
	m.f.Ingress = host.Yes
	m.found, _ = m.facts()
	goal := plan.Goal{Rate: 50e6, Ingress: 100e6}
	must[Outcome](t)(s.Up(goal, 0))
	m.found.Ingress = host.No
	m.boot()
	out := must[Outcome](t)(s.Boot())
	status := must[Status](t)(s.Status())
	if len(out.Failed) != 0 || status.InForce || !strings.Contains(status.Why, "cannot shape incoming traffic") ||
		len(status.Drift) != 0 || kernel.QueueOf(m.f.Links[0].Tree).String() == "pfifo_fast" {
		t.Errorf("%+v\n%+v", out, status)
	}
	must[Outcome](t)(s.Down(Undo{}))
	for _, err := range []error{second(s.Up(goal, 0)), second(s.Plan(goal))} {
		if err == nil {
			t.Error("no refusal")
		}
	}
}

// The device comes late, goes, or has got another name.
func TestBootAndTheDevice(t *testing.T) {
	s, m := keeping(t)
	must[Outcome](t)(s.Up(plan.Goal{Rate: 50e6}, 0))

	links := m.found.Links
	m.found.Links = []host.Link{links[1]}
	m.boot()
	m.found.Links = links
	if out := must[Outcome](t)(s.Boot()); len(out.Done) != 0 || len(out.Notes) != 1 ||
		!strings.Contains(out.Notes[0].Text, "not there") {
		t.Errorf("without the device: %+v", out)
	}
	if status := must[Status](t)(s.Status()); status.InForce || !strings.Contains(status.Why, "no such device") {
		t.Errorf("without the device: %+v", status)
	}
	_, other := keeping(t)
	m.f.Links = append(other.f.Links[:1:1], m.f.Links...) // plugged in
	m.f.Links[0].Index = 7
	must[Outcome](t)(s.Boot())
	if status := must[Status](t)(s.Status()); !status.InForce {
		t.Errorf("plugged in: %+v", status)
	}
	m.f.Links[0].Index, m.f.Links[0].Tree = 8, other.f.Links[0].Tree // out, and in again
	must[Outcome](t)(s.Boot())
	if status := must[Status](t)(s.Status()); !status.InForce {
		t.Errorf("plugged in again: %+v", status)
	}

	// Renamed in this boot: the files are right for the next one.
	files := m.f.Files
	m.f.Links[0].Name, m.f.Uplink = "wan0", "wan0"
	must[Outcome](t)(s.Boot())
	if status := must[Status](t)(s.Status()); !status.InForce || status.Goals[0].Dev != "wan0" ||
		!reflect.DeepEqual(m.f.Files, files) {
		t.Errorf("renamed: %+v", status)
	}
	// Renamed over a reboot: found by its address, and the files follow.
	m.found.Links[0].Name, m.found.Uplink = "wan0", "wan0"
	m.boot()
	must[Outcome](t)(s.Boot())
	if status := must[Status](t)(s.Status()); !status.InForce || status.Goals[0].Dev != "wan0" ||
		!strings.Contains(m.f.Files[host.GoalFile].Text, "wan0") {
		t.Errorf("renamed over a reboot: %+v, %v", status, m.f.Files[host.GoalFile])
	}
	must[Outcome](t)(s.Down(Undo{}))
	if !reflect.DeepEqual(comparable(m.f), comparable(m.found)) {
		t.Errorf("after down\n%+v\nas found\n%+v", m.f, m.found)
	}
}

// /etc/weir.toml is a person's as much as weir's.
func TestGoalFile(t *testing.T) {
	s, m := keeping(t)
	write := func(text string) {
		m.f.Files[host.GoalFile] = host.File{Kind: host.Regular, Mode: 0o600, UID: 1000, Text: text}
	}
	write("# mine\nrate = \"20mbit\"\n")
	if status := must[Status](t)(s.Status()); status.Up || !strings.Contains(status.Why, "asks for --rate 20mbit") {
		t.Errorf("before up: %+v", status)
	}
	must[Outcome](t)(s.Up(plan.Goal{}, minute))
	_, confirmed, err := s.Confirm()
	if !confirmed || err != nil {
		t.Fatal(confirmed, err)
	}
	write("# mine\nrate = \"30mbit\"\ndev = \"eth0\"\n")
	if status := must[Status](t)(s.Status()); status.InForce || status.Goals[0].Rate != 30e6 || len(status.Notes) != 1 {
		t.Errorf("edited: %+v", status)
	}
	must[Outcome](t)(s.Up(plan.Goal{}, 0))
	if text := m.f.Files[host.GoalFile].Text; !strings.HasPrefix(text, "# mine\nrate = \"30mbit\"") {
		t.Errorf("what says the same is written anew: %s", text)
	}
	if status := must[Status](t)(s.Status()); !status.InForce || status.Goals[0].Rate != 30e6 {
		t.Errorf("up: %+v", status)
	}
	write("rate = 30\nspeed = 1\n")
	// What is in force stays so.
	if status := must[Status](t)(s.Status()); !status.InForce ||
		!noted(status.Notes, "/etc/weir.toml", "/etc/weir.toml:") {
		t.Errorf("broken: %+v", status)
	}
	var refusal *hint.Error
	if _, err := s.Up(plan.Goal{}, 0); !errors.As(err, &refusal) || !refusal.Usage {
		t.Errorf("broken: %v", err)
	}
	// It is in nobody's way out, and stays: Weir has never written it.
	out := must[Outcome](t)(s.Down(Undo{}))
	if len(out.Left) != 0 || m.f.Files[host.GoalFile].UID != 1000 {
		t.Errorf("down: %+v", out)
	}
}

// What a person makes of the file that Weir wrote is Weir's to remove once it was confirmed, and a person's until then.
func TestGoalFileEdited(t *testing.T) {
	const lowat = "net.ipv4.tcp_notsent_lowat"
	s, m := keeping(t)
	edit := func(text string) {
		m.f.Files[host.GoalFile] = host.File{Kind: host.Regular, Mode: 0o644, Text: text}
	}
	must[Outcome](t)(s.Up(plan.Goal{Rate: 50e6}, 0))
	edit("rate = \"30mbit\" # less\n")
	if out := must[Outcome](t)(s.Up(plan.Goal{}, minute)); out.Goal.Rate != 30e6 {
		t.Fatalf("%+v", out.Goal)
	}
	if _, confirmed, err := s.Confirm(); !confirmed || err != nil ||
		!strings.Contains(m.f.Files[host.GoalFile].Text, "# less") {
		t.Fatal(confirmed, err, m.f.Files[host.GoalFile])
	}
	// Its words stay as they are for as long as the goal does, over boots and mends too.
	words := m.f.Files[host.GoalFile]
	for range 2 {
		if status := must[Status](t)(s.Status()); !status.InForce || len(status.Drift) != 0 {
			t.Errorf("confirmed: %+v", status)
		}
		m.f.Sysctls[lowat] = host.Sysctl{Value: "65536"}
		must[Outcome](t)(s.Up(plan.Goal{}, minute))
		if _, confirmed, err := s.Confirm(); !confirmed || err != nil {
			t.Error(confirmed, err)
		}
		m.boot()
		must[Outcome](t)(s.Boot())
		if m.f.Files[host.GoalFile] != words {
			t.Errorf("it is now %+v", m.f.Files[host.GoalFile])
		}
	}
	if out := must[Outcome](t)(s.Down(Undo{})); len(out.Left) != 0 ||
		!reflect.DeepEqual(comparable(m.f), comparable(m.found)) {
		t.Errorf("down: %+v\n%+v", out, m.f.Files)
	}
	// Another goal is written in Weir's.
	must[Outcome](t)(s.Up(plan.Goal{Rate: 50e6}, 0))
	edit("rate = \"30mbit\" # less\n")
	must[Outcome](t)(s.Up(plan.Goal{}, 0))
	must[Outcome](t)(s.Up(plan.Goal{Rate: 30e6, RTT: 40 * ms}, 0))
	if !strings.Contains(m.f.Files[host.GoalFile].Text, "40ms") {
		t.Error(m.f.Files[host.GoalFile])
	}
	if status := must[Status](t)(s.Status()); !status.InForce {
		t.Errorf("another: %+v", status)
	}
	must[Outcome](t)(s.Down(Undo{}))
	must[Outcome](t)(s.Up(plan.Goal{Rate: 50e6}, 0))
	edit("rate = \"1mbit\"\n")
	if out := must[Outcome](t)(s.Down(Undo{})); len(out.Left) != 1 || out.Left[0].Target != journal.GoalFile {
		t.Errorf("not confirmed: %+v", out)
	}
}

// Another goal than the file's is in the file once it is confirmed, whoever wrote that before; down puts back a file
// that was there before weir.
func TestGoalFileIsOfAnother(t *testing.T) {
	theirs := host.File{Kind: host.Regular, Mode: 0o600, UID: 1000, Text: "# mine\nrate = \"20mbit\"\n"}
	for name, first := range map[string]bool{"there before": false, "written over": true} {
		t.Run(name, func(t *testing.T) {
			s, m := keeping(t)
			if first {
				must[Outcome](t)(s.Up(plan.Goal{Rate: 30e6}, 0))
			}
			m.f.Files[host.GoalFile] = theirs
			must[Outcome](t)(s.Up(plan.Goal{Rate: 50e6}, minute))
			status, confirmed, err := s.Confirm()
			if !confirmed || err != nil || !status.Kept {
				t.Fatal(status, confirmed, err)
			}
			if text := m.f.Files[host.GoalFile].Text; !strings.Contains(text, "50mbit") {
				t.Errorf("kept is\n%s", text)
			}
			if status := must[Status](t)(s.Status()); !status.InForce || len(status.Notes) != 0 {
				t.Errorf("%+v", status)
			}
			must[Outcome](t)(s.Down(Undo{}))
			if file := m.f.Files[host.GoalFile]; !first && file != theirs || first && file.Kind != host.NoFile {
				t.Errorf("after down: %+v", file)
			}
		})
	}
}

// Whatever was there before, what is confirmed is kept as --yes keeps it.
func TestConfirmedAsYes(t *testing.T) {
	first := plan.Goal{Rate: 50e6}
	begins := map[string]func(Store, *fake){
		"nothing":       func(Store, *fake) {},
		"kept":          func(s Store, _ *fake) { s.Up(first, 0) },
		"not kept":      func(s Store, _ *fake) { g := first; g.Runtime = true; s.Up(g, 0) },
		"not confirmed": func(s Store, _ *fake) { s.Up(first, minute) },
		"down":          func(s Store, _ *fake) { s.Up(first, 0); s.Down(Undo{}) },
		"a reboot":      func(s Store, m *fake) { s.Up(first, 0); m.boot() },
	}
	files := []host.File{{Kind: host.Regular, Mode: 0o600, UID: 1000, Text: "# mine\n"}, {Kind: host.NoFile}}
	for begin, begun := range begins {
		for _, name := range []string{host.GoalFile, host.SysctlFile, host.UnitFile, host.UnitLink, host.UdevFile} {
			for _, file := range files {
				for _, goal := range []plan.Goal{{}, first, {Rate: 20e6, Loss: 0.1}, {Rate: 20e6, Runtime: true}} {
					end := func(within time.Duration) (map[string]host.File, error) {
						s, m := keeping(t)
						begun(s, m)
						m.f.Files[name] = file
						_, err := s.Up(goal, within)
						if err == nil {
							_, _, err = s.Confirm()
						}
						return m.f.Files, err
					}
					yes, errYes := end(0)
					confirmed, err := end(minute)
					if (err == nil) != (errYes == nil) || !maps.Equal(confirmed, yes) {
						t.Errorf("%s, %s %q, then %s: %v, %v\n%q\nwith --yes\n%q", begin, name, file.Text, goal.Flags(),
							err, errYes, confirmed, yes)
					}
				}
			}
		}
	}
}

// A goal that is in the file and was never confirmed may be what locked somebody out: no boot brings it up.
func TestBootBringsUpWhatWasConfirmed(t *testing.T) {
	for name, text := range map[string]string{
		"another goal": "dev = \"eth0\"\nrate = \"64kbit\"\n", "another device": "dev = \"eth1\"\nrate = \"64kbit\"\n",
		"garbage": "rate = \n", "nothing": "# nothing\n",
	} {
		t.Run(name, func(t *testing.T) {
			s, m := keeping(t)
			must[Outcome](t)(s.Up(plan.Goal{Rate: 50e6}, 0))
			edited := host.File{Kind: host.Regular, Mode: 0o644, Text: text}
			m.f.Files[host.GoalFile] = edited
			if name == "another goal" { // and tried, and not confirmed
				must[Outcome](t)(s.Up(plan.Goal{}, minute))
			}
			for range 2 {
				m.boot()
				out := must[Outcome](t)(s.Boot())
				j := must[*journal.Journal](t)(s.disk.Load())
				if goal, _ := plan.GoalOf(j.Goals(), "eth0"); goal.Rate != 50e6 ||
					kernel.QueueOf(m.f.Links[0].Tree).String() != "cake bandwidth 49.875mbit besteffort dual-dsthost "+
						"rtt 2s memlimit 4mb" {
					t.Fatalf("%+v, %s", j.Goals(), kernel.QueueOf(m.f.Links[0].Tree).String())
				}
				if m.f.Files[host.GoalFile] != edited || len(out.Failed) != 0 {
					t.Errorf("%+v, %v", out, m.f.Files[host.GoalFile])
				}
			}
			stands := name == "garbage" || name == "nothing" // what is in force does not depend on the file
			if status := must[Status](t)(s.Status()); status.InForce != stands || status.Why == "" &&
				len(status.Notes) == 0 {
				t.Errorf("%+v", status)
			}
		})
	}
}

// What is on top of a card has its address, and is not it.
func TestBridgeComesLate(t *testing.T) {
	s, m := keeping(t)
	bridge := host.Link{Index: 9, Name: "br0", Kind: "bridge", MAC: m.f.Links[0].MAC, Up: true, MTU: 1500, TxQueues: 1,
		Tree: single(t, "fq_codel")}
	m.f.Links = append(m.f.Links, bridge)
	m.found, _ = m.facts()
	must[Outcome](t)(s.Up(plan.Goal{Dev: "br0", Rate: 50e6}, 0))
	if strings.Contains(m.f.Files[host.UdevFile].Text, bridge.MAC) {
		t.Errorf("%s", m.f.Files[host.UdevFile].Text)
	}
	m.found.Links = m.found.Links[:2]
	m.boot()
	if out := must[Outcome](t)(s.Boot()); len(out.Done) != 0 || len(out.Notes) != 1 {
		t.Errorf("without it: %+v", out)
	}
	m.f.Links = append(m.f.Links, bridge)
	must[Outcome](t)(s.Boot())
	if status := must[Status](t)(s.Status()); !status.InForce || status.Goals[0].Dev != "br0" {
		t.Errorf("%+v", status)
	}
}

// Two cards have swapped their names over a reboot: the goal stays with the card.
func TestSwappedNames(t *testing.T) {
	s, m := keeping(t)
	m.f.Links[1].MAC = "52:54:00:00:00:01"
	m.found, _ = m.facts()
	must[Outcome](t)(s.Up(plan.Goal{Dev: "eth0", Rate: 50e6}, 0))
	m.found.Links[0].Name, m.found.Links[1].Name = "eth1", "eth0"
	m.boot()
	must[Outcome](t)(s.Boot())
	if status := must[Status](t)(s.Status()); !status.InForce || status.Goals[0].Dev != "eth1" {
		t.Errorf("%+v", status)
	}
}

// A virtual card of Azure's and the real one below it share an address: the goal stays with the one that it was of,
// whatever the other is called, and wherever it is in the list.
func TestSharedAddress(t *testing.T) {
	for _, of := range []int{0, 1} { // the card that has the goal
		for _, c := range []struct {
			name, own, other string // of that card and of the other, after a reboot
			reversed, alone  bool
			want             string
		}{
			{"as before", "eth0", "eth1", false, false, "eth0"},
			{"in another order", "eth0", "eth1", true, false, "eth0"},
			{"the other is renamed", "eth0", "enP1s1", true, false, "eth0"},
			{"it cannot be told which", "eth7", "enP1s1", false, false, ""},
			{"the other is out", "eth7", "", false, true, "eth7"},
		} {
			t.Run(fmt.Sprintf("%s, %d", c.name, of), func(t *testing.T) {
				s, m := keeping(t)
				m.f.Links[1].MAC = m.f.Links[0].MAC
				m.f.Links[of].Name, m.f.Links[1-of].Name = "eth0", "eth1"
				m.found, _ = m.facts()
				m.found.Uplink, m.f.Uplink = "", ""
				must[Outcome](t)(s.Up(plan.Goal{Dev: "eth0", Rate: 50e6}, 0))
				links := slices.Clone(m.found.Links)
				links[of].Name, links[1-of].Name = c.own, c.other
				links[1-of].Index += 20
				if c.alone {
					links = links[of : of+1]
				}
				if c.reversed {
					slices.Reverse(links)
				}
				m.found.Links = links
				m.boot()
				_, _ = s.Boot()
				for _, l := range m.f.Links {
					shaped := strings.Contains(kernel.QueueOf(l.Tree).String(), "cake")
					if shaped != (l.Name == c.want) {
						t.Errorf("%s is %s, and the goal is of %q", l.Name, kernel.QueueOf(l.Tree), c.want)
					}
				}
			})
		}
	}
}

// Out, and in again under another name, with no reboot between.
func TestReplugged(t *testing.T) {
	s, m := keeping(t)
	must[Outcome](t)(s.Up(plan.Goal{Rate: 50e6}, 0))
	m.f.Links[0].Index, m.f.Links[0].Name, m.f.Links[0].Tree = 12, "eth7", single(t, "fq_codel")
	must[Outcome](t)(s.Boot())
	if status := must[Status](t)(s.Status()); !status.InForce || status.Goals[0].Dev != "eth7" {
		t.Errorf("%+v", status)
	}
}

// A container that is started again may have the boot of before, and a new network.
func TestContainerStartedAgain(t *testing.T) {
	s, m := keeping(t)
	must[Outcome](t)(s.Up(plan.Goal{Rate: 50e6}, 0))
	boot := m.f.Boot
	m.boot()
	m.f.Boot, m.f.Namespace = boot, "net:[2]"
	must[Outcome](t)(s.Boot())
	if status := must[Status](t)(s.Status()); !status.InForce {
		t.Errorf("%+v", status)
	}
	// From a namespace of its own nothing of that is to be had, nor to be lost.
	files := m.f.Files
	m.f.Namespace, m.f.Files = "net:[3]", nil
	if _, err := s.Down(Undo{Force: true}); err == nil {
		t.Error("down --force from elsewhere")
	}
	m.f.Namespace, m.f.Files = "net:[2]", files
	must[Outcome](t)(s.Down(Undo{}))
	if !reflect.DeepEqual(m.f.Files, m.found.Files) {
		t.Errorf("%+v", m.f.Files)
	}
}

// The journal is lost: what says that it is Weir's is, and down removes it.
func TestJournalLost(t *testing.T) {
	for name, boots := range map[string]bool{"in this boot": false, "in an earlier one": true} {
		t.Run(name, func(t *testing.T) {
			s, m := keeping(t)
			must[Outcome](t)(s.Up(plan.Goal{Rate: 50e6}, 0))
			if err := os.Remove(s.disk.Path()); err != nil {
				t.Fatal(err)
			}
			if boots {
				m.boot()
				must[Outcome](t)(s.Boot())
			}
			if status := must[Status](t)(s.Status()); !status.InForce || !status.Kept || status.Goals[0].Rate != 50e6 {
				t.Errorf("%+v", status)
			}
			must[Outcome](t)(s.Down(Undo{}))
			if !reflect.DeepEqual(m.f.Files, m.found.Files) {
				t.Errorf("%+v", m.f.Files)
			}
		})
	}
}

// What is said of a reboot is so.
func TestKeptIsSo(t *testing.T) {
	s, m := keeping(t)
	m.f.Files[host.SysctlFile] = host.File{Kind: host.Regular, Mode: 0o644, Text: "# a person's\n"} // to be put back
	must[Outcome](t)(s.Up(plan.Goal{Rate: 50e6}, 0))
	out := must[Outcome](t)(s.Up(plan.Goal{Rate: 20e6, Runtime: true}, minute))
	status, confirmed, err := s.Confirm()
	if out.Kept || status.Kept || !confirmed || err != nil || len(status.Goals) != 1 ||
		status.Goals[0].Rate != 20e6 {
		t.Errorf("%+v, %+v, %v", out, status, err)
	}
	if status := must[Status](t)(s.Status()); status.Kept || !status.InForce {
		t.Errorf("%+v", status)
	}
}

// A goal that was taken down, or that was never to outlast a reboot, does not come back with one, even where the
// service is there anyway.
func TestBootBringsNothingBack(t *testing.T) {
	for name, before := range map[string]func(Store, *fake){
		"--runtime": func(s Store, m *fake) { s.Up(plan.Goal{Rate: 50e6, Runtime: true}, 0) },
		"down, and something left": func(s Store, m *fake) {
			s.Up(plan.Goal{Rate: 50e6}, 0)
			m.f.Sysctls["net.ipv4.tcp_notsent_lowat"] = host.Sysctl{Value: "1"}
			s.Down(Undo{})
		},
		"not confirmed": func(s Store, m *fake) { s.Up(plan.Goal{Rate: 50e6}, minute) },
	} {
		t.Run(name, func(t *testing.T) {
			s, m := keeping(t)
			before(s, m)
			m.boot()
			if out := must[Outcome](t)(s.Boot()); len(out.Done) != 0 {
				t.Errorf("%+v", out)
			}
		})
	}
}

// A link that is still coming up is waited for: its speed says whether it is the limit.
func TestBootWaitsForTheLink(t *testing.T) {
	s, m := keeping(t)
	m.f.Links[0].Speed = 1e9
	m.found, _ = m.facts()
	m.f.Links[0].Tree = single(t, "pfifo_fast")
	must[Outcome](t)(s.Up(plan.Goal{Rate: 1e9}, 0))
	m.boot()
	m.f.Links[0].Speed, m.f.Links[0].Up = 0, false
	up := sleeper{m, func() { m.f.Links[0].Speed, m.f.Links[0].Up = 1e9, true }}
	s.timer = up
	must[Outcome](t)(s.Boot())
	if status := must[Status](t)(s.Status()); !status.InForce || len(status.Notes) != 0 ||
		kernel.QueueOf(m.f.Links[0].Tree).String() != "fq_codel" {
		t.Errorf("%+v, %s", status, kernel.QueueOf(m.f.Links[0].Tree).String())
	}
}

// A default route that comes late is waited for, where only that tells the device.
func TestBootWaitsForTheRoute(t *testing.T) {
	s, m := keeping(t)
	m.f.Files[host.GoalFile] = host.File{Kind: host.Regular, Text: "rate = \"50mbit\"\n"}
	m.f.Uplink = ""
	s.timer = sleeper{m, func() { m.f.Uplink = "eth0" }}
	must[Outcome](t)(s.Boot())
	if !strings.HasPrefix(root(m, "eth0"), "cake") {
		t.Errorf("eth0 has %s", root(m, "eth0"))
	}
}

// A store that keeps nothing believes no journal that names files.
func TestFilesOfAnotherStore(t *testing.T) {
	s, _ := keeping(t)
	must[Outcome](t)(s.Up(plan.Goal{Rate: 50e6}, 0))
	s.disk.Files = false
	if _, err := s.Down(Undo{}); err == nil || !strings.Contains(err.Error(), "damaged") {
		t.Errorf("%v", err)
	}
}

// Where root cannot read whether this is the host's own network namespace, it is not taken for that.
func TestNamespaceIsHidden(t *testing.T) {
	hide := func(m *fake) { m.f.Files, m.f.Hidden = nil, true }
	s, m := keeping(t)
	hide(m)
	before, _ := m.facts()
	out := must[Outcome](t)(s.Up(plan.Goal{Rate: 50e6}, 0))
	if !slices.ContainsFunc(out.Notes, func(n plan.Note) bool { return strings.Contains(n.Text, "/proc/1/ns/net") }) ||
		slices.ContainsFunc(out.Done, func(c plan.Change) bool { return c.IsFile() }) {
		t.Errorf("%+v", out)
	}
	must[Outcome](t)(s.Down(Undo{}))
	if after, _ := m.facts(); !reflect.DeepEqual(after, before) {
		t.Errorf("after\n%+v\nbefore\n%+v", after, before)
	}

	// What is kept for the host is nobody's business here, forced or not.
	s, m = keeping(t)
	must[Outcome](t)(s.Up(plan.Goal{Rate: 50e6}, 0))
	hide(m)
	m.written = nil
	for name, do := range map[string]func() error{
		"up":      func() error { return second(s.Up(plan.Goal{Rate: 20e6}, 0)) },
		"down":    func() error { return second(s.Down(Undo{Force: true})) },
		"recover": func() error { return second(s.Recover()) },
		"boot":    func() error { return second(s.Boot()) },
	} {
		if err := do(); err == nil || !strings.Contains(err.Error(), "cannot be read (/proc/1/ns/net)") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if j, err := s.disk.Load(); m.written != nil || err != nil || j == nil {
		t.Errorf("wrote %v; the journal: %+v, %v", m.written, j, err)
	}
}

// Nothing is changed where the files cannot be written, and nothing half confirmed where one of them turns out not to
// be.
func TestFilesCannotBeWritten(t *testing.T) {
	s, m := keeping(t)
	before, _ := m.facts()
	m.refuse["writable "+host.SysctlFile] = errors.New("read-only file system")
	for _, within := range []time.Duration{0, minute} {
		_, err := s.Up(plan.Goal{Rate: 50e6}, within)
		var refusal *hint.Error
		if !errors.As(err, &refusal) || !strings.Contains(err.Error(), "read-only file system; nothing was changed") ||
			!strings.Contains(refusal.Try, "--runtime") {
			t.Errorf("%v", err)
		}
	}
	if after, _ := m.facts(); !reflect.DeepEqual(after, before) {
		t.Errorf("changed:\n%+v", after)
	}
	clear(m.refuse)
	must[Outcome](t)(s.Up(plan.Goal{Rate: 50e6}, minute))
	up, _ := m.facts()
	m.refuse[host.SysctlFile] = errors.New("no space left on device")
	if _, confirmed, err := s.Confirm(); confirmed || err == nil ||
		!strings.Contains(err.Error(), "not confirmed: /etc/sysctl.d/99-weir.conf: no space left") {
		t.Errorf("%v, %v", confirmed, err)
	}
	if now, _ := m.facts(); !reflect.DeepEqual(now, up) {
		t.Errorf("left behind:\n%+v", now.Files)
	}
	if status := must[Status](t)(s.Status()); !status.InForce || !status.Unconfirmed {
		t.Errorf("%+v", status)
	}
	clear(m.refuse)
	if _, confirmed, err := s.Confirm(); !confirmed || err != nil || m.reloads == 0 {
		t.Errorf("%v, %v", confirmed, err)
	}
}

// While a run waits to be confirmed a device that appears confirms nothing.
func TestBootLeavesWhatIsNotConfirmed(t *testing.T) {
	s, m := keeping(t)
	must[Outcome](t)(s.Up(plan.Goal{Rate: 50e6}, 0))
	must[Outcome](t)(s.Up(plan.Goal{Rate: 20e6}, minute))
	up, _ := m.facts()
	out := must[Outcome](t)(s.Boot())
	if now, _ := m.facts(); len(out.Done) != 0 || !reflect.DeepEqual(now, up) {
		t.Errorf("%+v", out)
	}
	if status := must[Status](t)(s.Status()); !status.Unconfirmed || status.Goals[0].Rate != 20e6 {
		t.Errorf("%+v", status)
	}
}

// What is done is in the log. A log may hang, so nobody holds the lock meanwhile.
func TestLog(t *testing.T) {
	t.Setenv("JOURNAL_STREAM", "") // of a service that runs this test
	s, m := keeping(t)
	var lines []string
	s.log = func(said []string) {
		lines = append(lines, said...)
		unlock, err := s.disk.Lock(0)
		if err != nil {
			t.Errorf("%q is logged: %v", said, err)
			return
		}
		unlock()
	}
	must[Outcome](t)(s.Up(plan.Goal{Rate: 50e6}, minute))
	_, _, _ = s.Confirm()
	must[Outcome](t)(s.Down(Undo{}))
	all := strings.Join(lines, "\n")
	for _, want := range []string{
		"up: eth0  root qdisc: cake bandwidth 49.875mbit", "put back in 60s unless it is confirmed",
		"confirm: /etc/weir.toml: written", "down: /etc/weir.toml: removed",
	} {
		if !strings.Contains(all, want) {
			t.Errorf("%q is missing in\n%s", want, all)
		}
	}
	_ = m
}

// asService makes this process one that systemd has started, whose output the journal has.
func asService(t *testing.T) {
	t.Helper()
	var stderr unix.Stat_t
	if err := unix.Fstat(int(os.Stderr.Fd()), &stderr); err != nil {
		t.Fatal(err)
	}
	stdout := os.Stdout
	t.Cleanup(func() { os.Stdout = stdout })
	os.Stdout = os.Stderr
	t.Setenv("JOURNAL_STREAM", fmt.Sprintf("%d:%d", stderr.Dev, stderr.Ino))
	t.Setenv("SYSTEMD_EXEC_PID", strconv.Itoa(os.Getpid()))
}

// What the journal does not have as weir's is in the log: what a script of a service's prints, or somebody else reads.
func TestLogOfService(t *testing.T) {
	for name, c := range map[string]struct {
		becomes func(t *testing.T)
		logs    bool
	}{
		"a service": {func(*testing.T) {}, false},
		"a script":  {func(t *testing.T) { t.Setenv("SYSTEMD_EXEC_PID", strconv.Itoa(os.Getppid())) }, true},
		"a file": {func(t *testing.T) {
			f, err := os.Create(filepath.Join(t.TempDir(), "out"))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { f.Close() })
			os.Stdout = f
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			asService(t)
			c.becomes(t)
			s, _ := keeping(t)
			var lines []string
			s.log = func(said []string) { lines = append(lines, said...) }
			if _, err := s.Up(plan.Goal{Rate: 50e6}, 0); err != nil || (len(lines) > 0) != c.logs {
				t.Errorf("it logs %q, %v", lines, err)
			}
		})
	}
}

// The timer prints at its end what it did last. What it did before is in the log, and why it is still at work.
func TestLogOfTimer(t *testing.T) {
	asService(t)
	s, m := newFake(t)
	must[Outcome](t)(s.Up(plan.Goal{Rate: 50e6}, minute))
	var lines []string
	s.log = func(said []string) { lines = append(lines, said...) }
	const lowat = "net.ipv4.tcp_notsent_lowat"
	m.refuse[lowat] = errors.New("busy")
	m.slept = func() {
		if m.clock > time.Hour {
			delete(m.refuse, lowat)
		}
	}
	must[Outcome](t)(s.Expire(nil))
	all := strings.Join(lines, "\n")
	for _, want := range []string{"recover: eth0  root qdisc: pfifo_fast, was cake",
		"recover: " + lowat + ": not in force: busy", "recover: " + lowat + ": 4294967295, was 131072"} {
		if !strings.Contains(all, want) {
			t.Errorf("%q is missing in\n%s", want, all)
		}
	}
}

// A log that hangs is not waited for.
func TestLogHangs(t *testing.T) {
	hangs := make(chan struct{})
	defer close(hangs)
	runWithin(time.Millisecond, func() { <-hangs })
	said := false
	runWithin(time.Hour, func() { said = true })
	if !said {
		t.Error("a log that takes its time is not waited for")
	}
}

// A goal that somebody wrote into the file, tried and never confirmed: the boot after that leaves the host alone,
// whoever has enabled the service.
func TestBootOfWhatWasTried(t *testing.T) {
	for name, reverted := range map[string]bool{"and cut off by the reset": false, "and put back by the timer": true} {
		t.Run(name, func(t *testing.T) {
			s, m := keeping(t)
			m.f.Files[host.GoalFile] = host.File{Kind: host.Regular, Mode: 0o644, Text: "rate = \"64kbit\"\n"}
			must[Outcome](t)(s.Up(plan.Goal{}, minute))
			if reverted {
				must[Outcome](t)(s.Recover())
			}
			m.boot()
			if out := must[Outcome](t)(s.Boot()); len(out.Done) != 0 || len(out.Notes) == 0 {
				t.Errorf("%+v", out)
			}
		})
	}
}

// The journal is lost, and of the files only some are left: up can be run, and so can down.
func TestJournalAndGoalLost(t *testing.T) {
	s, m := keeping(t)
	must[Outcome](t)(s.Up(plan.Goal{Rate: 50e6}, 0))
	if err := os.Remove(s.disk.Path()); err != nil {
		t.Fatal(err)
	}
	m.f.Files[host.GoalFile] = host.File{Kind: host.NoFile}
	m.boot()
	must[Outcome](t)(s.Up(plan.Goal{Rate: 20e6}, 0))
	if status := must[Status](t)(s.Status()); !status.InForce || !status.Kept {
		t.Errorf("%+v", status)
	}
	must[Outcome](t)(s.Down(Undo{}))
	if !reflect.DeepEqual(m.f.Files, m.found.Files) {
		t.Errorf("%+v", m.f.Files)
	}
}

// A host that could keep nothing was given a service and the goal's file since: its boot brings up what was confirmed.
func TestBootOfWhatWasNotKept(t *testing.T) {
	s, m := newFake(t)
	m.found, _ = m.facts()
	must[Outcome](t)(s.Up(plan.Goal{Dev: "eth0", Rate: 50e6}, 0))
	m.kept()
	m.found, _ = m.facts()
	m.f.Files[host.GoalFile] = host.File{Kind: host.Regular, Text: "dev = \"eth0\"\nrate = \"20mbit\"\n"}
	m.boot()
	if out := must[Outcome](t)(s.Boot()); out.Goal.Rate != 50e6 {
		t.Errorf("%+v", out)
	}
}

// A boot's run that is killed is ended by the next; a file that was removed on purpose stays away.
func TestBootAfterBoot(t *testing.T) {
	s, m := keeping(t)
	must[Outcome](t)(s.Up(plan.Goal{Rate: 50e6}, 0))
	for step, over := 1, false; !over; step++ {
		m.boot()
		over = survives(m, step, func() { _, _ = s.Boot() })
		must[Outcome](t)(s.Boot())
		if status := must[Status](t)(s.Status()); !status.InForce || status.Unconfirmed {
			t.Fatalf("killed at step %d: %+v", step, status)
		}
	}
	m.f.Files[host.UnitLink] = host.File{Kind: host.NoFile} // systemctl disable
	m.boot()
	out := must[Outcome](t)(s.Boot())
	if len(out.Failed) != 0 || m.f.Files[host.UnitLink].Kind != host.NoFile {
		t.Errorf("%+v, %v", out, m.f.Files[host.UnitLink])
	}
}

// At boot a queue for what arrives that cannot be set is no reason to go without the one for what leaves.
func TestBootWithoutIngress(t *testing.T) {
	s, m := keeping(t)
	m.f.Ingress = host.Unknown
	m.found, _ = m.facts()
	must[Outcome](t)(s.Up(bothWays, 0))
	m.boot()
	m.refuse["ingress "+arriving] = errors.New("no such module")
	out := must[Outcome](t)(s.Boot())
	if len(out.Failed) != 1 || kernel.QueueOf(m.f.Links[0].Tree).String() != "cake bandwidth 49.875mbit besteffort "+
		"dual-dsthost rtt 2s memlimit 4mb" {
		t.Errorf("%+v, %s", out, kernel.QueueOf(m.f.Links[0].Tree).String())
	}
}

// The service that confirm starts finds all in force, and keeps nobody out.
func TestBootOfWhatStands(t *testing.T) {
	s, _ := keeping(t)
	must[Outcome](t)(s.Up(plan.Goal{Rate: 50e6}, 0))
	unlock, err := s.disk.Lock(journal.Patience)
	if err != nil {
		t.Fatal(err)
	}
	defer unlock()
	if out, err := s.Boot(); err != nil || len(out.Done)+len(out.Failed) != 0 {
		t.Errorf("%+v, %v", out, err)
	}
}

// Each thing that a run did is a line of the log; notes and the deadline only where it did something.
func TestReported(t *testing.T) {
	target := kernel.Target{Kind: kernel.Sysctl, Name: "net.ipv4.tcp_ecn"}
	setting := plan.Change{Target: target, Old: kernel.Setting("2"), New: kernel.Setting("1"), Reason: "why"}
	file := plan.Change{Target: journal.GoalFile, Old: kernel.Content{File: host.File{Kind: host.NoFile}},
		New: kernel.Content{File: host.File{Kind: host.Regular}}}
	notes := []plan.Note{{Subject: "eth0", Text: "noted"}}
	goal := plan.Goal{Dev: "eth0", Rate: 5e6}
	for name, c := range map[string]struct {
		out  Outcome
		err  error
		want []string
	}{
		"nothing": {Outcome{Notes: notes, RevertsIn: 1e9}, nil, nil},
		"refused": {Outcome{Notes: notes, RevertsIn: 1e9}, errors.New("no"), []string{"up: no"}},
		"done": {Outcome{Done: []plan.Change{setting, file}, Notes: notes}, nil,
			[]string{"up: " + target.String() + ": 1, was 2: why", "up: /etc/weir.toml: written", "up: eth0: noted"}},
		"failed": {Outcome{Failed: []Failure{{setting, "busy"}}, Notes: notes}, errors.New("no"),
			[]string{"up: no", "up: " + target.String() + ": not in force: busy", "up: eth0: noted"}},
		"left": {Outcome{Left: []Failure{{setting, "theirs"}}}, nil,
			[]string{"up: " + target.String() + ": left to whoever changed it: theirs"}},
		"until it is confirmed": {Outcome{Goal: goal, Done: []plan.Change{file}, RevertsIn: 1}, nil,
			[]string{"up: /etc/weir.toml: written",
				"up: --dev eth0 --rate 5mbit: put back in 1ns unless it is confirmed"}},
	} {
		if got := reported("up", c.out, c.err); !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// A plan that cannot be kept says so before anybody asks for it.
func TestPlanSaysWhatCannotBeKept(t *testing.T) {
	s, m := keeping(t)
	m.refuse["writable "+host.SysctlFile] = errors.New("read-only file system")
	p := must[plan.Plan](t)(s.Plan(plan.Goal{Rate: 50e6}))
	want := plan.Note{Subject: "reboot", Kind: plan.Consequence, Text: "weir up would refuse this. " + host.SysctlFile +
		", which would keep the goal over a reboot, cannot be written: read-only file system. " +
		"Try: --runtime: what is set then ends with a reboot"}
	if !slices.Contains(p.Considered, want) {
		t.Errorf("%+v", p.Considered)
	}
	clear(m.refuse)
	p = must[plan.Plan](t)(s.Plan(plan.Goal{Rate: 50e6}))
	if slices.ContainsFunc(p.Considered, func(n plan.Note) bool { return n.Subject == want.Subject }) {
		t.Errorf("%+v", p.Considered)
	}
}
