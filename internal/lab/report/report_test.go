// SPDX-License-Identifier: Apache-2.0

package report

import (
	"bytes"
	"encoding/json"
	_ "image/png"
	"math"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"weir/internal/lab/measure"
	"weir/internal/lab/scenario"
	"weir/internal/lab/verdict"
	"weir/internal/page"
	"weir/internal/stats"
	"weir/internal/units"
)

// sample is a report with everything in it: two points, three candidates, hostile names, lost probes, claims of every
// verdict.
func sample() []verdict.Report {
	run := func(seed uint64, rtt, goodput float64) measure.Run {
		r := measure.Run{Seed: seed, Kernel: "7.3.4", Seconds: 20, Goodput: goodput, Series: measure.Series{Step: 0.1}}
		probe := measure.Probe{Probe: "echo", Kind: "udp", Client: "client", Base: 48.3, Sent: 1001, Lost: 1}
		var delays []float64
		for i := range 1000 {
			d := rtt + 3*math.Sin(float64(i)/40)
			delays = append(delays, d)
			probe.At = append(probe.At, float64(i)/50)
			probe.Series = append(probe.Series, d)
		}
		probe.At, probe.Series = append(probe.At, 20), append(probe.Series, -1)
		probe.Delay = stats.NewDist(delays)
		r.Probes = []measure.Probe{probe}
		group := measure.FlowSeries{Flow: "downloads"}
		for i := range 4 {
			r.Flows = append(r.Flows, measure.Flow{Flow: "downloads", Client: "client",
				Goodput: goodput / 10 * float64(i+1)})
		}
		for i := range 200 {
			group.Values = append(group.Values, goodput+math.Cos(float64(i)))
			r.Series.Uplink = append(r.Series.Uplink, 20)
			r.Series.Provider = append(r.Series.Provider, rtt)
		}
		r.Series.Goodput = []measure.FlowSeries{group}
		r.Provider.Drops = uint64(rtt)
		return r
	}
	s := scenario.Scenario{Title: "A <b>title</b>", Seeds: 2, Duration: units.Duration(20 * time.Second),
		Warmup: units.Duration(5 * time.Second)}
	s.Provider = scenario.Provider{Rate: 50_000_000, Queue: "fifo",
		Buffer: scenario.Buffer{Time: units.Duration(200 * time.Millisecond)}}
	s.Path.RTT = units.Duration(48300 * time.Microsecond)
	s.Client = []scenario.Client{{Name: "client"}}
	s.Flow = []scenario.Flow{{Name: "downloads", Count: 4, Client: "client"}}
	point := func(label string, extra float64) verdict.Point {
		return verdict.Point{Labels: []string{label}, Values: []string{label}, Scenario: s, Cells: []verdict.Cell{
			{Candidate: "as found | cubic", Runs: []measure.Run{run(1, 212.34+extra, 47.77),
				run(2, 213.45+extra, 47.71)}, Words: "The queue stands <there>."},
			{Candidate: "seed", Runs: []measure.Run{run(1, 110.12+extra, 46.5), run(2, 111.1+extra, 46.4)}},
			{Candidate: "Weir", Runs: []measure.Run{run(1, 52.42, 47.65), run(2, 52.41, 47.66)}, Words: "Calm."},
		}}
	}
	claim := scenario.Claim{Source: "seed 000", Says: "it is <calm>", Metric: "added.p50", Candidate: "Weir",
		Expect: "<= 1ms", Note: "A note."}
	return []verdict.Report{{
		File: "x.toml", Title: s.Title, About: "About it.", Kernel: "7.3.4",
		Points: []verdict.Point{point("FIFO", 0), point("policer", 20)},
		Claims: []verdict.Verdict{
			{Claim: claim, Verdict: verdict.Reproduced, Unit: "ms",
				At: []verdict.Measured{{Labels: []string{"FIFO"},
					Value: stats.Spread{Median: 0.12, Min: 0.1, Max: 0.2}, Holds: true}}},
			{Claim: claim, Verdict: verdict.NotReproduced, Unit: "ms"},
			{Claim: claim, Verdict: verdict.OnlyWhen, Holds: "FIFO", Unit: "ms"},
		},
	}}
}

