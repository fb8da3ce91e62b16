//go:build rocksdb

package rocksdb

import (
	"bytes"
	"errors"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/linxGnu/grocksdb"

	"github.com/flagstone-db/flagstone/bench/peers/rowstore"
	"github.com/flagstone-db/flagstone/bench/peers/rowstore/kv"
)

// The tunings: how the log is written, how tables are read, and how they are merged.
const (
	bufferedLog   = "buffered-log"
	mmap          = "mmap"
	universal     = "universal"
	universalMmap = "universal-mmap"
)

// Engine describes RocksDB.
func Engine() rowstore.Engine {
	build, factor := build()
	return rowstore.Engine{
		Name: "rocksdb", Module: "github.com/linxGnu/grocksdb", Build: build,
		Encodings: []rowstore.Encoding{rowstore.RowValue, rowstore.CellKeys, rowstore.Plain},
		Tunings: []rowstore.Tuning{
			{Name: bufferedLog, About: "manual_wal_flush: the log's buffer is written each 100 ms, which is the longest that Flagstone's waits"},
			{Name: mmap, About: "allow_mmap_reads"},
			{Name: universal, About: "universal compaction"},
			{Name: universalMmap, About: "universal compaction and allow_mmap_reads"},
		},
		LSM:      true,
		Factor:   factor,
		Unsynced: "All: a write is in the page cache (write(2) of the log) before it returns, so it survives a killed process.",
		IsLog:    func(name string) bool { return strings.HasSuffix(name, ".log") },
		Open:     open,
	}
}

func options(cfg rowstore.Config) *grocksdb.Options {
	table := grocksdb.NewDefaultBlockBasedTableOptions()
	table.SetBlockCache(grocksdb.NewLRUCache(uint64(cfg.Cache)))
	table.SetBlockSize(cfg.BlockSize)
	table.SetFilterPolicy(grocksdb.NewBloomFilterFull(float64(cfg.FilterBits)))
	table.SetFormatVersion(5)

	opts := grocksdb.NewDefaultOptions()
	opts.SetCreateIfMissing(true)
	opts.SetWriteBufferSize(uint64(cfg.Memtable))
	opts.SetMaxWriteBufferNumber(4)
	opts.SetCompression(grocksdb.SnappyCompression)
	// Not SetMaxBackgroundJobs, which would give flushes a quarter of the threads.
	opts.SetMaxBackgroundFlushes(cfg.Workers)
	opts.SetMaxBackgroundCompactions(cfg.Workers)
	// Flagstone divides a large merge between its goroutines, too.
	opts.SetMaxSubcompactions(uint32(cfg.Workers))
	opts.SetMaxOpenFiles(-1)
	opts.SetManualWALFlush(cfg.Tuning == bufferedLog)
	opts.SetAllowMmapReads(cfg.Tuning == mmap || cfg.Tuning == universalMmap)
	if cfg.Tuning == universal || cfg.Tuning == universalMmap {
		opts.SetCompactionStyle(grocksdb.UniversalCompactionStyle)
	} else {
		// What its tuning guide sets for new stores.
		opts.SetLevelCompactionDynamicLevelBytes(true)
	}
	opts.SetBytesPerSync(1 << 20)
	opts.SetInfoLogLevel(grocksdb.FatalInfoLogLevel)
	// Large values apart from the tree, as with Pebble and Badger.
	opts.EnableBlobFiles(true)
	opts.SetMinBlobSize(16 << 10)
	opts.EnableBlobGC(true)
	if cfg.Encoding == rowstore.CellKeys && cfg.KeyBytes > 0 {
		// The C API has prefixes of fixed length only: as much of the row's key as
		// all cell keys have.
		opts.SetPrefixExtractor(grocksdb.NewFixedPrefixTransform(cfg.KeyBytes))
		table.SetWholeKeyFiltering(false) // cells are only looked for by iterators
	}
	opts.SetBlockBasedTableFactory(table)
	return opts
}

func open(cfg rowstore.Config) (rowstore.Store, error) {
	opts := options(cfg)
	db, err := grocksdb.OpenDb(opts, cfg.Dir)
	if err != nil {
		return nil, err
	}
	e := &engine{
		db: db, opts: opts, write: grocksdb.NewDefaultWriteOptions(),
		prefixes: cfg.Encoding == rowstore.CellKeys && cfg.KeyBytes > 0,
	}
	e.write.SetSync(cfg.Sync)
	if cfg.Tuning == bufferedLog {
		e.flushLog()
	}
	return kv.Open(e, cfg)
}

type engine struct {
	db *grocksdb.DB
	// The options are kept and never destroyed: that would free the prefix
	// extractor, which the database has freed, again.
	opts     *grocksdb.Options
	write    *grocksdb.WriteOptions
	prefixes bool // there are filters of prefixes
	endLog   func() error
}

// flushLog writes the log's buffer to the file, until endLog is called.
func (e *engine) flushLog() {
	ended, failed := make(chan struct{}), make(chan error, 1)
	go func() {
		each := time.NewTicker(100 * time.Millisecond)
		defer each.Stop()
		for {
			select {
			case <-ended:
				failed <- e.db.FlushWAL(false)
				return
			case <-each.C:
				if err := e.db.FlushWAL(false); err != nil {
					failed <- err
					return
				}
			}
		}
	}()
	e.endLog = func() error {
		close(ended)
		return <-failed
	}
}

func (e *engine) Session() (kv.Session, error) {
	s := &session{
		engine: e, batch: grocksdb.NewWriteBatch(),
		get: grocksdb.NewDefaultReadOptions(), scan: grocksdb.NewDefaultReadOptions(), row: grocksdb.NewDefaultReadOptions(),
	}
	s.scan.SetTotalOrderSeek(true)
	if e.prefixes {
		s.row.SetPrefixSameAsStart(true)
	}
	s.iter.session = s
	return s, nil
}

