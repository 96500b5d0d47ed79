// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"weir/internal/host/hosttest"
)

// figures.go has each figure that a sentence names, as the last run has left it in results, with the kernel that made
// it. An id that no run has made fails, and so does a figure that is no longer what was measured.
func TestFigures(t *testing.T) {
	results := map[string]result{}
	ids := map[string]bool{}
	for e := range sentences {
		for _, name := range sentences[e].scenarios() {
			results[name] = readResult(t, name)
		}
		for _, id := range sentences[e].figures {
			ids[id] = true
		}
	}
	byKernel := map[string][]string{}
	for _, id := range slices.Sorted(maps.Keys(ids)) {
		name, _, _ := strings.Cut(id, " | ")
		value, ok := results[name].figures[id]
		if !ok {
			t.Errorf("no run has made the figure %q: results/%s.json does not have it", id, name)
			continue
		}
		kernel := results[name].kernel
		byKernel[kernel] = append(byKernel[kernel], fmt.Sprintf("\tcase %q:\n\t\treturn %s, true\n", id, value))
	}
	var b strings.Builder
	b.WriteString("// Code generated from results by: scripts/go test ./internal/plan -run TestFigures -update. " +
		"DO NOT EDIT.\n\npackage plan\n\n// figure returns a figure of results by its id, and false for one that no " +
		"sentence names.\nfunc figure(id string) (value float64, known bool) {\n\tswitch id {\n")
	for _, kernel := range slices.Sorted(maps.Keys(byKernel)) {
		fmt.Fprintf(&b, "\n\t// Measured on linux %s.\n%s", kernel, strings.Join(byKernel[kernel], ""))
	}
	b.WriteString("\t}\n\treturn 0, false\n}\n")
	hosttest.Golden(t, "figures.go", b.String(), *update)
}

// A sentence has a verb for each of its figures, and no number of its own but the settings of its scenarios.
func TestSentences(t *testing.T) {
	verb, number := regexp.MustCompile(`%\.\df`), regexp.MustCompile(`\d+(\.\d+)?`)
	for e, s := range sentences {
		said := evidence(e).String()
		if n := len(verb.FindAllString(s.text, -1)); n != len(s.figures) || strings.Contains(said, "%!") {
			t.Errorf("%d verbs for %d figures: %s", n, len(s.figures), said)
		}
		settings := ""
		for _, name := range s.scenarios() {
			text, err := os.ReadFile("../../scenarios/" + name + ".toml")
			if err != nil {
				t.Fatal(err)
			}
			base, _ := os.ReadFile(filepath.Join("../../scenarios", filepath.Dir(name),
				"base.toml")) // what some begin with
			settings += string(text) + string(base)
		}
		words := regexp.MustCompile(`p\d\d|DualPI2|dualpi2|L4S|\b1 against`).ReplaceAllString(verb.ReplaceAllString(s.text, ""), "")
		for _, n := range number.FindAllString(words, -1) {
			if !regexp.MustCompile(`(^|[^\d.])` + regexp.QuoteMeta(n) + `([^\d.]|\.\D|$)`).MatchString(settings) {
				t.Errorf("%s is no setting of %v, and no figure: %s", n, s.scenarios(), said)
			}
		}
	}
}

// result is the figures of a scenario by their ids.
type result struct {
	kernel  string
	figures map[string]json.Number
}

// readResult reads the JSON that a run of a scenario has written.
func readResult(t *testing.T, scenario string) result {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("../../results", scenario+".json"))
	if err != nil {
		t.Fatal(err)
	}
	var read struct {
		Kernel string
		Rows   []struct {
			Point, Candidate string
			Values           map[string]json.Number
		}
	}
	if err := json.Unmarshal(text, &read); err != nil || read.Kernel == "" {
		t.Fatalf("results/%s.json: no kernel, or %v", scenario, err)
	}
	r := result{read.Kernel, map[string]json.Number{}}
	for _, row := range read.Rows {
		for metric, value := range row.Values {
			id := slices.DeleteFunc([]string{scenario, row.Point, row.Candidate, metric},
				func(s string) bool { return s == "" })
			r.figures[strings.Join(id, " | ")] = value
		}
	}
	return r
}
