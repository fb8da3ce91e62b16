// Package bbolt compares bbolt: a mapped B+tree, no LSM, without a cache, a log,
// compression or merging of its own. It is the yardstick for reads from memory.
package bbolt

import (
	"bytes"
	"errors"
	"path/filepath"
	"time"

	"go.etcd.io/bbolt"

	"github.com/flagstone-db/flagstone/bench/peers/rowstore"
	"github.com/flagstone-db/flagstone/bench/peers/rowstore/kv"
)

// Engine describes bbolt.
func Engine() rowstore.Engine {
	return rowstore.Engine{
		Name: "bbolt", Module: "go.etcd.io/bbolt",
		Encodings: []rowstore.Encoding{rowstore.RowValue, rowstore.CellKeys, rowstore.Plain},
		Factor:    1,
		Unsynced: "All: the pages of a write are in the page cache before it returns, so they survive a killed process; " +
			"a crash of the machine may leave a file that cannot be opened.",
		Open: open,
	}
}

var bucket = []byte("b")

func open(cfg rowstore.Config) (rowstore.Store, error) {
	db, err := bbolt.Open(filepath.Join(cfg.Dir, "bbolt.db"), 0o644, &bbolt.Options{
		NoSync: !cfg.Sync,
		// A list of free pages that is not written, in a map: what etcd uses, and
		// much faster for stores with many free pages.
		NoFreelistSync: true, FreelistType: bbolt.FreelistMapType,
		// Address space for all the data to come, as etcd does: to map a larger
		// file anew waits for readers and keeps them waiting.
		InitialMmapSize: 16 << 30,
	})
	if err != nil {
		return nil, err
	}
	err = db.Update(func(tx *bbolt.Tx) error {
		_, err := tx.CreateBucketIfNotExists(bucket)
		return err
	})
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	// Synced writes of several goroutines share a transaction, as the
	// documentation advises. The default of ten milliseconds would make each of
	// a few writers wait that long for another.
	db.MaxBatchDelay = 200 * time.Microsecond
	return kv.Open(&engine{db: db, shared: cfg.Sync && cfg.Writers > 1}, cfg)
}

type engine struct {
	db     *bbolt.DB
	shared bool // transactions are shared between writers
}

func (e *engine) Session() (kv.Session, error) { return &session{engine: e}, nil }

func (e *engine) Settle() (rowstore.Asking, error) { return rowstore.Asking{}, nil }

// Compact has nothing to do: free pages are used again and never returned to the
// file system while the database is open.
func (e *engine) Compact() error { return nil }

func (e *engine) Stats() rowstore.Stats {
	s := e.db.Stats()
	return rowstore.Stats{Flushed: s.TxStats.GetPageAlloc()}
}

func (e *engine) Close() error {
	return errors.Join(e.db.Sync(), e.db.Close())
}

type write struct {
	key, value []byte
	delete     bool
}

type session struct {
	engine *engine
	tx     *bbolt.Tx
	batch  []write
	one    [1]write
	iter   iterator
}

func (s *session) Get(key []byte) ([]byte, bool, error) {
	var err error
	if s.tx, err = s.engine.db.Begin(false); err != nil {
		return nil, false, err
	}
	value := s.tx.Bucket(bucket).Get(key)
	return value, value != nil, nil
}

func (s *session) Done() {
	if s.tx != nil {
		// Ending a transaction that only read does not fail.
		_ = s.tx.Rollback()
		s.tx = nil
	}
}

func (s *session) Set(key, value []byte) error {
	s.Done() // a write transaction must not wait for a read of its own goroutine
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
	apply := func(tx *bbolt.Tx) error {
		b := tx.Bucket(bucket)
		for i := range writes {
			w := &writes[i]
			var err error
			if w.delete {
				err = b.Delete(w.key)
			} else {
				err = b.Put(w.key, w.value)
			}
			if err != nil {
				return err
			}
		}
		return nil
	}
	if s.engine.shared {
		return s.engine.db.Batch(apply)
	}
	return s.engine.db.Update(apply)
}

func (s *session) Iter(start, end []byte, _ int) (kv.Iterator, error) {
	tx, err := s.engine.db.Begin(false)
	if err != nil {
		return nil, err
	}
	s.iter.tx, s.iter.cursor = tx, tx.Bucket(bucket).Cursor()
	s.iter.Restart(start, end, 0)
	return &s.iter, nil
}

func (s *session) Close() error { return nil }

type iterator struct {
	tx         *bbolt.Tx
	cursor     *bbolt.Cursor
	end        []byte
	key, value []byte
}

func (i *iterator) Restart(start, end []byte, _ int) {
	i.end = append(i.end[:0], end...)
	if start == nil {
		i.at(i.cursor.First())
	} else {
		i.at(i.cursor.Seek(start))
	}
}

func (i *iterator) at(key, value []byte) {
	if key != nil && len(i.end) > 0 && bytes.Compare(key, i.end) >= 0 {
		key = nil
	}
	i.key, i.value = key, value
}

func (i *iterator) Valid() bool            { return i.key != nil }
func (i *iterator) Next()                  { i.at(i.cursor.Next()) }
func (i *iterator) Seek(key []byte)        { i.at(i.cursor.Seek(key)) }
func (i *iterator) Key() []byte            { return i.key }
func (i *iterator) Value() ([]byte, error) { return i.value, nil }
func (i *iterator) Close() error           { return i.tx.Rollback() }
