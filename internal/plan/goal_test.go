// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os/exec"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"weir/internal/hint"
	"weir/internal/host"
	"weir/internal/qdisc"
	"weir/internal/units"
)

// The table has each field of a goal that a file can have, under the same name, and no other.
func TestFieldsAreTheGoals(t *testing.T) {
	keys := map[string]bool{}
	for _, f := range Fields() {
		keys[f.key()] = true
	}
	goal := reflect.TypeFor[Goal]()
	for i := range goal.NumField() {
		key, _, _ := strings.Cut(goal.Field(i).Tag.Get("toml"), ",")
		if key != "-" && !keys[key] {
			t.Errorf("%s is in no row of the table", goal.Field(i).Name)
		}
		delete(keys, key)
	}
	delete(keys, "runtime") // which is about this run, and no file's business
	if len(keys) > 0 {
		t.Errorf("%v are no fields of a goal", keys)
	}
}

// generated is a goal with some of all that it can say.
func generated(r *rand.Rand) (g Goal) {
	some := func() bool { return r.IntN(2) == 0 }
	for _, f := range Fields() {
		if !some() {
			continue
		}
		value := map[string]string{
			"dev": "eth0", "cc": "bbr", "qdisc": `htb rate 49mbit | fq_codel`,
			"loss": units.Share(r.Float64() / 2).String(),
			"rate": units.Rate(r.Uint64N(1e12)).String(), "ingress": units.Rate(r.Uint64N(1e9)).String(),
			"client": []string{"10.8.0.7=20mbit", "10.8.0.0/24=weight:2,fd00::/48=5mbit/weight:3",
				keyA + "=5mbit"}[r.IntN(3)],
			"client-default": units.Rate(r.Uint64N(1e9)).String(),
			"one-cake":       units.Rate(r.Uint64N(1e11)).String(),
			"follow":         []string{"auto", "20mbit..100mbit", "1.5gbit..2gbit"}[r.IntN(3)],
			"rtt":            units.Duration(1 + r.Int64N(1e9)).String(), "nat": "true", "runtime": "true",
			"overhead": []string{"38 mpu 84", "raw", "-4", "pppoe-vcmux", "30 ptm", "raw overhead 4"}[r.IntN(6)],
		}[f.Name]
		if value == "" && len(f.Values) == 0 {
			panic("generated has no value for --" + f.Name + ": add one to its map")
		}
		if value == "" {
			value = f.Values[r.IntN(len(f.Values))]
		}
		if err := f.Set(&g, value); err != nil {
			panic(err)
		}
	}
	return g
}

// What a goal writes of itself is read back as the same.
func TestArgsReadBack(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 1000 {
		goal := generated(r)
		var back Goal
		args := goal.Args()
		for i := 0; i < len(args); i++ {
			for _, f := range Fields() {
				switch {
				case args[i] != "--"+f.Name:
					continue
				case f.Type == "bool":
					_ = f.Set(&back, "true")
				default:
					i++
					if err := f.Set(&back, args[i]); err != nil {
						t.Fatalf("%v: %v", args, err)
					}
				}
				break
			}
		}
		if back != goal {
			t.Fatalf("%v\nreads as %+v\nand was  %+v", args, back, goal)
		}
	}
}

// What is printed to be typed means the same to a shell, whatever a device is called.
func TestFlagsAreAShells(t *testing.T) {
	for _, dev := range []string{"eth0", "é$(x);\\", `a"b`, "it's", "a`b`", "a&b|c", "*", "a#~!"} {
		goal := Goal{Dev: dev, Qdisc: "htb rate 49mbit | fq_codel"}
		typed, err := exec.Command("sh", "-c", `printf '%s\n' `+goal.Flags()).Output()
		if want := strings.Join(goal.Args(), "\n") + "\n"; err != nil || string(typed) != want {
			t.Errorf("%s: %q, %v", goal.Flags(), typed, err)
		}
	}
}

