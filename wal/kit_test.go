package wal

// Helpers of this package's tests: a file system that calls back before each change, a log with
// an oracle, and the rule by which a recovered log is judged.

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/flagstone-db/flagstone/internal/vfs"
)

var (
	update = flag.Bool("update", false, "rewrite golden files")
	seed   = flag.Uint64("seed", 1, "seed of the random tests")
	long   = os.Getenv("FLAGSTONE_LONG") != "" // all cases instead of a sample
)

var storeID = [16]byte{'f', 'l', 'a', 'g', 's', 't', 'o', 'n', 'e', ' ', 't', 'e', 's', 't', ' ', '1'}

func testOptions(fsys vfs.FS) Options {
	return Options{FS: fsys, Dir: "wal", SegmentSize: 4 * blockSize, Sync: true, StoreID: storeID}
}

// mode is how a log is written. A lazy one has an owner that remembers segments.
type mode struct{ synced, compressed, lazy bool }

var modes = []mode{{true, false, false}, {false, false, false}, {false, false, true}, {true, true, false}, {false, true, false}, {false, true, true}}

func (m mode) String() string {
	return fmt.Sprintf("sync %v, compressed %v, lazy %v", m.synced, m.compressed, m.lazy)
}

// set makes options of this mode.
func (m mode) set(o *Options) { o.Sync, o.Compress = m.synced, compression(m.compressed) }

// remember makes newest the segment that the owner of a log remembers, if the log is lazy.
func (m mode) remember(o *Options, newest *uint64) {
	if !m.lazy {
		return
	}
	o.EagerSegments, o.Newest.Segment = 1, *newest
	o.Begun = func(n uint64) error {
		*newest = n
		return nil
	}
}

func compression(on bool) Compression {
	if on {
		return CompressAlways
	}
	return CompressNever
}

// hookFS calls before ahead of each call that changes a file or makes a change durable. An error
// of before is returned instead of making the call.
type hookFS struct {
	vfs.FS
	before func(op, name string) error
}

func (h hookFS) open(op, name string, f vfs.File, err error) (vfs.File, error) {
	if err != nil {
		return nil, err
	}
	return hookFile{f, h, name}, nil
}

func (h hookFS) Create(name string, o vfs.OpenOptions) (vfs.File, error) {
	if err := h.before("create", name); err != nil {
		return nil, err
	}
	f, err := h.FS.Create(name, o)
	return h.open("create", name, f, err)
}

func (h hookFS) Open(name string, o vfs.OpenOptions) (vfs.File, error) {
	if err := h.before("open", name); err != nil {
		return nil, err
	}
	f, err := h.FS.Open(name, o)
	return h.open("open", name, f, err)
}

func (h hookFS) OpenReadWrite(name string, o vfs.OpenOptions) (vfs.File, error) {
	if err := h.before("openrw", name); err != nil {
		return nil, err
	}
	f, err := h.FS.OpenReadWrite(name, o)
	return h.open("openrw", name, f, err)
}

func (h hookFS) Remove(name string) error {
	if err := h.before("remove", name); err != nil {
		return err
	}
	return h.FS.Remove(name)
}

func (h hookFS) Rename(from, to string) error {
	if err := h.before("rename", from); err != nil {
		return err
	}
	return h.FS.Rename(from, to)
}

func (h hookFS) SyncDir(dir string) error {
	if err := h.before("syncdir", dir); err != nil {
		return err
	}
	return h.FS.SyncDir(dir)
}

func (h hookFS) List(dir string) ([]string, error) {
	if err := h.before("list", dir); err != nil {
		return nil, err
	}
	return h.FS.List(dir)
}

func (h hookFS) MkdirAll(dir string) error {
	if err := h.before("mkdir", dir); err != nil {
		return err
	}
	return h.FS.MkdirAll(dir)
}

func (h hookFS) Stat(name string) (vfs.Info, error) {
	if err := h.before("stat", name); err != nil {
		return vfs.Info{}, err
	}
	return h.FS.Stat(name)
}

type hookFile struct {
	vfs.File
	fs   hookFS
	name string
}

func (f hookFile) WriteAt(p []byte, off int64) (int, error) {
	if err := f.fs.before("write", f.name); err != nil {
		return 0, err
	}
	return f.File.WriteAt(p, off)
}

func (f hookFile) ReadAt(p []byte, off int64) (int, error) {
	if err := f.fs.before("read", f.name); err != nil {
		return 0, err
	}
	return f.File.ReadAt(p, off)
}

func (f hookFile) Size() (int64, error) {
	if err := f.fs.before("size", f.name); err != nil {
		return 0, err
	}
	return f.File.Size()
}

func (f hookFile) Preallocate(size int64) error {
	if err := f.fs.before("preallocate", f.name); err != nil {
		return err
	}
	return f.File.Preallocate(size)
}

func (f hookFile) Truncate(size int64) error {
	if err := f.fs.before("truncate", f.name); err != nil {
		return err
	}
	return f.File.Truncate(size)
}

func (f hookFile) Sync() error {
	if err := f.fs.before("sync", f.name); err != nil {
		return err
	}
	return f.File.Sync()
}

func (f hookFile) SyncData() error {
	if err := f.fs.before("syncdata", f.name); err != nil {
		return err
	}
	return f.File.SyncData()
}

func (f hookFile) Close() error {
	err := f.fs.before("close", f.name)
	return errors.Join(err, f.File.Close())
}

