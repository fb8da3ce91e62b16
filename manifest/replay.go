package manifest

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"

	"github.com/cespare/xxhash/v2"

	"github.com/flagstone-db/flagstone/internal/vfs"
)

// Report says how a manifest was read.
type Report struct {
	Name    string // path of the manifest
	Number  uint64
	Size    int64 // of the file in bytes
	Records uint64
	Closed  bool // it ends with an end record: the log was closed properly
	// Torn is the offset of a last record that is incomplete or fails its checksum, else 0. It
	// counts as an edit that a crash interrupted before it was acknowledged.
	Torn int64
}

// Load reads the state of the store in dir and writes nothing. Errors match ErrNotStore,
// ErrCorrupt or errNewer, or are those of the file system.
func Load(fsys vfs.FS, dir string) (*State, Report, error) {
	number, err := readCurrent(fsys, dir)
	if err != nil {
		return nil, Report{}, err
	}
	return load(fsys, dir, number, 0)
}

// load reads a manifest, all of it or, if end is not 0, up to there, where the last record must end.
func load(fsys vfs.FS, dir string, number uint64, end int64) (_ *State, _ Report, err error) {
	r := &replayer{Report: Report{Name: filepath.Join(dir, manifestName(number)), Number: number}, end: end}
	r.file, err = fsys.Open(r.Name, vfs.OpenOptions{Sequential: true})
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, r.Report, corrupt("%s names %s, which does not exist: %w",
			filepath.Join(dir, CurrentName), manifestName(number), err)
	case err != nil:
		return nil, r.Report, fmt.Errorf("manifest: open %s: %w", r.Name, err)
	}
	defer r.file.Close()
	s, err := r.run()
	return s, r.Report, err
}

// replayer reads one manifest from front to back.
type replayer struct {
	Report
	file    vfs.File
	storeID [16]byte
	end     int64 // see load
}

func (r *replayer) run() (*State, error) {
	var err error
	r.Size, err = r.file.Size()
	switch {
	case err != nil:
		return nil, fmt.Errorf("manifest: size of %s: %w", r.Name, err)
	case r.Size > maxFileBytes:
		return nil, r.damaged(0, "file of %d bytes, at most %d are possible", r.Size, int64(maxFileBytes))
	case r.Size < max(blockSize, r.end):
		return nil, r.damaged(0, "file of %d bytes", r.Size)
	case r.end != 0:
		r.Size = r.end
	}
	if err := r.readHeader(); err != nil {
		return nil, err
	}
	var s *State
	for offset := int64(blockSize); offset < r.Size; {
		record, err := r.read(offset)
		if err != nil {
			return nil, err
		}
		if record == nil && r.end != 0 {
			return nil, r.damaged(offset, "record %d is incomplete or fails its checksum", r.Records)
		}
		if record == nil {
			if err := r.endsAt(offset); err != nil {
				return nil, err
			}
			break
		}
		if s, err = r.step(s, record); err != nil {
			return nil, fmt.Errorf("%w (%s, offset %d)", err, r.Name, offset)
		}
		r.Records++
		offset += roundUp(int64(len(record)))
	}
	if s == nil {
		return nil, r.damaged(blockSize, "no snapshot")
	}
	return s, nil
}

// step takes one good record.
func (r *replayer) step(s *State, record []byte) (*State, error) {
	kind, index := binary.LittleEndian.Uint32(record[4:]), binary.LittleEndian.Uint64(record[8:])
	body := record[recordHeaderSize:]
	switch {
	case r.Closed:
		return nil, corrupt("record behind the end record")
	case index != r.Records:
		return nil, corrupt("record %d where record %d belongs", index, r.Records)
	case (kind == kindSnapshot) != (s == nil):
		return nil, corrupt("record %d is of kind %d", index, kind)
	case kind == kindSnapshot:
		return decodeSnapshot(body, r.storeID)
	case kind == kindEdit:
		e, err := DecodeEdit(body)
		if err != nil {
			return nil, err
		}
		next, err := s.Apply(e)
		if err != nil {
			return nil, corrupt("%w", err)
		}
		return next, nil
	case kind == kindEnd:
		r.Closed = true
		return s, nil
	}
	return nil, fmt.Errorf("%w: record %d is of kind %d", errNewer, index, kind)
}

