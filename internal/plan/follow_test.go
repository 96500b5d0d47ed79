// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"weir/internal/host"
	"weir/internal/kernel"
	"weir/internal/qdisc"
	"weir/internal/units"
)

func TestSpan(t *testing.T) {
	for text, want := range map[string]Span{
		"auto": Auto, "20mbit..100mbit": "20mbit..100mbit", "0.02gbit..100000kbit": "20mbit..100mbit",
	} {
		if got, err := parseSpan(text); err != nil || got != want {
			t.Errorf("%s reads as %q, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "..", "20mbit", "20mbit..", "..20mbit", "20..100mbit", "auto.."} {
		if got, err := parseSpan(text); err == nil {
			t.Errorf("%q reads as %q", text, got)
		}
	}
}

func FuzzSpan(f *testing.F) {
	f.Add("20mbit..100mbit")
	f.Add("auto")
	f.Fuzz(func(t *testing.T, text string) {
		span, err := parseSpan(text)
		if err != nil {
			return
		}
		if again, err := parseSpan(string(span)); err != nil || again != span {
			t.Errorf("%q reads as %q, and that as %q, %v", text, span, again, err)
		}
	})
}

// A span for the rate begins at its lower end.
func TestRateTakesASpan(t *testing.T) {
	var g Goal
	if err := setRate(&g, "20mbit..100mbit"); err != nil || g.Rate != 20e6 || g.Follow != "20mbit..100mbit" {
		t.Errorf("%+v, %v", g, err)
	}
	for follow, want := range map[Span][2]units.Rate{
		"": {}, Auto: {5e6, 80e6}, "1mbit..2gbit": {1e6, 2e9},
	} {
		g.Follow = follow
		if low, high := g.bounds(); low != want[0] || high != want[1] {
			t.Errorf("%q: from %s to %s", follow, low, high)
		}
	}
}

func TestFollowIsChecked(t *testing.T) {
	for name, c := range map[string]struct {
		goal Goal
		want string // "" where it is fine
	}{
		"plain":        {Goal{Rate: 50e6, Follow: Auto}, ""},
		"between":      {Goal{Rate: 50e6, Follow: "20mbit..100mbit"}, ""},
		"at the end":   {Goal{Rate: 20e6, Follow: "20mbit..100mbit"}, ""},
		"not known":    {Goal{Follow: Auto}, ""},
		"no rate":      {Goal{Follow: "20mbit..100mbit"}, "--follow begins with a rate"},
		"below":        {Goal{Rate: 10e6, Follow: "20mbit..100mbit"}, "not between"},
		"above":        {Goal{Rate: 200e6, Follow: "20mbit..100mbit"}, "not between"},
		"no choice":    {Goal{Rate: 20e6, Follow: "20mbit..20mbit"}, "leaves no choice"},
		"the other":    {Goal{Rate: 20e6, Follow: "100mbit..20mbit"}, "leaves no choice"},
		"no way in":    {Goal{Rate: 50e6, Follow: "1kbit..100mbit"}, "too little to reach"},
		"a relay":      {Goal{Rate: 50e6, Follow: Auto, Role: "relay"}, ""},
		"a relay's":    {Goal{Rate: 50e6, Follow: "20mbit..100mbit", Role: "relay"}, ""},
		"unknown":      {Goal{Follow: Auto, Role: "relay"}, "begins with a rate"},
		"l4s":          {Goal{Rate: 50e6, Follow: Auto, Prefer: "l4s"}, "rate of a CAKE"},
		"own queue":    {Goal{Follow: Auto, Qdisc: "fq"}, "rate of a CAKE"},
		"recipe":       {Goal{Rate: 50e6, Follow: Auto, Recipe: "server-cake"}, "rate of a CAKE"},
		"and the rest": {Goal{Rate: 50e6, Follow: Auto, Loss: 0.6}, "carries no TCP"},
	} {
		err := c.goal.Check()
		if (c.want == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Another rate between the bounds is the follower's doing; anything else is somebody else's.
func TestFollows(t *testing.T) {
	queue := func(text string) kernel.Queue {
		stack, err := qdisc.ParseStack(text)
		if err != nil {
			t.Fatal(err)
		}
		return kernel.Queue{Stack: stack}
	}
	goal, set := Goal{Rate: 100e6, Follow: "20mbit..200mbit"}, queue("cake bandwidth 99.75mbit besteffort")
	for now, want := range map[string]bool{
		"cake bandwidth 99.75mbit besteffort":     true,
		"cake bandwidth 63.1mbit besteffort":      true,
		"cake bandwidth 19.95mbit besteffort":     true,
		"cake bandwidth 199.5mbit besteffort":     true,
		"cake bandwidth 19.9mbit besteffort":      false,
		"cake bandwidth 199.6mbit besteffort":     false,
		"cake bandwidth 63.1mbit":                 false,
		"cake besteffort":                         false,
		"htb rate 63.1mbit | fq_codel":            false,
		"fq_codel":                                false,
		"cake bandwidth 63.1mbit besteffort wash": false,
	} {
		if got := goal.Follows(queue(now), set); got != want {
			t.Errorf("%s: %v", now, got)
		}
	}
	if (Goal{Rate: 100e6}).Follows(queue("cake bandwidth 63.1mbit besteffort"), set) {
		t.Error("a goal that does not say so is followed")
	}
	if goal.Follows(kernel.Setting("bbr"), set) || goal.Follows(set, kernel.Setting("bbr")) {
		t.Error("a setting is followed")
	}
}

// On relays only what the kernel forwards is followed, in its tunnels or not.
func TestFollowsTheKernelAlone(t *testing.T) {
	for carries, want := range map[Kinds]string{"forward": "", "wireguard": "", "wireguard,vxlan,ipip": "", "xfrm": "",
		"ovpn,gre": "", "tunnel": "carries: tunnel", "wireguard,tunnel": "carries: wireguard, tunnel",
		"forward,proxy": "carries: forward, proxy", "wireguard,proxy": "carries: wireguard, proxy"} {
		_, err := planFor(Goal{Dev: "eth0", Rate: 50e6, Role: "relay", Carries: carries, Follow: Auto}, server(t))
		if (want == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", carries, err)
		}
	}
}

// Behind the provider's queue a follower goes from the plan's share of the lowest rate that may come in up to 99.75 %
// of the highest. Of one that a person tells, that is a quarter of it, and itself.
func TestFollowsBehind(t *testing.T) {
	incoming := func(text string) kernel.Incoming {
		a, err := qdisc.ParseArriving(text)
		if err != nil {
			t.Fatal(err)
		}
		return kernel.Incoming{Arriving: a}
	}
	server := Goal{Rate: 100e6, Ingress: 50e6, Follow: "90mbit..200mbit"}
	set := incoming("cake bandwidth 42.5mbit besteffort ingress")
	for now, want := range map[string]bool{
		"cake bandwidth 42.5mbit besteffort ingress":   true,
		"cake bandwidth 49.875mbit besteffort ingress": true,
		"cake bandwidth 10.625mbit besteffort ingress": true,
		"cake bandwidth 10.6mbit besteffort ingress":   false,
		"cake bandwidth 50mbit besteffort ingress":     false,
		"cake bandwidth 45mbit ingress":                false,
		"fq_codel":                                     false,
	} {
		if got := server.Follows(incoming(now), set); got != want {
			t.Errorf("incoming, %s: %v", now, got)
		}
	}
	if server.Follows(kernel.Incoming{Other: kernel.NoIngress}, set) || server.Follows(set,
		kernel.Incoming{Other: kernel.NoIngress}) ||
		server.Follows(kernel.Queue{Stack: set.Stack}, set) || (Goal{Rate: 100e6, Ingress: 50e6}).Follows(set, set) {
		t.Error("what is no queue for incoming traffic is followed")
	}
	for name, c := range map[string]struct {
		goal      Goal
		low, high units.Rate
	}{
		"a relay":       {Goal{Rate: 50e6, Carries: "forward", Follow: Auto}, 11.75e6, 49.875e6},
		"more comes in": {Goal{Rate: 50e6, Ingress: 100e6, Carries: "forward", Follow: Auto}, 11.75e6, 49.875e6},
		"less comes in": {Goal{Rate: 100e6, Ingress: 50e6, Carries: "forward", Follow: Auto}, 11.75e6, 49.875e6},
		"a tunnel":      {Goal{Rate: 50e6, Carries: "wireguard", Follow: Auto}, 11.75e6, 49.875e6},
		"much is usual": {Goal{Rate: 20e6, Carries: "forward", Follow: Auto}, 11.75e6, 47e6},
		"a span":        {Goal{Rate: 50e6, Carries: "forward", Follow: "20mbit..80mbit"}, 18.8e6, 79.8e6},
		"its lower end": {Goal{Rate: 50e6, Carries: "forward", Follow: "50mbit..80mbit"}, 47e6, 79.8e6},
		"of both": {Goal{Rate: 50e6, Ingress: 50e6, Carries: "forward", Follow: "20mbit..80mbit"},
			18.8e6, 79.8e6},
		"of the rate": {Goal{Rate: 40e6, Ingress: 100e6, Carries: "forward", Follow: "20mbit..80mbit"},
			11.75e6, 47e6},
		"the lesser way": {Goal{Rate: 90e6, Ingress: 50e6, Carries: "forward", Follow: "20mbit..95mbit"},
			18.8e6, 94.7625e6},
	} {
		low, high, behind := c.goal.Room(false, 47e6)
		if low != c.low || high != c.high || !behind {
			t.Errorf("%s: from %s to %s, %v", name, low, high, behind)
		}
	}
	if low, high, behind := server.Room(false, 47e6); low != shapedRate(90e6) || high != shapedRate(200e6) || behind {
		t.Errorf("outgoing traffic: from %s to %s, %v", low, high, behind)
	}
}

// Where there is no CAKE the goal's rate is shaped to, and it is said that nobody can follow; the speed of the card is
// no reason not to shape, and one CAKE has all queues.
func TestFollowTakesCAKE(t *testing.T) {
	goal := Goal{Rate: 1e9, Follow: Auto, RTT: 50e6}
	for name, c := range map[string]struct {
		change func(*host.Facts, *host.Link)
		kind   string
		lacks  bool
	}{
		"plain":     {func(*host.Facts, *host.Link) {}, "cake", false},
		"no CAKE":   {func(f *host.Facts, l *host.Link) { f.Qdiscs["cake"] = host.No }, "htb", true},
		"the speed": {func(f *host.Facts, l *host.Link) { l.Speed = 1e9 }, "cake", false},
		"many queues": {func(f *host.Facts, l *host.Link) {
			l.TxQueues, l.Speed, f.Qdiscs["cake_mq"] = 8, 10e9, host.Yes
		}, "cake", false},
	} {
		f := server(t)
		f.Qdiscs = maps.Clone(f.Qdiscs)
		f.Links = slices.Clone(f.Links)
		c.change(&f, &f.Links[slices.IndexFunc(f.Links, func(l host.Link) bool { return l.Name == f.Uplink })])
		goal.Rate = 1e9
		if name == "many queues" {
			goal.Rate = 4e9
		}
		p, err := planFor(goal, f)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		i := slices.IndexFunc(p.Changes, func(c Change) bool { return c.Kind == kernel.Root })
		if i < 0 || (p.Unavailable != nil) != c.lacks || p.Changes[i].New.(kernel.Queue).Stack[0].Kind() != c.kind {
			t.Errorf("%s: %v, %v", name, p.Changes, p.Unavailable)
		}
	}
}

// Forwarded packets are looked at where they leave in clear: at the uplink, and at tunnels whose packets leave by that.
func TestForwarding(t *testing.T) {
	f := host.Facts{Uplink: "eth0", Links: []host.Link{
		{Index: 1, Name: "lo", Loopback: true, Up: true}, {Index: 2, Name: "eth0", MAC: "52:54:00:12:34:56", Up: true},
		{Index: 3, Name: "eth1", MAC: "52:54:00:12:34:57", Up: true},
		{Index: 4, Name: "wg0", Kind: "wireguard", Up: true}, {Index: 5, Name: "wg1", Kind: "wireguard"},
		{Index: 6, Name: "tun0", Kind: "tuntap", Up: true}}}
	if got := Forwarding(f, "eth0"); got != nil {
		t.Errorf("of a host that does not forward: %v", got)
	}
	for _, name := range []string{"net.ipv4.ip_forward", "net.ipv6.conf.all.forwarding"} {
		f.Sysctls = map[string]host.Sysctl{name: {Value: "1"}}
		for dev, want := range map[string][]int{"eth0": {2, 4, 6}, "eth1": {3}, "eth9": nil} {
			if got := Forwarding(f, dev); !slices.Equal(got, want) {
				t.Errorf("%s, by %s: %v, want %v", name, dev, got, want)
			}
		}
	}
}

// A rate that is to be found is found as the queue counts packets that the rules have for it.
func TestCountsAs(t *testing.T) {
	relay := Goal{Follow: Auto, Role: "relay", Carries: "forward"}
	for name, c := range map[string]struct {
		goal  Goal
		facts host.Facts
		want  string // "" where there is none
	}{
		"a server": {Goal{Follow: Auto}, server(t), "raw"},
		"that has the queue already": {Goal{Follow: Auto},
			with(t, uplink(t, "cake bandwidth 49.875mbit besteffort dual-dsthost rtt 2s memlimit 4mb", 1)), ""},
		"by a card": {Goal{Follow: Auto, RTT: ms(10)}, with(t, driver("igb")), "38 mpu 84"},
		"a relay":   {relay, server(t), "raw"},
		"by a card, with a bpf_shaper": {Goal{Follow: Auto},
			with(t, driver("igb"), kernelWith(qdisc.BPFShaping, "fq")), "38 mpu 84"},
		"without cake": {Goal{Follow: Auto}, with(t, kernelWith("htb", "fq_codel")), ""},
		"no device":    {Goal{Dev: "eth9", Follow: Auto}, server(t), ""},
	} {
		counts, ok := CountsAs(c.goal, c.facts)
		if ok != (c.want != "") || ok && counts.String() != c.want {
			t.Errorf("%s: %s, %v", name, counts, ok)
		}
	}
}

// A span in a file is read as on a command line.
func TestSpanInAFile(t *testing.T) {
	var s Span
	if err := s.UnmarshalText([]byte("0.02gbit..100mbit")); err != nil || s != "20mbit..100mbit" {
		t.Errorf("%s, %v", s, err)
	}
	if err := s.UnmarshalText([]byte("fast")); err == nil {
		t.Error("no span is one")
	}
}

// Of a queue for incoming traffic only the rate may have moved.
func TestFollowsIncoming(t *testing.T) {
	in := func(text string, other string, tunnels ...string) kernel.Value {
		return kernel.Incoming{Arriving: qdisc.Arriving{Stack: stacked(t, text), Tunnels: tunnels}, Other: other}
	}
	g := Goal{Dev: "eth0", Rate: 50e6, Follow: Auto, Ingress: 20e6}
	const planned, moved = "cake bandwidth 17mbit ingress", "cake bandwidth 10mbit ingress"
	for name, c := range map[string]struct {
		now, want kernel.Value
		follows   bool
	}{
		"its rate":            {in(moved, ""), in(planned, ""), true},
		"above the bounds":    {in("cake bandwidth 60mbit ingress", ""), in(planned, ""), false},
		"another's beside it": {in(moved, "x"), in(planned, ""), false},
		"a tunnel":            {in(moved, "", "wg0"), in(planned, ""), false},
		"another queue":       {in("cake bandwidth 10mbit", ""), in(planned, ""), false},
		"none":                {kernel.NoIncoming, in(planned, ""), false},
		"none wanted":         {in(moved, ""), kernel.NoIncoming, false},
		"a queue":             {in(moved, ""), kernel.Queue{Stack: stacked(t, planned)}, false},
	} {
		if got := g.Follows(c.now, c.want); got != c.follows {
			t.Errorf("%s: %v", name, got)
		}
	}
	for text, want := range map[string]units.Rate{"cake bandwidth 5mbit": 5e6, "cake": 0, "cake_mq bandwidth 5mbit": 0,
		"htb rate 5mbit | fq_codel": 0, "fq_codel": 0} {
		if rate, ok := Followed(stacked(t, text)); ok != (want != 0) || ok && rate != want {
			t.Errorf("%s: %s, %v", text, rate, ok)
		}
	}
	if rate, ok := Followed(nil); ok || rate != 0 {
		t.Errorf("of none: %s, %v", rate, ok)
	}
}

// What cannot be followed without CAKE can be had by leaving out what was told: a span, or that the rate be found.
func TestWithoutCAKE(t *testing.T) {
	for _, c := range []struct {
		goal Goal
		try  string
	}{
		{Goal{Follow: Auto}, ", or give --rate a rate"},
		{Goal{Rate: 50e6, Follow: "20mbit..80mbit"}, ", or leave --follow out"},
	} {
		f := server(t)
		f.Qdiscs = maps.Clone(f.Qdiscs)
		f.Qdiscs["cake"] = host.No
		p, err := planFor(c.goal, f)
		if err != nil || p.Unavailable == nil || !strings.HasSuffix(p.Unavailable.Try, c.try) {
			t.Errorf("%+v: %+v, %v", c.goal, p.Unavailable, err)
		}
	}
}
