// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"maps"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"weir/internal/hint"
	"weir/internal/host"
	"weir/internal/kernel"
	"weir/internal/qdisc"
)

func keeping(t *testing.T) host.Facts {
	return with(t, func(f *host.Facts) {
		f.Init, f.Udev, f.Files = host.Systemd, true, map[string]host.File{}
		f.Program = host.Program{Path: "/usr/local/bin/weir", RootOnly: true}
		for i := range f.Links {
			if f.Links[i].Name == "eth0" {
				f.Links[i].MAC = "52:54:00:12:34:56"
			}
		}
	})
}

func files(p Plan) map[string]host.File {
	found := map[string]host.File{}
	for _, c := range p.Changes {
		if content, ok := c.New.(kernel.Content); ok {
			found[c.Name] = content.File
		}
	}
	return found
}

func TestKeep(t *testing.T) {
	p, err := planFor(Goal{Rate: 50e6, RTT: ms(48)}, keeping(t))
	if err != nil {
		t.Fatal(err)
	}
	got := files(p)
	for name, lines := range map[string][]string{
		host.GoalFile: {"dev = 'eth0'", "rate = '50mbit'", "rtt = '48ms'"},
		host.UnitFile: {"ExecStart=/usr/local/bin/weir up --boot", "WantedBy=multi-user.target"},
		host.UdevFile: {`KERNEL=="eth0", ENV{.WEIR}="1"`, `ATTR{address}=="52:54:00:12:34:56", ENV{.WEIR}="1"`,
			`ENV{.WEIR}=="1", RUN+="/usr/bin/systemctl --no-block restart weir.service"`},
		host.SysctlFile: {"net.ipv4.tcp_notsent_lowat = 131072"},
	} {
		f, ok := got[name]
		if !ok || f.Kind != host.Regular || f.Mode != 0o644 || f.UID != 0 {
			t.Errorf("%s: %+v", name, f)
		}
		if !strings.HasPrefix(f.Text, "# ") || !strings.Contains(f.Text, "weir down") {
			t.Errorf("%s does not say how to be rid of it:\n%s", name, f.Text)
		}
		for _, line := range lines {
			if !strings.Contains(f.Text, line+"\n") {
				t.Errorf("%s lacks %q:\n%s", name, line, f.Text)
			}
		}
	}
	if link := got[host.UnitLink]; link.Kind != host.Symlink || link.Text != host.UnitFile {
		t.Errorf("%+v", link)
	}
	for name := range got {
		if strings.HasPrefix(name, "/etc/systemd/network/") {
			t.Errorf("%s: networkd gives a link up whose queue the kernel does not have", name)
		}
	}
	// What looks after the rest is written first.
	var order []string
	for _, c := range p.Changes {
		if c.Kind == kernel.File {
			order = append(order, c.Name)
		}
	}
	if !reflect.DeepEqual(order[:2], []string{host.UnitFile, host.UnitLink}) {
		t.Errorf("%v", order)
	}
	if _, err := ParseGoals(got[host.GoalFile].Text); err != nil {
		t.Error(err)
	}
}

// Where OpenRC starts the services its script is written, or the package's is used, or somebody else's is left.
func TestKeepUnderOpenRC(t *testing.T) {
	const file, link = "/etc/init.d/weir", "/etc/runlevels/default/weir"
	for name, c := range map[string]struct {
		there     host.File
		program   string
		want      string // the program of the script that is written; "" for none
		following bool
	}{
		"the program alone": {host.File{}, "", "/usr/local/bin/weir", false},
		"it follows":        {host.File{}, "", "/usr/local/bin/weir", true},
		"a package":         {script(bootScript("/usr/bin/weir")), "/usr/bin/weir", "", false},
		"an older one":      {script(bootScript("/opt/weir") + "# old\n"), "/opt/weir", "/opt/weir", false},
	} {
		f := keeping(t)
		f.Init, f.UnitProgram = host.OpenRC, c.program
		f.Files[file] = c.there
		g := Goal{Rate: 50e6}
		if c.following {
			g.Follow = "20mbit..100mbit"
		}
		p, err := planFor(g, f)
		if err != nil {
			t.Fatal(err)
		}
		got := files(p)
		if l := got[link]; l.Kind != host.Symlink || l.Text != file {
			t.Errorf("%s: %+v", name, l)
		}
		if s, written := got[file]; written != (c.want != "") || written && s != script(bootScript(c.want)) {
			t.Errorf("%s: %+v", name, s)
		}
		if s := got[file+"-follow"]; c.following != (s == script(followScript(c.want))) {
			t.Errorf("%s: %+v", name, s)
		}
		for path := range got {
			if strings.Contains(path, "systemd") || strings.Contains(path, "udev") {
				t.Errorf("%s: %s is written", name, path)
			}
		}
		if !host.IsOurs(script(bootScript("/usr/bin/weir"))) || host.IsOurs(script(host.ScriptLine)) {
			t.Error("a script is not known")
		}
	}
}

