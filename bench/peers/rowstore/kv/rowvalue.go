package kv

// This file is the encoding of a row as one value. A value is a list of cells
// as rows have them (column ascending, version descending):
//
//	uvarint  length of the column's name plus 1; 0: the same column as before
//	name
//	uint64   version, little endian
//	uvarint  length of the value
//	value

import (
	"bytes"
	"encoding/binary"
	"errors"

	"github.com/flagstone-db/flagstone/bench/peers/rowstore"
)

var errValue = errors.New("a stored row does not decode")

// appendCell appends a cell; previous is the column before it, nil if none.
func appendCell(dst []byte, previous []byte, c *rowstore.Cell) []byte {
	if previous != nil && bytes.Equal(previous, c.Column) {
		dst = append(dst, 0)
	} else {
		dst = binary.AppendUvarint(dst, uint64(len(c.Column))+1)
		dst = append(dst, c.Column...)
	}
	dst = binary.LittleEndian.AppendUint64(dst, uint64(c.Version))
	dst = binary.AppendUvarint(dst, uint64(len(c.Value)))
	return append(dst, c.Value...)
}

// cellReader walks the cells of a value, which it points into.
type cellReader struct {
	rest []byte
	cell rowstore.Cell
	err  error
}

// next moves to the next cell; false at the end and when err is set.
func (r *cellReader) next() bool {
	if len(r.rest) == 0 {
		return false
	}
	length, n := binary.Uvarint(r.rest)
	if n <= 0 {
		return r.fail()
	}
	rest := r.rest[n:]
	if length > 0 {
		length--
		if uint64(len(rest)) < length {
			return r.fail()
		}
		r.cell.Column, rest = rest[:length:length], rest[length:]
	}
	if len(rest) < 8 {
		return r.fail()
	}
	r.cell.Version, rest = int64(binary.LittleEndian.Uint64(rest)), rest[8:]
	length, n = binary.Uvarint(rest)
	if n <= 0 || uint64(len(rest)-n) < length {
		return r.fail()
	}
	rest = rest[n:]
	r.cell.Value, r.rest = rest[:length:length], rest[length:]
	return true
}

func (r *cellReader) fail() bool {
	r.rest, r.err = nil, errValue
	return false
}

// pruner appends the visible ones of the cells it is given, in order, to an
// encoded row.
type pruner struct {
	limits
	out      []byte
	previous []byte // column of the cell before, visible or not
	seen     int    // cells of it that were visible
	written  []byte // column of the last cell in out
}

func (p *pruner) add(c *rowstore.Cell) {
	if p.previous == nil || !bytes.Equal(p.previous, c.Column) {
		p.previous, p.seen = c.Column, 0
	}
	if p.seen == p.versions || p.expired(c.Version) {
		return
	}
	p.seen++
	p.out = appendCell(p.out, p.written, c)
	p.written = c.Column
}

// mergeRow appends the row that value becomes by an update.
func mergeRow(dst, value []byte, update []rowstore.Cell, l limits) ([]byte, error) {
	p := pruner{limits: l, out: dst}
	old := cellReader{rest: value}
	more := old.next()
	for i := range update {
		c := &update[i]
		for more {
			order := bytes.Compare(old.cell.Column, c.Column)
			if order > 0 || order == 0 && old.cell.Version < c.Version {
				break
			}
			if order < 0 || old.cell.Version > c.Version { // else c replaces it
				p.add(&old.cell)
			}
			more = old.next()
		}
		p.add(c)
	}
	for ; more; more = old.next() {
		p.add(&old.cell)
	}
	return p.out, old.err
}

// selectCells adds the visible, wanted cells of value to a row. Without a choice
// of columns the value is copied as a whole, which is faster than cell by cell.
func selectCells(value []byte, q *rowstore.Query, l limits, into *rowstore.Row) error {
	if q.Columns == nil {
		value = into.Copy(value)
	}
	r := cellReader{rest: value}
	var previous []byte
	seen, from := 0, 0
	for r.next() {
		c := &r.cell
		if previous == nil || !bytes.Equal(previous, c.Column) {
			previous, seen = c.Column, 0
		}
		if seen == l.versions || l.expired(c.Version) {
			continue
		}
		if q.Columns == nil {
			into.Cells = append(into.Cells, *c)
		} else if wants(q, c.Column, &from) {
			into.Add(c.Column, c.Version, c.Value)
		} else if from == len(q.Columns) {
			return nil
		}
		seen++
	}
	return r.err
}

