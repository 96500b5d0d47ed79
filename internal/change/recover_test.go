// SPDX-License-Identifier: Apache-2.0

package change

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"golang.org/x/sys/unix"

	"weir/internal/doctor"
	"weir/internal/hint"
	"weir/internal/host"
	"weir/internal/journal"
	"weir/internal/kernel"
	"weir/internal/plan"
	"weir/internal/qdisc"
	"weir/internal/units"
)

const minute = time.Minute

// later is a Store of another process, when every deadline has passed.
func later(s Store, m *fake) Store {
	m.crashAt = 0
	m.clock += 2 * time.Hour
	return Store{disk: s.disk, host: m, timer: m, Elsewhere: s.Elsewhere}
}

// comparable is a machine's facts without what a boot changes for nobody's sake.
func comparable(f host.Facts) host.Facts {
	f.Boot, f.Links = "", slices.Clone(f.Links)
	f.Links[0].Index = 0
	return f
}

// survives reports whether run got to its end before the process was killed at a step.
func survives(m *fake, step int, run func()) (survived bool) {
	m.steps, m.crashAt = 0, step
	defer func() {
		if r := recover(); r != nil {
			if _, ok := r.(killed); !ok {
				panic(r)
			}
		}
		m.crashAt = 0
	}()
	run()
	return true
}

