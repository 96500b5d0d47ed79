// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"weir/internal/host"
	"weir/internal/kernel"
	"weir/internal/qdisc"
	"weir/internal/units"
)

// A goal is taken for --serves udp by its counters, and by each of these conditions alone it is not.
func TestServing(t *testing.T) {
	rate := Goal{Rate: 50e6}
	sent := func(udp, tcp uint64) host.Facts {
		return host.Facts{Passing: host.Passing{UDPOut: udp, TCPOut: tcp}}
	}
	for name, c := range map[string]struct {
		goal  Goal
		facts host.Facts
		want  string
	}{
		"enough":                     {rate, sent(10_000, 0), "udp"},
		"a boot's":                   {rate, sent(9_999, 0), ""},
		"a sixteenth":                {rate, sent(20_000, 300_000), "udp"},
		"less":                       {rate, sent(20_000, 300_016), ""},
		"said":                       {Goal{Rate: 50e6, Serves: "tcp"}, sent(20_000, 0), "tcp"},
		"a relay":                    {Goal{Rate: 50e6, Role: "relay"}, sent(20_000, 0), ""},
		"without a rate":             {Goal{}, sent(20_000, 0), ""},
		"a recipe":                   {Goal{Rate: 50e6, Recipe: "server-cake"}, sent(20_000, 0), ""},
		"a queue of a person's wish": {Goal{Rate: 50e6, Qdisc: "fq"}, sent(20_000, 0), ""},
	} {
		got, notes := c.goal.Serving(c.facts)
		if found := got.Serves != c.goal.Serves; got.Serves != c.want || (len(notes) == 1) != found {
			t.Errorf("%s: %q, and %v", name, got.Serves, notes)
		}
	}
}

// An RTT is measured where enough connections are live and nobody has said it, in steps.
func TestMeasuredRTT(t *testing.T) {
	live := func(n int, rtt int) host.Sockets { return host.Sockets{Total: n, RTT: ms(rtt)} }
	for name, c := range map[string]struct {
		goal    Goal
		sockets host.Sockets
		want    units.Duration
	}{
		"eight":     {Goal{}, live(8, 31), ms(50)},
		"seven":     {Goal{}, live(7, 31), 0},
		"near":      {Goal{}, live(8, 1), ms(10)},
		"at a step": {Goal{}, live(8, 20), ms(20)},
		"above it":  {Goal{}, live(8, 21), ms(50)},
		"far":       {Goal{}, live(8, 120), ms(200)},
		"farther":   {Goal{}, live(8, 900), ms(200)},
		"said":      {Goal{RTT: ms(5)}, live(8, 31), ms(5)},
		"a recipe":  {Goal{Recipe: "server-cake"}, live(8, 31), 0},
		"a queue":   {Goal{Only: true}, live(8, 31), 0},
		"unknown":   {Goal{}, live(8, 0), 0},
	} {
		got, notes := c.goal.Measured(c.sockets)
		if got.RTT != c.want || (len(notes) == 1) != (got.RTT != c.goal.RTT) {
			t.Errorf("%s: %s, and %v", name, got.RTT, notes)
		}
	}
}

// Whatever a person has decided about the queue, no role is looked for.
func TestAsSeenAsksNobody(t *testing.T) {
	carries := with(t, passed, forwards)
	for name, g := range map[string]Goal{
		"a queue": {Qdisc: "fq", Rate: 50e6}, "one alone": {Qdisc: "fq", Only: true}, "only": {Only: true, Rate: 50e6},
	} {
		if got, notes, err := g.AsSeen(carries); got != g || notes != nil || err != nil {
			t.Errorf("%s: %+v, %v, %v", name, got, notes, err)
		}
	}
	if got, _, err := (Goal{Rate: 50e6, Dev: carries.Uplink}).AsSeen(carries); got.Role != "relay" || err != nil {
		t.Errorf("the uplink by its name: %+v, %v", got, err)
	}
}

// What waits in a socket is limited where it is not, and where less waits than is good.
func TestUnsent(t *testing.T) {
	for now, want := range map[string]bool{
		"4294967295": true, "2147483647": true, "-1": true, "2147483646": false, "131072": false, "131071": true,
		"0": true, "262144": false, "x": false,
	} {
		p, err := planFor(Goal{}, with(t, sysctl("ipv4.tcp_notsent_lowat", now)))
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Contains(summary(p), "tcp_notsent_lowat: 131072"); got != want {
			t.Errorf("%s: set anew %v", now, got)
		}
	}
}

