// SPDX-License-Identifier: Apache-2.0

//go:build all

package lab_test

// In make test-all: what measures is beside what is true in many boots: minutes.

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"weir/internal/lab/measure"
	"weir/internal/lab/scenario"
	"weir/internal/meter"
	"weir/internal/meter/server"
	"weir/internal/stats"
)

// measured is what weir measure says of a link, beside what the lab's own probe saw on the same link at the same time.
type measured struct {
	title, phase string
	err          error

	full         bool // the sender's kernel said so
	rate         stats.Estimate
	arrived      float64 // Mbit/s of data that the receiver's kernel counted meanwhile
	payload      float64 // Mbit/s that the provider's rate leaves for data; 0: not to be known
	p50, p99     stats.Estimate
	is50, is99   float64 // what the lab's probe saw, ms above its own idle median
	sent, lost   int     // of weir's probes
	isSent, gone int     // of the lab's
	known        bool    // weir gave figures for the delays
}

// inTLS is what TLS 1.3 leaves of a record of 16 KiB (RFC 8446, section 5.2).
const inTLS = 16384. / (16384 + 5 + 1 + 16)

// payloads is the part of a provider's rate that data takes: a TCP segment's 1448 bytes of an Ethernet frame's 1514, or
// 1428 over IPv6, of these what TLS leaves, and without what the two probes send.
func payloads(mbit float64, six bool) float64 {
	const (
		frame    = 1514
		longer   = 20 // IPv6's header than IPv4's
		weir     = 60
		lab      = 64
		interval = 10e-3 // s between two probes of each
	)
	segment, headers := 1448., 14.+20+8 // Ethernet, IPv4, UDP
	if six {
		segment, headers = segment-longer, headers+longer
	}
	probes := (weir + lab + 2*headers) * 8 / interval / 1e6
	return (mbit - probes) * segment / frame * inTLS
}

// truths are links to measure: [path], [provider], and the rate that the provider enforces on frames, if what arrives
// follows from it.
func truths() (all []struct {
	title, text string
	mbit        float64
}) {
	add := func(mbit float64, rtt, path, queue string, full bool) {
		rate := mbit
		if !full {
			mbit = 0
		}
		tidy := strings.NewReplacer(`"`, "", " | ", ", ", "queue = ", "", "buffer =", "FIFO", "ip 6", "IPv6")
		all = append(all, struct {
			title, text string
			mbit        float64
		}{tidy.Replace(fmt.Sprintf("%g Mbit/s, %s%s, %s", rate, rtt, short(path), queue)),
			fmt.Sprintf("[path]\nrtt = %q\n%s\n[provider]\nrate = \"%gmbit\"\n%s\n", rtt, path, rate, queue), mbit})
	}
	for _, mbit := range []float64{3, 10, 50, 200} {
		for _, rtt := range []string{"5ms", "48ms", "250ms"} {
			add(mbit, rtt, "", `buffer = "200ms"`, true)
			cake := fmt.Sprintf(`queue = "cake bandwidth %gmbit besteffort"`, mbit)
			add(mbit, rtt, "", cake, false) // its drops leave some of the link unused
		}
	}
	for _, mbit := range []float64{10, 50, 200} {
		for _, rtt := range []string{"5ms", "48ms"} {
			add(mbit, rtt, "", `queue = "policer"`, false)
			add(mbit, rtt, "", fmt.Sprintf(`queue = "htb rate %gmbit | dualpi2"`, mbit), false)
		}
	}
	for _, path := range []string{`loss = "0.1%"`, `loss = "1%"`, `loss = "5%"`, `jitter = "5ms"`} {
		add(50, "48ms", path, `buffer = "200ms"`, false)
	}
	add(1000, "5ms", "", `buffer = "50ms"`, true)
	const six = "ip = 6"
	for _, mbit := range []float64{10, 50, 200} {
		add(mbit, "5ms", six, `buffer = "200ms"`, true)
	}
	add(50, "48ms", six, `buffer = "200ms"`, true)
	add(50, "48ms", six, `queue = "cake bandwidth 50mbit besteffort"`, false)
	add(50, "48ms", six, `queue = "policer"`, false)
	add(50, "48ms", six, `queue = "htb rate 50mbit | dualpi2"`, false)
	return all
}

