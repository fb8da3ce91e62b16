package archtest_test

// This file keeps the API closed: what an importer can see of the root package is made of its own
// types, of values, and of the standard library.

import (
	"fmt"
	"go/ast"
	"slices"
	"strings"
	"testing"
)

// valueTypes are what the API may name of packages below it.
var valueTypes = []string{modulePath + "/row.Value", modulePath + "/row.Cell", modulePath + "/row.Type"}

// openField is the one exported field of another type below the API.
const openField = "Options.Seams"

func TestTheAPINamesNoTypeBelowIt(t *testing.T) {
	files := slices.DeleteFunc(sources(t), func(s source) bool { return s.dir != "." || s.isTest() })
	report(t, "exported declarations of the root package that name a type below it", foreignTypes(files))
}

// api collects what is visible of a package.
type api struct {
	types    map[string]*ast.TypeSpec
	of       map[ast.Node]source        // the file of a type or function
	methods  map[string][]*ast.FuncDecl // exported ones, by the type
	seen     map[string]bool            // types that are visible
	findings []string
}

// foreignTypes returns where an exported declaration names a type of another package of this
// module. An unexported type that one names is visible with its exported fields and methods.
func foreignTypes(files []source) []string {
	a := api{map[string]*ast.TypeSpec{}, map[ast.Node]source{}, map[string][]*ast.FuncDecl{}, map[string]bool{}, nil}
	var visible []func()
	for _, s := range files {
		for _, decl := range s.file.Decls {
			switch d := decl.(type) {
			case *ast.FuncDecl:
				switch a.of[d] = s; {
				case !d.Name.IsExported():
				case d.Recv != nil:
					receiver := base(d.Recv.List[0].Type).Name
					a.methods[receiver] = append(a.methods[receiver], d)
				default:
					visible = append(visible, func() { a.look(s, d.Type, d.Name.Name) })
				}
			case *ast.GenDecl:
				for _, spec := range d.Specs {
					switch spec := spec.(type) {
					case *ast.TypeSpec:
						a.types[spec.Name.Name], a.of[spec] = spec, s
						if spec.Name.IsExported() {
							visible = append(visible, func() { a.show(spec.Name.Name) })
						}
					case *ast.ValueSpec:
						if spec.Type != nil && slices.ContainsFunc(spec.Names, (*ast.Ident).IsExported) {
							visible = append(visible, func() { a.look(s, spec.Type, spec.Names[0].Name) })
						}
					}
				}
			}
		}
	}
	for _, look := range visible {
		look()
	}
	return a.findings
}

// show looks at what a type of the package shows.
func (a *api) show(name string) {
	spec := a.types[name]
	if spec == nil || a.seen[name] {
		return
	}
	a.seen[name] = true
	a.look(a.of[spec], spec.Type, name)
	for _, m := range a.methods[name] {
		a.look(a.of[m], m.Type, name+"."+m.Name.Name)
	}
}

// look looks at the types that an expression names.
func (a *api) look(s source, x ast.Expr, in string) {
	ast.Inspect(x, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.StructType:
			for _, f := range n.Fields.List {
				exported := func(id *ast.Ident) bool { return id.IsExported() && in+"."+id.Name != openField }
				if len(f.Names) == 0 || slices.ContainsFunc(f.Names, exported) {
					a.look(s, f.Type, in)
				}
			}
			return false
		case *ast.Field:
			a.look(s, n.Type, in)
			return false
		case *ast.SelectorExpr:
			for imported := range s.imports() {
				id, ok := n.X.(*ast.Ident)
				if name := imported + "." + n.Sel.Name; ok && s.localName(imported) == id.Name &&
					within(imported, modulePath) && !slices.Contains(valueTypes, name) {
					a.findings = append(a.findings, fmt.Sprintf("%s: %s names %s", s.at(n), in, strings.TrimPrefix(name, modulePath+"/")))
				}
			}
			return false
		case *ast.Ident:
			a.show(n.Name)
		}
		return true
	})
}

func TestTheRuleOfTheAPIFindsWhatItForbids(t *testing.T) {
	for text, want := range map[string]int{
		`func F(x manifest.State) {}`:                                          1,
		`func F() (manifest.State, []*vfs.FS) { panic(1) }`:                    2,
		`type T struct { A vfs.FS; b vfs.FS }`:                                 1,
		`type T = manifest.State`:                                              1,
		`type T struct { *t }; type t struct { A vfs.FS; b vfs.FS }`:           1,
		`type T struct { *t }; type t struct{}; func (t t) M(func(vfs.FS)) {}`: 1,
		`type t struct { A vfs.FS }; func F() t { panic(1) }`:                  1,
		`type T interface { M(x vfs.FS) }`:                                     1,
		`type T int; func (t *T) M() map[string]manifest.State { panic(1) }`:   1,
		`var V vfs.FS`: 1,
		`type T struct { A [manifest.NumLevels]int }`:                                       1,
		`func F(row.Change) {}`:                                                             1,
		`type Options struct { Seams vfs.FS; Other vfs.FS }`:                                1,
		`func F(row.Value, row.Cell) row.Type { var x manifest.State; panic(x) }`:           0,
		`type T struct { a vfs.FS; manifest int }; func (t T) m() vfs.FS { panic(1) }`:      0,
		`func f(vfs.FS) {}; type t struct { A vfs.FS }; func (t t) M() vfs.FS { panic(1) }`: 0,
	} {
		s, err := parse("a.go", `package p; import ("`+modulePath+`/manifest"; "`+modulePath+`/internal/vfs"; "`+modulePath+`/row");`+text)
		if err != nil {
			t.Fatal(err)
		}
		if got := foreignTypes([]source{s}); len(got) != want {
			t.Errorf("%s: found %q; want %d", text, got, want)
		}
	}
}