// Two devices: a goal for each, and the host's settings from both.
func TestTwoGoals(t *testing.T) {
	f := keeping(t)
	eth9 := f.Links[slices.IndexFunc(f.Links, func(l host.Link) bool { return l.Name == "eth0" })]
	eth9.Index, eth9.Name, eth9.MAC = 33, "eth9", "52:54:00:00:00:33"
	f.Links = append(f.Links, eth9)
	near, far := Goal{Dev: "eth0", Rate: 500e6, RTT: ms(10)}, Goal{Dev: "eth9", Rate: 500e6, RTT: ms(100)}
	p, err := Make([]Goal{near, far}, f)
	if err != nil {
		t.Fatal(err)
	}
	alone, err := planFor(far, f)
	if err != nil {
		t.Fatal(err)
	}
	value := func(p Plan, t kernel.Target) (values []string) {
		for _, c := range p.Changes {
			if c.Target == t {
				values = append(values, c.New.String())
			}
		}
		return values
	}
	for _, target := range []kernel.Target{{Kind: kernel.Sysctl, Name: tcpWmem},
		{Kind: kernel.Sysctl, Name: notsentLowat}, {Kind: kernel.Root, Name: "eth9"}} {
		if got, want := value(p, target), value(alone, target); len(got) != 1 || !slices.Equal(got, want) {
			t.Errorf("%v: %q, and for the larger alone %q", target, got, want)
		}
	}
	got := files(p)
	if goals, err := ParseGoals(got[host.GoalFile].Text); err != nil || !slices.Equal(goals, []Goal{near, far}) {
		t.Errorf("%v, %v", goals, err)
	}
	asIs := f // one that finds all as it wants it is kept like the other
	asIs.Sysctls = maps.Clone(f.Sysctls)
	asIs.Sysctls[notsentLowat] = host.Sysctl{Value: "131072"}
	idle := Goal{Dev: "eth9", Qdisc: "fq_codel"}
	p, err = Make([]Goal{near, idle}, asIs)
	if err != nil {
		t.Fatal(err)
	}
	if goals, err := ParseGoals(files(p)[host.GoalFile].Text); err != nil || !slices.Equal(goals, []Goal{near, idle}) {
		t.Errorf("%v, %v", goals, err)
	}
	for _, line := range []string{`KERNEL=="eth0"`, `KERNEL=="eth9"`, eth9.MAC} {
		if !strings.Contains(got[host.UdevFile].Text, line) {
			t.Errorf("the rules lack %s", line)
		}
	}
	if n := strings.Count(got[host.SysctlFile].Text, tcpWmem); n != 1 {
		t.Errorf("%d lines for %s", n, tcpWmem)
	}

	lossy := Goal{Dev: "eth9", Rate: 50e6, Loss: 0.05}
	for _, other := range []Goal{{Dev: "eth0", Rate: 50e6, CC: "keep"}, {Dev: "eth0", Rate: 50e6, CC: "cubic"}} {
		_, err = Make([]Goal{other, lossy}, f)
		if err == nil || !strings.Contains(err.Error(), "eth0") || !strings.Contains(err.Error(), "eth9") ||
			!strings.Contains(err.Error(), "bbr") {
			t.Errorf("%v: %v", other, err)
		}
	}
	if _, err := Make([]Goal{near, lossy}, f); err != nil {
		t.Error(err)
	}
	in := Goal{Dev: "eth9", Rate: 50e6, Ingress: 50e6}
	p, err = Make([]Goal{{Dev: "eth0", Rate: 50e6, Ingress: 20e6}, in}, f)
	if err != nil {
		t.Fatal(err)
	}
	for dev, rate := range map[string]string{"eth0": "17mbit", "eth9": "42.5mbit"} {
		if got := value(p, kernel.Target{Kind: kernel.Ingress, Name: dev}); len(got) != 1 || !strings.Contains(got[0],
			rate) {
			t.Errorf("what arrives at %s: %q", dev, got)
		}
	}
	if _, err := Make([]Goal{{Rate: 50e6}, {Dev: "eth0"}}, f); err == nil {
		t.Error("two goals for one device")
	}
}

