package archtest_test

// This file looks for mutable state at package level: what several stores of
// one process share has to be an object that is handed to each.

import (
	"fmt"
	"go/ast"
	"go/token"
	"slices"
	"testing"
)

func TestNoPackageOfTheEngineHoldsMutableState(t *testing.T) {
	byDir := map[string][]source{}
	for _, s := range sources(t) {
		if floor, ok := floors[room(s.dir)]; ok && floor < floors["server"] && !s.isTest() && !ast.IsGenerated(s.file) {
			byDir[s.dir] = append(byDir[s.dir], s)
		}
	}
	var findings []string
	for _, files := range byDir {
		findings = append(findings, mutableState(files)...)
	}
	report(t, "package-level variables that change", findings)
}

// mutableState looks through the files of one package for package-level
// variables that are assigned to (themselves, a field, an element), whose
// address is taken, or that are made to change (locks, atomics). A sync.Pool is
// let pass: nobody can tell recycled memory from new.
func mutableState(files []source) []string {
	vars := map[string]bool{}
	var findings []string
	for _, s := range files {
		for _, spec := range packageVars(s.file) {
			for _, name := range spec.Names {
				vars[name.Name] = true
				if changesByNature(spec) {
					findings = append(findings, fmt.Sprintf("%s: %s is a lock, a map or a counter", s.at(name), name.Name))
				}
			}
		}
	}
	delete(vars, "_") // of the checks that a type implements an interface
	for _, s := range files {
		ast.Inspect(s.file, func(n ast.Node) bool {
			for _, target := range changed(n) {
				// An identifier without a declaration in its own file, or with one
				// at package level, is no local variable of the same name.
				id := base(target)
				if id != nil && vars[id.Name] && (id.Obj == nil || isPackageVar(s.file, id.Obj)) {
					findings = append(findings, fmt.Sprintf("%s: changes %s", s.at(n), id.Name))
				}
			}
			return true
		})
	}
	return findings
}

// packageVars returns the variables that a file declares at package level.
func packageVars(file *ast.File) []*ast.ValueSpec {
	var out []*ast.ValueSpec
	for _, decl := range file.Decls {
		gen, ok := decl.(*ast.GenDecl)
		if !ok || gen.Tok != token.VAR {
			continue
		}
		for _, spec := range gen.Specs {
			out = append(out, spec.(*ast.ValueSpec))
		}
	}
	return out
}

// Resolution within one file is all that is needed, and all that there is
// without type-checking the whole module.
//
//lint:ignore SA1019 see above
func isPackageVar(file *ast.File, obj *ast.Object) bool {
	return slices.ContainsFunc(packageVars(file), func(spec *ast.ValueSpec) bool { return obj.Decl == spec })
}

// changesByNature reports whether a variable is of a type that is of no use
// without changing.
func changesByNature(spec *ast.ValueSpec) bool {
	sel, ok := spec.Type.(*ast.SelectorExpr)
	if !ok && len(spec.Values) == 1 {
		if lit, isLit := spec.Values[0].(*ast.CompositeLit); isLit {
			sel, ok = lit.Type.(*ast.SelectorExpr)
		}
	}
	if !ok {
		return false
	}
	pkg, isName := sel.X.(*ast.Ident)
	return isName && (pkg.Name == "atomic" || pkg.Name == "sync" && sel.Sel.Name != "Pool")
}

// changed returns the expressions that a node assigns to or takes the address of.
func changed(n ast.Node) []ast.Expr {
	switch n := n.(type) {
	case *ast.AssignStmt:
		if n.Tok != token.DEFINE {
			return n.Lhs
		}
	case *ast.IncDecStmt:
		return []ast.Expr{n.X}
	case *ast.UnaryExpr:
		if n.Op == token.AND {
			return []ast.Expr{n.X}
		}
	case *ast.RangeStmt:
		if n.Tok == token.ASSIGN {
			return []ast.Expr{n.Key, n.Value}
		}
	}
	return nil
}

// base returns the variable that a.b[c].d begins with.
func base(x ast.Expr) *ast.Ident {
	for {
		switch e := x.(type) {
		case *ast.Ident:
			return e
		case *ast.SelectorExpr:
			x = e.X
		case *ast.IndexExpr:
			x = e.X
		case *ast.ParenExpr:
			x = e.X
		case *ast.StarExpr:
			x = e.X
		default:
			return nil
		}
	}
}

func TestTheStateRuleFindsWhatItForbids(t *testing.T) {
	for text, want := range map[string]int{
		`var a int; func f() { a = 1; a++ }`:                            2,
		`var a map[int]int; func f() { a[1] = 1 }`:                      1,
		`var a struct{ b int }; func f() { a.b += 1 }`:                  1,
		`var a int; func f() *int { return &a }`:                        1,
		`var a sync.Mutex`:                                              1,
		`var a = atomic.Int64{}`:                                        1,
		`var a = sync.Pool{}; func f() { a.Put(a.Get()) }`:              0,
		`var a = 1; func f() int { return a }`:                          0,
		`var a int; func f() { a := 1; a = 2; _ = a }`:                  0,
		`var a int; func f(a int) { a = 2 }`:                            0,
		`var a = errors.New("x"); func f() error { return a }`:          0,
		`type t struct{ a int }; var a int; func (t t) f() { t.a = 1 }`: 0,
	} {
		s, err := parse("wal/a.go", "package wal\n"+text)
		if err != nil {
			t.Fatal(err)
		}
		if got := mutableState([]source{s}); len(got) != want {
			t.Errorf("%s: found %q; want %d", text, got, want)
		}
	}
	one, err1 := parse("wal/a.go", "package wal\nvar a int")
	two, err2 := parse("wal/b.go", "package wal\nfunc f() { a = 1 }")
	if got := mutableState([]source{one, two}); err1 != nil || err2 != nil || len(got) != 1 {
		t.Errorf("in another file: found %q", got)
	}
}
