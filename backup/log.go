package backup

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/cespare/xxhash/v2"
	"github.com/klauspost/compress/s2"

	"github.com/flagstone-db/flagstone"
	"github.com/flagstone-db/flagstone/wal"
)

const (
	logPrefix = "log/"
	logMagic  = "flagblog"
	// logVersion is that of parts. Before packedLogs records are plain. logBlock is the largest block of packed ones.
	logVersion = 2
	packedLogs = 2
	logBlock   = 256 << 10
	// maxLogNotes, maxLogNote and maxNoteBytes bound what the header of a part of a log takes in memory: notes, bytes of
	// a field, bytes of all notes. A store keeps less: 4,096 notes, of 256 KiB together.
	maxLogNotes  = 1 << 16
	maxLogNote   = 4 << 20
	maxNoteBytes = 16 << 20
)

// logName matches the name of a part of a log, behind the prefix.
var logName = regexp.MustCompile(`^([0-9a-f]{32})/(\d{1,19})-(\d{1,19})-(\d{1,19})\.(\d{1,19})$`)

// logPart is an object with a part of the log of a store. Its name says all of this.
type logPart struct {
	store       string // see storeName
	from, until uint64 // it has the segments from one on, up to another, which is excluded
	changes     uint64 // how many changes were made beside the log, up to micros
	micros      int64  // every commit up to this time lies in a segment below until; 0: not known
	size        int64  // of the object
}

// storeName is a name for a store that does not tell its id.
func storeName(id [16]byte) string {
	hash := sha256.Sum256(append([]byte("flagstone kept log 1"), id[:]...))
	return hex.EncodeToString(hash[:16])
}

func (p *logPart) name() string {
	return fmt.Sprintf("%s%s/%d-%d-%d.%d", logPrefix, p.store, p.from, p.until, p.changes, p.micros)
}

// parseLogPart is the inverse of logPart.name. It refuses other names.
func parseLogPart(name string) (p logPart, ok bool) {
	fields := logName.FindStringSubmatch(strings.TrimPrefix(name, logPrefix))
	if fields == nil {
		return p, false
	}
	p.store = fields[1]
	for i, v := range []*uint64{&p.from, &p.until, &p.changes} {
		*v, _ = strconv.ParseUint(fields[2+i], 10, 64) // at most 19 digits
	}
	p.micros, _ = strconv.ParseInt(fields[5], 10, 64) // the largest value, if it is above
	return p, p.name() == name && p.from <= p.until
}

// logParts lists the parts of logs by store, ascending by their first segments.
func logParts(ctx context.Context, repo Repository, prefix string) (map[string][]logPart, error) {
	parts := map[string][]logPart{}
	err := repo.List(ctx, logPrefix+prefix, func(name string, size int64) error {
		if p, ok := parseLogPart(name); ok {
			p.size = size
			parts[p.store] = append(parts[p.store], p)
		}
		return nil
	})
	for _, list := range parts {
		slices.SortFunc(list, func(p, q logPart) int {
			return cmp.Or(cmp.Compare(p.from, q.from), cmp.Compare(p.until, q.until), cmp.Compare(p.micros, q.micros))
		})
	}
	return parts, err
}

// writeLog writes a part of a log: a header with notes and a checksum, and, packed, the records that records gives to put,
// and a checksum of everything.
func writeLog(w io.Writer, sealer Sealer, p *logPart, notes []flagstone.LogNote, records func(put func(first uint64, batch []byte) error) error) error {
	return writeSealed(w, sealer, func(w io.Writer) error {
		sum := xxhash.New()
		header := logHeader(p, notes)
		_, _ = sum.Write(header)
		if _, err := w.Write(header); err != nil {
			return err
		}
		packed := s2.NewWriter(w, s2.WriterBlockSize(logBlock), s2.WriterConcurrency(1)) // it keeps its error until Close
		summed := io.MultiWriter(packed, sum)
		var lengths []byte
		err := records(func(first uint64, batch []byte) error {
			lengths = binary.AppendUvarint(binary.AppendUvarint(lengths[:0], first), uint64(len(batch)))
			_, _ = summed.Write(lengths)
			_, err := summed.Write(batch)
			return err
		})
		if err != nil {
			return err
		}
		_, _ = summed.Write([]byte{0})
		_, _ = packed.Write(binary.LittleEndian.AppendUint64(nil, sum.Sum64()))
		return packed.Close()
	})
}

func logHeader(p *logPart, notes []flagstone.LogNote) []byte {
	b := binary.LittleEndian.AppendUint32([]byte(logMagic), logVersion)
	b = binary.LittleEndian.AppendUint64(b, xxhash.Sum64(b))
	b = appendString(b, strings.TrimPrefix(p.name(), logPrefix))
	b = binary.AppendUvarint(b, uint64(len(notes)))
	for _, n := range notes {
		b = binary.AppendVarint(binary.AppendUvarint(b, n.Number), n.Micros)
		b = appendString(appendString(b, n.What), string(n.Edit))
	}
	return binary.LittleEndian.AppendUint64(b, xxhash.Sum64(b))
}