// Loss calls for BBR where cubic's window, or Reno's, is below five quarters of what the path holds. Each pair lies on
// both sides of that, by RFC 9438 section 5.1 and by Mathis' √(3/2p).
func TestOutrunByLoss(t *testing.T) {
	for _, c := range []struct {
		rate units.Rate
		rtt  int // ms
		loss units.Share
		want bool
	}{
		{0, 0, .01, true}, {0, 0, .0099, false}, {0, 0, 0, false},
		{23e6, 210, .00007, true}, {23e6, 210, .00005, false}, {23e6, 45, .00014, true}, {23e6, 45, .00012, false},
		{23e6, 10, .0028, true}, {23e6, 10, .0025, false}, {5e6, 48, .0026, true}, {5e6, 48, .0023, false},
		{5e6, 0, .0024, true}, {5e6, 0, .0021, false}, // 50 ms where nothing is said
	} {
		d := draft{Goal: Goal{Rate: c.rate, RTT: ms(c.rtt), Loss: c.loss}, link: host.Link{MTU: 1500}}
		if got := d.outrunByLoss(); got != c.want {
			t.Errorf("%s, %d ms, %s lost: %v", c.rate, c.rtt, c.loss, got)
		}
	}
}

// CAKE's memory is 0.4 s of the rate in packets' memory, in whole MiB, and no less than 4.
func TestMemoryLimit(t *testing.T) {
	for rate, want := range map[units.Rate]units.Size{
		1e6: 4 << 20, 50e6: 4 << 20, 52e6: 4 << 20, 53e6: 5 << 20, 100e6: 8 << 20, 200e6: 16 << 20, 200e6 + 1: 0,
		1e9: 0,
	} {
		if got := memoryLimit(rate); got != want {
			t.Errorf("%s: %s, want %s", rate, got, want)
		}
	}
}

// A queue without a rate is warned of, unless it is the device's own limit or shapes.
func TestWarnsIfIdle(t *testing.T) {
	const says = "If the provider enforces a lower rate"
	for name, c := range map[string]struct {
		goal  Goal
		facts host.Facts
		want  string
	}{
		"no rate": {Goal{}, server(t), "fq_codel has no rate: it acts"},
		"no queue, and none to be had": {Goal{}, with(t, uplink(t, "noqueue", 1), kernelWith("cake")),
			"there is no queue at this device"},
		"the device's":     {Goal{Rate: 1e9}, server(t), ""},
		"shapes":           {Goal{Qdisc: "cake bandwidth 1mbit"}, server(t), ""},
		"asked for, plain": {Goal{Qdisc: "fq_codel"}, server(t), "fq_codel has no rate: it acts"},
	} {
		p, err := planFor(c.goal, c.facts)
		if err != nil {
			t.Fatal(err)
		}
		text := fmt.Sprint(p.Considered)
		if strings.Contains(text, says) != (c.want != "") || !strings.Contains(text, c.want) {
			t.Errorf("%s: %s", name, text)
		}
	}
}

// Files are written, written anew, or removed.
func TestVerb(t *testing.T) {
	none, one, two := kernel.Content{File: host.File{Kind: host.NoFile}},
		kernel.Content{File: regular("a")}, kernel.Content{File: regular("b")}
	for _, c := range []struct {
		was, will kernel.Value
		want      string
	}{{none, one, "written"}, {one, two, "written anew"}, {one, none, "removed"}, {kernel.Setting("a"),
		kernel.Setting("b"), ""}} {
		if got := (Change{Old: c.was, New: c.will}).Verb(); got != c.want {
			t.Errorf("%v to %v: %q", c.was, c.will, got)
		}
	}
}

// A file that somebody else wrote is theirs; one of weir's is not, nor is what is not there.
func TestFileOwner(t *testing.T) {
	for name, c := range map[string]struct {
		file   host.File
		theirs bool
	}{
		"none": {host.File{Kind: host.NoFile}, false}, "a link": {host.File{Kind: host.Symlink, Text: "/x"}, false},
		"theirs": {regular("rate = 1"), true}, "weir's": {regular(host.FirstLine + "x"), false},
	} {
		f := host.Facts{Files: map[string]host.File{"/etc/x": c.file}}
		if got := (kernel.Target{Kind: kernel.File, Name: "/etc/x"}).Object().Owner(f,
			"/etc/x"); (got != "") != c.theirs {
			t.Errorf("%s: %q", name, got)
		}
	}
}