// numbers are what every form must show, from the results as JSON carries them.
func numbers(t *testing.T, reports []verdict.Report) []string {
	t.Helper()
	text, err := json.Marshal(reports)
	if err != nil {
		t.Fatal(err)
	}
	var back []verdict.Report
	if err := json.Unmarshal(text, &back); err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, r := range back {
		for i := range r.Points {
			p := &r.Points[i]
			for k := range p.Cells {
				for _, name := range []string{"goodput", "added.p50", "added.p99", "jitter", "lost", "provider.drops"} {
					m, err := measure.ParseMetric(name)
					if err != nil {
						t.Fatal(err)
					}
					v, ok := p.Of(m, &p.Cells[k])
					if !ok {
						t.Fatalf("%s is missing", name)
					}
					all = append(all, page.Number(v.Median, m.Unit))
				}
			}
		}
	}
	return all
}

func TestTerminal(t *testing.T) {
	var b bytes.Buffer
	if err := Terminal(&b, sample(), false); err != nil {
		t.Fatal(err)
	}
	for n, line := range strings.Split(b.String(), "\n") {
		if w := utf8.RuneCountInString(line); w > maxWidth {
			t.Errorf("line %d has %d columns: %s", n+1, w, line)
		}
		if strings.TrimRight(line, " ") != line {
			t.Errorf("line %d ends in spaces", n+1)
		}
	}
	if strings.Contains(b.String(), "\x1b") {
		t.Error("colour codes without a terminal")
	}
	for _, want := range numbers(t, sample()) {
		if !strings.Contains(b.String(), want) {
			t.Errorf("%s is missing", want)
		}
	}
	var coloured bytes.Buffer
	if err := Terminal(&coloured, sample(), true); err != nil || !strings.Contains(coloured.String(), "\x1b[32m") {
		t.Errorf("no colours on a terminal: %v", err)
	}
	if plain := regexp.MustCompile("\x1b\\[[0-9]*m").ReplaceAllString(coloured.String(), ""); plain != b.String() {
		t.Error("colours change the layout")
	}
}

func TestMarkdown(t *testing.T) {
	var b bytes.Buffer
	if err := Markdown(&b, sample(), "weir-lab run x.toml"); err != nil {
		t.Fatal(err)
	}
	text := b.String()
	for _, want := range append(numbers(t, sample()), "`weir-lab run x.toml`", `as found \| cubic`, "&lt;calm&gt;",
		"**not reproduced**") {
		if !strings.Contains(text, want) {
			t.Errorf("%s is missing", want)
		}
	}
}

func TestNumber(t *testing.T) {
	for _, c := range []struct {
		v          float64
		unit, want string
	}{{0.1216, "ms", "0.12"}, {213.45, "ms", "213.4"}, {-0.001, "ms", "0.00"}, {1234.5, "", "1234"},
		{97, "packets", "97"}} {
		if got := page.Number(c.v, c.unit); got != c.want {
			t.Errorf("page.Number(%v, %q) = %s, want %s", c.v, c.unit, got, c.want)
		}
	}
}

// The figures for programs are the medians of the tables, with their digits; what waited here is there besides.
func TestFigures(t *testing.T) {
	reports := sample()
	reports[0].File = "somewhere/scenarios/relay/x.toml"
	figures := NewFigures(&reports[0])
	var b bytes.Buffer
	if err := figures.Write(&b); err != nil {
		t.Fatal(err)
	}
	var read Figures
	if err := json.Unmarshal(b.Bytes(), &read); err != nil || !reflect.DeepEqual(read, figures) {
		t.Fatalf("%v: %s", err, b.String())
	}
	if read.Scenario != "relay/x" || read.Kernel != "7.3.4" || len(read.Rows) != 6 || read.Units["added.p50"] != "ms" {
		t.Errorf("got %+v", read)
	}
	row := read.Rows[0]
	if row.Point != "FIFO" || row.Candidate != "as found | cubic" || row.Values["goodput"] != "47.74" ||
		row.Values["uplink.backlog"] != "0.00" || row.Values["jain.flows"] != "" {
		t.Errorf("got %+v", row)
	}
	var tables bytes.Buffer
	if err := Markdown(&tables, reports, "weir-lab run"); err != nil {
		t.Fatal(err)
	}
	for _, row := range read.Rows {
		if p99 := row.Values["added.p99"]; !strings.Contains(tables.String(), "| "+p99.String()+" ") {
			t.Errorf("the tables do not have %s", p99)
		}
	}
}

