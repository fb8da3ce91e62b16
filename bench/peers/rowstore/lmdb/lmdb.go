//go:build lmdb

package lmdb

import (
	"bytes"
	"errors"

	"github.com/PowerDNS/lmdb-go/lmdb"

	"github.com/flagstone-db/flagstone/bench/peers/rowstore"
	"github.com/flagstone-db/flagstone/bench/peers/rowstore/kv"
)

// Engine describes LMDB.
func Engine() rowstore.Engine {
	return rowstore.Engine{
		Name: "lmdb", Module: "github.com/PowerDNS/lmdb-go",
		Encodings: []rowstore.Encoding{rowstore.RowValue, rowstore.CellKeys, rowstore.Plain},
		Factor:    1,
		Unsynced: "All: the pages of a write are in the page cache (write(2)) before it returns, so they survive a killed process; " +
			"a crash of the machine may leave a file that cannot be opened.",
		Open: open,
	}
}

// mapSize is address space for all the data to come.
const mapSize = 16 << 30

func open(cfg rowstore.Config) (rowstore.Store, error) {
	env, err := lmdb.NewEnv()
	if err != nil {
		return nil, err
	}
	flags := uint(0)
	if !cfg.Sync {
		flags |= lmdb.NoSync
	}
	if cfg.MemoryLimit > 0 {
		// What its documentation advises where the data is larger than memory.
		flags |= lmdb.NoReadahead
	}
	err = env.SetMapSize(mapSize)
	if err == nil {
		err = env.Open(cfg.Dir, flags, 0o644)
	}
	e := &engine{env: env}
	if err == nil {
		err = env.Update(func(tx *lmdb.Txn) error {
			e.db, err = tx.OpenRoot(0)
			return err
		})
	}
	if err != nil {
		return nil, errors.Join(err, env.Close())
	}
	return kv.Open(e, cfg)
}

type engine struct {
	env *lmdb.Env
	db  lmdb.DBI
}

func (e *engine) Session() (kv.Session, error) {
	s := &session{engine: e}
	var err error
	if s.get, err = e.reader(); err != nil {
		return nil, err
	}
	s.iter.session = s
	if s.iter.tx, err = e.reader(); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	if err = s.iter.tx.Renew(); err == nil {
		s.iter.cursor, err = s.iter.tx.OpenCursor(e.db)
		s.iter.tx.Reset()
	}
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// reader makes a transaction that reads and is renewed for each read. Its values are not
// copied.
func (e *engine) reader() (*lmdb.Txn, error) {
	tx, err := e.env.BeginTxn(nil, lmdb.Readonly)
	if err != nil {
		return nil, err
	}
	tx.RawRead = true
	tx.Reset()
	return tx, nil
}

// Settle has nothing to wait for.
func (e *engine) Settle() (rowstore.Asking, error) { return rowstore.Asking{}, nil }

// Compact has nothing to do: free pages are used again and never returned to the file
// system.
func (e *engine) Compact() error { return nil }

// Stats: LMDB counts nothing.
func (e *engine) Stats() rowstore.Stats { return rowstore.Stats{} }

func (e *engine) Close() error { return errors.Join(e.env.Sync(true), e.env.Close()) }

type write struct {
	key, value []byte
	delete     bool
}

type session struct {
	engine *engine
	get    *lmdb.Txn
	batch  []write
	one    [1]write
	iter   iterator
}

func (s *session) Get(key []byte) ([]byte, bool, error) {
	if err := s.get.Renew(); err != nil {
		return nil, false, err
	}
	value, err := s.get.Get(s.engine.db, key)
	if lmdb.IsNotFound(err) {
		return nil, false, nil
	}
	return value, err == nil, err
}

func (s *session) Done() { s.get.Reset() }

func (s *session) Set(key, value []byte) error {
	s.one[0] = write{key: key, value: value}
	return s.write(s.one[:])
}

func (s *session) BatchSet(key, value []byte) {
	s.batch = append(s.batch, write{bytes.Clone(key), bytes.Clone(value), false})
}

func (s *session) BatchDelete(key []byte) {
	s.batch = append(s.batch, write{bytes.Clone(key), nil, true})
}

func (s *session) Commit() error {
	err := s.write(s.batch)
	clear(s.batch)
	s.batch = s.batch[:0]
	return err
}

func (s *session) write(writes []write) error {
	return s.engine.env.Update(func(tx *lmdb.Txn) error {
		for i := range writes {
			w := &writes[i]
			var err error
			if w.delete {
				err = tx.Del(s.engine.db, w.key, nil)
				if lmdb.IsNotFound(err) {
					err = nil
				}
			} else {
				err = tx.Put(s.engine.db, w.key, w.value, 0)
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
}

func (s *session) Iter(start, end []byte, prefix int) (kv.Iterator, error) {
	if err := s.iter.tx.Renew(); err != nil {
		return nil, err
	}
	if err := s.iter.cursor.Renew(s.iter.tx); err != nil {
		s.iter.tx.Reset()
		return nil, err
	}
	s.iter.Restart(start, end, prefix)
	return &s.iter, nil
}

func (s *session) Close() error {
	if s.iter.cursor != nil {
		s.iter.cursor.Close()
	}
	for _, tx := range []*lmdb.Txn{s.get, s.iter.tx} {
		if tx != nil {
			tx.Abort()
		}
	}
	return nil
}

type iterator struct {
	session    *session
	tx         *lmdb.Txn
	cursor     *lmdb.Cursor
	end        []byte
	key, value []byte
	err        error
}

func (i *iterator) Restart(start, end []byte, _ int) {
	i.end = append(i.end[:0], end...)
	i.err = nil
	if start == nil {
		i.move(nil, lmdb.First)
	} else {
		i.move(start, lmdb.SetRange)
	}
}

func (i *iterator) move(to []byte, how uint) {
	key, value, err := i.cursor.Get(to, nil, how)
	if err != nil && !lmdb.IsNotFound(err) {
		i.err = err
	}
	if err != nil || len(i.end) > 0 && bytes.Compare(key, i.end) >= 0 {
		key = nil
	}
	i.key, i.value = key, value
}

func (i *iterator) Valid() bool            { return i.key != nil }
func (i *iterator) Next()                  { i.move(nil, lmdb.Next) }
func (i *iterator) Seek(key []byte)        { i.move(key, lmdb.SetRange) }
func (i *iterator) Key() []byte            { return i.key }
func (i *iterator) Value() ([]byte, error) { return i.value, nil }

func (i *iterator) Close() error {
	i.tx.Reset()
	return i.err
}
