// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

var (
	cited  = regexp.MustCompile(`scenarios/([-a-z0-9/]+)\.toml`)
	title  = regexp.MustCompile(`(?m)^title = "(.*)"$`)
	figure = regexp.MustCompile(`\d+(\.\d+)?`)
	// What is part of a name or of the setting, and not measured: units that belong to a link, percentiles, kernel
	// constants in its words.
	setting = regexp.MustCompile(`\d[\d.]*(mbit|gbit|ms)\b|p\d+|scenarios/[-a-z0-9/]+\.toml|medians of \d+|` +
		`1 against \d+|2\.3 MB|at 8192|(?i:dualpi2)|L4S|seed \d+|15 %% of its rate`)
)

// fact is where a figure was measured, in a document's words; with no scenario it is part of what was asked.
type fact struct{ figure, scenario, point, candidate, metric string }

// Every figure in the evidence of a change is where testdata/evidence.txt says: in one cell of the tables that the
// cited scenario gave, rounded as it is printed. The tables of results/evidence.md and results/seeds.md are compared
// with new runs by a test of their own.
func TestEvidenceIsWhatWasMeasured(t *testing.T) {
	known, measured := readFacts(t), readTables(t)
	constants := map[string]ast.Expr{}
	var all []string
	for _, file := range []string{"rules.go", "recipes.go", "relay.go", "framing.go", "wide.go"} {
		all = append(all, evidences(t, file, constants)...)
	}
	used, checked := map[string]int{}, 0
	for _, evidence := range all {
		facts, words := []fact(nil), ""
		for begin, list := range known {
			if strings.Contains(evidence, begin) {
				used[begin]++
				facts, words = list, words+begin
			}
		}
		if _, ok := known[words]; !ok {
			t.Errorf("%q in testdata/evidence.txt is for %s", words, evidence)
			continue
		}
		figures := figure.FindAllString(setting.ReplaceAllString(evidence, ""), -1)
		if len(figures) != len(facts) {
			t.Errorf("%s: %d figures, and %d facts: %s", words, len(figures), len(facts), evidence)
			continue
		}
		for i, f := range facts {
			if f.figure != figures[i] {
				t.Errorf("%s: figure %d is %s, and not %s", words, i, figures[i], f.figure)
			} else if f.scenario != "" {
				checked++
				if err := f.look(measured); err != nil {
					t.Errorf("%s: %s: %v", words, f.figure, err)
				}
				if !slices.ContainsFunc(cited.FindAllStringSubmatch(evidence, -1),
					func(m []string) bool { return m[1] == f.scenario }) {
					t.Errorf("%s: %s is not cited", words, f.scenario)
				}
			}
		}
	}
	for begin := range known {
		if used[begin] != 1 {
			t.Errorf("%q is in %d evidences", begin, used[begin])
		}
	}
	if checked < 70 {
		t.Errorf("only %d figures were looked up", checked)
	}
}

// look compares the figure with the cell that it is said to be from.
func (f fact) look(measured map[fact]string) error {
	at := f
	at.figure = ""
	if words := strings.Trim(f.metric, `"`); words != f.metric {
		at.metric = ""
		if f.figure != "0" || !strings.Contains(measured[at], words) {
			return fmt.Errorf("it says %q, and not %s", measured[at], words)
		}
		return nil
	}
	cell, ok := measured[at]
	if !ok {
		return fmt.Errorf("no document has %+v", at)
	}
	value, err := strconv.ParseFloat(figure.FindString(cell), 64) // the median; a range may come after it
	if err != nil {
		return err
	}
	want, _ := strconv.ParseFloat(f.figure, 64)
	_, decimals, _ := strings.Cut(f.figure, ".")
	if scale := math.Pow10(len(decimals)); math.Round(value*scale) != math.Round(want*scale) {
		return fmt.Errorf("measured was %s", cell)
	}
	return nil
}

// readFacts gives the facts of testdata/evidence.txt by the words that their evidence has.
func readFacts(t *testing.T) map[string][]fact {
	t.Helper()
	text, err := os.ReadFile("testdata/evidence.txt")
	if err != nil {
		t.Fatal(err)
	}
	known, words := map[string][]fact{}, ""
	for line := range strings.Lines(string(text)) {
		indented := strings.HasPrefix(line, "\t")
		switch line = strings.TrimSpace(line); {
		case line == "" || line[0] == '#':
		case !indented:
			words = line
			known[words] = nil
		default:
			cells := strings.Split(line, " | ")
			if len(cells) == 4 { // no point
				cells = slices.Insert(cells, 2, "")
			}
			f := fact{figure: cells[0]}
			if len(cells) == 5 {
				f = fact{cells[0], cells[1], cells[2], cells[3], cells[4]}
			} else if len(cells) != 2 || cells[1] != "as set" {
				t.Fatalf("testdata/evidence.txt: %q", line)
			}
			known[words] = append(known[words], f)
		}
	}
	return known
}

