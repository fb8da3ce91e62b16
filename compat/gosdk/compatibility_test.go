package gosdk_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestEveryTestThatTheCompatibilityListNamesExists: plain names are tests of
// this package, others say where they are.
func TestEveryTestThatTheCompatibilityListNamesExists(t *testing.T) {
	list, err := os.ReadFile("../../docs/compatibility.md")
	if err != nil {
		t.Fatal(err)
	}
	tests := map[string]bool{}
	var sources strings.Builder
	for prefix, dir := range map[string]string{"": ".", "nodesdk.": "../nodesdk", "ots.": "../../ots", "server.": "../../server", "instances.": "../../instances", "plainbuffer.": "../../server/plainbuffer"} {
		err := filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, ".go") {
				return err
			}
			text, err := os.ReadFile(path)
			if !strings.HasSuffix(path, "_test.go") {
				sources.Write(text)
				return err
			}
			for _, m := range regexp.MustCompile(`(?m)^func (Test\w+)\(t \*testing\.T\)`).FindAllSubmatch(text, -1) {
				tests[prefix+string(m[1])] = true
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	named := 0
	for _, m := range regexp.MustCompile("`((?:\\w+\\.)?Test\\w+)`").FindAllSubmatch(list, -1) {
		named++
		if !tests[string(m[1])] {
			t.Errorf("there is no test %s", m[1])
		}
	}
	if named < 100 {
		t.Errorf("%d tests are named; the list is not read rightly", named)
	}
	states := regexp.MustCompile(`^(supported|differs|not offered)\b`)
	for i, line := range strings.Split(string(list), "\n") {
		cells := strings.Split(line, " | ")
		if !strings.HasPrefix(line, "| ") || len(cells) < 2 || cells[1] == "State" {
			continue
		}
		if !states.MatchString(cells[1]) {
			t.Errorf("line %d has the state %q", i+1, cells[1])
		}
		if strings.HasPrefix(cells[1], "supported") && !strings.Contains(line, "`") {
			t.Errorf("line %d: nothing shows that %s is supported", i+1, cells[0])
		}
		if message, ok := strings.CutPrefix(cells[0], `| "`); ok && strings.HasPrefix(cells[1], "supported") && !spelled(sources.String(), strings.TrimSuffix(message, `"`)) {
			t.Errorf("line %d: the server does not say %s", i+1, cells[0])
		}
	}
}

// spelled reports whether sources hold the longest part of a message that has no
// placeholder and no number, or its end: its beginning may be a placeholder
// there.
func spelled(sources, message string) bool {
	longest := ""
	for _, part := range regexp.MustCompile(`\{\w+\}|…|\d+`).Split(message, -1) {
		if part = strings.Trim(part, " ,.:"); len(part) > len(longest) {
			longest = part
		}
	}
	const end = 20
	return strings.Contains(sources, longest[max(0, len(longest)-end):])
}
