// SPDX-License-Identifier: Apache-2.0

package watch

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"

	"weir/internal/bbr"
	"weir/internal/change"
	"weir/internal/doctor"
	"weir/internal/follow/presence"
	"weir/internal/host"
	"weir/internal/kernel"
	"weir/internal/meter/live"
	"weir/internal/qdisc"
	"weir/internal/shaper"
	"weir/internal/stats"
	"weir/internal/tcp"
	"weir/internal/text"
	"weir/internal/units"
)

// busy is a host in the third minute of a test that has moved the bottleneck here and away.
func busy() State {
	q := Queue{Dev: "ens3", Kind: "cake", Rate: 49_875_000, Speed: 1e9}
	var s State
	for i := range 180 {
		x := Second{At: at(i), Span: units.Duration(time.Second), Looks: Counts, Drops: 12, Marks: 3, Bytes: 6_234_000,
			Backlog: 37_500, Qlen: 25}
		if i < 120 { // before: a single download, which its application limits
			x = Second{At: at(i), Span: x.Span, Looks: Counts, Empty: Counts, Bytes: 2_000_000}
		}
		part := func(name string, packets, bytes, drops, marks uint64, delay time.Duration) kernel.Part {
			return kernel.Part{Name: name, Packets: packets, Bytes: bytes, Drops: drops, Marks: marks,
				Delay: units.Duration(delay), Counts: true}
		}
		x.Parts = []kernel.Part{part("bulk", 0, 0, 0, 0, 0),
			part("besteffort", 4100, x.Bytes, x.Drops, x.Marks, 5300*time.Microsecond),
			part("video", 0, 0, 0, 0, 0), part("voice", 50, 4000, 0, 0, 120*time.Microsecond)}
		in := Second{At: at(i), Span: x.Span, Looks: Counts, Empty: Counts, Bytes: 100_000}
		s.Add(Event{Out: &Ended{q, x}, In: &Ended{Queue{Dev: qdisc.IFB, Kind: "cake", Rate: 100e6}, in}})
	}
	network := func(name string, conns int, floor, added, out, in, again float64, l tcp.Limit) live.Network {
		return live.Network{Network: name, Connections: conns, RTT: stats.Dist{N: 9}, Floor: floor,
			Added: stats.Dist{N: 9, P50: added}, Out: out, In: in, Retransmitted: again,
			CC: map[string]int{"bbr": 1}, Limits: map[tcp.Limit]int{l: 1}}
	}
	s.Add(Event{Clients: &live.Result{Seconds: 2, All: live.Network{Connections: 17}, Networks: []live.Network{
		network("203.0.113.0/24", 12, 48.3, 6.1, 38.2, 0.4, 0.002, tcp.Network),
		network("2001:db8:1234::/48", 4, 160, 0.3, 9.1, 0.1, 0.031, tcp.Receiver),
		{Network: "198.51.100.0/24", Connections: 1, CC: map[string]int{"cubic": 1}}}},
		Goal: &Goal{At: at(170), Status: change.Status{Up: true, InForce: true, Unconfirmed: true,
			RevertsIn: units.Duration(52 * time.Second)}}})
	note := func(code doctor.Code, plain string) doctor.Finding {
		return doctor.Finding{Code: code, Severity: doctor.Notable, Plain: plain}
	}
	s.Add(Event{Doctor: &Diagnosis{At: at(60), Findings: []doctor.Finding{note("a", "Connections start slowly.")}}})
	s.Add(Event{Doctor: &Diagnosis{At: at(119), Findings: []doctor.Finding{note("queue-here", "Packets wait here.")},
		Unknown: []host.Unread{{What: "a tunnel's port", Why: "needs root"}}}})
	return s
}

func words(s change.Status, err error) string {
	if err != nil {
		return "unreadable: " + err.Error()
	}
	return fmt.Sprintf("in force, and reverts in %v.", s.RevertsIn)
}

// followed is that host with a follower, which does something at its outgoing queue.
func followed(running bool, does presence.Doing) State {
	s := busy()
	s.Add(Event{Followed: []presence.Queue{{Dev: "ens3", Rate: 99.75e6, Low: 9.975e6, High: 199.5e6, Running: running,
		Doing: does, Start: "systemctl start weir-follow"}, {Dev: qdisc.IFB, AfterProvider: true, Rate: 85e6, Low: 85e6,
		High: 99.75e6, Running: running, Start: "systemctl start weir-follow"}, {Dev: "ens9", Rate: 1e6}}})
	return s
}

var update = flag.Bool("update", false, "write the screens into testdata")

