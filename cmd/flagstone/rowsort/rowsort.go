// Package rowsort sorts more records than fit in memory by their keys. Of several records with one key the last one
// stays. Records are gathered in memory, sorted, and written to a file as a run; at the end the runs are merged. The files
// have no names, so they are gone when the process is.
package rowsort

import (
	"bufio"
	"bytes"
	"cmp"
	"container/heap"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/klauspost/compress/s2"
)

const (
	// maxRuns is how many runs of a level become one of the next level, so that few files are open at a time.
	maxRuns = 32
	// runMagic begins a run, and has the version of its format: docs/importing.md.
	runMagic = "flagstone sorted run 1\n"
	// maxRecord bounds a record of a run, against a damaged length.
	maxRecord = 1 << 30
)

// Sorter sorts records. One goroutine uses it.
type Sorter struct {
	dir    string
	memory int
	arena  []byte
	index  []entry
	runs   []*run // the oldest first
}

// entry is a record in the arena. Its key is followed by its value.
type entry struct {
	prefix        uint64 // the first bytes of the key
	at, key, size int
}

// entryBytes is what an entry takes.
const entryBytes = 32

// run is a file of sorted records.
type run struct {
	file  *os.File
	level int
}

// New makes a sorter that gathers about so many bytes in memory, and has its files in dir; "" is where temporary
// files are.
func New(dir string, memory int) *Sorter { return &Sorter{dir: dir, memory: memory} }

// Add adds a record. The key is not empty. Add copies both.
func (s *Sorter) Add(ctx context.Context, key, value []byte) error {
	if s.arena == nil {
		s.arena = make([]byte, 0, s.memory) // growing would copy it, and take twice as much
	}
	if len(s.index) > 0 && len(s.arena)+len(key)+len(value)+entryBytes*(len(s.index)+1) > s.memory {
		if err := s.spill(ctx); err != nil {
			return err
		}
	}
	s.index = append(s.index, entry{prefixOf(key), len(s.arena), len(key), len(key) + len(value)})
	s.arena = append(append(s.arena, key...), value...)
	return nil
}

func prefixOf(key []byte) uint64 {
	var b [8]byte
	copy(b[:], key)
	return binary.BigEndian.Uint64(b[:])
}

func (s *Sorter) key(e *entry) []byte   { return s.arena[e.at : e.at+e.key] }
func (s *Sorter) value(e *entry) []byte { return s.arena[e.at+e.key : e.at+e.size] }

// sort sorts what is in memory, and keeps the last record of each key.
func (s *Sorter) sort() {
	slices.SortFunc(s.index, func(a, b entry) int {
		if a.prefix != b.prefix {
			return cmp.Compare(a.prefix, b.prefix)
		}
		return cmp.Or(bytes.Compare(s.key(&a), s.key(&b)), cmp.Compare(b.at, a.at))
	})
	s.index = slices.CompactFunc(s.index, func(a, b entry) bool { return a.prefix == b.prefix && bytes.Equal(s.key(&a), s.key(&b)) })
}

// spill writes what is in memory as a run.
func (s *Sorter) spill(ctx context.Context) error {
	s.sort()
	err := s.write(0, func(w *runWriter) error {
		for i := range s.index {
			if err := w.add(s.key(&s.index[i]), s.value(&s.index[i])); err != nil {
				return err
			}
		}
		return nil
	})
	s.arena, s.index = s.arena[:0], s.index[:0]
	if err != nil {
		return err
	}
	return s.mergeFull(ctx)
}

// mergeFull merges the newest runs while maxRuns of them have one level.
func (s *Sorter) mergeFull(ctx context.Context) error {
	for {
		n := len(s.runs) - maxRuns
		if n < 0 || s.runs[n].level != s.runs[len(s.runs)-1].level {
			return nil
		}
		full := s.runs[n:]
		s.runs = s.runs[:n:n]
		err := s.write(full[0].level+1, func(w *runWriter) error { return merge(ctx, full, w.add) })
		for _, r := range full {
			err = cmp.Or(err, r.close())
		}
		if err != nil {
			return err
		}
	}
}

// write makes a run of the records that fill adds.
func (s *Sorter) write(level int, fill func(w *runWriter) error) error {
	file, err := os.CreateTemp(s.dir, "flagstone-sort-*")
	if err != nil {
		return err
	}
	_ = os.Remove(file.Name()) // it stays open; a system that refuses removes it in close
	r := &run{file, level}
	s.runs = append(s.runs, r)
	w := newRunWriter(file)
	if err := cmp.Or(fill(w), w.close()); err != nil {
		return fmt.Errorf("sort in %s: %w", file.Name(), err)
	}
	return nil
}

// Each calls do with the records in ascending order of keys. It ends the sorter.
func (s *Sorter) Each(ctx context.Context, do func(key, value []byte) error) error {
	if len(s.runs) == 0 { // all is in memory
		s.sort()
		for i := range s.index {
			if err := cmp.Or(ctx.Err(), do(s.key(&s.index[i]), s.value(&s.index[i]))); err != nil {
				return err
			}
		}
		return nil
	}
	if err := s.spill(ctx); err != nil {
		return err
	}
	s.arena, s.index = nil, nil
	return merge(ctx, s.runs, do)
}

