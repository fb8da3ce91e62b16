package archtest_test

import (
	"bytes"
	"fmt"
	"go/ast"
	"os/exec"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// floors are the layers of the house, by the first part of a package's path, or by
// all of it for one that stands higher than its neighbours.
// A package imports only packages of lower floors, or of its own room.
var floors = map[string]int{
	"row": 0, "internal": 0,
	"keydesign": 1,
	"wal":       1, "memtable": 1, "sstable": 1, "valuefile": 1, "internal/rowcache": 1, "internal/sample": 1, "internal/load": 1, "internal/valuefetch": 1, "internal/spread": 1,
	"mvcc": 2, "internal/balance": 2,
	"manifest": 3, "compaction": 3, "internal/tablefiles": 3,
	"partition": 4, "internal/seams": 4, "internal/storeclock": 4, "internal/views": 4, "cdc": 4,
	"internal/jobs": 5, "internal/pressure": 5, "internal/check": 5, "internal/salvage": 5, "internal/recovery": 5, // beside each other
	"internal/commit": 6,
	"internal/upkeep": 7, "internal/table": 7,
	"internal/change": 8, "internal/scan": 8, "internal/rebalance": 8,
	"internal/txn": 9, "internal/ingest": 9, "internal/transfer": 9, "internal/external": 9,
	".":   10,
	"ots": 11, "backup": 11,
	"server": 12, "instances": 12, "consumer": 12,
	"cmd": 13, "flagstonetest": 13,
}

// workshops are directories beside the house: they may import everything, and
// nothing in the house imports them.
var workshops = []string{"bench", "fuzz", "docs", "examples", "tools"}

// sameFloor are imports allowed between rooms of one floor.
var sameFloor = map[[2]string]bool{{"compaction", "manifest"}: true, {"internal/tablefiles", "manifest"}: true}

// engineFloor is the highest floor of the engine.
const engineFloor = 10

// engineModules are all that the engine may import outside the standard
// library, directly or not.
var engineModules = []string{
	"github.com/klauspost/compress",
	"github.com/cespare/xxhash/v2",
	"github.com/bits-and-blooms/bloom/v3",
	"github.com/bits-and-blooms/bitset", // of bloom
	"golang.org/x/sys",
}

// room returns the part of a directory's path that the rules go by.
func room(dir string) string {
	if _, alone := floors[dir]; alone {
		return dir
	}
	first, _, _ := strings.Cut(dir, "/")
	return first
}

// report fails the test with all findings, sorted.
func report(t *testing.T, rule string, findings []string) {
	t.Helper()
	slices.Sort(findings)
	if len(findings) > 0 {
		t.Errorf("%s:\n\t%s", rule, strings.Join(findings, "\n\t"))
	}
}

// each applies a check to every Go file of the repository.
func each(t *testing.T, rule string, check func(source) []string) {
	t.Helper()
	var findings []string
	for _, s := range sources(t) {
		findings = append(findings, check(s)...)
	}
	report(t, rule, findings)
}

func TestTheEngineDependsOnFourModulesOnly(t *testing.T) {
	var packages []string
	for _, s := range sources(t) {
		if floor, ok := floors[room(s.dir)]; ok && floor <= engineFloor && !s.isTest() {
			packages = append(packages, "./"+s.dir)
		}
	}
	slices.Sort(packages)
	// -e goes on where a package does not compile: that is for its own tests.
	args := append([]string{"list", "-e", "-deps", "-f", "{{if not .Standard}}{{.ImportPath}}{{end}}"},
		slices.Compact(packages)...)
	cmd := exec.Command("go", args...)
	cmd.Dir = root(t)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v\n%s", err, stderr.String())
	}
	var findings []string
	for imported := range strings.FieldsSeq(string(out)) {
		if !isEngineDependency(imported) {
			findings = append(findings, imported)
		}
	}
	report(t, "the engine must not depend on", findings)
}

// TestTheEngineImportsFourModulesOnly looks at the files for all platforms,
// where the test above sees those of the present one, but all the way down.
func TestTheEngineImportsFourModulesOnly(t *testing.T) {
	each(t, "the engine must not import", checkDependencies)
}

