// SPDX-License-Identifier: Apache-2.0

//go:build all

package lab_test

// In make test-all: they take half a minute of CPU time.

import "testing"

// Short connections come as often and as large as was asked for, whatever the candidate; who sends a chunk at a time
// sends no more; a client's own access holds it; and a neighbour's traffic passes the provider's limiter beside the
// server's shaper.
func TestTraffic(t *testing.T) {
	r := runner(t)
	report := run(t, r, load(t, `title = "t"
warmup = "1s"
duration = "9s"
[path]
rtt = "20ms"
[provider]
rate = "50mbit"
[[client]]
name = "dsl"
rate = "10mbit"
upload = "1mbit"
buffer = "50ms"
[[client]]
name = "fibre"
[[flow]]
name = "download"
client = "dsl"
[[flow]]
name = "pages"
client = "fibre"
every = "100ms"
bytes = "20kb"
sizes = "exponential"
stop = "9s"
[[flow]]
name = "video"
client = "fibre"
chunk = "250kb"
interval = "1s"
[[flow]]
name = "theirs"
client = "fibre"
host = "neighbour"
start = "6s"
[[probe]]
name = "echo"
kind = "udp"
client = "fibre"
[[probe]]
name = "behind the modem"
kind = "udp"
client = "dsl"
[[candidate]]
name = "as found"
[[candidate]]
name = "Weir"
weir = {}
[[sweep]]
key = "path.ip"
values = [4, 6]
`))
	for i := range report.Points {
		p := &report.Points[i]
		found, weir := &p.Cells[0], &p.Cells[1]
		var sizes [2][]int64
		for k, c := range []int{0, 1} {
			for _, f := range p.Cells[c].Runs[0].Flows {
				if f.Flow == "pages" {
					sizes[k] = append(sizes[k], f.Bytes)
				}
			}
		}
		if n := len(sizes[0]); n < 50 || n > 130 {
			t.Errorf("%d pages in 8 s at one each 100 ms", n)
		}
		for _, c := range []struct {
			what     string
			got      float64
			from, to float64
		}{
			// 10 Mbit/s carry 9.5 of payload.
			{"the access's goodput, Mbit/s", metric(t, p, found, "goodput.flow.download"), 7, 9.6},
			{"the modem's queue of 50 ms", metric(t, p, found, "added.behind the modem.p50"), 20, 55},
			// One chunk is 2.048 Mbit, and nine or ten fall into nine seconds.
			{"the video, Mbit/s", metric(t, p, weir, "goodput.flow.video"), 2.04, 2.3},
			{"what is left unused, with nobody else", metric(t, p, weir, "utilisation.2s-5s"), 20, 40},
			{"what the neighbour takes", metric(t, p, weir, "utilisation.8s-10s"), 95, 110},
			{"a page, s", metric(t, p, weir, "fetch.pages.p50"), 0.03, 0.3},
		} {
			if c.got < c.from || c.got > c.to {
				t.Errorf("%v: %s: %v, expected %v to %v", p.Labels, c.what, c.got, c.from, c.to)
			}
		}
		// Nobody here shapes what a neighbour sends.
		if waits := metric(t, p, weir, "added.echo.max"); waits < 50 {
			t.Errorf("%v: an echo waits %v ms at most, and a neighbour fills a FIFO of 200 ms", p.Labels, waits)
		}
	}
}

// A burst passes at the peak rate, and what comes after it at the rate.
func TestPeak(t *testing.T) {
	r := runner(t)
	report := run(t, r, load(t, `title = "t"
duration = "4s"
columns = ["utilisation.1s-2s", "utilisation.3s-4s"]
[path]
rtt = "10ms"
[provider]
rate = "20mbit"
queue = "bucket"
burst = "16mb"
buffer = "10mb"
[[flow]]
name = "download"
[[candidate]]
name = "as found"
[[sweep]]
key = "provider.peak"
values = ["40mbit", "80mbit"]
`))
	var got []float64 // % of the rate
	for i := range report.Points {
		p := &report.Points[i]
		got = append(got, metric(t, p, &p.Cells[0], "utilisation.1s-2s"), metric(t, p, &p.Cells[0], "utilisation.3s-4s"))
	}
	// Above the rate 16 MiB last for 6.7 s at 40 Mbit/s, and for 2.2 s at 80.
	for i, want := range []float64{200, 200, 400, 100} {
		if got[i] < 0.97*want || got[i] > 1.03*want {
			t.Errorf("of the rate %v %%, expected %v %%: %v", got[i], want, got)
			break
		}
	}
}
