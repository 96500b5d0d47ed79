// SPDX-License-Identifier: Apache-2.0

//go:build all

package shaper

import (
	"encoding/json"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"weir/internal/bpf/bpftest"
	"weir/internal/stats"
	"weir/internal/units"
)

// simulated is what bpf/fair.c says of a run: times in ms at the median, at p99 and the longest.
type simulated struct {
	Util                  float64
	Other, Same, Provider []float64
	Marks, Drops          int
	ProbeDrops            int `json:"probe_drops"`
	Flows                 [][]float64
}

// clients are the bytes of each client.
func (s simulated) clients() []float64 {
	var all []float64
	for _, flows := range s.Flows {
		sum := 0.0
		for _, bytes := range flows {
			sum += bytes
		}
		all = append(all, sum)
	}
	return all
}

// numbers are the parameters at a rate, as the programs take them.
func numbers(rate units.Rate) string {
	p := valid(func(c *Config) { c.Rate = rate }).encode(0, 0).Params
	return fmt.Sprintf("%d,%d,%d,%d,%d,%d,%d", p.NsPerByte, p.SlotBytes, p.TrimGain, p.SettleSlots, p.Target, p.Limit,
		p.SlotShift)
}

func simulate(t *testing.T, program string, seed int, rate units.Rate, groups string) (s simulated) {
	t.Helper()
	const seconds = 3
	args := append([]string{fmt.Sprint(seed), fmt.Sprint(uint64(rate) / 8), fmt.Sprint(seconds), numbers(rate)},
		strings.Fields(groups)...)
	said, err := exec.Command(program, args...).Output()
	if err != nil {
		t.Fatalf("%v: %v", args, err)
	}
	if err := json.Unmarshal(said, &s); err != nil {
		t.Fatalf("%v: %v\n%s", args, err, said)
	}
	t.Logf("%v %s: %.2f %% of the rate, Jain %.4f; probes of another client %.3f, of the last one %.3f, "+
		"provider %.3f ms; %d marks, %d drops", rate, groups, 100*s.Util, stats.Jain(s.clients()), s.Other, s.Same,
		s.Provider, s.Marks, s.Drops)
	return s
}

// TestFair: what clients get whatever they send with, and what a probe waits beside them. The delays are those of the
// probe of another client and of the provider's queue, at p99 in ms; both include each other. All are medians of some
// seeds, as one connection with ECN cannot always use what is its share of a gigabit.
func TestFair(t *testing.T) {
	program := bpftest.Native(t, "bpf/fair.c", "-O2", "-fsanitize=undefined", "-fsanitize-trap=undefined", "-lm")
	const megabit, gigabit = units.Rate(1_000_000), units.Rate(1_000_000_000)
	for _, test := range []struct {
		name            string
		rates           []units.Rate
		groups          string
		judged          int // so many clients, from the first on; 0: all
		jain, util      float64
		other, provider float64
	}{
		{"1 beside 10 connections", []units.Rate{100 * megabit, gigabit, 5 * gigabit / 2, 10 * gigabit, 25 * gigabit},
			"local:1:1 local:1:10", 0, 0.9995, 0.985, 1, 1},
		{"1, 1, 4, 10", []units.Rate{100 * megabit, gigabit, 5 * gigabit / 2, 10 * gigabit},
			"local:2:1 local:1:4 local:1:10", 0, 0.9995, 0.985, 1, 1.2},
		{"1 to 100", []units.Rate{100 * megabit, gigabit, 10 * gigabit},
			"local:5:1 local:3:10 local:2:100", 0, 0.999, 0.985, 2, 2},
		{"ECN", []units.Rate{100 * megabit}, "ecn:1:1 ecn:1:10", 0, 0.9995, 0.98, 1, 1},
		{"routed with ECN", []units.Rate{100 * megabit, gigabit}, "routedecn:1:1 routedecn:1:10", 0, 0.9995, 0.98, 1,
			1},
		{"routed", []units.Rate{100 * megabit}, "routed:1:4 routed:1:10", 0, 0.9995, 0.98, 1, 1},
		{"a flood", []units.Rate{100 * megabit, gigabit, 5 * gigabit / 2}, "local:1:1 local:1:4 flood:1:2", 0, 0.999,
			0.985, 1, 1},
		{"a thousand clients", []units.Rate{gigabit}, "local:900:1 local:100:10", 0, 0.999, 0.96, 4, 4},
		{"ten thousand connections", []units.Rate{gigabit}, "local:2:4000 local:2:1000", 0, 0.9995, 0.96, 4, 4},
		{"clients that come and go", []units.Rate{gigabit, 5 * gigabit / 2, 10 * gigabit},
			"local:4:1 web:100:1", 4, 0.99, 0.96, 2, 2},
	} {
		for _, rate := range test.rates {
			t.Run(fmt.Sprintf("%s/%v", test.name, rate), func(t *testing.T) {
				var jain, util, probes, queues []float64
				for seed := range 9 {
					s := simulate(t, program, seed+1, rate, test.groups)
					judged := s.clients()
					if test.judged != 0 {
						judged = judged[:test.judged]
					}
					jain, util = append(jain, stats.Jain(judged)), append(util, s.Util)
					probes, queues = append(probes, s.Other[1]), append(queues, s.Provider[1])
					if drops := s.Drops - s.ProbeDrops; strings.HasSuffix(test.name, "ECN") && drops != 0 {
						t.Errorf("%d drops with seed %d", drops, seed+1)
					}
				}
				if got := stats.Median(jain); got < test.jain {
					t.Errorf("Jain %.5f, below %v", got, test.jain)
				}
				if got := stats.Median(util); got < test.util {
					t.Errorf("%.4f of the rate, below %v", got, test.util)
				}
				if got := stats.Median(probes); got > test.other {
					t.Errorf("another client's probe waits for %.2f ms, more than %v", got, test.other)
				}
				if got := stats.Median(queues); got > test.provider {
					t.Errorf("the provider's queue is %.2f ms, more than %v", got, test.provider)
				}
			})
		}
	}
}

