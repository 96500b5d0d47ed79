// SPDX-License-Identifier: Apache-2.0

package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// What the program says to people it does not read again: what is decided by has a type. A search within a text that
// comes from a field or a method for people is found here, and so is one of an error's own words.
func TestNoSentenceDecides(t *testing.T) {
	searches := []string{"Contains", "HasPrefix", "HasSuffix", "Cut", "CutPrefix", "CutSuffix", "Index"}
	forPeople := []string{"Error", "Why", "What", "Figure", "Says", "Reason", "Evidence", "Try", "Hint", "Text",
		"Short", "Lacks", "Subject"}
	// A file's text, and words of libraries that have no type for them.
	allowed := map[string]string{
		"internal/host/files.go":          "the mark of a file that weir wrote",
		"internal/meter/server/domain.go": "the library keeps the reason to itself",
	}
	used := map[string]bool{}
	root := filepath.Join("..", "..")
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		name, _ := filepath.Rel(root, path)
		if err != nil || d.IsDir() || filepath.Ext(name) != ".go" || strings.HasSuffix(name, "_test.go") {
			return err
		}
		set := token.NewFileSet()
		file, err := parser.ParseFile(set, path, nil, 0)
		if err != nil {
			return err
		}
		ast.Inspect(file, func(n ast.Node) bool {
			call, is := n.(*ast.CallExpr)
			if !is || len(call.Args) < 2 {
				return true
			}
			f, is := call.Fun.(*ast.SelectorExpr)
			if !is || !slices.Contains(searches, f.Sel.Name) {
				return true
			}
			if pkg, is := f.X.(*ast.Ident); !is || pkg.Name != "strings" {
				return true
			}
			text := call.Args[0]
			if method, is := text.(*ast.CallExpr); is && len(method.Args) == 0 {
				text = method.Fun
			}
			field, is := text.(*ast.SelectorExpr)
			if !is || !slices.Contains(forPeople, field.Sel.Name) {
				return true
			}
			if allowed[name] == "" {
				t.Errorf("%s: strings.%s looks into %s, which is for people", set.Position(n.Pos()), f.Sel.Name,
					field.Sel.Name)
			}
			used[name] = true
			return true
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for name := range allowed {
		if !used[name] {
			t.Errorf("%s is allowed, and does nothing of the kind", name)
		}
	}
}
