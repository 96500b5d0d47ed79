// SPDX-License-Identifier: Apache-2.0

package change

import (
	"errors"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"weir/internal/hint"
	"weir/internal/host"
	"weir/internal/journal"
	"weir/internal/kernel"
	"weir/internal/plan"
	"weir/internal/qdisc"
	"weir/internal/units"
)

const (
	alone    = "cake bandwidth 45mbit besteffort dual-dsthost rtt 500ms nat ingress"
	unpacked = alone + ", unpacked tun0 from udp/1194"
)

var relay = plan.Goal{Rate: 50e6, Role: "relay"}

// tunnel adds the device of a program that makes a tunnel.
func (m *fake) tunnel(name string, index int, ports ...string) {
	m.f.Links = append(slices.Clone(m.f.Links), host.Link{
		Index: index, Name: name, Kind: "tuntap", Up: true, MTU: 1500, TxQueues: 1, Ports: ports,
		Tree: single(m.t, "pfifo_fast"),
	})
}

// gone takes a device away, as its program does when it ends. What led there leads nowhere.
func (m *fake) gone(name string) {
	m.f.Links = slices.DeleteFunc(slices.Clone(m.f.Links), func(l host.Link) bool { return l.Name == name })
	for i, l := range m.f.Links {
		if l.Redirect == name {
			m.f.Links[i].Redirect = host.Gone
		}
	}
}

func (m *fake) named(name string) *host.Link {
	return &m.f.Links[slices.IndexFunc(m.f.Links, func(l host.Link) bool { return l.Name == name })]
}

// relaying is a machine that forwards what comes by a program's tunnel, and keeps goals over a reboot.
func relaying(t *testing.T) (Store, *fake) {
	s, m := keeping(t)
	m.f.Sysctls["net.ipv4.ip_forward"] = host.Sysctl{Value: "1"}
	m.tunnel("tun0", 4, "udp/1194")
	m.found, _ = m.facts()
	return s, m
}

// carried are counters of a relay that has passed on 10 GB by its one card.
func (m *fake) carried() {
	m.f.Links = slices.Clone(m.f.Links)
	l := m.named("eth0")
	l.RxBytes, l.TxBytes = 10e9, 10e9
	m.f.Passing = host.Passing{IPIn: 10e6, IPForwarded: 9.9e6}
	if i := slices.IndexFunc(m.f.Links, func(l host.Link) bool { return l.Name == "tun0" }); i >= 0 {
		m.f.Links[i].RxBytes, m.f.Links[i].TxBytes = 5e9, 5e9
	}
}

// nobody makes the reader one who is not root: he is not told in what packets a tunnel comes.
func (m *fake) nobody() {
	m.f.Admin, m.f.Links = false, slices.Clone(m.f.Links)
	for i := range m.f.Links {
		m.f.Links[i].Ports = nil
	}
}

func noted(notes []plan.Note, subject, text string) bool {
	return slices.ContainsFunc(notes, func(n plan.Note) bool {
		return n.Subject == subject && strings.Contains(n.Text, text)
	})
}

// left fails if anything of Weir's is on a machine, or another thing than there was.
func left(t *testing.T, s Store, now, before host.Facts) {
	t.Helper()
	if !reflect.DeepEqual(now, before) {
		t.Errorf("after down\n%+v\nbefore up\n%+v", now, before)
	}
	if files := must[[]os.DirEntry](t)(os.ReadDir(s.disk.Dir)); len(files) != 0 {
		t.Errorf("down leaves %v", files)
	}
}

