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
	"io"
	"io/fs"
	"path/filepath"
	"slices"

	"github.com/flagstone-db/flagstone/internal/vfs"
)

// copyName returns the name of the copy of a manifest.
func copyName(n uint64) string { return fmt.Sprintf("COPY-%06d", n) }

// startCopy begins the copy of the current manifest, which so far consists of content.
func (l *Log) startCopy(content []byte) {
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

// compareCopy compares the manifest of a number, up to an offset, with its copy, in which the last zeros may be missing.
func (l *Log) compareCopy(number uint64, end int64) error {
	var files [2]vfs.File
	for i, name := range []string{manifestName(number), copyName(number)} {
		f, err := l.fs.Open(filepath.Join(l.dir, name), vfs.OpenOptions{Sequential: true})
		if err != nil {
			return err
		}
		defer f.Close()
		files[i] = f
	}
	for at := int64(0); at < end; at += blockSize {
		var blocks [2][blockSize]byte
		for i, f := range files {
			if _, err := f.ReadAt(blocks[i][:], at); err != nil && !errors.Is(err, io.EOF) {
				return err
			}
		}
		if blocks[0] != blocks[1] {
			return corrupt("%s, offset %d: not the bytes of %s", filepath.Join(l.dir, copyName(number)), at, manifestName(number))
		}
	}
	return nil
}

// Damage is a part of the catalogue that is lost.
type Damage struct {
	File   string
	Offset int64 // -1: the whole file
	Err    error
}

// LoadDamaged is Load for a store whose catalogue may be damaged. It reads the manifest that CURRENT names and its
// copy. Where both are damaged, the state is that before the damage. Without CURRENT, it reads the newest manifest.
// complete says that the state is known to be the newest: an end record follows it, or its last record is in both files
// and nothing follows in either. An error says that no state is left: it matches ErrNotStore, ErrCorrupt or errNewer, or
// is of the file system.
func LoadDamaged(fsys vfs.FS, dir string) (_ *State, damage []Damage, complete bool, err error) {
	number, err := readCurrent(fsys, dir)
	if err == nil {
		s, r, err := loadBoth(fsys, dir, number)
		return s, r.damage, r.complete, err
	}
	if !errors.Is(err, ErrCorrupt) && !errors.Is(err, ErrNotStore) && !vfs.IsUnreadable(err) {
		return nil, nil, false, err
	}
	manifests, unlisted := listManifests(fsys, dir)
	copies, unlistedToo := listNumbers(fsys, dir, copyName)
	if unlisted != nil || unlistedToo != nil {
		return nil, nil, false, err
	}
	numbers := append(copies, manifests...)
	slices.Sort(numbers)
	var found *State
	for _, n := range slices.Backward(slices.Compact(numbers)) {
		second := found != nil
		if second && !slices.Contains(manifests, n) {
			continue // what is left of a manifest that was replaced
		}
		s, r, failed := loadBoth(fsys, dir, n)
		if failed != nil && !errors.Is(failed, ErrCorrupt) {
			return nil, nil, false, failed
		}
		// The newest manifest, if it has only its snapshot, may not have been named by CURRENT yet. Then the one before
		// went on, or has the same state.
		if s != nil && (!second || len(r.damage) == 0) {
			name := manifestName(n)
			if !slices.Contains(manifests, n) {
				name = copyName(n)
			}
			newest := fmt.Errorf("%w; the state is that of %s", err, name)
			found, damage = s, append(r.damage, Damage{filepath.Join(dir, CurrentName), -1, newest})
		}
		if second || s != nil && r.Records != 1 {
			break
		}
	}
	if found == nil {
		return nil, nil, false, err
	}
	return found, damage, false, nil
}

// loadBoth reads a manifest and its copy, of which one may be missing.
func loadBoth(fsys vfs.FS, dir string, number uint64) (_ *State, r reconciler, err error) {
	r = reconciler{name: filepath.Join(dir, manifestName(number))}
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
			return nil, r, err
		}
	}
	s, err := r.run()
	return s, r, err
}

