// SPDX-License-Identifier: Apache-2.0

package lab_test

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"weir/internal/lab/scenario"
	"weir/internal/lab/verdict"
	"weir/internal/measure"
	"weir/internal/report"
)

// The documents are of the scenarios as they are: this runs them again and compares the tables' titles, rows and
// columns, what is claimed and expected, the verdicts, and the claims' figures within their tolerance. The figures are
// another sample: a run repeats to the byte with the same kernel and binary (TestDeterminism), and the kernel stirs
// into its random numbers where in the program an interrupt came, which differs from binary to binary.
func TestDocuments(t *testing.T) {
	r := runner(t)
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	t.Chdir(root)
	again := func(t *testing.T, patterns ...string) []verdict.Report {
		t.Helper()
		var files []string
		for _, p := range patterns {
			found, err := filepath.Glob(p)
			if err != nil || len(found) == 0 {
				t.Fatalf("%s: no such scenario, %v", p, err)
			}
			files = append(files, found...)
		}
		var scenarios []scenario.Scenario
		for _, f := range files {
			s, err := scenario.Load(f)
			if err != nil {
				t.Fatal(err)
			}
			scenarios = append(scenarios, s)
		}
		reports, err := r.Run(context.Background(), files, scenarios)
		if err != nil {
			t.Fatal(err)
		}
		return reports
	}
	read := func(t *testing.T, file, kernel string) string {
		t.Helper()
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(text), "linux "+kernel+", virtual time") {
			t.Skipf("skipped, not passed: %s was made with another kernel than %s (make docs)", file, kernel)
		}
		return string(text)
	}
	for file, pattern := range map[string]string{"docs/seeds.md": "scenarios/seeds/*.toml",
		"docs/evidence.md": "scenarios/*.toml"} {
		t.Run(file, func(t *testing.T) {
			reports := again(t, pattern)
			want := read(t, file, reports[0].Kernel)
			var files []string
			for _, r := range reports {
				files = append(files, r.File)
			}
			var got bytes.Buffer
			if err := report.Markdown(&got, reports, "weir lab run "+strings.Join(files, " ")); err != nil {
				t.Fatal(err)
			}
			if was, is := frame(want), frame(got.String()); was != is {
				t.Errorf("%s is not of the scenarios as they are now (make docs):\n%s", file,
					firstDifference([]byte(was), []byte(is)))
			}
			var verdicts []verdict.Verdict
			for _, r := range reports {
				verdicts = append(verdicts, r.Claims...)
			}
			for _, problem := range otherClaims(want, got.String(), verdicts) {
				t.Errorf("%s: %s (make docs)", file, problem)
			}
		})
	}
	t.Run("README.md", func(t *testing.T) {
		for _, scenario := range []string{"scenarios/narrow-link.toml", "scenarios/relay.toml"} {
			reports := again(t, scenario)
			text := read(t, "README.md", reports[0].Kernel)
			var got bytes.Buffer
			if err := report.Terminal(&got, reports, false); err != nil {
				t.Fatal(err)
			}
			head, _, _ := strings.Cut(got.String(), "\n  as found") // the table without the sentences below it
			if !strings.Contains(figures.ReplaceAllString(text, "#"), figures.ReplaceAllString(head, "#")) {
				t.Errorf("README.md does not have the table that a run prints now (make docs):\n%s", head)
			}
			if scenario == "scenarios/narrow-link.toml" {
				isPicture(t, "docs/narrow-link.svg", reports[0])
			}
		}
	})
}

// isPicture compares a picture with a new one of the same candidates, all but the figures.
func isPicture(t *testing.T, file string, r verdict.Report) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	title := regexp.MustCompile(`<title[^>]*>(.*)</title>`).FindSubmatch(text)
	if title == nil {
		t.Fatalf("%s has no title", file)
	}
	var names []string
	for _, m := range regexp.MustCompile(`data-name="([^"]*)"`).FindAllSubmatch(text, -1) {
		names = append(names, string(m[1]))
	}
	var got bytes.Buffer
	if err := report.RoundTrips(&got, string(title[1]), &r.Points[0], names...); err != nil {
		t.Fatal(err)
	}
	points := regexp.MustCompile(`points="[^"]*"`)
	was, is := points.ReplaceAll(text, nil), points.ReplaceAll(got.Bytes(), nil)
	if was, is := figures.ReplaceAll(was, nil), figures.ReplaceAll(is, nil); !bytes.Equal(was, is) {
		t.Errorf("%s is not of the scenario as it is now (make docs):\n%s", file, firstDifference(was, is))
	}
}

// figures are numbers with the space that aligns them.
var figures = regexp.MustCompile(` *\d+(\.\d+)?`)

