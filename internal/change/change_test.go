// SPDX-License-Identifier: Apache-2.0

package change

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"weir/internal/bbr"
	"weir/internal/doctor"
	"weir/internal/hint"
	"weir/internal/host"
	"weir/internal/journal"
	"weir/internal/kernel"
	"weir/internal/plan"
	"weir/internal/qdisc"
	"weir/internal/units"
)

// fake is a machine that can be told to fail. It notes what was written, and whether the journal was there by then.
type fake struct {
	t       *testing.T
	dir     string
	f       host.Facts
	refuse  map[string]error // by device or sysctl
	reverts map[string]bool  // sysctls that are set back at once, and "restore eth0", of which another queue comes
	remade  bool             // what the kernel made by itself comes back with a handle
	written []string
	clock   time.Duration
	armed   []string   // timers
	found   host.Facts // what each boot starts from
	reloads int
	sockets host.Sockets // that are live
	// and those that leave by devices that pass
	socketsBy func(pass map[int]bool) host.Sockets
	filters   []host.Dropper
	cleaned   int
	segs      int    // that a device was given back
	slept     func() // what others do meanwhile
	arming    func() // and while the timer is armed
	steps     int    // taken so far
	crashAt   int    // the step at which the process dies
}

// step is a moment at which a process can be killed: before, amid or after all that it does to the host.
func (m *fake) step() {
	if m.steps++; m.steps == m.crashAt {
		panic(killed{})
	}
}

type killed struct{}

