package ingest

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/flagstone-db/flagstone/compaction"
	"github.com/flagstone-db/flagstone/internal/change"
	"github.com/flagstone-db/flagstone/internal/commit"
	"github.com/flagstone-db/flagstone/internal/table"
	"github.com/flagstone-db/flagstone/manifest"
	"github.com/flagstone-db/flagstone/partition"
	"github.com/flagstone-db/flagstone/row"
)

// Writer makes table files of rows that come in key order, and installs them together. It gathers pieces of rows
// in memory; each becomes a table file, built beside the caller. One goroutine uses it.
type Writer struct {
	in      *Installer
	table   *table.Table
	workers int
	size    int // of a piece, in bytes

	change   change.Change // of the newest row
	last     []byte        // key of the row before
	piece    piece
	end      []byte // of the partition that has the piece
	building []*building
	spare    []piece
	load     partition.Load // the files that are complete
	over     error          // why the writer takes no rows
}

// building is a piece that is becoming a table file.
type building struct {
	rows piece
	load *partition.Load
	wait func() error
}

var (
	errEnded  = fmt.Errorf("%w: the bulk load has ended", commit.ErrInvalid)
	errFailed = errors.New("the bulk load has failed before")
)

// NewWriter begins a load of a table. Files are built by so many workers, of pieces of so many bytes.
func NewWriter(in *Installer, t *table.Table, workers, pieceBytes int) (*Writer, error) {
	w := &Writer{in: in, table: t, workers: workers, size: pieceBytes}
	if t.Log.Load() != nil {
		return nil, fmt.Errorf("%w: table %q", ErrStream, t.Name)
	}
	return w, t.Gone()
}

// Row begins the next row. The caller puts its cells into the change, and then calls Add.
func (w *Writer) Row(key []row.Value) *change.Change {
	w.change.Init(w.table, key)
	return &w.change
}

// Add adds the row that Row began. Errors match commit.ErrInvalid, change.ErrVersionOutOfRange, or end the load.
func (w *Writer) Add() error {
	if w.over != nil {
		return w.over
	}
	prepared, err := w.change.Prepare(w.table.Issued.Millis())
	if err != nil {
		return err
	}
	c := prepared.Change
	if bytes.Compare(c.Key, w.last) <= 0 {
		return fmt.Errorf("%w: a bulk load of table %q has row %v after row %v",
			commit.ErrInvalid, w.table.Name, w.table.DecodeKey(c.Key), w.table.DecodeKey(w.last))
	}
	if len(w.piece) > 0 && (len(w.piece) >= w.size || w.end != nil && bytes.Compare(c.Key, w.end) >= 0) {
		if err := w.build(); err != nil {
			return w.fail(err)
		}
	}
	if len(w.piece) == 0 {
		_, w.end = w.table.Find(c.Key).Bounds()
	}
	w.last = append(w.last[:0], c.Key...)
	w.piece = w.piece.add(c)
	return nil
}

// build lets the piece become a table file.
func (w *Writer) build() error {
	b := &building{rows: w.piece}
	w.piece = nil
	b.wait = w.in.Trees.Executor.Beside(func() error {
		return w.in.Env.Work(func() (err error) {
			if b.load, err = partition.Build(w.in.Trees, b.rows.write); err == nil {
				// The manifest now knows the file's number: after a crash, Open takes the file for an orphan.
				_, err = w.in.Env.Edit(new(manifest.Edit))
			}
			return err
		})
	})
	w.building = append(w.building, b)
	if n := len(w.spare); n > 0 {
		w.piece, w.spare = w.spare[n-1], w.spare[:n-1]
	}
	return w.await(w.workers)
}

// await waits until at most n files are being built.
func (w *Writer) await(n int) (err error) {
	for len(w.building) > n {
		b := w.building[0]
		w.building = w.building[1:]
		err = cmp.Or(err, b.wait()) // the first error is enough
		if b.load != nil {
			w.load.Append(b.load)
		}
		w.spare = append(w.spare, b.rows[:0])
	}
	return err
}

// fail ends the load, and deletes its files.
func (w *Writer) fail(err error) error {
	w.over = fmt.Errorf("%w: %w", errFailed, err)
	_ = w.discard() // what is left goes with the next opening of the store
	return err
}

// discard deletes the files, unless the store was closed: then they may belong to the next one.
func (w *Writer) discard() error {
	w.piece, w.spare = nil, nil
	_ = w.await(0) // what was not built needs no deletion
	return w.in.Env.Work(func() error {
		w.load.Discard(w.in.Trees)
		return nil
	})
}

// Abort ends the load and deletes its files. It does nothing if the load has ended.
func (w *Writer) Abort() error {
	if w.over != nil {
		return nil
	}
	w.over = errEnded
	return w.discard()
}

// Commit ends the load and installs what was written. Errors are those of Installer.Install and of the
// files.
func (w *Writer) Commit(ctx context.Context) error {
	if w.over != nil {
		return w.over
	}
	var err error
	if len(w.piece) > 0 {
		err = w.build()
	}
	if err = cmp.Or(err, w.await(0)); err != nil {
		return w.fail(err)
	}
	w.over = errEnded
	if w.last == nil {
		return nil
	}
	w.piece, w.spare = nil, nil
	return w.in.Install(ctx, w.table, &w.load)
}

// piece is rows in key order, each with the length of its key, the key, the version of its marker, the number of
// cells, their length, and the cells as in row.CellList. It never leaves memory.
type piece []byte

func (p piece) add(c *row.Change) piece {
	marker, exists := c.Marker()
	if !exists {
		marker = row.MaxVersion // a row without columns
	}
	cells := c.Cells()
	p = binary.AppendUvarint(p, uint64(len(c.Key)))
	p = append(p, c.Key...)
	p = binary.AppendVarint(p, marker)
	p = binary.AppendUvarint(p, uint64(cells.Len()))
	p = binary.AppendUvarint(p, uint64(len(cells.Bytes())))
	return append(p, cells.Bytes()...)
}

// write writes the rows to a table file, at sequence number 1.
func (p piece) write(w compaction.TableWriter) error {
	number := func() uint64 {
		v, n := binary.Uvarint(p)
		p = p[n:]
		return v
	}
	take := func(n uint64) (b []byte) {
		b, p = p[:n], p[n:]
		return b
	}
	for len(p) > 0 {
		if err := w.StartRow(take(number())); err != nil {
			return err
		}
		marker, n := binary.Varint(p)
		p = p[n:]
		count := number()
		cells := row.NewCellReader(take(number()))
		if err := w.AddCell(&row.Cell{Kind: row.KindRowMarker, Version: marker, Seq: 1}); err != nil {
			return err
		}
		c := row.Cell{Seq: 1}
		for range count {
			err := cells.Next(&c)
			if err == nil {
				err = w.AddCell(&c)
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}