// frame is a document's tables and headings without their figures; of a claim, what is claimed and expected.
func frame(text string) string {
	var b strings.Builder
	claims := false
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "#") {
			claims = strings.HasPrefix(line, "## Claims")
			b.WriteString(line)
			continue
		}
		if !strings.HasPrefix(line, "|") && !strings.HasPrefix(line, "**") {
			continue
		}
		if claims {
			cells := strings.SplitN(line, " | ", 3)
			b.WriteString(strings.Join(cells[:min(2, len(cells))], " | ") + "\n")
			continue
		}
		name, cells, _ := strings.Cut(strings.TrimPrefix(line, "| "), " | ")
		cells = ranges.ReplaceAllString(cells, "")
		b.WriteString(name + " | " + figures.ReplaceAllString(cells, "#"))
	}
	return b.String()
}

// otherClaims says which claims of a document are judged otherwise by new runs, or have figures that the claim's
// tolerance does not explain. verdicts are those of the new runs, in the order of their document.
func otherClaims(was, is string, verdicts []verdict.Verdict) []string {
	before, now := claimRows(was), claimRows(is)
	if len(before) != len(verdicts) || len(now) != len(verdicts) {
		return []string{fmt.Sprintf("%d claims, and %d as it is now", len(before), len(now))}
	}
	var problems []string
	for i, v := range verdicts {
		tolerance, rounding, bound := tolerances(v.Expect)
		values := before[i].values()
		for _, m := range v.At {
			if !m.None {
				values = append(values, m.Value.Median)
			}
		}
		// A value that rounds to its bound may be on either side of it in the next sample.
		if slices.ContainsFunc(values, func(x float64) bool {
			return v.Claim.Holds(x-rounding) != v.Claim.Holds(x+rounding)
		}) {
			continue
		}
		if before[i].word() != now[i].word() || !strings.HasSuffix(before[i].verdict, escaped.Replace(v.Note)) {
			problems = append(problems, fmt.Sprintf("%s: “%s” was judged %q, and is %q now: %s",
				v.Source, v.Says, before[i].verdict, now[i].verdict, now[i].measured))
			continue
		}
		// Where it holds is a sample, too: one seed of BBR behind a policer has held at 4 points of 12, and at 6.
		if tolerance > 0 && before[i].verdict == now[i].verdict &&
			!near(before[i].measured, now[i].measured, tolerance+rounding, bound) {
			problems = append(problems, fmt.Sprintf("%s: “%s”: measured %s, and now %s: more than %g apart",
				v.Source, v.Says, before[i].measured, now[i].measured, tolerance))
		}
	}
	return problems
}

// escaped is what a table of Markdown makes of a note.
var escaped = strings.NewReplacer("|", `\|`, "<", "&lt;", ">", "&gt;", "\n", " ")

// claimRow is what was found of a claim, in a document's words.
type claimRow struct{ measured, verdict string }

// word is the verdict itself, without where it holds and the note on it.
func (r claimRow) word() string {
	_, word, _ := strings.Cut(r.verdict, "**")
	word, _, _ = strings.Cut(word, "**")
	return word
}

// values are what was measured at each point, or the least and the most of several.
func (r claimRow) values() []float64 {
	var values []float64
	for part := range strings.SplitSeq(ranges.ReplaceAllString(r.measured, ""), "; ") {
		found := measuredValues.FindStringSubmatch(part)
		for _, text := range found[min(1, len(found)):] {
			if n, err := strconv.ParseFloat(text, 64); err == nil {
				values = append(values, n)
			}
		}
	}
	return values
}

// measuredValues end a point's part of what was measured: "0.18 to 0.41 ms (6 points)", "1 flow: 14.51 ms".
var measuredValues = regexp.MustCompile(`(?:(-?[\d.]+) to )?(-?[\d.]+)(?: [^ \d]+)?(?: \(\d+ points?\))?$`)

func claimRows(text string) []claimRow {
	_, text, _ = strings.Cut(text, "\n## Claims\n")
	text, _, _ = strings.Cut(text, "\n## ")
	var rows []claimRow
	for line := range strings.Lines(text) {
		if cells := strings.Split(strings.Trim(line, "| \n"), " | "); len(cells) == 4 && strings.Contains(line, "“") {
			rows = append(rows, claimRow{cells[2], cells[3]})
		}
	}
	return rows
}

