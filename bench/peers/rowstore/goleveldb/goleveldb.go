// Package goleveldb compares syndtr/goleveldb.
package goleveldb

import (
	"bytes"
	"errors"
	"strings"
	"time"

	"github.com/syndtr/goleveldb/leveldb"
	"github.com/syndtr/goleveldb/leveldb/filter"
	"github.com/syndtr/goleveldb/leveldb/iterator"
	"github.com/syndtr/goleveldb/leveldb/opt"
	"github.com/syndtr/goleveldb/leveldb/util"

	"github.com/flagstone-db/flagstone/bench/peers/rowstore"
	"github.com/flagstone-db/flagstone/bench/peers/rowstore/kv"
)

// Engine describes goleveldb.
func Engine() rowstore.Engine {
	return rowstore.Engine{
		Name: "goleveldb", Module: "github.com/syndtr/goleveldb",
		Encodings: []rowstore.Encoding{rowstore.RowValue, rowstore.CellKeys, rowstore.Plain},
		Tunings:   []rowstore.Tuning{rowstore.DeepLevel0},
		LSM:       true, Factor: 1,
		Unsynced: "All: a write is in the page cache (write(2) of the journal) before it returns, so it survives a killed process.",
		IsLog:    func(name string) bool { return strings.HasSuffix(name, ".log") },
		Open:     open,
	}
}

func open(cfg rowstore.Config) (rowstore.Store, error) {
	opts := &opt.Options{
		BlockCacheCapacity: int(cfg.Cache),
		BlockSize:          cfg.BlockSize,
		Filter:             filter.NewBloomFilter(cfg.FilterBits),
		WriteBuffer:        int(cfg.Memtable),
		Compression:        opt.SnappyCompression,
		// A first level as large as a memtable, as the others have; the defaults
		// are for write buffers of 4 MiB.
		CompactionTableSize:    8 << 20,
		CompactionTotalSize:    64 << 20,
		OpenFilesCacheCapacity: 4096,
		// Compactions that seeks start would run on beside reads for ever.
		DisableSeeksCompaction: true,
	}
	if cfg.Tuning == rowstore.DeepLevel0.Name {
		opts.CompactionL0Trigger = rowstore.Level0Merged
		opts.WriteL0SlowdownTrigger, opts.WriteL0PauseTrigger = (rowstore.Level0Merged+rowstore.Level0Stopped)/2, rowstore.Level0Stopped
	}
	db, err := leveldb.OpenFile(cfg.Dir, opts)
	if err != nil {
		return nil, err
	}
	return kv.Open(&engine{db: db, write: &opt.WriteOptions{Sync: cfg.Sync}}, cfg)
}

type engine struct {
	db    *leveldb.DB
	write *opt.WriteOptions
}

func (e *engine) Session() (kv.Session, error) {
	return &session{engine: e}, nil
}

// Settle cannot flush, there is no call for it: it waits until nothing has been
// written for a while.
func (e *engine) Settle() (rowstore.Asking, error) {
	var before leveldb.DBStats
	if err := e.db.Stats(&before); err != nil {
		return rowstore.Asking{}, err
	}
	return rowstore.AwaitQuiet(10*time.Millisecond, 5, 0, func() (does rowstore.Activity, err error) {
		var now leveldb.DBStats
		err = e.db.Stats(&now)
		if now.IOWrite != before.IOWrite || now.IORead != before.IORead {
			does = rowstore.Working
		}
		before = now
		return does, err
	})
}

func (e *engine) Compact() error { return e.db.CompactRange(util.Range{}) }

func (e *engine) Size(start, end []byte) (int64, error) {
	sizes, err := e.db.SizeOf([]util.Range{{Start: start, Limit: end}})
	return sizes.Sum(), err
}

func (e *engine) Last() ([]byte, error) {
	it := e.db.NewIterator(nil, nil)
	defer it.Release()
	if !it.Last() {
		return nil, it.Error()
	}
	return bytes.Clone(it.Key()), nil
}

func (e *engine) Stats() rowstore.Stats {
	var s leveldb.DBStats
	if err := e.db.Stats(&s); err != nil {
		return rowstore.Stats{} // closed
	}
	var out rowstore.Stats
	for level, written := range s.LevelWrite {
		if level == 0 {
			out.Flushed += written
		} else {
			out.Compacted += written
		}
	}
	return out
}

func (e *engine) Close() error { return e.db.Close() }

type session struct {
	engine *engine
	batch  leveldb.Batch
	iter   iter
}

func (s *session) Get(key []byte) ([]byte, bool, error) {
	value, err := s.engine.db.Get(key, nil)
	if errors.Is(err, leveldb.ErrNotFound) {
		return nil, false, nil
	}
	return value, err == nil, err
}

func (s *session) Done() {}

func (s *session) Set(key, value []byte) error { return s.engine.db.Put(key, value, s.engine.write) }

func (s *session) BatchSet(key, value []byte) { s.batch.Put(key, value) }
func (s *session) BatchDelete(key []byte)     { s.batch.Delete(key) }

func (s *session) Commit() error {
	err := s.engine.db.Write(&s.batch, s.engine.write)
	s.batch.Reset()
	return err
}

func (s *session) Iter(start, end []byte, _ int) (kv.Iterator, error) {
	s.iter.it = s.engine.db.NewIterator(nil, nil)
	s.iter.Restart(start, end, 0)
	return &s.iter, nil
}

func (s *session) Close() error { return nil }

// iter keeps its bound itself, so that one iterator can be used for several
// ranges.
type iter struct {
	it    iterator.Iterator
	end   []byte
	valid bool
}

func (i *iter) Restart(start, end []byte, _ int) {
	i.end = append(i.end[:0], end...)
	if start == nil {
		i.at(i.it.First())
	} else {
		i.at(i.it.Seek(start))
	}
}

func (i *iter) at(valid bool) {
	i.valid = valid && (len(i.end) == 0 || bytes.Compare(i.it.Key(), i.end) < 0)
}

func (i *iter) Valid() bool            { return i.valid }
func (i *iter) Next()                  { i.at(i.it.Next()) }
func (i *iter) Seek(key []byte)        { i.at(i.it.Seek(key)) }
func (i *iter) Key() []byte            { return i.it.Key() }
func (i *iter) Value() ([]byte, error) { return i.it.Value(), nil }

func (i *iter) Close() error {
	err := i.it.Error()
	i.it.Release()
	i.it = nil
	return err
}
