package main

// This file imports into a store's folder that no other process has open: by writes like those of a program, or past
// the log as table files.

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/flagstone-db/flagstone"
	"github.com/flagstone-db/flagstone/cmd/flagstone/bulkio"
	"github.com/flagstone-db/flagstone/cmd/flagstone/rowfile"
	"github.com/flagstone-db/flagstone/cmd/flagstone/rowsort"
	"github.com/flagstone-db/flagstone/instances"
	"github.com/flagstone-db/flagstone/instances/admin"
	"github.com/flagstone-db/flagstone/ots"
	"github.com/flagstone-db/flagstone/row"
)

// openFolder opens the home of a folder for this process alone.
func (a *at) openFolder(ctx context.Context, readOnly bool) (*instances.Home, error) {
	const advice = "a server has %s open; name its address by --endpoint, such as --endpoint http://127.0.0.1:8087 (the access key is found in the folder), or stop it"
	switch client, err := admin.Connect(ctx, a.Dir); {
	case err == nil:
		return nil, errors.Join(fmt.Errorf(advice, a.Dir), client.Close())
	case !errors.Is(err, admin.ErrNoServer):
		return nil, err
	case !exists(filepath.Join(a.Dir, "CURRENT")):
		return nil, fmt.Errorf("no store in %s; name it with --dir, or make one with 'flagstone serve' or 'flagstone instance create'", a.Dir)
	}
	// An import syncs the log when it remembers how far it is, and at the end.
	options := flagstone.Options{CacheSize: 16 << 20, ReadOnly: readOnly, Sync: flagstone.SyncNone}
	home, err := instances.OpenContext(ctx, a.Dir, instances.Options{Store: options})
	if errors.Is(err, flagstone.ErrLocked) {
		return nil, fmt.Errorf("%w; if that is a server, name its address by --endpoint, or stop it", err)
	}
	if err != nil {
		return nil, explain(err, a.Dir)
	}
	return home, nil
}

// folderTable is a table of a folder.
type folderTable struct {
	table   *flagstone.Table
	columns []rowfile.Column
	named   string
	workers int  // 0: as many as the store chooses
	merge   bool // a row keeps what the file does not have
	rejects *bulkio.Rejects
	limits  ots.Limits
	checked ots.Row // of the row that is being checked
	taken   int64   // a version that the table takes
	encoded []byte  // key of the newest row
}

func (t *folderTable) key() []rowfile.Column { return t.columns }
func (t *folderTable) name() string          { return t.named }

// folderTarget makes the target of an import.
func (m *importCommand) folderTarget(ctx context.Context, c *output, home *instances.Home) (importTarget, error) {
	described, err := home.Table(ctx, m.Instance, m.Table)
	if err != nil {
		return nil, err
	}
	engine, instance, _ := home.Service(m.Instance)
	table, err := engine.Table(instance, m.Table)
	if err != nil {
		return nil, err
	}
	t := folderTable{table: table, workers: m.workers(0), merge: m.Merge, limits: folderLimits(), named: m.named(described.CreatedMillis)}
	if t.columns, err = keyOf(described); err != nil {
		return nil, err
	}
	for _, k := range t.columns {
		t.checked.Key = append(t.checked.Key, ots.KeyValue{Name: k.Name})
	}
	if m.Bulk {
		const memory = 256 << 20
		return &bulkTarget{folderTable: t, sorter: rowsort.New(m.Temp, memory), progress: m.progress(c, "loaded")}, nil
	}
	return &folderTarget{folderTable: t}, nil
}

// folderLimits are those of the service's documentation, as for the other commands on a folder, and the size of a
// row that PutRow takes: larger ones could not be read whole.
func folderLimits() ots.Limits {
	l := ots.Documented()
	l.WriteRowBytes = ots.Current().WriteRowBytes
	return l
}

// check says why a request of the service could not put a row, or why the table takes none of its versions, and encodes
// its key.
func (t *folderTable) check(r *rowfile.Row) (err error) {
	if t.merge && len(r.Cells) == 0 {
		return errNothingToMerge
	}
	for i, v := range r.Key {
		t.checked.Key[i].Value = v
	}
	t.checked.Cells = t.checked.Cells[:0]
	for i := range r.Cells {
		c := &r.Cells[i]
		t.checked.Cells = append(t.checked.Cells, ots.Cell{Name: c.Name, Value: c.Value, Version: c.Version, HasVersion: true})
	}
	if err := t.limits.CheckPut(&t.checked); err != nil {
		return err
	}
	for i := range r.Cells {
		c := &r.Cells[i]
		if c.Version == t.taken {
			continue
		}
		if err := t.table.CheckVersion(c.Name, c.Version); err != nil {
			return err
		}
		t.taken = c.Version
	}
	t.encoded, err = row.AppendKey(t.encoded[:0], len(r.Key), r.Key...)
	return err
}

// folderTarget puts rows by a flagstone.ParallelWriter.
type folderTarget struct {
	folderTable
	writer *flagstone.ParallelWriter
}

// begin begins to write. What the table refuses of a row that check has passed ends the import.
func (t *folderTarget) begin(ctx context.Context, rejects *bulkio.Rejects) (err error) {
	t.rejects = rejects
	t.writer, err = t.table.WriteParallel(ctx, flagstone.ParallelWrite{Workers: t.workers})
	return err
}

// Put gives a row to the writer.
func (t *folderTarget) Put(r *rowfile.Row, at bulkio.Place) error {
	if err := t.check(r); err != nil {
		return t.rejects.RefuseRow(at, err)
	}
	return t.writer.Write(r.Key, func(c *flagstone.RowChange) {
		if !t.merge {
			c.PutRow()
		}
		for i := range r.Cells {
			c.Put(r.Cells[i].Name, r.Cells[i].Version, r.Cells[i].Value)
		}
	})
}

