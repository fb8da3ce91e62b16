package manifest

// The copy of a manifest, COPY-000007 for MANIFEST-000007, has the same bytes. Open does not look at it. Only
// LoadDamaged does: it takes each record from the one of both in which it is good.
//
// A record goes to the copy when it is durable in the manifest, so the copy never has one that was not
// acknowledged. The copy is synced when the log is closed. After a power cut it may lack the newest records, or all
// of them. Without its copy a manifest counts as before: an error of the copy ends the copy.

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"

	"github.com/flagstone-db/flagstone/internal/vfs"
)

// copyName returns the name of the copy of a manifest.
func copyName(n uint64) string { return fmt.Sprintf("COPY-%06d", n) }

// startCopy begins the copy of the current manifest, which so far consists of content.
func (l *Log) startCopy(content []byte) {
	l.endCopy(nil)
	file, err := l.fs.Create(filepath.Join(l.dir, copyName(l.number)), vfs.OpenOptions{})
	if err != nil {
		l.logger.Warn("manifest: there is no copy", "error", err)
		return
	}
	l.twin = file
	l.toCopy(content, 0)
}

// toCopy writes what was written to the manifest.
func (l *Log) toCopy(b []byte, offset int64) {
	if l.twin == nil {
		return
	}
	if _, err := l.twin.WriteAt(b, offset); err != nil {
		l.endCopy(err)
	}
}

// endCopy closes the copy, and logs an error of it.
func (l *Log) endCopy(err error) {
	if l.twin != nil {
		err = errors.Join(err, l.twin.Close())
		l.twin = nil
	}
	if err != nil {
		l.logger.Warn("manifest: the copy ends", "file", filepath.Join(l.dir, copyName(l.number)), "error", err)
	}
}

// Damage is a part of the catalogue that is lost.
type Damage struct {
	File   string
	Offset int64 // -1: the whole file
	Err    error
}

// LoadDamaged is Load for a store whose catalogue may be damaged. It reads the manifest that CURRENT names and its
// copy. Where both are damaged, the state is that before the damage. Without CURRENT, it reads the newest manifest.
// An error says that no state is left: it matches ErrNotStore, ErrCorrupt or errNewer, or is of the file system.
func LoadDamaged(fsys vfs.FS, dir string) (*State, []Damage, error) {
	number, err := readCurrent(fsys, dir)
	if err == nil {
		s, _, damage, err := loadBoth(fsys, dir, number)
		return s, damage, err
	}
	if !errors.Is(err, ErrCorrupt) && !errors.Is(err, ErrNotStore) && !vfs.IsUnreadable(err) {
		return nil, nil, err
	}
	numbers, unlisted := listManifests(fsys, dir)
	copies, unlistedToo := listNumbers(fsys, dir, copyName)
	if unlisted != nil || unlistedToo != nil {
		return nil, nil, err
	}
	numbers = append(numbers, copies...)
	slices.Sort(numbers)
	var found *State
	var damage []Damage
	for _, n := range slices.Backward(slices.Compact(numbers)) {
		second := found != nil
		s, records, lost, failed := loadBoth(fsys, dir, n)
		if failed != nil && !errors.Is(failed, ErrCorrupt) {
			return nil, nil, failed
		}
		// The newest manifest, if it has only its snapshot, may not have been named by CURRENT yet. Then the one before
		// went on, or has the same state.
		if s != nil && (!second || len(lost) == 0) {
			newest := fmt.Errorf("%w; the state is that of %s", err, manifestName(n))
			found, damage = s, append(lost, Damage{filepath.Join(dir, CurrentName), -1, newest})
		}
		if second || s != nil && records != 1 {
			break
		}
	}
	if found == nil {
		return nil, nil, err
	}
	return found, damage, nil
}

// loadBoth reads a manifest and its copy, of which one may be missing.
func loadBoth(fsys vfs.FS, dir string, number uint64) (_ *State, records uint64, damage []Damage, err error) {
	r := reconciler{name: filepath.Join(dir, manifestName(number))}
	for _, name := range []string{manifestName(number), copyName(number)} {
		f := &replayer{Report: Report{Name: filepath.Join(dir, name), Number: number}}
		f.file, err = fsys.Open(f.Name, vfs.OpenOptions{Sequential: true})
		if err == nil {
			defer f.file.Close()
			f.Size, err = f.file.Size()
		}
		if err == nil && f.Size >= blockSize && f.Size <= maxFileBytes {
			err = f.readHeader()
			r.add(f, err)
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) && !r.bad(err) {
			return nil, 0, nil, err
		}
	}
	s, err := r.run()
	return s, r.Records, r.damage, err
}

// reconciler reads a manifest and its copy from front to back.
type reconciler struct {
	replayer             // what the records say
	name     string      // of the manifest
	files    []*replayer // what can be read of both
	damage   []Damage
	first    error // that was met
}

// bad reports whether an error is one of damage, and remembers the first.
func (r *reconciler) bad(err error) bool {
	r.first = cmp.Or(r.first, err)
	return errors.Is(err, ErrCorrupt) || vfs.IsUnreadable(err)
}

// add adds a file whose header was read. If no header is right, the id in one may be: the checksums of records cover it.
func (r *reconciler) add(f *replayer, err error) {
	if len(r.files) == 0 || err == nil {
		r.storeID = f.storeID
	}
	r.files = append(r.files, f)
	for _, f := range r.files {
		f.storeID = r.storeID
	}
}

// record returns the record at an offset of either file, or nil if there is no good one.
func (r *reconciler) record(offset int64) ([]byte, error) {
	for _, f := range r.files {
		record, err := f.read(offset)
		if record != nil || err != nil && !r.bad(err) {
			return record, err
		}
	}
	return nil, nil
}

func (r *reconciler) run() (s *State, err error) {
	size := int64(0)
	for _, f := range r.files {
		size = max(size, f.Size)
	}
	offset := int64(blockSize)
	for offset < size && !r.Closed {
		record, err := r.record(offset)
		if err != nil {
			return nil, err
		}
		if record == nil {
			break
		}
		next, err := r.step(s, record)
		if err != nil {
			return nil, fmt.Errorf("%w (%s, offset %d)", err, r.name, offset)
		}
		s = next
		r.Records++
		offset += roundUp(int64(len(record)))
	}
	if s == nil {
		return nil, cmp.Or(r.first, corrupt("%s has no snapshot", r.name))
	}
	for behind := offset; behind < size && !r.Closed; behind += blockSize {
		record, err := r.record(behind)
		if err != nil {
			return nil, err
		}
		if record != nil {
			index := binary.LittleEndian.Uint64(record[8:])
			lost := corrupt("%s, offset %d: record %d and its copy are lost; the state is that before it, without record %d and others behind it",
				r.name, offset, r.Records, index)
			r.damage = append(r.damage, Damage{r.name, offset, lost})
			break
		}
	}
	return s, nil
}
