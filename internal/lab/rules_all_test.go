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