func TestRelay(t *testing.T) {
	s, m := relaying(t)
	before, _ := m.facts()
	out := must[Outcome](t)(s.Up(relay, minute))
	if len(out.Failed) != 0 || out.Goal.Carries != "tunnel" || !noted(out.Notes, "role", "carrying tunnel") {
		t.Errorf("up: %+v", out)
	}
	if now := kernel.IncomingAt(m.f, "eth0").String(); now != unpacked {
		t.Fatalf("what arrives passes %s", now)
	}
	status := must[Status](t)(s.Status())
	if !status.InForce || !status.Unconfirmed || !strings.Contains(status.Owns, "also of what comes by a tunnel") {
		t.Errorf("status: %+v", status)
	}
	j := must[*journal.Journal](t)(s.disk.Load())
	if e := j.Entry(incomingAt("eth0")); e == nil || !e.Was.Meets(kernel.NoIncoming) || e.Last().String() != unpacked {
		t.Errorf("the journal says %+v", e)
	}
	if _, confirmed, err := s.Confirm(); !confirmed || err != nil {
		t.Fatalf("confirm: %v, %v", confirmed, err)
	}
	if text := m.f.Files[host.GoalFile].Text; !strings.Contains(text, "carries = 'tunnel'") {
		t.Errorf("the goal's file is\n%s", text)
	}
	status = must[Status](t)(s.Status())
	if !status.InForce || !status.Kept || status.Unconfirmed || status.Owns == "" || len(status.Drift) != 0 {
		t.Errorf("status: %+v", status)
	}
	if out := must[Outcome](t)(s.Down(Undo{})); len(out.Failed)+len(out.Left) != 0 {
		t.Errorf("down: %+v", out)
	}
	left(t, s, m.f, before)
}