// counting is a program that prints, twenty times a second, when it is and what the kernel's established TCP
// connections have received in order.
const counting = `
[[program]]
name = "count %s"
client = %q
run = ["/bin/sh", "-c", """
while :; do
	date +at:%%s.%%N
	ss -tinH state established | grep -o 'bytes_received:[0-9]*'
	sleep 0.05
done"""]
files = ["/usr/bin/ss", "/usr/bin/date", "/usr/bin/grep", "/usr/bin/sleep"]
`

// counted is what such a program printed.
type counted struct {
	at, bytes []float64 // s since 1970
}

func read(output []string) (c counted) {
	for _, line := range output {
		name, text, _ := strings.Cut(line, ":")
		n, err := strconv.ParseFloat(text, 64)
		switch last := len(c.at) - 1; {
		case err != nil:
		case name == "at":
			c.at, c.bytes = append(c.at, n), append(c.bytes, 0)
		case last >= 0:
			c.bytes[last] += n
		}
	}
	return c
}

// rate is Mbit/s of data in the time given.
func (c counted) rate(from, to float64) float64 {
	first := slices.IndexFunc(c.at, func(at float64) bool { return at >= from })
	last := slices.IndexFunc(c.at, func(at float64) bool { return at >= to })
	if first < 0 || last <= first+1 {
		return math.NaN()
	}
	last-- // before the connections end
	return (c.bytes[last] - c.bytes[first]) * 8 / 1e6 / (c.at[last] - c.at[first]) * inTLS
}

// measuredLinks measures links by weir measure, each in a kernel of its own, with so many seeds. Its probe and the
// lab's are two samples of one queue.
func measuredLinks(t *testing.T, seeds int, only ...string) (all []measured) {
	t.Helper()
	dir := t.TempDir()
	kept, err := server.Keep(dir)
	if err != nil {
		t.Fatal(err)
	}
	cert, key := filepath.Join(dir, "certificate.pem"), filepath.Join(dir, "key.pem")
	var files []string
	var scenarios []scenario.Scenario
	var mbit []float64
	for _, l := range truths() {
		if !slices.ContainsFunc(only, func(part string) bool { return strings.Contains(l.title, part) }) {
			continue
		}
		files, mbit = append(files, l.title), append(mbit, l.mbit)
		scenarios = append(scenarios, load(t, "title = \"t\"\nwarmup = \"0s\"\nduration = \"40s\"\n"+
			fmt.Sprintf("seeds = %d\n", seeds)+l.text+fmt.Sprintf(`
[[probe]]
name = "echo"
kind = "udp"
interval = "10ms"
[[program]]
name = "serve"
run = ["weir", "serve", "--token", "not-a-real-secret", "--state", "/tmp", "--cert", %q, "--key", %q]
files = [%q, %q]
[[program]]
name = "measure"
client = "client"
start = "1s"
run = ["weir", "measure", "{server}", "--json", "--token", "not-a-real-secret", "--pin", %q]
[[candidate]]
name = "as found"
qdisc = "fq_codel"
`, cert, key, cert, key, kept.Fingerprint)+fmt.Sprintf(counting, meter.Download, "client")+
			fmt.Sprintf(counting, meter.Upload, "")))
	}
	reports, err := runner(t).Run(context.Background(), files, scenarios)
	if err != nil {
		t.Fatal(err)
	}
	for i, r := range reports {
		for _, run := range r.Points[0].Cells[0].Runs {
			all = append(all, compared(files[i], mbit[i], run)...)
		}
	}
	return all
}

