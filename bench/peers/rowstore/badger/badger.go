// Package badger compares dgraph-io/badger.
package badger

import (
	"bytes"
	"errors"
	"math"
	"sort"
	"strings"
	"time"

	"github.com/dgraph-io/badger/v4"
	"github.com/dgraph-io/badger/v4/options"
	"github.com/dgraph-io/badger/v4/y"

	"github.com/flagstone-db/flagstone/bench/peers/rowstore"
	"github.com/flagstone-db/flagstone/bench/peers/rowstore/kv"
)

// Engine describes Badger.
func Engine() rowstore.Engine {
	return rowstore.Engine{
		Name: "badger", Module: "github.com/dgraph-io/badger/v4",
		Encodings: []rowstore.Encoding{rowstore.RowValue, rowstore.CellKeys, rowstore.Plain},
		Tunings:   []rowstore.Tuning{rowstore.DeepLevel0},
		LSM:       true, Factor: 1,
		Unsynced: "All: a write is stored into a shared mapping of the log before it returns, so it survives a killed process.",
		IsLog:    func(name string) bool { return strings.HasSuffix(name, ".mem") }, // the log of a memtable
		Open:     open,
	}
}

func open(cfg rowstore.Config) (rowstore.Store, error) {
	opts := badger.DefaultOptions(cfg.Dir).
		WithSyncWrites(cfg.Sync).
		WithMemTableSize(cfg.Memtable).
		WithNumMemtables(4). // as many as Pebble and Flagstone may have waiting
		WithBlockCacheSize(cfg.Cache).
		WithBlockSize(cfg.BlockSize).
		WithBloomFalsePositive(math.Pow(0.6185, float64(cfg.FilterBits))).
		WithCompression(options.Snappy).
		WithNumCompactors(cfg.Workers).
		// Values in the tree, as the documentation advises for small ones; the
		// log of values is for large ones.
		WithValueThreshold(min(32<<10, cfg.Memtable/16)).
		// Nobody else writes what a transaction here has read.
		WithDetectConflicts(false).
		WithMetricsEnabled(false).
		WithLogger(nil)
	if cfg.Tuning == rowstore.DeepLevel0.Name {
		opts = opts.WithNumLevelZeroTables(rowstore.Level0Merged).WithNumLevelZeroTablesStall(rowstore.Level0Stopped)
	}
	db, err := badger.Open(opts)
	if err != nil {
		return nil, err
	}
	return kv.Open(&engine{db: db}, cfg)
}

type engine struct{ db *badger.DB }

func (e *engine) Session() (kv.Session, error) {
	s := &session{engine: e}
	s.keep.fn = func(value []byte) error { s.keep.value = value; return nil }
	s.iter.session = s
	s.iter.keep.fn = func(value []byte) error { s.iter.keep.value = value; return nil }
	return s, nil
}

// Settle cannot flush, there is no call for it: it waits until no level is due
// for compaction and none has changed for a while. What is due and never done is not
// charged: the time ends with the last change.
func (e *engine) Settle() (rowstore.Asking, error) {
	size := func() (total int64, due bool) {
		for _, l := range e.db.Levels() {
			total += l.Size
			due = due || l.Score >= 1
		}
		return total, due
	}
	before, _ := size()
	return rowstore.AwaitQuiet(10*time.Millisecond, 10, 10*time.Second, func() (rowstore.Activity, error) {
		now, due := size()
		switch {
		case now != before:
			before = now
			return rowstore.Working, nil
		case due:
			return rowstore.Due, nil // scores may stay above 1 by a hair
		default:
			return rowstore.Quiet, nil
		}
	})
}

