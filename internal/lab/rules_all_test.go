// SPDX-License-Identifier: Apache-2.0

//go:build all

package lab_test

// In make test-all: they take a minute of CPU time each, or more.

import (
	"fmt"
	"strings"
	"testing"
)

// Connections that start and stop leave the link as full as one that goes on. The p99 of one run rests on ten echoes,
// most of them from the moment in which sixteen connections begin; so the median of five runs is held to the promise.
func TestStartAndStop(t *testing.T) {
	const others = `
[[flow]]
name = "eight"
count = 8
start = "6s"
stop = "8s"
[[flow]]
name = "sixteen"
count = 16
start = "9s"
stop = "12s"
[[probe]]
`
	for _, link := range []struct{ mbit, ms float64 }{{12, 71}, {23, 9}, {23, 31}, {50, 20}, {87, 100}} {
		t.Run(fmt.Sprintf("%vmbit %vms", link.mbit, link.ms), func(t *testing.T) {
			used := kept(t, strings.NewReplacer("50mbit", fmt.Sprintf("%vmbit", link.mbit), "48.3ms",
				fmt.Sprintf("%vms", link.ms), "[[probe]]\n", others, `warmup = "5s"`, "warmup = \"6s\"\nseeds = 5").
				Replace(calm),
				link.mbit)
			if least := shapedTo - 100*echoMbit/link.mbit - 2*dips; used < least {
				t.Errorf("goodput is %.2f %% of what the link can carry; want ≥ %.2f", used, least)
			}
		})
	}
}

// On a narrow link what is forwarded leaves room for an echo of the same client. Queues that run dry would go ahead of
// it. CAKE's interval is up to 2 s there, and some of them pass until its queue stands, in which the bound does not
// hold.
func TestForwardedOnNarrowLinks(t *testing.T) {
	for _, link := range []struct {
		mbit, ms float64
		flows    int
	}{{3, 31, 8}, {7, 31, 1}, {7, 31, 16}, {12, 60, 16}, {50, 10, 16}} {
		t.Run(fmt.Sprintf("%vmbit %vms %d", link.mbit, link.ms, link.flows), func(t *testing.T) {
			used := kept(t, strings.NewReplacer("50mbit", fmt.Sprintf("%vmbit", link.mbit), "48.3ms",
				fmt.Sprintf("%vms", link.ms), "[provider]", "[server]\nrelay = true\n[provider]", `name = "downloads"`,
				fmt.Sprintf("name = \"downloads\"\ncount = %d", link.flows), `warmup = "5s"`,
				"warmup = \"10s\"\nseeds = 9").Replace(calm), link.mbit)
			if least := 99 - 100*echoMbit/link.mbit; used < least {
				t.Errorf("goodput is %.2f %% of what the link can carry; want ≥ %.2f", used, least)
			}
		})
	}
}

// Whatever the provider counts of a packet, and however large packets are: told of it, Weir keeps the queue here.
func TestFraming(t *testing.T) {
	for _, provider := range []struct {
		name, counts, told string
	}{
		{"IP alone", "overhead = -14", "0"},
		{"FCS", "overhead = 4", "18"},
		{"a VLAN tag and FCS", "overhead = 8", "18 ether-vlan"},
		{"a wire", "overhead = 24", "ethernet"},
		{"cells", "atm = true\noverhead = 18", "pppoe-vcmux"},
	} {
		for _, mss := range []int{1448, 188} {
			t.Run(fmt.Sprint(provider.name, " ", mss), func(t *testing.T) {
				kept(t, strings.NewReplacer("[provider]", "[provider]\n"+provider.counts,
					`name = "downloads"`, fmt.Sprintf("name = \"downloads\"\ncount = 4\nmss = \"%db\"", mss),
					"weir = {}", fmt.Sprintf("weir = { overhead = %q }", provider.told)).Replace(calm), 50)
			})
		}
	}
}

// The provider's rate can change while a run goes on. What it enforces is what is carried.
func TestProviderChanges(t *testing.T) {
	// Above 50mbit the shaper is the limit, besides what stood in the provider's buffer: 200 ms of 10 s at the most.
	for _, queue := range []string{`queue = "fifo"`, `queue = "fifo"` + "\noverhead = 24", `queue = "bucket"`,
		`queue = "tbf rate {100%} burst 3200b limit 1250000b"`} {
		for _, change := range []struct{ mbit, least, most float64 }{{30, 75, 81}, {70, 98, 102}} {
			t.Run(fmt.Sprint(queue, " ", change.mbit), func(t *testing.T) {
				report := run(t, runner(t), load(t, strings.NewReplacer("[provider]", "[provider]\n"+queue,
					"[[flow]]", fmt.Sprintf("[[provider.change]]\nat = \"10s\"\nrate = \"%vmbit\"\n[[flow]]",
						change.mbit),
					`name = "downloads"`, "name = \"downloads\"\ncount = 4").Replace(calm)))
				p := &report.Points[0]
				used := metric(t, p, &p.Cells[0], "utilisation")
				if used < change.least || used > change.most {
					t.Errorf("%.2f %% of 50mbit were carried, %v for half of the time; want %v to %v", used,
						change.mbit,
						change.least, change.most)
				}
			})
		}
	}
}

// kept tells where an echo of 106 bytes waits longer than is promised, and where the provider has a queue.
func kept(t *testing.T, text string, mbit float64) (used float64) {
	t.Helper()
	report := run(t, runner(t), load(t, text))
	p := &report.Points[0]
	c := &p.Cells[0]
	packet := 1514 * 8 / (mbit * 1e3) // ms
	for _, bound := range []struct {
		name string
		most float64
	}{{"added.p50", max(0.25, otherP50*packet)}, {"added.p99", max(0.5, otherP99*packet)}} {
		if v := metric(t, p, c, bound.name); v > bound.most {
			t.Errorf("%s is %.3f ms; want ≤ %.3f", bound.name, v, bound.most)
		}
	}
	for _, r := range c.Runs {
		if q := r.Provider; q.Drops+q.DropsBefore != 0 {
			t.Errorf("seed %d: the provider dropped %d, and %d in the warm-up", r.Seed, q.Drops, q.DropsBefore)
		}
	}
	return metric(t, p, c, "utilisation")
}

// Many connections of one client leave room for its echo.
func TestManyConnections(t *testing.T) {
	for _, link := range []struct {
		mbit, ms float64
		flows    int
	}{{12, 71, 16}, {23, 31, 33}, {50, 20, 64}, {87, 133, 128}} {
		t.Run(fmt.Sprintf("%vmbit %vms %d", link.mbit, link.ms, link.flows), func(t *testing.T) {
			used := kept(t, strings.NewReplacer("50mbit", fmt.Sprintf("%vmbit", link.mbit), "48.3ms",
				fmt.Sprintf("%vms", link.ms), `name = "downloads"`, fmt.Sprintf("name = \"downloads\"\ncount = %d",
					link.flows)).Replace(calm), link.mbit)
			if least := 99 - 100*echoMbit/link.mbit; used < least {
				t.Errorf("goodput is %.2f %% of what the link can carry; want ≥ %.2f", used, least)
			}
		})
	}
}
