// SPDX-License-Identifier: Apache-2.0

//go:build all

package lab_test

// In make test-all: hundreds of scenarios take minutes.

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"weir/internal/lab/report"
	"weir/internal/lab/scenario"
	"weir/internal/lab/uml"
	"weir/internal/lab/verdict"
)

// The documents are what a run says, to the byte: a table that differs means that packets have met something else, or
// that the kernel was made by another recipe, and then make results makes them all anew.
func TestDocuments(t *testing.T) {
	r := runner(t)
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	t.Chdir(root)
	pages := []struct{ file, pattern string }{{"results/seeds.md", "scenarios/seeds/*.toml"},
		{"results/evidence.md", "scenarios/*.toml"}}
	var files []string
	var scenarios []scenario.Scenario
	for _, page := range pages {
		found, err := filepath.Glob(page.pattern)
		if err != nil || len(found) == 0 {
			t.Fatalf("%s: no such scenario, %v", page.pattern, err)
		}
		files = append(files, found...)
	}
	const sender = "scenarios/cc/base.toml" // of the README alone; results/cc.md has what inherits it
	files = append(files, sender)
	for _, f := range files {
		s, err := scenario.Load(f)
		if err != nil {
			t.Fatal(err)
		}
		scenarios = append(scenarios, s)
	}
	all, err := r.Run(context.Background(), files, scenarios) // at once, so that no core waits for another
	if err != nil {
		t.Fatal(err)
	}
	of := func(pattern string) (files []string, reports []verdict.Report) {
		for _, r := range all {
			if fits, _ := filepath.Match(pattern, r.File); fits {
				files, reports = append(files, r.File), append(reports, r)
			}
		}
		return files, reports
	}
	compare := func(t *testing.T, file string, got []byte) {
		t.Helper()
		want, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, want) {
			t.Errorf("%s is not what a run says now (make results):\n%s", file, firstDifference(want, got))
		}
	}
	for _, page := range pages {
		t.Run(page.file, func(t *testing.T) {
			files, reports := of(page.pattern)
			var got bytes.Buffer
			if err := report.Markdown(&got, reports, "weir-lab run "+strings.Join(files, " ")); err != nil {
				t.Fatal(err)
			}
			compare(t, page.file, got.Bytes())
			for i := range reports {
				figures := report.NewFigures(&reports[i])
				var got bytes.Buffer
				if err := figures.Write(&got); err != nil {
					t.Fatal(err)
				}
				compare(t, filepath.Join("results", figures.Scenario+".json"), got.Bytes())
			}
		})
	}
	t.Run("README.md", func(t *testing.T) {
		text, err := os.ReadFile("README.md")
		if err != nil {
			t.Fatal(err)
		}
		for _, scenario := range []string{"scenarios/narrow-link.toml", "scenarios/relay.toml", sender} {
			_, reports := of(scenario)
			var got bytes.Buffer
			if err := report.Terminal(&got, reports, false); err != nil {
				t.Fatal(err)
			}
			if !bytes.Contains(text, got.Bytes()) {
				t.Errorf("README.md does not have what a run prints now (make results):\n%s", got.Bytes())
			}
			if scenario == "scenarios/narrow-link.toml" {
				compare(t, "results/narrow-link.svg", picture(t, "results/narrow-link.svg", reports[0]))
			}
		}
	})
}

// picture draws a picture anew, of the same candidates and with the same title.
func picture(t *testing.T, file string, r verdict.Report) []byte {
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
	return got.Bytes()
}

