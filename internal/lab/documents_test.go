// SPDX-License-Identifier: Apache-2.0

package lab_test

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"weir/internal/lab/scenario"
	"weir/internal/lab/verdict"
	"weir/internal/report"
)

// The documents are of the scenarios as they are: this runs them again and compares the tables' titles, rows,
// columns, and what is claimed and expected. The figures are another sample: a run repeats to the byte with the same
// kernel and binary (TestDeterminism), and the kernel stirs into its random numbers where in the program an interrupt
// came, which differs from binary to binary.
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

// ranges over seeds are there or not, as the seeds agree or not.
var ranges = regexp.MustCompile(` \[[^]]*\]`)

// docs/dualpi2.md takes half an hour of emulated stock kernels, docs/relay.md and docs/rules.md minutes, so their
// runs are not repeated here: that the tables have the scenarios' points, candidates and claims is all that this
// looks at. TestRelays looks at figures.
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
		"docs/rules.md":   {"scenarios/rules", nil},
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
	if err != nil || len(files) < 5 {
		t.Fatal(files, err)
	}
	for _, f := range files {
		if !named[f] {
			t.Errorf("%s has no tables of %s", doc, f)
		}
	}
}
