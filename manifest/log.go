package manifest

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/cespare/xxhash/v2"

	"github.com/flagstone-db/flagstone/internal/outfile"
	"github.com/flagstone-db/flagstone/internal/vfs"
)

// The file MANIFEST-NNNNNN, integers little endian:
//
//	block 0     header                       then zeros up to 4096
//	block 1...  snapshot record, edit records, at last perhaps an end record;
//	            each begins at a multiple of 4096, zeros between
//
//	header   0  8   magic "flagmani"         record   0  4   length of the payload
//	         8  4   format version, 1                 4  4   kind: 1 snapshot, 2 edit, 3 end
//	        12  4   flags, 0                          8  8   index: 0, 1, 2, ... in the file
//	        16 16   store id                         16  8   checksum
//	        32  8   number of the manifest           24      payload, see codec.go
//	        40  8   checksum of bytes 0 to 39
//
//	record checksum = xxhash64(number of the manifest, 8 bytes | store id |
//	    offset of the record, 8 bytes | bytes 0 to 15 of the record | payload)
//
// Every version keeps the header's layout, so that a newer file is distinguished from a damaged
// one.
//
// Invariants:
//
//   - Record 0, and no other, is a snapshot. It is synced before CURRENT names the
//     file; if it is bad, the file is damaged.
//   - A record is synced, and read back from the device, before the next is written
//     and before Commit returns. So a crash can tear only the last one, and then it
//     was not acknowledged. A bad record without a good one behind it is cut off;
//     any other bad record is damage. A record starts in a block of its own, so its
//     write touches no block of an acknowledged one.
//   - A file is not appended to after it was read: Open begins a new one, whose
//     snapshot holds all that was acknowledged. Close appends an end record. So
//     damage to the last edit can pass for a torn one only after a crash, and only
//     for the edit that was last before it.

const (
	headerMagic   = "flagmani"
	headerSize    = 48
	formatVersion = 1

	recordHeaderSize = 24
	blockSize        = 4096

	kindSnapshot = 1
	kindEdit     = 2
	kindEnd      = 3

	firstManifest = 1
	// reserveSize is by how much the file is extended at a time, so that most commits change no
	// metadata and do not fail on a full disk.
	reserveSize = 16 * blockSize
	// minRotateSize is the least size at which a new manifest is begun.
	minRotateSize = 1 << 20
	// rotateFactor is how many times its snapshot's size a manifest reaches before that.
	rotateFactor = 4

	// maxRecordBytes bounds a record: a snapshot of a million files with short keys takes a
	// third of it. maxFileBytes follows, since a manifest is replaced before it grows that
	// large.
	maxRecordBytes = 1 << 30
	maxFileBytes   = (rotateFactor + 2) * maxRecordBytes
	// unverifiedBytes is the longest record that is read into memory before its checksum is verified.
	unverifiedBytes = 1 << 20
)

// errClosed reports the use of a Log after Close.
var errClosed = errors.New("manifest: log is closed")

// Log is the open manifest of a store. Its methods are safe for concurrent
// use. The caller holds the store's lock.
type Log struct {
	fs     vfs.FS
	dir    string
	logger *slog.Logger

	state    atomic.Pointer[State]
	nextFile atomic.Uint64

	mu       sync.Mutex // held for a whole commit; commits run one at a time
	output              // the manifest that CURRENT names
	twin     vfs.File   // its copy, or nil: see copy.go
	highest  uint64     // of any manifest begun, successfully or not
	rotateAt int64
	poison   error
	closed   bool
}

// output is a manifest that is written.
type output struct {
	file     vfs.File
	device   vfs.File // the same file, for reading back
	number   uint64
	offset   int64 // where the next record goes
	reserved int64 // the file's size
	records  uint64
	begun    []byte // what it began with, until the copy has it
}

// close closes what is open.
func (o *output) close() (err error) {
	for _, f := range []vfs.File{o.file, o.device} {
		if f != nil {
			err = errors.Join(err, f.Close())
		}
	}
	return err
}