// A process may be killed at any step. Whatever it was doing, what comes after it (weir recover, or the timer) leaves
// the host as found or as a confirmed goal made it, and a journal that says so.
func TestKilledAtEveryStep(t *testing.T) {
	first, second := plan.Goal{Dev: "eth0", Rate: 50e6}, plan.Goal{Dev: "eth0", Rate: 500e6, Loss: 0.1, RTT: 1e8}
	recipe := plan.Goal{Dev: "eth0", Recipe: "dualpi2-bbr"}
	arriving := plan.Goal{Dev: "eth0", Ingress: 20e6}
	both, faster := plan.Goal{Dev: "eth0", Rate: 50e6, Ingress: 100e6},
		plan.Goal{Dev: "eth0", Rate: 500e6, Ingress: 200e6, RTT: 1e8}
	up := func(goal plan.Goal, within time.Duration) func(Store, *fake) {
		return func(s Store, _ *fake) { _, _ = s.Up(goal, within) }
	}
	down := func(force bool) func(Store, *fake) {
		return func(s Store, _ *fake) { _, _ = s.Down(Undo{Force: force}) }
	}
	recovers := func(s Store, _ *fake) { _, _ = s.Recover() }
	expires := func(s Store, m *fake) { m.clock += time.Hour; _, _ = s.Expire(nil) }
	confirms := func(s Store, _ *fake) { _, _, _ = s.Confirm() }
	queueFails := func(s Store, m *fake) { m.refuse["eth0"] = errors.New("no such module") }
	ingressFails := func(rate string) func(Store, *fake) {
		return func(_ Store, m *fake) {
			m.refuse["ingress cake bandwidth "+rate] = errors.New("no such module")
		}
	}
	tunnel := plan.Goal{Dev: "eth0", Rate: 50e6, Role: "relay", Carries: "tunnel"}
	tunnelFaster := plan.Goal{Dev: "eth0", Rate: 500e6, RTT: 1e7, Role: "relay", Carries: "tunnel"}
	tunnelFails := ingressFails("45mbit besteffort dual-dsthost rtt 500ms nat ingress")
	packed := plan.Goal{Dev: "eth0", Rate: 50e6, Role: "relay", Carries: "forward"}
	own, ownFaster := plan.Goal{Dev: "eth0", Qdisc: "bpf_dualpi2 rate 50mbit", Only: true},
		plan.Goal{Dev: "eth0", Qdisc: "bpf_dualpi2 rate 60mbit", Only: true}
	hears, hearsMore := plan.Goal{Dev: "eth0", Rate: 50e6, CC: "bpf_bbr"},
		plan.Goal{Dev: "eth0", Rate: 500e6, CC: "bpf_bbr"}
	none := plan.Goal{}
	files := func(_ Store, m *fake) { m.kept(); m.found, _ = m.facts() }

	type killing struct {
		before []func(Store, *fake)
		run    func(Store, *fake)
		ends   []plan.Goal // in force afterwards, all of it; none: as found
	}
	cases := map[string]killing{}
	for name, c := range map[string]killing{
		"up":           {nil, up(first, minute), []plan.Goal{none}},
		"up, a recipe": {nil, up(recipe, minute), []plan.Goal{none}},
		"up --yes":     {nil, up(first, 0), []plan.Goal{none, first}},
		"up after a confirmed": {[]func(Store, *fake){up(first, 0)}, up(second, minute),
			[]plan.Goal{first}},
		"up with a recipe after a confirmed": {[]func(Store, *fake){up(first, 0)}, up(recipe, minute),
			[]plan.Goal{first}},
		"up after a confirmed recipe": {[]func(Store, *fake){up(recipe, 0)}, up(first, minute),
			[]plan.Goal{recipe}},
		"up --yes after a confirmed": {[]func(Store, *fake){up(first, 0)}, up(second, 0),
			[]plan.Goal{first, second}},
		"up after one that is not confirmed": {[]func(Store, *fake){up(first, minute)}, up(second, minute),
			[]plan.Goal{none}},
		"up again, not confirmed": {[]func(Store, *fake){up(first, minute)}, up(first, minute),
			[]plan.Goal{none}},
		"up --yes over one not confirmed": {[]func(Store, *fake){up(first, minute)}, up(second, 0),
			[]plan.Goal{none, second}},
		"a third": {[]func(Store, *fake){up(first, 0), up(second, minute)},
			up(recipe, minute), []plan.Goal{first}},
		"up after one that was put back": {[]func(Store, *fake){up(first, 0), up(second, minute), recovers},
			up(second, minute), []plan.Goal{first}},
		"down after one that was put back": {[]func(Store, *fake){up(first, 0), up(recipe, minute), recovers},
			down(false), []plan.Goal{none, first}},
		"up, and the queue fails": {[]func(Store, *fake){queueFails}, up(first, minute),
			[]plan.Goal{none}},
		"up after a confirmed, the queue fails": {[]func(Store, *fake){up(first, 0), queueFails}, up(second, minute),
			[]plan.Goal{first}},
		"up after a pending, the queue fails": {[]func(Store, *fake){up(first, minute), queueFails},
			up(second, minute), []plan.Goal{none}},
		"confirm": {[]func(Store, *fake){up(first, minute)}, confirms,
			[]plan.Goal{none, first}},
		"confirm a second": {[]func(Store, *fake){up(first, 0), up(second, minute)}, confirms,
			[]plan.Goal{first, second}},
		"recover": {[]func(Store, *fake){up(first, minute)}, recovers, []plan.Goal{none}},
		"recover to a confirmed": {[]func(Store, *fake){up(first, 0), up(second, minute)}, recovers,
			[]plan.Goal{first}},
		"recover to a confirmed from a recipe": {[]func(Store, *fake){up(first, 0), up(recipe, minute)}, recovers,
			[]plan.Goal{first}},
		"the timer": {[]func(Store, *fake){up(recipe, minute)}, expires, []plan.Goal{none}},
		"the timer, to a confirmed": {[]func(Store, *fake){up(recipe, 0), up(second, minute)}, expires,
			[]plan.Goal{recipe}},
		"down": {[]func(Store, *fake){up(first, 0)}, down(false),
			[]plan.Goal{none, first}},
		"down --force": {[]func(Store, *fake){up(recipe, 0)}, down(true),
			[]plan.Goal{none, recipe}},
		"down before it is confirmed": {[]func(Store, *fake){up(first, minute)}, down(false),
			[]plan.Goal{none}},
		"down with a second not confirmed": {[]func(Store, *fake){up(first, 0), up(second, minute)}, down(false),
			[]plan.Goal{none, first}},

		"a congestion control": {nil, up(hears, 0), []plan.Goal{none, hears}},
		"a congestion control, not confirmed": {[]func(Store, *fake){up(first, 0)}, up(hears, minute),
			[]plan.Goal{first}},
		"a congestion control that is taken down": {[]func(Store, *fake){up(hears, 0)}, down(false),
			[]plan.Goal{none, hears}},
		"a congestion control beside another rate": {[]func(Store, *fake){up(hears, 0)}, up(hearsMore, 0),
			[]plan.Goal{hears, hearsMore}},
		"a congestion control no more": {[]func(Store, *fake){up(hears, 0)}, up(first, 0),
			[]plan.Goal{hears, first}},
		"the timer, from a congestion control": {[]func(Store, *fake){up(hears, minute)}, expires, []plan.Goal{none}},

		"a queue only": {nil, up(own, 0), []plan.Goal{none, own}},
		"a queue only, changed": {[]func(Store, *fake){up(own, 0)}, up(ownFaster, 0),
			[]plan.Goal{own, ownFaster}},
		"a queue only, and it fails": {[]func(Store, *fake){queueFails}, up(own, 0), []plan.Goal{none}},
		"a queue only, taken away":   {[]func(Store, *fake){up(own, 0)}, down(false), []plan.Goal{none, own}},
		"a queue only, cut short twice": {[]func(Store, *fake){up(own, 0), recovers}, down(true),
			[]plan.Goal{none, own}},

		"up with ingress":             {nil, up(both, minute), []plan.Goal{none}},
		"up --yes with ingress alone": {nil, up(arriving, 0), []plan.Goal{none, arriving}},
		"up with ingress after a confirmed": {[]func(Store, *fake){up(first, 0)}, up(both, minute),
			[]plan.Goal{first}},
		"another ingress after a confirmed": {[]func(Store, *fake){up(both, 0)}, up(faster, minute),
			[]plan.Goal{both}},
		"another ingress over one not confirmed": {[]func(Store, *fake){up(both, minute)}, up(faster, minute),
			[]plan.Goal{none}},
		"up, and the ingress fails": {[]func(Store,
			*fake){ingressFails("85mbit besteffort dual-srchost rtt 500ms ingress")}, up(both, minute),
			[]plan.Goal{none}},
		"up after a confirmed, the ingress fails": {[]func(Store, *fake){up(both, 0),
			ingressFails("170mbit besteffort dual-srchost rtt 1s ingress")}, up(faster, minute), []plan.Goal{both}},
		"confirm ingress": {[]func(Store, *fake){up(first, 0), up(both, minute)}, confirms,
			[]plan.Goal{first, both}},
		"recover to a confirmed ingress": {[]func(Store, *fake){up(both, 0), up(faster, minute)}, recovers,
			[]plan.Goal{both}},
		"the timer, from ingress": {[]func(Store, *fake){up(first, 0), up(both, minute)}, expires,
			[]plan.Goal{first}},
		"down from ingress": {[]func(Store, *fake){up(both, 0)}, down(false),
			[]plan.Goal{none, both}},
		"down --force from ingress": {[]func(Store, *fake){up(arriving, 0), up(faster, minute)},
			down(true), []plan.Goal{none, arriving}},

		"up with a tunnel":           {nil, up(tunnel, minute), []plan.Goal{none}},
		"up --yes with a tunnel":     {nil, up(tunnel, 0), []plan.Goal{none, tunnel}},
		"a tunnel after a confirmed": {[]func(Store, *fake){up(first, 0)}, up(tunnel, minute), []plan.Goal{first}},
		"a tunnel, and another rate": {[]func(Store, *fake){up(tunnel, 0)}, up(tunnelFaster, minute),
			[]plan.Goal{tunnel}},
		"a tunnel, and none":       {[]func(Store, *fake){up(tunnel, 0)}, up(packed, minute), []plan.Goal{tunnel}},
		"up, and the tunnel fails": {[]func(Store, *fake){tunnelFails}, up(tunnel, minute), []plan.Goal{none}},
		"confirm a tunnel": {[]func(Store, *fake){up(packed, 0), up(tunnel, minute)}, confirms,
			[]plan.Goal{packed, tunnel}},
		"recover to a confirmed tunnel": {[]func(Store, *fake){up(tunnel, 0), up(packed, minute)}, recovers,
			[]plan.Goal{tunnel}},
		"the timer, from a tunnel": {[]func(Store, *fake){up(first, 0), up(tunnel, minute)}, expires,
			[]plan.Goal{first}},
		"down from a tunnel": {[]func(Store, *fake){up(tunnel, 0)}, down(false), []plan.Goal{none, tunnel}},
		"down --force from a tunnel": {[]func(Store, *fake){up(tunnel, 0), up(tunnelFaster, minute)}, down(true),
			[]plan.Goal{none, tunnel}},
	} {
		cases[name] = c
		if strings.HasPrefix(name, "a queue only") {
			continue // it has none
		}
		cases[name+", with files"] = killing{append([]func(Store, *fake){files}, c.before...), c.run, c.ends}
	}
	for name, c := range cases {
		withFiles := strings.HasSuffix(name, ", with files")
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			fresh := func() (Store, *fake) {
				s, m := newFake(t)
				m.f.Sysctls["net.core.default_qdisc"] = host.Sysctl{Value: "pfifo_fast"}
				m.f.Qdiscs["dualpi2"] = host.Yes
				m.tunnel("tun0", 4, "udp/1194")
				return s, m
			}
			found := func() (Store, *fake) {
				s, m := fresh()
				if withFiles {
					files(s, m)
				}
				return s, m
			}
			// What each end looks like.
			want := map[plan.Goal]host.Facts{}
			for _, goal := range c.ends {
				s, m := found()
				if goal != none {
					must[Outcome](t)(s.Up(goal, 0))
				}
				want[goal] = comparable(m.f)
			}
			check := func(t *testing.T, s Store, m *fake, how string) {
				t.Helper()
				j := must[*journal.Journal](t)(s.disk.Load())
				end := plan.Goal{}
				for _, goal := range j.Goals() {
					end = goal
				}
				if is, ok := want[end]; !ok || !reflect.DeepEqual(comparable(m.f), is) {
					t.Fatalf("%s: the journal says %q, and the host is\n%+v\nwant\n%+v", how, end.Flags(), m.f, is)
				}
				if j != nil && (j.Pending != nil || end == none && len(j.Entries) > 0) {
					t.Fatalf("%s: the journal is %+v", how, j)
				}
				status := must[Status](t)(s.Status())
				if status.Unconfirmed || status.Why != "" || status.Up != (end != none) || status.InForce != status.Up {
					t.Fatalf("%s: status: %+v", how, status)
				}
				if len(m.armed) > 0 && strings.HasPrefix(how, "recover") {
					// One that was armed and not noted finds nothing to do.
					if out := must[Outcome](t)(later(s, m).Expire(nil)); len(out.Done) != 0 {
						t.Fatalf("%s: the timer's call: %+v", how, out)
					}
				}
				must[Outcome](t)(s.Down(Undo{}))
				if left := must[[]os.DirEntry](t)(os.ReadDir(s.disk.Dir)); len(left) != 0 {
					t.Fatalf("%s: down leaves %v", how, left)
				}
				if _, found := found(); !reflect.DeepEqual(comparable(m.f), comparable(found.f)) {
					t.Fatalf("%s: after down\n%+v\nas found\n%+v", how, m.f, found.f)
				}
			}
			mends := map[string]func(Store) (Outcome, error){
				"recover":   Store.Recover,
				"the timer": func(s Store) (Outcome, error) { return s.Expire(nil) },
			}
			steps, stride := 0, 1
			if !everyStep {
				stride = 7
			}
			for step, over := 1, false; !over; step += stride {
				for mend, mends := range mends {
					s, m := fresh()
					for _, before := range c.before {
						before(s, m)
					}
					over = survives(m, step, func() { c.run(s, m) })
					clear(m.refuse)
					again := later(s, m)
					must[Outcome](t)(mends(again))
					check(t, again, m, fmt.Sprintf("%s after step %d", mend, step))

					// The power may fail, instead. Whatever is left of a run systemd then starts what looks after it.
					if mend == "recover" && withFiles {
						s, m := fresh()
						for _, before := range c.before {
							before(s, m)
						}
						survives(m, step, func() { c.run(s, m) })
						clear(m.refuse)
						m.boot()
						if m.started() {
							must[Outcome](t)(s.Boot())
						} else {
							// The unit alone may be left, or its link: nothing that does anything.
							for name, f := range m.f.Files {
								if f.Kind != host.NoFile && name != host.UnitFile && name != host.UnitLink {
									t.Fatalf("power cut after step %d: nothing looks after %s", step, name)
								}
							}
							must[Outcome](t)(s.Recover())
						}
						status := must[Status](t)(s.Status())
						end := plan.Goal{}
						if status.Up {
							end = status.Goals[0]
						}
						if is, ok := want[end]; !ok || !reflect.DeepEqual(comparable(m.f), is) ||
							status.InForce != status.Up || status.Up && !status.Kept {
							t.Fatalf("power cut after step %d: %+v, and the host is\n%+v\nwant\n%+v", step, status, m.f,
								is)
						}
						must[Outcome](t)(s.Down(Undo{}))
						if _, found := found(); !reflect.DeepEqual(comparable(m.f), comparable(found.f)) {
							t.Fatalf("power cut after step %d: after down\n%+v\nas found\n%+v", step, m.f, found.f)
						}
						if left := must[[]os.DirEntry](t)(os.ReadDir(s.disk.Dir)); len(left) != 0 {
							t.Fatalf("power cut after step %d: down leaves %v", step, left)
						}
					}

					// And the one that mends may be killed, too.
					if mend != "recover" || !everyStep {
						continue
					}
					for amid, over := 1, false; !over; amid++ {
						s, m := fresh()
						for _, before := range c.before {
							before(s, m)
						}
						survives(m, step, func() { c.run(s, m) })
						clear(m.refuse)
						again := later(s, m)
						over = survives(m, amid, func() { must[Outcome](t)(again.Recover()) })
						must[Outcome](t)(later(s, m).Recover())
						check(t, again, m, fmt.Sprintf("recover after step %d of it and %d of recover", step, amid))
					}
				}
				steps = step - 1
			}
			if steps < 3 {
				t.Errorf("only %d steps", steps)
			}
		})
	}
}

