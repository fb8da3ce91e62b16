package partition

import (
	"bytes"
	"sort"

	"github.com/flagstone-db/flagstone/internal/tablefiles"
	"github.com/flagstone-db/flagstone/row"
	"github.com/flagstone-db/flagstone/sstable"
)

// levelIterator walks the files of one level, which do not overlap and are in key order, as one
// run. It opens a file only when it gets there, so a seek into a level of a thousand files opens
// one. It has the shape of mvcc.Iterator.
type levelIterator struct {
	files []*tablefiles.File
	opts  sstable.IterOptions
	at    int               // index of the current file; len(files) or -1 when exhausted
	it    *sstable.Iterator // over the current file; nil if there is none
	last  *tablefiles.File  // that was current; nil: none was
	err   error
	table sstable.Iterator // what it points to
}

func newLevelIterator(files []*tablefiles.File, opts sstable.IterOptions) *levelIterator {
	l := new(levelIterator)
	l.init(files, opts)
	return l
}

// init makes a closed or zero iterator ready, keeping its memory.
func (l *levelIterator) init(files []*tablefiles.File, opts sstable.IterOptions) {
	l.files, l.opts, l.at, l.it, l.last, l.err = files, opts, -1, nil, nil, nil
}

// fileOf returns the index of the first file of a run that ends at or above a key.
func fileOf(files []*tablefiles.File, key []byte) int {
	return sort.Search(len(files), func(i int) bool { return bytes.Compare(files[i].Meta.Largest, key) >= 0 })
}

// use makes file i current. It returns false if there is no such file or opening fails.
func (l *levelIterator) use(i int) bool {
	if l.it != nil && l.at == i {
		return true
	}
	l.drop()
	l.at = i
	if i < 0 || i >= len(l.files) {
		return false
	}
	r, err := l.files[i].Reader()
	if err != nil {
		l.err = err
		return false
	}
	l.it, l.last = &l.table, l.files[i]
	l.it.Init(r, l.opts)
	return true
}

// drop closes the current file's iterator.
func (l *levelIterator) drop() {
	if l.it != nil {
		l.it.Close() // always nil: movements report the errors
		l.it = nil
	}
}

// settle returns ok. If that is false, it keeps the current file's error.
func (l *levelIterator) settle(ok bool) bool {
	if !ok {
		l.err = l.it.Error()
	}
	return ok
}

// nextFile goes on to the next file, unless the current one ended with an error.
func (l *levelIterator) nextFile() bool {
	l.err = l.it.Error()
	return l.err == nil && l.use(l.at+1) && l.settle(l.it.First())
}

// previousFile goes back to the file before, unless the current one ended with an error.
func (l *levelIterator) previousFile() bool {
	l.err = l.it.Error()
	return l.err == nil && l.use(l.at-1) && l.settle(l.it.Last())
}

func (l *levelIterator) First() bool {
	l.err = nil
	return l.use(0) && l.settle(l.it.First())
}

func (l *levelIterator) Last() bool {
	l.err = nil
	return l.use(len(l.files)-1) && l.settle(l.it.Last())
}

func (l *levelIterator) SeekRow(key []byte) bool {
	l.err = nil
	return l.use(fileOf(l.files, key)) && (l.it.SeekRow(key) || l.nextFile())
}

func (l *levelIterator) SeekRowBefore(key []byte) bool {
	l.err = nil
	i := sort.Search(len(l.files), func(i int) bool {
		return bytes.Compare(l.files[i].Meta.Smallest, key) >= 0
	}) - 1
	return l.use(i) && (l.it.SeekRowBefore(key) || l.previousFile())
}

func (l *levelIterator) NextRow() bool   { return l.it.NextRow() || l.nextFile() }
func (l *levelIterator) PrevRow() bool   { return l.it.PrevRow() || l.previousFile() }
func (l *levelIterator) RowKey() []byte  { return l.it.RowKey() }
func (l *levelIterator) FirstCell() bool { return l.settle(l.it.FirstCell()) }
func (l *levelIterator) NextCell() bool  { return l.settle(l.it.NextCell()) }
func (l *levelIterator) Cell() *row.Cell { return l.it.Cell() }
func (l *levelIterator) Error() error    { return l.err }

func (l *levelIterator) Extent(ask row.Ask, e *row.Extent) (row.Cursor, bool) {
	return l.it.Extent(ask, e)
}
func (l *levelIterator) Collect(dst *row.Collector, p *row.Projection) { l.it.Collect(dst, p) }
func (l *levelIterator) CollectRows(dst *row.Chunk, rows int, p *row.Projection) int {
	return l.it.CollectRows(dst, rows, p)
}

func (l *levelIterator) SeekCell(column []byte, version int64) bool {
	return l.settle(l.it.SeekCell(column, version))
}

// Stored says how the values of the row that Extent described last are stored.
func (l *levelIterator) Stored() row.Stored { return l.it.Stored() }

func (l *levelIterator) Close() error {
	l.drop()
	l.files, l.last = nil, nil
	return l.err
}