// A client with many connections is told what its other packets wait for, where the turn of all is long.
// DualPI2 drops much where each of many connections has few packets in flight.
func TestOverloads(t *testing.T) {
	for _, c := range []struct {
		rate units.Rate
		rtt  time.Duration
		busy int
		want bool
	}{
		{12e6, 40 * time.Millisecond, 16, true}, {23e6, 40 * time.Millisecond, 16, false},
		{23e6, 40 * time.Millisecond, 33, true}, {6e6, 40 * time.Millisecond, 4, false},
		{100e6, 5 * time.Millisecond, 60, true}, {100e6, 0, 60, false}, {12e6, 40 * time.Millisecond, 0, false},
	} {
		g := Goal{Rate: c.rate, RTT: units.Duration(c.rtt), Prefer: "l4s"}
		notes := g.Crowded(host.Sockets{Busy: c.busy, Most: c.busy})
		if got := len(notes) == 1 && notes[0].Subject == "L4S"; got != c.want || len(notes) > 1 {
			t.Errorf("%d at %s, %s: %v", c.busy, c.rate, c.rtt, notes)
		}
	}
}

func TestCrowded(t *testing.T) {
	for name, c := range map[string]struct {
		goal Goal
		most int
		want string
	}{
		"many":            {Goal{Rate: 12e6}, 33, "a turn of theirs takes 33ms"},
		"few":             {Goal{Rate: 12e6}, 16, ""},
		"many, and fast":  {Goal{Rate: 87e6}, 128, ""},
		"nobody":          {Goal{Rate: 1e6}, 0, ""},
		"no rate":         {Goal{}, 500, ""},
		"not CAKE":        {Goal{Rate: 12e6, Prefer: "l4s"}, 33, ""},
		"a queue's text":  {Goal{Rate: 12e6, Qdisc: "fq"}, 33, ""},
		"others' clients": {Goal{Rate: 12e6, Role: "relay", Carries: "forward"}, 33, ""},
	} {
		notes := c.goal.Crowded(host.Sockets{Most: c.most})
		if (c.want == "") != (len(notes) == 0) || len(notes) > 0 && !strings.Contains(notes[0].Text, c.want) {
			t.Errorf("%s: %v", name, notes)
		}
	}
}

// A field that a person fills in wrongly is refused with the reason, and leaves no other refusal behind it.
func TestFieldsRefuse(t *testing.T) {
	for _, c := range []struct{ name, text, want string }{
		{"dev", "", "no device is named"}, {"dev", " \t", "no device is named"}, {"qdisc", "", "no queue is named"},
		{"role", "", "no value is given"}, {"carries", "", "no value is given"}, {"cc", " ", "no value is given"},
		{"rate", "fast", `"fast"`}, {"rate", "20mbit..", "is not a span"}, {"rate", "..20mbit", "is not a span"},
		{"rate", "20mbit...5mbit", "is not a span"}, {"rate", "x..5mbit", `"x"`}, {"rate", "5mbit..x", `"x"`},
		{"follow", "20mbit", "is not a span"}, {"follow", "5mbit..x", `"x"`}, {"ingress", "x", `"x"`},
		{"rtt", "0ms", "RTT must be above 0"}, {"rtt", "soon", `"soon"`}, {"loss", "much", "much"},
		{"nat", "perhaps", "perhaps"}, {"overhead", "much", "much"},
	} {
		i := slices.IndexFunc(Fields(), func(f Field) bool { return f.Name == c.name })
		if err := Fields()[i].Set(&Goal{}, c.text); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("--%s %q: %v, want %s", c.name, c.text, err, c.want)
		}
	}
	for text, want := range map[string]string{"auto": "", "5mbit..10mbit": "auto and 5mbit..10mbit contradict"} {
		for _, set := range []func(*Goal, string) error{setRate, setFollow} {
			err := set(&Goal{Follow: Auto}, text)
			if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
				t.Errorf("auto, then %s: %v, want %q", text, err, want)
			}
		}
	}
}