// tolerances are how far two samples of what a claim speaks of may be apart, half of the last digit of its bound, and
// that bound. The width of an expected range is such a tolerance; a bound on one side has none but its verdict.
func tolerances(expect string) (tolerance, rounding, bound float64) {
	var bounds []float64
	for _, text := range regexp.MustCompile(`\d+(\.\d+)?`).FindAllString(expect, -1) {
		n, _ := strconv.ParseFloat(text, 64)
		bounds = append(bounds, n)
		if _, digits, _ := strings.Cut(text, "."); n != 0 { // none at all is none
			rounding = max(rounding, math.Pow10(-len(digits))/2)
		}
	}
	switch {
	case strings.Contains(expect, "±"):
		tolerance, bound = 2*bounds[0]*bounds[1]/100, bounds[0]
	case strings.Contains(expect, ".."):
		tolerance, bound = bounds[1]-bounds[0], bounds[1]
	}
	return tolerance, rounding, bound
}

// near compares the figures of two texts that have the same words, one by one. A tolerance is of figures as large as
// its bound: of two that are both four times as large it is four times as much. Of several seeds, two samples are also
// near where their ranges meet: a TCP flow's slow start ends in one of two ways, and the median is of either.
func near(a, b string, tolerance, bound float64) bool {
	x, y := samples(a), samples(b)
	if len(x) != len(y) {
		return false
	}
	for i, m := range x {
		n := y[i]
		if math.Abs(m.value-n.value) > tolerance*max(1, min(m.value, n.value)/max(bound, 1e-9)) &&
			(m.least > n.most || n.least > m.most) {
			return false
		}
	}
	return true
}

// sample is one figure of what was measured: a median, and the least and the most of its seeds.
type sample struct{ value, least, most float64 }

var sampled = regexp.MustCompile(`(\d+(?:\.\d+)?)(?: [^ \d]+)?(?: \[(\d+(?:\.\d+)?)\.\.(\d+(?:\.\d+)?)\])?`)

func samples(text string) []sample {
	var found []sample
	for _, m := range sampled.FindAllStringSubmatch(text, -1) {
		value, _ := strconv.ParseFloat(m[1], 64)
		s := sample{value, value, value}
		if m[2] != "" {
			s.least, _ = strconv.ParseFloat(m[2], 64)
			s.most, _ = strconv.ParseFloat(m[3], 64)
		}
		found = append(found, s)
	}
	return found
}

// A document whose verdict or figure is not of these runs is found, and another sample of the same is not.
func TestOtherClaims(t *testing.T) {
	document := func(measured, verdict string) string {
		return "\n## Claims\n\n1 claim.\n\n| claim | expected | measured | verdict |\n|---|---|---|---|\n" +
			"| a seed: “so it is” | is expected | " + measured + " | " + verdict + " |\n\n## A scenario\n"
	}
	target := scenario.Claim{Metric: "added.p50", Expect: "15ms ±10%"}
	fetch := scenario.Claim{Metric: "fetch", Expect: "79s..90s"}
	noted := fetch
	noted.Note = "A note."
	half := scenario.Claim{Metric: "rtt.p50", Over: "another", Expect: "<= 0.6"}
	none := scenario.Claim{Metric: "provider.drops", Expect: "<= 0"}
	more := scenario.Claim{Metric: "goodput", Over: "another", Expect: ">= 15"}
	for _, c := range []struct {
		claim        scenario.Claim
		value        float64
		was, is      string // measured
		old, verdict string
		found        bool
	}{
		{target, 14.5, "14.78 ms", "14.51 ms", "**reproduced**", "**reproduced**", false},
		{target, 14.5, "18.10 ms", "14.51 ms", "**reproduced**", "**reproduced**", true},
		{target, 14.5, "14.78 ms", "14.51 ms", "**not reproduced**", "**reproduced**", true},
		{noted, 85, "84 s", "85 s", "**reproduced**. Another.", "**reproduced**. A note.", true},
		{noted, 85, "84 s", "85 s", "**reproduced**. A note.", "**reproduced**. A note.", false},
		{noted, 85, "85 s", "185 s", "**reproduced only when** A. A note.",
			"**reproduced only when** B. A note.", false},
		{fetch, 85, "there 83.63 s (1 point); elsewhere 1.54 to 130.2 s (5 points)",
			"there 84.96 s (1 point); elsewhere 1.54 to 130.8 s (5 points)", "**reproduced only when** loss 8%",
			"**reproduced only when** loss 8%", false},
		{fetch, 85, "there 83.63 s (1 point); elsewhere 1.54 to 130.2 s (5 points)",
			"there 84.96 s (1 point); elsewhere 13.54 to 130.8 s (5 points)", "**reproduced only when** loss 8%",
			"**reproduced only when** loss 8%", true},
		{fetch, 850, "840 s", "940 s", "**not reproduced**", "**not reproduced**", false},
		{fetch, 850, "840 s", "960 s", "**not reproduced**", "**not reproduced**", true},
		{fetch, 85, "84 s [80.1..88.1]", "85 s", "**reproduced**", "**reproduced**", false},
		{fetch, 850, "840 s [810..955]", "960 s [950..970]", "**not reproduced**", "**not reproduced**", false},
		{fetch, 850, "840 s [810..945]", "960 s [950..970]", "**not reproduced**", "**not reproduced**", true},
		{half, 0.62, "0.60 ×", "0.62 ×", "**reproduced**", "**not reproduced**", false}, // rounds to its bound
		{half, 0.51, "a: 1.37 ×; b: 0.60 ×", "a: 1.36 ×; b: 0.51 ×", "**not reproduced**",
			"**reproduced only when** b", false}, // rounded to its bound
		{half, 0.51, "a: 1.37 ×; b: 0.70 × [0.60..0.80]", "a: 1.36 ×; b: 0.51 ×", "**not reproduced**",
			"**reproduced only when** b", true},
		{half, 0.66, "0.50 ×", "0.66 ×", "**reproduced**", "**not reproduced**", true},
		{none, 0, "3", "0", "**not reproduced**", "**reproduced**", true},
		{more, 201, "218.7 ×", "201.6 ×", "**reproduced**", "**reproduced**", false},
	} {
		at := []verdict.Measured{{Value: measure.Spread{Median: c.value}}}
		judged := []verdict.Verdict{{Claim: c.claim, At: at}}
		got := otherClaims(document(c.was, c.old), document(c.is, c.verdict), judged)
		if (len(got) > 0) != c.found {
			t.Errorf("expected %s: %s, %s; now %s, %s: found %q", c.claim.Expect, c.was, c.old, c.is, c.verdict, got)
		}
	}
	claim := make([]verdict.Verdict, 1)
	if otherClaims(document("1", "**reproduced**"), "\n## Claims\n\n## A scenario\n", claim) == nil {
		t.Error("a claim that is gone is not found")
	}
}