func (e *engine) Settle() (rowstore.Asking, error) {
	flush := grocksdb.NewDefaultFlushOptions()
	defer flush.Destroy()
	if err := e.db.Flush(flush); err != nil {
		return rowstore.Asking{}, err
	}
	// A compaction may be pending for ever: its score is due, and nothing can be picked.
	return rowstore.AwaitQuiet(5*time.Millisecond, 3, time.Second, func() (rowstore.Activity, error) {
		switch nonzero := func(property string) bool { return e.db.GetProperty(property) != "0" }; {
		case slices.ContainsFunc([]string{
			"rocksdb.num-running-compactions", "rocksdb.num-running-flushes", "rocksdb.mem-table-flush-pending",
		}, nonzero):
			return rowstore.Working, nil
		case nonzero("rocksdb.compaction-pending"):
			return rowstore.Due, nil
		default:
			return rowstore.Quiet, nil
		}
	})
}

func (e *engine) Compact() error {
	e.db.CompactRange(grocksdb.Range{})
	return nil
}

func (e *engine) Size(start, end []byte) (int64, error) {
	sizes, err := e.db.GetApproximateSizes([]grocksdb.Range{{Start: start, Limit: end}})
	if err != nil {
		return 0, err
	}
	return int64(sizes[0]), nil
}

func (e *engine) Last() ([]byte, error) {
	ro := grocksdb.NewDefaultReadOptions()
	defer ro.Destroy()
	ro.SetTotalOrderSeek(true)
	it := e.db.NewIterator(ro)
	defer it.Close()
	if it.SeekToLast(); !it.Valid() {
		return nil, it.Err()
	}
	return bytes.Clone(it.Key().Data()), nil
}

// Stats are left out: counting them slows RocksDB down.
func (e *engine) Stats() rowstore.Stats { return rowstore.Stats{} }

func (e *engine) Close() (err error) {
	if e.endLog != nil {
		err = e.endLog()
	}
	e.db.Close()
	e.write.Destroy()
	return err
}

type session struct {
	engine         *engine
	batch          *grocksdb.WriteBatch
	get, scan, row *grocksdb.ReadOptions
	value          *grocksdb.PinnableSliceHandle
	iter           iterator
}

func (s *session) Get(key []byte) ([]byte, bool, error) {
	var err error
	if s.value, err = s.engine.db.GetPinned(s.get, key); err != nil {
		return nil, false, err
	}
	if !s.value.Exists() {
		return nil, false, nil
	}
	return s.value.Data(), true, nil
}

func (s *session) Done() {
	if s.value != nil {
		s.value.Destroy()
		s.value = nil
	}
}

func (s *session) Set(key, value []byte) error { return s.engine.db.Put(s.engine.write, key, value) }

func (s *session) BatchSet(key, value []byte) { s.batch.Put(key, value) }
func (s *session) BatchDelete(key []byte)     { s.batch.Delete(key) }

func (s *session) Commit() error {
	err := s.engine.db.Write(s.engine.write, s.batch)
	s.batch.Clear()
	return err
}

func (s *session) Iter(start, end []byte, prefix int) (kv.Iterator, error) {
	s.iter.Restart(start, end, prefix)
	return &s.iter, nil
}

func (s *session) Close() error {
	s.batch.Destroy()
	s.get.Destroy()
	s.scan.Destroy()
	s.row.Destroy()
	s.iter.pinner.Unpin()
	return nil
}

// iterator is one of a session's, which makes another when it is used again.
type iterator struct {
	session *session
	it      *grocksdb.Iterator
	key     []byte
	// bound is the end of the range. RocksDB keeps a pointer to it, so it is
	// pinned where it is.
	bound  []byte
	pinner runtime.Pinner
}

// setBound copies a bound to memory that stays where it is; nil is none.
func (i *iterator) setBound(end []byte) []byte {
	if end == nil {
		return nil
	}
	if len(end) > cap(i.bound) {
		i.pinner.Unpin()
		i.bound = make([]byte, 0, 2*len(end)+256)
		i.pinner.Pin(&i.bound[:1][0])
	}
	i.bound = append(i.bound[:0], end...)
	return i.bound
}

func (i *iterator) Restart(start, end []byte, prefix int) {
	if i.it != nil {
		i.it.Close()
	}
	ro := i.session.scan
	if prefix > 0 {
		ro = i.session.row
	}
	ro.SetIterateUpperBound(i.setBound(end))
	i.it = i.session.engine.db.NewIterator(ro)
	if start == nil {
		i.it.SeekToFirst()
	} else {
		i.it.Seek(start)
	}
	i.look()
}

// look fetches the key, once for each move: a call into C costs as much as a
// step.
func (i *iterator) look() {
	i.key = nil
	if i.it.Valid() {
		i.key = i.it.Key().Data()
	}
}

func (i *iterator) Valid() bool { return i.key != nil }
func (i *iterator) Key() []byte { return i.key }

func (i *iterator) Next() {
	i.it.Next()
	i.look()
}

func (i *iterator) Seek(key []byte) {
	i.it.Seek(key)
	i.look()
}

func (i *iterator) Value() ([]byte, error) {
	value := i.it.Value()
	if value == nil {
		return nil, errors.New("an iterator without a value")
	}
	return value.Data(), nil
}

func (i *iterator) Close() error {
	err := i.it.Err()
	i.it.Close()
	i.it = nil
	return err
}