func TestConfirm(t *testing.T) {
	s, m := newFake(t)
	if _, confirmed, err := s.Confirm(); confirmed || err != nil {
		t.Errorf("nothing to confirm: %v, %v", confirmed, err)
	}
	out := must[Outcome](t)(s.Up(plan.Goal{Rate: 50e6}, minute))
	if time.Duration(out.RevertsIn) != minute || !reflect.DeepEqual(m.armed, []string{timerName(s.disk.Dir, minute,
		"")}) {
		t.Errorf("up: %+v, armed %v", out, m.armed)
	}
	up, _ := m.facts()
	m.clock += 19 * time.Second
	if status := must[Status](t)(s.Status()); !status.InForce || !status.Unconfirmed ||
		time.Duration(status.RevertsIn) != 41*time.Second {
		t.Errorf("status: %+v", status)
	}
	// The timer of the first is not stopped before that of the second is armed.
	must[Outcome](t)(s.Up(plan.Goal{}, minute))
	if !reflect.DeepEqual(m.armed, []string{timerName(s.disk.Dir, minute+19*time.Second, "")}) {
		t.Errorf("armed again: %v", m.armed)
	}
	status, confirmed, err := s.Confirm()
	if !confirmed || err != nil || !status.InForce || status.Unconfirmed || len(m.armed) != 0 {
		t.Errorf("confirm: %+v, %v, %v; armed %v", status, confirmed, err, m.armed)
	}
	if out := must[Outcome](t)(later(s, m).Expire(nil)); len(out.Done) != 0 {
		t.Errorf("the timer, after it was confirmed: %+v", out)
	}
	if _, confirmed, err := s.Confirm(); confirmed || err != nil {
		t.Errorf("again: %v, %v", confirmed, err)
	}
	if now, _ := m.facts(); !reflect.DeepEqual(now, up) {
		t.Errorf("confirmed, and now\n%+v\nwas\n%+v", now, up)
	}
	if status := must[Status](t)(s.Status()); !status.InForce || status.Unconfirmed {
		t.Errorf("status: %+v", status)
	}
}