// Tunnels come and go with their programs, and somebody may take a part away: that is drift, which up mends, and
// down leaves nothing in any case.
func TestTunnelDrifts(t *testing.T) {
	unleads := func(m *fake) {
		l := m.named("tun0")
		l.Redirect, l.Tree.Qdiscs = "", slices.DeleteFunc(slices.Clone(l.Tree.Qdiscs), atIngress)
	}
	for name, c := range map[string]struct {
		world func(*fake)        // what is another afterwards, whatever Weir does
		spoil func(Store, *fake) // and what only Weir minds
		dev   string             // "eth0" if empty
		want  string             // in force afterwards; as it is if empty
	}{
		"the tunnel goes": {world: func(m *fake) { m.gone("tun0") }, want: alone},
		"the tunnel comes back": {world: func(m *fake) {
			m.gone("tun0")
			m.tunnel("tun0", 24, "udp/1194")
		}, want: unpacked},
		"the tunnel comes back after up": {spoil: func(s Store, m *fake) {
			m.gone("tun0")
			if out, err := s.Up(plan.Goal{}, 0); err != nil || kernel.IncomingAt(m.f, "eth0").String() != alone {
				m.t.Errorf("up without the tunnel: %+v, %v", out, err)
			}
			m.tunnel("tun0", 4, "udp/1194")
		}, want: unpacked},
		"the program restarts at another port": {world: func(m *fake) { m.named("tun0").Ports = []string{"udp/1195"} },
			want: alone + ", unpacked tun0 from udp/1195"},
		"another tunnel": {world: func(m *fake) { m.tunnel("tun1", 24, "tcp/443") },
			want: alone + ", unpacked tun0 tun1 from tcp/443 udp/1194"},
		"the uplink is renamed": {world: func(m *fake) { m.f.Links[0].Name, m.f.Uplink = "wan0", "wan0" }, dev: "wan0"},
		"the uplink is renamed and the tunnel goes": {world: func(m *fake) {
			m.f.Links[0].Name, m.f.Uplink = "wan0", "wan0"
			m.gone("tun0")
		}, dev: "wan0", want: alone},
		"somebody deletes the device": {spoil: func(_ Store, m *fake) { m.gone(qdisc.IFB) }, want: unpacked},
		"somebody deletes the device, and the tunnel goes": {world: func(m *fake) {
			m.gone(qdisc.IFB)
			m.gone("tun0")
		}, want: alone},
		"somebody deletes what goes past": {
			spoil: func(_ Store, m *fake) { m.f.Links[0].Passes = nil },
			want:  unpacked,
		},
		"somebody frees the tunnel": {spoil: func(_ Store, m *fake) { unleads(m) }, want: unpacked},
		"somebody leads another device there": {
			world: func(m *fake) { m.tunnel("tap9", 29) },
			spoil: func(_ Store, m *fake) { m.named("tap9").Redirect, m.named("tap9").Master = qdisc.IFB, "br0" },
			want:  unpacked,
		},
	} {
		for _, end := range []string{"up", "up --boot", "down", "the timer"} {
			t.Run(name+", "+end, func(t *testing.T) {
				dev := "eth0"
				if c.dev != "" {
					dev = c.dev
				}
				change := func(m *fake) {
					m.f.Links = slices.Clone(m.f.Links)
					if c.world != nil {
						c.world(m)
					}
				}
				s, m := relaying(t)
				within := time.Duration(0)
				if end == "the timer" {
					within = minute
				}
				must[Outcome](t)(s.Up(relay, within))
				change(m)
				if c.spoil != nil {
					c.spoil(s, m)
				}
				_, other := relaying(t)
				change(other)
				if strings.HasPrefix(name, "somebody leads") {
					other.named("tap9").Master = "br0"
				}
				if end == "the timer" && name == "the tunnel comes back after up" {
					return // it was confirmed by that
				}

				m.written = nil
				status := must[Status](t)(s.Status())
				if status.Why != "" || !status.Up || status.InForce != (c.want == "") {
					t.Fatalf("status: %+v", status)
				}
				drift := slices.DeleteFunc(slices.Clone(status.Drift),
					func(c plan.Change) bool { return c.IsFile() })
				if c.want != "" && (len(status.Drift) != 1 || len(drift) != 1 || drift[0].Target != incomingAt(dev) ||
					drift[0].New.String() != c.want || drift[0].Old.String() == c.want) {
					t.Fatalf("drift: %+v", status.Drift)
				}
				if m.written != nil {
					t.Errorf("status wrote %v", m.written)
				}
				mends := func(run func() (Outcome, error)) {
					out := must[Outcome](t)(run())
					now := kernel.IncomingAt(m.f, dev).String()
					if len(out.Failed) != 0 || c.want != "" && now != c.want {
						t.Errorf("%+v, and what arrives passes %s", out, now)
					}
					if status := must[Status](t)(s.Status()); !status.InForce || status.Owns == "" {
						t.Errorf("mended: %+v", status)
					}
					if strings.Contains(m.f.Files[host.UdevFile].Text, "tun_flags") != true {
						t.Errorf("nothing looks after the tunnel any more:\n%s", m.f.Files[host.UdevFile].Text)
					}
				}
				switch end {
				case "up":
					mends(func() (Outcome, error) { return s.Up(plan.Goal{}, 0) })
				case "up --boot":
					mends(s.Boot)
				case "the timer":
					if out := must[Outcome](t)(later(s, m).Expire(nil)); len(out.Failed)+len(out.Left) != 0 {
						t.Errorf("the timer: %+v", out)
					}
				}
				if out := must[Outcome](t)(s.Down(Undo{})); len(out.Failed)+len(out.Left) != 0 {
					t.Errorf("down: %+v", out)
				}
				left(t, s, m.f, other.f)
			})
		}
	}
}