// readLog reads a part of a log: the notes of its header, and then its records, unless each is nil. An error of each
// ends it. Errors of damage match ErrDamaged or ErrIdentity; all errors name the object. What each has got is good
// only if there is no error.
func readLog(ctx context.Context, repo Repository, unsealer Unsealer, p *logPart, each func(first uint64, batch []byte) error) (notes []flagstone.LogNote, err error) {
	err = withObject(ctx, repo, unsealer, p.name(), func(plain io.Reader) error {
		object := bufio.NewReaderSize(plain, chunk)
		r := logReader{ctx: ctx, object: object, r: object, sum: xxhash.New()}
		notes = r.header(strings.TrimPrefix(p.name(), logPrefix))
		var stopped error
		if each != nil {
			stopped = r.records(each)
		}
		return cmp.Or(r.err, stopped)
	})
	return notes, err
}

// logReader reads the fields of a part of a log. After an error, which it keeps, all others are zero.
type logReader struct {
	ctx    context.Context
	object *bufio.Reader
	r      *bufio.Reader  // unpacks object where that is packed
	packed bool           // the records are
	sum    *xxhash.Digest // of what was read
	err    error
}

func (r *logReader) damaged(format string, args ...any) {
	r.err = cmp.Or(r.err, fmt.Errorf("%w: "+format, append([]any{ErrDamaged}, args...)...))
}

// bytes reads n bytes, and takes no more memory than twice what there are.
func (r *logReader) bytes(n uint64) []byte {
	var b bytes.Buffer
	if r.err == nil {
		r.err = r.ctx.Err()
	}
	if r.err == nil {
		_, err := io.CopyN(io.MultiWriter(&b, r.sum), r.r, int64(n))
		r.err = short(err)
	}
	if r.err != nil {
		return make([]byte, min(n, 8))
	}
	return b.Bytes()
}

// ReadByte implements io.ByteReader.
func (r *logReader) ReadByte() (byte, error) {
	b, err := r.r.ReadByte()
	if r.err = short(err); err == nil {
		_, _ = r.sum.Write([]byte{b}) // never fails
	}
	return b, err
}

func readNumber[T uint64 | int64](r *logReader, read func(io.ByteReader) (T, error)) T {
	if r.err != nil {
		return 0
	}
	v, err := read(r)
	if err != nil {
		r.damaged("a malformed number") // unless it could not be read
		return 0
	}
	return v
}

func (r *logReader) number() uint64 { return readNumber(r, binary.ReadUvarint) }

// text reads a length of at most most bytes, and as many bytes.
func (r *logReader) text(most uint64) []byte {
	n := r.number()
	if n > most {
		r.damaged("a field of %d bytes, at most %d are allowed", n, most)
		n = 0
	}
	return r.bytes(n)
}

// checksum compares what was read with a checksum.
func (r *logReader) checksum(of string) {
	want := r.sum.Sum64()
	if got := r.bytes(8); r.err == nil && binary.LittleEndian.Uint64(got) != want {
		r.damaged("%s does not fit its checksum", of)
	}
}

func (r *logReader) header(name string) (notes []flagstone.LogNote) {
	if magic := r.bytes(8); string(magic) != logMagic {
		r.damaged("it does not begin with %q", logMagic)
	}
	v := binary.LittleEndian.Uint32(r.bytes(4))
	if r.checksum("its beginning"); v > logVersion && r.err == nil {
		r.err = newer("it", int(v), logVersion)
	}
	if got := r.text(maxLogNote); string(got) != name {
		r.damaged("it is that of another name")
	}
	count := r.number()
	if count > maxLogNotes {
		r.damaged("it has %d notes", count)
	}
	size := 0
	for range count {
		if r.err != nil {
			return nil
		}
		n := flagstone.LogNote{Number: r.number(), Micros: readNumber(r, binary.ReadVarint)}
		n.What, n.Edit = string(r.text(maxLogNote)), r.text(maxLogNote)
		if size += len(n.What) + len(n.Edit); size > maxNoteBytes {
			r.damaged("its notes have more than %d bytes", maxNoteBytes)
			return nil
		}
		notes = append(notes, n)
	}
	r.checksum("its header")
	r.packed = v >= packedLogs
	return notes
}

// unpacker reads the packed records of a log.
type unpacker struct{ *s2.Reader }

// Read implements io.Reader. Errors of damage match ErrDamaged; others are those of the object.
func (u unpacker) Read(p []byte) (n int, err error) {
	n, err = u.Reader.Read(p)
	for _, damage := range []error{s2.ErrCorrupt, s2.ErrCRC, s2.ErrTooLarge, s2.ErrUnsupported} {
		if errors.Is(err, damage) {
			err = fmt.Errorf("%w: %w", ErrDamaged, err)
		}
	}
	return n, err
}

func (r *logReader) records(each func(first uint64, batch []byte) error) error {
	if r.packed && r.err == nil {
		r.r = bufio.NewReader(unpacker{s2.NewReader(r.object, s2.ReaderMaxBlockSize(logBlock))})
	}
	for first := r.number(); first != 0; first = r.number() {
		batch := r.text(wal.MaxRecordSize)
		if len(batch) == 0 {
			r.damaged("an empty batch") // of which a small object could have any number
		}
		if r.err != nil {
			return nil
		}
		if err := each(first, batch); err != nil {
			return err
		}
	}
	r.checksum("it")
	for _, end := range []*bufio.Reader{r.object, r.r} { // in this order: to unpack skips what has no content
		switch _, err := end.ReadByte(); {
		case r.err != nil || err == io.EOF:
		case err != nil:
			r.err = err
		default:
			r.damaged("there is more behind its end")
		}
	}
	return nil
}