// A card's address finds it under another name; that of what lies on a card may be the card's.
func TestUdevRules(t *testing.T) {
	rules := func(goal Goal, l host.Link) string {
		return udevRules([]*draft{{Goal: goal, link: l}})
	}
	const mac = "52:54:00:12:34:56"
	for name, c := range map[string]struct {
		link host.Link
		want bool
	}{
		"a card": {host.Link{Name: "eth0", MAC: mac}, true}, "a bridge": {host.Link{Name: "br0", MAC: mac,
			Kind: "bridge"},
			false}, "no address": {host.Link{Name: "eth0"}, false},
	} {
		if got := strings.Contains(rules(Goal{}, c.link), "ATTR{address}"); got != c.want {
			t.Errorf("%s: %s", name, rules(Goal{}, c.link))
		}
	}
	for carries, want := range map[Kinds][2]bool{"": {}, "wireguard": {true, false}, "tunnel": {false, true},
		"wireguard,tunnel": {true, true}, "forward": {}} {
		text := rules(Goal{Carries: carries}, host.Link{Name: "eth0"})
		got := [2]bool{strings.Contains(text, "wireguard"), strings.Contains(text, "tun_flags")}
		if got != want {
			t.Errorf("%s: %s", carries, text)
		}
	}
}

// What a framing is, in words.
func TestFramingText(t *testing.T) {
	if got := framingText(qdisc.Framing{Overhead: 38}); got != "38 bytes more than its IP part" {
		t.Error(got)
	}
	if got := framingText(qdisc.Framing{Overhead: 38,
		MPU: 84}); got != "38 bytes more than its IP part, and for 84 at least" {
		t.Error(got)
	}
}

// What is seen of a VLAN is its parent's, and the tag; why is that of the parent where there is a reason.
func TestFramingOfVLAN(t *testing.T) {
	f := host.Facts{Links: []host.Link{{Index: 2, Name: "eth0", Driver: "igb", MAC: "x"}, {Index: 3, Name: "eth1"},
		{Index: 4, Name: "ppp0", Kind: "ppp"}}}
	for parent, c := range map[string]struct {
		overhead int32
		why      string
	}{
		"eth0": {42, "a machine's own"}, "eth1": {18, "the tag of the VLAN is added below eth0.5"},
		"ppp0": {pppFrames + 4, "PPP"},
	} {
		l := host.Link{Name: "eth0.5", Kind: "vlan", Parent: parent}
		got, why := suggestedFraming(l, f)
		if got.Overhead != c.overhead || !strings.Contains(why, c.why) {
			t.Errorf("over %s: %d, %q", parent, got.Overhead, why)
		}
	}
}

// A tunnel carries something once bytes have passed it, in or out.
func TestTunnelThatCarries(t *testing.T) {
	for name, c := range map[string]struct {
		rx, tx float64
		want   bool
	}{"both": {1e9, 1e9, true}, "in": {2e9, 0, true}, "out": {0, 2e9, true}, "nothing": {0, 0, false}} {
		f := with(t, forwards, traffic(10e9, 10e9, 10e6, 9e6), device("wireguard", "wg0", c.rx, c.tx))
		if got := slices.Contains(Carries(f).Kinds, WireGuard); got != c.want {
			t.Errorf("%s: %v", name, Carries(f).Kinds)
		}
	}
}

// Settings that another file overrules at the next boot are told of when a goal is kept, and so is one that the kernel
// refuses there.
func TestOverruledIsTold(t *testing.T) {
	for value, want := range map[string]string{
		"1":       "/etc/sysctl.d/zz.conf:1 says 1 and is read later at boot; weir.service then sets 131072",
		"128K":    "refuses 128K in /etc/sysctl.d/zz.conf:1, which is read later at boot: 128K has a unit",
		"-1":      "-1 is less than 0",
		"0x20000": "",
	} {
		f := overruling(t, value)
		p, err := planFor(Goal{}, f)
		if err != nil {
			t.Fatal(err)
		}
		said := fmt.Sprint(p.Considered)
		if !strings.Contains(said, want) || strings.Contains(said, "zz.conf") != (want != "") {
			t.Errorf("%s: %s", value, said)
		}
	}
}