func checkDependencies(s source) []string {
	if floor, ok := floors[room(s.dir)]; !ok || floor > engineFloor || s.isTest() {
		return nil
	}
	var findings []string
	for imported, spec := range s.imports() {
		// Only paths outside the standard library begin with a host name.
		if strings.Contains(room(imported), ".") && !isEngineDependency(imported) {
			findings = append(findings, fmt.Sprintf("%s: %s", s.at(spec), imported))
		}
	}
	return findings
}

// isEngineDependency judges an import path outside the standard library.
func isEngineDependency(imported string) bool {
	if within(imported, modulePath) {
		return true
	}
	return slices.ContainsFunc(engineModules, func(module string) bool { return within(imported, module) })
}

// within reports whether an import path lies in a module.
func within(imported, module string) bool {
	return imported == module || strings.HasPrefix(imported, module+"/")
}

func TestFilesAndTimeAreReachedThroughOneDoorEach(t *testing.T) {
	each(t, "only internal/vfs and internal/offheap may touch the operating system, only internal/clock the time", checkDoors)
}

// clockCalls are the functions of package time that read or wait for the
// machine's clock.
var clockCalls = []string{"Now", "Since", "Until", "Sleep", "After", "AfterFunc", "Tick", "NewTimer", "NewTicker"}

func checkDoors(s source) []string {
	floor, inHouse := floors[room(s.dir)]
	if s.isTest() || !inHouse || floor >= floors["server"] {
		return nil
	}
	var findings []string
	if s.dir != "internal/vfs" && !within(s.dir, "internal/offheap") {
		for imported, spec := range s.imports() {
			if imported == "os" || imported == "syscall" || within(imported, "golang.org/x/sys") ||
				strings.HasPrefix(imported, "os/") || imported == "io/ioutil" {
				findings = append(findings, fmt.Sprintf("%s: imports %s", s.at(spec), imported))
			}
		}
	}
	if s.dir == "internal/clock" {
		return findings
	}
	local := s.localName("time")
	if local == "." {
		findings = append(findings, fmt.Sprintf("%s: imports time with a dot", s.name))
	}
	ast.Inspect(s.file, func(n ast.Node) bool {
		if sel, ok := n.(*ast.SelectorExpr); ok {
			if x, ok := sel.X.(*ast.Ident); ok && local != "" && x.Name == local && slices.Contains(clockCalls, sel.Sel.Name) {
				findings = append(findings, fmt.Sprintf("%s: time.%s", s.at(sel), sel.Sel.Name))
			}
		}
		return true
	})
	return findings
}

func TestImportsPointDownward(t *testing.T) {
	each(t, "a package imports only packages of lower floors", checkLayers)
}

func checkLayers(s source) []string {
	from := room(s.dir)
	if s.isTest() || slices.Contains(workshops, from) {
		return nil
	}
	floor, ok := floors[from]
	if !ok {
		return []string{fmt.Sprintf("%s: %s has no floor", s.name, s.dir)}
	}
	var findings []string
	for imported, spec := range s.imports() {
		if !within(imported, modulePath) {
			continue
		}
		to := room(strings.TrimPrefix(strings.TrimPrefix(imported, modulePath), "/"))
		if to == "" {
			to = "."
		}
		below, ok := floors[to]
		if ok && (below < floor || from == to || sameFloor[[2]string{from, to}]) {
			continue
		}
		findings = append(findings, fmt.Sprintf("%s: %s imports %s", s.at(spec), s.dir, to))
	}
	return findings
}

func TestNothingThatShipsImportsADouble(t *testing.T) {
	each(t, "a package whose name ends in test is for tests", checkDoubles)
}

func checkDoubles(s source) []string {
	if s.isTest() || strings.HasSuffix(s.dir, "test") || slices.Contains(workshops, room(s.dir)) {
		return nil
	}
	var findings []string
	for imported, spec := range s.imports() {
		if within(imported, modulePath) && strings.HasSuffix(imported, "test") {
			findings = append(findings, fmt.Sprintf("%s: imports %s", s.at(spec), imported))
		}
	}
	return findings
}

// machinePath finds absolute paths of the machine that something was written
// on. What follows a letter, a digit or a dot is part of an address or of a
// relative path. (The pattern is in pieces so as not to find itself.)
var machinePath = regexp.MustCompile(`(^|[^\w.\-/}])/(` + `work|root|home)/`)

