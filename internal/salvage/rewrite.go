package salvage

import (
	"bytes"
	"cmp"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"

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
	spoiled bool   // a part of the row is lost
	rows    bool   // out has some row
	value   []byte // of the newest cell that was made plain
	failed  error  // of a read, if it is no damage

	// record is a row of a change log: all its cells, or none if some are lost. broken is the newest lost
	// part of a long row, which may have parts before and behind it.
	record []row.Cell
	broken sstable.Loss

	following bool // the last loss was of a block, and no cell was read since

	// gone are the cells that are lost by themselves, by value file; 0 for those that the table file has
	// no legal value or place for.
	gone map[uint64]*Loss
}

// rewrite writes what can be read of a table file to a new one, whose description it returns; nil if
// nothing can be read. Values of damaged value files become part of the table file.
func (v *salvager) rewrite(s *source) (*manifest.FileMeta, error) {
	r, err := v.openDamaged(s)
	if err != nil {
		if !isDamage(err) {
			return nil, err
		}
		v.lost(s, Loss{Offset: -1, From: s.Meta.Smallest, To: s.Meta.Largest, Cells: s.Meta.Cells, Err: err})
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
	if err = cmp.Or(r.Salvage(w.cell, w.block), w.failed); err == nil {
		err = w.flush()
	}
	for _, number := range slices.Sorted(maps.Keys(w.gone)) {
		v.lost(s, *w.gone[number])
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

// openDamaged opens a table file without those parts that are damaged.
func (v *salvager) openDamaged(s *source) (*sstable.Reader, error) {
	name := filepath.Join(v.Dir, manifest.TableName(s.Meta.Number))
	file, err := v.FS.Open(name, vfs.OpenOptions{Sequential: true})
	if err != nil {
		return nil, err
	}
	r, err := sstable.OpenDamaged(file, sstable.ReaderOptions{FileName: name, UniqueID: s.Meta.UniqueID, SeqOffset: s.Meta.SeqOffset}, s.Meta.Largest, v.ctx.Err)
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return r, nil
}

// block lists a block that cannot be read.
func (w *rewriter) block(l sstable.Loss) {
	if !isDamage(l.Err) {
		w.failed = cmp.Or(w.failed, l.Err)
		return
	}
	if l.Partial {
		w.broken = l
		w.spoiled = w.spoiled || w.inBroken()
	}
	if l.From == nil {
		l.From = w.source.Meta.Smallest
	}
	if l.To == nil {
		l.To = w.source.Meta.Largest
	}
	loss := Loss{Offset: l.Offset, From: l.From, To: l.To, Err: l.Err}
	if bytes.Equal(l.From, l.To) {
		loss.Rows = 1
	}
	if n := len(w.report.Losses); w.following && loss.Rows > 0 {
		if last := &w.report.Losses[n-1]; last.Rows > 0 && last.Offset == loss.Offset && last.Err.Error() == loss.Err.Error() {
			last.Rows++
			last.To = loss.To
			return
		}
	}
	w.following = true
	w.lost(w.source, loss)
}

// inBroken reports whether the newest row is the one that broken was a part of. broken.To may be the key of
// the next row.
func (w *rewriter) inBroken() bool {
	b := &w.broken
	return b.Partial && bytes.Compare(b.From, w.key) <= 0 && (b.To == nil || bytes.Compare(w.key, b.To) < 0 || bytes.Equal(b.From, w.key))
}

// cell writes a cell, unless its value is lost or it is out of place.
func (w *rewriter) cell(key []byte, c *row.Cell) error {
	if err := cmp.Or(w.failed, w.ctx.Err()); err != nil {
		return err
	}
	w.following = false
	if !bytes.Equal(w.key, key) {
		if err := w.flush(); err != nil {
			return err
		}
		w.key = append(w.key[:0], key...)
		w.spoiled = w.inBroken()
	}
	if c.Separate {
		ref, err := row.ParseReference(c.Value)
		if err != nil {
			w.cellLost(0, err)
			return nil
		}
		if d, damaged := w.damaged[ref.File]; damaged {
			if c.Value, err = d.value(&w.value, ref); err != nil {
				w.cellLost(ref.File, err)
				return nil
			}
			c.Separate = false
		}
	}
	newRow, err := w.out.Check(key, c)
	if n := len(w.record); err == nil && n > 0 && row.CompareCells(&w.record[n-1], c) >= 0 {
		err = fmt.Errorf("%w: cells of row key %x are not in order", sstable.ErrCorrupt, key)
	}
	if err != nil {
		w.cellLost(0, err)
		return nil
	}
	if w.source.table.Log == nil {
		return w.add(newRow, c)
	}
	kept := *c
	kept.Column, kept.Value = bytes.Clone(c.Column), bytes.Clone(c.Value)
	w.record = append(w.record, kept)
	return nil
}

// add adds a cell of the newest row to the new file.
func (w *rewriter) add(newRow bool, c *row.Cell) error {
	if newRow {
		w.rows = true
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
	if w.spoiled {
		return nil
	}
	for i := range record {
		if err := w.add(i == 0, &record[i]); err != nil {
			return err
		}
	}
	return nil
}

// cellLost counts a cell of the newest row that is lost. One loss tells of all cells of a table file and
// a value file.
func (w *rewriter) cellLost(file uint64, err error) {
	w.spoiled = true
	if file != 0 && !isDamage(err) {
		w.failed = cmp.Or(w.failed, err)
		return
	}
	l := w.gone[file]
	if l == nil {
		l = &Loss{Offset: -1, From: bytes.Clone(w.key), Err: err}
		if file != 0 {
			l.File = filepath.Join(w.Dir, manifest.ValueName(file))
		}
		w.gone[file] = l
	}
	l.Cells++
	if bytes.Compare(w.key, l.From) < 0 {
		l.From = bytes.Clone(w.key)
	}
	if bytes.Compare(w.key, l.To) > 0 {
		l.To = append(l.To[:0], w.key...)
	}
}