// Create makes a store with a given state, whose table files are in place and synced. It makes dir
// if that does not exist. Errors match errExists if dir holds a store. A creation that a crash cut
// short can be repeated.
func Create(fsys vfs.FS, dir string, s *State) error {
	if err := vfs.MakeDir(fsys, "", dir); err != nil {
		return fmt.Errorf("manifest: create %s: %w", dir, err)
	}
	_, err := readCurrent(fsys, dir)
	switch {
	case err == nil:
		return fmt.Errorf("%w: %s: %w", errExists, dir, fs.ErrExist)
	case !errors.Is(err, ErrNotStore):
		return err
	}
	l := &Log{fs: fsys, dir: dir, highest: firstManifest - 1}
	l.state.Store(s)
	_, err = l.rotate()
	if err = errors.Join(err, l.output.close()); err != nil {
		return fmt.Errorf("manifest: create %s: %w", dir, err)
	}
	return nil
}

// Open reads the manifest of the store in dir and begins a new one. Errors
// match ErrNotStore, ErrCorrupt, errNewer, or are those of the file system.
// A nil logger is silent.
func Open(fsys vfs.FS, dir string, logger *slog.Logger) (*Log, *State, error) {
	logger = cmp.Or(logger, slog.New(slog.DiscardHandler))
	s, report, err := Load(fsys, dir)
	if err != nil {
		return nil, nil, err
	}
	if report.Torn != 0 {
		logger.Warn("manifest: cut off an edit that was never acknowledged", "file", report.Name,
			"offset", report.Torn, "bytes", report.Size-report.Torn)
	}
	numbers, err := listManifests(fsys, dir)
	if err != nil {
		return nil, nil, err
	}
	copies, err := listNumbers(fsys, dir, copyName)
	if err != nil {
		return nil, nil, err
	}
	l := &Log{fs: fsys, dir: dir, logger: logger, highest: slices.Max(append(copies, numbers...))}
	l.state.Store(s)
	l.nextFile.Store(s.NextFile)
	if _, err := l.rotate(); err != nil {
		return nil, nil, err
	}
	l.removeOthers(append(numbers, copies...))
	return l, s, nil
}

// removeOthers deletes manifests that are not the current one, and their copies.
func (l *Log) removeOthers(numbers []uint64) {
	for _, n := range numbers {
		for _, name := range []string{copyName(n), manifestName(n)} { // so that no copy is left alone
			if n == l.number {
				continue
			}
			name = filepath.Join(l.dir, name)
			if err := l.fs.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
				l.logger.Warn("manifest: an old manifest cannot be deleted", "file", name, "error", err)
			}
		}
	}
}

// State returns the state after the last successful commit.
func (l *Log) State() *State { return l.state.Load() }

// NewFileNumber returns the number of a new table or value file. The next Commit, of any edit,
// makes the numbers used so far durably used. A number that no commit has seen is not in the
// state, and may be used again after a crash (see RaiseFileNumber).
func (l *Log) NewFileNumber() uint64 { return l.nextFile.Add(1) - 1 }

// RaiseFileNumber makes NewFileNumber go on above n. The caller calls it after Open with the
// highest number found in the directory.
func (l *Log) RaiseFileNumber(n uint64) {
	for {
		next := l.nextFile.Load()
		if next > n || l.nextFile.CompareAndSwap(next, n+1) {
			return
		}
	}
}

// Poisoned returns the error that ended the log, or nil. After it, the last edit may or may not
// be on disk. So nothing is committed any more, and no file that an edit made obsolete may be
// deleted, until the store is reopened.
func (l *Log) Poisoned() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.poison
}

// Verify reads CURRENT and the manifest that it names, and compares all that was committed before the call with its
// checksums. Commits go on meanwhile. Errors match ErrCorrupt, or are those of the file system. An error of the copy
// is only logged: the store does not need it. After Close there is nothing to verify.
func (l *Log) Verify() error {
	for {
		l.mu.Lock()
		number, end, closed, twin := l.number, l.offset, l.closed, l.twin != nil
		l.mu.Unlock()
		if closed {
			return nil
		}
		named, err := readCurrent(l.fs, l.dir)
		if err == nil && named != number {
			err = corrupt("%s names %s, and not %s", filepath.Join(l.dir, CurrentName), manifestName(named), manifestName(number))
		}
		if err == nil {
			_, _, err = load(l.fs, l.dir, number, end)
		}
		var differs error
		if err == nil && twin {
			differs = l.compareCopy(number, end)
		}
		l.mu.Lock()
		replaced := l.number != number // meanwhile: there is another manifest to read
		l.mu.Unlock()
		if differs != nil && !replaced {
			l.logger.Warn("manifest: the copy is damaged; opening the store makes a new one", "error", differs)
		}
		if err == nil || !replaced {
			return err
		}
	}
}

