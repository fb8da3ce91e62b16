package backup

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math"
	"path"
	"slices"
	"strings"

	"github.com/cespare/xxhash/v2"

	"github.com/flagstone-db/flagstone/manifest"
)

const (
	descriptionMagic = "flagbkup"
	// leastEntry is the size of the smallest entry: a path of one byte, a kind, an id, a size, a checksum, a suffix.
	leastEntry = 2 + 1 + 16 + 1 + 8 + 8
)

// description says which files a backup has. It makes the backup exist.
type description struct {
	name          string
	createdMillis int64
	added         int64   // bytes of files that the repository did not have before
	entries       []entry // by path
	origins       []origin
	store         [16]byte // the id of the store that was backed up; zero: not known
}

const (
	// descriptionVersion is that of descriptions with a store, which are written.
	descriptionVersion = 3
	// originsVersion is that of descriptions with origins and no store. Others are of formatVersion.
	originsVersion = 2
)

// origin says where the log of a store goes on behind a backup of it.
type origin struct {
	within  string // the directory of the store; "" is that of the backup
	store   [16]byte
	segment uint64 // at most the first one with a record that the backup lacks
	changes uint64 // how many changes were made beside the log before
	micros  int64  // the backup has nothing that was committed later
}

// within returns the entries of the store in a directory of the backup, "" for that of the backup, as they lie in that
// directory.
func (d *description) within(dir string) (ours []entry) {
	for _, e := range d.entries {
		if e.path == registryFile || e.path == credentialsFile || e.path == digestFile {
			continue
		}
		store := path.Dir(e.path)
		for store != "." && !slices.ContainsFunc(d.origins, func(o origin) bool { return o.within == store }) {
			store = path.Dir(store)
		}
		if strings.TrimPrefix(store, ".") == dir {
			e.path = strings.TrimPrefix(e.path, store+"/")
			ours = append(ours, e)
		}
	}
	return ours
}

func (d *description) info() Info {
	info := Info{Name: d.name, CreatedMillis: d.createdMillis, Files: len(d.entries), AddedBytes: d.added}
	for i := range d.entries {
		info.Bytes += d.entries[i].size
	}
	if d.store != [16]byte{} {
		info.Store = hex.EncodeToString(d.store[:])
	}
	return info
}

// encode returns the bytes of a description. It fails if they are more than a reader takes.
func (d *description) encode() ([]byte, error) {
	b := binary.LittleEndian.AppendUint32([]byte(descriptionMagic), descriptionVersion)
	b = appendString(b, d.name)
	b = binary.AppendVarint(b, d.createdMillis)
	b = binary.AppendUvarint(b, uint64(d.added))
	b = binary.AppendUvarint(b, uint64(len(d.entries)))
	for i := range d.entries {
		e := &d.entries[i]
		b = appendString(b, e.path)
		b = append(b, byte(e.kind))
		b = append(b, e.unique[:]...)
		b = binary.AppendUvarint(b, uint64(e.size))
		b = binary.LittleEndian.AppendUint64(b, e.sum)
		b = append(b, e.suffix[:]...)
	}
	b = binary.AppendUvarint(b, uint64(len(d.origins)))
	for _, o := range d.origins {
		b = append(appendString(b, o.within), o.store[:]...)
		b = binary.AppendUvarint(binary.AppendUvarint(b, o.segment), o.changes)
		b = binary.AppendVarint(b, o.micros)
	}
	b = append(b, d.store[:]...)
	b = binary.LittleEndian.AppendUint64(b, xxhash.Sum64(b))
	if len(b) > maxText {
		return nil, fmt.Errorf("%w: its %d files need a description of more than %d bytes", ErrSource, len(d.entries), maxText)
	}
	return b, nil
}

