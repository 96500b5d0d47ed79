// SPDX-License-Identifier: Apache-2.0

//go:build all

package lab_test

// In make test-all: a calibration takes minutes of CPU time a link.

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"weir/internal/calibrate"
	"weir/internal/lab/scenario"
	"weir/internal/meter/server"
	"weir/internal/units"
)

// link is what weir calibrate is to find.
type link struct {
	title    string
	kind     calibrate.Kind
	rate     float64 // bit/s, as the provider counts
	overhead float64 // beside an IP packet
	atm      bool
	credit   bool
	text     string  // the scenario's
	off      float64 // share by which the rate may be off; 0: 0.002
}

// queues are the providers that a rate is tried with.
func queues(rate float64, rtt string, path string) (all []link) {
	add := func(title string, kind calibrate.Kind, overhead float64, credit bool, provider string) {
		all = append(all, link{fmt.Sprintf("%g Mbit/s, %s%s | %s", rate/1e6, rtt, short(path), title), kind, rate,
			overhead, false, credit, fmt.Sprintf("[path]\nrtt = %q\n%s\n[provider]\nrate = \"%v\"\n%s\n", rtt, path,
				units.Rate(rate), provider), 0})
	}
	for _, buffer := range []string{"20ms", "200ms", "1s"} {
		add("FIFO "+buffer, calibrate.FIFO, 14, false, fmt.Sprintf("buffer = %q", buffer))
	}
	for _, burst := range []string{"16kb", "64kb", "256kb"} {
		add("policer "+burst, calibrate.Policer, 0, false, fmt.Sprintf("queue = \"policer\"\nburst = %q", burst))
	}
	for _, credit := range []float64{1, 3} {
		add(fmt.Sprintf("credit %g s", credit), calibrate.FIFO, 14, true,
			fmt.Sprintf("queue = \"tbf rate %v burst %.0fb limit %.0fb peakrate %v mtu 3200b\"", units.Rate(rate),
				rate/8*credit, math.Max(3200, rate/8*0.2), units.Rate(2*rate)))
	}
	return all
}

func short(path string) string {
	if path == "" {
		return ""
	}
	return ", " + strings.ReplaceAll(strings.ReplaceAll(path, "\"", ""), " = ", " ")
}

// framings are what a provider counts of a packet, on a line of 50 and of 8 Mbit/s.
func framings() (all []link) {
	for _, rate := range []float64{5e6, 50e6} {
		for _, more := range []int{-14, 4, 12, 24, 46} {
			all = append(all, link{fmt.Sprintf("%g Mbit/s, 48ms | FIFO 200ms, %d bytes more", rate/1e6, more+14),
				calibrate.FIFO, rate, float64(more + 14), false, false,
				fmt.Sprintf("[path]\nrtt = \"48ms\"\n[provider]\nrate = \"%v\"\noverhead = %d\n", units.Rate(rate),
					more), 0})
		}
	}
	all = append(all, link{"8 Mbit/s, 48ms | FIFO 200ms, ATM, 24 bytes more", calibrate.FIFO, 8e6, 24, true, false,
		"[path]\nrtt = \"48ms\"\n[provider]\nrate = \"8mbit\"\noverhead = 10\natm = true\n", 0})
	return all
}

// beside are links by IPv6, and links that this host's own traffic uses meanwhile.
func beside() (all []link) {
	for _, l := range queues(50e6, "48ms", "") {
		if !strings.HasSuffix(l.title, "200ms") && !strings.HasSuffix(l.title, "64kb") {
			continue
		}
		six := l
		six.title = strings.Replace(l.title, " |", ", IPv6 |", 1)
		six.text = strings.Replace(l.text, "[path]", "[path]\nip = 6", 1)
		all = append(all, six)
		for _, mbit := range []int{5, 25} {
			own := l
			own.title = strings.Replace(l.title, " |", fmt.Sprintf(", own traffic %d Mbit/s |", mbit), 1)
			own.text += fmt.Sprintf("[[flow]]\nname = \"own\"\npace = \"%dmbit\"\n", mbit)
			all = append(all, own)
		}
	}
	return all
}