func TestNoFileNamesAPlaceOnOneMachine(t *testing.T) {
	var findings []string
	walk(t, func(name string, text []byte) {
		findings = append(findings, checkPlaces(name, string(text))...)
	})
	report(t, "absolute paths of a machine", findings)
}

func checkPlaces(name, text string) []string {
	var findings []string
	n := 0
	for line := range strings.Lines(text) {
		n++
		if machinePath.MatchString(line) {
			findings = append(findings, fmt.Sprintf("%s:%d: %s", name, n, strings.TrimSpace(line)))
		}
	}
	return findings
}

// maxLines is how long a file may be. The aim is 600; this is the end.
const maxLines = 700

func TestNoFileIsTooLongToRead(t *testing.T) {
	each(t, fmt.Sprintf("longer than %d lines", maxLines), checkLength)
}

func checkLength(s source) []string {
	if s.lines < maxLines || ast.IsGenerated(s.file) {
		return nil
	}
	return []string{fmt.Sprintf("%s: %d lines", s.name, s.lines)}
}

func TestEveryPackageSaysWhatItIs(t *testing.T) {
	report(t, "no package comment in", undocumented(sources(t)))
}

// undocumented returns the directories whose package has no comment. Packages
// of which only tests exist are left alone.
func undocumented(all []source) []string {
	documented := map[string]bool{}
	for _, s := range all {
		if s.isTest() {
			continue
		}
		has := s.file.Doc != nil && strings.TrimSpace(s.file.Doc.Text()) != ""
		documented[s.dir] = documented[s.dir] || has
	}
	var findings []string
	for dir, has := range documented {
		if !has {
			findings = append(findings, dir)
		}
	}
	return findings
}

func TestPackageNamesSayWhatIsInside(t *testing.T) {
	each(t, "a package that is named after nothing", func(s source) []string {
		if slices.Contains([]string{"util", "utils", "common", "helper", "helpers", "misc", "base"}, path.Base(s.dir)) {
			return []string{s.name}
		}
		return nil
	})
}

func TestNoTestIsSkipped(t *testing.T) {
	each(t, "a skipped test proves nothing and looks green", checkSkips)
}

func checkSkips(s source) []string {
	var findings []string
	ast.Inspect(s.file, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return true
		}
		sel, ok := call.Fun.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		x, ok := sel.X.(*ast.Ident)
		if ok && slices.Contains([]string{"t", "b", "f", "tb"}, x.Name) &&
			slices.Contains([]string{"Skip", "Skipf", "SkipNow"}, sel.Sel.Name) && s.isTest() {
			findings = append(findings, s.at(call))
		}
		return true
	})
	return findings
}