func newFake(t *testing.T) (Store, *fake) {
	// Not on a disk, if there is another way: every save of a journal waits for it.
	dir, err := os.MkdirTemp("/dev/shm", "weir-change-")
	if err != nil {
		dir = t.TempDir()
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	m := &fake{t: t, dir: dir, refuse: map[string]error{}, reverts: map[string]bool{}, f: host.Facts{
		Kernel: "6.12", Boot: "boot-1", Namespace: "net:[1]", Admin: true, Memory: 4 << 30, Uplink: "eth0",
		Links: []host.Link{
			{Index: 2, Name: "eth0", Up: true, MTU: 1500, TxQueues: 1, Tree: single(t, "pfifo_fast")},
			{Index: 3, Name: "eth1", Up: true, MTU: 1500, TxQueues: 1, Tree: single(t, "fq_codel")},
		},
		Sysctls: map[string]host.Sysctl{
			"net.ipv4.tcp_congestion_control": {Value: "cubic"},
			"net.ipv4.tcp_notsent_lowat":      {Value: "4294967295"},
			"net.ipv4.tcp_rmem":               {Value: "4096 131072 6291456"},
			"net.ipv4.tcp_wmem":               {Value: "4096 16384 4194304"},
		},
		Congestion: host.Congestion{Available: []string{"cubic", "bbr"}, Brings: "89abcdef"},
		Objects:    map[string]host.Support{bbr.Name: host.Yes},
		Qdiscs: map[string]host.Support{"bpf_dualpi2": host.Yes, "cake": host.Yes, "fq_codel": host.Yes,
			"fq": host.Yes},
	}}
	return Store{disk: journal.Store{Dir: dir, Files: true, Sleep: m.sleep}, host: m, timer: m,
		Elsewhere: doctor.Elsewhere}, m
}

func atIngress(q qdisc.Qdisc) bool { return q.Parent == qdisc.Ingress }

// kept makes the machine one that keeps goals over a reboot: systemd is there.
func (m *fake) kept() {
	m.f.Init, m.f.Udev, m.f.Files = host.Systemd, true, map[string]host.File{}
	m.f.Program = host.Program{Path: "/usr/local/bin/weir", RootOnly: true}
	for _, name := range []string{host.GoalFile, host.SysctlFile, host.UnitFile, host.PackageUnit, host.UnitLink,
		host.UdevFile, host.FollowFile, host.FollowLink} {
		m.f.Files[name] = host.File{Kind: host.NoFile}
	}
	m.f.Links[0].MAC = "52:54:00:12:34:56"
}

// boot is what a reboot leaves: the files, and what those who read them have set by then.
func (m *fake) boot() {
	m.crashAt, m.clock, m.armed = 0, 0, nil
	files := m.f.Files
	m.f = m.found
	m.f.Links, m.f.Sysctls, m.f.Files = slices.Clone(m.f.Links), maps.Clone(m.f.Sysctls), files
	m.found.Boot += "+"
	m.f.Boot = m.found.Boot
	m.f.Links[0].Index += 10
	for l := range strings.Lines(files[host.SysctlFile].Text) {
		if name, value, ok := strings.Cut(strings.TrimSpace(l), " = "); ok && strings.HasPrefix(name, "net.") {
			m.f.Sysctls[name] = host.Sysctl{Value: value}
		}
	}
}

// started is what systemd does next.
func (m *fake) started() bool {
	unit := m.f.Files[host.UnitLink].Text
	return m.f.Files[host.UnitLink].Kind == host.Symlink && m.f.Files[unit].Kind == host.Regular
}

func (m *fake) tree(_ *qdisc.Conn, link int) (qdisc.Tree, error) {
	i := slices.IndexFunc(m.f.Links, func(l host.Link) bool { return l.Index == link })
	if i < 0 {
		return qdisc.Tree{}, errors.New("no such device")
	}
	return m.f.Links[i].Tree, nil
}

func (m *fake) path(_ host.Facts, pass map[int]bool) host.Sockets {
	if len(pass) > 0 && m.socketsBy != nil {
		return m.socketsBy(pass)
	}
	return m.sockets
}

func (m *fake) droppers(host.Facts) []host.Dropper { return m.filters }

func (m *fake) writable(name string) error { return m.refuse["writable "+name] }

func (m *fake) SetFile(name string, want host.File, at time.Time) error {
	m.step()
	if err := m.write(name, want.String()); err != nil {
		return err
	}
	m.f.Files[name] = want
	if m.f.Modified != nil {
		m.f.Modified[name] = at
	}
	m.step()
	return nil
}

func (m *fake) sweep(string) {}

// RegisterBBR takes the steps that the live one takes: the old one goes first.
func (m *fake) RegisterBBR() error {
	if err := m.RemoveBBR(); err != nil {
		return err
	}
	c := &m.f.Congestion
	c.Registered, c.Available = c.Brings, append(c.Available, bbr.Name)
	m.step()
	return m.write(bbr.Name, c.Brings)
}

func (m *fake) RemoveBBR() error {
	m.step()
	if err := m.write(bbr.Name, ""); err != nil {
		return err
	}
	c := &m.f.Congestion
	c.Registered = ""
	c.Available = slices.DeleteFunc(slices.Clone(c.Available), func(name string) bool { return name == bbr.Name })
	m.step()
	return nil
}

func (m *fake) CleanQueue(index int, _ qdisc.Tree, segs int) error {
	if !slices.ContainsFunc(m.f.Links, func(l host.Link) bool { return l.Index == index }) {
		return unix.ENODEV
	}
	m.cleaned++
	m.segs = segs
	return m.refuse["clean"]
}

func (m *fake) reload([]plan.Change) { m.reloads++ }

func (m *fake) now() time.Duration { return m.clock }

func (m *fake) sleep(d time.Duration) {
	m.clock += d
	if m.slept != nil {
		m.slept()
	}
}

func (m *fake) arm(unit, dir string) error {
	m.step()
	if m.arming != nil {
		m.arming()
	}
	if m.refuse["arm"] != nil {
		return m.refuse["arm"]
	}
	if slices.Contains(m.armed, unit) {
		m.t.Errorf("%s is armed twice", unit)
	}
	m.armed = append(m.armed, unit)
	m.step()
	return nil
}

func (m *fake) disarm(unit string) {
	m.step()
	m.armed = slices.DeleteFunc(m.armed, func(u string) bool { return u == unit })
	m.step()
}

func single(t *testing.T, text string) (tree qdisc.Tree) {
	t.Helper()
	stack, err := qdisc.ParseStack(text)
	if err != nil {
		t.Fatal(err)
	}
	var parent qdisc.Handle = qdisc.Root
	for i, spec := range stack {
		handle := qdisc.Handle(i+1) << 16
		tree.Qdiscs = append(tree.Qdiscs, qdisc.Qdisc{Kind: spec.Kind(), Handle: handle, Parent: parent, Spec: spec})
		parent = handle + 1
	}
	return tree
}

func (m *fake) admin() bool { return m.f.Admin }

func (m *fake) uid() int { return 1000 }

func (m *fake) facts() (host.Facts, error) {
	m.step()
	f := m.f
	f.Links, f.Sysctls, f.Files = slices.Clone(f.Links), maps.Clone(f.Sysctls), maps.Clone(f.Files)
	return f, nil
}

func (m *fake) write(name, value string) error {
	m.written = append(m.written, name+" = "+value)
	if _, err := os.Stat(filepath.Join(m.dir, "journal.json")); err != nil {
		m.t.Errorf("%s is set, and there is no journal: %v", name, err)
	}
	return m.refuse[name]
}

func (m *fake) link(index int) *host.Link {
	return &m.f.Links[slices.IndexFunc(m.f.Links, func(l host.Link) bool { return l.Index == index })]
}

func (m *fake) SetTree(index int, stack qdisc.Stack) error {
	l := m.link(index)
	m.step()
	if err := m.write(l.Name, stack.String()); err != nil {
		// half done
		l.Tree.Qdiscs = slices.DeleteFunc(slices.Clone(l.Tree.Qdiscs),
			func(q qdisc.Qdisc) bool { return !atIngress(q) })
		return err
	}
	m.replace(l, single(m.t, stack.String()))
	return nil
}

func (m *fake) RestoreTree(index int, tree qdisc.Tree) error {
	l := m.link(index)
	m.step()
	if m.remade {
		tree.Qdiscs = slices.Clone(tree.Qdiscs)
		tree.Qdiscs[0].Handle = 0x10000
	}
	if m.reverts["restore "+l.Name] {
		tree = single(m.t, "pfifo")
	}
	m.replace(l, tree)
	return m.write("restore "+l.Name, kernel.QueueOf(tree).String())
}

// setIngress takes the steps that qdisc.SetIngress takes.
func (m *fake) SetIngress(index int, a qdisc.Arriving) error {
	uplink := func() *host.Link {
		if i := slices.IndexFunc(m.f.Links, func(l host.Link) bool { return l.Index == index }); i >= 0 {
			return &m.f.Links[i]
		}
		return nil // it is gone
	}
	own := func() []string {
		if l := uplink(); l != nil {
			return kernel.IFBs(m.f, l.Name)
		}
		return kernel.IFBs(m.f, "")
	}
	ifb := func() *host.Link {
		if names := own(); len(names) > 0 {
			return m.named(names[0])
		}
		return nil
	}
	add := func() {
		name := qdisc.IFB
		for n := 2; slices.ContainsFunc(m.f.Links, func(l host.Link) bool { return l.Name == name }); n++ {
			name = fmt.Sprint(qdisc.IFB, n)
		}
		m.f.Links = append(slices.Clone(m.f.Links), host.Link{Index: 70 + len(m.f.Links), Name: name, Kind: "ifb",
			TxQueues: 1, MTU: 1500})
	}
	place := func(l *host.Link) {
		if !slices.ContainsFunc(l.Tree.Qdiscs, atIngress) {
			ours := qdisc.Qdisc{Kind: "ingress", Handle: 0xFFFF0000, Parent: qdisc.Ingress}
			l.Tree.Qdiscs = append(slices.Clone(l.Tree.Qdiscs), ours)
			m.step()
		}
	}
	lead := func(l *host.Link) {
		place(l)
		m.step() // of a tunnel: the small packets
		l.Redirect = ifb().Name
		m.step()
	}
	release := func(l *host.Link, empty bool) {
		if l == nil || !empty && !slices.Contains(append(own(), host.Gone), l.Redirect) ||
			qdisc.IsIFB(l.Redirect) && !slices.Contains(own(), l.Redirect) {
			return
		}
		l.Redirect, l.Passes = "", nil
		l.Tree.Qdiscs = slices.DeleteFunc(slices.Clone(l.Tree.Qdiscs),
			func(q qdisc.Qdisc) bool { return atIngress(q) && q.Kind == "ingress" })
		m.step()
	}
	tunnels := func() error {
		found := 0
		for i := range m.f.Links {
			switch l := &m.f.Links[i]; {
			case len(a.Stack) > 0 && slices.Contains(a.Tunnels, l.Name):
				found++
				lead(l)
			case l.Index != index && !qdisc.IsIFB(l.Name):
				release(l, len(a.Stack) == 0 && slices.Contains(a.Tunnels, l.Name))
			}
		}
		if len(a.Stack) > 0 && found < len(a.Tunnels) {
			return errors.New("not all of the tunnels are there")
		}
		return nil
	}
	m.step()
	if err := m.write("ingress "+a.Stack.String(), "set"); err != nil { // half done
		if ifb() == nil {
			add()
		}
		ifb().Tree = single(m.t, "pfifo")
		return err
	}
	if len(a.Stack) == 0 {
		release(uplink(), true)
		_ = tunnels()
		names := own()
		m.f.Links = slices.DeleteFunc(slices.Clone(m.f.Links), func(l host.Link) bool {
			return slices.Contains(names, l.Name)
		})
		m.step()
		return nil
	}
	if ifb() == nil {
		add()
		m.step()
	}
	m.replace(ifb(), single(m.t, a.Stack.String()))
	ifb().Up = true
	m.step()
	if err := tunnels(); err != nil {
		return err
	}
	l := uplink()
	if l == nil {
		return errors.New("no such device")
	}
	if len(a.Outer) > 0 {
		place(l)
	}
	var past []string
	for _, o := range a.Outer {
		past = append(past, o.String())
	}
	if !slices.Equal(l.Passes, past) {
		l.Passes = nil
		m.step()
		for _, o := range past {
			l.Passes = append(slices.Clone(l.Passes), o)
			m.step()
		}
	}
	lead(l)
	return nil
}

func (m *fake) replace(l *host.Link, tree qdisc.Tree) {
	// What is at the ingress has no part in it.
	ingress := slices.DeleteFunc(slices.Clone(l.Tree.Qdiscs), func(q qdisc.Qdisc) bool { return !atIngress(q) })
	l.Tree = single(m.t, "pfifo") // for as long as it takes
	l.Tree.Qdiscs[0].Handle = 0x990000
	l.Tree.Qdiscs = append(l.Tree.Qdiscs, ingress...)
	m.step()
	l.Tree = tree
	l.Tree.Qdiscs = append(slices.DeleteFunc(slices.Clone(tree.Qdiscs), atIngress), ingress...)
	m.step()
}

func (m *fake) SetSysctl(name, value string) error {
	m.step()
	if err := m.write(name, value); err != nil {
		return err
	}
	if !m.reverts[name] {
		m.f.Sysctls[name] = host.Sysctl{Value: value}
	}
	m.step()
	return nil
}

func must[T any](t *testing.T) func(T, error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func TestRoundTrip(t *testing.T) {
	s, m := newFake(t)
	before, _ := m.facts()
	goal := plan.Goal{Rate: 50e6, Loss: 0.1}

	out := must[Outcome](t)(s.Up(goal, 0))
	if len(out.Done) != 5 || len(out.Failed) != 0 {
		t.Fatalf("up: %+v", out)
	}
	status := must[Status](t)(s.Status())
	if !status.InForce || status.Goals[0].Rate != 50e6 || status.Goals[0].Dev != "eth0" {
		t.Errorf("status: %+v", status)
	}

	journal := must[[]byte](t)(os.ReadFile(filepath.Join(s.disk.Dir, "journal.json")))
	m.written = nil
	for _, again := range []plan.Goal{goal, {}} { // the same, and whatever it was
		if out := must[Outcome](t)(s.Up(again, 0)); len(out.Done)+len(out.Failed) != 0 {
			t.Errorf("up again: %+v", out)
		}
	}
	if now := must[[]byte](t)(os.ReadFile(filepath.Join(s.disk.Dir, "journal.json"))); string(now) != string(journal) ||
		m.written != nil {
		t.Errorf("up again wrote %v, and the journal is\n%s", m.written, now)
	}

	if out := must[Outcome](t)(s.Down(Undo{})); len(out.Done) != 5 || len(out.Failed) != 0 {
		t.Errorf("down: %+v", out)
	}
	if after, _ := m.facts(); !reflect.DeepEqual(after, before) {
		t.Errorf("after down\n%+v\nbefore up\n%+v", after, before)
	}
	if status := must[Status](t)(s.Status()); status.Up || status.InForce {
		t.Errorf("status after down: %+v", status)
	}
	if left := must[[]os.DirEntry](t)(os.ReadDir(s.disk.Dir)); len(left) != 0 {
		t.Errorf("down leaves %v", left)
	}
	if out := must[Outcome](t)(s.Down(Undo{})); len(out.Done) != 0 {
		t.Errorf("down again: %+v", out)
	}
}

// Goals replace each other: after any sequence the host is as the last alone would have made it, and down is back at
// the start.
func TestGoalsReplaceEachOther(t *testing.T) {
	goals := []plan.Goal{
		{Rate: 50e6}, {Rate: 500e6, Loss: 0.1}, {}, {Dev: "eth0"}, {Recipe: "server-cake", Rate: 20e6},
		{Recipe: "lossy-bbr"},
		{Qdisc: "fq", CC: "bbr"}, {Rate: 100e6, CC: "keep"},
	}
	for i, first := range goals {
		for j, second := range goals {
			t.Run(fmt.Sprintf("%d then %d", i, j), func(t *testing.T) {
				s, m := newFake(t)
				before, _ := m.facts()
				must[Outcome](t)(s.Up(first, 0))
				if first.Rate != 0 && second == (plan.Goal{Dev: "eth0"}) {
					up, _ := m.facts()
					if _, err := s.Up(second, 0); err == nil || !strings.Contains(err.Error(),
						"would take the shaper away") {
						t.Errorf("up: %v", err)
					}
					if now, _ := m.facts(); !reflect.DeepEqual(now, up) {
						t.Errorf("refused, and\n%+v\nwas\n%+v", now, up)
					}
					must[Outcome](t)(s.Down(Undo{}))
				}
				out := must[Outcome](t)(s.Up(second, 0))
				if len(out.Failed) != 0 {
					t.Fatalf("%+v", out.Failed)
				}
				if second == (plan.Goal{}) {
					second = first
				}
				alone, want := newFake(t)
				must[Outcome](t)(alone.Up(second, 0))
				if !reflect.DeepEqual(m.f, want.f) {
					t.Errorf("after both\n%+v\nwith the second alone\n%+v", m.f, want.f)
				}
				if status := must[Status](t)(s.Status()); !status.InForce {
					t.Errorf("not in force: %+v", status)
				}
				must[Outcome](t)(s.Down(Undo{}))
				if after, _ := m.facts(); !reflect.DeepEqual(after, before) {
					t.Errorf("after down\n%+v\nbefore up\n%+v", after, before)
				}
			})
		}
	}
}

// A goal that was meant to be added to the one in force.
func TestShaperIsNotTakenAwayByMistake(t *testing.T) {
	rtt := plan.Goal{RTT: units.Duration(40 * time.Millisecond)}
	for _, c := range []struct {
		first, second plan.Goal
		what, try     string // no refusal when empty
	}{
		{plan.Goal{Rate: 50e6}, rtt, "it does not say --rate 50mbit",
			"weir up --rate 50mbit --rtt 40ms, or weir down first"},
		{plan.Goal{Rate: 50e6, Loss: 0.1, Role: "relay"}, rtt,
			"it does not say --rate 50mbit --role relay --carries proxy",
			"weir up --rate 50mbit --rtt 40ms --role relay --carries proxy, or weir down first"},
		{plan.Goal{Qdisc: "htb rate 20mbit"}, rtt, `it does not say --qdisc "htb rate 20mbit"`,
			`weir up --rtt 40ms --qdisc "htb rate 20mbit", or weir down first`},
		{plan.Goal{Recipe: "server-cake", Rate: 20e6}, plan.Goal{CC: "bbr"},
			"it does not say --rate 20mbit --recipe server-cake", "weir down first"},
		{plan.Goal{Rate: 50e6, Ingress: 100e6}, rtt, "it does not say --rate 50mbit --ingress 100mbit",
			"weir up --rate 50mbit --ingress 100mbit --rtt 40ms, or weir down first"},
		{plan.Goal{Rate: 50e6, Ingress: 100e6}, plan.Goal{Rate: 80e6}, "it does not say --ingress 100mbit",
			"weir up --rate 80mbit --ingress 100mbit, or weir down first"},
		{plan.Goal{Rate: 50e6, Ingress: 100e6}, plan.Goal{Ingress: 80e6}, "it does not say --rate 50mbit",
			"weir up --rate 50mbit --ingress 80mbit, or weir down first"},
		{plan.Goal{Ingress: 100e6}, plan.Goal{Recipe: "lossy-bbr"}, "it does not say --ingress 100mbit",
			"weir down first"},
		{plan.Goal{Rate: 50e6, Ingress: 100e6}, plan.Goal{Rate: 80e6, Ingress: 90e6}, "", ""},
		{plan.Goal{Rate: 50e6}, plan.Goal{Qdisc: "fq"}, "", ""},
		{plan.Goal{Rate: 50e6}, plan.Goal{Recipe: "lossy-bbr"}, "", ""},
		{plan.Goal{Loss: 0.1}, rtt, "", ""},
	} {
		s, m := newFake(t)
		m.f.Qdiscs["htb"] = host.Yes
		must[Outcome](t)(s.Up(c.first, 0))
		before, _ := m.facts()
		_, errPlan := s.Plan(c.second)
		_, errUp := s.Up(c.second, 0)
		if c.what == "" {
			if errPlan != nil || errUp != nil {
				t.Errorf("%+v after %+v: %v, %v", c.second, c.first, errPlan, errUp)
			}
			continue
		}
		for _, err := range []error{errPlan, errUp} {
			var refusal *hint.Error
			if !errors.As(err, &refusal) || !strings.Contains(refusal.What, c.what) || refusal.Try != c.try {
				t.Errorf("%+v after %+v: %+v", c.second, c.first, err)
			}
		}
		if after, _ := m.facts(); !reflect.DeepEqual(after, before) {
			t.Errorf("refused, and\n%+v\nwas\n%+v", after, before)
		}
	}
}

func TestQueueFails(t *testing.T) {
	for _, name := range []string{"at first", "while another goal is in force"} {
		t.Run(name, func(t *testing.T) {
			s, m := newFake(t)
			var journal []byte
			if name != "at first" {
				must[Outcome](t)(s.Up(plan.Goal{Rate: 20e6}, 0))
				journal = must[[]byte](t)(os.ReadFile(filepath.Join(s.disk.Dir, "journal.json")))
			}
			before, _ := m.facts()
			m.refuse["eth0"] = errors.New("no such module")
			_, err := s.Up(plan.Goal{Rate: 50e6}, 0)
			if err == nil || !strings.Contains(err.Error(), "no such module; nothing was changed") {
				t.Errorf("up: %v", err)
			}
			if after, _ := m.facts(); !reflect.DeepEqual(after, before) {
				t.Errorf("left changed:\n%+v\nwas\n%+v", after, before)
			}
			if now, _ := os.ReadFile(filepath.Join(s.disk.Dir, "journal.json")); string(now) != string(journal) {
				t.Errorf("the journal is\n%s\nwas\n%s", now, journal)
			}
		})
	}
}

// A queue that the kernel made by itself comes back by letting the kernel make one, which it does as
// net.core.default_qdisc says.
func TestDefaultIsPutBackBeforeTheQueue(t *testing.T) {
	order := func(m *fake) (first string) {
		for _, w := range m.written {
			if strings.Contains(w, "default_qdisc") || strings.Contains(w, "eth0") {
				first += w + "; "
			}
		}
		m.written = nil
		return first
	}
	for _, fails := range []bool{false, true} {
		s, m := newFake(t)
		m.f.Sysctls["net.core.default_qdisc"] = host.Sysctl{Value: "pfifo_fast"}
		m.f.Qdiscs["dualpi2"] = host.Yes
		if fails {
			m.refuse["eth0"] = errors.New("no such module")
		}
		before, _ := m.facts()
		if _, err := s.Up(plan.Goal{Recipe: "dualpi2-bbr"}, 0); (err != nil) != fails {
			t.Fatal(err)
		}
		want := "net.core.default_qdisc = dualpi2; eth0 = dualpi2; "
		if fails {
			want += "net.core.default_qdisc = pfifo_fast; restore eth0 = pfifo_fast; "
		}
		if got := order(m); got != want {
			t.Errorf("up: %s, want %s", got, want)
		}
		if !fails {
			must[Outcome](t)(s.Down(Undo{}))
			if got := order(m); got != "net.core.default_qdisc = pfifo_fast; restore eth0 = pfifo_fast; " {
				t.Errorf("down: %s", got)
			}
		}
		if after, _ := m.facts(); !reflect.DeepEqual(after, before) {
			t.Errorf("after\n%+v\nbefore\n%+v", after, before)
		}
	}
}

// One bad setting does not stop the rest, and is not passed over in silence.
func TestSettingFails(t *testing.T) {
	s, m := newFake(t)
	m.refuse["net.ipv4.tcp_notsent_lowat"] = errors.New("not permitted")
	m.reverts["net.ipv4.tcp_congestion_control"] = true
	out := must[Outcome](t)(s.Up(plan.Goal{Rate: 50e6, Loss: 0.1}, 0))
	if len(out.Done) != 3 || len(out.Failed) != 2 {
		t.Errorf("%+v", out)
	}
	for _, f := range out.Failed {
		if want := map[string]string{"net.ipv4.tcp_notsent_lowat": "not permitted",
			"net.ipv4.tcp_congestion_control": "is cubic again"}; !strings.Contains(f.Error, want[f.Name]) {
			t.Errorf("%s: %s", f.Target, f.Error)
		}
	}
	status := must[Status](t)(s.Status())
	if status.InForce || len(status.Drift) != 2 {
		t.Errorf("status: %+v", status)
	}
	before := must[Outcome](t)(s.Down(Undo{}))
	if len(before.Failed) != 0 {
		t.Errorf("down: %+v", before)
	}
}

// A queue that is not what was restored is seen, and the journal stays for another try.
func TestNotRestored(t *testing.T) {
	for name, back := range map[string]func(Store) (Outcome, error){
		"down":     func(s Store) (Outcome, error) { return s.Down(Undo{}) },
		"down one": func(s Store) (Outcome, error) { return s.Down(Undo{Dev: "eth0"}) },
		"recover":  Store.Recover,
	} {
		s, m := newFake(t)
		before, _ := m.facts()
		within := time.Duration(0)
		if name == "recover" {
			within = time.Hour
		}
		must[Outcome](t)(s.Up(plan.Goal{Rate: 50e6}, within))
		m.reverts["restore eth0"] = true
		out, err := back(s)
		if err != nil || len(out.Failed) != 1 || !strings.Contains(out.Failed[0].Error, "is pfifo") {
			t.Errorf("%s: %+v, %v", name, out, err)
		}
		if j, err := s.disk.Load(); err != nil || j == nil {
			t.Errorf("%s: the journal is gone, %v", name, err)
		}
		m.reverts = map[string]bool{}
		if out, err := s.Recover(); err != nil || len(out.Failed) != 0 {
			t.Errorf("%s, and recover: %+v, %v", name, out, err)
		}
		if out, err := s.Down(Undo{Force: true}); err != nil || len(out.Failed) != 0 {
			t.Errorf("%s, and down: %+v, %v", name, out, err)
		}
		if after, _ := m.facts(); !reflect.DeepEqual(after, before) {
			t.Errorf("%s: after\n%+v\nbefore\n%+v", name, after, before)
		}
	}
}

func TestSomebodyElse(t *testing.T) {
	s, m := newFake(t)
	before, _ := m.facts()
	must[Outcome](t)(s.Up(plan.Goal{Rate: 50e6}, 0))
	m.f.Sysctls["net.ipv4.tcp_notsent_lowat"] = host.Sysctl{Value: "65536"}
	m.f.Links[0].Tree = single(t, "fq")
	theirs, _ := m.facts()

	status := must[Status](t)(s.Status())
	if status.InForce || len(status.Drift) != 2 {
		t.Errorf("status: %+v", status)
	}
	out := must[Outcome](t)(s.Down(Undo{}))
	if len(out.Done) != 1 || len(out.Failed) != 0 || len(out.Left) != 2 {
		t.Errorf("down: %+v", out)
	}
	for _, l := range out.Left {
		if l.Error != "is 65536, and weir set 131072" && !strings.HasPrefix(l.Error, "is fq, and weir set cake") {
			t.Errorf("left: %s: %s", l.Target, l.Error)
		}
	}
	theirs.Sysctls["net.ipv4.tcp_wmem"] = before.Sysctls["net.ipv4.tcp_wmem"]
	if after, _ := m.facts(); !reflect.DeepEqual(after, theirs) {
		t.Errorf("down leaves theirs and puts back ours:\n%+v\nwant\n%+v", after, theirs)
	}
	if status := must[Status](t)(s.Status()); status.Up || status.Why == "" {
		t.Errorf("status: %+v", status)
	}
	for range 2 { // and what is theirs stays theirs
		if out := must[Outcome](t)(s.Down(Undo{})); len(out.Done) != 0 || len(out.Left) != 2 {
			t.Errorf("down again: %+v", out)
		}
	}
	m.f.Sysctls["net.ipv4.tcp_notsent_lowat"] = before.Sysctls["net.ipv4.tcp_notsent_lowat"]
	if out := must[Outcome](t)(s.Down(Undo{})); len(out.Done) != 0 || len(out.Left) != 1 {
		t.Errorf("down when one is back: %+v", out)
	}
	out = must[Outcome](t)(s.Down(Undo{Force: true}))
	if after, _ := m.facts(); !reflect.DeepEqual(after, before) {
		t.Errorf("down --force: %+v, and\n%+v\nbefore up\n%+v", out, after, before)
	}
	if left := must[[]os.DirEntry](t)(os.ReadDir(s.disk.Dir)); len(left) != 0 {
		t.Errorf("down leaves %v", left)
	}
}

// What down has left to somebody else is theirs: another up goes back to that, whoever puts it back.
func TestUpAfterSomethingWasLeft(t *testing.T) {
	for name, back := range map[string]func(Store) (Outcome, error){
		"down":    func(s Store) (Outcome, error) { return s.Down(Undo{}) },
		"recover": Store.Recover,
	} {
		s, m := newFake(t)
		must[Outcome](t)(s.Up(plan.Goal{Rate: 50e6}, 0))
		m.f.Links[0].Tree = single(t, "htb rate 9mbit | fq")
		m.f.Sysctls["net.ipv4.tcp_notsent_lowat"] = host.Sysctl{Value: "65536"}
		must[Outcome](t)(s.Down(Undo{}))
		theirs, _ := m.facts()
		must[Outcome](t)(s.Up(plan.Goal{Rate: 20e6}, time.Minute))
		if status := must[Status](t)(s.Status()); !status.InForce {
			t.Errorf("%s: status: %+v", name, status)
		}
		out := must[Outcome](t)(back(s))
		if after, _ := m.facts(); !reflect.DeepEqual(after, theirs) || len(out.Left)+len(out.Failed) != 0 {
			t.Errorf("after %s\n%+v\nbefore the second up\n%+v\n%+v", name, after, theirs, out)
		}
	}
}

// A device is known by its index: another name does not hide what was done to it.
func TestDeviceIsRenamed(t *testing.T) {
	for _, name := range []string{"down", "status", "up", "plan", "up for it", "another has its name"} {
		t.Run(name, func(t *testing.T) {
			s, m := newFake(t)
			must[Outcome](t)(s.Up(plan.Goal{Rate: 50e6}, 0))
			m.f.Links[0].Name, m.f.Uplink = "wan0", "wan0"
			if name == "another has its name" {
				m.f.Links[1].Name = "eth0"
			}
			was := plan.Note{Kind: plan.Consequence, Subject: "wan0", Text: "was called eth0 when weir set it up"}
			switch name {
			case "status":
				if status := must[Status](t)(s.Status()); !status.InForce || status.Goals[0].Dev != "wan0" ||
					!slices.Contains(status.Notes, was) {
					t.Errorf("status: %+v", status)
				}
			case "up":
				if out := must[Outcome](t)(s.Up(plan.Goal{}, 0)); len(out.Done) != 0 ||
					!slices.Contains(out.Notes, was) {
					t.Errorf("up: %+v", out)
				}
			case "up for it":
				out := must[Outcome](t)(s.Up(plan.Goal{Rate: 20e6}, 0))
				if len(out.Failed) != 0 || !strings.Contains(kernel.QueueOf(m.f.Links[0].Tree).String(), "19.95mbit") {
					t.Errorf("up: %+v", out)
				}
			case "plan":
				if p := must[plan.Plan](t)(s.Plan(plan.Goal{Rate: 50e6})); !p.Empty() {
					t.Errorf("plan: %+v", p)
				}
			}
			out := must[Outcome](t)(s.Down(Undo{}))
			if got := kernel.QueueOf(m.f.Links[0].Tree).String(); got != "pfifo_fast" || len(out.Failed)+
				len(out.Left) != 0 {
				t.Errorf("after down %s: %+v", got, out)
			}
			if got := kernel.QueueOf(m.f.Links[1].Tree).String(); got != "fq_codel" {
				t.Errorf("the other device has %s", got)
			}
		})
	}
}

// A root of the kernel's own making that it would make otherwise now is as it was when one of its kind is there.
func TestDefaultChangedSince(t *testing.T) {
	s, m := newFake(t)
	m.f.Links[0].Tree.Qdiscs[0].Handle = 0
	must[Outcome](t)(s.Up(plan.Goal{Rate: 50e6}, 0))
	m.remade = true
	out := must[Outcome](t)(s.Down(Undo{}))
	if len(out.Failed) != 0 || len(out.Notes) != 1 ||
		!strings.Contains(out.Notes[0].Text, "pfifo_fast is set by weir now") {
		t.Errorf("down: %+v", out)
	}
	if status := must[Status](t)(s.Status()); status.Up {
		t.Errorf("status: %+v", status)
	}
}

// A container that is gone leaves a journal that nobody can act on.
func TestNamespaceIsGone(t *testing.T) {
	s, m := newFake(t)
	must[Outcome](t)(s.Up(plan.Goal{Rate: 50e6}, 0))
	m.f.Namespace, m.written = "net:[2]", nil
	_, errUp := s.Up(plan.Goal{Rate: 20e6}, 0)
	_, errPlan := s.Plan(plan.Goal{Rate: 20e6})
	_, errStatus := s.Status()
	_, errDown := s.Down(Undo{})
	for _, err := range []error{errUp, errPlan, errStatus, errDown} {
		if try, _ := hint.Of(err); !strings.Contains(err.Error(), "another network namespace") ||
			!strings.Contains(try, "weir down --force") {
			t.Errorf("%v", err)
		}
	}
	if out := must[Outcome](t)(s.Down(Undo{Force: true})); len(out.Notes) != 1 || m.written != nil {
		t.Errorf("down --force: %+v, wrote %v", out, m.written)
	}
	if status := must[Status](t)(s.Status()); status.Up {
		t.Errorf("status: %+v", status)
	}
}

// What somebody else sets to where it was is theirs and ours: nothing to do, nothing to refuse.
func TestSomebodyPutItBack(t *testing.T) {
	s, m := newFake(t)
	before, _ := m.facts()
	must[Outcome](t)(s.Up(plan.Goal{Rate: 50e6}, 0))
	m.f.Sysctls["net.ipv4.tcp_notsent_lowat"] = before.Sysctls["net.ipv4.tcp_notsent_lowat"]
	must[Outcome](t)(s.Down(Undo{}))
	if after, _ := m.facts(); !reflect.DeepEqual(after, before) {
		t.Errorf("after down\n%+v\nbefore up\n%+v", after, before)
	}
}

func TestReboot(t *testing.T) {
	s, m := newFake(t)
	before, _ := m.facts()
	must[Outcome](t)(s.Up(plan.Goal{Rate: 50e6}, 0))
	m.f, _ = before, m.f
	m.f.Sysctls = maps.Clone(before.Sysctls)
	m.f.Boot = "boot-2"
	before, _ = m.facts()
	if status := must[Status](t)(s.Status()); !status.Up || status.InForce || !status.Reboot ||
		status.Goals[0].Rate != 50e6 {
		t.Errorf("status: %+v", status)
	}
	if out := must[Outcome](t)(s.Up(plan.Goal{}, 0)); len(out.Done) == 0 || out.Goal.Rate != 50e6 {
		t.Errorf("up again: %+v", out)
	}
	m.f.Boot, m.f.Links, m.f.Sysctls = "boot-3", before.Links, before.Sysctls
	m.written = nil
	if out := must[Outcome](t)(s.Down(Undo{})); len(out.Done) != 0 || m.written != nil {
		t.Errorf("down: %+v, wrote %v", out, m.written)
	}
	if status := must[Status](t)(s.Status()); status.Up {
		t.Errorf("status after down: %+v", status)
	}
}

// A device that went and came back is another device: its queues are not the ones that were changed.
func TestDeviceComesBack(t *testing.T) {
	s, m := newFake(t)
	must[Outcome](t)(s.Up(plan.Goal{Rate: 50e6}, 0))
	m.f.Links[0].Index, m.f.Links[0].Tree = 9, single(t, "fq")
	if out := must[Outcome](t)(s.Up(plan.Goal{}, 0)); len(out.Done) != 1 {
		t.Errorf("up: %+v", out)
	}
	must[Outcome](t)(s.Down(Undo{}))
	if got := kernel.QueueOf(m.f.Links[0].Tree).String(); got != "fq" {
		t.Errorf("after down %s, want what the new device had: fq", got)
	}

	must[Outcome](t)(s.Up(plan.Goal{Rate: 50e6}, 0))
	m.f.Links = m.f.Links[1:]
	if status := must[Status](t)(s.Status()); !status.Up || status.InForce ||
		!strings.Contains(status.Why, "no such device") {
		t.Errorf("status without the device: %+v", status)
	}
	out := must[Outcome](t)(s.Down(Undo{}))
	if len(out.Notes) != 1 || len(out.Failed) != 0 {
		t.Errorf("down without the device: %+v", out)
	}
}

// A device that comes back under its name has nothing of a BPF queue on it to take away.
func TestDeviceOfABPFQueueComesBack(t *testing.T) {
	for name, back := range map[string]func(Store) (Outcome, error){
		"down":    func(s Store) (Outcome, error) { return s.Down(Undo{}) },
		"recover": Store.Recover,
	} {
		s, m := newFake(t)
		must[Outcome](t)(s.Up(plan.Goal{Dev: "eth0", Qdisc: "bpf_dualpi2 rate 50mbit", CC: "keep"}, time.Hour))
		m.f.Links[0].Index, m.f.Links[0].Tree = 9, single(t, "fq")
		if out, err := back(s); err != nil || len(out.Failed) != 0 {
			t.Errorf("%s: %+v, %v", name, out, err)
		}
		if left := must[[]os.DirEntry](t)(os.ReadDir(s.disk.Dir)); len(left) != 0 && name == "down" {
			t.Errorf("down leaves %v", left)
		}
		if j, err := s.disk.Load(); err != nil || j != nil && j.Pending != nil {
			t.Errorf("%s: the run still waits: %v", name, err)
		}
	}
}

func TestRefused(t *testing.T) {
	up := plan.Goal{Rate: 50e6}
	for _, c := range []struct {
		name  string
		spoil func(Store, *fake)
		want  string
	}{
		{"damaged", func(s Store, m *fake) { os.WriteFile(s.disk.Path(), []byte("{"), 0o644) }, "is damaged"},
		{"empty", func(s Store, m *fake) { os.WriteFile(s.disk.Path(), nil, 0o644) }, "is empty"},
		{"not a journal", func(s Store, m *fake) { os.WriteFile(s.disk.Path(), []byte("[]"), 0o644) },
			"is damaged: no weir writes the array that ends at its byte"},
		{"a later version", func(s Store, m *fake) { os.WriteFile(s.disk.Path(), []byte(`{"version":9}`), 0o644) },
			"is of a newer weir: version 9"},
		{"a name that leads elsewhere", func(s Store, m *fake) {
			os.WriteFile(s.disk.Path(),
				[]byte(`{"version":1,"boot":"boot-1","namespace":"net:[1]","entries":[`+
					`{"sysctl":"net./../../etc/passwd","was":"","set":["x"]}]}`), 0o644)
		}, "unknown setting"},
		{"a directory", func(s Store, m *fake) { os.Remove(s.disk.Path()); os.Mkdir(s.disk.Path(), 0o755) },
			"is a directory"},
		{"huge", func(s Store, m *fake) { os.Truncate(s.disk.Path(), 17<<20) }, "is damaged: it is longer than"},
		{"no permission", func(s Store, m *fake) { m.f.Admin = false }, "needs root"},
		{"locked", func(s Store, m *fake) {
			unlock, err := s.disk.Lock(journal.Patience)
			if err != nil {
				m.t.Fatal(err)
			}
			m.t.Cleanup(unlock)
		}, "another weir"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, m := newFake(t)
			must[Outcome](t)(s.Up(up, 0))
			c.spoil(s, m)
			m.written = nil
			_, errUp := s.Up(plan.Goal{Dev: "eth0", Rate: 20e6}, 0)
			_, errDown := s.Down(Undo{Force: true})
			for _, err := range []error{errUp, errDown} {
				if err == nil || !strings.Contains(err.Error(), c.want) {
					t.Errorf("%v, want %q", err, c.want)
				}
			}
			if m.written != nil {
				t.Errorf("refused, and wrote %v", m.written)
			}
		})
	}
}

// What can be read without end, or never, holds up nobody who asks; and takes no memory.
func TestJournalThatIsNoFile(t *testing.T) {
	for name, put := range map[string]func(at string) error{
		"a device": func(at string) error { return os.Symlink(os.DevNull, at) },
		"a pipe":   func(at string) error { return unix.Mkfifo(at, 0o600) },
	} {
		s, _ := newFake(t)
		if err := put(s.disk.Path()); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Status(); err == nil || !strings.Contains(err.Error(), "is not a regular file") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Whoever looks from a unit in which /proc/sys is read-only, as the exporter's, sees the same goal in force.
func TestStatusWhereNothingCanBeWritten(t *testing.T) {
	s, m := newFake(t)
	must[Outcome](t)(s.Up(plan.Goal{Rate: 50e6, RTT: 50e6, CC: "bbr"}, 0))
	for name, value := range m.f.Sysctls {
		value.ReadOnly = true
		m.f.Sysctls[name] = value
	}
	if st := must[Status](t)(s.Status()); !st.InForce {
		t.Errorf("%+v", st.Drift)
	}
}

// A goal is in force without what this host does not let be set, and status says so.
func TestLackIsToldAfterwards(t *testing.T) {
	s, m := newFake(t)
	value := m.f.Sysctls["net.ipv4.tcp_notsent_lowat"]
	value.ReadOnly = true
	m.f.Sysctls["net.ipv4.tcp_notsent_lowat"] = value
	for range 2 {
		out := must[Outcome](t)(s.Up(plan.Goal{Rate: 50e6, RTT: 50e6, CC: "bbr"}, 0))
		st := must[Status](t)(s.Status())
		if a, b := plan.LacksOf(out.Notes), plan.LacksOf(st.Notes); len(a) != 1 || !slices.Equal(a, b) || !st.InForce {
			t.Errorf("%+v, %+v, %v", a, b, st.InForce)
		}
	}
}

// A run that waits and has no goal is nothing to confirm: a journal may have been cut, or written by another hand.
func TestConfirmNothing(t *testing.T) {
	for _, down := range []string{"", `,"down":true`} {
		s, _ := newFake(t)
		text := fmt.Sprintf(`{"boot":"boot-1","goal":null,"link":2,"namespace":"net:[1]","pending":{`+
			`"unit":"weir-revert-1","until_ns":60000000000%s},"tree":{"qdiscs":[`+
			`{"handle":"1:","kind":"pfifo_fast","parent":"root",`+
			`"spec":"pfifo_fast"}]},"version":1}`, down)
		if err := os.WriteFile(s.disk.Path(), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		_, done, err := s.Confirm()
		if try, _ := hint.Of(err); done || err == nil || try != "weir recover" {
			t.Errorf("down %q: %v, %v", down, done, err)
		}
	}
}

// A process that dies leaves no lock behind.
func TestLockDiesWithItsProcess(t *testing.T) {
	if dir := os.Getenv("WEIR_TEST_LOCK"); dir != "" {
		if _, err := Open(dir).disk.Lock(journal.Patience); err != nil {
			t.Fatal(err)
		}
		os.Exit(0)
	}
	s, _ := newFake(t)
	cmd := exec.Command(os.Args[0], "-test.run=^TestLockDiesWithItsProcess$")
	cmd.Env = append(os.Environ(), "WEIR_TEST_LOCK="+s.disk.Dir)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	unlock, err := s.disk.Lock(journal.Patience)
	if err != nil {
		t.Fatal(err)
	}
	unlock()
}

// A device by which nothing leaves is likely not the one that was meant; one that is down for now keeps its goal.
func TestLinkDown(t *testing.T) {
	s, m := newFake(t)
	m.f.Links[1].Up = false
	for _, err := range []error{
		second(s.Up(plan.Goal{Dev: "eth1"}, 0)), second(s.Plan(plan.Goal{Dev: "eth1"})),
	} {
		if err == nil || err.Error() != "eth1: the link is down" {
			t.Errorf("%v", err)
		}
	}
	must[Outcome](t)(s.Up(plan.Goal{Rate: 50e6}, 0))
	m.f.Links[0].Up = false
	if status := must[Status](t)(s.Status()); !status.InForce || len(status.Notes) != 1 {
		t.Errorf("down: %+v", status)
	}
	must[Outcome](t)(s.Up(plan.Goal{}, 0))
}

func second[T any](_ T, err error) error { return err }

// How far away the clients are is measured when a goal is brought up, and is then part of it.
func TestMeasuredRTT(t *testing.T) {
	s, m := newFake(t)
	m.sockets = host.Sockets{Total: 23, RTT: units.Duration(31 * time.Millisecond)}
	out := must[Outcome](t)(s.Up(plan.Goal{Rate: 50e6}, 0))
	if out.Goal.RTT != units.Duration(50*time.Millisecond) ||
		!strings.Contains(out.Notes[0].Text, "23 live connections have an RTT below 31ms") {
		t.Errorf("%+v", out)
	}
	m.sockets.RTT = units.Duration(300 * time.Millisecond)
	if status := must[Status](t)(s.Status()); !status.InForce || status.Goals[0].RTT != out.Goal.RTT {
		t.Errorf("%+v", status)
	}
	if out := must[Outcome](t)(s.Up(plan.Goal{}, 0)); len(out.Done) != 0 {
		t.Errorf("%+v", out)
	}
	if p := must[plan.Plan](t)(s.Plan(plan.Goal{Rate: 50e6})); p.Goals[0].RTT != units.Duration(200*time.Millisecond) {
		t.Errorf("%+v", p.Goals[0])
	}
	for name, g := range map[string]plan.Goal{"said": {Rate: 50e6, RTT: 1e6},
		"a recipe's": {Recipe: "server-cake", Rate: 50e6}} {
		if p := must[plan.Plan](t)(s.Plan(g)); p.Goals[0].RTT != g.RTT {
			t.Errorf("%s: %+v", name, p.Goals[0])
		}
	}
	m.sockets.Total = 3 // too few
	if p := must[plan.Plan](t)(s.Plan(plan.Goal{Rate: 50e6})); p.Goals[0].RTT != 0 {
		t.Errorf("%+v", p.Goals[0])
	}
}

// What a program reads of an outcome and of a status: a change with its error beside it, goals by themselves.
func TestJSON(t *testing.T) {
	change := plan.Change{Target: kernel.Target{Kind: kernel.Sysctl, Name: "net.ipv4.tcp_ecn"},
		New: kernel.Setting("1"), Reason: "why"}
	goals := []plan.Goal{{Dev: "eth0"}, {Dev: "eth1"}}
	for want, v := range map[string]any{
		`"new":"1","reason":"why","error":"busy"}`:                      Failure{change, "busy"},
		`"drift":null,"goal":{"dev":"eth0"},"others":[{"dev":"eth1"}]}`: Status{Goals: goals},
	} {
		if text, err := json.Marshal(v); err != nil || !strings.HasSuffix(string(text), want) {
			t.Errorf("%s, %v", text, err)
		}
	}
}

// A journal has changed when it was written or removed since the last look, and not twice for once.
func TestChanged(t *testing.T) {
	s, _ := newFake(t)
	changed := s.Changed()
	for _, c := range []struct {
		name string
		run  func()
		want bool
	}{
		{"at first", func() {}, false},
		{"up", func() { must[Outcome](t)(s.Up(plan.Goal{Rate: 50e6}, 0)) }, true},
		{"up, again", func() {}, false},
		{"down", func() { must[Outcome](t)(s.Down(Undo{})) }, true},
		{"down, again", func() {}, false},
	} {
		if c.run(); changed() != c.want {
			t.Errorf("%s: not %v", c.name, c.want)
		}
	}
	if s.Dir() != s.disk.Dir || Open("x").Dir() != filepath.Join(must[string](t)(os.Getwd()), "x") {
		t.Errorf("%s, %s", s.Dir(), Open("x").Dir())
	}
	if Open("x").disk.Files || !Open(Dir).disk.Files {
		t.Error("the files are another store's")
	}
}

// A goal is in force where nothing has drifted of its device or of the host.
func TestHolds(t *testing.T) {
	drift := func(kind kernel.Kind, name string) []plan.Change {
		return []plan.Change{{Target: kernel.Target{Kind: kind, Name: name}}}
	}
	for name, c := range map[string]struct {
		status Status
		want   bool
	}{
		"all":              {Status{Up: true}, true},
		"another's queue":  {Status{Up: true, Drift: drift(kernel.Root, "eth1")}, true},
		"its queue":        {Status{Up: true, Drift: drift(kernel.Root, "eth0")}, false},
		"what arrives":     {Status{Up: true, Drift: drift(kernel.Ingress, "eth0")}, false},
		"a setting":        {Status{Up: true, Drift: drift(kernel.Sysctl, "net.ipv4.tcp_ecn")}, false},
		"not up":           {Status{}, false},
		"a reason":         {Status{Up: true, Why: "why"}, false},
		"its own reason":   {Status{Up: true, broken: map[string]string{"eth0": "gone"}}, false},
		"another's reason": {Status{Up: true, broken: map[string]string{"eth1": "gone"}}, true},
		"both, and drifted": {Status{Up: true, Drift: append(drift(kernel.Root, "eth1"),
			drift(kernel.Root, "eth0")...)}, false},
	} {
		if got := c.status.Holds(plan.Goal{Dev: "eth0"}); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// A device by which nothing leaves is named for what it is; one that is not there is for others to name.
func TestIsUp(t *testing.T) {
	for name, c := range map[string]struct {
		link host.Link
		want string // "" where it is up
	}{
		"up":               {host.Link{Name: "eth0", Up: true}, ""},
		"down":             {host.Link{Name: "eth0"}, "eth0: the link is down"},
		"a bridge":         {host.Link{Name: "eth0", Kind: "bridge", Up: true}, ""},
		"a bridge, down":   {host.Link{Name: "eth0", Kind: "bridge"}, "eth0: the bridge is down"},
		"another one down": {host.Link{Name: "eth1"}, ""},
	} {
		err := isUp(plan.Goal{Dev: "eth0"}, host.Facts{Links: []host.Link{c.link}})
		if (err == nil) != (c.want == "") || err != nil && !strings.HasPrefix(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

// Whoever may not change networks is told so by every command that would, before anything is read or locked.
func TestNeedsRoot(t *testing.T) {
	s, m := newFake(t)
	m.f.Admin = false
	for command, run := range map[string]func() error{
		"up":      func() error { _, err := s.Up(plan.Goal{Rate: 50e6}, 0); return err },
		"confirm": func() error { _, _, err := s.Confirm(); return err },
		"down":    func() error { _, err := s.Down(Undo{}); return err },
		"recover": func() error { _, err := s.Recover(); return err },
		"follow":  func() error { return s.Learn(plan.Goal{Dev: "eth0"}, 5e6, func() bool { return true }) },
	} {
		var refusal *hint.Error
		if err := run(); !errors.As(err, &refusal) || refusal.Try != "sudo weir "+command+" …" ||
			!strings.HasPrefix(refusal.What, command+" changes the network, which needs root") {
			t.Errorf("%s: %+v", command, refusal)
		}
	}
	if _, err := s.Slow("eth0", 0.5); err == nil {
		t.Error("a queue is slowed")
	}
	if m.steps != 0 {
		t.Errorf("%d steps", m.steps)
	}
}

// A goal that nobody could have is refused before anything else, by Up and by Plan.
func TestGoalIsChecked(t *testing.T) {
	s, m := newFake(t)
	goal := plan.Goal{Rate: 1}
	_, up := s.Up(goal, 0)
	_, planned := s.Plan(goal)
	for _, err := range []error{up, planned} {
		if err == nil || !strings.Contains(err.Error(), "too little to reach this host") {
			t.Error(err)
		}
	}
	if m.steps != 0 || len(m.written) != 0 {
		t.Errorf("%d steps, %v", m.steps, m.written)
	}
}

// Whom sudo cannot help is not told to use it.
func TestNeedsAdmin(t *testing.T) {
	for uid, want := range map[int]string{1000: "sudo weir up …",
		0: "weir up … on the host itself, or in a container with --cap-add NET_ADMIN"} {
		var wrong *hint.Error
		if err := NeedsAdmin("up", "weir up", uid); !errors.As(err, &wrong) || wrong.Try != want {
			t.Errorf("%d: %+v", uid, err)
		}
	}
}
