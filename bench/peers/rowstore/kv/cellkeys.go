package kv

// This file is the encoding of a row as a key per cell: row key and column name,
// both escaped so that neither is a prefix of another, and the version inverted,
// so that the newest comes first.

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/flagstone-db/flagstone/bench/peers/rowstore"
)

var errCellKey = errors.New("a stored cell key does not decode")

// An escaped string writes a zero byte as 00 FF and ends with 00 01; 00 02 in
// the place of the end lies above everything that begins with the string.
const (
	escape     = 0x00
	escapedNul = 0xFF
	endMark    = 0x01
	afterMark  = 0x02
)

func appendEscaped(dst, b []byte) []byte {
	for {
		i := bytes.IndexByte(b, escape)
		if i < 0 {
			dst = append(dst, b...)
			return append(dst, escape, endMark)
		}
		dst = append(dst, b[:i]...)
		dst = append(dst, escape, escapedNul)
		b = b[i+1:]
	}
}

// EscapedLen is the length of the escaped string that b begins with, its end
// mark included; -1 if there is none. Of a cell key it is the length of the part
// that all cells of the row have in common, which engines make prefix filters
// of.
func EscapedLen(b []byte) int {
	for from := 0; ; {
		i := bytes.IndexByte(b[from:], escape)
		if i < 0 || from+i+1 == len(b) {
			return -1
		}
		switch from += i + 2; b[from-1] {
		case endMark:
			return from
		case escapedNul:
		default:
			return -1
		}
	}
}

// unescape returns the string that was escaped, in scratch if it has to differ.
func unescape(scratch *[]byte, escaped []byte) []byte {
	escaped = escaped[:len(escaped)-2]
	if bytes.IndexByte(escaped, escape) < 0 {
		return escaped
	}
	out := (*scratch)[:0]
	for i := 0; i < len(escaped); i++ {
		out = append(out, escaped[i])
		if escaped[i] == escape {
			i++
		}
	}
	*scratch = out
	return out
}

// cellSession is a session with a key per cell.
type cellSession struct {
	session
	prefix  []byte // escaped key of the row being read
	end     []byte // bound above the row being read
	column  []byte // escaped name of the column being read
	scratch []byte
}

// setPrefix sets s.prefix and s.end for a row. A key that is shorter than the
// prefixes that filters are made of would be looked for in vain.
func (s *cellSession) setPrefix(key []byte) error {
	if len(key) < s.store.cfg.KeyBytes {
		return fmt.Errorf("row key %q is shorter than %d bytes", key, s.store.cfg.KeyBytes)
	}
	s.prefix = appendEscaped(s.prefix[:0], key)
	s.setEnd()
	return nil
}

func (s *cellSession) setEnd() {
	s.end = append(s.end[:0], s.prefix...)
	s.end[len(s.end)-1] = afterMark
}

// cellKey returns the key of a cell of the row with s.prefix, in s.buf.
func (s *cellSession) cellKey(c *rowstore.Cell) []byte {
	s.buf = append(s.buf[:0], s.prefix...)
	s.buf = appendEscaped(s.buf, c.Column)
	s.buf = binary.BigEndian.AppendUint64(s.buf, ^uint64(c.Version))
	return s.buf
}

// columnStart returns the bound below the cells of a column, in s.buf.
func (s *cellSession) columnStart(column []byte) []byte {
	s.buf = appendEscaped(append(s.buf[:0], s.prefix...), column)
	return s.buf
}

// batchDelete adds the deletes of all cells of a row to the batch. it is the
// iterator to look for them with, made if it is nil.
func (s *cellSession) batchDelete(it Iterator, key []byte) (Iterator, error) {
	if err := s.setPrefix(key); err != nil {
		return it, err
	}
	if it == nil {
		var err error
		if it, err = s.kv.Iter(s.prefix, s.end, len(s.prefix)); err != nil {
			return nil, err
		}
	} else {
		it.Restart(s.prefix, s.end, len(s.prefix))
	}
	for ; it.Valid(); it.Next() {
		s.kv.BatchDelete(it.Key())
	}
	return it, nil
}

func (s *cellSession) Put(key []byte, cells []rowstore.Cell) error {
	defer s.store.lock(key).Unlock()
	return s.replace(key, cells)
}

// replace deletes the cells that a row has and writes others.
func (s *cellSession) replace(key []byte, cells []rowstore.Cell) error {
	it, err := s.batchDelete(nil, key)
	if err != nil {
		return err
	}
	if err := it.Close(); err != nil {
		return err
	}
	s.batchSet(cells)
	return s.kv.Commit()
}

func (s *cellSession) batchSet(cells []rowstore.Cell) {
	for i := range cells {
		s.kv.BatchSet(s.cellKey(&cells[i]), cells[i].Value)
	}
}

// Update is blind, so it needs no lock: beside a put of the same row the order
// of the two is as if the update came later.
func (s *cellSession) Update(key []byte, cells []rowstore.Cell) error {
	if err := s.setPrefix(key); err != nil {
		return err
	}
	if len(cells) == 1 {
		return s.kv.Set(s.cellKey(&cells[0]), cells[0].Value)
	}
	s.batchSet(cells)
	return s.kv.Commit()
}

func (s *cellSession) PutBatch(rows []rowstore.Row) error {
	s.lockAll(rows)
	defer s.unlockAll()
	var it Iterator
	for i := range rows {
		var err error
		if it, err = s.batchDelete(it, rows[i].Key); err != nil {
			if it != nil {
				err = errors.Join(err, it.Close())
			}
			return err
		}
		s.batchSet(rows[i].Cells)
	}
	if it != nil {
		if err := it.Close(); err != nil {
			return err
		}
	}
	return s.kv.Commit()
}