func appendString(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

// decodeDescription is the inverse of encode. Its memory is bounded by the size of b. Errors match ErrDamaged,
// except for a newer version.
func decodeDescription(b []byte) (*description, error) {
	const magic, sum = len(descriptionMagic), 8
	if len(b) < magic+4+sum || string(b[:magic]) != descriptionMagic {
		return nil, fmt.Errorf("%w: it does not begin with %q", ErrDamaged, descriptionMagic)
	}
	body := b[:len(b)-sum]
	if binary.LittleEndian.Uint64(b[len(body):]) != xxhash.Sum64(body) { // of every version
		return nil, fmt.Errorf("%w: it does not fit its checksum", ErrDamaged)
	}
	version := binary.LittleEndian.Uint32(b[magic:])
	if version > descriptionVersion {
		return nil, newer("it", int(version), descriptionVersion)
	}
	r := fields{b: body[magic+4:]}
	d := &description{name: r.text(), createdMillis: r.signed(), added: r.size()}
	count := r.size()
	if r.bad || count > int64(len(r.b)/leastEntry) {
		return nil, fmt.Errorf("%w: it has %d bytes for %d files", ErrDamaged, len(r.b), count)
	}
	d.entries = make([]entry, 0, count)
	var total int64
	for i := range int(count) {
		e := entry{path: r.text()}
		e.kind = kind(r.bytes(1)[0])
		e.unique = [16]byte(r.bytes(16))
		e.size = r.size()
		e.sum = binary.LittleEndian.Uint64(r.bytes(8))
		e.suffix = [8]byte(r.bytes(8))
		if r.bad || e.size > math.MaxInt64-total {
			return nil, fmt.Errorf("%w: file %d", ErrDamaged, i)
		}
		total += e.size
		if i > 0 && d.entries[i-1].path >= e.path {
			return nil, fmt.Errorf("%w: file %q comes after %q", ErrDamaged, e.path, d.entries[i-1].path)
		}
		if err := e.check(); err != nil {
			return nil, err
		}
		d.entries = append(d.entries, e)
	}
	if version >= originsVersion {
		if err := d.readOrigins(&r, version); err != nil {
			return nil, err
		}
	}
	if len(r.b) > 0 {
		return nil, fmt.Errorf("%w: %d bytes behind its last file", ErrDamaged, len(r.b))
	}
	return d, d.check()
}

// readOrigins reads the origins, each of which is of a store that the description has, and the store.
func (d *description) readOrigins(r *fields, version uint32) error {
	count := r.size()
	for i := int64(0); i < count && !r.bad; i++ {
		o := origin{within: r.text(), store: [16]byte(r.bytes(16)), segment: number(r, binary.Uvarint), changes: number(r, binary.Uvarint), micros: r.signed()}
		if !slices.ContainsFunc(d.entries, func(e entry) bool { return e.path == path.Join(o.within, manifest.CurrentName) }) {
			r.bad = true
		}
		d.origins = append(d.origins, o)
	}
	switch version {
	case originsVersion: // it was not written without origins
		r.bad = r.bad || count == 0
		for _, o := range d.origins {
			if o.within == "" {
				d.store = o.store
			}
		}
	default:
		d.store = [16]byte(r.bytes(len(d.store)))
	}
	if r.bad {
		return fmt.Errorf("%w: of its %d stores with a log", ErrDamaged, count)
	}
	return nil
}

// check refuses an entry whose kind is not that of its name.
func (e *entry) check() error {
	if err := checkPath(e.path); err != nil {
		return err
	}
	want := otherFile
	switch {
	case strings.HasSuffix(e.path, ".sst"):
		want = tableFile
	case strings.HasSuffix(e.path, ".val"):
		want = valueFile
	}
	if e.kind != want {
		return fmt.Errorf("%w: file %q is of kind %d", ErrDamaged, e.path, e.kind)
	}
	return nil
}

// check refuses a description without a store.
func (d *description) check() error {
	for i := range d.entries {
		if d.entries[i].path == manifest.CurrentName {
			return nil
		}
	}
	return fmt.Errorf("%w: it has no file %s", ErrDamaged, manifest.CurrentName)
}

// fields reads the fields of a description. After a field that is not there bad is true, and all others are zero.
type fields struct {
	b   []byte
	bad bool
}

func (r *fields) bytes(n int) []byte {
	if r.bad || n > len(r.b) {
		r.bad = true
		return make([]byte, n)
	}
	b := r.b[:n]
	r.b = r.b[n:]
	return b
}

// number reads an integer by a function of encoding/binary.
func number[T uint64 | int64](r *fields, read func([]byte) (T, int)) T {
	v, n := read(r.b)
	if r.bad || n <= 0 {
		r.bad = true
		return 0
	}
	r.b = r.b[n:]
	return v
}

func (r *fields) signed() int64 { return number(r, binary.Varint) }

// size reads an unsigned integer below 2^63.
func (r *fields) size() int64 {
	v := number(r, binary.Uvarint)
	if v > math.MaxInt64 {
		r.bad = true
		return 0
	}
	return int64(v)
}

// text reads a string of at most 255 bytes.
func (r *fields) text() string {
	n := r.size()
	if n > math.MaxUint8 {
		r.bad = true
		return ""
	}
	return string(r.bytes(int(n)))
}
