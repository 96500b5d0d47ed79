// SPDX-License-Identifier: Apache-2.0

package report

import (
	"bytes"
	"encoding/json"
	"fmt"
	"image"
	_ "image/png"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"weir/internal/lab/scenario"
	"weir/internal/lab/verdict"
	"weir/internal/measure"
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
		probe.Delay = measure.NewDist(delays)
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
					Value: measure.Spread{Median: 0.12, Min: 0.1, Max: 0.2}, Holds: true}}},
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
					all = append(all, number(v.Median, m.Unit()))
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
	if err := Markdown(&b, sample(), "weir lab run x.toml"); err != nil {
		t.Fatal(err)
	}
	text := b.String()
	for _, want := range append(numbers(t, sample()), "`weir lab run x.toml`", `as found \| cubic`, "&lt;calm&gt;",
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
		if got := number(c.v, c.unit); got != c.want {
			t.Errorf("number(%v, %q) = %s, want %s", c.v, c.unit, got, c.want)
		}
	}
}

// The page opens in a browser without a network: its pictures are there, in light and in dark, its numbers are those
// of the JSON, and the arrow keys show values.
func TestHTMLInABrowser(t *testing.T) {
	browser, err := exec.LookPath("chromium")
	if err != nil {
		t.Skip("skipped, not passed: chromium is not installed (make deps)")
	}
	var b bytes.Buffer
	if err := HTML(&b, sample()); err != nil {
		t.Fatal(err)
	}
	refers := regexp.MustCompile(`(?i)src=|href="[^#]|url\(|@import|<script[^>]|fetch|XMLHttp|import\(`)
	if found := refers.FindString(b.String()); found != "" {
		t.Errorf("the page refers to something: %s", found)
	}
	dir := t.TempDir()
	file := filepath.Join(dir, "r.html")
	if err := os.WriteFile(file, b.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	chromium := func(args ...string) []byte {
		t.Helper()
		command := exec.Command(browser, append([]string{"--headless", "--no-sandbox", "--disable-gpu",
			"--disable-quic", "--no-first-run", "--disable-dev-shm-usage",
			"--disable-background-networking", "--disable-component-update", "--disable-sync", "--hide-scrollbars",
			"--user-data-dir=" + filepath.Join(dir, "profile")},
			append(args, "file://"+file)...)...)
		out, err := command.Output()
		if err != nil {
			t.Fatalf("chromium: %v", err)
		}
		return out
	}
	dom := string(chromium("--dump-dom"))
	cells := regexp.MustCompile(`<td>([^<]*)</td>`).FindAllStringSubmatch(dom, -1)
	shown := map[string]bool{}
	for _, c := range cells {
		first, _, _ := strings.Cut(c[1], " ")
		shown[first] = true
	}
	for _, want := range numbers(t, sample()) {
		if !shown[want] {
			t.Errorf("no cell shows %s", want)
		}
	}
	if n := strings.Count(dom, "<svg"); n != 2*5 {
		t.Errorf("%d pictures, want 10", n)
	}
	hasBasics(t, dom)
	if err := os.WriteFile(file, append(b.Bytes(), pressKeys...), 0o600); err != nil {
		t.Fatal(err)
	}
	// Weir's round trip 26 hundredths of 20 s after the start, of which each second sample is drawn: 52.42 ms + 3 ms ×
	// sin(259 / 40).
	if read := string(chromium("--dump-dom")); !strings.Contains(read, "<b>5.20 s</b>") ||
		!strings.Contains(read, "</i>Weir: 53.0 ms</span>") {
		t.Errorf("the arrow keys show no values: %s",
			regexp.MustCompile(`(?s)<div class="tip".*?</div>`).FindString(read))
	}
	if err := os.WriteFile(file, b.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(dom, "A <b>title</b>") {
		t.Error("a scenario's text is taken for HTML")
	}
	for scheme, want := range map[string]struct {
		setting int
		paper   [3]uint8
		lines   [][3]uint8 // the first three candidates' colours, as report.html.tmpl has them
	}{
		"light": {1, [3]uint8{0xfc, 0xfc, 0xfa}, [][3]uint8{{0xc2, 0x41, 0x0c}, {0xa1, 0x62, 0x07},
			{0x7e, 0x22, 0xce}}},
		"dark": {0, [3]uint8{0x14, 0x17, 0x1a}, [][3]uint8{{0xfb, 0x92, 0x3c}, {0xfa, 0xcc, 0x15},
			{0xc0, 0x84, 0xfc}}},
	} {
		shot := filepath.Join(dir, scheme+".png")
		chromium("--window-size=1300,2400", fmt.Sprintf("--blink-settings=preferredColorScheme=%d", want.setting),
			"--screenshot="+shot)
		f, err := os.Open(shot)
		if err != nil {
			t.Fatal(err)
		}
		img, _, err := image.Decode(f)
		f.Close()
		if err != nil {
			t.Fatal(err)
		}
		count := map[[3]uint8]int{}
		for y := img.Bounds().Min.Y; y < img.Bounds().Max.Y; y++ {
			for x := img.Bounds().Min.X; x < img.Bounds().Max.X; x++ {
				r, g, b, _ := img.At(x, y).RGBA()
				count[[3]uint8{uint8(r >> 8), uint8(g >> 8), uint8(b >> 8)}]++
			}
		}
		if n := count[[3]uint8{}]; n > 0 {
			t.Errorf("%s: %d black pixels: something has not been given the page's colours", scheme, n)
		}
		if r, g, b, _ := img.At(2, 2).RGBA(); [3]uint8{uint8(r >> 8), uint8(g >> 8), uint8(b >> 8)} != want.paper {
			t.Errorf("%s: the paper has the colour %x %x %x", scheme, r>>8, g>>8, b>>8)
		}
		for i, colour := range want.lines {
			// Four keys of 13 × 13 a candidate; whatever is more has been drawn.
			if n := count[colour]; n < 4*13*13+300 {
				t.Errorf("%s: candidate %d's colour covers %d pixels: its lines are missing", scheme, i, n)
			}
		}
	}
}

// pressKeys moves over the first picture as a keyboard does.
const pressKeys = `<script>
for (let i = 0; i < 26; i++)
  document.querySelector(".chart").dispatchEvent(new KeyboardEvent("keydown", {key: "ArrowRight"}));
</script>`

// hasBasics looks for what keyboards and screen readers need.
func hasBasics(t *testing.T, dom string) {
	t.Helper()
	tables, charts := strings.Count(dom, "<table"), strings.Count(dom, `<svg`)
	for what, want := range map[string]int{
		"<main>": 1, "<caption>": tables, `<div class="scroll" tabindex="0" role="region" aria-label`: tables,
		`role="img" aria-labelledby="chart-`: charts, "<title id=": charts, "<desc id=": charts,
		`<div class="chart" tabindex="0"`: charts, "<figcaption>": charts,
	} {
		if n := strings.Count(dom, what); n != want || n == 0 {
			t.Errorf("%d of %s, want %d", n, what, want)
		}
	}
	ids := map[string]bool{}
	for _, m := range regexp.MustCompile(` id="([^"]*)"`).FindAllStringSubmatch(dom, -1) {
		if ids[m[1]] {
			t.Errorf("two things are called %s", m[1])
		}
		ids[m[1]] = true
	}
	for _, m := range regexp.MustCompile(` aria-labelledby="([^"]*)"`).FindAllStringSubmatch(dom, -1) {
		for _, id := range strings.Fields(m[1]) {
			if !ids[id] {
				t.Errorf("nothing is called %s", id)
			}
		}
	}
}