// drawn are links on which something was wrong once, of those that were drawn at random.
func drawn() (all []link) {
	add := func(title string, kind calibrate.Kind, rate, overhead float64, path, provider string) *link {
		all = append(all, link{title: title, kind: kind, rate: rate, overhead: overhead,
			text: fmt.Sprintf("[path]\n%s\n[provider]\nrate = \"%v\"\n%s\n", path, units.Rate(rate), provider)})
		return &all[len(all)-1]
	}
	add("11.7 Mbit/s, 80ms | cake", calibrate.FairQueue, 11.7e6, 14, `rtt = "80ms"`,
		`queue = "cake bandwidth 11700kbit besteffort"`)
	add("24 Mbit/s, 37ms | FIFO 400ms, ATM, 0 bytes more", calibrate.FIFO, 24e6, 0, `rtt = "37ms"`,
		"buffer = \"400ms\"\noverhead = -14\natm = true").atm = true
	add("42 Mbit/s, 5ms | credit 0.5 s", calibrate.FIFO, 42e6, 14, `rtt = "5ms"`,
		`queue = "tbf rate 42mbit burst 2625000b limit 2625000b peakrate 126mbit mtu 3200b"`).credit = true
	add("42 Mbit/s, 3ms, own application of 4.2 Mbit/s | policer 256kb", calibrate.Policer, 42e6, 0, `rtt = "3ms"`,
		"queue = \"policer\"\nburst = \"256kb\"\n[[flow]]\nname = \"own\"\nchunk = \"52500b\"\ninterval = \"100ms\"").
		off = 0.005 // what the application lost is known by what it sends again, and when it does: 0.32 % in 24 seeds
	add("19.3 Mbit/s, 150ms, loss 0.1%, IPv6 | FIFO 35ms", calibrate.FIFO, 19.3e6, 14,
		"rtt = \"150ms\"\nip = 6\nloss = \"0.1%\"", `buffer = "35ms"`).off = 0.005 // as far away, and with losses
	add("20 Mbit/s, 600ms | FIFO 500ms", calibrate.FIFO, 20e6, 14, `rtt = "600ms"`, `buffer = "500ms"`)
	return all
}

// peer is what weir calibrate is run with, and against: what runs at the client, and the arguments that name it.
type peer struct{ programs, args string }

// served is a weir serve at each of so many clients, of which only the first is called client.
func served(t *testing.T, clients int, name string) peer {
	t.Helper()
	dir := t.TempDir()
	kept, err := server.Keep(dir)
	if err != nil {
		t.Fatal(err)
	}
	cert, key := filepath.Join(dir, "certificate.pem"), filepath.Join(dir, "key.pem")
	var p peer
	for i := range clients {
		at := "client"
		if i > 0 {
			at = fmt.Sprintf("client %d", i+1)
		}
		p.programs += fmt.Sprintf(`
[[program]]
name = "serve %d"
client = %q
run = ["weir", "serve", "--token", "not-a-real-secret", "--state", "/tmp", "--cert", %q, "--key", %q]
files = [%q, %q]
`, i, at, cert, key, cert, key)
		p.args += fmt.Sprintf(`, %q, "--token", "not-a-real-secret", "--pin", %q`,
			strings.ReplaceAll(name, "%d", fmt.Sprint(i)),
			kept.Fingerprint)
	}
	return p
}

