package salvage

import (
	"bytes"
	"crypto/rand"
	"errors"
	"path/filepath"

	"github.com/flagstone-db/flagstone/internal/tablefiles"
	"github.com/flagstone-db/flagstone/internal/vfs"
	"github.com/flagstone-db/flagstone/manifest"
	"github.com/flagstone-db/flagstone/row"
	"github.com/flagstone-db/flagstone/sstable"
)

// rewriter writes what can be read of a table file to a new one.
type rewriter struct {
	*salvager
	source  *source
	out     *sstable.Writer
	key     []byte // of the newest row
	started bool   // out has the row
	rows    bool   // out has some row
	value   []byte // of the newest cell that was made plain

	// record is a row of a change log: all its cells, or none if some are lost. The broken ones have keys
	// from broken.From to broken.To.
	record []row.Cell
	broken sstable.Loss

	// gone are the cells whose values are lost, by value file.
	gone map[uint64]*Loss
}

// rewrite writes what can be read of a table file to a new one, whose description it returns; nil if
// nothing can be read. Values of damaged value files become part of the table file.
func (v *salvager) rewrite(s *source) (*manifest.FileMeta, error) {
	r, err := v.openDamaged(s)
	if err != nil {
		v.lost(s, Loss{From: s.Meta.Smallest, To: s.Meta.Largest, Cells: s.Meta.Cells, Err: err})
		return nil, nil
	}
	defer r.Close()
	number := v.next
	to, err := v.prepare(manifest.TableName(number))
	if err != nil {
		return nil, err
	}
	file, err := v.FS.Create(to, vfs.OpenOptions{})
	if err != nil {
		return nil, err
	}
	opts := v.Table
	rand.Read(opts.UniqueID[:])
	w := rewriter{salvager: v, source: s, out: sstable.NewWriter(file, opts), gone: map[uint64]*Loss{}}
	if err = r.Salvage(w.cell, w.block); err == nil {
		err = w.flush()
	}
	for _, u := range s.Meta.Values {
		if l := w.gone[u.File]; l != nil {
			v.lost(s, *l)
		}
	}
	if err == nil && !w.rows {
		return nil, errors.Join(file.Close(), v.FS.Remove(to))
	}
	var props sstable.Properties
	if err == nil {
		props, err = w.out.Finish()
	}
	if err = errors.Join(err, file.Sync(), file.Close()); err != nil {
		return nil, err
	}
	meant := w.out.Meant()
	if err := meant.ReadBack(v.FS, to); err != nil {
		return nil, err
	}
	v.next++
	meta := tablefiles.Describe(number, &props)
	meta.CreatedMillis = s.Meta.CreatedMillis
	return meta, nil
}

// openDamaged opens a table file without filter or properties, if they are damaged.
func (v *salvager) openDamaged(s *source) (*sstable.Reader, error) {
	name := filepath.Join(v.Dir, manifest.TableName(s.Meta.Number))
	file, err := v.FS.Open(name, vfs.OpenOptions{Sequential: true})
	if err != nil {
		return nil, err
	}
	r, err := sstable.OpenDamaged(file, sstable.ReaderOptions{FileName: name, UniqueID: s.Meta.UniqueID, SeqOffset: s.Meta.SeqOffset})
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return r, nil
}

// block lists a block that cannot be read.
func (w *rewriter) block(l sstable.Loss) {
	if l.To == nil {
		l.To = w.source.Meta.Largest
	}
	if l.Partial {
		w.broken = l
	}
	w.lost(w.source, Loss{Offset: l.Offset, From: l.From, To: l.To, Err: l.Err})
}

// cell writes a cell, unless its value is lost.
func (w *rewriter) cell(key []byte, c *row.Cell) error {
	if err := w.ctx.Err(); err != nil {
		return err
	}
	if !bytes.Equal(w.key, key) {
		if err := w.flush(); err != nil {
			return err
		}
		w.key, w.started = append(w.key[:0], key...), false
	}
	if c.Separate {
		ref, err := row.ParseReference(c.Value)
		if err == nil && w.damaged[ref.File] {
			c.Value, err = w.files.Value(&w.value, c.Value)
			c.Separate = false
		}
		if err != nil {
			w.valueLost(key, ref.File, err)
			return nil
		}
	}
	if w.source.table.Log != nil {
		kept := *c
		kept.Column, kept.Value = bytes.Clone(c.Column), bytes.Clone(c.Value)
		w.record = append(w.record, kept)
		return nil
	}
	return w.add(c)
}

// add adds a cell to the new file.
func (w *rewriter) add(c *row.Cell) error {
	if !w.started {
		w.started, w.rows = true, true
		if err := w.out.StartRow(w.key); err != nil {
			return err
		}
	}
	return w.out.AddCell(c)
}

// flush writes the record of a change log, which cannot be read without one of its cells.
func (w *rewriter) flush() error {
	record := w.record
	w.record = w.record[:0]
	if w.broken.Partial && bytes.Compare(w.broken.From, w.key) <= 0 && bytes.Compare(w.key, w.broken.To) <= 0 {
		return nil
	}
	for i := range record {
		if err := w.add(&record[i]); err != nil {
			return err
		}
	}
	return nil
}

// valueLost counts a cell whose value is lost. One loss tells of all cells of a table file and a value
// file.
func (w *rewriter) valueLost(key []byte, file uint64, err error) {
	l := w.gone[file]
	if l == nil {
		l = &Loss{File: filepath.Join(w.Dir, manifest.ValueName(file)), From: bytes.Clone(key), Err: err}
		w.gone[file] = l
	}
	l.To = append(l.To[:0], key...)
	l.Cells++
	w.broken = sstable.Loss{From: l.To, To: l.To, Partial: true}
}
