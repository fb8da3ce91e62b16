package flagstone

// A check of a store that is in use.

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
)

// rewritten makes a store of the files that a check reads: table and value files, several segments of the log, and a
// manifest with edits.
func rewritten(t *testing.T, opts Options) *flipped {
	opts.WALSegmentSize = 1 // as small as possible
	f := newFlipped(t, opts)
	for i := range 40 {
		put(t, f.table, "q", i, "c", startMillis, strings.Repeat("logged", 100))
	}
	return f
}

func (f *flipped) checkOpen(opts CheckOptions) CheckReport {
	f.t.Helper()
	report, err := f.store.Check(ctx(), opts)
	f.ok(err)
	return report
}

func TestACheckOfAnOpenStoreReadsAllFilesAndLeavesTheCachesAlone(t *testing.T) {
	f := rewritten(t, Options{})
	before, files, digest := f.store.Metrics(), []string(nil), f.fs.Digest()
	read, left := 0, int64(0)
	report := f.checkOpen(CheckOptions{
		Pace: func(bytes int) error { read += bytes; return nil },
		Progress: func(file string, done, all int64) {
			files = append(files, file)
			if left = all - done; left <= 0 {
				t.Errorf("%s: %d of %d bytes", file, done, all)
			}
		},
	})
	if len(report.Problems) > 0 || report.TableFiles != 2 || report.ValueFiles == 0 || report.LogRecords < 30 || report.Rows == 0 {
		t.Errorf("%+v", report)
	}
	if left < report.LogBytes {
		t.Errorf("%d bytes are left before the log, which has %d", left, report.LogBytes)
	}
	if want := report.TableFiles + report.ValueFiles + 1; len(files) != want {
		t.Errorf("files %q, want %d", files, want)
	}
	if most := 4 * (report.FileBytes + report.ValueBytes + report.LogBytes + int64(4096*report.Values) + 64<<10); int64(read) < report.FileBytes || int64(read) > most {
		t.Errorf("%d bytes read, at most %d were expected", read, most)
	}
	after := f.store.Metrics()
	if before.CacheHits != after.CacheHits || before.CacheMisses != after.CacheMisses || before.CacheBytes != after.CacheBytes || before.OpenFiles != after.OpenFiles {
		t.Errorf("before: %+v\nafter: %+v", before, after)
	}
	if f.fs.Digest() != digest {
		t.Error("the check changed a file")
	}
	if rows, scan, err := f.read(); err != nil || f.check(rows, scan[:len(f.scan)]) != "" {
		t.Errorf("a read afterwards: %v", err)
	}
}

// TestACheckOfAnOpenStoreFindsDamage flips bytes of each file, and takes each file away.
func TestACheckOfAnOpenStoreFindsDamage(t *testing.T) {
	var events []Event
	f := rewritten(t, Options{OnEvent: func(e Event) {
		if e.Kind == EventFailure {
			events = append(events, e)
		}
	}})
	finds := func(what, name string) {
		t.Helper()
		events = nil
		var told []error
		report := f.checkOpen(CheckOptions{Problem: func(err error) { told = append(told, err) }})
		if len(report.Problems) != 1 || !errors.Is(report.Problems[0], ErrCorrupt) || !strings.Contains(report.Problems[0].Error(), name) {
			t.Fatalf("%s: %v", what, report.Problems)
		}
		if len(told) != 1 || len(events) != 1 || events[0].Reason != "check" || !errors.Is(events[0].Err, ErrCorrupt) {
			t.Fatalf("%s: told %v, events %+v", what, told, events)
		}
	}
	names := f.files()
	oldest, newest := f.store.state().MinLog, f.store.log.NewestOnDisk()
	if newest < oldest+2 {
		t.Fatalf("segments %d to %d", oldest, newest)
	}
	for n := oldest; n < newest; n++ {
		names = append(names, fmt.Sprintf("/store/wal/%06d.log", n))
	}
	for _, name := range names {
		content, err := f.fs.ReadFile(name)
		f.ok(err)
		length := len(content)
		if strings.HasSuffix(name, ".log") {
			length = 4096 + 600 // the header's block has room that no checksum covers, and so has the end of a segment
		}
		for at := 0; at < length; at += 1 + length/23 {
			if strings.HasSuffix(name, ".log") && at >= 100 && at < 4096 {
				continue
			}
			f.ok(f.fs.FlipByte(name, int64(at), 0x10))
			finds(fmt.Sprintf("%s, byte %d", name, at), name)
			f.ok(f.fs.FlipByte(name, int64(at), 0x10))
		}
		if strings.HasSuffix(name, ".log") {
			continue
		}
		f.ok(f.fs.Rename(name, name+".away"))
		finds(name+" away", name)
		f.ok(f.fs.Rename(name+".away", name))
	}
	for _, name := range f.fs.Files() {
		if strings.Contains(name, "MANIFEST") {
			f.ok(f.fs.FlipByte("/"+name, 4096+30, 0x10)) // in the snapshot
			finds(name, name)
			f.ok(f.fs.FlipByte("/"+name, 4096+30, 0x10))
		}
	}
	f.ok(f.fs.FlipByte("/store/CURRENT", 3, 0x10))
	finds("CURRENT", "CURRENT")
	f.ok(f.fs.FlipByte("/store/CURRENT", 3, 0x10))
	if report := f.checkOpen(CheckOptions{}); len(report.Problems) > 0 {
		t.Errorf("undamaged again: %v", report.Problems)
	}
}