func (r *replayer) readHeader() error {
	var b [headerSize]byte
	if _, err := r.ReadAt(b[:], 0); err != nil {
		return err
	}
	copy(r.storeID[:], b[16:32])
	number := binary.LittleEndian.Uint64(b[32:])
	version, flags := binary.LittleEndian.Uint32(b[8:]), binary.LittleEndian.Uint32(b[12:])
	switch {
	case string(b[:8]) != headerMagic:
		return r.damaged(0, "not a manifest")
	case xxhash.Sum64(b[:40]) != binary.LittleEndian.Uint64(b[40:]):
		return r.damaged(0, "header fails its checksum")
	case number != r.Number:
		return r.damaged(0, "this is manifest %d", number)
	case version > formatVersion || flags != 0:
		return fmt.Errorf("%w: %s has format version %d and flags %#x, this version reads %d and 0",
			errNewer, r.Name, version, flags, formatVersion)
	case version != formatVersion:
		return r.damaged(0, "format version %d", version)
	}
	return nil
}

// read returns the record at an offset, with its header, or nil if there is no good one. Errors
// are those of the file.
func (r *replayer) read(offset int64) ([]byte, error) {
	var header [recordHeaderSize]byte
	left := r.Size - offset - recordHeaderSize
	if left < 0 {
		return nil, nil
	}
	if _, err := r.ReadAt(header[:], offset); err != nil {
		return nil, err
	}
	length := int64(binary.LittleEndian.Uint32(header[:]))
	if length > left || length > maxRecordBytes || header == [recordHeaderSize]byte{} {
		return nil, nil
	}
	if length > unverifiedBytes {
		if ok, err := r.verify(header[:], offset, length); !ok || err != nil {
			return nil, err
		}
	}
	record := make([]byte, recordHeaderSize+length)
	if _, err := r.ReadAt(record, offset); err != nil {
		return nil, err
	}
	sum := recordSum(record, record[recordHeaderSize:], place{r.Number, r.storeID, offset})
	if sum.Sum64() != binary.LittleEndian.Uint64(record[16:]) {
		return nil, nil
	}
	return record, nil
}

// verify reports whether a record has its header's checksum. Memory for the whole record is
// allocated only after that, since a damaged or crafted length may cover holes.
func (r *replayer) verify(header []byte, offset, length int64) (bool, error) {
	sum := recordSum(header, nil, place{r.Number, r.storeID, offset})
	_, err := io.Copy(sum, io.NewSectionReader(r, offset+recordHeaderSize, length))
	return sum.Sum64() == binary.LittleEndian.Uint64(header[16:]), err
}

// endsAt decides whether a bad record is the end of the file or damage.
func (r *replayer) endsAt(offset int64) error {
	if r.Records == 0 {
		return r.damaged(offset, "the snapshot is incomplete or fails its checksum")
	}
	// This reads offset itself once more: an occasional read error of the device must not pass
	// for a torn record.
	for next := offset; next < r.Size; next += blockSize {
		record, err := r.read(next)
		if err != nil {
			return err
		}
		if record != nil {
			return r.damaged(offset, "record %d is incomplete or fails its checksum, but offset %d holds a good one", r.Records, next)
		}
	}
	// What lies behind the end record does not matter, and reserved space holds only zeros.
	if r.Closed {
		return nil
	}
	torn, err := r.torn(offset)
	if torn {
		r.Torn = offset
	}
	return err
}

// torn reports whether there is a byte other than zero from an offset on.
func (r *replayer) torn(offset int64) (bool, error) {
	var block [blockSize]byte
	for ; offset < r.Size; offset += blockSize {
		b := block[:min(blockSize, r.Size-offset)]
		if _, err := r.ReadAt(b, offset); err != nil {
			return false, err
		}
		if bytes.Count(b, []byte{0}) < len(b) {
			return true, nil
		}
	}
	return false, nil
}

// ReadAt reads all of b. Errors name the file and the offset.
func (r *replayer) ReadAt(b []byte, offset int64) (int, error) {
	n, err := io.ReadFull(io.NewSectionReader(r.file, offset, int64(len(b))), b)
	if err != nil {
		err = fmt.Errorf("manifest: read %s at offset %d: %w", r.Name, offset, err)
	}
	return n, err
}

func (r *replayer) damaged(offset int64, format string, args ...any) error {
	return corrupt("%s, offset %d: "+format, append([]any{r.Name, offset}, args...)...)
}
