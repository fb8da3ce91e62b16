package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// mutant is one planted mistake.
type mutant struct {
	name string
	what string // what is wrong
	test test
	// sources are the changed files, by their paths from the root.
	sources map[string]string
	edits   []edit
}

// test is the test that has to fail.
type test struct {
	program
	run string // for -test.run
}

// program is the program that has the tests of a package.
type program struct {
	pkg  string
	race bool
}

type edit struct{ file, find, replace string }

const (
	findMark    = "--- find in "
	replaceMark = "--- replace"
)

// parse reads the file of a mutant:
//
//	what is wrong, in one line
//	test PACKAGE NAME [race]
//	--- find in FILE
//	text that is in the file exactly once, in whole lines
//	--- replace
//	text that takes its place
//
// There may be several edits, one after the other. Lines before the first edit that begin
// with # are comments.
func parse(name, text string) (*mutant, error) {
	m := &mutant{name: name, sources: map[string]string{}}
	var into *string
	for line := range strings.Lines(text) {
		bare := strings.TrimRight(line, "\n")
		file, find := strings.CutPrefix(bare, findMark)
		switch {
		case find:
			m.edits = append(m.edits, edit{file: file})
			into = &m.edits[len(m.edits)-1].find
		case bare == replaceMark && into != nil:
			into = &m.edits[len(m.edits)-1].replace
		case into != nil:
			*into += line
		case strings.HasPrefix(bare, "#") || bare == "":
		case m.what == "":
			m.what = bare
		default:
			if err := m.test.parse(bare); err != nil {
				return m, err
			}
		}
	}
	if m.what == "" || m.test.pkg == "" || len(m.edits) == 0 {
		return m, fmt.Errorf("a line that says what is wrong, a test, or an edit is missing")
	}
	return m, nil
}

func (t *test) parse(line string) error {
	words := strings.Fields(line)
	if len(words) < 3 || words[0] != "test" {
		return fmt.Errorf("%q is no line of the form: test PACKAGE NAME [race]", line)
	}
	t.program, t.run = program{words[1], len(words) > 3 && words[3] == "race"}, "^"+words[2]+"$"
	return nil
}

// apply makes the changed sources.
func (m *mutant) apply(root string) error {
	for _, e := range m.edits {
		source, again := m.sources[e.file]
		if !again {
			text, err := os.ReadFile(filepath.Join(root, e.file))
			if err != nil {
				return err
			}
			source = string(text)
		}
		if n := strings.Count(source, e.find); n != 1 {
			return fmt.Errorf("it does not apply any more: %s has this text %d times:\n%s", e.file, n, e.find)
		}
		// Where the lines below keep their numbers, the packages above need not be compiled again.
		pad := strings.Repeat("\n", max(0, strings.Count(e.find, "\n")-strings.Count(e.replace, "\n")))
		m.sources[e.file] = strings.Replace(source, e.find, e.replace+pad, 1)
	}
	return nil
}
