// SPDX-License-Identifier: Apache-2.0

package lab_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"weir/internal/lab/measure"
	"weir/internal/lab/scenario"
	"weir/internal/lab/verdict"
)

// Every key of a scenario and every field of a result is in its document.
func TestDocumented(t *testing.T) {
	for _, c := range []struct {
		file string
		tag  string
		of   any
	}{{"../../docs/scenarios.md", "toml", scenario.Scenario{}}, {"../../docs/scenarios.md", "json", verdict.Report{}}} {
		text, err := os.ReadFile(c.file)
		if err != nil {
			t.Fatal(err)
		}
		names := map[string]bool{}
		tags(reflect.TypeOf(c.of), c.tag, names, map[reflect.Type]bool{})
		if len(names) < 20 {
			t.Fatalf("%s: found only %d names", c.file, len(names))
		}
		written := keys(string(text))
		for name := range names {
			if !written[name] {
				t.Errorf("%s does not say what %q is", c.file, name)
			}
		}
	}
	text, err := os.ReadFile("../../docs/scenarios.md")
	if err != nil {
		t.Fatal(err)
	}
	_, after, _ := strings.Cut(string(text), "\n## Metrics\n")
	list, _, _ := strings.Cut(after, "\n## ")
	written := firstColumn(list)
	for _, name := range measure.MetricNames() {
		if !written[name] {
			t.Errorf("docs/scenarios.md does not say what the metric %s is", name)
		}
		delete(written, name)
	}
	for name := range written {
		t.Errorf("docs/scenarios.md lists a metric that there is not: %s", name)
	}
}

var code = regexp.MustCompile("`([^`\n]+)`")

// keys are the names that a document sets as code: alone, in brackets, or as name = value.
func keys(text string) map[string]bool {
	found := map[string]bool{}
	for _, m := range code.FindAllStringSubmatch(text, -1) {
		name, _, _ := strings.Cut(m[1], " =")
		found[strings.Trim(name, "[]")] = true
	}
	return found
}

// firstColumn is the code in the first column of a text's tables.
func firstColumn(text string) map[string]bool {
	found := map[string]bool{}
	for line := range strings.Lines(text) {
		if cells := strings.Split(line, "|"); len(cells) > 2 {
			for name := range keys(cells[1]) {
				found[name] = true
			}
		}
	}
	return found
}

// counters reports whether a package's structs are the kernel's counters, or those of a qdisc of ours.
func counters(path string) bool {
	return strings.HasSuffix(path, "/qdisc") || strings.HasSuffix(path, "/dualpi2")
}

// tags collects the names of a struct's fields; those of the scenario inside a result have a document of their own,
// as have the kernel's counters.
func tags(of reflect.Type, tag string, names map[string]bool, seen map[reflect.Type]bool) {
	for of.Kind() == reflect.Slice || of.Kind() == reflect.Pointer {
		of = of.Elem()
	}
	if of.Kind() != reflect.Struct || seen[of] || counters(of.PkgPath()) ||
		(tag == "json" && of == reflect.TypeOf(scenario.Scenario{})) {
		return
	}
	seen[of] = true
	for i := range of.NumField() {
		name, _, _ := strings.Cut(of.Field(i).Tag.Get(tag), ",")
		if name != "" && name != "-" {
			names[name] = true
		}
		tags(of.Field(i).Type, tag, names, seen)
	}
}

// A link between the documents leads to a file that is there, and to a heading of it. So does what other files say
// stands in docs or results.
func TestLinks(t *testing.T) {
	t.Chdir("../..")
	link := regexp.MustCompile(`\]\(([^)\s]*)\)`)
	mention := regexp.MustCompile(`(?:^|[^/\w.-])((?:\.\./)*(?:docs|results)/[-a-z0-9/]+\.(?:md|json|svg))\b`)
	links, mentions := 0, 0
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			if name := d.Name(); err == nil && (name == "dist" || name != "." && strings.HasPrefix(name, ".")) {
				return fs.SkipDir
			}
			return err
		}
		switch ext := filepath.Ext(path); ext {
		case ".md", ".go", ".sh", ".py", ".yml", ".toml", ".txt", ".txtar", ".service", ".c", ".h", "":
		default:
			return nil
		}
		if size, err := d.Info(); err != nil || size.Size() > 4<<20 { // a program
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for _, m := range mention.FindAllStringSubmatch(string(text), -1) {
			mentions++
			if _, err := os.Stat(strings.TrimLeft(m[1], "./")); err != nil {
				t.Errorf("%s speaks of %s, which is not there", path, m[1])
			}
		}
		if filepath.Ext(path) != ".md" {
			return nil
		}
		for _, m := range link.FindAllStringSubmatch(string(text), -1) {
			if strings.Contains(m[1], ":") {
				continue
			}
			links++
			file, anchor, _ := strings.Cut(m[1], "#")
			target := path
			if file != "" {
				target = filepath.Join(filepath.Dir(path), file)
			}
			page, err := os.ReadFile(target)
			if info, dir := os.Stat(target); dir == nil && info.IsDir() {
				continue
			}
			if err != nil || anchor != "" && !headings(string(page))[anchor] {
				t.Errorf("%s has a link to %s, which leads nowhere", path, m[1])
			}
		}
		return nil
	})
	if err != nil || links < 50 || mentions < 50 {
		t.Errorf("%d links and %d mentions were looked at: %v", links, mentions, err)
	}
}

