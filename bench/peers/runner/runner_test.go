package runner

// This file runs passes with real child processes: the test binary plays the
// child.

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/flagstone-db/flagstone/bench/peers/rowstore"
	"github.com/flagstone-db/flagstone/bench/peers/rowstore/bbolt"
	"github.com/flagstone-db/flagstone/bench/peers/rowstore/flagstone"
	"github.com/flagstone-db/flagstone/bench/peers/workload"
)

// engines are two real ones, one that crashes, and one that hangs.
func engines() []rowstore.Engine {
	broken := func(name string, open func()) rowstore.Engine {
		return rowstore.Engine{
			Name: name, LSM: true, Factor: 1, Encodings: []rowstore.Encoding{rowstore.RowValue, rowstore.Plain},
			Open: func(rowstore.Config) (rowstore.Store, error) {
				open()
				return nil, errors.New("unreachable")
			},
		}
	}
	return []rowstore.Engine{
		flagstone.Engine(), bbolt.Engine(),
		broken("crashes", func() { panic("the engine fell over") }),
		broken("hangs", func() { time.Sleep(time.Hour) }),
	}
}

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == ChildArgument {
		if err := Child(engines()); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

func options(t *testing.T, workloads, names string, rounds int) Options {
	t.Helper()
	return Options{
		Selection: Selection{
			Workloads: regexp.MustCompile("^(" + workloads + ")$"), Engines: regexp.MustCompile("^(" + names + ")$"), Rounds: rounds,
		},
		Settings: Settings{
			Rows: 300, Keys: 300, Beyond: 300, Memtable: 1 << 20, Cache: 1 << 20, MemoryLimit: 1 << 30,
			ReadSeconds: 0.01, LimitSeconds: 5, Binary: "this",
		},
		Out: filepath.Join(t.TempDir(), "out"), Work: t.TempDir(), Progress: &bytes.Buffer{},
	}
}

// ran lists what a directory of results holds: round, workload, variant.
func ran(t *testing.T, dir string) []string {
	t.Helper()
	_, records, err := Read(dir)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, r := range records {
		out = append(out, fmt.Sprintf("%d %s %s", r.Round, r.Workload, r.Variant))
	}
	return out
}

func TestEnginesTakeTurnsAndTheWorkDirectoryIsEmptyAfterwards(t *testing.T) {
	o := options(t, "getrow-1col|overwrite", "flagstone|bbolt[+]row", 2)
	if err := Run(t.Context(), engines(), o); err != nil {
		t.Fatal(err)
	}
	want := []string{
		"1 overwrite flagstone", "1 overwrite bbolt+row", "1 getrow-1col bbolt+row", "1 getrow-1col flagstone",
		"2 overwrite bbolt+row", "2 overwrite flagstone", "2 getrow-1col flagstone", "2 getrow-1col bbolt+row",
	}
	if got := ran(t, o.Out); !slices.Equal(got, want) {
		t.Errorf("ran\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	_, records, err := Read(o.Out)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range records {
		if r.Error != "" || len(r.Figures) != 1 || r.Figures[0].Rate <= 0 || r.Shape != workload.Rows {
			t.Errorf("%+v", r)
		}
	}
	if left, err := os.ReadDir(o.Work); err != nil || len(left) > 0 {
		t.Errorf("left in the work directory: %v, %v", left, err)
	}
}

func TestWhatIsFarFromTheBestIsNotRun(t *testing.T) {
	lsm := func(name string) rowstore.Engine {
		return rowstore.Engine{Name: name, LSM: true, Factor: 1, Encodings: []rowstore.Encoding{rowstore.RowValue}}
	}
	all := []rowstore.Engine{lsm(Subject), lsm("best"), lsm("near"), lsm("far"), lsm("failed"), lsm("synced"), lsm("tree"), lsm("slow-tree")}
	all[0].Tunings = []rowstore.Tuning{{Name: "verify"}}
	all[2].Tunings = []rowstore.Tuning{{Name: "worse"}}
	all[3].Factor = 2
	all[6].LSM, all[7].LSM = false, false
	jobs := plan(all, Selection{Workloads: regexp.MustCompile("^values64k$"), Rounds: 2})
	one, two := jobs[:len(jobs)/2], jobs[len(jobs)/2:]
	figures := map[key][]workload.Figure{}
	for _, j := range one {
		rates := map[string][3]float64{ // of put, get, and giving back
			"best+row": {100, 100, 1}, "near+row": {10, 50, 1}, "near-worse+row": {40, 40, 100}, "far+row": {24, 24, 1},
			Subject + "+row": {1, 1, 1}, "synced+row": {20, 20, 1}, "tree+row": {1000, 1, 1}, "slow-tree+row": {49, 49, 1},
		}[j.variant.Name]
		if rates[0] > 0 {
			figures[j.key()] = []workload.Figure{
				{Name: "put", Rate: rates[0]}, {Name: "get", Rate: rates[1]}, {Name: "reclaim", Rate: rates[2], Unit: workload.DeadUnits},
			}
		}
	}
	// What the best has in the page cache takes nine times as long as it has taken.
	figures[key{1, "values64k", "best+row"}][0].Ops, figures[key{1, "values64k", "synced+row"}][0].Ops = 100, 20
	for _, f := range figures {
		f[0].Seconds, f[0].Settle = 0.5, 0.5
	}
	figures[key{1, "values64k", "best+row"}][0].Written = 9
	near := []string{"best+row", "failed+row", "synced+row", Subject + "+row", "near+row", "tree+row"}
	r := &runner{rivals: map[string][]job{"values64k": one}, journal: &journal{first: figures}}
	r.Near = 0.5
	again := slices.DeleteFunc(slices.Clone(two), func(j job) bool { return r.skips(&j) })
	if got, want := variants(again), append(near, Subject+"-verify+row"); !sameNames(got, want) {
		t.Errorf("run in the second round: %v, want %v", got, want)
	}
	r.Screen = filepath.Join(t.TempDir(), "screen.jsonl")
	lines := []any{Header{}}
	for k, f := range figures {
		lines = append(lines, Record{Round: k.round, Workload: k.workload, Variant: k.variant, Figures: f})
	}
	var file bytes.Buffer
	for _, line := range lines {
		if err := json.NewEncoder(&file).Encode(line); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(r.Screen, file.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
	r.journal.first = nil
	left, err := r.screened(slices.Clone(one))
	if got := variants(left); err != nil || !sameNames(got, near) {
		t.Errorf("left by the screen: %v, %v, want %v", got, err, near)
	}
	// What ran in the first round of this pass is not asked for in an older one.
	r.journal.first = map[key][]workload.Figure{{1, "values64k", "far+row"}: {{Name: "put", Rate: 1000}}}
	left, err = r.screened(slices.Clone(two))
	if got, want := variants(left), append(near, "far+row"); err != nil || !sameNames(got, want) {
		t.Errorf("left by the screen after a first round: %v, %v, want %v", got, err, want)
	}
}

func variants(jobs []job) (names []string) {
	for _, j := range jobs {
		names = append(names, j.variant.Name)
	}
	return names
}

func sameNames(a, b []string) bool {
	return slices.Equal(slices.Sorted(slices.Values(a)), slices.Sorted(slices.Values(b)))
}

func TestACrashIsRecordedAndThePassGoesOn(t *testing.T) {
	o := options(t, "putrow-g1|scan-all", "flagstone|crashes", 1)
	if err := Run(t.Context(), engines(), o); err != nil {
		t.Fatal(err)
	}
	_, records, err := Read(o.Out)
	if err != nil || len(records) != 4 {
		t.Fatalf("%d records, %v", len(records), err)
	}
	for _, r := range records {
		crashed := r.Engine == "crashes"
		told := strings.Contains(strings.Join(r.Output, "\n"), "the engine fell over")
		if crashed != (r.Error != "") || crashed != told || r.Killed {
			t.Errorf("%s on %s: error %q, output %q", r.Workload, r.Variant, r.Error, r.Output)
		}
	}
}

func TestAChildThatHangsIsKilled(t *testing.T) {
	p := workload.Params{Workload: "putrow-g1", Engine: "hangs", Encoding: rowstore.RowValue, Dir: t.TempDir(), Rows: 10}
	r := runChild(t.Context(), p, 50*time.Millisecond, nil)
	if !r.Killed || r.Error == "" {
		t.Errorf("%+v", r)
	}
}

func TestAnInterruptedPassIsResumed(t *testing.T) {
	o := options(t, "putrow-g1|batch100", "flagstone|bbolt[+]row", 1)
	ctx, cancel := context.WithCancel(t.Context())
	// The third run is interrupted: whoever writes the second line ends it.
	o.Progress = writerFunc(func(line string) {
		if strings.Contains(line, "batch100 bbolt+row") {
			cancel()
		}
	})
	if err := Run(ctx, engines(), o); !errors.Is(err, context.Canceled) {
		t.Fatalf("the pass ended with %v", err)
	}
	before := ran(t, o.Out)
	if len(before) == 0 || len(before) == 4 {
		t.Fatalf("interrupted after %v", before)
	}
	// An unfinished line, as a kill leaves it, is dropped.
	f, err := os.OpenFile(filepath.Join(o.Out, recordsName), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteString(`{"round":1,"workload":"scan`); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}

	other := o
	other.Settings.Rows++
	if err := Run(t.Context(), engines(), other); err == nil {
		t.Error("results of other settings were mixed in")
	}

	o.Progress = &bytes.Buffer{}
	if err := Run(t.Context(), engines(), o); err != nil {
		t.Fatal(err)
	}
	after := ran(t, o.Out)
	slices.Sort(after)
	if len(slices.Compact(after)) != 4 || len(after) != 4 {
		t.Errorf("after resuming: %v", after)
	}
}

// writerFunc is a writer that hands on what is written.
type writerFunc func(string)

func (f writerFunc) Write(p []byte) (int, error) {
	f(string(p))
	return len(p), nil
}