// What a shell offers for a field.
func TestFieldsSuggest(t *testing.T) {
	f := with(t, tunnel("wg0", "wireguard"))
	f.Links = append(f.Links, host.Link{Name: qdisc.IFB, Kind: "ifb"})
	for name, want := range map[string][]string{"dev": {"eth0", "eth1", "wg0"}, "rate": {"auto"}, "follow": {"auto"},
		"cc":    {"auto", "keep", "cubic", "reno", "bbr", "dctcp", "bpf_bbr"},
		"qdisc": qdisc.Kinds(), "overhead": qdisc.Framings()} {
		i := slices.IndexFunc(Fields(), func(f Field) bool { return f.Name == name })
		if got := Fields()[i].Suggests(f); !slices.Equal(got, want) {
			t.Errorf("--%s: %q, want %q", name, got, want)
		}
	}
}

// Each range ends where it says: the last value within is fine, and the next is not.
func TestRangesEnd(t *testing.T) {
	for name, c := range map[string]struct {
		goal Goal
		want string // "" where it is fine
	}{
		"least rate":               {Goal{Rate: 64_000}, ""},
		"less":                     {Goal{Rate: 63_999}, "too little"},
		"least ingress":            {Goal{Ingress: 64_000}, ""},
		"less ingress":             {Goal{Ingress: 63_999}, "too little"},
		"shortest RTT":             {Goal{RTT: 1000}, ""},
		"shorter RTT":              {Goal{RTT: 999}, "shorter than any path"},
		"longest RTT":              {Goal{RTT: ms(10_000)}, ""},
		"longer RTT":               {Goal{RTT: ms(10_000) + 1}, "longer than any path"},
		"most loss":                {Goal{Loss: 0.5}, ""},
		"more loss":                {Goal{Loss: 0.51}, "carries no TCP"},
		"negative loss":            {Goal{Loss: -0.01}, "carries no TCP"},
		"least CAKE":               {Goal{Rate: 1e6, OneCAKE: 64_000}, ""},
		"a CAKE that carries less": {Goal{Rate: 1e6, OneCAKE: 63_999}, "serves nobody"},
		"lowest span":              {Goal{Rate: 64_000, Follow: "64kbit..100kbit"}, ""},
		"a lower span":             {Goal{Rate: 64_000, Follow: "63kbit..100kbit"}, "63kbit would leave too little"},
		"the span's end":           {Goal{Rate: 100e6, Follow: "20mbit..100mbit"}, ""},
		"beyond it":                {Goal{Rate: 100e6 + 1, Follow: "20mbit..100mbit"}, "is not between"},
		"before it":                {Goal{Rate: 20e6 - 1, Follow: "20mbit..100mbit"}, "is not between"},
		"a framing that is none":   {Goal{Rate: 1e6, Overhead: qdisc.Framing{ATM: "dsl"}}, "--overhead: "},
	} {
		err := c.goal.Check()
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
	for follow, want := range map[Span]string{"100mbit..20mbit": "--rate 20mbit..100mbit, the lower rate first",
		"7mbit..7mbit": "--rate 20mbit..100mbit, the lower rate first", "30mbit..7mbit": "--rate 7mbit..30mbit, the"} {
		var refusal *hint.Error
		if err := (Goal{Rate: 7e6, Follow: follow}).Check(); !errors.As(err, &refusal) ||
			!strings.HasPrefix(refusal.Try, want) {
			t.Errorf("%s: %+v, want %s", follow, refusal, want)
		}
	}
}

// The speed of a link is the last rate that it can have; of many devices eight are named.
func TestDeviceBounds(t *testing.T) {
	f := server(t)
	for _, g := range []Goal{{Rate: 1e9}, {Ingress: 1e9}, {Rate: 1e9 + 1}, {Ingress: 1e9 + 1}} {
		_, err := g.device(f)
		if fine := g.Rate <= 1e9 && g.Ingress <= 1e9; (err == nil) != fine {
			t.Errorf("%+v: %v", g, err)
		}
	}
	f.Links[1].Speed = 0
	if _, err := (Goal{Rate: 5e9, Ingress: 5e9}).device(f); err != nil {
		t.Errorf("of a speed that is not known: %v", err)
	}
	all := host.Facts{}
	for n := 1; n <= 9; n++ {
		all.Links = append(all.Links, host.Link{Name: fmt.Sprintf("e%d", n)})
		want := map[int]string{1: " (there are: e1)", 8: " (there are: e1, e2, e3, e4, e5, e6, e7, e8)",
			9: " (there are: e1, e2, e3, e4, e5, e6, e7, e8, …)"}[n]
		if got := listDevices(all); want != "" && got != want {
			t.Errorf("%d devices: %q", n, got)
		}
	}
}

// A bridge is no device for a rate, whether one card leads out of it or several.
func TestBridgeAskedFor(t *testing.T) {
	for ports, want := range map[int]string{0: "", 1: "what goes from port to port",
		2: "is a bridge of several cards"} {
		f := with(t, func(f *host.Facts) {
			f.Links = append(f.Links, host.Link{Name: "br0", Kind: "bridge", Up: true, MTU: 1500})
		})
		for i := range ports {
			f.Links[1+i].Master, f.Links[1+i].Up = "br0", true
		}
		for rate, want := range map[units.Rate]string{50e6: want, 0: ""} {
			_, err := Goal{Dev: "br0", Rate: rate}.device(f)
			if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
				t.Errorf("%d ports, %s: %v, want %q", ports, rate, err, want)
			}
		}
	}
}