func TestConfirmTooLateOrNotInForce(t *testing.T) {
	for name, c := range map[string]struct {
		spoil func(Store, *fake)
		want  string
	}{
		"put back": {func(s Store, m *fake) { must[Outcome](t)(later(s, m).Expire(nil)) },
			"too late: --dev eth0 --rate 50mbit was put back"},
		"changed since": {func(s Store,
			m *fake) {
			m.f.Sysctls["net.ipv4.tcp_notsent_lowat"] = host.Sysctl{Value: "65536"}
		},
			"not in force: net.ipv4.tcp_notsent_lowat is 65536, not 131072"},
		"started again":    {func(s Store, m *fake) { m.f.Boot = "boot-2" }, "started again"},
		"the link is down": {func(s Store, m *fake) { m.f.Links[0].Up = false }, "the link is down"},
	} {
		t.Run(name, func(t *testing.T) {
			s, m := newFake(t)
			must[Outcome](t)(s.Up(plan.Goal{Rate: 50e6}, minute))
			c.spoil(s, m)
			if _, confirmed, err := s.Confirm(); confirmed || err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, %v, want %q", confirmed, err, c.want)
			}
		})
	}
}

// The time is over, and nobody has put it back: whoever confirms it can still get at the host.
func TestConfirmLate(t *testing.T) {
	s, m := newFake(t)
	must[Outcome](t)(s.Up(plan.Goal{Rate: 50e6}, minute))
	m.clock += 2 * minute
	if status, confirmed, err := s.Confirm(); !confirmed || err != nil || !status.InForce {
		t.Errorf("%+v, %v, %v", status, confirmed, err)
	}
	if out := must[Outcome](t)(later(s, m).Expire(nil)); len(out.Done) != 0 {
		t.Errorf("put back after that: %+v", out)
	}
}

// A host that is locked out must not stay so because somebody else changed something, but is told.
func TestRevertOverwrites(t *testing.T) {
	s, m := newFake(t)
	before, _ := m.facts()
	must[Outcome](t)(s.Up(plan.Goal{Rate: 50e6}, minute))
	m.f.Sysctls["net.ipv4.tcp_notsent_lowat"] = host.Sysctl{Value: "65536"}
	m.f.Sysctls["net.ipv4.tcp_rmem"] = host.Sysctl{Value: "1 2 3"} // not ours, and not put back
	before.Sysctls["net.ipv4.tcp_rmem"] = m.f.Sysctls["net.ipv4.tcp_rmem"]
	out := must[Outcome](t)(later(s, m).Expire(nil))
	want := plan.Note{Subject: "net.ipv4.tcp_notsent_lowat",
		Text: "was 65536, which weir had not set, and is overwritten"}
	if len(out.Notes) != 1 || out.Notes[0] != want {
		t.Errorf("%+v", out)
	}
	if after, _ := m.facts(); !reflect.DeepEqual(after, before) {
		t.Errorf("after\n%+v\nbefore\n%+v", after, before)
	}
	status := must[Status](t)(s.Status())
	if status.Up || status.Reverted == nil || status.Reverted.Goal.Rate != 50e6 ||
		!reflect.DeepEqual(status.Reverted.Notes, out.Notes) {
		t.Errorf("status: %+v", status)
	}
}