// TestFlows: within a client its flows share, a flood included, and what is sparse does not wait for them.
func TestFlows(t *testing.T) {
	program := bpftest.Native(t, "bpf/fair.c", "-O2", "-lm")
	const rate = 100_000_000
	for _, groups := range []string{
		"routed:1:4 routed:1:4 flood:0:1 local:1:4 flood:0:1",
		"ecn:1:4 ectflood:0:1 local:1:4 ectflood:0:1", // that marks do not slow down
	} {
		s := simulate(t, program, 1, rate, groups)
		for i, flows := range s.Flows {
			if got := stats.Jain(flows); got < 0.96 {
				t.Errorf("%s: client %d: Jain %.3f of its flows: %.0f", groups, i, got, flows)
			}
		}
		if s.Same[1] > 1.5 || s.ProbeDrops != 0 {
			t.Errorf("%s: the probe of a client with a flood waits for %.2f ms, and %d were dropped", groups,
				s.Same[1], s.ProbeDrops)
		}
	}
}

// TestWeightsAndCaps: a weight of 2 is twice the share, nobody is faster than his cap, and what the capped leave is
// the others'.
func TestWeightsAndCaps(t *testing.T) {
	program := bpftest.Native(t, "bpf/fair.c", "-O2", "-lm")
	const rate, seconds = 100_000_000, 3
	weighted := simulate(t, program, 1, rate, "local:2:1:2 local:2:10:1").clients()
	if got := stats.Jain([]float64{weighted[0] / 2, weighted[1] / 2, weighted[2], weighted[3]}); got < 0.9995 {
		t.Errorf("Jain %.5f by weight: %.0f", got, weighted)
	}
	caps := []float64{5, 10, 15, 20, 30, 50} // Mbit/s
	var groups []string
	for _, c := range caps {
		groups = append(groups, fmt.Sprintf("local:10:1:1:%.0f local:10:10:1:%.0f", c*1e6/8, c*1e6/8))
	}
	s := simulate(t, program, 1, 10*rate, strings.Join(groups, " "))
	got := s.clients()
	level := 0.0 // what those get whose cap is higher
	for i := range got {
		got[i] *= 8 / 1e6 / seconds
		level = max(level, got[i])
	}
	for i, mbit := range got {
		if want := min(caps[i/20], level); mbit > 1.01*want || mbit < 0.97*want {
			t.Errorf("client %d has %.2f Mbit/s, not %.2f: %.2f", i, mbit, want, got)
			break
		}
	}
	if !slices.Contains(got, level) || s.Util < 0.985 {
		t.Errorf("%.4f of the rate", s.Util)
	}
}
