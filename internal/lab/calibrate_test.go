// SPDX-License-Identifier: Apache-2.0

package lab_test

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"math"
	"os"
	"strings"
	"testing"

	"weir/internal/calibrate"
	"weir/internal/lab/scenario"
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
	text     string // the scenario's
}

// queues are the providers that a rate is tried with.
func queues(rate float64, rtt string, path string) (all []link) {
	add := func(title string, kind calibrate.Kind, overhead float64, credit bool, provider string) {
		all = append(all, link{fmt.Sprintf("%g Mbit/s, %s%s | %s", rate/1e6, rtt, short(path), title), kind, rate, overhead,
			false, credit, fmt.Sprintf("[path]\nrtt = %q\n%s\n[provider]\nrate = \"%v\"\n%s\n", rtt, path,
				units.Rate(rate), provider)})
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
				fmt.Sprintf("[path]\nrtt = \"48ms\"\n[provider]\nrate = \"%v\"\noverhead = %d\n", units.Rate(rate), more)})
		}
	}
	all = append(all, link{"8 Mbit/s, 48ms | FIFO 200ms, ATM, 24 bytes more", calibrate.FIFO, 8e6, 24, true, false,
		"[path]\nrtt = \"48ms\"\n[provider]\nrate = \"8mbit\"\noverhead = 10\natm = true\n"})
	return all
}

// calibrated runs weir calibrate on links, each in a kernel of its own. What it could not find is an error.
func calibrated(t *testing.T, links []link) (results []calibrate.Result, errs []error) {
	t.Helper()
	var files []string
	var scenarios []scenario.Scenario
	for _, l := range links {
		files = append(files, l.title)
		scenarios = append(scenarios, load(t, "title = \"t\"\nwarmup = \"0s\"\nduration = \"1s\"\n"+l.text+`
[[probe]]
name = "echo"
kind = "udp"
[[candidate]]
name = "calibrate"
calibrate = true
`))
	}
	reports, err := runner(t).Run(context.Background(), files, scenarios)
	if err != nil {
		t.Fatal(err)
	}
	results, errs = make([]calibrate.Result, len(links)), make([]error, len(links))
	for i, r := range reports {
		said := r.Points[0].Cells[0].Runs[0].Weir[0]
		if json.Unmarshal([]byte(said), &results[i]) != nil {
			errs[i] = fmt.Errorf("%s", said)
		}
	}
	return results, errs
}

// A dozen of the cells of docs/calibrate.md, with what is promised of them.
func TestCalibrate(t *testing.T) {
	if testing.Short() {
		t.Skip("skipped, not passed: a dozen boots of 15 s each")
	}
	links := append(queues(50e6, "48ms", ""), framings()[5:]...)
	results, errs := calibrated(t, links)
	for i, r := range results {
		l := links[i]
		if errs[i] != nil {
			t.Errorf("%s: %v", l.title, errs[i])
			continue
		}
		if e := r.Rate.Value/l.rate - 1; math.Abs(e) > 0.002 {
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
}

var (
	calibrateTable = flag.String("calibrate", "", "write the table of docs/calibrate.md to this file")
	calibrateOnly  = flag.String("cells", "", "only cells whose title has this in it")
)

// It writes the table of docs/calibrate.md: scripts/calibrate-table.
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
	results, errs := calibrated(t, chosen)
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
		if r.Overhead.Sort == calibrate.Is && r.ATM == l.atm && (math.Abs(r.Overhead.Value-l.overhead) <= 0.5 ||
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
