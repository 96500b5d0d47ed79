// SPDX-License-Identifier: Apache-2.0

package lab_test

import (
	"encoding/json"
	"strings"
	"testing"

	"weir/internal/meter"
)

// A client's modem has a FIFO of 20 Mbit/s towards the client, which is the client's first hop, and one of 10 Mbit/s
// towards the provider, which is beyond it. The program tells the two apart.
func TestFirstHop(t *testing.T) {
	r := runner(t)
	report := run(t, r, load(t, `
title = "t"
warmup = "0s"
duration = "36s"
[path]
rtt = "20ms"
[provider]
rate = "100mbit"
buffer = "100ms"
[[client]]
name = "client"
rate = "20mbit"
upload = "10mbit"
buffer = "150ms"
sysctl = { "net.ipv4.ping_group_range" = "0 2147483647" }
[[program]]
name = "serve"
run = ["/bin/sh", "-c", "exec /bin/weir serve --state /tmp >/tmp/line 2>&1"]
[[program]]
name = "measure"
client = "client"
start = "1s"
run = ["/bin/sh", "-c", "set -- $(/usr/bin/grep -o 'measure 10.*' /tmp/line); exec /bin/weir \"$@\" --json"]
files = ["/usr/bin/grep"]
[[candidate]]
name = "as found"
qdisc = "fq_codel"
`))
	var said meter.Result
	for _, p := range report.Points[0].Cells[0].Runs[0].Programs {
		if p.Program != "measure" {
			continue
		}
		text := strings.Join(p.Output, "\n")
		if err := json.Unmarshal([]byte(text[max(strings.Index(text, "{"), 0):]), &said); err != nil {
			t.Fatalf("%.300s: %v", text, err)
		}
	}
	for load, want := range map[string]string{
		meter.Download: "The queue stands on the way back. Most of the wait is on the first hop, between this host " +
			"and 10.1.0.254.",
		meter.Upload: "The queue stands on the way there. Most of the wait is beyond the first hop, which ends at " +
			"10.1.0.254.",
	} {
		p := said.Find(load)
		if p == nil {
			t.Errorf("%s is missing: %s", load, said.Says)
			continue
		}
		if got := said.Waits(*p); !strings.HasSuffix(got, want) {
			t.Errorf("%s: %s\nwant %s\nadded %+v, hop %+v", load, got, want, p.Added, p.Hop)
		}
	}
}
