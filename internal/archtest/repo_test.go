package archtest_test

// This file finds the repository and parses it, for the rules in archtest_test.go.

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// modulePath is the import path of the repository.
const modulePath = "github.com/flagstone-db/flagstone"

// source is a parsed Go file.
type source struct {
	name  string // path from the repository's root, with slashes
	dir   string // the same of its directory; "." is the root package
	lines int
	file  *ast.File
	fset  *token.FileSet
}

func (s source) isTest() bool { return strings.HasSuffix(s.name, "_test.go") }

// at says where a node is.
func (s source) at(n ast.Node) string { return s.fset.Position(n.Pos()).String() }

// parse makes a source of a file's text.
func parse(name, text string) (source, error) {
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, name, text, parser.ParseComments)
	return source{
		name: name, dir: path.Dir(name), lines: strings.Count(text, "\n"), file: file, fset: fset,
	}, err
}

// imports returns the paths that a file imports, with the node of each.
func (s source) imports() map[string]*ast.ImportSpec {
	out := map[string]*ast.ImportSpec{}
	for _, spec := range s.file.Imports {
		out[strings.Trim(spec.Path.Value, `"`)] = spec
	}
	return out
}

// localName returns under which name a file uses an import, "" if it does not
// import it.
func (s source) localName(importPath string) string {
	spec := s.imports()[importPath]
	switch {
	case spec == nil:
		return ""
	case spec.Name != nil:
		return spec.Name.Name
	default:
		return path.Base(importPath)
	}
}

// root returns the directory of the repository.
func root(t *testing.T) string {
	t.Helper()
	dir, err := filepath.Abs(filepath.Join("..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(dir, "go.mod")); err != nil {
		t.Fatal(err)
	}
	return dir
}

// walk calls fn for each file of this module, by its path from the root. It
// leaves out nested modules, hidden directories, and test data.
func walk(t *testing.T, fn func(name string, text []byte)) {
	t.Helper()
	top := root(t)
	err := filepath.WalkDir(top, func(full string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() {
			if full != top && (strings.HasPrefix(entry.Name(), ".") || entry.Name() == "testdata" || hasModule(full)) {
				return fs.SkipDir
			}
			return nil
		}
		if !isText(entry.Name()) {
			return nil
		}
		text, err := os.ReadFile(full)
		if err != nil {
			return err
		}
		name, err := filepath.Rel(top, full)
		if err != nil {
			return err
		}
		fn(filepath.ToSlash(name), text)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func hasModule(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, "go.mod"))
	return err == nil
}

// isText tells the files that people write.
func isText(name string) bool {
	return slices.Contains([]string{".go", ".md", ".mod", ".sh", ".yml", ".yaml", ".toml", ".txt", ".proto"}, filepath.Ext(name)) ||
		name == "Makefile"
}

// sources parses all Go files of this module.
func sources(t *testing.T) []source {
	t.Helper()
	var out []source
	walk(t, func(name string, text []byte) {
		if path.Ext(name) != ".go" {
			return
		}
		s, err := parse(name, string(text))
		if err != nil {
			t.Error(err)
			return
		}
		out = append(out, s)
	})
	return out
}