// What was left to somebody else by an earlier down is not this run's to put back.
func TestRevertLeavesWhatWasLeft(t *testing.T) {
	s, m := newFake(t)
	must[Outcome](t)(s.Up(plan.Goal{Rate: 50e6, Loss: 0.1}, 0))
	m.f.Sysctls["net.ipv4.tcp_congestion_control"] = host.Sysctl{Value: "reno"}
	must[Outcome](t)(s.Down(Undo{}))
	left, _ := m.facts()
	must[Outcome](t)(s.Up(plan.Goal{Rate: 20e6}, minute))
	must[Outcome](t)(s.Recover())
	if after, _ := m.facts(); !reflect.DeepEqual(after, left) {
		t.Errorf("after\n%+v\nbefore\n%+v", after, left)
	}
	if out := must[Outcome](t)(s.Down(Undo{})); len(out.Left) != 1 {
		t.Errorf("down: %+v", out)
	}
	must[Outcome](t)(s.Down(Undo{Force: true}))
	if got := m.f.Sysctls["net.ipv4.tcp_congestion_control"].Value; got != "cubic" {
		t.Errorf("after down --force: %s", got)
	}
}

// A full disk keeps up from changing anything, and nobody from going back.
func TestJournalCannotBeWritten(t *testing.T) {
	full := func(s Store) func() {
		if err := os.MkdirAll(s.disk.Path()+".new/full", 0o755); err != nil {
			t.Fatal(err)
		}
		return func() { os.RemoveAll(s.disk.Path() + ".new") }
	}
	s, m := newFake(t)
	before, _ := m.facts()
	free := full(s)
	if _, err := s.Up(plan.Goal{Rate: 50e6}, minute); err == nil || !strings.Contains(err.Error(), "journal") ||
		m.written != nil || len(m.armed) != 0 {
		t.Errorf("up: %v, wrote %v, armed %v", err, m.written, m.armed)
	}
	free()
	must[Outcome](t)(s.Up(plan.Goal{Rate: 50e6}, 0))
	full(s)
	if _, err := s.Down(Undo{}); err != nil {
		t.Errorf("down: %v", err)
	}
	if after, _ := m.facts(); !reflect.DeepEqual(after, before) {
		t.Errorf("after\n%+v\nbefore\n%+v", after, before)
	}
}

func TestNotArmed(t *testing.T) {
	s, m := newFake(t)
	before, _ := m.facts()
	m.refuse["arm"] = errors.New("no")
	m.written = nil
	if _, err := s.Up(plan.Goal{Rate: 50e6}, minute); err == nil ||
		!strings.Contains(err.Error(), "cannot be armed: no; nothing was changed") {
		t.Errorf("up: %v", err)
	}
	if after, _ := m.facts(); !reflect.DeepEqual(after, before) || m.written != nil {
		t.Errorf("wrote %v", m.written)
	}
	if left := must[[]os.DirEntry](t)(os.ReadDir(s.disk.Dir)); len(left) != 0 {
		t.Errorf("it leaves %v", left)
	}
}

// The timer's call waits for a deadline that has been moved, for a lock, and for a device that is busy, and then puts
// back.
func TestExpireWaits(t *testing.T) {
	s, m := newFake(t)
	before, _ := m.facts()
	must[Outcome](t)(s.Up(plan.Goal{Rate: 50e6}, minute))
	said := 0
	m.clock += 10 * time.Second
	start := m.clock
	out := must[Outcome](t)(s.Expire(func() { said++ }))
	if waited := m.clock - start; said != 1 || waited != 50*time.Second || len(out.Done) == 0 {
		t.Errorf("waited %v, said so %d times: %+v", waited, said, out)
	}
	if after, _ := m.facts(); !reflect.DeepEqual(after, before) {
		t.Errorf("after\n%+v\nbefore\n%+v", after, before)
	}

	must[Outcome](t)(s.Up(plan.Goal{Rate: 50e6}, minute))
	unlock, err := s.disk.Lock(journal.Patience)
	if err != nil {
		t.Fatal(err)
	}
	held := true
	busy := sleeper{m, func() {
		if held && m.clock > start+3*minute {
			held = false
			unlock()
		}
	}}
	if out, err := (Store{disk: s.disk, host: m, timer: busy}).Expire(nil); err != nil ||
		len(out.Done) == 0 {
		t.Errorf("after another run: %+v, %v", out, err)
	}
}

type sleeper struct {
	*fake
	slept func()
}

func (s sleeper) sleep(d time.Duration) { s.fake.sleep(d); s.slept() }

// Each store has timers of its own: what one does stops none of another's.
func TestTimersOfTwoStores(t *testing.T) {
	one, m := newFake(t)
	other := one
	other.disk.Dir = t.TempDir()
	must[Outcome](t)(one.Up(plan.Goal{Rate: 50e6}, minute))
	first := m.armed[0]
	m.dir = other.disk.Dir
	must[Outcome](t)(other.Up(plan.Goal{Dev: "eth1", Rate: 20e6}, minute))
	must[Outcome](t)(other.Down(Undo{}))
	if !reflect.DeepEqual(m.armed, []string{first}) {
		t.Errorf("armed is %v, and was %s", m.armed, first)
	}
}

// Nobody is kept out while the timer is armed, and who has gone back meanwhile has the last word.
func TestGoneBackWhileArming(t *testing.T) {
	s, m := newFake(t)
	before, _ := m.facts()
	m.arming = func() { must[Outcome](t)(s.Down(Undo{})) }
	if _, err := s.Up(plan.Goal{Rate: 50e6}, minute); err == nil || !strings.Contains(err.Error(), "another weir") {
		t.Errorf("up: %v", err)
	}
	if after, _ := m.facts(); !reflect.DeepEqual(after, before) || len(m.armed) != 0 {
		t.Errorf("armed %v, after\n%+v\nbefore\n%+v", m.armed, after, before)
	}
}