// readTables gives each cell of the documents' tables by where it stands, and what is said of a candidate below a table
// under no metric.
func readTables(t *testing.T) map[fact]string {
	t.Helper()
	scenarios := titles(t)
	cells := map[fact]string{}
	for _, name := range []string{"seeds", "evidence", "dualpi2", "relay", "rules", "traffic"} {
		text, err := os.ReadFile("../../results/" + name + ".md")
		if err != nil {
			t.Fatal(err)
		}
		var at fact
		var columns []string
		for line := range strings.Lines(string(text)) {
			line = strings.TrimSpace(line)
			row, table := strings.CutPrefix(line, "|")
			if !table {
				columns = nil
			}
			switch {
			case strings.HasPrefix(line, "#"):
				at = fact{scenario: scenarios[strings.TrimLeft(line, "# ")]}
			case at.scenario == "":
			case strings.HasPrefix(line, "**") && strings.HasSuffix(line, "**"):
				at.point = strings.Trim(line, "*")
			case strings.HasPrefix(line, "- "):
				if i := strings.LastIndex(line, ": The queue"); i > 0 {
					said := at
					said.candidate = line[2:i]
					cells[said] = line[i+2:]
				}
			case table && columns == nil:
				columns = split(row)
			case table:
				for i, value := range split(row) {
					cell := at
					cell.candidate, cell.metric = split(row)[0], columns[i]
					cells[cell] = value
				}
			}
		}
	}
	return cells
}

// titles gives the scenarios, as facts name them, by their titles.
func titles(t *testing.T) map[string]string {
	t.Helper()
	scenarios := map[string]string{}
	for _, pattern := range []string{"*.toml", "*/*.toml"} {
		files, err := filepath.Glob(filepath.Join("../../scenarios", pattern))
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if name := title.FindSubmatch(text); name != nil {
				path, _ := filepath.Rel("../../scenarios", strings.TrimSuffix(file, ".toml"))
				scenarios[string(name[1])] = path
			}
		}
	}
	return scenarios
}

// split gives a table row's cells.
func split(row string) (cells []string) {
	for _, cell := range strings.Split(strings.TrimSuffix(row, "|"), "|") {
		cells = append(cells, strings.TrimSpace(cell))
	}
	return cells
}

// evidences are the strings of a file that cite a scenario, made of literals and of constants with a plus between them.
// A constant is no evidence by itself where another is made of it.
func evidences(t *testing.T, file string, constants map[string]ast.Expr) (all []string) {
	t.Helper()
	parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	ast.Inspect(parsed, func(n ast.Node) bool {
		if v, ok := n.(*ast.ValueSpec); ok && len(v.Values) == len(v.Names) {
			for i, name := range v.Names {
				constants[name.Name] = v.Values[i]
			}
		}
		return true
	})
	within := map[string]bool{}
	ast.Inspect(parsed, func(n ast.Node) bool {
		e, ok := n.(ast.Expr)
		if !ok {
			return true
		}
		s, whole := literal(e, constants)
		if _, alone := e.(*ast.Ident); whole && cited.MatchString(s) && !alone {
			all = append(all, s)
		}
		return !whole
	})
	for _, s := range all {
		for _, part := range all {
			if part != s && strings.Contains(s, part) {
				within[part] = true
			}
		}
	}
	return slices.DeleteFunc(all, func(s string) bool { return within[s] })
}

// literal is the text of an expression that is a string, or several with a plus between them.
func literal(e ast.Expr, constants map[string]ast.Expr) (string, bool) {
	switch e := e.(type) {
	case *ast.BasicLit:
		s, err := strconv.Unquote(e.Value)
		return s, err == nil && e.Kind == token.STRING
	case *ast.Ident:
		if value := constants[e.Name]; value != nil {
			return literal(value, constants)
		}
	case *ast.BinaryExpr:
		x, first := literal(e.X, constants)
		y, second := literal(e.Y, constants)
		return x + y, first && second && e.Op == token.ADD
	}
	return "", false
}