// entry is a record in the oracle.
type entry struct {
	stream   uint32
	position uint64
	payload  []byte
}

// oracle knows what a log must hold: a prefix of records with at least the first acked of them.
type oracle struct {
	records []entry
	acked   int
}

// next makes a record that is unique to its generation.
func (o *oracle) next(generation, size int) entry {
	e := entry{stream: uint32(len(o.records) / 3 % 2), position: 1}
	for i := len(o.records) - 1; i >= 0; i-- {
		if o.records[i].stream == e.stream {
			e.position = o.records[i].position + 1 + uint64(len(o.records)%3)
			break
		}
	}
	e.payload = testPayload(uint64(generation)<<32|uint64(len(o.records)), size)
	return e
}

// testPayload is random bytes, which repeat for half of the ids.
func testPayload(id uint64, size int) []byte {
	b := make([]byte, size)
	var word [8]byte
	rng := rand.New(rand.NewPCG(id, 7))
	for i := 0; i < size; i += 8 {
		if i == 256 && id%2 == 0 {
			for n := i; n < size; n += copy(b[n:], b[:n]) {
			}
			break
		}
		binary.LittleEndian.PutUint64(word[:], rng.Uint64())
		copy(b[i:], word[:])
	}
	return b
}

// recovered runs Recover and keeps the records.
func recovered(opts Options, minSegment uint64) ([]entry, RecoverResult, error) {
	var out []entry
	res, err := Recover(opts, minSegment, func(r Record) error {
		out = append(out, entry{r.Stream, r.Position, bytes.Clone(r.Payload)})
		return nil
	})
	return out, res, err
}

// check returns what is wrong with a recovered log: it must be a prefix of the appended records
// that holds all acknowledged ones.
func (o *oracle) check(got []entry) error {
	if len(got) < o.acked || len(got) > len(o.records) {
		return fmt.Errorf("recovered %d records; %d were acknowledged, %d appended", len(got), o.acked, len(o.records))
	}
	for i, e := range got {
		want := o.records[i]
		if e.stream != want.stream || e.position != want.position || !bytes.Equal(e.payload, want.payload) {
			return fmt.Errorf("record %d of %d is (%d, %d, %d bytes), appended was (%d, %d, %d bytes)", i, len(got),
				e.stream, e.position, len(e.payload), want.stream, want.position, len(want.payload))
		}
	}
	return nil
}

// append adds a record to log and oracle.
func (o *oracle) append(w *Writer, generation, size int) (LSN, error) {
	e := o.next(generation, size)
	o.records = append(o.records, e) // it may be there even if Append fails
	cut := len(e.payload) / 3
	return w.Append(e.stream, e.position, e.payload[:cut], nil, e.payload[cut:])
}

// sync syncs the log and raises acked.
func (o *oracle) sync(w *Writer, lsn LSN) error {
	n := len(o.records)
	if err := w.Sync(lsn); err != nil {
		return err
	}
	o.acked = n
	return nil
}

// mustOpen recovers, checks against the oracle, and starts a writer.
func mustOpen(t testing.TB, opts Options, minSegment uint64, o *oracle) (*Writer, RecoverResult) {
	t.Helper()
	got, res, err := recovered(opts, minSegment)
	if err != nil {
		t.Fatalf("recover: %v", err)
	}
	if err := o.check(got); err != nil {
		t.Fatal(err)
	}
	w, err := NewWriter(opts, res)
	if err != nil {
		t.Fatalf("new writer: %v", err)
	}
	o.records, o.acked = o.records[:len(got)], len(got)
	return w, res
}

// mustAppend appends records of the given sizes and syncs the last one.
func mustAppend(t testing.TB, w *Writer, o *oracle, generation int, sizes ...int) {
	t.Helper()
	var lsn LSN
	for _, size := range sizes {
		var err error
		if lsn, err = o.append(w, generation, size); err != nil {
			t.Fatalf("append of %d bytes: %v", size, err)
		}
	}
	if err := o.sync(w, lsn); err != nil {
		t.Fatalf("sync: %v", err)
	}
}

func mustClose(t testing.TB, w *Writer) {
	t.Helper()
	if err := w.Close(); err != nil {
		t.Fatalf("close: %v", err)
	}
}

func newSim() *vfs.Sim { return vfs.NewSim(vfs.SimOptions{}) }

func logFile(number uint64) string { return filepath.Join("wal", segmentName(number)) }

// Segments returns the segments that are part of the log, ending with the newest on the disk.
func (w *Writer) Segments() (numbers []uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, s := range w.sealed {
		numbers = append(numbers, s.number)
	}
	last := w.cur.number
	if t := w.rotating(); t != nil {
		last = t.ended.number
	}
	return append(numbers, last)
}

// rotating returns the rotation under way, nil if there is none. Callers hold mu.
func (w *Writer) rotating() *rotation {
	if len(w.flying) == 0 {
		return nil
	}
	return w.flying[0].rotation
}

// Append is AppendNow, and makes the room that it does not find. It hands over what was left to
// HandOver, unless Options.Gathered does.
func (w *Writer) Append(stream uint32, position uint64, payload ...[]byte) (LSN, error) {
	for {
		lsn, err := w.AppendNow(stream, position, payload...)
		if err == nil && !w.opts.Sync && w.opts.Gathered == nil {
			err = w.HandOver()
		}
		if err != ErrRoom {
			return lsn, err
		}
		if err := w.MakeRoom(context.Background(), payload...); err != nil {
			return 0, err
		}
	}
}