// A host on which arming takes longer than the timer waits is told so, and is as it was.
func TestTimeOverWhileArming(t *testing.T) {
	s, m := newFake(t)
	before, _ := m.facts()
	m.arming = func() {
		m.clock += 2 * minute
		must[Outcome](t)(s.Expire(nil))
	}
	_, err := s.Up(plan.Goal{Rate: 50e6}, minute)
	if err == nil || !strings.Contains(err.Error(), "this host is slow") {
		t.Errorf("up: %v", err)
	}
	if after, _ := m.facts(); !reflect.DeepEqual(after, before) || len(m.armed) != 0 {
		t.Errorf("armed %v, after\n%+v\nbefore\n%+v", m.armed, after, before)
	}
}

// What fails is tried again for as long as that takes, less and less often.
func TestExpireTriesAgain(t *testing.T) {
	s, m := newFake(t)
	before, _ := m.facts()
	must[Outcome](t)(s.Up(plan.Goal{Rate: 50e6}, minute))
	m.refuse["restore eth0"] = errors.New("busy")
	attempts := 0
	m.slept = func() {
		if attempts++; m.clock > 24*time.Hour {
			delete(m.refuse, "restore eth0")
		}
	}
	must[Outcome](t)(s.Expire(nil))
	if attempts > 60+24*60+10 {
		t.Errorf("%d attempts in a day", attempts)
	}
	if after, _ := m.facts(); !reflect.DeepEqual(after, before) {
		t.Errorf("after\n%+v\nbefore\n%+v", after, before)
	}
}

// onReadOnly calls do on a thread for which the directory is a file system that can be made read-only.
func onReadOnly(t *testing.T, dir string, do func(readOnly func(bool))) {
	if os.Geteuid() != 0 {
		t.Skip("skipped, not passed: a mount needs root")
	}
	done := make(chan struct{})
	go func() { // the thread ends with it, and its mounts
		defer close(done)
		runtime.LockOSThread()
		mount := func(flags uintptr) {
			if err := unix.Mount("none", dir, "tmpfs", flags, ""); err != nil {
				t.Error(err)
			}
		}
		if err := unix.Unshare(unix.CLONE_FS | unix.CLONE_NEWNS); err != nil {
			t.Error(err)
			return
		}
		if err := unix.Mount("none", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
			t.Error(err)
			return
		}
		mount(0)
		do(func(on bool) {
			flags := uintptr(unix.MS_REMOUNT)
			if on {
				flags |= unix.MS_RDONLY
			}
			mount(flags)
		})
	}()
	<-done
}

// What is gone with its device is not put back.
func TestOverdueWithoutDevice(t *testing.T) {
	s, m := newFake(t)
	before, _ := m.facts()
	must[Outcome](t)(s.Up(plan.Goal{Rate: 50e6}, minute))
	m.f.Sysctls = before.Sysctls
	m.gone("eth0")
	for range 2 { // before the deadline, and after it
		if status := must[Status](t)(s.Status()); !status.Unconfirmed || status.PutBack {
			t.Errorf("%+v", status)
		}
		m.clock += minute
	}
}

// A disk that has become read-only, as ext4 does after an error, keeps nobody from going back.
func TestStateIsReadOnly(t *testing.T) {
	for name, back := range map[string]func(Store) (Outcome, error){
		"down": func(s Store) (Outcome, error) { return s.Down(Undo{}) }, "recover": Store.Recover,
	} {
		t.Run(name, func(t *testing.T) {
			s, m := newFake(t)
			before, _ := m.facts()
			onReadOnly(t, s.disk.Dir, func(readOnly func(bool)) {
				must[Outcome](t)(s.Up(plan.Goal{Rate: 50e6}, minute))
				readOnly(true)
				if out := must[Outcome](t)(back(s)); len(out.Done) == 0 ||
					!noted(out.Notes, "the journal", "read-only") {
					t.Errorf("%+v", out)
				}
				if after, _ := m.facts(); !reflect.DeepEqual(after, before) {
					t.Errorf("after\n%+v\nbefore\n%+v", after, before)
				}
				for _, overdue := range []bool{false, true} {
					if status := must[Status](t)(s.Status()); !status.Unconfirmed || status.PutBack != overdue {
						t.Errorf("all is back, overdue %v, and status says %+v", overdue, status)
					}
					m.clock += minute
				}
				readOnly(false)
				must[Outcome](t)(s.Recover())
				if status := must[Status](t)(s.Status()); status.Up || status.Unconfirmed {
					t.Errorf("%+v", status)
				}
			})
		})
	}
	t.Run("down, with an earlier goal", func(t *testing.T) {
		s, m := newFake(t)
		before, _ := m.facts()
		onReadOnly(t, s.disk.Dir, func(readOnly func(bool)) {
			must[Outcome](t)(s.Up(plan.Goal{Rate: 30e6}, 0))
			must[Outcome](t)(s.Up(plan.Goal{Rate: 50e6}, minute))
			readOnly(true)
			out := must[Outcome](t)(s.Down(Undo{}))
			if len(m.armed) != 0 || !noted(out.Notes, "the journal", "can be written:  weir down") {
				t.Errorf("%v, %+v", m.armed, out)
			}
			readOnly(false)
			must[Outcome](t)(s.Down(Undo{}))
			if after, _ := m.facts(); !reflect.DeepEqual(after, before) {
				t.Errorf("after\n%+v\nbefore\n%+v", after, before)
			}
		})
	})
	t.Run("the timer", func(t *testing.T) {
		s, m := newFake(t)
		before, _ := m.facts()
		onReadOnly(t, s.disk.Dir, func(readOnly func(bool)) {
			must[Outcome](t)(s.Up(plan.Goal{Rate: 50e6}, minute))
			readOnly(true)
			m.slept = func() {
				after, _ := m.facts()
				switch {
				case m.clock <= minute+10*time.Second:
				case m.clock <= time.Hour && !reflect.DeepEqual(after, before):
					t.Fatalf("after\n%+v\nbefore\n%+v", after, before)
				case m.clock <= time.Hour:
				default:
					// What is set by hand since then is nobody's to overwrite.
					m.f.Sysctls["net.ipv4.tcp_notsent_lowat"] = host.Sysctl{Value: "777"}
					readOnly(false)
				}
			}
			if out := must[Outcome](t)(s.Expire(nil)); len(out.Done) == 0 {
				t.Error("what it has put back is not among what it did")
			}
			if j, err := s.disk.Load(); j != nil && j.Pending != nil || err != nil ||
				m.f.Sysctls["net.ipv4.tcp_notsent_lowat"].Value != "777" {
				t.Errorf("%+v, %v", j, err)
			}
		})
	})
}

