// SPDX-License-Identifier: Apache-2.0

package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strings"
)

// flipped has what stands for an operator in a mistake.
func flipped() map[token.Token]string {
	return map[token.Token]string{
		token.LSS: "<=", token.LEQ: "<", token.GTR: ">=", token.GEQ: ">", token.EQL: "!=", token.NEQ: "==",
		token.LAND: "||", token.LOR: "&&", token.ADD: "-", token.SUB: "+", token.MUL: "/", token.QUO: "*",
	}
}

// mistakes lists those that can be made in a package, in the order of its files. Some will not compile.
func mistakes(folder string) (all []mistake, err error) {
	files, err := filepath.Glob(filepath.Join(folder, "*.go"))
	if err != nil {
		return nil, err
	}
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		source, err := os.ReadFile(name)
		if err != nil {
			return nil, err
		}
		set := token.NewFileSet()
		file, err := parser.ParseFile(set, name, source, parser.SkipObjectResolution|parser.ParseComments)
		if err != nil {
			return nil, err
		}
		if ast.IsGenerated(file) { // what it was made from is the code
			continue
		}
		f := finder{folder: folder, name: name, source: source, set: set}
		ast.Inspect(file, f.look)
		all = append(all, f.found...)
	}
	return all, nil
}

type finder struct {
	folder, name string
	source       []byte
	set          *token.FileSet
	found        []mistake
}

func (f *finder) add(from, end token.Pos, to string) {
	a, b := f.set.Position(from), f.set.Position(end)
	what := oneLine(string(f.source[a.Offset:b.Offset])) + " → " + oneLine(to)
	if to == "" {
		what = "no " + oneLine(string(f.source[a.Offset:b.Offset]))
	}
	f.found = append(f.found, mistake{f.folder, f.name, a.Line, a.Offset, b.Offset, to, what})
}

func (f *finder) text(n ast.Node) string {
	return string(f.source[f.set.Position(n.Pos()).Offset:f.set.Position(n.End()).Offset])
}

func (f *finder) look(n ast.Node) bool {
	switch n := n.(type) {
	case *ast.BinaryExpr:
		if to, ok := flipped()[n.Op]; ok {
			f.replaceOperator(n, to)
		}
	case *ast.IfStmt:
		f.add(n.Cond.Pos(), n.Cond.End(), "!("+f.text(n.Cond)+")")
	case *ast.BasicLit:
		if n.Kind == token.INT || n.Kind == token.FLOAT {
			f.add(n.Pos(), n.End(), "("+n.Value+" + 1)")
		}
	case *ast.Ident:
		if other := map[string]string{"true": "false", "false": "true"}[n.Name]; other != "" {
			f.add(n.Pos(), n.End(), other)
		}
	case *ast.BlockStmt:
		f.drop(n.List)
	case *ast.CaseClause:
		f.drop(n.Body)
	case *ast.ReturnStmt:
		f.noError(n)
	}
	return true
}

// replaceOperator keeps the operands in what is printed.
func (f *finder) replaceOperator(n *ast.BinaryExpr, to string) {
	at := f.set.Position(n.OpPos)
	x, y := oneLine(f.text(n.X)), oneLine(f.text(n.Y))
	f.found = append(f.found, mistake{f.folder, f.name, at.Line, at.Offset, at.Offset + len(n.Op.String()), to,
		oneLine(x+" "+n.Op.String()+" "+y) + " → " + to})
}

// drop leaves out a statement that gives no name a meaning.
func (f *finder) drop(list []ast.Stmt) {
	for _, s := range list {
		switch s := s.(type) {
		case *ast.AssignStmt:
			if s.Tok != token.DEFINE {
				f.add(s.Pos(), s.End(), "")
			}
		case *ast.ExprStmt, *ast.IncDecStmt, *ast.DeferStmt, *ast.BranchStmt:
			f.add(s.Pos(), s.End(), "")
		}
	}
}

// noError gives nil where an error is returned.
func (f *finder) noError(n *ast.ReturnStmt) {
	if len(n.Results) == 0 {
		return
	}
	switch last := n.Results[len(n.Results)-1].(type) {
	case *ast.Ident:
		if last.Name == "err" {
			f.add(last.Pos(), last.End(), "nil")
		}
	case *ast.CallExpr:
		if called := f.text(last.Fun); called == "fmt.Errorf" || called == "errors.New" {
			f.add(last.Pos(), last.End(), "nil")
		}
	}
}