// The tunnel may be what was locked out: what was confirmed comes back without it, and with it when that is there
// again.
func TestRevertWithoutTheTunnel(t *testing.T) {
	for _, end := range []string{"the timer", "a reboot"} {
		t.Run(end, func(t *testing.T) {
			s, m := relaying(t)
			must[Outcome](t)(s.Up(relay, 0))
			must[Outcome](t)(s.Up(plan.Goal{Rate: 500e6, Role: "relay", Carries: "forward"}, minute))
			if now := kernel.IncomingAt(m.f, "eth0").String(); now != kernel.NoIngress {
				t.Fatalf("what arrives passes %s", now)
			}
			var out Outcome
			if end == "a reboot" {
				m.boot()
				m.gone("tun0")
				out = must[Outcome](t)(s.Boot())
			} else {
				m.gone("tun0")
				out = must[Outcome](t)(later(s, m).Expire(nil))
			}
			if now := kernel.IncomingAt(m.f, "eth0").String(); len(out.Failed) != 0 || now != alone {
				t.Errorf("%+v, and what arrives passes %s", out, now)
			}
			if status := must[Status](t)(s.Status()); !status.InForce || status.Unconfirmed ||
				status.Goals[0].Carries != "tunnel" {
				t.Errorf("status: %+v", status)
			}
			m.tunnel("tun0", 24, "udp/1194")
			must[Outcome](t)(s.Boot())
			if now := kernel.IncomingAt(m.f, "eth0").String(); now != unpacked {
				t.Errorf("with the tunnel what arrives passes %s", now)
			}
			must[Outcome](t)(s.Down(Undo{}))
			_, other := relaying(t)
			other.gone("tun0")
			other.tunnel("tun0", 24, "udp/1194")
			left(t, s, comparable(m.f), comparable(other.f))
		})
	}
}

// A boot comes before the tunnels. One that has just appeared is not up yet, nor has its program a socket.
func TestBootBeforeTheTunnel(t *testing.T) {
	s, m := relaying(t)
	must[Outcome](t)(s.Up(relay, 0))
	files := m.f.Files[host.UdevFile]
	m.boot()
	m.gone("tun0")
	if out := must[Outcome](t)(s.Boot()); len(out.Failed) != 0 || m.clock != 0 || m.f.Files[host.UdevFile] != files {
		t.Errorf("%+v after %v; the rules are\n%s", out, m.clock, m.f.Files[host.UdevFile].Text)
	}
	if status := must[Status](t)(s.Status()); !status.InForce || kernel.IncomingAt(m.f, "eth0").String() != alone {
		t.Errorf("before the tunnel: %+v", status)
	}
	for _, c := range []struct {
		ready time.Duration
		want  string
	}{{3 * time.Second, unpacked}, {time.Hour, kernel.NoIngress}} {
		m.gone("tun0")
		m.tunnel("tun0", 30)
		m.clock = 0
		m.slept = func() {
			if m.clock >= c.ready {
				m.named("tun0").Ports = []string{"udp/1194"}
			}
		}
		must[Outcome](t)(s.Boot())
		m.slept = nil
		if now := kernel.IncomingAt(m.f, "eth0").String(); now != c.want || m.clock > 10*time.Second {
			t.Errorf("ready after %v: after %v what arrives passes %s", c.ready, m.clock, now)
		}
	}
	must[Outcome](t)(s.Down(Undo{}))
}