// What goes up is not added to what goes down, and each probe has a column of its own.
func TestColumns(t *testing.T) {
	upload, download := scenario.Flow{Name: "u", Direction: "up", Count: 1}, scenario.Flow{Name: "d", Count: 1}
	probe := func(name, kind string) scenario.Probe { return scenario.Probe{Name: name, Kind: kind} }
	for _, c := range []struct {
		flows         []scenario.Flow
		probes        []scenario.Probe
		want, without string
	}{
		{nil, nil, "goodput", "goodput.up"},
		{[]scenario.Flow{download}, nil, "goodput", "goodput.down"},
		{[]scenario.Flow{upload}, nil, "goodput", "goodput.up"},
		{[]scenario.Flow{download, upload}, nil, "goodput.down goodput.up", "goodput"},
		{nil, []scenario.Probe{probe("a", "ssh")}, "ssh.p50 ssh.p99", "probe.a.p50"},
		{nil, []scenario.Probe{probe("a", "ssh"), probe("b", "ssh")},
			"probe.a.p50 probe.a.p99 probe.b.p50 probe.b.p99", "ssh.p50"},
		{nil, []scenario.Probe{probe("a", "udp"), probe("b", "udp"), probe("c", "ssh")},
			"added.a.p50 added.a.p99 added.b.p50 added.b.p99 ssh.p50 ssh.p99", "added.p50"},
	} {
		p := verdict.Point{Scenario: scenario.Scenario{Flow: c.flows, Probe: c.probes}}
		names := columns(&p)
		for _, name := range strings.Fields(c.want) {
			if !slices.Contains(names, name) {
				t.Errorf("%v, %v: no column %s in %v", c.flows, c.probes, name, names)
			}
		}
		if slices.Contains(names, c.without) {
			t.Errorf("%v, %v: column %s beside %s", c.flows, c.probes, c.without, c.want)
		}
	}
}

// The heading of a table tells both rates, and which way each flow goes.
func TestSetting(t *testing.T) {
	s := sample()[0].Points[0].Scenario
	s.Provider.Ingress = 100_000_000
	s.Flow = append(s.Flow, scenario.Flow{Name: "backup", Count: 1, Client: "client", Direction: "up"})
	if got := setting(s); !strings.HasPrefix(got, "50mbit out, 100mbit in · ") ||
		!strings.HasSuffix(got, " · 4 × downloads down · 1 × backup up") {
		t.Error(got)
	}
	s.Client = append(s.Client, scenario.Client{Name: "other"})
	if got := setting(s); !strings.HasSuffix(got, " · 4 × downloads to client · 1 × backup from client") {
		t.Error(got)
	}
}

// Every metric has a meaning, and a page says what made it, of which files, and what its columns mean.
func TestLegend(t *testing.T) {
	for _, name := range measure.MetricNames() {
		if meaning(name) == "" {
			t.Errorf("%s has no meaning", name)
		}
	}
	for _, name := range []string{"added.through.p99", "goodput.client.a", "probe.x.lost", "utilisation.10s-20s"} {
		if _, err := measure.ParseMetric(name); err != nil || meaning(name) == "" {
			t.Errorf("%s has no meaning, or is no metric (%v)", name, err)
		}
	}
	reports := sample()
	reports[0].Command, reports[0].Version = "weir-lab run --seeds 2 x.toml", "0123abc"
	var b bytes.Buffer
	err := HTML(&b, reports, [][]scenario.File{{{Name: "base.toml", Text: []byte("title = \"<base>\"\n")}}})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"weir-lab run --seeds 2 x.toml, weir-lab 0123abc, linux 7.3.4",
		"The scenario: base.toml", "title = &#34;&lt;base&gt;&#34;", "<dt>added p50 ms</dt><dd>median round trip"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("the page does not say %s", want)
		}
	}
}
