package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestEveryMutantApplies: a change of the source that a mutant is planted in brings it up to date.
func TestEveryMutantApplies(t *testing.T) {
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	mutants, err := load(root, regexp.MustCompile(""))
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range mutants {
		for name, text := range m.sources {
			if before, err := os.ReadFile(filepath.Join(root, name)); err != nil || string(before) == text {
				t.Errorf("%s changes nothing in %s: %v", m.name, name, err)
			}
		}
	}
}

func TestAMutantThatDoesNotApplyIsAnError(t *testing.T) {
	root := t.TempDir()
	if err := os.WriteFile(filepath.Join(root, "a.go"), []byte("one\ntwo\ntwo\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]string{
		"--- find in a.go\none\n--- replace\nthree\n":                                       "three\ntwo\ntwo\n",
		"--- find in a.go\none\n--- replace\n":                                              "\ntwo\ntwo\n",
		"--- find in a.go\none\n--- replace\nx\n--- find in a.go\nx\ntwo\n--- replace\ny\n": "y\n\ntwo\n",
		"--- find in a.go\ntwo\n--- replace\nthree\n":                                       "",
		"--- find in a.go\nfour\n--- replace\nthree\n":                                      "",
		"--- find in b.go\none\n--- replace\nthree\n":                                       "",
		"": "",
	} {
		m, err := parse("m", "what is wrong\ntest ./p TestX race\n"+text)
		if err == nil {
			err = m.apply(root)
		}
		if (err == nil) != (want != "") || err == nil && m.sources["a.go"] != want {
			t.Errorf("%q: got %q, %v; want %q", text, m.sources["a.go"], err, want)
		}
		if err == nil && (m.test != test{program{"./p", true}, "^TestX$"} || !strings.Contains(m.what, "wrong")) {
			t.Errorf("%q: %+v", text, m)
		}
	}
}
