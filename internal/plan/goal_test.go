// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"math/rand/v2"
	"os/exec"
	"reflect"
	"strings"
	"testing"
	"time"

	"weir/internal/host"
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
			"one-cake": units.Rate(r.Uint64N(1e11)).String(),
			"follow":   []string{"auto", "20mbit..100mbit", "1.5gbit..2gbit"}[r.IntN(3)],
			"rtt":      units.Duration(1 + r.Int64N(1e9)).String(), "nat": "true", "runtime": "true",
			"overhead": []string{"38 mpu 84", "raw", "-4", "pppoe-vcmux", "30 ptm", "raw overhead 4"}[r.IntN(6)],
		}[f.Name]
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
