// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// A list of skips ends what go test says; of tests, those that fail are shown whole, and the others not at all.
func TestShow(t *testing.T) {
	var events strings.Builder
	say := func(action, test string, output ...string) {
		for _, o := range output {
			_ = json.NewEncoder(&events).Encode(event{Action: "output", Package: "weir/x", Test: test, Output: o})
		}
		if action != "" {
			_ = json.NewEncoder(&events).Encode(event{Action: action, Package: "weir/x", Test: test})
		}
	}
	events.WriteString("go: what is no event\n")
	say("pass", "TestFine", "=== RUN   TestFine\n", "    a_test.go:1: quiet\n", "--- PASS: TestFine (0.00s)\n")
	say("fail", "TestBad", "=== RUN   TestBad\n", "    a_test.go:2: loud\n", "        and long\n",
		"--- FAIL: TestBad (0.00s)\n")
	for _, sub := range []string{"TestSkip/one", "TestSkip/two"} {
		say("skip", sub, "=== RUN   "+sub+"\n", "    a_test.go:3: skipped, not passed: no chromium (make deps)\n",
			"    --- SKIP: "+sub+" (0.00s)\n")
	}
	say("skip", "TestTDC", "    a_test.go:3: skipped, not passed: it needs the newest tc (make tc)\n",
		"--- SKIP: TestTDC (0.00s)\n")
	say("skip", "TestRight", "    a_test.go:3: skipped, not passed: a network namespace needs root\n",
		"--- SKIP: TestRight (0.00s)\n")
	say("skip", "TestElsewhere", "    a_test.go:4: skipped here: it runs in make test-kernels\n",
		"--- SKIP: TestElsewhere (0.00s)\n")
	say("skip", "TestSilent", "=== RUN   TestSilent\n", "--- SKIP: TestSilent (0.00s)\n")
	say("pass", "TestBoots", "    k.go:5: === RUN   TestInA\n",
		"    k.go:5:     in_test.go:6: this kernel has no cake\n", "    k.go:5: --- SKIP: TestInA (0.00s)\n",
		"--- PASS: TestBoots (1s)\n")
	say("pass", "TestBootsAlso", "    k.go:5: === RUN   TestInB\n", "    k.go:5: === RUN   TestInB/one\n",
		"    k.go:5:     b_test.go:7: skipped, not passed: this kernel has no gred\n", "    k.go:5:         it says\n",
		"    k.go:5: === RUN   TestInB/two\n", "    k.go:5:     b_test.go:8: fine\n",
		"    k.go:5: --- PASS: TestInB (0.00s)\n", "    k.go:5:     --- SKIP: TestInB/one (0.00s)\n",
		"    k.go:5:     --- PASS: TestInB/two (0.00s)\n", "--- PASS: TestBootsAlso (1s)\n")
	_ = json.NewEncoder(&events).Encode(event{Action: "attr", Package: "weir/x", Test: "TestLong/part", Key: "kind",
		Value: "lab kernel"})
	_ = json.NewEncoder(&events).Encode(event{Action: "pass", Package: "weir/x", Test: "TestLong", Elapsed: 61.24})
	_ = json.NewEncoder(&events).Encode(event{Action: "pass", Package: "weir/x", Test: "TestLong/part", Elapsed: 60})
	say("fail", "", "FAIL\n", "FAIL\tweir/x\t0.1s\n")
	const want = `go: what is no event
    a_test.go:2: loud
        and long
--- FAIL: TestBad (0.00s)
FAIL
FAIL	weir/x	0.1s

Slowest:
    61.2 s  lab kernel      weir/x TestLong
     0.0 s  unit            weir/x TestBad
     0.0 s  unit            weir/x TestBoots
     0.0 s  unit            weir/x TestBootsAlso
     0.0 s  unit            weir/x TestFine
By kind:
    61.2 s  lab kernel
     0.0 s  unit

Skipped, and not passed:
  no reason is given
    weir/x TestSilent
  skipped here: it runs in make test-kernels
    weir/x TestElsewhere
  skipped, not passed: a network namespace needs root
    weir/x TestRight
  skipped, not passed: it needs the newest tc (make tc)
    weir/x TestTDC
  skipped, not passed: no chromium (make deps)
    weir/x TestSkip (2)
  skipped, not passed: this kernel has no gred
    weir/x TestBootsAlso, in its guest: TestInB
  this kernel has no cake
    weir/x TestBoots, in its guest: TestInA
`
	var shown strings.Builder
	if missing := show(&shown, strings.NewReader(events.String())); shown.String() != want || missing != 3 {
		t.Errorf("%d are missing, and it shows\n%s\nwant\n%s", missing, shown.String(), want)
	}
}

// Every skip of the repository has one of the two forms, so that none is overlooked; and what a test says to be had by
// one of the project's commands counts. A fuzz target skips without a word.
func TestForms(t *testing.T) {
	command := regexp.MustCompile(`\((make|scripts/)[^)]*\)`)
	const wanting = "skipped, not passed:"
	found, counted := 0, map[string]bool{}
	root := os.DirFS("../..")
	err := fs.WalkDir(root, ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".go" {
			return err
		}
		files := token.NewFileSet()
		file, err := parser.ParseFile(files, "../../"+path, nil, 0)
		if err != nil {
			return err
		}
		ast.Inspect(file, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok || len(call.Args) == 0 {
				return true
			}
			if f, ok := call.Fun.(*ast.SelectorExpr); !ok || f.Sel.Name != "Skip" && f.Sel.Name != "Skipf" {
				return true
			}
			found++
			said := begin(call.Args[0])
			if !strings.HasPrefix(said, byDesign) && !strings.HasPrefix(said, wanting) {
				t.Errorf("%s: %q begins with neither %q nor %q", files.Position(call.Pos()), said, byDesign, wanting)
			}
			if has := command.FindString(said); has != "" && !remedy.MatchString(said) {
				t.Errorf("%s: %q names a command, and is no failure in CI", files.Position(call.Pos()), said)
			} else {
				counted[has] = true
			}
			return true
		})
		return nil
	})
	if err != nil || found < 50 || !counted["(make tc)"] {
		t.Errorf("%d skips, with %v: %v", found, counted, err)
	}
}

// begin is the text with which an argument begins.
func begin(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.BasicLit:
		s, _ := strconv.Unquote(e.Value)
		return s
	case *ast.BinaryExpr:
		return begin(e.X) + begin(e.Y)
	}
	return ""
}

// Which tier a file's tests are in is seen from its name, and its build tag says the same.
func TestTiers(t *testing.T) {
	constraint := regexp.MustCompile(`(?m)^//go:build (.*)$`)
	root := os.DirFS("../..")
	found := map[string]int{}
	err := fs.WalkDir(root, ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := fs.ReadFile(root, path)
		if err != nil {
			return err
		}
		tags := ""
		if m := constraint.FindSubmatch(text); m != nil {
			tags = string(m[1])
		}
		for _, tier := range []string{"all", "kernels", "machines"} {
			named := strings.HasSuffix(path, "_"+tier+"_test.go")
			tagged := regexp.MustCompile(`(^|[^!])\b` + tier + `\b`).MatchString(tags)
			if named != tagged {
				t.Errorf("%s is for %q by its name: %v, and by its tag: %v", path, tier, named, tagged)
			}
			if named {
				found[tier]++
			}
		}
		return nil
	})
	if err != nil || found["all"] < 30 || found["kernels"] == 0 || found["machines"] == 0 {
		t.Errorf("%v, %v", found, err)
	}
}