// What comes out of a tunnel passes one queue.
func TestUnpackedOnce(t *testing.T) {
	arriving := func(dev string, tunnels ...string) Change {
		return Change{Target: kernel.Target{Kind: kernel.Ingress, Name: dev},
			New: kernel.Incoming{Arriving: qdisc.Arriving{Tunnels: tunnels}}}
	}
	before := []Change{arriving("eth0", "wg0", "wg1")}
	if err := checkUnpackedOnce(before, arriving("eth9", "wg2")); err != nil {
		t.Error(err)
	}
	if err := checkUnpackedOnce(before, arriving("eth9", "wg1")); err == nil ||
		!strings.Contains(err.Error(), "wg1 can pass one queue only, and is to pass that of eth0 and that of eth9") {
		t.Error(err)
	}
}

func TestKeepsNothing(t *testing.T) {
	for name, c := range map[string]struct {
		goal Goal
		edit func(*host.Facts)
		note string // in what was considered
	}{
		"asked not to": {Goal{Rate: 50e6, Runtime: true}, func(*host.Facts) {}, ""},
		"a namespace":  {Goal{Rate: 50e6}, func(f *host.Facts) { f.Files = nil }, "ends with it"},
		"nobody can tell which": {Goal{Rate: 50e6}, func(f *host.Facts) { f.Files, f.Hidden = nil, true },
			"which network namespace process 1 is in cannot be read"},
		"a journal elsewhere": {Goal{Rate: 50e6}, func(f *host.Facts) { f.Files = nil },
			"a network namespace of its own"},
		"no init": {Goal{Rate: 50e6}, func(f *host.Facts) { f.Init = "" }, "weir up --boot"},
		"nothing to keep": {Goal{CC: "keep"}, func(
			f *host.Facts) {
			f.Sysctls[notsentLowat] = host.Sysctl{Value: "131072"}
		}, ""},
	} {
		f := keeping(t)
		c.edit(&f)
		p, err := planFor(c.goal, f)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if got := files(p); len(got) != 0 {
			t.Errorf("%s: %v", name, got)
		}
		said := ""
		for _, n := range p.Considered {
			said += n.Text + "\n"
		}
		if !strings.Contains(said, c.note) {
			t.Errorf("%s: %s", name, said)
		}
	}
}

// What cannot be written into a unit or a rule without meaning something else, or would let others than root say what
// root runs.
func TestUnkept(t *testing.T) {
	program := func(path string) func(*host.Facts) {
		return func(f *host.Facts) { f.Program.Path = path }
	}
	inTheWay := func(name string) func(*host.Facts) {
		return func(f *host.Facts) { f.Files[name] = host.File{Kind: host.Other} }
	}
	for name, edit := range map[string]func(*host.Facts){
		"the goal's a directory": inTheWay(host.GoalFile),
		"the settings' one":      inTheWay(host.SysctlFile),
		"/tmp":                   program("/tmp/weir"),
		"a space":                program("/home/a b/weir"),
		"specifiers":             program("/home/%h/weir"),
		"others can write there": func(f *host.Facts) { f.Program.RootOnly = false },
		"a pattern":              func(f *host.Facts) { f.Links[1].Name, f.Uplink = `e*"`, `e*"` },
	} {
		f := keeping(t)
		edit(&f)
		p, err := planFor(Goal{Rate: 50e6}, f) // a plan can be looked at from everywhere
		if err != nil || p.NotPersistent == nil ||
			!strings.Contains(p.CheckPersistent().(*hint.Error).Try, "; or --runtime") {
			t.Errorf("%s: %+v, %v", name, p.NotPersistent, err)
		}
		if p, err := planFor(Goal{Rate: 50e6, Runtime: true}, f); err != nil || p.NotPersistent != nil {
			t.Errorf("%s with --runtime: %v, %v", name, p.NotPersistent, err)
		}
		// A unit that is there and starts a weir is good enough, whichever weir looks.
		f.Files[host.UnitFile], f.UnitProgram = regular(Unit("/usr/local/bin/weir")), "/usr/local/bin/weir"
		aboutProgram := f.Program != keeping(t).Program
		if p, _ := planFor(Goal{Rate: 50e6}, f); aboutProgram && p.NotPersistent != nil {
			t.Errorf("%s, and a unit: %v", name, p.NotPersistent)
		}
	}
}