// rowSession is a session with rows as values.
type rowSession struct{ session }

func (s *rowSession) encode(cells []rowstore.Cell) []byte {
	p := pruner{limits: s.store.limits(0), out: s.buf[:0]}
	for i := range cells {
		p.add(&cells[i])
	}
	s.buf = p.out
	return s.buf
}

func (s *rowSession) Put(key []byte, cells []rowstore.Cell) error {
	value := s.encode(cells)
	defer s.store.lock(key).Unlock()
	return s.write(key, value)
}

// write sets a row, or deletes it if nothing of it is visible.
func (s *rowSession) write(key, value []byte) error {
	if len(value) == 0 {
		s.kv.BatchDelete(key)
		return s.kv.Commit()
	}
	return s.kv.Set(key, value)
}

func (s *rowSession) Update(key []byte, cells []rowstore.Cell) error {
	defer s.store.lock(key).Unlock()
	old, found, err := s.kv.Get(key)
	if err == nil {
		if !found {
			old = nil
		}
		s.buf, err = mergeRow(s.buf[:0], old, cells, s.store.limits(0))
	}
	s.kv.Done()
	if err != nil {
		return err
	}
	return s.write(key, s.buf)
}

func (s *rowSession) PutBatch(rows []rowstore.Row) error {
	s.lockAll(rows)
	defer s.unlockAll()
	for i := range rows {
		if value := s.encode(rows[i].Cells); len(value) > 0 {
			s.kv.BatchSet(rows[i].Key, value)
		} else {
			s.kv.BatchDelete(rows[i].Key)
		}
	}
	return s.kv.Commit()
}

func (s *rowSession) Delete(key []byte) error {
	defer s.store.lock(key).Unlock()
	s.kv.BatchDelete(key)
	return s.kv.Commit()
}

func (s *rowSession) Get(key []byte, q rowstore.Query, into *rowstore.Row) (bool, error) {
	into.Reset(key)
	value, found, err := s.kv.Get(key)
	if err == nil && found {
		err = selectCells(value, &q, s.store.limits(q.MaxVersions), into)
	}
	s.kv.Done()
	return len(into.Cells) > 0, err
}

func (s *rowSession) GetPage(key, fromColumn []byte, limit int, into *rowstore.Row) error {
	into.Reset(key)
	value, found, err := s.kv.Get(key)
	defer s.kv.Done()
	if err != nil || !found {
		return err
	}
	l := s.store.limits(1)
	r := cellReader{rest: value}
	for len(into.Cells) < limit && r.next() {
		if bytes.Compare(r.cell.Column, fromColumn) < 0 || l.expired(r.cell.Version) {
			continue
		}
		if n := len(into.Cells); n == 0 || !bytes.Equal(into.Cells[n-1].Column, r.cell.Column) {
			into.Add(r.cell.Column, r.cell.Version, r.cell.Value)
		}
	}
	return r.err
}

func (s *rowSession) Scan(start, end []byte, q rowstore.Query, limit int, visit func(*rowstore.Row) bool) error {
	it, err := s.kv.Iter(start, end, 0)
	if err != nil {
		return err
	}
	l := s.store.limits(q.MaxVersions)
	for n := 0; it.Valid(); it.Next() {
		value, err := it.Value()
		if err == nil {
			s.row.Reset(it.Key())
			err = selectCells(value, &q, l, &s.row)
		}
		if err != nil {
			return errors.Join(err, it.Close())
		}
		if len(s.row.Cells) == 0 {
			continue
		}
		if n++; !visit(&s.row) || n == limit {
			break
		}
	}
	return it.Close()
}

// reclaim writes the rows of which something is not visible any more anew.
func (s *rowSession) reclaim(b *reclaimBatch) error {
	it, err := b.reader.Iter(nil, nil, 0)
	if err != nil {
		return err
	}
	l := s.store.limits(0)
	for ; it.Valid() && err == nil; it.Next() {
		var value []byte
		if value, err = it.Value(); err != nil {
			break
		}
		if s.buf, err = mergeRow(s.buf[:0], value, nil, l); err != nil {
			break
		}
		switch {
		case len(s.buf) == 0:
			err = b.delete(it.Key())
		case len(s.buf) < len(value):
			err = b.set(it.Key(), s.buf)
		}
	}
	return errors.Join(err, it.Close())
}