// Who is not root is not told in what packets tunnels come. What is in force is in force to him, too, and nothing
// is written.
func TestRelayAndWhoIsNotRoot(t *testing.T) {
	known := func(*fake) {}
	unknown := func(m *fake) { m.named("tun0").Ports = nil }
	root := func(text string) func(*fake) {
		return func(m *fake) { m.f.Links[0].Tree = single(m.t, text) }
	}
	tunnel := plan.Goal{Rate: 50e6, Role: "relay", Carries: "tunnel"}
	both := plan.Goal{Rate: 50e6, Role: "relay", Carries: "tunnel,proxy"}
	for name, c := range map[string]struct {
		before func(*fake)
		goal   plan.Goal
		since  func(*fake)
		drifts bool
	}{
		"unpacked":                      {known, relay, known, false},
		"unpacked, with a proxy":        {known, both, known, false},
		"nobody can tell":               {unknown, relay, known, false},
		"nobody can tell, with a proxy": {unknown, both, known, false},
		"a virtual machine": {func(m *fake) {
			m.tunnel("vnet0", 9)
			m.named("vnet0").MAC = "fe:54:00:12:34:56"
		}, relay, known, false},
		"another tunnel":                   {known, relay, func(m *fake) { m.tunnel("tun1", 9) }, true},
		"no tunnel yet":                    {func(m *fake) { m.gone("tun0") }, tunnel, known, false},
		"the tunnel goes":                  {known, relay, func(m *fake) { m.gone("tun0") }, true},
		"the tunnel is freed":              {known, relay, func(m *fake) { m.named("tun0").Redirect = "" }, true},
		"the device goes":                  {known, relay, func(m *fake) { m.gone(qdisc.IFB) }, true},
		"nobody can tell, another root":    {unknown, relay, root("fq"), true},
		"nobody can tell, the device goes": {unknown, both, func(m *fake) { m.gone(qdisc.IFB) }, true},
		"nobody can tell, another rate":    {unknown, relay, root("cake bandwidth 40mbit"), true},
	} {
		t.Run(name, func(t *testing.T) {
			s, m := relaying(t)
			c.before(m)
			must[Outcome](t)(s.Up(c.goal, 0))
			asRoot := must[Status](t)(s.Status())
			if !asRoot.InForce || asRoot.Owns == "" {
				t.Fatalf("as root: %+v", asRoot)
			}
			m.f.Links = slices.Clone(m.f.Links)
			c.since(m)
			m.nobody()
			journal := must[[]byte](t)(os.ReadFile(s.disk.Path()))
			m.written = nil
			status := must[Status](t)(s.Status())
			if status.InForce == c.drifts || status.Why != "" || !c.drifts && status.Owns != asRoot.Owns {
				t.Errorf("status: %+v\nas root: %+v", status, asRoot)
			}
			if p := must[plan.Plan](t)(s.Plan(plan.Goal{})); p.Empty() == c.drifts {
				t.Errorf("plan: %+v", p.Changes)
			}
			for _, err := range []error{second(s.Up(plan.Goal{}, 0)), second(s.Down(Undo{})), second(s.Boot())} {
				if err == nil || !strings.Contains(err.Error(), "needs root") {
					t.Errorf("%v", err)
				}
			}
			if now := must[[]byte](t)(os.ReadFile(s.disk.Path())); m.written != nil || string(now) != string(journal) {
				t.Errorf("wrote %v, and the journal is %s", m.written, now)
			}
		})
	}
}

// older makes the journal and the file what a version wrote that knew no kinds of relays: it shaped what leaves, as
// a router's.
func older(t *testing.T, s Store, m *fake) {
	t.Helper()
	must[Outcome](t)(s.Up(plan.Goal{Rate: 50e6, Role: "relay", Carries: "route"}, 0))
	j := must[*journal.Journal](t)(s.disk.Load())
	j.Uplinks[0].Goal.Carries = ""
	f := m.f.Files[host.GoalFile]
	f.Text = strings.ReplaceAll(f.Text, "carries = 'route'\n", "")
	m.f.Files[host.GoalFile] = f
	j.Entry(journal.GoalFile).Set = []kernel.Value{kernel.Content{File: f}}
	if err := s.disk.Save(j); err != nil || strings.Contains(f.Text, "carries") {
		t.Fatalf("%v; the file is\n%s", err, f.Text)
	}
}

