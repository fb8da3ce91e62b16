package kv

// This file is the key-value shape: the value of the one column as it is.

import (
	"errors"
	"fmt"

	"github.com/flagstone-db/flagstone/bench/peers/rowstore"
)

type plainSession struct{ session }

func plainValue(cells []rowstore.Cell) ([]byte, error) {
	if len(cells) != 1 || string(cells[0].Column) != rowstore.PlainColumn {
		return nil, fmt.Errorf("a plain row has one cell, of column %q", rowstore.PlainColumn)
	}
	return cells[0].Value, nil
}

func fillPlain(key, value []byte, into *rowstore.Row) {
	into.Reset(key)
	into.Cells = append(into.Cells, rowstore.Cell{Column: plainColumn, Value: into.Copy(value)})
}

var plainColumn = []byte(rowstore.PlainColumn)

func (s *plainSession) Put(key []byte, cells []rowstore.Cell) error {
	value, err := plainValue(cells)
	if err != nil {
		return err
	}
	return s.kv.Set(key, value)
}

func (s *plainSession) Update(key []byte, cells []rowstore.Cell) error { return s.Put(key, cells) }

func (s *plainSession) PutBatch(rows []rowstore.Row) error {
	for i := range rows {
		value, err := plainValue(rows[i].Cells)
		if err != nil {
			return err
		}
		s.kv.BatchSet(rows[i].Key, value)
	}
	return s.kv.Commit()
}

func (s *plainSession) Delete(key []byte) error {
	s.kv.BatchDelete(key)
	return s.kv.Commit()
}

func (s *plainSession) Get(key []byte, _ rowstore.Query, into *rowstore.Row) (bool, error) {
	value, found, err := s.kv.Get(key)
	found = found && err == nil
	if found {
		fillPlain(key, value, into)
	} else {
		into.Reset(key)
	}
	s.kv.Done()
	return found, err
}

func (s *plainSession) GetPage(key, fromColumn []byte, limit int, into *rowstore.Row) error {
	if limit < 1 || string(fromColumn) > rowstore.PlainColumn {
		into.Reset(key)
		return nil
	}
	_, err := s.Get(key, rowstore.Query{}, into)
	return err
}

func (s *plainSession) Scan(start, end []byte, _ rowstore.Query, limit int, visit func(*rowstore.Row) bool) error {
	it, err := s.kv.Iter(start, end, 0)
	if err != nil {
		return err
	}
	for n := 0; it.Valid(); it.Next() {
		value, err := it.Value()
		if err != nil {
			return errors.Join(err, it.Close())
		}
		fillPlain(it.Key(), value, &s.row)
		if n++; !visit(&s.row) || n == limit {
			break
		}
	}
	return it.Close()
}
