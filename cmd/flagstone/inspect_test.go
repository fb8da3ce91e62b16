package main

import (
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestInspectShowsWhatIsInTheFiles writes rows, large values among them, looks at the log, and at the rest once the rows
// are in table files.
func TestInspectShowsWhatIsInTheFiles(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "store")
	_, stop := serving(t, "--dir", dir, "--sync", "none")
	large := strings.Repeat("large", 100_000)
	follow(t, dir, []step{
		{"table create orders --key customer:string --key n:integer --versions 3", ""},
		{"put orders anna 7 -s total:double=12.5 -s picture:binary=00ff -s note=<&>", ""},
		{"put orders bert 1 -s large=" + large, ""}, {"update orders anna 7 -u picture", ""}, {"delete orders zoe 1", ""},
	})
	do := func(args ...string) string {
		t.Helper()
		status, out, errOut := command(t, append([]string{"inspect"}, args...)...)
		if status != 0 {
			t.Fatalf("%v: status %d, %s", args, status, errOut)
		}
		return out
	}
	has := func(what, out string, parts ...string) {
		t.Helper()
		for _, part := range parts {
			if !strings.Contains(out, part) {
				t.Errorf("%s has no %q:\n%.3000s", what, part, out)
			}
		}
	}
	do("log", "--dir", dir) // beside the server
	do("manifest", "--dir", dir)
	stop() // the log is whole
	has("the log", do("log", "--dir", dir, "--changes"), "demo/orders (anna, 7) delete-row put-row", "put total", "= double 12.5", "= binary 00ff",
		"(bert, 1)", "... (500000 bytes)", "trim picture", "(zoe, 1) delete-row")
	if out := do("log", "--dir", dir, "--limit", "1"); strings.Count(out, "\n") != 1 {
		t.Errorf("one record: %s", out)
	}

	_, stop = serving(t, "--dir", dir, "--sync", "none")
	follow(t, dir, []step{{"put orders anna 8 -s c=1", ""}, {"table flush orders", ""}, {"table flush nothing", `!has no table "nothing"`}})
	has("the tree", do("tree", "--dir", dir, "orders"), "\n0 ")
	follow(t, dir, []step{{"delete orders anna 8", ""}, {"table compact orders", ""}})
	has("the tree", do("tree", "--dir", dir, "orders"), "LEVEL", "|[", "]|")
	has("the tree", do("tree", "--dir", dir, "orders", "--json"), `"level": `, `"first": [`, `"anna"`)
	picture := filepath.Join(t.TempDir(), "tree.svg")
	do("tree", "--dir", dir, "orders", "--svg", picture)
	stop()
	text, err := os.ReadFile(picture)
	if err != nil {
		t.Fatal(err)
	}
	for decoder := xml.NewDecoder(strings.NewReader(string(text))); ; {
		if _, err := decoder.Token(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatalf("%v in %s", err, text)
		}
	}
	has("the picture", string(text), "<rect", "from anna, 7 to bert, 1")

	has("the manifest", do("manifest", "--dir", dir, "--files"), "closed in good order", "demo/orders: key customer string, n integer; 3 versions", "from the start to the end", "keys (anna, 7) to (bert, 1)")
	tables, _ := filepath.Glob(filepath.Join(dir, "*", "*", "*.sst"))
	found := false
	for _, name := range tables {
		if out := do("table-file", name, "--rows"); strings.Contains(out, "demo/orders") {
			found = true
			has("the table file", out, "(anna, 7)\n", "put note", "= string <&>", "(bert, 1)", "string of 500000 bytes", "at offset")
		}
	}
	values, _ := filepath.Glob(filepath.Join(dir, "*", "*", "*.val"))
	if !found || len(values) != 1 {
		t.Fatalf("table files %v, value files %v", tables, values)
	}
	has("the value file", do("value-file", values[0]), "demo/orders", "values", "garbage")

	for _, args := range [][]string{{"manifest", "--dir", t.TempDir()}, {"log", "--dir", t.TempDir()}, {"tree", "--dir", dir, "nothing"}, {"value-file", tables[0]}, {"table-file", values[0]}} {
		if status, out, errOut := command(t, append([]string{"inspect"}, args...)...); status == 0 || out != "" || strings.Count(errOut, "\n") != 1 {
			t.Errorf("%v: status %d, %q, %q", args, status, out, errOut)
		}
	}
}