// A goal of a version that knew no kinds of relays is one for whatever the host is set up for. Status says what
// that changes, up says what it takes the host for and keeps that; a boot keeps nothing that nobody has seen, since
// the tunnels come after it.
func TestRelayOfAnOlderVersion(t *testing.T) {
	router := func(m *fake) {
		m.gone("tun0")
		m.named("eth1").Addrs = []string{"10.0.0.1/24"}
	}
	t.Run("a router stays one", func(t *testing.T) {
		s, m := relaying(t)
		router(m)
		m.found, _ = m.facts()
		older(t, s, m)
		if status := must[Status](t)(s.Status()); !status.InForce || len(status.Drift) != 0 {
			t.Errorf("status: %+v", status)
		}
		m.boot()
		must[Outcome](t)(s.Boot())
		if status := must[Status](t)(s.Status()); !status.InForce || status.Goals[0].Carries != "" {
			t.Errorf("after a boot: %+v", status)
		}
	})
	for _, end := range []string{"up", "up --boot", "down", "a reboot", "a lost journal"} {
		t.Run(end, func(t *testing.T) {
			s, m := relaying(t)
			older(t, s, m)
			status := must[Status](t)(s.Status())
			drifts := slices.ContainsFunc(status.Drift, func(c plan.Change) bool {
				return c.Target == incomingAt("eth0") && c.New.String() == unpacked
			})
			if status.InForce || status.Why != "" || !status.Up || !drifts {
				t.Fatalf("status: %+v", status)
			}
			check := func(kept plan.Kinds) {
				t.Helper()
				status := must[Status](t)(s.Status())
				j := must[*journal.Journal](t)(s.disk.Load())
				text := m.f.Files[host.GoalFile].Text
				if !status.InForce || j.Goals()[0].Carries != kept ||
					strings.Contains(text, "carries") != (kept != "") {
					t.Errorf("%+v; the journal says %q and the file\n%s", status, flags(j.Goals()), text)
				}
			}
			switch end {
			case "up":
				out := must[Outcome](t)(s.Up(plan.Goal{}, 0))
				if !noted(out.Notes, "role", "relay, carrying tunnel, as the host is set up") ||
					kernel.IncomingAt(m.f, "eth0").String() != unpacked {
					t.Errorf("up: %+v", out)
				}
				check("tunnel")
				m.gone("tun0")
				m.tunnel("tun0", 4, "udp/1194")
			case "up --boot":
				must[Outcome](t)(s.Boot())
				check("")
			case "a reboot":
				m.boot()
				m.gone("tun0")
				must[Outcome](t)(s.Boot())
				check("")
				m.tunnel("tun0", 4, "udp/1194")
				if status := must[Status](t)(s.Status()); status.InForce {
					t.Errorf("with the tunnel: %+v", status)
				}
				must[Outcome](t)(s.Boot())
				check("")
				if now := kernel.IncomingAt(m.f, "eth0").String(); now != unpacked {
					t.Errorf("with the tunnel what arrives passes %s", now)
				}
			case "a lost journal":
				m.boot()
				if err := os.Remove(s.disk.Path()); err != nil {
					t.Fatal(err)
				}
				must[Outcome](t)(s.Boot())
				if now := kernel.IncomingAt(m.f, "eth0").String(); now != unpacked {
					t.Errorf("what arrives passes %s", now)
				}
				check("")
			}
			if out := must[Outcome](t)(s.Down(Undo{})); len(out.Failed)+len(out.Left) != 0 {
				t.Errorf("down: %+v", out)
			}
			if end == "a lost journal" {
				return // and with it what these settings were
			}
			_, other := relaying(t)
			left(t, s, comparable(m.f), comparable(other.f))
		})
	}
}