// Whoever has masked the unit, which an empty file does, too, is not told that a boot starts it.
func TestMasked(t *testing.T) {
	for _, unit := range []host.File{regular(Unit("/usr/bin/weir")), {Kind: host.NoFile}} { // the package's
		f := keeping(t)
		f.Files[host.PackageUnit] = unit
		for _, mask := range []host.File{{Kind: host.Symlink, Text: "/dev/null"}, regular("")} {
			f.Files[host.UnitFile] = mask
			if p, err := planFor(Goal{Rate: 50e6}, f); err != nil || p.NotPersistent == nil ||
				!strings.Contains(p.NotPersistent.Try, "systemctl unmask weir.service") {
				t.Errorf("%s, %s: %+v, %v", unit.Kind, mask.Kind, p.NotPersistent, err)
			}
			if p, err := planFor(Goal{Rate: 50e6, Runtime: true}, f); err != nil || p.NotPersistent != nil {
				t.Errorf("%s, %s, with --runtime: %+v, %v", unit.Kind, mask.Kind, p.NotPersistent, err)
			}
		}
		f.Files[host.UnitFile] = host.File{Kind: host.NoFile}
		if p, err := planFor(Goal{Rate: 50e6}, f); err != nil || p.NotPersistent != nil {
			t.Errorf("%s, not masked: %+v, %v", unit.Kind, p.NotPersistent, err)
		}
	}
}

// The package's unit is the one that is written where there is no package.
func TestPackagedUnit(t *testing.T) {
	text, err := os.ReadFile("../../packaging/weir.service")
	if err != nil {
		t.Fatal(err)
	}
	if string(text) != Unit("/usr/bin/weir") {
		t.Errorf("packaging/weir.service is to be\n%s", Unit("/usr/bin/weir"))
	}
	for name, want := range map[string]string{"weir": bootScript("/usr/bin/weir"),
		"weir-follow": followScript("/usr/bin/weir")} {
		if text, err := os.ReadFile("../../packaging/openrc/" + name); err != nil || string(text) != want {
			t.Errorf("packaging/openrc/%s is to be\n%s (%v)", name, want, err)
		}
	}
}

// The follower may see packets where the host forwards, and nowhere else.
func TestFollowUnit(t *testing.T) {
	for _, c := range []struct {
		line, more string
	}{{"CapabilityBoundingSet=", " CAP_NET_RAW"}, {"RestrictAddressFamilies=", " AF_PACKET"}} {
		for text, may := range map[string]bool{followUnit("/usr/bin/weir", true): true,
			followUnit("/usr/bin/weir", false): false, Unit("/usr/bin/weir"): false} {
			found := false
			for line := range strings.Lines(text) {
				if strings.HasPrefix(line, c.line) {
					found = true
					if strings.HasSuffix(line, c.more+"\n") != may {
						t.Errorf("%q, and it may: %v", line, may)
					}
				}
			}
			if !found {
				t.Errorf("no %s in\n%s", c.line, text)
			}
		}
	}
}

// A person's own words are left, as long as they say the same.
func TestSays(t *testing.T) {
	g := Goal{Dev: "eth0", Rate: 50e6, RTT: ms(50)}
	for text, want := range map[string]bool{
		goalFile([]Goal{g}): true, goalFile([]Goal{g, {Dev: "eth1"}}): false, "# mine\nrate = \"50mbit\"\n": true,
		"rate = \"50mbit\"\nrtt = \"50ms\"": true, "rate = \"50mbit\"\nrtt = \"60ms\"": false,
		"rate = \"50mbit\"\ndev = \"eth1\"": false, "rate = \"60mbit\"": false, "": false, "# nothing\n": false,
		"garbage": false,
	} {
		if Says(regular(text), g) != want {
			t.Errorf("%q: %v", text, !want)
		}
	}
}