// Who starts a process that has to outlive this one, and that nobody may be able to.
// What waits is started again in a network namespace that has a name.
func TestNetwork(t *testing.T) {
	for name, c := range map[string]struct {
		of    map[string]string // the files that stand for namespaces, by where they are seen
		path  string
		stays bool
	}{
		"systemd's": {map[string]string{"self/ns/net": "a", "1/ns/net": "a"}, "", true},
		"ip netns": {map[string]string{"1/root/run/netns/x": "b", "1/root/run/netns/y": "a"}, "/run/netns/y",
			true},
		"a container's":       {map[string]string{"1/root/run/docker/netns/0f": "a"}, "/run/docker/netns/0f", true},
		"without a name":      {map[string]string{"1/root/run/netns/x": "b"}, "/proc/10/ns/net", false},
		"no names are there":  {nil, "/proc/10/ns/net", false},
		"none can be read":    {map[string]string{"self/ns/net": "", "1/ns/net": ""}, "/proc/10/ns/net", false},
		"systemd's cannot be": {map[string]string{"1/ns/net": ""}, "/proc/10/ns/net", false},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			write := func(err error) {
				t.Helper()
				if err != nil {
					t.Fatal(err)
				}
			}
			at := func(parts ...string) string { return filepath.Join(append([]string{dir}, parts...)...) }
			for _, namespace := range []string{"a", "b"} {
				write(os.WriteFile(at(namespace), []byte(namespace), 0o600))
			}
			files := map[string]string{"self/ns/net": "a", "1/ns/net": "first"}
			maps.Copy(files, c.of)
			for place, namespace := range files {
				if namespace == "" {
					continue
				}
				write(os.MkdirAll(filepath.Dir(at("proc", place)), 0o700))
				write(os.Symlink(at(namespace), at("proc", place)))
			}
			p := process{proc: os.DirFS(at("proc")), pid: 10}
			if path, stays := p.network(); path != c.path || stays != c.stays {
				t.Errorf("%q, %v", path, stays)
			}
		})
	}
}

func TestKeeper(t *testing.T) {
	const otherPID, otherUser = "pid:[4026532000]", "user:[4026532001]"
	proc := func(comm, pid, user string) fs.FS {
		link := func(to string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(to), Mode: os.ModeSymlink} }
		return rooted{fstest.MapFS{"1/comm": {Data: []byte(comm + "\n")}, "self/ns/pid": link(pid),
			"self/ns/user": link(user)}}
	}
	for _, c := range []struct {
		name   string
		p      process
		want   keeper
		refuse string
	}{
		{"a host without systemd", process{proc("init", firstPIDNamespace, host.FirstUserNamespace), 10, false},
			bySession, ""},
		{"a host with it", process{proc("systemd", firstPIDNamespace, host.FirstUserNamespace), 10, true}, bySystemd,
			""},
		{"root who may not look at process 1", process{unseen(proc("systemd", firstPIDNamespace,
			host.FirstUserNamespace)),
			10, true}, bySystemd, "is in a mount namespace that systemd does not see"},
		{"nspawn, with user namespaces", process{proc("systemd", otherPID, otherUser), 10, true}, bySystemd, ""},
		{"a user's own namespaces", process{proc("systemd-x", firstPIDNamespace, otherUser), 10, true}, bySession, ""},
		{"docker run weir", process{proc("weir", otherPID, host.FirstUserNamespace), 1, false}, 0,
			"this container ends"},
		{"docker run sh -c weir", process{proc("sh", otherPID, host.FirstUserNamespace), 10, false}, 0,
			"this container ends"},
		{"docker run --init weir", process{proc("docker-init", otherPID, host.FirstUserNamespace), 10, false}, 0,
			"this container ends"},
		{"docker exec weir", process{proc("nginx", otherPID, host.FirstUserNamespace), 10, false}, 0,
			"this container ends"},
		{"docker exec weir, beside s6-overlay", process{proc("s6-svscan", otherPID, host.FirstUserNamespace), 10,
			false}, 0,
			"this container ends"},
		{"docker run --pid=host weir", process{apart(proc("init", firstPIDNamespace, host.FirstUserNamespace)), 10,
			false},
			0, "this container ends"},
		{"root who may not look, without systemd", process{unseen(proc("init", firstPIDNamespace,
			host.FirstUserNamespace)),
			10, false}, bySession, ""},
		{"Alpine in LXC", process{proc("init", otherPID, otherUser), 10, false}, bySession, ""},
	} {
		got, err := c.p.keeper("/", "/")
		if c.refuse == "" && err != nil || c.refuse != "" && (err == nil || !strings.Contains(err.Error(), c.refuse)) ||
			got != c.want {
			t.Errorf("%s: %v, %v", c.name, got, err)
		}
	}
}

// unseen is a /proc that does not show what process 1 sees.
func unseen(proc fs.FS) fs.FS { return proc.(rooted).MapFS }

// apart is a /proc whose process 1 has another root than we.
func apart(proc fs.FS) fs.FS {
	all := unseen(proc).(fstest.MapFS)
	all["1/root"] = &fstest.MapFile{Mode: fs.ModeDir}
	return all
}

// rooted is a /proc whose process 1 has our root.
type rooted struct{ fstest.MapFS }

