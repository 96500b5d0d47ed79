// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"go/ast"
	"go/parser"
	"go/token"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

var (
	cited  = regexp.MustCompile(`scenarios/[-a-z0-9/]+\.toml`)
	title  = regexp.MustCompile(`(?m)^title = "(.*)"$`)
	figure = regexp.MustCompile(`\d+(\.\d+)?`)
	// What is part of a name or of the setting, and not measured: units that belong to a link, percentiles, kernel
	// constants in its words.
	setting = regexp.MustCompile(`\d[\d.]*(mbit|gbit|ms)\b|p\d+|scenarios/[-a-z0-9/]+\.toml|medians of \d+|1 against \d+|2\.3 MB|at 8192|dualpi2|seed \d+|15 %% of its rate`)
)

// Every figure in the evidence of a change is in the tables that the cited scenarios gave: docs/seeds.md and
// docs/evidence.md, which are compared with new runs by a test of their own, docs/dualpi2.md and docs/relay.md.
func TestEvidenceIsWhatWasMeasured(t *testing.T) {
	sections := map[string]string{} // by title
	for file, heading := range map[string]string{"../../docs/seeds.md": "\n## ", "../../docs/evidence.md": "\n## ",
		"../../docs/dualpi2.md": "\n### ", "../../docs/relay.md": "\n### "} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, section := range strings.Split(string(text), heading)[1:] {
			head, body, _ := strings.Cut(section, "\n")
			sections[head] = body
		}
	}
	checked := 0
	for _, file := range []string{"rules.go", "recipes.go", "relay.go"} {
		for _, evidence := range evidences(t, file) {
			var measured []float64
			for _, scenario := range cited.FindAllString(evidence, -1) {
				text, err := os.ReadFile(filepath.Join("../..", scenario))
				if err != nil {
					t.Fatal(err)
				}
				name := title.FindStringSubmatch(string(text))
				body, ok := sections[name[1]]
				if !ok {
					t.Errorf("%s is in no document", scenario)
				}
				for _, f := range figure.FindAllString(body, -1) {
					v, _ := strconv.ParseFloat(f, 64)
					measured = append(measured, v)
				}
			}
			for _, f := range figure.FindAllString(setting.ReplaceAllString(evidence, ""), -1) {
				checked++
				if !among(f, measured) {
					t.Errorf("no table of the cited scenarios has %s: %s", f, evidence)
				}
			}
		}
	}
	if checked < 40 {
		t.Errorf("only %d figures were found", checked)
	}
}

// evidences are the strings of a file that cite a scenario.
func evidences(t *testing.T, file string) (all []string) {
	t.Helper()
	parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	ast.Inspect(parsed, func(n ast.Node) bool {
		e, ok := n.(ast.Expr)
		if !ok {
			return true
		}
		s, whole := literal(e)
		if whole && cited.MatchString(s) {
			all = append(all, s)
		}
		return !whole
	})
	return all
}

// literal is the text of an expression that is a string, or several with a plus between them.
func literal(e ast.Expr) (string, bool) {
	switch e := e.(type) {
	case *ast.BasicLit:
		s, err := strconv.Unquote(e.Value)
		return s, err == nil && e.Kind == token.STRING
	case *ast.BinaryExpr:
		x, first := literal(e.X)
		y, second := literal(e.Y)
		return x + y, first && second && e.Op == token.ADD
	}
	return "", false
}

// among tells whether one of the values, rounded as f is, is f.
func among(f string, values []float64) bool {
	want, _ := strconv.ParseFloat(f, 64)
	_, decimals, _ := strings.Cut(f, ".")
	scale := math.Pow10(len(decimals))
	for _, v := range values {
		if math.Round(v*scale) == math.Round(want*scale) {
			return true
		}
	}
	return false
}