// Who else sets another queue on the device, or the same with another rate, is told of.
func TestRivalsAreTold(t *testing.T) {
	for name, c := range map[string]struct {
		writer host.Writer
		want   string
	}{
		"another rate":  {host.Writer{By: "networkd", Qdisc: "cake", Rate: 20e6, Dev: "eth0"}, "cake with 20mbit"},
		"another queue": {host.Writer{By: "rc.local", Qdisc: "fq", Dev: "$DEV"}, "fq at every boot"},
		"not known":     {host.Writer{By: "cron", Qdisc: host.SomeQueue, Dev: "eth0"}, "a queue at its times"},
		"the same":      {host.Writer{By: "networkd", Qdisc: "cake", Dev: "eth0"}, ""},
		"elsewhere":     {host.Writer{By: "networkd", Qdisc: "fq", Dev: "eth7"}, ""},
		"a setting":     {host.Writer{By: "rc.local", Sysctl: "net.ipv4.tcp_ecn", Value: "1"}, ""},
	} {
		c.writer.File, c.writer.Line = "/etc/rival", 7
		p, err := planFor(Goal{Rate: 50e6}, with(t, func(f *host.Facts) {
			f.Deep = &host.Deep{Writers: []host.Writer{c.writer}}
		}))
		if err != nil {
			t.Fatal(err)
		}
		said := fmt.Sprint(Overruled(p, with(t, func(f *host.Facts) {
			f.Deep = &host.Deep{Writers: []host.Writer{c.writer}}
		})))
		if !strings.Contains(said, c.want) || strings.Contains(said, "/etc/rival:7") != (c.want != "") {
			t.Errorf("%s: %s", name, said)
		}
	}
}

// overruling is a host on which a file that is read last sets tcp_notsent_lowat.
func overruling(t *testing.T, value string) host.Facts {
	return with(t, func(f *host.Facts) {
		f.Init, f.Udev, f.Program = host.Systemd, true, host.Program{Path: "/usr/local/bin/weir", RootOnly: true}
		f.Files = map[string]host.File{}
		f.Deep = &host.Deep{Loader: "systemd-sysctl", Settings: []host.Setting{{Sysctl: "net.ipv4.tcp_notsent_lowat",
			Value: value, Name: "zz.conf", File: "/etc/sysctl.d/zz.conf", Line: 1, Wins: true}}}
	})
}