// compared sets what the program says beside what the lab saw, phase by phase.
func compared(title string, mbit float64, run measure.Run) (all []measured) {
	var said meter.Result
	receivers := map[string]counted{} // by load
	for _, p := range run.Programs {
		if load, ok := strings.CutPrefix(p.Program, "count "); ok {
			receivers[load] = read(p.Output)
		}
		if p.Program != "measure" {
			continue
		}
		text := strings.Join(p.Output, "\n")
		if err := json.Unmarshal([]byte(text[max(strings.Index(text, "{"), 0):]), &said); err != nil {
			return []measured{{title: title, err: fmt.Errorf("%.200s: %w", text, err)}}
		}
	}
	if said.Recording == nil {
		return []measured{{title: title, err: fmt.Errorf("nothing was measured")}}
	}
	const ramp = 2.0 // s, what of a load does not count
	if whole := (meter.Way{ECN: meter.Kept, DSCP: meter.Kept, MTU: 1500}); len(said.Paths) != 1 ||
		said.Paths[0].There != whole || said.Paths[0].Back != whole {
		return append(all, measured{title: title, err: fmt.Errorf("the path is %+v", said.Paths)})
	}
	probe := run.Probes[0]
	starts := aligned(probe, said.Recording.Samples)
	began := float64(said.Recording.Time.UnixMilli()) / 1e3
	within := func(from, to float64) (waits []float64, lost int) {
		for i, at := range probe.At {
			switch {
			case at < from || at >= to:
			case probe.Series[i] < 0:
				lost++
			default:
				waits = append(waits, probe.Series[i])
			}
		}
		slices.Sort(waits)
		return waits, lost
	}
	idle := 0.0
	for _, s := range said.Recording.Spans {
		p := said.Find(s.Name)
		from := starts + s.From
		if s.Name != meter.Idle {
			from += ramp
		}
		waits, lost := within(from, starts+s.To)
		if p == nil || len(waits) == 0 {
			return append(all, measured{title: title, err: fmt.Errorf("%s is missing", s.Name)})
		}
		if s.Name == meter.Idle {
			idle = stats.Quantile(waits, 0.5)
			continue
		}
		m := measured{title: title, phase: s.Name, rate: p.Goodput[s.Name],
			arrived: receivers[s.Name].rate(began+s.From+ramp, began+s.To), is50: stats.Quantile(waits, 0.5) - idle,
			is99: stats.Quantile(waits, 0.99) - idle, sent: p.Sent, lost: p.Lost, isSent: len(waits) + lost,
			gone: lost}
		if m.full = len(p.Senders) == 1 && p.Senders[0].Full; m.full && mbit > 0 {
			m.payload = payloads(mbit, strings.Contains(title, "IPv6"))
		}
		if m.known = p.Added != nil; m.known {
			m.p50, m.p99 = p.Added.P50, p.Added.P99
		}
		all = append(all, m)
	}
	return all
}

// aligned is how many seconds after the run the program's clock began: when the waits that both saw are most alike.
func aligned(probe measure.Probe, samples []meter.Sample) (best float64) {
	const from, to, step = 1., 7., 0.01 // the program starts after 1 s, shakes hands, and looks at the path
	seen := make([]float64, int(60/step))
	for i, at := range probe.At {
		seen[min(int(at/step), len(seen)-1)] = max(probe.Series[i], 0)
	}
	least := math.Inf(1)
	for offset := from; offset < to; offset += step {
		apart := 0.
		for _, s := range samples {
			if i := int((s.At + offset) / step); s.RTT >= 0 && i < len(seen) {
				apart += math.Abs(s.RTT - seen[i])
			}
		}
		if apart < least {
			least, best = apart, offset
		}
	}
	return best
}

// near is whether a delay is within 0.2 ms or 3 % of what it is.
func (m measured) near(e stats.Estimate, is float64) bool {
	return math.Abs(e.Value-is) <= max(0.2, 0.03*is)
}

// covers is whether an interval has what it is meant to have, give or take what the other sample is off: 0.2 ms.
func covers(e stats.Estimate, is float64) bool { return e.Low-0.2 <= is && is <= e.High+0.2 }

