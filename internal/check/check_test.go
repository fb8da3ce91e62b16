package check

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/flagstone-db/flagstone/internal/tablefiles"
	"github.com/flagstone-db/flagstone/internal/vfs"
	"github.com/flagstone-db/flagstone/manifest"
	"github.com/flagstone-db/flagstone/row"
	"github.com/flagstone-db/flagstone/sstable"
	"github.com/flagstone-db/flagstone/valuefile"
	"github.com/flagstone-db/flagstone/wal"
)

const (
	dir         = "/store"
	tableNumber = 1
	valueNumber = 2
	rows        = 10
)

var (
	errCorrupt = errors.New("corrupt")
	storeID    = [16]byte{1}
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// create makes a file of a store.
func create(t *testing.T, fs vfs.FS, name string) vfs.File {
	t.Helper()
	name = filepath.Join(dir, name)
	must(t, fs.MkdirAll(filepath.Dir(name)))
	f, err := fs.Create(name, vfs.OpenOptions{})
	must(t, err)
	return f
}

// newStore makes a closed store with a table file, a value file that it refers to, and a log.
func newStore(t *testing.T) (Store, *vfs.Sim) {
	t.Helper()
	fs := vfs.NewSim(vfs.SimOptions{})
	must(t, manifest.Create(fs, dir, manifest.NewState(storeID)))
	log, _, err := manifest.Open(fs, dir, nil)
	must(t, err)
	var e manifest.Edit
	e.Created = []*manifest.Table{{
		ID: 1, Name: "t", Key: []manifest.KeyColumn{{Name: "id", Type: row.TypeInteger}},
		Options:   manifest.TableOptions{MaxVersions: 1, TTLSeconds: manifest.NeverExpires, MaxVersionOffsetSeconds: 86400},
		Watermark: manifest.NoWatermark, LargestOffset: 86400, Partitions: []*manifest.Partition{{ID: 1}},
	}}
	values, file := writeFiles(t, fs)
	log.RaiseFileNumber(valueNumber)
	e.Values = []manifest.ValueAddition{{Table: 1, File: values}}
	e.Added = []manifest.Addition{{Partition: 1, File: file}}
	e.Flushed = []manifest.Flush{{Partition: 1, Seq: rows}}
	e.LastSeq = rows
	e.NewestLog = manifest.LogEnd(writeLog(t, fs))
	_, err = log.Commit(&e)
	must(t, err)
	must(t, log.Close())
	state, _, err := manifest.Load(fs, dir)
	must(t, err)
	return Store{FS: fs, Dir: dir, State: state, Corrupt: errCorrupt}, fs
}

// writeFiles writes a table file with one large value in each row.
func writeFiles(t *testing.T, fs vfs.FS) (*manifest.ValueFile, *manifest.FileMeta) {
	t.Helper()
	values := create(t, fs, manifest.ValueName(valueNumber))
	table := create(t, fs, manifest.TableName(tableNumber))
	vw := valuefile.NewWriter(values, valuefile.WriterOptions{Number: valueNumber, UniqueID: [16]byte{2}})
	tw := sstable.NewWriter(table, sstable.WriterOptions{UniqueID: [16]byte{3}, FilterBitsPerKey: 10})
	for i := range rows {
		ref, err := vw.Add([]byte(strings.Repeat(fmt.Sprint(i), 100)))
		must(t, err)
		key, err := row.AppendKey(nil, 1, row.Integer(int64(i)))
		must(t, err)
		must(t, tw.StartRow(key))
		must(t, tw.AddCell(&row.Cell{
			Column: []byte("c"), Version: 1000, Seq: uint64(i + 1), Kind: row.KindPut, Type: row.TypeString,
			Separate: true, Value: ref.Append(nil),
		}))
	}
	info, err := vw.Finish()
	must(t, err)
	must(t, values.Close())
	p, err := tw.Finish()
	must(t, err)
	must(t, table.Close())
	return &manifest.ValueFile{
		Number: valueNumber, UniqueID: info.UniqueID, Size: info.Size, Checksum: info.Checksum, Values: info.Values, Bytes: info.Bytes,
	}, tablefiles.Describe(tableNumber, &p)
}

// writeLog writes a log with one batch.
func writeLog(t *testing.T, fs vfs.FS) wal.End {
	t.Helper()
	opts := wal.Options{FS: fs, Dir: filepath.Join(dir, manifest.WALDir), StoreID: storeID, SegmentSize: 1 << 20}
	result, err := wal.Recover(opts, 0, func(wal.Record) error { return nil })
	must(t, err)
	w, err := wal.NewWriter(opts, result)
	must(t, err)
	var c row.Change
	c.Table = 1
	c.Key, err = row.AppendKey(nil, 1, row.Integer(77))
	must(t, err)
	must(t, c.Put("c", 1000, row.String("x")))
	must(t, c.Normalize())
	var b row.Batch
	must(t, b.Add(&c))
	_, err = w.AppendNow(0, rows+1, b.Pieces()...)
	must(t, err)
	must(t, w.Close())
	return w.End()
}

func run(t *testing.T, s Store) Report {
	t.Helper()
	report, err := Run(context.Background(), s, nil)
	must(t, err)
	return report
}

func TestASoundStoreHasNoProblem(t *testing.T) {
	s, fs := newStore(t)
	create(t, fs, manifest.TableName(tableNumber)+".bak").Close() // no name of ours
	before := fs.Digest()
	var files []string
	report, err := Run(context.Background(), s, func(file string) { files = append(files, file) })
	must(t, err)
	if len(report.Problems) > 0 || len(report.Orphans) > 0 {
		t.Errorf("%v, orphans %q", report.Problems, report.Orphans)
	}
	if report.Tables != 1 || report.TableFiles != 1 || report.Rows != rows || report.Cells != rows ||
		report.ValueFiles != 1 || report.Values != rows || report.LogRecords != 1 || report.LogBytes == 0 {
		t.Errorf("%+v", report)
	}
	want := []string{manifest.ValueName(valueNumber), manifest.TableName(tableNumber), manifest.WALDir}
	for i := range want {
		want[i] = filepath.Join(dir, want[i])
	}
	if !slices.Equal(files, want) {
		t.Errorf("progress named %q, want %q", files, want)
	}
	if fs.Digest() != before {
		t.Error("the check changed a file")
	}
}

// TestEveryChangedByteIsFound changes bytes of each file, and removes each file.
func TestEveryChangedByteIsFound(t *testing.T) {
	for _, name := range []string{manifest.TableName(tableNumber), manifest.ValueName(valueNumber)} {
		s, fs := newStore(t)
		full := filepath.Join(dir, name)
		content, err := fs.ReadFile(full)
		must(t, err)
		for off := 0; off < len(content); off += 1 + len(content)/97 {
			must(t, fs.FlipByte(full, int64(off), 0x10))
			if report := run(t, s); len(report.Problems) == 0 || !strings.Contains(report.Problems[0].Error(), name) {
				t.Fatalf("%s, byte %d: %v", name, off, report.Problems)
			}
			must(t, fs.FlipByte(full, int64(off), 0x10))
		}
		must(t, fs.Remove(full))
		report := run(t, s)
		if len(report.Problems) != 1 || !errors.Is(report.Problems[0], errCorrupt) || !strings.Contains(report.Problems[0].Error(), name) {
			t.Errorf("%s is missing: %v", name, report.Problems)
		}
	}
}

func TestADamagedLogIsFound(t *testing.T) {
	s, fs := newStore(t)
	names, err := fs.List(filepath.Join(dir, manifest.WALDir))
	must(t, err)
	segment := filepath.Join(dir, manifest.WALDir, names[0])
	must(t, fs.Cut(segment, s.State.NewestLog.Offset-1))
	if report := run(t, s); len(report.Problems) != 1 || !errors.Is(report.Problems[0], wal.ErrCorrupt) {
		t.Errorf("%v", report.Problems)
	}
}

func TestWhatTheManifestSaysIsCompared(t *testing.T) {
	for what, spoil := range map[string]func(f *manifest.FileMeta){
		"rows":      func(f *manifest.FileMeta) { f.Rows++ },
		"seq":       func(f *manifest.FileMeta) { f.LargestSeq++ },
		"key":       func(f *manifest.FileMeta) { f.Largest = append(slices.Clone(f.Largest), 0) },
		"values":    func(f *manifest.FileMeta) { f.Values = []manifest.ValueUse{{File: valueNumber, Values: 1, Bytes: 1}} },
		"permanent": func(f *manifest.FileMeta) { f.Permanent = !f.Permanent },
		"checksum":  func(f *manifest.FileMeta) { f.Checksum++ },
	} {
		s, _ := newStore(t)
		spoil(s.State.Tables[0].Partitions[0].Levels[0][0])
		if report := run(t, s); len(report.Problems) != 1 || !errors.Is(report.Problems[0], errCorrupt) {
			t.Errorf("%s: %v", what, report.Problems)
		}
	}
}

func TestFilesThatNothingRefersToAreOrphans(t *testing.T) {
	s, fs := newStore(t)
	s.State.NextFile = 10
	must(t, create(t, fs, manifest.TableName(7)).Close())
	if report := run(t, s); len(report.Problems) > 0 || !slices.Equal(report.Orphans, []string{manifest.TableName(7)}) {
		t.Errorf("orphans %q, problems %v", report.Orphans, report.Problems)
	}
}

func TestACheckEndsWithItsContext(t *testing.T) {
	s, _ := newStore(t)
	ctx, cancel := context.WithCancel(context.Background())
	_, err := Run(ctx, s, func(string) { cancel() })
	if !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// TestReferencesAreFollowed: a reference that leads to no record, or to a wrong one, is found
// although table and value file are each sound.
func TestReferencesAreFollowed(t *testing.T) {
	s, _ := newStore(t)
	c := newChecker(context.Background(), s, new(Report), nil)
	var good []row.Reference
	file := c.tables()[0]
	defer file.Unref()
	r, err := file.Reader()
	must(t, err)
	must(t, r.Verify(func(ref row.Reference) error { good = append(good, ref); return c.reference(ref) }))
	if len(good) != rows {
		t.Fatalf("%d references", len(good))
	}
	for what, spoil := range map[string]func(ref *row.Reference){
		"no record there":       func(ref *row.Reference) { ref.Offset++ },
		"another record":        func(ref *row.Reference) { ref.Offset = good[1].Offset },
		"another length":        func(ref *row.Reference) { ref.Raw-- },
		"beyond the file's end": func(ref *row.Reference) { ref.Offset += 1 << 30 },
	} {
		ref := good[0]
		spoil(&ref)
		if err := c.reference(ref); !errors.Is(err, valuefile.ErrCorrupt) {
			t.Errorf("%s: %v", what, err)
		}
	}
}