// calibrated runs weir calibrate on links, each in a kernel of its own, and those several times that have seeds. What
// it could not find is an error.
func calibrated(t *testing.T, p peer, links []link) (tried []link, results []calibrate.Result, errs []error) {
	t.Helper()
	var files []string
	var scenarios []scenario.Scenario
	for _, l := range links {
		files = append(files, l.title)
		scenarios = append(scenarios, load(t, "title = \"t\"\nwarmup = \"0s\"\nduration = \"45s\"\n"+l.text+`
[[probe]]
name = "echo"
kind = "udp"
interval = "1s"
`+p.programs+`
[[program]]
name = "calibrate"
start = "1s"
run = ["weir", "calibrate", "--json"`+p.args+`]
[[candidate]]
name = "as found"
qdisc = "fq_codel"
`))
	}
	reports, err := runner(t).Run(context.Background(), files, scenarios)
	if err != nil {
		t.Fatal(err)
	}
	for i, r := range reports {
		for _, run := range r.Points[0].Cells[0].Runs {
			for _, program := range run.Programs {
				if program.Program != "calibrate" {
					continue
				}
				// Progress is above the document, and below it that it is not verified.
				said := strings.Join(program.Output, "\n")
				_, document, _ := strings.Cut("\n"+said, "\n{")
				var result calibrate.Result
				err := json.NewDecoder(strings.NewReader("{" + document)).Decode(&result)
				if err != nil {
					err = errors.New(said)
				}
				tried, results, errs = append(tried, links[i]), append(results, result), append(errs, err)
			}
		}
	}
	return tried, results, errs
}

// A dozen of the cells of results/calibrate.md, with what is promised of them.
func TestCalibrate(t *testing.T) {
	links := append(append(queues(50e6, "48ms", ""), framings()[5:]...), drawn()...)
	tried, results, errs := calibrated(t, served(t, 1, "{client}"), links)
	for i, l := range tried {
		judge(t, l, results[i], errs[i])
	}
}

// judge holds what was found of a link to what is promised.
func judge(t *testing.T, l link, r calibrate.Result, err error) {
	t.Helper()
	if err != nil {
		t.Errorf("%s: %v", l.title, err)
		return
	}
	if e := r.Rate.Value/l.rate - 1; math.Abs(e) > cmp.Or(l.off, 0.002) {
		t.Errorf("%s: rate %+.2f %%", l.title, 100*e)
	}
	if r.Kind != l.kind || (r.Credit.Value > 0) != l.credit || r.ATM != l.atm {
		t.Errorf("%s: %s, credit %v, ATM %v", l.title, r.Kind, r.Credit, r.ATM)
	}
	if l.overhead < r.Overhead.Low-0.5 || l.overhead > r.Overhead.High+0.5 {
		t.Errorf("%s: overhead %v", l.title, r.Overhead)
	}
	if !r.Verified.Calm {
		t.Errorf("%s: not verified: %+v", l.title, r.Verified)
	}
}

// Whatever the peer is, the same is found. Two peers fill what neither could alone.
func TestCalibratePeers(t *testing.T) {
	iperf := peer{`
[[program]]
name = "iperf3 server"
client = "client"
run = ["/usr/bin/iperf3", "-s"]
`, `, "iperf3://{client}"`}
	if _, err := os.Stat("/usr/bin/iperf3"); err != nil {
		t.Skip("skipped, not passed: there is no iperf3 (scripts/need test)")
	}
	const clients = `
[[client]]
name = "client"
rate = "35mbit"
[[client]]
name = "client 2"
rate = "35mbit"
`
	both := link{"50 Mbit/s, 48ms | two clients of 35 Mbit/s", calibrate.FIFO, 50e6, 14, false, false,
		"[path]\nrtt = \"48ms\"\n[provider]\nrate = \"50mbit\"\n" + clients, 0}
	plain := queues(50e6, "48ms", "")
	far := queues(13e6, "150ms", "")[3]
	far.text = "seeds = 3\n" + far.text // connections that end were once taken for a path that loses, in one of ten
	for _, c := range []struct {
		name  string
		peer  peer
		links []link
	}{
		{"https", served(t, 1, "https://{client}:4747/.well-known/nq?token=not-a-real-secret"),
			[]link{plain[1], framings()[8], plain[4]}},
		{"iperf3", iperf, []link{plain[1], framings()[8], plain[4], far}},
		{"two", served(t, 2, "10.1.%d.1"), []link{both}},
	} {
		t.Run(c.name, func(t *testing.T) {
			tried, results, errs := calibrated(t, c.peer, c.links)
			for i, l := range tried {
				judge(t, l, results[i], errs[i])
			}
		})
	}
}