// TestTheRulesFindWhatTheyForbid plants a breach of each rule, since a check
// that has never failed proves nothing.
func TestTheRulesFindWhatTheyForbid(t *testing.T) {
	for _, c := range []struct {
		name, file, text string
		check            func(source) []string
		findings         int
	}{
		{"os in the engine", "wal/a.go", `import "os"`, checkDoors, 1},
		{"os/exec in ots", "ots/a.go", `import "os/exec"`, checkDoors, 1},
		{"unix in the root", "a.go", `import "golang.org/x/sys/unix"`, checkDoors, 1},
		{"os in vfs", "internal/vfs/a.go", `import "os"`, checkDoors, 0},
		{"unix in offheap", "internal/offheap/a.go", `import "golang.org/x/sys/unix"`, checkDoors, 0},
		{"unix in the double of offheap", "internal/offheap/offheaptest/a.go", `import "golang.org/x/sys/unix"`, checkDoors, 0},
		{"os in the double of a clock", "internal/clock/clocktest/a.go", `import "os"`, checkDoors, 1},
		{"unix beside offheap", "internal/offheaps/a.go", `import "golang.org/x/sys/unix"`, checkDoors, 1},
		{"os in a test", "wal/a_test.go", `import "os"`, checkDoors, 0},
		{"os in the server", "server/a.go", `import "os"`, checkDoors, 0},
		{"the clock in the engine", "sstable/a.go", `import "time"; var a = time.Now()`, checkDoors, 1},
		{"the clock renamed", "row/a.go", `import x "time"; func a() { x.Sleep(1); x.Sleep(2) }`, checkDoors, 2},
		{"the clock as a value", "row/a.go", `import "time"; var a = time.Now`, checkDoors, 1},
		{"a duration", "row/a.go", `import "time"; const a = time.Second`, checkDoors, 0},
		{"the clock in vfs", "internal/vfs/a.go", `import "time"; var a = time.Since`, checkDoors, 1},
		{"the clock in clock", "internal/clock/a.go", `import "time"; var a = time.Now()`, checkDoors, 0},
		{"a fifth module", "wal/a_windows.go", `import "example.com/x"`, checkDependencies, 1},
		{"one of the four", "sstable/a.go", `import "github.com/klauspost/compress/s2"`, checkDependencies, 0},
		{"the standard library", "wal/a.go", `import "encoding/binary"`, checkDependencies, 0},
		{"a module of the server", "server/a.go", `import "example.com/x"`, checkDependencies, 0},
		{"an import upward", "wal/a.go", `import "` + modulePath + `/mvcc"`, checkLayers, 1},
		{"an import sideways", "wal/a.go", `import "` + modulePath + `/sstable"`, checkLayers, 1},
		{"an import of the root", "partition/a.go", `import "` + modulePath + `"`, checkLayers, 1},
		{"the pipeline's import of the API", "internal/commit/a.go", `import "` + modulePath + `"`, checkLayers, 1},
		{"pressure's import of jobs", "internal/pressure/a.go", `import "` + modulePath + `/internal/jobs"`, checkLayers, 1},
		{"pressure's import of the pipeline", "internal/pressure/a.go", `import "` + modulePath + `/internal/commit"`, checkLayers, 1},
		{"the pipeline's import of upkeep", "internal/commit/a.go", `import "` + modulePath + `/internal/upkeep"`, checkLayers, 1},
		{"upkeep's import of rebalance", "internal/upkeep/a.go", `import "` + modulePath + `/internal/rebalance"`, checkLayers, 1},
		{"upkeep's import of the API", "internal/upkeep/a.go", `import "` + modulePath + `"`, checkLayers, 1},
		{"the pipeline's import of pressure", "internal/commit/a.go", `import "` + modulePath + `/internal/pressure"`, checkLayers, 0},
		{"the change feed's import of a tree", "cdc/a.go", `import "` + modulePath + `/partition"`, checkLayers, 1},
		{"fetching's import of a value file", "internal/valuefetch/a.go", `import "` + modulePath + `/valuefile"`, checkLayers, 1},
		{"a sample's import of a table file", "internal/sample/a.go", `import "` + modulePath + `/sstable"`, checkLayers, 1},
		{"the meter's import of a tree", "internal/load/a.go", `import "` + modulePath + `/partition"`, checkLayers, 1},
		{"balance's import of the meter", "internal/balance/a.go", `import "` + modulePath + `/internal/load"`, checkLayers, 0},
		{"balance's import of a tree", "internal/balance/a.go", `import "` + modulePath + `/partition"`, checkLayers, 1},
		{"the views' import of a tree", "internal/views/a.go", `import "` + modulePath + `/partition"`, checkLayers, 1},
		{"the clocks' import of a tree", "internal/storeclock/a.go", `import "` + modulePath + `/partition"`, checkLayers, 1},
		{"the check's import of the API", "internal/check/a.go", `import "` + modulePath + `"`, checkLayers, 1},
		{"a table's import of upkeep", "internal/table/a.go", `import "` + modulePath + `/internal/upkeep"`, checkLayers, 1},
		{"a change's import of a transaction", "internal/change/a.go", `import "` + modulePath + `/internal/txn"`, checkLayers, 1},
		{"a scan's import of a change", "internal/scan/a.go", `import "` + modulePath + `/internal/change"`, checkLayers, 1},
		{"a transaction's import of the API", "internal/txn/a.go", `import "` + modulePath + `"`, checkLayers, 1},
		{"a move's import of an installation", "internal/transfer/a.go", `import "` + modulePath + `/internal/ingest"`, checkLayers, 1},
		{"an installation's import of a transaction", "internal/ingest/a.go", `import "` + modulePath + `/internal/txn"`, checkLayers, 1},
		{"a spread's import of the pipeline", "internal/spread/a.go", `import "` + modulePath + `/internal/commit"`, checkLayers, 1},
		{"the pipeline's import of the external log", "internal/commit/a.go", `import "` + modulePath + `/internal/external"`, checkLayers, 1},
		{"recovery's import of the pipeline", "internal/recovery/a.go", `import "` + modulePath + `/internal/commit"`, checkLayers, 1},
		{"the pipeline's import of the log", "internal/commit/a.go", `import "` + modulePath + `/wal"`, checkLayers, 0},
		{"the open files' import of a tree", "internal/tablefiles/a.go", `import "` + modulePath + `/partition"`, checkLayers, 1},
		{"the open files' import of merges", "internal/tablefiles/a.go", `import "` + modulePath + `/compaction"`, checkLayers, 1},
		{"the open files' import of the manifest", "internal/tablefiles/a.go", `import "` + modulePath + `/manifest"`, checkLayers, 0},
		{"the manifest's import of the open files", "manifest/a.go", `import "` + modulePath + `/internal/tablefiles"`, checkLayers, 1},
		{"a tree's import of the open files", "partition/a.go", `import "` + modulePath + `/internal/tablefiles"`, checkLayers, 0},
		{"a backup's import of the instances", "backup/a.go", `import "` + modulePath + `/instances"`, checkLayers, 1},
		{"the root's import", "a.go", `import "` + modulePath + `/partition"`, checkLayers, 0},
		{"the sideways import allowed", "compaction/a.go", `import "` + modulePath + `/manifest"`, checkLayers, 0},
		{"its reverse", "manifest/a.go", `import "` + modulePath + `/compaction"`, checkLayers, 1},
		{"within a room", "ots/x/a.go", `import "` + modulePath + `/ots/y"`, checkLayers, 0},
		{"a package without a floor", "attic/a.go", ``, checkLayers, 1},
		{"an import from the workshop", "wal/a.go", `import "` + modulePath + `/bench"`, checkLayers, 1},
		{"a clock of tests in the engine", "store.go", `import "` + modulePath + `/internal/clock/clocktest"`, checkDoubles, 1},
		{"an executor of tests beside its room", "internal/executor/a.go", `import "` + modulePath + `/internal/executor/executortest"`, checkDoubles, 1},
		{"a clock of tests in a test", "store_test.go", `import "` + modulePath + `/internal/clock/clocktest"`, checkDoubles, 0},
		{"a double's import of a double", "internal/jobs/jobstest/a.go", `import "` + modulePath + `/internal/clock/clocktest"`, checkDoubles, 0},
		{"a clock's import of a table", "internal/clock/clocktest/a.go", `import "` + modulePath + `/internal/table"`, checkLayers, 1},
		{"a long file", "a.go", strings.Repeat("\n", 700), checkLength, 1},
		{"a skipped test", "a_test.go", `func a() { t.Skip() }`, checkSkips, 1},
	} {
		s, err := parse(c.file, "package p\n"+c.text)
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		if got := c.check(s); len(got) != c.findings {
			t.Errorf("%s: found %q; want %d", c.name, got, c.findings)
		}
	}
	generated, err := parse("a.go", "// Code generated by x. DO NOT EDIT.\n\npackage p\n"+strings.Repeat("\n", 700))
	if err != nil || len(checkLength(generated)) != 0 {
		t.Errorf("a long generated file: %v, %q", err, checkLength(generated))
	}
	bare, err := parse("x/a.go", "package x")
	if err != nil || len(undocumented([]source{bare})) != 1 {
		t.Error("a package without comment is not found")
	}
	for text, want := range map[string]int{
		"see /" + "work/x": 1, `"/` + `root/x"`: 1, "/" + "home/me/x": 1,
		"https://example.com/" + "work/x": 0, "./" + "work/x": 0, "path/" + "root/x": 0,
	} {
		if got := checkPlaces("f", text); len(got) != want {
			t.Errorf("%q: found %q; want %d", text, got, want)
		}
	}
	for imported, want := range map[string]bool{
		modulePath: true, modulePath + "/row": true, modulePath + "-fork": false,
		"github.com/klauspost/compress/zstd": true, "github.com/klauspost/compressor": false,
		"google.golang.org/protobuf/proto": false,
	} {
		if isEngineDependency(imported) != want {
			t.Errorf("%s: allowed is %v", imported, !want)
		}
	}
}
