package flagstone

// P8, P9: a store answers right or with an error, even if bytes of its files change while it
// reads them.

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/flagstone-db/flagstone/row"
)

// flipped is a small store whose files are damaged while it is open, and its earlier answers.
type flipped struct {
	*rig
	table *Table
	keys  [][]row.Value // of rows, some of which do not exist
	rows  []string      // as a get shows them
	scan  []string      // as a scan does, those that exist
}

// newFlipped makes rows of small values and large ones, one row of several blocks,
// rows that are put together of two files, and rows that do not exist (any more).
func newFlipped(t *testing.T, opts Options) *flipped {
	t.Helper()
	opts.Seams.ValueThreshold, opts.BlockSize = 64, 256
	f := &flipped{rig: newRig(t, opts)}
	f.table = f.rig.table("t", TableOptions{MaxVersions: 2})
	settle := func() {
		t.Helper()
		if err := f.store.Flush(ctx()); err != nil {
			t.Fatal(err)
		}
		f.exec.RunAll()
	}
	for i := range 8 {
		putColumns(t, f.table, "p", i, 3, startMillis, i%2 == 0)
	}
	putColumns(t, f.table, "p", 8, 24, startMillis, true) // longer than a block
	put(t, f.table, "p", 2, "large", startMillis, strings.Repeat("large", 20))
	put(t, f.table, "p", 9, "large", startMillis, "incompressible: "+noise(rand.New(rand.NewPCG(1, 1)), 80))
	settle()
	put(t, f.table, "p", 3, "c01", startMillis+1, "newer")
	put(t, f.table, "p", 5, "other", startMillis+1, "added")
	for i := range 3 { // in a file without references
		putColumns(t, f.table, "p", 20+i, 3, startMillis, true)
	}
	if err := f.table.Delete(ctx(), Key("p", 6)); err != nil {
		t.Fatal(err)
	}
	settle()
	for i := range 24 {
		f.keys = append(f.keys, Key("p", i))
	}
	for range 3 { // so that caches are warm
		rows, scan, err := f.read()
		if err != nil {
			t.Fatal(err)
		}
		f.rows, f.scan = rows, scan
	}
	if len(f.scan) != 12 {
		t.Fatalf("%d rows", len(f.scan))
	}
	return f
}

// read returns what gets and scans see, "" for a row that does not exist, and a
// row that ends in an error in place of what comes then. Errors other than damage
// fail the test.
func (f *flipped) read() (rows, scan []string, err error) {
	f.t.Helper()
	note := func(e error) {
		if e != nil && !errors.Is(e, ErrCorrupt) {
			f.t.Fatalf("an error that is not of damage: %v", e)
		}
		if err == nil {
			err = e
		}
	}
	for _, key := range f.keys {
		var into Row
		found, e := f.table.GetInto(ctx(), key, ReadOptions{}, &into)
		note(e)
		switch {
		case e != nil:
			rows = append(rows, "error")
		case found:
			rows = append(rows, "row "+cells(&into))
		default:
			rows = append(rows, "")
		}
	}
	all := f.table.Scan(ctx(), nil, nil, ScanOptions{})
	defer all.Close()
	for all.Next() {
		scan = append(scan, cells(all.Row()))
	}
	if note(all.Err()); all.Err() != nil {
		scan = append(scan, "error")
	}
	return rows, scan, err
}

// check returns an answer of read that is neither right nor an error, if there is one.
func (f *flipped) check(rows, scan []string) (wrong string) {
	for i, got := range rows {
		if got != "error" && got != f.rows[i] {
			return fmt.Sprintf("row %d is %q, not %q", i, got, f.rows[i])
		}
	}
	if n := len(scan); n > 0 && scan[n-1] == "error" {
		if scan = scan[:n-1]; len(scan) <= len(f.scan) && slices.Equal(scan, f.scan[:len(scan)]) {
			return ""
		}
	} else if slices.Equal(scan, f.scan) {
		return ""
	}
	return fmt.Sprintf("a scan sees %q", scan)
}

// files returns the table and value files.
func (f *flipped) files() (names []string) {
	for _, name := range f.fs.Files() {
		if strings.HasSuffix(name, ".sst") || strings.HasSuffix(name, ".val") {
			names = append(names, "/"+name)
		}
	}
	return names
}