func (r rooted) Stat(name string) (fs.FileInfo, error) {
	if name == "1/root" {
		return os.Stat("/")
	}
	return r.MapFS.Stat(name)
}

// The clock is the same in each time namespace.
func TestBootOffset(t *testing.T) {
	proc := func(own, childrens, offsets string) fstest.MapFS {
		return fstest.MapFS{
			"ns/time":              {Data: []byte(own), Mode: os.ModeSymlink},
			"ns/time_for_children": {Data: []byte(childrens), Mode: os.ModeSymlink},
			"timens_offsets":       {Data: []byte(offsets)},
		}
	}
	const shifted = "monotonic           0         0\nboottime       100000  500000000\n"
	for _, c := range []struct {
		proc fstest.MapFS
		want time.Duration
	}{
		{proc("time:[2]", "time:[2]", shifted), 100000500 * time.Millisecond},
		{proc("time:[1]", "time:[2]", shifted), 0},
		{proc("time:[1]", "time:[1]", "monotonic 0 0\nboottime 0 0\n"), 0},
		{fstest.MapFS{}, 0},
	} {
		if got := bootOffset(c.proc); got != c.want {
			t.Errorf("%v, want %v", got, c.want)
		}
	}
}

// A policer beside a queue in force is named, and one of another device is not.
func TestFilterBeside(t *testing.T) {
	s, m := newFake(t)
	s.Filtered = doctor.Filtered
	must[Outcome](t)(s.Up(plan.Goal{Rate: 50e6}, 0))
	police := host.Dropper{Dev: "eth0", Dropper: qdisc.Dropper{Parent: 0xFFFFFFF3, Filter: "matchall", Action: "police",
		Rate: 10e6, Drops: 254}}
	other := police
	other.Dev = "eth1"
	m.filters = []host.Dropper{other, police}
	status := must[Status](t)(s.Status())
	const want = "the filter matchall on eth0, at its egress, drops what exceeds 10mbit: 254 packets so far"
	if !status.InForce || len(status.Filters) != 1 || status.Filters[0] != want {
		t.Errorf("%+v", status.Filters)
	}
}

// In force is not all: when connections wait, and not here, status says so, once it has looked twice.
func TestQueueIsElsewhere(t *testing.T) {
	s, m := newFake(t)
	must[Outcome](t)(s.Up(plan.Goal{Rate: 50e6}, 0))
	m.sockets = host.Sockets{Read: true, Total: 9, Busy: 4, Queueing: 4, Rate: 20e6,
		QueueRTT: units.Duration(207 * time.Millisecond), QueueMin: units.Duration(20 * time.Millisecond)}
	if status := must[Status](t)(s.Status()); !status.InForce ||
		!strings.Contains(status.Elsewhere, "4 of 4 busy connections wait: RTT 207") {
		t.Errorf("%+v", status)
	}
	m.slept = func() { m.sockets.Queueing = 0 } // what they remembered
	if status := must[Status](t)(s.Status()); status.Elsewhere != "" {
		t.Errorf("%+v", status)
	}
	m.slept, m.sockets.Queueing = nil, 4
	l := m.named("eth0")
	l.Tree.Qdiscs[0].Stats.Backlog = 1e6 // 160 ms at 50 Mbit/s
	if status := must[Status](t)(s.Status()); status.Elsewhere != "" {
		t.Errorf("the queue is here: %+v", status)
	}
}

// What cannot be confirmed is named, with what to do instead, and stays as it was.
func TestCannotBeConfirmed(t *testing.T) {
	for name, c := range map[string]struct {
		spoil     func(s Store, m *fake)
		what, try string
	}{
		"a down that was cut short": {func(s Store, _ *fake) {
			j := must[*journal.Journal](t)(s.disk.Load())
			j.Pending.Down = true
			if err := s.disk.Save(j); err != nil {
				t.Fatal(err)
			}
		}, "the last run was weir down", "weir recover"},
		"its queue is another": {func(_ Store, m *fake) { m.f.Links[0].Tree = single(t, "fq") },
			"not confirmed, since it is not in force: eth0  root qdisc is fq, not cake", "weir up, then weir confirm"},
		"its queue is from before": {func(s Store, m *fake) {
			j := must[*journal.Journal](t)(s.disk.Load())
			slower := kernel.Queue{Stack: plan.AtRate(kernel.QueueOf(m.f.Links[0].Tree).Stack, 7e6)}
			j.Entry(journal.RootOf("eth0")).AddTemporary(slower)
			if err := s.disk.Save(j); err != nil {
				t.Fatal(err)
			}
			m.f.Links[0].Tree = single(t, slower.String())
		}, "eth0  root qdisc is cake bandwidth 7mbit", "the same again in some seconds"},
		"a file cannot be written": {func(_ Store, m *fake) { m.refuse[host.UdevFile] = errors.New("full") },
			"not confirmed: " + host.UdevFile + ": full; and it could not be taken back: full", "weir recover"},
		"what starts it is masked": {func(_ Store, m *fake) {
			m.f.Files[host.UnitFile] = host.File{Kind: host.Symlink, Text: "/dev/null"}
		}, "weir.service is masked", "systemctl unmask weir.service; or --runtime"},
	} {
		s, m := keeping(t)
		must[Outcome](t)(s.Up(plan.Goal{Rate: 50e6}, minute))
		c.spoil(s, m)
		before := maps.Clone(m.f.Files)
		var refusal *hint.Error
		if _, confirmed, err := s.Confirm(); confirmed || !errors.As(err, &refusal) ||
			!strings.Contains(refusal.What, c.what) || !strings.HasPrefix(refusal.Try, c.try) {
			t.Errorf("%s: %v, %+v", name, confirmed, refusal)
		}
		if !maps.Equal(m.f.Files, before) || len(m.armed) != 1 {
			t.Errorf("%s: files %v, timers %v", name, m.f.Files, m.armed)
		}
	}
}