// ranges over seeds are there or not, as the seeds agree or not.
var ranges = regexp.MustCompile(` \[[^]]*\]`)

// docs/dualpi2.md takes half an hour of emulated stock kernels, docs/relay.md, docs/rules.md and docs/peers.md minutes,
// so their runs are not repeated here: that the tables have the scenarios' points, candidates and claims is all that
// this looks at. TestRelays looks at figures.
func TestDocumentsOfSections(t *testing.T) {
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	t.Chdir(root)
	for doc, c := range map[string]struct {
		folder string
		none   []string // no tables are of these
	}{
		"docs/dualpi2.md": {"scenarios/dualpi2", []string{"base.toml", "matrix.toml"}},
		"docs/relay.md":   {"scenarios/relay", []string{"base.toml"}},
		"docs/rules.md":   {"scenarios/rules", []string{"promise.toml"}}, // TestPromise
		"docs/peers.md":   {"scenarios/peers", []string{"base.toml"}},

		"docs/programs.md": {"scenarios/programs", []string{"watch.toml", "watch-follow.toml"}}, // TestWatch
		"docs/traffic.md":  {"scenarios/traffic", []string{"base.toml"}},
		"docs/follow.md":   {"scenarios/follow", []string{"base.toml"}},
	} {
		t.Run(doc, func(t *testing.T) { hasSections(t, doc, c.folder, c.none) })
	}
}

func hasSections(t *testing.T, doc, folder string, none []string) {
	text, err := os.ReadFile(doc)
	if err != nil {
		t.Fatal(err)
	}
	named := map[string]bool{}
	for _, name := range none {
		named[filepath.Join(folder, name)] = true
	}
	for _, section := range regexp.MustCompile(`(?s)<!-- begin: weir lab run ([^\n]*?)(\S+\.toml) -->\n(.*?)<!-- end -->`).FindAllStringSubmatch(string(text), -1) {
		file, tables := section[2], section[3]
		named[file] = true
		s, err := scenario.Load(file)
		if err != nil {
			t.Fatal(err)
		}
		want := []string{"### " + s.Title}
		points, _ := s.Points()
		for _, p := range points {
			if len(p.Labels) > 0 {
				want = append(want, "\n**"+strings.Join(p.Labels, ", ")+"**\n")
			}
		}
		if !strings.Contains(section[1], "--only") {
			for _, c := range s.Candidate {
				want = append(want, "\n| "+c.Name+" | ")
			}
			for _, c := range s.Claim {
				want = append(want, "“"+c.Says+"”")
			}
		}
		for _, w := range want {
			if !strings.Contains(tables, w) {
				t.Errorf("the tables of %s lack %q (DOC=%s scripts/docs-tables %s)", file, w, doc, filepath.Base(file))
			}
		}
	}
	files, err := filepath.Glob(folder + "/*.toml")
	if err != nil || len(files) < 2 {
		t.Fatal(files, err)
	}
	for _, f := range files {
		if !named[f] {
			t.Errorf("%s has no tables of %s", doc, f)
		}
	}
}