// Commit applies the edit, makes it durable and returns the new state. It refuses an edit that
// breaks a rule (ErrInvalidEdit) or for which there is no space, and the log can still be used.
// Any other error poisons the log: see Poisoned. In both cases the state is that before the
// edit.
func (l *Log) Commit(e *Edit) (*State, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.poison != nil:
		return nil, l.poison
	case l.closed:
		return nil, errClosed
	}
	e.nextFile = max(e.nextFile, l.nextFile.Load())
	next, err := l.State().Apply(e)
	if err != nil {
		return nil, err
	}
	if l.offset >= l.rotateAt {
		if err := l.rotateOrPutOff(); err != nil {
			return nil, err
		}
	}
	if err := l.append(kindEdit, AppendEdit(make([]byte, recordHeaderSize), e)); err != nil {
		return nil, err
	}
	l.RaiseFileNumber(next.NextFile - 1)
	l.state.Store(next)
	return next, nil
}

// append writes and syncs one record. buf has room for the record's header, then the payload.
func (l *Log) append(kind uint32, buf []byte) error {
	if len(buf)-recordHeaderSize > maxRecordBytes {
		return invalid("edit of %d bytes", len(buf)-recordHeaderSize)
	}
	if need := l.offset + roundUp(int64(len(buf))); need > l.reserved {
		size := need + reserveSize
		if err := l.file.Preallocate(size); err != nil {
			return fmt.Errorf("manifest: no space for an edit in %s: %w", l.path(), err)
		}
		l.reserved = size
	}
	sealRecord(buf, kind, l.records, place{l.number, l.State().StoreID, l.offset})
	if _, err := l.file.WriteAt(buf, l.offset); err != nil {
		if !vfs.IsNoSpace(err) {
			return l.fail("write", err)
		}
		// What was written is cut off, so that no crash can show an edit that was refused.
		l.reserved = l.offset
		if uncut := errors.Join(l.file.Truncate(l.offset), l.file.Sync()); uncut != nil {
			return l.fail("take back a record from", errors.Join(err, uncut))
		}
		return fmt.Errorf("manifest: no space for an edit in %s: %w", l.path(), err)
	}
	if err := l.file.SyncData(); err != nil {
		return l.fail("sync", err)
	}
	// The files that the edit removes may be deleted now, so the record must be there.
	if err := outfile.ReadBackAt(l.device, l.path(), l.offset, buf); err != nil {
		return l.fail("read back", err)
	}
	l.toCopy(buf, l.offset)
	l.records++
	l.offset += roundUp(int64(len(buf)))
	return nil
}

// fail poisons the log.
func (l *Log) fail(call string, cause error) error {
	l.poison = fmt.Errorf("manifest: %s %s: %w", call, l.path(), cause)
	l.logger.Error("manifest: no more edits until the store is reopened", "error", l.poison)
	return l.poison
}

func (l *Log) path() string { return filepath.Join(l.dir, manifestName(l.number)) }

// rotateOrPutOff begins a new manifest. If that fails without consequences, on a full disk for
// instance, the old one is used for longer.
func (l *Log) rotateOrPutOff() error {
	old := l.number
	harmless, err := l.rotate()
	switch {
	case err == nil:
		l.removeOthers([]uint64{old})
		return nil
	case harmless:
		l.rotateAt = l.offset + minRotateSize
		l.logger.Warn("manifest: a new manifest is put off", "error", err)
		return nil
	}
	return l.fail("rotate", err)
}

// rotate begins a new manifest with a snapshot of the state and lets CURRENT name it. harmless
// says that, after an error, CURRENT still names the old one and it can be appended to.
func (l *Log) rotate() (harmless bool, err error) {
	l.highest++
	next, harmless, err := l.begin(l.highest, l.State())
	if err != nil {
		return harmless, fmt.Errorf("manifest: begin %s: %w", manifestName(l.highest), err)
	}
	if switched, err := switchCurrent(l.fs, l.dir); err != nil {
		err = errors.Join(err, next.close())
		return !switched && vfs.IsNoSpace(err), fmt.Errorf("manifest: switch to %s: %w", manifestName(l.highest), err)
	}
	l.endCopy(nil)
	_ = l.output.close() // its bytes are not needed any more, so its errors do not matter
	l.output = next
	if l.logger != nil { // a log whose file is closed at once has no copy
		l.startCopy(next.begun)
	}
	l.begun = nil
	l.rotateAt = max(minRotateSize, rotateFactor*next.offset)
	return true, nil
}