// What a host is seen to carry is found out when a goal is brought up, and is then part of it.
func TestRoleAsSeen(t *testing.T) {
	rate := plan.Goal{Rate: 50e6}
	s, m := relaying(t)
	before, _ := m.facts()
	for _, err := range []error{second(s.Up(rate, 0)), second(s.Plan(rate))} {
		var refusal *hint.Error
		if !errors.As(err, &refusal) || !strings.Contains(refusal.What, "has a tunnel (tunnel)") ||
			!strings.Contains(refusal.Try, "--role relay") {
			t.Errorf("a tunnel without traffic: %+v", err)
		}
	}
	left(t, s, m.f, before)

	m.carried()
	p := must[plan.Plan](t)(s.Plan(rate))
	if p.Goals[0].Role != "relay" || p.Goals[0].Carries != "tunnel" ||
		!noted(p.Considered, "role", "looks like a one-card relay") {
		t.Errorf("plan: %+v", p)
	}
	out := must[Outcome](t)(s.Up(rate, 0))
	if out.Goal != p.Goals[0] || !noted(out.Notes, "role", "looks like a one-card relay") ||
		kernel.IncomingAt(m.f, "eth0").String() != unpacked {
		t.Errorf("up: %+v", out)
	}
	inForce := func(how string) {
		t.Helper()
		status := must[Status](t)(s.Status())
		if !status.InForce || status.Goals[0] != out.Goal {
			t.Errorf("%s: %+v", how, status)
		}
		if again := must[Outcome](t)(s.Up(plan.Goal{}, 0)); len(again.Done)+len(again.Failed) != 0 ||
			again.Goal != out.Goal || noted(again.Notes, "role", "") {
			t.Errorf("%s: up again: %+v", how, again)
		}
	}
	inForce("at once")
	m.named("eth0").TxBytes, m.f.Passing = 900e9, host.Passing{IPIn: 10e6, TCPIn: 10e6, TCPOut: 10e6}
	inForce("when it serves")
	m.named("eth0").RxBytes, m.named("eth0").TxBytes, m.f.Passing = 0, 0, host.Passing{}
	inForce("after a boot")
	m.sockets = host.Sockets{Total: 23, RTT: units.Duration(31 * time.Millisecond)}
	inForce("with other clients")
}

// A relay's goal goes by another that does not say what it carries only if somebody wants that.
func TestRelayIsNotGivenUpByMistake(t *testing.T) {
	tunnel := plan.Goal{Rate: 50e6, Role: "relay", Carries: "tunnel"}
	wireguard := plan.Goal{Rate: 50e6, Role: "relay", Carries: "wireguard"}
	faster := plan.Goal{Rate: 50e6, Ingress: 100e6, Role: "relay", Carries: "tunnel", NAT: true}
	for _, c := range []struct {
		name          string
		first, second plan.Goal
		seen          bool   // the traffic shows a relay
		what, try     string // no refusal when empty
		note          string
	}{
		{"a rate alone", tunnel, plan.Goal{Rate: 40e6}, false, "it does not say --role relay --carries tunnel",
			"weir up --rate 40mbit --role relay --carries tunnel, or weir down first", ""},
		{"and it is told what comes in", faster, plan.Goal{Rate: 40e6}, false,
			"it does not say --role relay --carries tunnel",
			"weir up --rate 40mbit --role relay --carries tunnel --nat, or weir down first", ""},
		{"a rate alone, and traffic", tunnel, plan.Goal{Rate: 40e6}, true, "", "", "looks like a one-card relay"},
		{"no rate", tunnel, plan.Goal{RTT: 4e7}, false, "it does not say --rate 50mbit --role relay --carries tunnel",
			"weir up --rate 50mbit --rtt 40ms --role relay --carries tunnel, or weir down first", ""},
		{"the role alone, while the tunnel is not there", tunnel, plan.Goal{Rate: 40e6, Role: "relay"}, false,
			"it does not say --role relay --carries tunnel",
			"weir up --rate 40mbit --role relay --carries tunnel, or weir down first", ""},
		{"another kind, as asked", tunnel, plan.Goal{Rate: 40e6, Role: "relay", Carries: "forward"}, false, "", "", ""},
		{"a server, as asked", tunnel, plan.Goal{Rate: 40e6, Role: "server"}, false, "", "", ""},
		{"a recipe", tunnel, plan.Goal{Recipe: "server-cake", Rate: 40e6}, false,
			"it does not say --role relay --carries tunnel", "weir down first", ""},
		{"with nothing for what arrives", wireguard, plan.Goal{Rate: 40e6}, false, "", "",
			"To stay one: --role relay --carries wireguard"},
		{"a server over a server", plan.Goal{Rate: 50e6}, plan.Goal{Rate: 40e6}, false, "", "", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, m := relaying(t)
			m.gone("tun0")
			if c.seen {
				m.tunnel("tun0", 4, "udp/1194")
			}
			must[Outcome](t)(s.Up(c.first, 0))
			if c.seen {
				m.carried()
			}
			before, _ := m.facts()
			p, errPlan := s.Plan(c.second)
			out, errUp := s.Up(c.second, 0)
			if c.what == "" {
				if errPlan != nil || errUp != nil {
					t.Fatalf("%v, %v", errPlan, errUp)
				}
				if c.note == "" && (noted(p.Considered, "role", "To stay") || noted(out.Notes, "role",
					"To stay")) {
					t.Errorf("notes: %+v", out.Notes)
				}
				if !noted(p.Considered, "role", c.note) && c.note != "" || !noted(out.Notes, "role",
					c.note) && c.note != "" {
					t.Errorf("notes: %+v", out.Notes)
				}
				if status := must[Status](t)(s.Status()); !status.InForce {
					t.Errorf("status: %+v", status)
				}
				return
			}
			for _, err := range []error{errPlan, errUp} {
				var refusal *hint.Error
				if !errors.As(err, &refusal) || !strings.HasSuffix(refusal.What,
					c.what+", which the one in force does") || refusal.Try != c.try {
					t.Errorf("%+v", err)
				}
			}
			if after, _ := m.facts(); !reflect.DeepEqual(after, before) {
				t.Errorf("refused, and\n%+v\nwas\n%+v", after, before)
			}
			// The goal in force is no refusal to itself.
			if status := must[Status](t)(s.Status()); !status.InForce {
				t.Errorf("status: %+v", status)
			}
		})
	}
}