// A test that a document names is one, and so is a file of tests.
func TestNamedTests(t *testing.T) {
	t.Chdir("../..")
	declaration := regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)\w+)\(`)
	mention := regexp.MustCompile(`\b((?:Test|Fuzz)[A-Z]\w*|[a-z0-9]\w*_test\.go)`)
	tests := map[string]bool{}
	for _, folder := range []string{"cmd", "internal", "packaging"} {
		err := filepath.WalkDir(folder, func(path string, d fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, "_test.go") {
				return err
			}
			tests[d.Name()] = true
			text, err := os.ReadFile(path)
			for _, m := range declaration.FindAllStringSubmatch(string(text), -1) {
				tests[m[1]] = true
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	pages, err := filepath.Glob("docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	names := 0
	for _, page := range append(pages, "CONTRIBUTING.md", "README.md") {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range mention.FindAllStringSubmatch(string(text), -1) {
			if names++; !tests[m[1]] {
				t.Errorf("%s names %s, which is not there", page, m[1])
			}
		}
	}
	if names < 10 {
		t.Errorf("only %d names were found", names)
	}
}

// headings are the anchors of a page's headings, as sites that show Markdown make them.
func headings(page string) map[string]bool {
	anchors := map[string]bool{}
	for line := range strings.Lines(page) {
		if title := strings.TrimLeft(line, "#"); title != line {
			title = strings.ToLower(strings.TrimSpace(title))
			anchors[regexp.MustCompile(`[^\p{L}\p{N} _-]`).ReplaceAllString(strings.ReplaceAll(title, " ", "-"),
				"")] = true
		}
	}
	return anchors
}

// A number that a document quotes with a link to results is there, in the section that the link names, as it is or with
// more digits.
func TestQuotes(t *testing.T) {
	t.Chdir("../..")
	quote := regexp.MustCompile(`\(\[results\]\(\.\./(results/[a-z0-9-]+\.md)#([^)]+)\)\)`)
	number := regexp.MustCompile(`\d+(?:\.\d+)?`)
	pages, err := filepath.Glob("docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	const shaped = "49.875" // 99.75 % of 50: not measured
	quoted := 0
	for _, page := range pages {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for paragraph := range strings.SplitSeq(strings.ReplaceAll(string(text), "\n- ", "\n\n- "), "\n\n") {
			paragraph = strings.ReplaceAll(paragraph, "\n", " ")
			from := 0
			for _, m := range quote.FindAllStringSubmatchIndex(paragraph, -1) {
				said := paragraph[from:m[0]]
				from = m[1]
				section := sectionOf(t, paragraph[m[2]:m[3]], paragraph[m[4]:m[5]])
				measured := number.FindAllString(section, -1)
				for _, n := range number.FindAllString(said, -1) {
					quoted++
					if !slices.ContainsFunc(measured, func(v string) bool { return rounded(v, n) }) && n != shaped {
						t.Errorf("%s quotes %s, which %s does not have: %s", page, n, paragraph[m[2]:m[5]], said)
					}
				}
			}
		}
	}
	if quoted < 40 {
		t.Errorf("only %d numbers are quoted", quoted)
	}
}

// rounded reports whether a value, with the digits that another has, is that other.
func rounded(value, as string) bool {
	v, err := strconv.ParseFloat(value, 64)
	_, decimals, _ := strings.Cut(as, ".")
	return err == nil && strconv.FormatFloat(v, 'f', len(decimals), 64) == as
}

// sectionOf is what stands on a page below a heading, up to the next of its level.
func sectionOf(t *testing.T, page, anchor string) string {
	t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	var section strings.Builder
	level := 0
	for line := range strings.Lines(string(text)) {
		title := strings.TrimLeft(line, "#")
		switch n := len(line) - len(title); {
		case n > 0 && headings(line)[anchor]:
			level = n
		case n > 0 && n <= level:
			return section.String()
		case level > 0:
			section.WriteString(line)
		}
	}
	return section.String()
}