func (s *cellSession) Delete(key []byte) error {
	defer s.store.lock(key).Unlock()
	return s.replace(key, nil)
}

func (s *cellSession) Get(key []byte, q rowstore.Query, into *rowstore.Row) (bool, error) {
	into.Reset(key)
	if err := s.setPrefix(key); err != nil {
		return false, err
	}
	start, end := s.prefix, s.end
	if len(q.Columns) > 0 {
		start = s.columnStart(q.Columns[0])
		if len(q.Columns) == 1 {
			end = append(end[:0], start...)
			end[len(end)-1] = afterMark
			s.end = end
		}
	}
	it, err := s.kv.Iter(start, end, len(s.prefix))
	if err != nil {
		return false, err
	}
	err = s.fill(it, &q, s.store.limits(q.MaxVersions), 0, into)
	err = errors.Join(err, it.Close())
	return len(into.Cells) > 0, err
}

func (s *cellSession) GetPage(key, fromColumn []byte, limit int, into *rowstore.Row) error {
	into.Reset(key)
	if limit < 1 {
		return nil
	}
	if err := s.setPrefix(key); err != nil {
		return err
	}
	it, err := s.kv.Iter(s.columnStart(fromColumn), s.end, len(s.prefix))
	if err != nil {
		return err
	}
	err = s.fill(it, &rowstore.Query{}, s.store.limits(1), limit, into)
	return errors.Join(err, it.Close())
}

func (s *cellSession) Scan(start, end []byte, q rowstore.Query, limit int, visit func(*rowstore.Row) bool) error {
	if start != nil {
		start = appendEscaped(nil, start)
	}
	if end != nil {
		end = appendEscaped(nil, end)
	}
	it, err := s.kv.Iter(start, end, 0)
	if err != nil {
		return err
	}
	l := s.store.limits(q.MaxVersions)
	for n := 0; it.Valid() && err == nil; {
		length := EscapedLen(it.Key())
		if length < 0 {
			err = errCellKey
			break
		}
		s.prefix = append(s.prefix[:0], it.Key()[:length]...)
		s.row.Reset(unescape(&s.scratch, s.prefix))
		if err = s.fill(it, &q, l, 0, &s.row); err != nil {
			break
		}
		if it.Valid() && bytes.HasPrefix(it.Key(), s.prefix) {
			s.setEnd()
			skipTo(it, s.end)
		}
		if len(s.row.Cells) == 0 {
			continue
		}
		if n++; !visit(&s.row) || n == limit {
			break
		}
	}
	return errors.Join(err, it.Close())
}

// fill adds the wanted cells of the row with s.prefix to a row, beginning where
// the iterator stands, at most limit (0: all). It leaves the iterator somewhere
// in the row or at the next one.
func (s *cellSession) fill(it Iterator, q *rowstore.Query, l limits, limit int, into *rowstore.Row) error {
	s.column = s.column[:0]
	seen, from := 0, 0
	for it.Valid() && (limit == 0 || len(into.Cells) < limit) {
		key := it.Key()
		if !bytes.HasPrefix(key, s.prefix) {
			return nil
		}
		column, version, err := splitCellKey(key[len(s.prefix):])
		if err != nil {
			return err
		}
		if !bytes.Equal(column, s.column) {
			s.column = append(s.column[:0], column...)
			seen = 0
			if !wants(q, unescape(&s.scratch, column), &from) {
				if from == len(q.Columns) {
					return nil
				}
				skipTo(it, s.columnStart(q.Columns[from]))
				continue
			}
		}
		if seen == l.versions || l.expired(version) {
			s.buf = append(append(s.buf[:0], s.prefix...), s.column...)
			s.buf[len(s.buf)-1] = afterMark
			skipTo(it, s.buf)
			continue
		}
		value, err := it.Value()
		if err != nil {
			return err
		}
		into.Add(unescape(&s.scratch, column), version, value)
		seen++
		it.Next()
	}
	return nil
}

// splitCellKey splits what follows the row's part of a cell key.
func splitCellKey(rest []byte) (column []byte, version int64, err error) {
	n := EscapedLen(rest)
	if n < 0 || len(rest) != n+8 {
		return nil, 0, errCellKey
	}
	return rest[:n], int64(^binary.BigEndian.Uint64(rest[n:])), nil
}

// skipTo moves forward to target: by a few steps if that is enough, since a
// step costs about a tenth of a seek.
func skipTo(it Iterator, target []byte) {
	for range 10 {
		if it.Next(); !it.Valid() || bytes.Compare(it.Key(), target) >= 0 {
			return
		}
	}
	it.Seek(target)
}

// reclaim deletes the cells that are not visible any more.
func (s *cellSession) reclaim(b *reclaimBatch) error {
	it, err := b.reader.Iter(nil, nil, 0)
	if err != nil {
		return err
	}
	l := s.store.limits(0)
	s.prefix = s.prefix[:0] // row and column of the cell before
	seen := 0
	for ; it.Valid() && err == nil; it.Next() {
		key := it.Key()
		if len(key) < 8 {
			err = errCellKey
			break
		}
		version := int64(^binary.BigEndian.Uint64(key[len(key)-8:]))
		if name := key[:len(key)-8]; !bytes.Equal(name, s.prefix) {
			s.prefix = append(s.prefix[:0], name...)
			seen = 0
		}
		if seen == l.versions || l.expired(version) {
			err = b.delete(key)
		} else {
			seen++
		}
	}
	return errors.Join(err, it.Close())
}
