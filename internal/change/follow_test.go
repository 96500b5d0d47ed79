// SPDX-License-Identifier: Apache-2.0

package change

import (
	"cmp"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"weir/internal/follow/presence"
	"weir/internal/hint"
	"weir/internal/host"
	"weir/internal/journal"
	"weir/internal/kernel"
	"weir/internal/plan"
	"weir/internal/qdisc"
	"weir/internal/units"
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
		text := strings.Replace(kernel.QueueOf(m.f.Links[0].Tree).String(), from, to, 1)
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
	tellsAndAsks(t, s, following)
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
	now := kernel.QueueOf(m.f.Links[0].Tree).String()
	if err != nil || len(out.Done) == 0 || !strings.HasPrefix(now, "cake bandwidth 99.75mbit ") {
		t.Errorf("the rate alone makes %v, %v: %s", out.Done, err, now)
	}
	goal.Follow = plan.Auto
	if _, err := s.Up(goal, 0); err != nil {
		t.Fatal(err)
	}
	set("99.75mbit", "33mbit")
	if _, err := s.Down(Undo{}); err != nil {
		t.Fatalf("down from a rate that was followed: %v", err)
	}
	if root, _ := m.f.Links[0].Tree.Root(); root.Kind != "pfifo_fast" {
		t.Errorf("after down there is %s", root.Kind)
	}
}

// What a follower tells is seen, and the last change outlasts what is tried.
func tellsAndAsks(t *testing.T, s Store, following Follower) {
	t.Helper()
	step := &presence.Step{At: time.Unix(1e9, 0).UTC(), From: 99.75e6, To: 63e6, Why: "packets waited"}
	for _, c := range []struct{ told, want presence.Doing }{
		{presence.Doing{Tries: "something with a long name"}, presence.Doing{Tries: "something with a long name"}},
		{presence.Doing{Last: step}, presence.Doing{Last: step}},
		{presence.Doing{Tries: "more\x1b"}, presence.Doing{Tries: "more?", Last: step}},
		{presence.Doing{}, presence.Doing{Last: step}},
	} {
		following.Tell("eth0", c.told)
		got := s.Ask([]presence.Queue{{Dev: "eth0"}, {Dev: "eth1"}})
		if !reflect.DeepEqual(got[0].Doing, c.want) || !got[1].Running || got[1].Last != nil {
			t.Errorf("%+v: %+v", c.told, got)
		}
	}
}

// Where it cannot be seen whether anybody follows, that is said, and not that nobody does.
func TestFollowedUnseen(t *testing.T) {
	s, _ := newFake(t)
	must[Outcome](t)(s.Up(plan.Goal{Rate: 100e6, Follow: "20mbit..200mbit", RTT: 50e6}, 0))
	name := must[string](t)(s.followFile())
	if err := os.Symlink("elsewhere", name); err != nil {
		t.Fatal(err)
	}
	f := must[Status](t)(s.Status()).Followed[0]
	says := strings.Join(f.Says(time.Now()), " / ")
	if f.Running || !strings.HasPrefix(says, "Whether anybody follows the rate cannot be seen: ") {
		t.Errorf("%+v: %s", f, says)
	}
}