// Close removes the files.
func (s *Sorter) Close() (err error) {
	for _, r := range s.runs {
		err = cmp.Or(err, r.close())
	}
	s.runs = nil
	return err
}

func (r *run) close() error {
	err := r.file.Close()
	if gone := os.Remove(r.file.Name()); !errors.Is(gone, os.ErrNotExist) {
		err = cmp.Or(err, gone)
	}
	return err
}

// runWriter writes a run: records, then an empty key and the number of records. The stream of s2 has a checksum
// for each of its blocks.
type runWriter struct {
	out   *s2.Writer
	head  []byte
	count uint64
	err   error
}

func newRunWriter(file io.Writer) *runWriter {
	w := &runWriter{out: s2.NewWriter(file, s2.WriterBlockSize(128<<10), s2.WriterConcurrency(1))}
	_, w.err = io.WriteString(w.out, runMagic)
	return w
}

func (w *runWriter) add(key, value []byte) error {
	w.head = binary.AppendUvarint(binary.AppendUvarint(w.head[:0], uint64(len(key))), uint64(len(value)))
	w.count++
	for _, b := range [][]byte{w.head, key, value} {
		if w.err == nil {
			_, w.err = w.out.Write(b)
		}
	}
	return w.err
}

func (w *runWriter) close() error {
	if w.err == nil {
		_, w.err = w.out.Write(binary.AppendUvarint([]byte{0}, w.count))
	}
	return cmp.Or(w.err, w.out.Close())
}

// runReader reads a run.
type runReader struct {
	name       string
	in         *bufio.Reader
	age        int // the place of the run; of two with one key the newer one wins
	key, value []byte
	count      uint64
}

// errRun says that a run is not what was written.
var errRun = errors.New("a sorted run is damaged")

func newRunReader(r *run, age int) (*runReader, error) {
	if _, err := r.file.Seek(0, io.SeekStart); err != nil {
		return nil, err
	}
	in := &runReader{name: r.file.Name(), age: age, in: bufio.NewReader(s2.NewReader(r.file, s2.ReaderMaxBlockSize(128<<10)))}
	magic := make([]byte, len(runMagic))
	if _, err := io.ReadFull(in.in, magic); err != nil || string(magic) != runMagic {
		return nil, fmt.Errorf("%s: %w: its beginning: %v", in.name, errRun, err)
	}
	return in, nil
}

// next reads a record; false at the end.
func (r *runReader) next() (bool, error) {
	key, err := binary.ReadUvarint(r.in)
	if err != nil {
		return false, r.damaged(err)
	}
	size, err := binary.ReadUvarint(r.in)
	if err != nil {
		return false, r.damaged(err)
	}
	if key == 0 {
		if size != r.count {
			return false, r.damaged(fmt.Errorf("it should have %d records", size))
		}
		return false, nil
	}
	if key > maxRecord || size > maxRecord {
		return false, r.damaged(fmt.Errorf("a record of %d and %d bytes", key, size))
	}
	r.key = slices.Grow(r.key[:0], int(key))[:key]
	r.value = slices.Grow(r.value[:0], int(size))[:size]
	if _, err := io.ReadFull(r.in, r.key); err != nil {
		return false, r.damaged(err)
	}
	if _, err := io.ReadFull(r.in, r.value); err != nil {
		return false, r.damaged(err)
	}
	r.count++
	return true, nil
}

func (r *runReader) damaged(err error) error {
	return fmt.Errorf("%s: %w after record %d: %v", r.name, errRun, r.count, err)
}

// heads are readers with their next records, the smallest key first and of equal ones the newest.
type heads []*runReader

func (h heads) Len() int { return len(h) }
func (h heads) Less(i, j int) bool {
	c := bytes.Compare(h[i].key, h[j].key)
	return c < 0 || c == 0 && h[i].age > h[j].age
}
func (h heads) Swap(i, j int) { h[i], h[j] = h[j], h[i] }
func (h *heads) Push(x any)   { *h = append(*h, x.(*runReader)) }
func (h *heads) Pop() any {
	last := (*h)[len(*h)-1]
	*h = (*h)[:len(*h)-1]
	return last
}

// merge calls do with the records of runs, the oldest of which is the first.
func merge(ctx context.Context, runs []*run, do func(key, value []byte) error) error {
	var h heads
	for age, r := range runs {
		in, err := newRunReader(r, age)
		if err != nil {
			return err
		}
		more, err := in.next()
		if err != nil {
			return err
		}
		if more {
			h = append(h, in)
		}
	}
	heap.Init(&h)
	var last []byte
	for len(h) > 0 {
		in := h[0]
		if last == nil || !bytes.Equal(in.key, last) {
			if err := cmp.Or(ctx.Err(), do(in.key, in.value)); err != nil {
				return err
			}
			last = append(last[:0], in.key...)
		}
		more, err := in.next()
		switch {
		case err != nil:
			return err
		case more:
			heap.Fix(&h, 0)
		default:
			heap.Pop(&h)
		}
	}
	return nil
}