// TestFilesThatGoDuringACheckAreNoDamage merges all files and releases the log at each read of a check, in turn.
func TestFilesThatGoDuringACheckAreNoDamage(t *testing.T) {
	for at := 1; ; at++ {
		f := rewritten(t, Options{})
		reads := 0
		report := f.checkOpen(CheckOptions{Pace: func(int) error {
			if reads++; reads == at {
				f.ok(f.store.Flush(ctx()))
				f.exec.RunAll()
				f.ok(f.store.Compact(ctx()))
				f.exec.RunAll()
				for i := range 40 { // goes to the files of the segments that were released
					put(t, f.table, "r", i, "c", startMillis, strings.Repeat("again", 100))
				}
			}
			return nil
		}})
		if len(report.Problems) > 0 {
			t.Fatalf("at read %d: %v", at, report.Problems)
		}
		if again := f.checkOpen(CheckOptions{}); len(again.Problems) > 0 || again.Rows == 0 {
			t.Fatalf("afterwards: %+v", again)
		}
		if reads < at {
			if at < 10 {
				t.Errorf("%d reads", reads)
			}
			return
		}
	}
}

func TestACheckOfAnOpenStoreEnds(t *testing.T) {
	f := rewritten(t, Options{})
	enough := errors.New("enough")
	report, err := f.store.Check(ctx(), CheckOptions{Pace: func(int) error { return enough }})
	if !errors.Is(err, enough) || len(report.Problems) > 0 {
		t.Errorf("by its pace: %v, %v", err, report.Problems)
	}
	ended, cancel := context.WithCancel(ctx())
	report, err = f.store.Check(ended, CheckOptions{Progress: func(string, int64, int64) { cancel() }})
	if !errors.Is(err, context.Canceled) || len(report.Problems) > 0 {
		t.Errorf("by its context: %v, %v", err, report.Problems)
	}
	closed := make(chan error)
	closing := sync.OnceFunc(func() {
		go func() { closed <- f.store.Close() }()
		for !f.store.closed.Load() {
			runtime.Gosched()
		}
	})
	report, err = f.store.Check(ctx(), CheckOptions{Pace: func(int) error { closing(); return nil }})
	if err := <-closed; err != nil {
		t.Errorf("Close beside a check: %v", err)
	}
	if !errors.Is(err, ErrClosed) || len(report.Problems) > 0 {
		t.Errorf("by Close: %v, %v", err, report.Problems)
	}
	if _, err = f.store.Check(ctx(), CheckOptions{}); !errors.Is(err, ErrClosed) {
		t.Errorf("of a closed store: %v", err)
	}
	if !slices.ContainsFunc(f.fs.Files(), func(name string) bool { return strings.HasSuffix(name, ".sst") }) {
		t.Error("files are gone")
	}
}
