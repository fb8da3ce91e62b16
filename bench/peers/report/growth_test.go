package report

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/flagstone-db/flagstone/bench/peers/rowstore"
	"github.com/flagstone-db/flagstone/bench/peers/workload"
)

func TestGrowthHasARowForEachSizeAndAPictureForEachPhase(t *testing.T) {
	dir := t.TempDir()
	if _, err := Growth(dir); err == nil {
		t.Error("a report of nothing")
	}
	seconds := func(f *workload.Figure) { f.Timeline, f.Ops, f.WriteBytes = []int64{70, 40, 90, 3}, 10, 25 }
	for size, rate := range map[string]float64{"1000": 200, "20000": 100} {
		lines := []any{header()}
		for _, name := range []string{"growth/load", "growth/get-g1"} {
			lines = append(lines, record(1, name, "flagstone", rowstore.Native, rate, seconds))
			lines = append(lines, record(1, name, "pebble", rowstore.RowValue, rate/2))
			if size == "1000" { // no run at the largest size
				lines = append(lines, record(1, name, "rocksdb", rowstore.RowValue, 40))
			}
		}
		if err := os.Mkdir(filepath.Join(dir, size), 0o755); err != nil {
			t.Fatal(err)
		}
		var text []byte
		for _, line := range lines {
			encoded, err := json.Marshal(line)
			if err != nil {
				t.Fatal(err)
			}
			text = append(append(text, encoded...), '\n')
		}
		if err := os.WriteFile(filepath.Join(dir, size, "results.jsonl"), text, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Rename(filepath.Join(dir, "20000"), filepath.Join(dir, "later")); err != nil {
		t.Fatal(err)
	}
	if _, err := Growth(dir); err != nil {
		t.Errorf("one size: %v", err)
	}
	if err := os.Rename(filepath.Join(dir, "later"), filepath.Join(dir, "20000")); err != nil {
		t.Fatal(err)
	}
	path, err := Growth(dir)
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"## load", "## get-g1", "![load](growth-load.svg)"} {
		if strings.Count(string(text), want) != 1 {
			t.Errorf("%q is not there once", want)
		}
	}
	for _, want := range []string{"| flagstone   | 1000 |   200 |", "| flagstone   |  20k |   100 |", "| pebble+row  |  20k |    50 |", "| rocksdb+row | 1000 |    40 |", "|             40 |    2.50 |"} {
		if !strings.Contains(string(text), want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	for _, picture := range []string{"growth-load.svg", "growth-get-g1.svg"} {
		if svg, err := os.ReadFile(filepath.Join(dir, picture)); err != nil || !strings.Contains(string(svg), "<svg") {
			t.Errorf("%s: %v", picture, err)
		}
	}
}