// begin writes a manifest with a snapshot, syncs it, reads it back and stages CURRENT. A
// harmless error leaves at most needless files. A failed sync is not harmless, since the device
// cannot be trusted any more.
func (l *Log) begin(number uint64, s *State) (next output, harmless bool, err error) {
	path := filepath.Join(l.dir, manifestName(number))
	buf := make([]byte, blockSize+recordHeaderSize)
	putHeader(buf, number, s.StoreID)
	buf = appendSnapshot(buf, s)
	if len(buf) > maxRecordBytes {
		return output{}, true, invalid("snapshot of %d bytes", len(buf))
	}
	sealRecord(buf[blockSize:], kindSnapshot, 0, place{number, s.StoreID, blockSize})
	size := roundUp(int64(len(buf)))

	f, err := l.fs.Create(path, vfs.OpenOptions{})
	if err != nil {
		return output{}, true, err
	}
	next = output{file: f, number: number, offset: size, reserved: size, records: 1, begun: buf}
	abandon := func(harmless bool, err error) (output, bool, error) {
		return output{}, harmless, errors.Join(err, next.close(), l.fs.Remove(path))
	}
	if err := f.Preallocate(size); err != nil {
		return abandon(true, err)
	}
	if _, err := f.WriteAt(buf, 0); err != nil {
		return abandon(true, err)
	}
	if err := f.Sync(); err != nil {
		return abandon(false, err)
	}
	if next.device, err = l.fs.Open(path, vfs.OpenOptions{Uncached: true}); err != nil {
		return abandon(true, err)
	}
	if err := outfile.ReadBackAt(next.device, path, 0, buf); err != nil {
		return abandon(true, err)
	}
	if err := l.fs.SyncDir(l.dir); err != nil {
		return abandon(false, err)
	}
	if unsynced, err := stageCurrent(l.fs, l.dir, number); err != nil {
		return abandon(!unsynced, err)
	}
	return next, true, nil
}

// Close appends an end record and closes the file. The State can still be read, but nothing can
// be committed.
func (l *Log) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil
	}
	l.closed = true
	var err error
	if l.poison == nil {
		err = l.append(kindEnd, make([]byte, recordHeaderSize))
		if l.twin != nil {
			l.endCopy(errors.Join(l.twin.Sync(), l.fs.SyncDir(l.dir)))
		}
	}
	l.endCopy(nil)
	return errors.Join(err, l.output.close())
}

// place is where a record stands. Its checksum covers the place too, so that a record that
// strayed from elsewhere fails it.
type place struct {
	number  uint64
	storeID [16]byte
	offset  int64
}

func putHeader(b []byte, number uint64, storeID [16]byte) {
	copy(b, headerMagic)
	binary.LittleEndian.PutUint32(b[8:], formatVersion)
	binary.LittleEndian.PutUint32(b[12:], 0)
	copy(b[16:32], storeID[:])
	binary.LittleEndian.PutUint64(b[32:], number)
	binary.LittleEndian.PutUint64(b[40:], xxhash.Sum64(b[:40]))
}

// sealRecord fills the header of a record.
func sealRecord(record []byte, kind uint32, index uint64, at place) {
	binary.LittleEndian.PutUint32(record, uint32(len(record)-recordHeaderSize))
	binary.LittleEndian.PutUint32(record[4:], kind)
	binary.LittleEndian.PutUint64(record[8:], index)
	binary.LittleEndian.PutUint64(record[16:], recordSum(record, record[recordHeaderSize:], at).Sum64())
}

// recordSum is the checksum of a record: of its place, its header and what is given of the payload.
func recordSum(header, payload []byte, at place) *xxhash.Digest {
	d := xxhash.New()
	// Writing to a Digest never fails.
	_ = binary.Write(d, binary.LittleEndian, at)
	_, _ = d.Write(header[:16])
	_, _ = d.Write(payload)
	return d
}

func roundUp(n int64) int64 { return (n + blockSize - 1) / blockSize * blockSize }