// reconciler reads a manifest and its copy from front to back.
type reconciler struct {
	replayer             // what the records say
	name     string      // of the manifest
	files    []*replayer // what can be read of both
	headed   bool        // one of them has a right header
	damage   []Damage
	complete bool  // see LoadDamaged
	first    error // that was met
}

// bad reports whether an error is one of damage, and remembers the first.
func (r *reconciler) bad(err error) bool {
	r.first = cmp.Or(r.first, err)
	return errors.Is(err, ErrCorrupt) || vfs.IsUnreadable(err)
}

// add adds a file whose header was read, unless the first right header is of another store. If no header is right, the
// id in one may be: the checksums of records cover it.
func (r *reconciler) add(f *replayer, err error) {
	if err == nil && r.headed && f.storeID != r.storeID {
		r.damage = append(r.damage, Damage{f.Name, 0, corrupt("%s is of another store than %s", f.Name, r.name)})
		return
	}
	if len(r.files) == 0 || err == nil {
		r.storeID, r.headed = f.storeID, err == nil
	}
	r.files = append(r.files, f)
	for _, f := range r.files {
		f.storeID = r.storeID
	}
}

// record returns the record at an offset and the file that has it, or nil if there is no good one in either.
func (r *reconciler) record(offset int64) ([]byte, *replayer, error) {
	for _, f := range r.files {
		record, err := f.read(offset)
		if record != nil || err != nil && !r.bad(err) {
			return record, f, err
		}
	}
	return nil, nil, nil
}

func (r *reconciler) run() (s *State, err error) {
	for _, f := range r.files {
		r.Size = max(r.Size, f.Size)
	}
	last, offset := int64(0), int64(blockSize)
	var newest *replayer
	for offset < r.Size && !r.Closed {
		record, from, err := r.record(offset)
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
		s, newest = next, from
		r.Records++
		last, offset = offset, offset+roundUp(int64(len(record)))
	}
	if s == nil {
		return nil, cmp.Or(r.first, corrupt("%s has no snapshot", r.name))
	}
	if r.Closed {
		r.complete = true
		return s, nil
	}
	lost, err := r.behind(offset, newest)
	if err != nil {
		return nil, err
	}
	if lost != nil {
		r.damage = append(r.damage, Damage{r.name, offset, lost})
		return s, nil
	}
	r.complete, err = r.bothEnd(last, offset)
	return s, err
}

// bothEnd reports whether manifest and copy both end with the record between two offsets.
func (r *reconciler) bothEnd(from, to int64) (bool, error) {
	for _, f := range r.files {
		record, err := f.read(from)
		if record != nil {
			_, err = f.torn(to) // it is zeros, unless it cannot be read
		}
		if err != nil && !r.bad(err) {
			return false, err
		}
		if record == nil || err != nil {
			return false, nil
		}
	}
	return len(r.files) == 2, nil
}

// behind says what is lost, or may be, behind the newest record, which ends at an offset and is not an end record.
// Nothing is if that record is in the manifest and only zeros follow.
func (r *reconciler) behind(offset int64, newest *replayer) (lost, err error) {
	for at := offset; at < r.Size; at += blockSize {
		record, _, err := r.record(at)
		if err != nil {
			return nil, err
		}
		if record != nil {
			return corrupt("%s, offset %d: record %d and its copy are lost; the state is that before it, without record %d and others behind it",
				r.name, offset, r.Records, binary.LittleEndian.Uint64(record[8:])), nil
		}
	}
	if newest.Name != r.name {
		return corrupt("%s, offset %d: the state is that of the copy, which was not closed; newer edits may be lost", r.name, offset), nil
	}
	for _, f := range r.files {
		torn, err := f.torn(offset)
		switch {
		case err != nil && !r.bad(err):
			return nil, err
		case err != nil && f == newest:
			return fmt.Errorf("%w; edit %d and newer ones may be lost", err, r.Records), nil
		case torn:
			return corrupt("%s, offset %d: no good record; an edit is lost, or was never acknowledged", f.Name, offset), nil
		}
	}
	return nil, nil
}