// eachByte calls fn for each byte of table and value files with a function that flips a bit of
// it; for one byte in eleven in short tests.
func (f *flipped) eachByte(fn func(what string, flip func())) {
	f.t.Helper()
	step := 1
	if testing.Short() {
		step = 11
	}
	files := f.files()
	if len(files) < 3 {
		f.t.Fatalf("files: %q", files)
	}
	for _, name := range files {
		content, err := f.fs.ReadFile(name)
		if err != nil {
			f.t.Fatal(err)
		}
		for at := 0; at < len(content); at += step {
			fn(fmt.Sprintf("%s, byte %d of %d", name, at, len(content)), func() {
				if err := f.fs.FlipByte(name, int64(at), 1<<(at%8)); err != nil {
					f.t.Fatal(err)
				}
			})
		}
	}
}

// shorter is how often a test of one goroutine does something, n times unless tests are short, as
// they are with the race detector.
func shorter(n int) int {
	if testing.Short() {
		return n / 8
	}
	return n
}

func TestP08_P09_NoFlippedByteOfAServedFileMakesAnAnswerWrong(t *testing.T) {
	for _, c := range []struct {
		compression Compression
		cacheSize   int64
		fits        bool // all of the table files, in the cache
	}{{CompressionS2, 1, false}, {CompressionS2, 6 << 10, false}, {CompressionNone, 4 << 10, false}, {CompressionS2, 1 << 20, true}} {
		f := newFlipped(t, Options{
			TableReads: TableReadsMapped, Compression: c.compression, CacheSize: c.cacheSize, VerifyInterval: -1,
		})
		tableErrs := 0
		f.eachByte(func(what string, flip func()) {
			flip()
			for range 2 { // also of what the first read kept
				rows, scan, err := f.read()
				if wrong := f.check(rows, scan); wrong != "" {
					t.Fatalf("cache of %d, %s: %s", c.cacheSize, what, wrong)
				}
				if err != nil && strings.Contains(what, ".sst") {
					tableErrs++
				}
			}
			flip()
			if rows, scan, err := f.read(); err != nil || f.check(rows, scan) != "" {
				t.Fatalf("cache of %d, %s, undamaged again: %v, %s", c.cacheSize, what, err, f.check(rows, scan))
			}
		})
		if (tableErrs == 0) != c.fits {
			t.Errorf("cache of %d: %d reads found damage of a table file", c.cacheSize, tableErrs)
		}
	}
}

// With an interval a scan may see a wrong value, and a read a wrong large value, until
// the interval is over, and neither misses a row or sees one too many. A get is right
// but for large values.
func TestP08_P09_NoFlippedByteMakesAnAnswerWrongAfterTheInterval(t *testing.T) {
	const interval = 7 * time.Second
	for _, cacheSize := range []int64{1, 6 << 10} { // for none and for some of the blocks
		f := newFlipped(t, Options{TableReads: TableReadsMapped, CacheSize: cacheSize, VerifyInterval: interval})
		believed := map[string]int{}
		f.eachByte(func(what string, flip func()) {
			f.clock.Advance(interval)
			if rows, scan, err := f.read(); err != nil || f.check(rows, scan) != "" { // verifies all
				t.Fatalf("%s, undamaged: %v, %s", what, err, f.check(rows, scan))
			}
			flip()
			f.clock.Advance(interval - time.Millisecond)
			rows, scan, err := f.read()
			if f.check(rows, scan) != "" {
				believed[what[:strings.Index(what, ",")]]++
			}
			if wrong := f.check(rows, f.scan); wrong != "" && strings.Contains(what, ".sst") {
				t.Fatalf("a get of %s: %s", what, wrong)
			}
			for i, got := range rows {
				if got != "error" && (got == "") != (f.rows[i] == "") {
					t.Fatalf("%s: row %d is %q, not %q", what, i, got, f.rows[i])
				}
			}
			if err == nil && len(scan) != len(f.scan) {
				t.Fatalf("%s: a scan sees %d rows of %d", what, len(scan), len(f.scan))
			}
			f.clock.Advance(time.Millisecond)
			for range 2 {
				if rows, scan, _ := f.read(); f.check(rows, scan) != "" {
					t.Fatalf("%s, after the interval: %s", what, f.check(rows, scan))
				}
			}
			flip()
		})
		if cacheSize == 1 && len(believed) != 2 { // the value file, and the table file that refers to none
			t.Errorf("believed: %v", believed)
		}
	}
}