func TestParseGoals(t *testing.T) {
	whole := Goal{Dev: "eth0", Rate: 50e6, RTT: ms(48), Loss: 0.1, Role: "relay", NAT: true, FairTo: "src",
		Prefer: "latency", CC: "keep"}
	lan := Goal{Dev: "br-lan.7", Rate: 1e9}
	for _, goals := range [][]Goal{
		{whole}, {{Rate: 1e9}}, {{Recipe: "lossy-bbr"}}, {{Qdisc: "htb rate 49mbit | fq_codel"}}, nil, {lan, whole},
		{{Dev: "rate", Rate: 1e9}, {Dev: "x"}},
	} {
		text := ""
		if goals != nil {
			text = goalFile(goals)
		}
		if again, err := ParseGoals(text); err != nil || !slices.Equal(again, goals) {
			t.Errorf("%+v is read as %+v, %v", goals, again, err)
		}
	}
	for text, want := range map[string]string{
		"rate = \"50mbit\"\nspeed = 1\n": `/etc/weir.toml:2: unknown key "speed"`,
		"rate = 50":                      "/etc/weir.toml:1: ",
		"\nrate = \"50\"":                `/etc/weir.toml:2: `,
		"rate = ":                        "/etc/weir.toml:1: ",
		"# the rate\n\nrtt = 50\n":       "/etc/weir.toml:3: rtt = 50 has no unit",
		"role = \"router\"":              `/etc/weir.toml: --role "router" is not known`,
		"[eth0]\n[eth1]\nrole = \"x\"":   `/etc/weir.toml: eth1: --role "x" is not known`,
		"[eth0]\nrate = 7":               "/etc/weir.toml:2: rate = 7 has no unit",
		"[eth0]\n[eth1]\nspeed = 7":      `/etc/weir.toml:3: unknown key "eth1.speed"`,
		"rate = \"1mbit\"\n[eth1]":       "/etc/weir.toml:1: rate stands outside",
		"[eth1]\n\ndev = \"eth0\"":       "/etc/weir.toml:3: the table of eth1 is about eth0",
		// What TOML takes to be something else is named as it is written, with the words that would do.
		"\ndev = 5":                           "/etc/weir.toml:2: dev = 5: write it in quotes",
		"[eth0]\nOverhead = 38":               "/etc/weir.toml:2: Overhead = 38: write it in quotes",
		"carries = [\"proxy\"]":               "/etc/weir.toml:1: carries = [proxy]: write it in quotes",
		"nat = \"yes\"":                       "/etc/weir.toml:1: nat = yes: write true or false, without quotes",
		"rate = 1979-05-27":                   "/etc/weir.toml:1: rate = 1979-05-27 has no unit",
		"[rate]\n[x]\nrole = 1":               "/etc/weir.toml:3: role = 1: write it in quotes",
		"rate = \"auto\"":                     `/etc/weir.toml:1: rate = "auto": write follow = "auto" instead`,
		"rate = \"1mbit..2mbit\"":             `/etc/weir.toml:1: rate = "1mbit..2mbit": write rate = "1mbit" and `,
		"rate = \"5mbit\"\nfollow = \"fast\"": `/etc/weir.toml:2: follow: "fast" is not a span: write it like`,
		"runtime = true":                      `/etc/weir.toml:1: unknown key "runtime"`,
		"rate = \"1mbit\"\none-cake = \"\"":   `/etc/weir.toml:2: unknown key "one-cake": here it is one_cake`,
		"client = \"10.8.0.7\"":               `/etc/weir.toml:1: "10.8.0.7" is no client: write it like`,
		"client = \"10.8.0.7=5mbit\"":         `/etc/weir.toml: clients share a rate, and none is given`,
		"[eth0]\nfair-to = \"src\"":           `/etc/weir.toml:2: unknown key "eth0.fair-to": here it is fair_to`,
	} {
		if _, err := ParseGoals(text); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
}

func FuzzParseGoals(f *testing.F) {
	f.Add(goalFile([]Goal{{Rate: 50e6, Loss: 0.1}}))
	f.Add(goalFile([]Goal{{Dev: "eth0", Rate: 50e6}, {Dev: "eth1"}}))
	f.Add("rate = \"1gbit\"\nclient = \"10.8.0.7=5mbit/weight:2,fd00::/48=weight:3\"\nclient_default = \"9mbit\"")
	f.Add("rate = 1")
	f.Fuzz(func(t *testing.T, text string) {
		if g, err := ParseGoals(text); err == nil && g != nil {
			if again, err := ParseGoals(goalFile(g)); err != nil || !slices.Equal(again, g) {
				t.Errorf("%+v is read as %+v, %v", g, again, err)
			}
		}
	})
}

// The rules are those of a goal, and not of the tunnels that are up: a boot may come before all of them.
func TestRulesForTunnels(t *testing.T) {
	const tun, wg = `ATTR{tun_flags}=="?*", ENV{.WEIR}=`, `ENV{DEVTYPE}=="wireguard", ENV{.WEIR}=`
	for carries, lines := range map[Kinds][]string{"": nil, "forward": nil, "tunnel": {tun}, "wireguard": {wg},
		"wireguard,tunnel": {wg, tun}} {
		g := Goal{Rate: 50e6, Carries: carries}
		if carries != "" {
			g.Role = "relay"
		}
		before, after := keeping(t), keeping(t)
		tunnel("tun7", "tuntap", "udp/1194")(&after)
		first, err := planFor(g, before)
		if err != nil {
			t.Fatal(err)
		}
		second, err := planFor(g, after)
		if err != nil {
			t.Fatal(err)
		}
		text := files(first)[host.UdevFile].Text
		if text == "" || text != files(second)[host.UdevFile].Text {
			t.Errorf("%q: without a tunnel\n%s\nwith one\n%s", carries, text, files(second)[host.UdevFile].Text)
		}
		if n := strings.Count(text, "tun_flags") + strings.Count(text, "DEVTYPE"); n != len(lines) {
			t.Errorf("%q: %d rules for tunnels:\n%s", carries, n, text)
		}
		for _, line := range lines {
			if !strings.Contains(text, line) {
				t.Errorf("%q lacks %s:\n%s", carries, line, text)
			}
		}
	}
}

// A file that leaves open what a relay carries stays as a person wrote it.
func TestSaysWithoutCarries(t *testing.T) {
	goal := Goal{Dev: "eth0", Rate: 50e6, Role: "relay", Carries: "tunnel"}
	for text, says := range map[string]bool{
		"rate = '50mbit'\nrole = 'relay'":                        true,
		"rate = '50mbit'\nrole = 'relay'\ncarries = 'tunnel'":    true,
		"rate = '50mbit'\nrole = 'relay'\ncarries = 'wireguard'": false,
		"rate = '50mbit'":                  false,
		"rate = '50mbit'\nrole = 'server'": false,
	} {
		if Says(regular(text), goal) != says {
			t.Errorf("%q: %v", text, !says)
		}
	}
}

// Neither a goal until the next boot, nor one for a single thing, is kept in files.
func TestLasting(t *testing.T) {
	for goal, lasts := range map[Goal]bool{
		{Dev: "eth0"}:                            true,
		{Dev: "eth0", Runtime: true}:             false,
		{Dev: "eth0", Only: true}:                false,
		{Dev: "eth0", Runtime: true, Only: true}: false,
	} {
		if got := len(Lasting([]Goal{goal})) == 1; got != lasts {
			t.Errorf("%+v: %v", goal, got)
		}
	}
}

// What a package brings is known for a package's: scripts of OpenRC that start its program, and no others.
func TestPackaged(t *testing.T) {
	for text, want := range map[string]bool{
		bootScript("/usr/bin/weir"): true, followScript("/usr/bin/weir"): true,
		bootScript("/usr/local/bin/weir"): false,
		followScript("/opt/weir"):         false, Unit("/usr/bin/weir"): false, "": false,
	} {
		if got := Packaged(script(text)); got != want {
			t.Errorf("%q: %v", text, got)
		}
	}
}

// A rate is left open in a file that can be read, and says so.
func TestLeavesRate(t *testing.T) {
	for text, want := range map[string]bool{
		"follow = 'auto'": true, "rate = '5mbit'\nfollow = 'auto'": false, "rate = '5mbit'": false, "": false,
		"[eth0]\nrate = '5mbit'\n[eth1]\nfollow = 'auto'": true, "follow = 'auto'\nspeed = 1": false,
	} {
		if got := LeavesRate(regular(text)); got != want {
			t.Errorf("%q: %v", text, got)
		}
		if LeavesRate(host.File{Kind: host.Symlink, Text: text}) {
			t.Errorf("%q: a link's own text was read", text)
		}
	}
}

// A goal names its device, and of several each table does.
func TestGoalFileText(t *testing.T) {
	one, two := Goal{Dev: "eth0", Rate: 5e6}, Goal{Dev: "eth1", Rate: 6e6}
	for want, goals := range map[string][]Goal{
		"dev = 'eth0'; rate = '5mbit'":                   {one},
		"[eth0]; rate = '5mbit'; [eth1]; rate = '6mbit'": {one, two},
	} {
		f := GoalFile(goals)
		if f != regular(f.Text) || settings(f.Text) != want || !strings.HasPrefix(f.Text, host.GoalLine) {
			t.Errorf("%+v, want %s", f, want)
		}
	}
	if goals, err := ParseGoals("\ufeffrate = '5mbit'"); err != nil || len(goals) != 1 || goals[0].Rate != 5e6 {
		t.Errorf("with a byte order mark: %+v, %v", goals, err)
	}
}

// A key is found in its own table, also where that or the key stands in quotes; else the first line is named.
func TestLineOf(t *testing.T) {
	const text = "# rate = 1\n\nrate = 1\n[eth0]\n\"rate\" = 2\n[ \"eth1\" ]\n  mtu = 3\n\n  rate = 4\n"
	for _, c := range []struct {
		table, key string
		want       int
	}{{"", "rate", 3}, {"eth0", "rate", 5}, {"eth1", "rate", 9}, {"eth1", "mtu", 7}, {"eth2", "rate", 1},
		{"eth1", "rtt", 1}, {"", "rtt", 1}} {
		if got := lineOf(text, c.table, c.key); got != c.want {
			t.Errorf("%s of %q: %d, want %d", c.key, c.table, got, c.want)
		}
	}
}

// A service sees what it needs of homes and of /tmp where its program or its journal is there, and else nothing.
func TestSandbox(t *testing.T) {
	for _, c := range []struct{ program, state, home, tmp string }{
		{"/usr/bin/weir", "/var/lib/weir", "yes", "yes"}, {"/home/a/weir", "/var/lib/weir", "read-only", "yes"},
		{"/root/weir", "/var/lib/weir", "read-only", "yes"}, {"/run/user/1000/weir", "/x", "read-only", "yes"},
		{"/run/weir", "/var", "yes", "yes"}, {"/usr/bin/weir", "/tmp/state", "yes", "no"},
		{"/var/tmp/weir", "/", "yes", "no"}, {"/tmp/weir", "/home/a", "read-only", "no"},
		{"/homes/weir", "/tmpfs/x", "yes", "yes"}, {"/home", "/x", "read-only", "yes"},
	} {
		lines := Sandbox(c.program, c.state)
		for _, want := range []string{"ProtectHome=" + c.home, "PrivateTmp=" + c.tmp,
			"ReadWritePaths=-/etc -" + c.state} {
			if !slices.Contains(lines, want) {
				t.Errorf("%s, %s: no %s in %q", c.program, c.state, want, lines)
			}
		}
	}
}

// A goal that follows a rate brings the follower's service, and what starts that at boot; the program is the unit's,
// or the package's.
func TestKeepsFollower(t *testing.T) {
	for name, c := range map[string]struct {
		edit    func(*host.Facts)
		program string
		own     bool // the unit is written, too
	}{
		"this program": {func(*host.Facts) {}, "/usr/local/bin/weir", true},
		"another's":    {func(f *host.Facts) { f.UnitProgram = "/opt/weir" }, "/opt/weir", true},
		"the package's": {func(f *host.Facts) { f.Files[host.PackageUnit] = regular(Unit("/usr/bin/weir")) },
			"/usr/bin/weir", false},
	} {
		f := keeping(t)
		c.edit(&f)
		p, err := planFor(Goal{Rate: 50e6, Follow: Auto}, f)
		if err != nil {
			t.Fatal(err)
		}
		got := files(p)
		if _, own := got[host.UnitFile]; own != c.own || got[host.UnitLink].Kind != host.Symlink ||
			got[host.FollowLink].Text != host.FollowFile ||
			!strings.Contains(got[host.FollowFile].Text, "ExecStart="+c.program+" follow\n") {
			t.Errorf("%s: %v", name, got)
		}
		p, err = planFor(Goal{Rate: 50e6}, f)
		if got := files(p); err != nil || got[host.FollowFile] != (host.File{}) ||
			got[host.FollowLink] != (host.File{}) {
			t.Errorf("%s, which follows nothing: %v, %v", name, got, err)
		}
	}
}
