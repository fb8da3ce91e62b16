package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"testing"
)

func TestAnSBOMListsTheModulesOfABuild(t *testing.T) {
	got := describe(&debug.BuildInfo{
		GoVersion: "go1.26.0", Main: debug.Module{Path: "a.org/main", Version: "v1.0.0+dirty"},
		Deps: []*debug.Module{
			{Path: "a.org/b", Version: "v2.0.0+incompatible"},
			{Path: "a.org/c", Version: "v1.0.0", Replace: &debug.Module{Path: "a.org/d", Version: "v1.1.0"}},
		},
	})
	if p := got.Metadata.Component.PURL; p != "pkg:golang/a.org/main@v1.0.0%2Bdirty" {
		t.Error(p)
	}
	want := []string{"pkg:golang/std@1.26.0", "pkg:golang/a.org/b@v2.0.0%2Bincompatible", "pkg:golang/a.org/d@v1.1.0"}
	for i, c := range got.Components {
		if c.PURL != want[i] || len(got.Components) != len(want) {
			t.Errorf("component %d of %d is %s, want %s", i, len(got.Components), c.PURL, want[i])
		}
	}
}

// TestTheSBOMOfABinaryIsReadFromIt copies the binary of this test.
func TestTheSBOMOfABinaryIsReadFromIt(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(self)
	if err != nil {
		t.Fatal(err)
	}
	binary := filepath.Join(t.TempDir(), "binary")
	if err := os.WriteFile(binary, content, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := writeSBOM(binary); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(binary + ".cdx.json")
	if err != nil {
		t.Fatal(err)
	}
	var b bom
	if err := json.Unmarshal(text, &b); err != nil || b.Metadata.Component.Name != "github.com/flagstone-db/flagstone/tools" {
		t.Errorf("%v, %s", err, text)
	}
	// The toolchain records no revision in the binary of a test.
	if err := hasRevision(binary); err == nil || !strings.Contains(err.Error(), "records no revision") {
		t.Error(err)
	}
	if err := os.WriteFile(binary, content[:1000], 0o600); err != nil {
		t.Fatal(err)
	}
	if err := writeSBOM(binary); err == nil {
		t.Error("a damaged binary has an SBOM")
	}
}

func TestSumsAreOverFilesInOrder(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"b", "a"} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := writeSums(dir); err != nil {
		t.Fatal(err)
	}
	const empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
	if got, err := os.ReadFile(filepath.Join(dir, "SHA256SUMS")); err != nil || string(got) != empty+"  a\n"+empty+"  b\n" {
		t.Errorf("%s, %v", got, err)
	}
	if err := release(t.Context(), dir, []string{"linux/amd64"}, false); err == nil {
		t.Error("a folder with files was taken")
	}
}