// A bucket holds a packet where it has room for just that, and the header where there is one.
func TestBucketHoldsAPacket(t *testing.T) {
	for name, c := range map[string]struct {
		queue string
		mac   string
		fine  bool
	}{
		"a whole packet":       {"tbf rate 49mbit burst 1514b latency 50ms", "x", true},
		"a byte less":          {"tbf rate 49mbit burst 1513b latency 50ms", "x", false},
		"without a header":     {"tbf rate 49mbit burst 1500b latency 50ms", "", true},
		"a byte less than it":  {"tbf rate 49mbit burst 1499b latency 50ms", "", false},
		"a peak that holds it": {"tbf rate 4mbit burst 9kb limit 9kb peakrate 5mbit mtu 1514b", "x", true},
		"a peak that does not": {"tbf rate 4mbit burst 9kb limit 9kb peakrate 5mbit mtu 1513b", "x", false},
	} {
		d := draft{link: host.Link{Name: "eth0", MTU: 1500, MAC: c.mac}}
		if err := d.checkTokenBucket(stacked(t, c.queue)); (err == nil) != c.fine {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Buffers grow to what the path holds, within a sixteenth of memory and 1 GiB, in whole MiB, and are never lowered.
func TestBuffers(t *testing.T) {
	for name, c := range map[string]struct {
		goal   Goal
		memory units.Size
		wmem   string
		want   string // "" where it stays
	}{
		"just as large":   {Goal{Rate: 1e9, RTT: ms(100)}, 8 << 30, "4096 16384 50331648", ""},
		"a MiB too small": {Goal{Rate: 1e9, RTT: ms(100)}, 8 << 30, "4096 16384 49283072", "4096 16384 50331648"},
		"a sixteenth":     {Goal{Rate: 1e9, RTT: ms(100)}, 500 << 20, "4096 16384 4194304", "4096 16384 32505856"},
		"memory unknown":  {Goal{Rate: 1e9, RTT: ms(9000)}, 0, "4096 16384 4194304", "4096 16384 1073741824"},
		"much memory": {Goal{Rate: 1e9, RTT: ms(9000)}, 64 << 30, "4096 16384 4194304",
			"4096 16384 1073741824"},
		"a start too low":     {Goal{}, 4 << 30, "4096 16383 4194304", "4096 16384 4194304"},
		"a start as it is":    {Goal{}, 4 << 30, "4096 16384 4194304", ""},
		"a start above most":  {Goal{}, 4 << 30, "4096 16000 16000", "4096 16384 16384"},
		"not three":           {Goal{Rate: 1e9}, 4 << 30, "4096 16384", ""},
		"no figures":          {Goal{Rate: 1e9}, 4 << 30, "4096 x 4194304", ""},
		"beyond the kernel's": {Goal{Rate: 1e9}, 4 << 30, "4096 16384 2147483648", ""},
		"BBR": {Goal{Rate: 1e9, RTT: ms(100), CC: "bbr"}, 8 << 30, "4096 16384 4194304",
			"4096 16384 75497472"},
	} {
		f := with(t, sysctl("ipv4.tcp_wmem", c.wmem))
		f.Memory = c.memory
		p, err := planFor(c.goal, f)
		if err != nil {
			t.Fatal(err)
		}
		if got := summary(p); strings.Contains(got, "tcp_wmem: ") != (c.want != "") ||
			c.want != "" && !slices.Contains(strings.Split(got, "\n"), "tcp_wmem: "+c.want) {
			t.Errorf("%s:\n%s\nwant %s", name, got, c.want)
		}
	}
}

// A file that is read with Weir's own, or before it, overrules nothing; nor does what takes the same, or is not read.
func TestOverruledByName(t *testing.T) {
	for file, want := range map[string]bool{"zz.conf": true, "99-weir.conf": false, "00.conf": false, "": true} {
		f := overruling(t, "1")
		f.Deep.Settings[0].Name = file
		p, err := planFor(Goal{}, f)
		if err != nil {
			t.Fatal(err)
		}
		if got := len(Overruled(p, f)) == 1; got != want {
			t.Errorf("%q: %v", file, got)
		}
	}
	f := overruling(t, "1")
	f.Deep.Settings[0].Name, f.Deep.Settings[0].File = "", host.CommandLine
	if p, err := planFor(Goal{}, f); err != nil || Overruled(p, f) != nil {
		t.Errorf("by the command line: %v, %v", Overruled(p, f), err)
	}
	f.Deep = nil
	if p, err := planFor(Goal{}, f); err != nil || Overruled(p, f) != nil {
		t.Errorf("not looked at: %v, %v", Overruled(p, f), err)
	}
}

// A wide link is one above four fifths of what a CAKE carries, and each queue's part is the rate's.
func TestWide(t *testing.T) {
	for _, c := range []struct {
		goal   Goal
		queues int
		want   string // at the root
	}{
		{Goal{Rate: 2e9}, 4, "cake bandwidth"}, {Goal{Rate: 2e9 + 1000}, 4, "cake_mq bandwidth"},
		{Goal{Rate: 2e9 + 1000}, 1, "cake bandwidth"}, {Goal{Rate: 8e9, OneCAKE: 5e9}, 4, "no-split-gso"},
		{Goal{Rate: 12e9, OneCAKE: 5e9}, 4, "no-split-gso"}, {Goal{Rate: 12e9 + 1000, OneCAKE: 5e9}, 4, "cake_mq"},
		{Goal{Rate: 16e9, OneCAKE: 5e9}, 4, "cake_mq"},
		{Goal{Rate: 16e9 + 4000, OneCAKE: 5e9}, 4, "mq | htb rate 3.990000992gbit"},
		{Goal{Rate: 4e9, OneCAKE: 5e9, Serves: "udp"}, 1, "cake bandwidth"},
		{Goal{Rate: 4e9 + 1000, OneCAKE: 5e9, Serves: "udp"}, 1, ""},
		{Goal{Rate: 4e9 + 2000, OneCAKE: 5e9, Serves: "udp"}, 2, "cake_mq"},
	} {
		f := with(t, uplink(t, "mq | fq_codel", c.queues))
		if c.queues == 1 {
			f = with(t, uplink(t, "fq_codel", 1))
		}
		f.Links[1].Speed, f.Qdiscs["cake_mq"] = 100e9, host.Yes
		p, err := planFor(c.goal, f)
		if err != nil {
			t.Fatal(err)
		}
		if got := summary(p); strings.Contains(got, "root: ") != (c.want != "") || !strings.Contains(got, c.want) {
			t.Errorf("%s on %d queues:\n%s\nwant %s", c.goal.Flags(), c.queues, got, c.want)
		}
	}
}