// A weir with other data, one more goroutine and timer, a weir-lab that links twice as much, and both by another patch
// release of Go: what packets meet is the same, and so is every byte of the report.
func TestOtherBuild(t *testing.T) {
	r := runner(t)
	s := load(t, strings.NewReplacer(`duration = "10s"`, `duration = "4s"`,
		"[provider]", "loss = \"1%\"\n[provider]").Replace(calm)+"[[candidate]]\nname = \"bbr\"\nqdisc = \"fq\"\n"+
		"[candidate.sysctl]\n\"net.ipv4.tcp_congestion_control\" = \"bbr\"\n")
	text := func(program string) []byte {
		other := *r
		other.Program = program
		text, err := json.Marshal(run(t, &other, s))
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	want := text(r.Program)
	dir := t.TempDir()
	source, labSource := filepath.Join(dir, "more.go"), filepath.Join(dir, "more-lab.go")
	overlay := filepath.Join(dir, "overlay.json")
	module := filepath.Join(dir, "go.mod")
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	const more = `package main

import (
	"os"
	"time"
%s)

var moreData [100 << 10]byte
var moreMap = map[string]int{"a": 1, "b": 2}

func init() {
	for i := range moreData {
		moreData[i] = byte(i*7 + len(os.Args))
	}
	go func() {
		for range time.Tick(time.Hour) {
			moreMap["c"]++
		}
	}()
}
`
	list, err := json.Marshal(map[string]map[string]string{"Replace": {
		filepath.Join(root, "cmd/weir/more.go"):     source,
		filepath.Join(root, "cmd/weir-lab/more.go"): labSource,
	}})
	if err != nil {
		t.Fatal(err)
	}
	goMod, err := os.ReadFile(filepath.Join(root, "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	goSum, err := os.ReadFile(filepath.Join(root, "go.sum"))
	if err != nil {
		t.Fatal(err)
	}
	const before = "go1.26.7"
	goMod = regexp.MustCompile(`(?m)^toolchain .*$`).ReplaceAll(goMod, []byte("toolchain "+before))
	for name, text := range map[string][]byte{
		source:    fmt.Appendf(nil, more, ""),
		labSource: fmt.Appendf(nil, more, "\n\t_ \"weir/internal/exporter\"\n\t_ \"weir/internal/meter/server\"\n"),
		overlay:   list, module: goMod, filepath.Join(dir, "go.sum"): goSum,
	} {
		if err := os.WriteFile(name, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for name, c := range map[string]struct{ toolchain, flag string }{
		"data and a goroutine": {"", "-overlay=" + overlay},
		before:                 {before, "-modfile=" + module},
	} {
		t.Run(name, func(t *testing.T) {
			programs := t.TempDir()
			build := exec.Command("go", "build", "-trimpath", "-ldflags", "-s -w", c.flag, "-o", programs, "./cmd/weir",
				"./cmd/weir-lab")
			build.Dir = root
			build.Env = append(os.Environ(), "CGO_ENABLED=0")
			if c.toolchain != "" {
				build.Env = append(build.Env, "GOTOOLCHAIN="+c.toolchain)
			}
			if out, err := build.CombinedOutput(); err != nil {
				t.Fatalf("build: %v\n%s", err, out)
			}
			if got := text(filepath.Join(programs, "weir-lab")); !bytes.Equal(got, want) {
				t.Errorf("another build gives another report:\n%s", firstDifference(want, got))
			}
		})
	}
}

// results/dualpi2.md takes half an hour of emulated stock kernels, and the others minutes each, so their runs are not
// repeated here: this looks that their tables have the scenarios' points, candidates and claims, are of the lab's
// kernel as it is, where they are of that, and have the figures of the JSON beside them.
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
		"results/dualpi2.md": {"scenarios/dualpi2", []string{"base.toml", "matrix.toml"}},
		"results/relay.md":   {"scenarios/relay", []string{"base.toml"}},
		"results/rules.md":   {"scenarios/rules", []string{"promise.toml"}}, // TestPromise
		"results/peers.md":   {"scenarios/peers", []string{"base.toml"}},

		"results/programs.md": {"scenarios/programs", []string{"watch.toml", "watch-follow.toml"}}, // TestWatch
		"results/traffic.md":  {"scenarios/traffic", []string{"base.toml"}},
		"results/follow.md":   {"scenarios/follow", []string{"base.toml"}},
		"results/cc.md":       {"scenarios/cc", []string{"base.toml"}},
	} {
		t.Run(doc, func(t *testing.T) { hasSections(t, doc, c.folder, c.none) })
	}
}

// labSections are what scripts/results fills in from the lab: flags, a scenario, and its tables.
var labSections = regexp.MustCompile(
	`(?s)<!-- begin: weir-lab run ([^\n]*?)(\S+\.toml) -->\n(.*?)<!-- end -->`)

var labKernels = regexp.MustCompile(`lab kernel ([0-9a-f]+)`)

// readFigures reads the JSON of a scenario's figures.
func readFigures(t *testing.T, scenario string) (f report.Figures) {
	t.Helper()
	name := strings.TrimSuffix(strings.TrimPrefix(scenario, "scenarios/"), ".toml")
	text, err := os.ReadFile(filepath.Join("results", name+".json"))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &f); err != nil || f.Scenario != name {
		t.Fatalf("the figures of %s are of %q: %v", scenario, f.Scenario, err)
	}
	return f
}

// inTables looks that the tables of a scenario are of the same kernel as its figures, and have each row with as many
// values as it has figures, and each figure. What waited here is in tables only where that is a column.
func inTables(t *testing.T, tables string, f report.Figures) {
	t.Helper()
	if !strings.Contains(tables, "\nlinux "+f.Kernel+", ") {
		t.Errorf("the figures of %s are of linux %s, and the tables are not", f.Scenario, f.Kernel)
	}
	escaped := strings.NewReplacer("|", `\|`, "<", "&lt;", ">", "&gt;")
	rows := 0
	for _, row := range f.Rows {
		table := tables
		if row.Point != "" {
			_, table, _ = strings.Cut(tables, "\n**"+escaped.Replace(row.Point)+"**\n")
		}
		_, line, _ := strings.Cut(table, "\n| "+escaped.Replace(row.Candidate)+" | ")
		line, _, _ = strings.Cut(line, "\n")
		cells := strings.Split(line, " | ")
		for i := range cells {
			cells[i], _, _ = strings.Cut(strings.TrimSuffix(cells[i], " |"), " ") // the median, without its range
		}
		metrics := slices.Sorted(maps.Keys(row.Values))
		const backlog = "uplink.backlog" // comes last, for it may not take another's cell that has the same value
		if i := slices.Index(metrics, backlog); i >= 0 {
			metrics = append(slices.Delete(metrics, i, i+1), backlog)
		}
		for _, metric := range metrics {
			value := row.Values[metric]
			if i := slices.Index(cells, value.String()); i >= 0 {
				cells = slices.Delete(cells, i, i+1)
			} else if metric != backlog {
				t.Errorf("%s, %s, %s: %s is %s, and the tables do not have that", f.Scenario, row.Point, row.Candidate,
					metric, value)
			}
		}
		if i := slices.IndexFunc(cells, func(c string) bool { return c != "–" }); i >= 0 {
			t.Errorf("%s, %s, %s: the figures lack %s", f.Scenario, row.Point, row.Candidate, cells[i])
		}
		rows++
	}
	if n := strings.Count(tables, "\n- "); n > rows {
		t.Errorf("%s: %d candidates in the tables, and %d rows of figures", f.Scenario, n, rows)
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
	for _, m := range labKernels.FindAllStringSubmatch(string(text), -1) {
		if kernel, err := uml.Find(); err == nil && m[1] != kernel.Recipe {
			t.Errorf("a table of %s is of the lab's kernel of recipe %s, and it is %s now (make results)", doc, m[1],
				kernel.Recipe)
			break
		}
	}
	for _, section := range labSections.FindAllStringSubmatch(string(text), -1) {
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
			inTables(t, tables, readFigures(t, file))
		}
		for _, w := range want {
			if !strings.Contains(tables, w) {
				t.Errorf("the tables of %s lack %q (scripts/results %s -- %s)", file, w,
					strings.TrimSuffix(filepath.Base(doc), ".md"), filepath.Base(file))
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