// A few of the links of results/measure.md, with what is promised of them. An AQM that drops at random gives two
// samples medians of their own, so two runs of three decide of the delay.
func TestTruth(t *testing.T) {
	const seeds = 3
	far := map[string][]string{} // runs in which the delay is another, by link and load
	for _, m := range measuredLinks(t, seeds, "50 Mbit/s, 48ms, FIFO", "10 Mbit/s, 5ms, cake", "10 Mbit/s, 48ms, htb") {
		switch load := m.title + ", " + m.phase; {
		case m.err != nil:
			t.Errorf("%s: %v", m.title, m.err)
		case !m.known || !m.near(m.p50, m.is50):
			far[load] = append(far[load], fmt.Sprintf("%.2f ms, and it is %.2f", m.p50.Value, m.is50))
		case !(math.Abs(m.rate.Value/m.arrived-1) <= 0.005): // nor NaN
			t.Errorf("%s: goodput %.2f Mbit/s, and it is %.2f", load, m.rate.Value, m.arrived)
		case m.payload > 0 && math.Abs(m.rate.Value/m.payload-1) > 0.005:
			t.Errorf("%s: goodput %.2f Mbit/s, and the link carries %.2f", load, m.rate.Value, m.payload)
		}
	}
	for load, runs := range far {
		if 2*len(runs) > seeds {
			t.Errorf("%s: added p50 %s", load, strings.Join(runs, "; "))
		}
	}
}

var truthTable = flag.String("truth", "", "write the table of results/measure.md to this file")

// It writes the table of results/measure.md: scripts/measure-table.
func TestTruthTable(t *testing.T) {
	if *truthTable == "" {
		t.Skip("skipped, not passed: -truth FILE is not given")
	}
	f, err := os.Create(*truthTable)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	writeTruth(f, measuredLinks(t, 1, *calibrateOnly))
}

func writeTruth(w io.Writer, all []measured) {
	fmt.Fprint(w, "| link | load | goodput: said, is (fits) | added p50: said, is | added p99: said, is | "+
		"lost: said, is |\n|---|---|---|---|---|---|\n")
	var cells, failed, rates, ratesIn, fulls, filled, half, most, halfIn, mostIn int
	for _, m := range all {
		if m.err != nil {
			failed++
			fmt.Fprintf(w, "| %s | %s | |\n", m.title, m.err)
			continue
		}
		count := func(n *int, is bool) {
			if is {
				*n++
			}
		}
		rate := fmt.Sprintf("%s, %s", meter.Figure(m.rate.Value), meter.Figure(m.arrived))
		count(&rates, math.Abs(m.rate.Value/m.arrived-1) <= 0.005)
		count(&ratesIn, m.rate.Low <= m.arrived*1.001 && m.arrived*0.999 <= m.rate.High)
		if m.payload > 0 {
			rate += fmt.Sprintf(" (%s)", meter.Figure(m.payload))
			fulls++
			count(&filled, math.Abs(m.rate.Value/m.payload-1) <= 0.005)
		}
		delays := "– | –"
		if m.known {
			cells++
			count(&half, m.near(m.p50, m.is50))
			count(&most, m.near(m.p99, m.is99))
			count(&halfIn, covers(m.p50, m.is50))
			count(&mostIn, covers(m.p99, m.is99))
			delays = fmt.Sprintf("%s, %s | %s, %s", meter.Figure(m.p50.Value), meter.Figure(m.is50),
				meter.Figure(m.p99.Value), meter.Figure(m.is99))
		}
		fmt.Fprintf(w, "| %s | %s | %s | %s | %d of %d, %d of %d |\n", m.title, m.phase, rate, delays, m.lost, m.sent,
			m.gone, m.isSent)
	}
	fmt.Fprintf(w, "\nOf %d loads: goodput within 0.5 %% in %d, p50 within 0.2 ms or 3 %% in %d, p99 in %d. The "+
		"interval has the truth\nof goodput in %d, of p50 in %d, of p99 in %d. Of %d full links with a known rate: "+
		"goodput within 0.5 %%\nof what fits in %d.\n", cells, rates, half, most, ratesIn, halfIn, mostIn,
		fulls, filled)
	if failed > 0 {
		fmt.Fprintf(w, "%d failed.\n", failed)
	}
}