// The screen as text.
func TestScreen(t *testing.T) {
	paused := busy()
	unseen := busy()
	unseen.Out.Hidden, unseen.Out.Kind = "what the BPF queue holds by itself only root can see (CAP_SYS_ADMIN)",
		"dualpi2.12ab34"
	unseen.ClientsWhy, unseen.Goal.Err = "the module tcp_diag is not loaded", errors.New("not for you")
	cut := followed(true, presence.Doing{Tries: "more is tried", Last: &presence.Step{At: at(171), From: 99.75e6,
		To: 49.875e6, Why: "packets waited 42 ms beyond this host"}})
	senders, model := busy(), func(state string, held bool) bbr.Connection {
		return bbr.Connection{Model: &bbr.Model{State: state, OthersQueue: held}}
	}
	senders.Add(Event{BBR: sendersOf([]bbr.Connection{model("CRUISE", true), model("UP", false), model("CRUISE", true),
		{Version: "0123abcd"}})})
	shaped := busy()
	for i := range 7 {
		shaped.Out.Clients = append(shaped.Out.Clients, shaper.ClientRate{Client: fmt.Sprint("10.8.0.", i), Weight: 1,
			Rate: units.Rate(20e6 / (i + 1)), Share: units.Share(0.4 / float64(i+1)), Drops: uint64(i),
			Wait: units.Duration(i) * 1e6})
	}
	shaped.Out.Kind, shaped.Out.Clients[0].Limit = "bpf_shaper", 20e6
	shaped.In.Clients = []shaper.ClientRate{{Client: "2001:db8:1234:5678::/64", Rate: 5e5, Share: 1, Marks: 3}}
	for name, c := range map[string]struct {
		s State
		v View
	}{
		"bpf_shaper": {shaped, View{Width: 100}},
		"bpf_bbr":    {senders, View{Width: 100}},
		"80x24":      {busy(), View{Width: 80, Height: 24}},
		"200x60":     {busy(), View{Width: 200, Height: 60}},
		"once":       {busy(), View{Width: 100}},
		"paused":     {paused, View{Width: 80, Height: 30, Paused: true, Sort: 1, Filter: "2001", Typing: true}},
		"unseen":     {unseen, View{Width: 80, Height: 24}},
		"start":      {State{}, View{Width: 80, Height: 24}},

		"followed-80x24":  {cut, View{Width: 80, Height: 24}},
		"followed-200x60": {cut, View{Width: 200, Height: 60}},
		"unfollowed":      {followed(false, presence.Doing{}), View{Width: 80, Height: 24}},
	} {
		c.v.Words = words
		got := strings.Join(c.v.Lines(c.s), "\n") + "\n"
		golden := filepath.Join("testdata", name+".txt")
		if *update {
			if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if want, err := os.ReadFile(golden); err != nil || got != string(want) {
			t.Errorf("%s: %v\n%s\nwant\n%s", name, err, got, want)
		}
		doc, err := os.ReadFile("../../docs/measuring.md")
		shown := "    " + strings.ReplaceAll(strings.TrimSuffix(got, "\n"), "\n", "\n    ") + "\n"
		if err != nil || name == "80x24" && !strings.Contains(string(doc), shown) {
			t.Errorf("docs/measuring.md does not have %s: %v", golden, err)
		}
	}
}

// The follower's lines are of what the queues have now, whatever its status said some seconds ago.
func TestFollowedNow(t *testing.T) {
	s := followed(true, presence.Doing{})
	q := s.Out.Queue
	q.Rate = 30e6
	s.Add(Event{Out: &Ended{q, Second{At: at(181)}}, Followed: s.Goal.Followed})
	tries := followed(true, presence.Doing{Tries: "packets wait 14.8 ms beyond this host and for all to see, and more"})
	incoming := followed(true, presence.Doing{})
	incoming.In.Queue = Queue{Dev: qdisc.IFB, Kind: "cake", Rate: 91e6}
	incoming.Add(Event{In: &Ended{Queue: incoming.In.Queue}, Followed: incoming.Goal.Followed[1:]})
	searching := State{Now: at(0), Out: Track{Queue: Queue{Dev: "ens3", Kind: "fq"}}}
	searching.Add(Event{Goal: &Goal{At: at(0), Status: change.Status{Followed: []presence.Queue{{Dev: "ens3"}}}},
		Followed: []presence.Queue{{Dev: "ens3", Running: true, Doing: presence.Doing{Waits: "little is sent"}}}})
	for want, got := range map[string]State{"Followed:  30mbit now, of 9.975mbit to 199.5mbit": s,
		"Followed:  49.875mbit now, of 9.975mbit to 199.5mbit: packets wait 14.8 ms beyond this host and for all " +
			"to see, and more": tries,
		"Learnt:    91mbit now on ifb-weir, of 85mbit to 99.75mbit": incoming,
		"The rate is not known yet: little is sent.":                searching} {
		if lines := (View{Width: 100}).followed(got); len(lines) == 0 || lines[0] != want {
			t.Errorf("%q, want %q", lines, want)
		}
	}
	if line := s.Line(); line.Goal.Followed[0].Rate != 30e6 {
		t.Errorf("%+v", line.Goal.Followed)
	}
}

// Whatever the size, and whatever things are called: the screen is filled, no line is wider, and nothing in it is a
// terminal's command.
func TestAnySize(t *testing.T) {
	s := followed(true, presence.Doing{Tries: "\x1b[2J"})
	s.Out.Dev = "e\x1b[2J\n" + strings.Repeat("x", 300)
	s.Goal.Followed[0].Dev = s.Out.Dev
	s.Findings[0].Plain = "\x1b]0;title\a"
	for width := 1; width < 220; width += 7 {
		for height := 1; height < 70; height += 3 {
			v := View{Width: width, Height: height, Words: words, Filter: "\x1b"}
			lines := v.Lines(s)
			if len(lines) != height {
				t.Fatalf("%dx%d: %d lines", width, height, len(lines))
			}
			for _, l := range lines {
				if text.Width(l) > width || strings.ContainsAny(l, "\x1b\n\a") {
					t.Fatalf("%dx%d: %q", width, height, l)
				}
			}
		}
	}
}

// However narrow the terminal, the timer can be read, and what is printed once can be read to its end.
func TestNarrow(t *testing.T) {
	s := busy()
	s.Findings[0].Plain = "This server's processor is too busy: in 88 % of the last 10 s something waited for it."
	s.Doctor.Unknown[0].Why = "needs CAP_SYS_PTRACE, which root does not have here"
	timer := "Goal: in force, and reverts in 43s."
	for height, want := range map[int][]string{24: {timer}, 0: {timer, s.Findings[0].Plain, s.unseen()}} {
		lines := View{Width: 30, Height: height, Words: words}.Lines(s)
		shown := strings.Join(strings.Fields(strings.Join(lines, " ")), " ")
		for _, sentence := range want {
			if !strings.Contains(shown, sentence) {
				t.Errorf("30x%d does not say %q:\n%s", height, sentence, strings.Join(lines, "\n"))
			}
		}
	}
}

func TestOrders(t *testing.T) {
	for i, want := range []string{"203.0.113.0/24", "203.0.113.0/24", "2001:db8:1234::/48", "203.0.113.0/24",
		"198.51.100.0/24"} {
		if got := (View{Sort: i}).filtered(busy().Clients.Networks)[0].Network; got != want {
			t.Errorf("by %s: %s, want %s", orders()[i].name, got, want)
		}
	}
	if got := (View{Filter: "CUBIC"}).filtered(busy().Clients.Networks); len(got) != 1 || got[0].Connections != 1 {
		t.Errorf("%v", got)
	}
}

// Keys do what the foot of the screen says.
func TestKeys(t *testing.T) {
	s := screen{look: View{Words: words}, state: busy()}
	var m tea.Model = s
	m, _ = m.Update(tea.WindowSizeMsg{Width: 80, Height: 24})
	press := func(keys ...rune) string {
		for _, k := range keys {
			key := tea.Key{Code: k}
			if k > ' ' && k < 127 {
				key.Text = string(k)
			}
			m, _ = m.Update(tea.KeyPressMsg(key))
		}
		return m.View().Content
	}
	if got := press('p'); !strings.Contains(got, "PAUSED") || !strings.Contains(got, "p go on") {
		t.Error(got)
	}
	before := m.View().Content
	m, _ = m.Update(Event{Out: &Ended{Queue{Dev: "other"}, Second{At: at(500)}}})
	if m.View().Content != before {
		t.Error("it goes on though it is paused")
	}
	if got := press('p'); !strings.Contains(got, "other") {
		t.Error("what came while it was paused is lost", got)
	}
	if got := press('s'); !strings.Contains(got, "by added RTT") {
		t.Error(got)
	}
	if got := press('/', 'q', '2', tea.KeyBackspace); !strings.Contains(got, "filter: q_") ||
		!strings.Contains(got, `0 with "q"`) {
		t.Error(got)
	}
	if got := press(tea.KeyEscape); strings.Contains(got, "filter: q") || strings.Contains(got, "with") {
		t.Error(got)
	}
	if _, quit := m.Update(tea.KeyPressMsg{Code: 'q', Text: "q"}); quit == nil {
		t.Error("q does not quit")
	}
}
