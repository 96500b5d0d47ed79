// SPDX-License-Identifier: Apache-2.0

package lab_test

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"weir/internal/lab"
	"weir/internal/report"
)

// Every number in the documents comes from a run: this is it again. The same kernel gives the same bytes; with another one the numbers may
// differ, and the documents name theirs.
func TestDocuments(t *testing.T) {
	r := runner(t)
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	t.Chdir(root)
	again := func(t *testing.T, patterns ...string) []lab.Report {
		t.Helper()
		var files []string
		for _, p := range patterns {
			found, err := filepath.Glob(p)
			if err != nil || len(found) == 0 {
				t.Fatalf("%s: no such scenario, %v", p, err)
			}
			files = append(files, found...)
		}
		var scenarios []lab.Scenario
		for _, f := range files {
			s, err := lab.Load(f)
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
	for file, pattern := range map[string]string{"docs/seeds.md": "scenarios/seeds/*.toml", "docs/evidence.md": "scenarios/*.toml"} {
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
			if got.String() != want {
				t.Errorf("%s is not what a run gives now (make docs):\n%s", file, firstDifference([]byte(want), got.Bytes()))
			}
		})
	}
	t.Run("README.md", func(t *testing.T) {
		reports := again(t, "scenarios/narrow-link.toml")
		text := read(t, "README.md", reports[0].Kernel)
		var got bytes.Buffer
		if err := report.Terminal(&got, reports, false); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(text, got.String()) {
			t.Errorf("README.md does not have the table that a run prints now:\n%s", got.String())
		}
	})
}