// The goal in force loses its queue for what arrives when nobody can tell any more in what packets the tunnel
// comes: no mistake of anybody's.
func TestTunnelCannotBeToldAnyMore(t *testing.T) {
	s, m := relaying(t)
	before, _ := m.facts()
	must[Outcome](t)(s.Up(relay, 0))
	m.named("tun0").Ports, before.Links[2].Ports = nil, nil
	status := must[Status](t)(s.Status())
	if status.InForce || status.Why != "" || len(status.Drift) != 2 {
		t.Errorf("status: %+v", status)
	}
	must[Outcome](t)(s.Up(plan.Goal{}, 0))
	if status := must[Status](t)(s.Status()); !status.InForce ||
		kernel.IncomingAt(m.f, "eth0").String() != kernel.NoIngress {
		t.Errorf("status: %+v", status)
	}
	must[Outcome](t)(s.Down(Undo{}))
	left(t, s, m.f, before)
}

// What comes out of a tunnel leads to a device that is gone, and no journal knows why: that is not how the host was
// found.
func TestTunnelLeadsNowhere(t *testing.T) {
	s, m := relaying(t)
	before, _ := m.facts()
	m.named("tun0").Redirect = host.Gone
	must[Outcome](t)(s.Up(relay, 0))
	if status := must[Status](t)(s.Status()); !status.InForce || kernel.IncomingAt(m.f, "eth0").String() != unpacked {
		t.Errorf("status: %+v", status)
	}
	must[Outcome](t)(s.Down(Undo{}))
	left(t, s, m.f, before)
}

// A relay was not told --ingress, and is not told to leave it out.
func TestRelayIngressFails(t *testing.T) {
	s, m := relaying(t)
	before, _ := m.facts()
	m.refuse["ingress "+alone] = errors.New("no such module")
	_, err := s.Up(relay, minute)
	var refusal *hint.Error
	if !errors.As(err, &refusal) || !strings.Contains(refusal.Try, "--role relay --carries forward") ||
		strings.Contains(refusal.Try, "--ingress") {
		t.Errorf("up: %+v", err)
	}
	clear(m.refuse)
	left(t, s, m.f, before)
}