// Flush waits for the writer.
func (t *folderTarget) Flush() error { return t.writer.Flush() }

// Finish ends the writer.
func (t *folderTarget) Finish(context.Context, error) error { return t.writer.Close() }

// bulkTarget sorts rows, and then makes table files of them.
type bulkTarget struct {
	folderTable
	ctx      context.Context
	sorter   *rowsort.Sorter
	added    int64
	progress *bulkio.Progress // of the load, after the rows are sorted
	encoder  []byte
}

func (t *bulkTarget) begin(ctx context.Context, rejects *bulkio.Rejects) error {
	t.ctx, t.rejects = ctx, rejects
	w, err := t.table.BulkLoad(ctx, flagstone.BulkOptions{Workers: t.workers}) // whether the table takes one at all
	if err != nil {
		return bulkRefusal(err)
	}
	return w.Abort()
}

// bulkRefusal says what to do when a bulk load cannot be.
func bulkRefusal(err error) error {
	switch {
	case errors.Is(err, flagstone.ErrStreamExists):
		return fmt.Errorf("%w; import without --bulk, or take the stream away by 'flagstone table alter --stream 0 --yes'", err)
	case errors.Is(err, flagstone.ErrConflict):
		return fmt.Errorf("%w; --bulk needs a range of keys without rows, and nothing was written: import without --bulk", err)
	}
	return err
}

// Put sorts a row in.
func (t *bulkTarget) Put(r *rowfile.Row, at bulkio.Place) error {
	if err := t.check(r); err != nil {
		return t.rejects.RefuseRow(at, err)
	}
	t.encoder = appendRow(t.encoder[:0], r, at)
	t.added++
	return t.sorter.Add(t.ctx, t.encoded, t.encoder)
}

// Flush does nothing: there is nothing before the end.
func (t *bulkTarget) Flush() error { return nil }

// Finish makes the rows part of the table, unless the import has failed.
func (t *bulkTarget) Finish(ctx context.Context, failed error) (err error) {
	defer func() { err = errors.Join(err, t.sorter.Close()) }()
	if failed != nil {
		return nil
	}
	w, err := t.table.BulkLoad(ctx, flagstone.BulkOptions{Workers: t.workers})
	if err != nil {
		return bulkRefusal(err)
	}
	defer func() { err = errors.Join(err, w.Abort()) }()
	var cells []flagstone.BulkCell
	loaded := int64(0)
	t.progress.Begin(0, 0)
	defer t.progress.Clear()
	err = t.sorter.Each(ctx, func(key, value []byte) error {
		values, err := row.DecodeKey(key, len(t.columns))
		if err != nil {
			return err
		}
		var at bulkio.Place
		if cells, at, err = parseRow(cells[:0], value); err != nil {
			return err
		}
		loaded++
		t.progress.Show(loaded, float64(loaded)/float64(t.added))
		err = w.Put(values, cells...)
		if errors.Is(err, flagstone.ErrInvalid) || errors.Is(err, flagstone.ErrVersionOutOfRange) {
			return t.rejects.RefuseRow(at, err)
		}
		return err
	})
	if err != nil {
		return err
	}
	return bulkRefusal(w.Commit(ctx))
}

// appendRow encodes a row's place and its cells for the sorter.
func appendRow(b []byte, r *rowfile.Row, at bulkio.Place) []byte {
	b = binary.AppendUvarint(b, uint64(at.File))
	b = binary.AppendVarint(b, at.Line)
	for i := range r.Cells {
		c := &r.Cells[i]
		b = binary.AppendUvarint(b, uint64(len(c.Name)))
		b = append(b, c.Name...)
		b = binary.AppendVarint(b, c.Version)
		b = append(b, byte(c.Value.Type()))
		size := c.Value.Size()
		b = binary.AppendUvarint(b, uint64(size))
		b = c.Value.AppendPayload(b)
	}
	return b
}

var errSorted = errors.New("a sorted row is damaged")

// parseRow decodes what appendRow encodes. Values lie in b.
func parseRow(cells []flagstone.BulkCell, b []byte) (_ []flagstone.BulkCell, at bulkio.Place, err error) {
	in := bytes.NewReader(b)
	file, err := binary.ReadUvarint(in)
	if err == nil {
		at.File = int(file)
		at.Line, err = binary.ReadVarint(in)
	}
	for err == nil && in.Len() > 0 {
		var c flagstone.BulkCell
		c, err = parseSortedCell(b, in)
		cells = append(cells, c)
	}
	return cells, at, err
}

// parseSortedCell decodes a cell. in reads b.
func parseSortedCell(b []byte, in *bytes.Reader) (c flagstone.BulkCell, err error) {
	sized := func() ([]byte, error) {
		n, err := binary.ReadUvarint(in)
		if err != nil || n > uint64(in.Len()) {
			return nil, cmp.Or(err, errSorted)
		}
		begin := len(b) - in.Len()
		_, _ = in.Seek(int64(n), 1)
		return b[begin : begin+int(n)], nil
	}
	name, err := sized()
	if err != nil {
		return c, err
	}
	c.Column = string(name)
	if c.Version, err = binary.ReadVarint(in); err != nil {
		return c, err
	}
	of, err := in.ReadByte()
	if err != nil {
		return c, err
	}
	payload, err := sized()
	if err != nil {
		return c, err
	}
	c.Value, err = row.PayloadValue(row.Type(of), payload)
	return c, err
}