var (
	calibrateTable = flag.String("calibrate", "", "write the table of results/calibrate.md to this file")
	calibrateOnly  = flag.String("cells", "", "only cells whose title has this in it")
)

// It writes the table of results/calibrate.md: scripts/calibrate-table.
func TestCalibrateTable(t *testing.T) {
	if *calibrateTable == "" {
		t.Skip("skipped, not passed: -calibrate FILE is not given")
	}
	var links []link
	for _, rate := range []float64{5e6, 50e6} {
		for _, rtt := range []string{"5ms", "48ms"} {
			links = append(links, queues(rate, rtt, "")...)
		}
	}
	for _, path := range []string{"loss = \"1%\"", "jitter = \"5ms\""} {
		for i, l := range queues(50e6, "48ms", path) {
			if i == 0 || i == 1 || i == 4 {
				links = append(links, l)
			}
		}
	}
	links = append(links, queues(50e6, "150ms", "")...)
	links = append(links, beside()...)
	links = append(links, framings()...)
	for _, rate := range []float64{500e6, 1e9} {
		links = append(links, queues(rate, "48ms", "")...)
	}
	var chosen []link
	for _, l := range links {
		if strings.Contains(l.title, *calibrateOnly) {
			chosen = append(chosen, l)
		}
	}
	f, err := os.Create(*calibrateTable)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	chosen, results, errs := calibrated(t, served(t, 1, "{client}"), chosen)
	writeTable(f, chosen, results, errs)
}

func writeTable(w io.Writer, links []link, results []calibrate.Result, errs []error) {
	fmt.Fprintf(w, "| link | provider | found | rate | interval | framing: is, found | loss | verified: waits | took |\n"+
		"|---|---|---|---|---|---|---|---|---|\n")
	within, kinds, bytes := 0, 0, 0
	for i, r := range results {
		l := links[i]
		if errs[i] != nil {
			fmt.Fprintf(w, "| %s | %s |\n", l.title, errs[i])
			continue
		}
		e := r.Rate.Value/l.rate - 1
		kind := r.Kind == l.kind && (r.Credit.Value > 0) == l.credit
		if math.Abs(e) <= 0.002 {
			within++
		}
		if kind {
			kinds++
		}
		if r.Overhead.Sort == calibrate.Within && r.ATM == l.atm && (math.Abs(r.Overhead.Value-l.overhead) <= 0.5 ||
			l.atm && r.Overhead.Low <= l.overhead && l.overhead <= r.Overhead.High) {
			bytes++
		}
		found := string(r.Kind)
		if r.Credit.Value > 0 {
			found += ", credit"
		}
		framing := fmt.Sprintf("%.0f, %.0f", l.overhead, r.Overhead.Value)
		switch {
		case r.Overhead.Sort == calibrate.Unknown:
			framing = fmt.Sprintf("%.0f, not known", l.overhead)
		case r.ATM:
			framing = fmt.Sprintf("%.0f, ATM %.0f to %.0f", l.overhead, r.Overhead.Low, r.Overhead.High)
		}
		verified := fmt.Sprintf("no: %.1f ms, sent %.1f %%, lost %.2f %%", 1e3*r.Verified.Added, 100*r.Verified.Sent,
			100*r.Verified.Loss)
		if r.Verified.Calm {
			verified = fmt.Sprintf("%.1f ms", math.Abs(1e3*r.Verified.Added))
		}
		fmt.Fprintf(w, "| %s | %s | %+.2f %% | ± %.2f %% | %s | %.2f %% | %s | %.1f s |\n", l.title, found, 100*e,
			100*(r.Rate.High/r.Rate.Value-1), framing, 100*r.Loss.Value, verified, r.Took)
	}
	n := len(links)
	fmt.Fprintf(w, "\nOf %d: rate within 0.2 %% in %d, kind and credit right in %d, framing right in %d.\n", n, within,
		kinds, bytes)
}