// Another user can open what everybody may read, and lock that: it keeps no follower out, and is not taken for one.
func TestFollowedByNobodyElse(t *testing.T) {
	s, _ := newFake(t)
	must[Outcome](t)(s.Up(plan.Goal{Rate: 100e6, Follow: "20mbit..200mbit", RTT: 50e6}, 0))
	defer unix.Umask(unix.Umask(0o077)) // a service's
	s.disk.Held = filepath.Join(t.TempDir(), "held")
	name := must[string](t)(s.followFile())
	hold := func() {
		t.Helper()
		f := must[*os.File](t)(os.Open(name))
		t.Cleanup(func() { f.Close() })
		// Both kinds that take no more than to read.
		if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
			t.Fatal(err)
		}
		lock := unix.Flock_t{Type: unix.F_RDLCK}
		if err := unix.FcntlFlock(f.Fd(), unix.F_OFD_SETLK, &lock); err != nil {
			t.Fatal(err)
		}
	}
	runs := func() bool {
		t.Helper()
		f := must[Status](t)(s.Status()).Followed[0]
		if f.Hidden != "" {
			t.Errorf("it cannot be seen: %s", f.Hidden)
		}
		return f.Running
	}
	// One of an older version was there before, and everybody could lock it.
	if err := os.WriteFile(name, []byte("{}"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, state := range []string{"of an older version", "of a follower that has ended"} {
		hold()
		if runs() {
			t.Errorf("whoever locks the file %s is taken for a follower", state)
		}
		following, err := s.Follow()
		if err != nil {
			t.Fatalf("with a lock of the file %s: %v", state, err)
		}
		if !runs() {
			t.Errorf("with a lock of the file %s nobody is seen to follow", state)
		}
		if info := must[os.FileInfo](t)(os.Stat(name)); info.Mode() != 0o644 {
			t.Errorf("not everybody may read it: %s", info.Mode())
		}
		if err := following.Close(); err != nil {
			t.Error(err)
		}
	}
	dir := filepath.Dir(name)
	if info := must[os.FileInfo](t)(os.Stat(dir)); dir == s.disk.Held && info.Mode().Perm() != 0o755 {
		t.Errorf("not everybody may look for it: %s", info.Mode())
	}
	if info := must[os.FileInfo](t)(os.Stat(name + ".held")); info.Mode() != 0o600 {
		t.Errorf("others than root may lock what keeps a second follower out: %s", info.Mode())
	}
}

// The commands are those of the host's init, where a service should follow.
func TestFollowStarter(t *testing.T) {
	for _, c := range []struct {
		init       string
		kept       bool
		start, ask string
	}{
		{host.Systemd, true, "systemctl start weir-follow", "systemctl status weir-follow"},
		{host.OpenRC, true, "rc-service weir-follow start", "rc-service weir-follow status"},
		{host.OpenRC, false, "weir follow", ""},
		{"", true, "weir follow", ""},
	} {
		s, m := newFake(t)
		m.kept()
		m.f.Init = c.init
		within := time.Duration(0)
		if !c.kept {
			within = time.Minute // and so it is not kept yet
		}
		must[Outcome](t)(s.Up(plan.Goal{Rate: 100e6, Follow: plan.Auto, RTT: 50e6}, within))
		if f := must[Status](t)(s.Status()).Followed[0]; f.Start != c.start || f.Ask != c.ask {
			t.Errorf("%s, kept %v: %q and %q", c.init, c.kept, f.Start, f.Ask)
		}
		first := must[Follower](t)(s.Follow())
		_, err := s.Follow()
		if try, _ := hint.Of(err); !errors.Is(err, journal.ErrBusy) || try != cmp.Or(c.ask, "weir status") {
			t.Errorf("%s: a second is told %v", c.init, err)
		}
		if err := first.Close(); err != nil { // and not before, by the garbage collector
			t.Error(err)
		}
	}
}

// A host that begins to forward has connections that the follower's service may not see: status tells, and up mends it.
func TestFollowedForwardsLater(t *testing.T) {
	s, m := newFake(t)
	m.kept()
	goal := plan.Goal{Rate: 100e6, Follow: plan.Auto, RTT: 50e6}
	must[Outcome](t)(s.Up(goal, 0))
	if st := must[Status](t)(s.Status()); !st.InForce {
		t.Fatalf("%+v", st)
	}
	m.f.Sysctls["net.ipv4.ip_forward"] = host.Sysctl{Value: "1"}
	if st := must[Status](t)(s.Status()); st.InForce || !slices.ContainsFunc(st.Drift, func(c plan.Change) bool {
		return c.Name == host.FollowFile
	}) {
		t.Errorf("%+v", st)
	}
	must[Outcome](t)(s.Up(goal, 0))
	if st := must[Status](t)(s.Status()); !st.InForce {
		t.Errorf("%+v", st)
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
	for rate, in := range map[string]bool{"85mbit": true, "97.5mbit": true, "84mbit": true, "21mbit": false,
		"99.9mbit": false} {
		set(strings.Replace(arriving, "85mbit", rate, 1))
		st := must[Status](t)(s.Status())
		if st.InForce != in || in && (len(st.Followed) != 2 || !st.Followed[1].AfterProvider ||
			st.Followed[0].AfterProvider ||
			st.Followed[1].Rate.String() != rate || st.Followed[1].Low != 21.25e6 || st.Followed[1].High != 99.75e6) {
			t.Errorf("%s: %+v", rate, st)
		}
	}
	set(strings.Replace(arriving, "85mbit", "97.5mbit", 1))
	if out := must[Outcome](t)(s.Up(goal, 0)); len(out.Done) != 0 {
		t.Errorf("the same goal again makes %v", out.Done)
	}
	must[Outcome](t)(s.Down(Undo{}))
	if now := kernel.IncomingAt(m.f, "eth0"); now.Other != kernel.NoIngress {
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
		if _, err := s.Down(Undo{}); err != nil {
			t.Fatal(err)
		}
		if unit := m.f.Files[host.FollowFile]; unit.Kind != host.NoFile {
			t.Errorf("after down there is %s", unit.Kind)
		}
	}
}

// A follower's queue is its own for as long as the goal is: the journal tells, whatever else is written into it.
func TestFollowerIsWanted(t *testing.T) {
	goal := plan.Goal{Rate: 100e6, Follow: "20mbit..200mbit", RTT: 50e6}
	for name, c := range map[string]struct {
		then func(s Store) error
		want bool
	}{
		"nothing":       {func(Store) error { return nil }, true},
		"the same goal": {func(s Store) error { _, err := s.Up(goal, time.Minute); return err }, true},
		"it is confirmed": {func(s Store) error {
			if _, err := s.Up(goal, time.Minute); err != nil {
				return err
			}
			_, _, err := s.Confirm()
			return err
		}, true},
		"the same goal, after somebody else's rate": {func(s Store) error {
			m := s.host.(*fake)
			set := kernel.QueueOf(m.f.Links[0].Tree).String()
			m.f.Links[0].Tree = single(t, strings.Replace(set, "63mbit", "10mbit", 1))
			out, err := s.Up(goal, 0)
			if err == nil && len(out.Done) == 0 {
				err = errors.New("10mbit is left")
			}
			return err
		}, false},
		"other bounds": {func(s Store) error {
			other := goal
			other.Follow = "20mbit..110mbit"
			_, err := s.Up(other, 0)
			return err
		}, false},
		"another rate": {func(s Store) error {
			_, err := s.Up(plan.Goal{Rate: 50e6, RTT: 50e6}, 0)
			return err
		}, false},
		"down": {func(s Store) error { _, err := s.Down(Undo{}); return err }, false},
		"a journal that cannot be read": {func(s Store) error {
			return os.WriteFile(s.disk.Path(), []byte("{"), 0o600)
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			s, m := newFake(t)
			must[Outcome](t)(s.Up(goal, 0))
			followed := strings.Replace(kernel.QueueOf(m.f.Links[0].Tree).String(), "99.75mbit", "63mbit", 1)
			m.f.Links[0].Tree = single(t, followed)
			all, why, err := s.Shapers()
			if err != nil || len(all) != 1 || len(why) != 0 {
				t.Fatal(all, why, err)
			}
			defer all[0].Close()
			if err := c.then(s); err != nil {
				t.Fatal(err)
			}
			if err := all[0].CheckCurrent(); (err == nil) != c.want {
				t.Errorf("%v", err)
			}
			if _, err := all[0].Steer(60e6); !c.want && err == nil {
				t.Error("it is given a rate all the same")
			}
		})
	}
}

// What stays at a follower's end holds for traffic that nobody follows.
func TestRateToLeave(t *testing.T) {
	for _, c := range []struct {
		behind          bool
		told, rate, was units.Rate
	}{
		{false, 100e6, 180e6, 180e6}, {false, 100e6, 60e6, 60e6}, {false, 100e6, 40e6, 94e6},
		{true, 100e6, 99.75e6, 94e6}, {true, 100e6, 94e6, 94e6}, {true, 100e6, 60e6, 60e6}, {true, 100e6, 40e6, 94e6},
		{true, 50e6, 80e6, 75.2e6}, // of a span of which 50 Mbit/s is the lower end
	} {
		s := Shaper{Goal: plan.Goal{Rate: c.told}, Usual: c.told * 94 / 100, AfterProvider: c.behind,
			root: qdisc.Qdisc{Spec: qdisc.Cake{Bandwidth: c.told / 3}}} // for a moment
		if got := s.rateToLeave(c.rate); got != c.was {
			t.Errorf("%+v: %s is left", c, got)
		}
	}
}

// While another run changes the host, a follower sets nothing, and nothing has failed.
func TestSteerWhileBusy(t *testing.T) {
	s, _ := newFake(t)
	must[Outcome](t)(s.Up(plan.Goal{Rate: 100e6, Follow: "20mbit..200mbit", RTT: 50e6}, 0))
	all, _, err := s.Shapers()
	if err != nil || len(all) != 1 {
		t.Fatal(all, err)
	}
	defer all[0].Close()
	unlock, err := s.disk.Lock(journal.Patience)
	if err != nil {
		t.Fatal(err)
	}
	defer unlock()
	if done, err := all[0].Steer(60e6); done || err != nil {
		t.Errorf("%v, %v", done, err)
	}
}

// Why a queue cannot be followed is said of the queue that is in its place.
func TestNotFollowed(t *testing.T) {
	goal := plan.Goal{Rate: 100e6, Follow: "20mbit..200mbit", RTT: 50e6}
	for name, c := range map[string]struct {
		spoil func(m *fake)
		want  string
	}{
		"somebody else's": {func(m *fake) { m.f.Links[0].Tree = single(t, "fq_codel") }, "its queue is not weir's"},
		"gone":            {func(m *fake) { m.f.Links = m.f.Links[1:] }, "is not there"},
	} {
		s, m := newFake(t)
		must[Outcome](t)(s.Up(goal, 0))
		c.spoil(m)
		state := must[situation](t)(s.read())
		shaper, why := state.shaper(state.journal.Goals()[0], journal.RootOf("eth0"))
		if shaper != nil || !strings.HasPrefix(why, c.want) {
			t.Errorf("%s: %+v, %q", name, shaper, why)
		}
	}
	s, _ := newFake(t)
	must[Outcome](t)(s.Up(plan.Goal{Qdisc: "fq"}, 0))
	state := must[situation](t)(s.read())
	if shaper, why := state.shaper(plan.Goal{Dev: "eth0"}, journal.RootOf("eth0")); shaper != nil ||
		why != "its queue is fq, and only the rate of a CAKE or a bpf_shaper can be followed" {
		t.Errorf("%+v, %q", shaper, why)
	}
	if shaper, why := state.shaper(plan.Goal{Dev: "eth0"}, kernel.Target{Kind: kernel.Ingress,
		Name: "eth0"}); shaper != nil || why != "" {
		t.Errorf("of what arrives: %+v, %q", shaper, why)
	}
	// One goal's queue cannot be followed, and the other's is.
	s, m := twoCards(t)
	must[Outcome](t)(s.Up(plan.Goal{Dev: "eth0", Rate: 100e6, Follow: plan.Auto, RTT: 50e6}, 0))
	must[Outcome](t)(s.Up(plan.Goal{Dev: "eth1", Rate: 50e6, Follow: plan.Auto, RTT: 50e6}, 0))
	m.named("eth0").Tree = single(t, "fq_codel")
	all, why, err := s.Shapers()
	if err != nil || len(all) != 1 || all[0].Dev != "eth1" || len(why) != 1 || why[0].Subject != "eth0" {
		t.Fatalf("%+v, %v, %v", all, why, err)
	}
	if err := all[0].Close(); err != nil {
		t.Error(err)
	}
}

// What a follower has to know of a queue: its bounds, what its goal comes to, whether the host forwards there, and
// whether the device's packets have a header.
func TestShaperKnows(t *testing.T) {
	for name, c := range map[string]struct {
		edit         func(m *fake)
		forwards     []int
		noLinkHeader bool
		taken        bool
	}{
		"a card": {func(m *fake) { m.f.Links[0].MAC = "52:54:00:12:34:56" }, nil, false, false},
		"PPP":    {func(*fake) {}, nil, true, false},
		"that forwards": {func(m *fake) { m.f.Sysctls["net.ipv4.ip_forward"] = host.Sysctl{Value: "1"} },
			[]int{2}, true, false},
		"a VLAN":         {func(m *fake) { m.f.Links[0].Kind = "vlan" }, nil, true, true},
		"of other kinds": {func(m *fake) { m.f.Links[0].Kind = "bond" }, nil, true, false},
	} {
		s, m := newFake(t)
		c.edit(m)
		must[Outcome](t)(s.Up(plan.Goal{Rate: 100e6, Follow: "20mbit..200mbit", RTT: 50e6}, 0))
		all, why, err := s.Shapers()
		if err != nil || len(all) != 1 || why != nil {
			t.Fatalf("%s: %v, %v, %v", name, all, why, err)
		}
		a := all[0]
		if a.Link != 2 || a.Low != 19.95e6 || a.High != 199.5e6 || a.Usual != 99.75e6 || a.Rate() != 99.75e6 ||
			a.AfterProvider || a.Tunnels || !slices.Equal(a.Forwards, c.forwards) || a.NoLinkHeader != c.noLinkHeader ||
			a.taken != c.taken {
			t.Errorf("%s: %+v", name, a)
		}
		if err := a.Close(); err != nil {
			t.Error(err)
		}
	}
}