// A goal as it was written stands for the one that was brought up where it leaves open what was found.
func TestMeans(t *testing.T) {
	up := Goal{Dev: "eth0", Rate: 50e6, Follow: Auto, RTT: ms(50), Role: "relay", Carries: "wireguard"}
	served := Goal{Dev: "eth0", Rate: 50e6, RTT: ms(50), Serves: "udp"}
	runtime := Goal{Dev: "eth0", Rate: 50e6, Runtime: true}
	for name, c := range map[string]struct {
		written, up Goal
		want        bool
	}{
		"all said":                      {up, up, true},
		"all found":                     {Goal{Follow: Auto, Role: "relay"}, up, true},
		"no role":                       {Goal{Follow: Auto}, up, false},
		"another RTT":                   {Goal{Follow: Auto, Role: "relay", RTT: ms(20)}, up, false},
		"carries otherwise":             {Goal{Follow: Auto, Role: "relay", Carries: "proxy"}, up, false},
		"another device":                {Goal{Dev: "eth1", Follow: Auto, Role: "relay"}, up, false},
		"served":                        {Goal{Rate: 50e6}, served, true},
		"served as said":                {Goal{Rate: 50e6, Serves: "udp"}, served, true},
		"served otherwise":              {Goal{Rate: 50e6, Serves: "tcp"}, served, false},
		"until the reboot":              {Goal{Rate: 50e6}, runtime, true},
		"nothing":                       {Goal{}, Goal{}, false},
		"a rate that was no follower's": {Goal{Dev: "eth0", Follow: Auto}, Goal{Dev: "eth0", Rate: 50e6}, false},
	} {
		if got := c.written.Means(c.up); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
	for _, c := range []struct {
		goal, before Goal
		want         units.Rate
	}{{Goal{Follow: Auto}, Goal{Follow: Auto, Rate: 7e6}, 7e6}, {Goal{Follow: Auto}, Goal{Rate: 7e6}, 0},
		{Goal{Follow: Auto, Rate: 5e6}, Goal{Follow: Auto, Rate: 7e6}, 5e6},
		{Goal{}, Goal{Follow: Auto, Rate: 7e6}, 0}} {
		if got := c.goal.AsFound(c.before).Rate; got != c.want {
			t.Errorf("%+v after %+v: %s", c.goal, c.before, got)
		}
	}
}