// Compact closes the database and opens it again: it has no other call that flushes, and
// what it flushed when it was closed would be left unmerged. Nobody may use it meanwhile.
func (e *engine) Compact() error {
	opts := e.db.Opts()
	if err := e.db.Close(); err != nil {
		return err
	}
	db, err := badger.Open(opts)
	if err != nil {
		return err
	}
	e.db = db
	if err := db.Flatten(opts.NumCompactors); err != nil {
		return err
	}
	for {
		err := e.db.RunValueLogGC(0.2)
		if errors.Is(err, badger.ErrNoRewrite) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// Divide takes the bounds of the tables of the largest level, as DB.Ranges does,
// whose answer cannot be read from outside its package. Tables larger than half
// a piece are too coarse.
func (e *engine) Divide(pieceBytes int64) ([][]byte, bool) {
	tables := e.db.Tables()
	var total int64
	sizes := map[int]int64{}
	largest := 0
	for i := range tables {
		size := int64(tables[i].OnDiskSize)
		total += size
		sizes[tables[i].Level] += size
		if sizes[tables[i].Level] > sizes[largest] {
			largest = tables[i].Level
		}
	}
	bounds := tables[:0]
	for _, t := range tables {
		if t.Level == largest {
			bounds = append(bounds, t)
		}
	}
	if len(bounds) == 0 || sizes[largest]/int64(len(bounds)) > pieceBytes/2 {
		return nil, false
	}
	sort.Slice(bounds, func(i, j int) bool { return bytes.Compare(bounds[i].Left, bounds[j].Left) < 0 })
	share := float64(total) / float64(max(sizes[largest], 1))
	var points [][]byte
	size := 0.0
	for i, t := range bounds {
		if i > 0 && size >= float64(pieceBytes) {
			points = append(points, bytes.Clone(y.ParseKey(t.Left)))
			size = 0
		}
		size += float64(t.OnDiskSize) * share
	}
	return points, true
}

// Stats knows only what is there: Badger counts what it writes in a registry of
// the whole process.
func (e *engine) Stats() rowstore.Stats { return rowstore.Stats{} }

func (e *engine) Close() error { return e.db.Close() }

// kept catches a value that Badger shows to a function. It stays as it is until
// its transaction or iterator moves on.
type kept struct {
	value []byte
	fn    func([]byte) error
}

type session struct {
	engine *engine
	txn    *badger.Txn // of a read
	batch  *badger.Txn
	arena  []byte // what the batch points into
	err    error  // of a call that gathered the batch
	keep   kept
	iter   iterator
}

func (s *session) Get(key []byte) ([]byte, bool, error) {
	s.txn = s.engine.db.NewTransaction(false)
	item, err := s.txn.Get(key)
	if errors.Is(err, badger.ErrKeyNotFound) {
		return nil, false, nil
	}
	if err == nil {
		s.keep.value = nil
		err = item.Value(s.keep.fn)
	}
	return s.keep.value, err == nil, err
}

func (s *session) Done() {
	if s.txn != nil {
		s.txn.Discard()
		s.txn = nil
	}
}

func (s *session) Set(key, value []byte) error {
	txn := s.engine.db.NewTransaction(true)
	defer txn.Discard()
	if err := txn.Set(key, value); err != nil {
		return err
	}
	return txn.Commit()
}

func (s *session) own(b []byte) []byte {
	from := len(s.arena)
	s.arena = append(s.arena, b...)
	return s.arena[from:len(s.arena):len(s.arena)]
}

func (s *session) BatchSet(key, value []byte) {
	s.gather(func() error { return s.batch.Set(s.own(key), s.own(value)) })
}

func (s *session) BatchDelete(key []byte) {
	s.gather(func() error { return s.batch.Delete(s.own(key)) })
}

func (s *session) gather(add func() error) {
	if s.batch == nil {
		s.batch = s.engine.db.NewTransaction(true)
	}
	if s.err == nil {
		s.err = add()
	}
}

func (s *session) Commit() error {
	err := s.err
	if s.batch != nil && err == nil {
		err = s.batch.Commit()
	}
	if s.batch != nil {
		s.batch.Discard()
	}
	s.batch, s.err = nil, nil
	s.arena = s.arena[:0]
	return err
}

func (s *session) Iter(start, end []byte, prefix int) (kv.Iterator, error) {
	s.iter.txn = s.engine.db.NewTransaction(false)
	s.iter.Restart(start, end, prefix)
	return &s.iter, nil
}

func (s *session) Close() error {
	if s.batch != nil {
		s.batch.Discard()
	}
	return nil
}

type iterator struct {
	session *session
	txn     *badger.Txn
	it      *badger.Iterator
	end     []byte
	key     []byte
	keep    kept
}

// Restart makes an iterator anew: which tables it looks at is decided by its
// prefix when it is made.
func (i *iterator) Restart(start, end []byte, prefix int) {
	if i.it != nil {
		i.it.Close()
	}
	// Values lie beside their keys, so to fetch them ahead costs a goroutine for
	// each and gains nothing.
	i.it = i.txn.NewIterator(badger.IteratorOptions{Prefix: bytes.Clone(start[:prefix])})
	i.end = append(i.end[:0], end...)
	i.Seek(start)
}

func (i *iterator) Seek(key []byte) {
	i.it.Seek(key)
	i.look()
}

func (i *iterator) Next() {
	i.it.Next()
	i.look()
}

func (i *iterator) look() {
	i.key = nil
	if !i.it.Valid() {
		return
	}
	if key := i.it.Item().Key(); len(i.end) == 0 || bytes.Compare(key, i.end) < 0 {
		i.key = key
	}
}

func (i *iterator) Valid() bool { return i.key != nil }
func (i *iterator) Key() []byte { return i.key }

func (i *iterator) Value() ([]byte, error) {
	i.keep.value = nil
	err := i.it.Item().Value(i.keep.fn)
	return i.keep.value, err
}

func (i *iterator) Close() error {
	i.it.Close()
	i.it = nil
	i.txn.Discard()
	return nil
}
