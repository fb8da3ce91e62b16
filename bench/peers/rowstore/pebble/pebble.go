// Package pebble compares CockroachDB's storage engine. Where Pebble's own
// defaults and the settings that its benchmark tool and CockroachDB run with
// differ, the latter are used.
package pebble

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/bloom"
	"github.com/cockroachdb/pebble/v2/sstable/block"

	"github.com/flagstone-db/flagstone/bench/peers/rowstore"
	"github.com/flagstone-db/flagstone/bench/peers/rowstore/kv"
)

// Engine describes Pebble.
func Engine() rowstore.Engine {
	return rowstore.Engine{
		Name: "pebble", Module: "github.com/cockroachdb/pebble/v2",
		Encodings: []rowstore.Encoding{rowstore.RowValue, rowstore.CellKeys, rowstore.Plain},
		Tunings:   []rowstore.Tuning{deep},
		LSM:       true, Factor: 1,
		Unsynced: "None is promised: a write is acknowledged once its record is queued for the goroutine that writes the log. " +
			"What that goroutine has handed to write(2) survives a killed process, the last blocks of 32 KiB may not.",
		IsLog: func(name string) bool { return strings.HasSuffix(name, ".log") },
		Open:  open,
	}
}

// deep: Flagstone's level 0, and the first level that goes with it. Writers are never
// stopped by its depth, as Pebble's authors have it.
var deep = rowstore.Tuning{
	Name: rowstore.DeepLevel0.Name, About: "level 0 merged at 12 runs, first level of 1.5 GiB, both as Flagstone has them at most",
}

// comparer orders cell keys bytewise and tells Pebble that the row's part is
// their prefix, so that filters are of rows.
func comparer() *pebble.Comparer {
	c := *pebble.DefaultComparer
	c.Name = "cells"
	c.Split = split
	plain := *pebble.DefaultComparer
	c.Separator = func(dst, a, b []byte) []byte {
		rowA, rowB := a[:split(a)], b[:split(b)]
		if bytes.Equal(rowA, rowB) {
			return append(dst, a...)
		}
		n := len(dst)
		dst = plain.Separator(dst, rowA, rowB)
		if bytes.Equal(dst[n:], rowA) { // which lies below a
			return append(dst[:n], a...)
		}
		return dst
	}
	c.Successor = func(dst, a []byte) []byte {
		n := len(dst)
		row := a[:split(a)]
		dst = plain.Successor(dst, row)
		if bytes.Equal(dst[n:], row) {
			return append(dst[:n], a...)
		}
		return dst
	}
	return &c
}

func split(key []byte) int {
	if n := kv.EscapedLen(key); n >= 0 {
		return n
	}
	return len(key)
}

func options(cfg rowstore.Config) *pebble.Options {
	opts := &pebble.Options{
		Comparer:                    pebble.DefaultComparer,
		FormatMajorVersion:          pebble.FormatNewest, // columnar blocks
		CacheSize:                   cfg.Cache,
		MemTableSize:                uint64(cfg.Memtable),
		MemTableStopWritesThreshold: 4,
		// The next four are those of Pebble's benchmark tool and of CockroachDB.
		L0CompactionThreshold:      2,
		L0StopWritesThreshold:      1000,
		LBaseMaxBytes:              64 << 20,
		MaxOpenFiles:               16384,
		CompactionConcurrencyRange: func() (int, int) { return 1, cfg.Workers },
		Logger:                     quiet{},
	}
	if cfg.Tuning == deep.Name {
		// Pebble counts half a run for each unit of its threshold.
		opts.L0CompactionThreshold = 2 * rowstore.Level0Merged
		opts.LBaseMaxBytes = 1536 << 20
	}
	opts.Experimental.ValueSeparationPolicy = func() pebble.ValueSeparationPolicy {
		// Only large values: for those of 1 KiB a second place to look costs
		// readers more than writers gain.
		return pebble.ValueSeparationPolicy{
			Enabled: true, MinimumSize: 16 << 10, MaxBlobReferenceDepth: 10,
			RewriteMinimumAge: 10 * time.Second, TargetGarbageRatio: 0.2,
		}
	}
	if cfg.Encoding == rowstore.CellKeys {
		opts.Comparer = comparer()
		// Suffixes are columns, not versions: all of a row's cells belong in its
		// data blocks.
		opts.Experimental.EnableValueBlocks = func() bool { return false }
	}
	for i := range opts.Levels {
		l := &opts.Levels[i]
		l.BlockSize = cfg.BlockSize
		l.IndexBlockSize = 256 << 10
		l.FilterPolicy = bloom.FilterPolicy(cfg.FilterBits)
		l.FilterType = pebble.TableFilter
		l.Compression = func() *block.CompressionProfile { return block.SnappyCompression }
	}
	opts.EnsureDefaults()
	opts.FlushSplitBytes = opts.TargetFileSizes[0]
	return opts
}

type quiet struct{}

func (quiet) Infof(string, ...any)  {}
func (quiet) Errorf(string, ...any) {}
func (quiet) Fatalf(format string, args ...any) {
	pebble.DefaultLogger.Fatalf(format, args...)
}

func open(cfg rowstore.Config) (rowstore.Store, error) {
	db, err := pebble.Open(cfg.Dir, options(cfg))
	if err != nil {
		return nil, err
	}
	e := &engine{db: db, write: pebble.NoSync}
	if cfg.Sync {
		e.write = pebble.Sync
	}
	return kv.Open(e, cfg)
}

type engine struct {
	db    *pebble.DB
	write *pebble.WriteOptions
}

func (e *engine) Session() (kv.Session, error) {
	return &session{engine: e, batch: e.db.NewBatch()}, nil
}

func (e *engine) Settle() (rowstore.Asking, error) {
	if err := e.db.Flush(); err != nil {
		return rowstore.Asking{}, err
	}
	// A new compaction may be picked a moment after one has ended.
	return rowstore.AwaitQuiet(5*time.Millisecond, 3, 0, func() (rowstore.Activity, error) {
		m := e.db.Metrics()
		if m.Compact.NumInProgress > 0 || m.Flush.NumInProgress > 0 || m.MemTable.Count > 1 {
			return rowstore.Working, nil
		}
		return rowstore.Quiet, nil
	})
}

func (e *engine) Compact() error {
	last, err := e.Last()
	if err != nil || last == nil {
		return err
	}
	return e.db.Compact(context.Background(), []byte{0}, append(last, 0xFF), true)
}

func (e *engine) Size(start, end []byte) (int64, error) {
	size, err := e.db.EstimateDiskUsage(start, end)
	return int64(size), err
}

func (e *engine) Last() ([]byte, error) {
	it, err := e.db.NewIter(nil)
	if err != nil {
		return nil, err
	}
	var key []byte
	if it.Last() {
		key = bytes.Clone(it.Key())
	}
	return key, it.Close()
}

func (e *engine) Stats() rowstore.Stats {
	m := e.db.Metrics()
	s := rowstore.Stats{
		Logged: int64(m.WAL.BytesWritten), CacheHits: m.BlockCache.Hits, CacheMisses: m.BlockCache.Misses,
	}
	for _, l := range m.Levels {
		s.Flushed += int64(l.TableBytesFlushed + l.BlobBytesFlushed)
		s.Compacted += int64(l.TableBytesCompacted + l.BlobBytesCompacted)
	}
	return s
}

func (e *engine) Close() error { return e.db.Close() }

type session struct {
	engine *engine
	batch  *pebble.Batch
	closer io.Closer
	iter   iterator
}

func (s *session) Get(key []byte) ([]byte, bool, error) {
	value, closer, err := s.engine.db.Get(key)
	if errors.Is(err, pebble.ErrNotFound) {
		return nil, false, nil
	}
	s.closer = closer
	return value, err == nil, err
}

func (s *session) Done() {
	if s.closer != nil {
		// Its error repeats one of Get.
		_ = s.closer.Close()
		s.closer = nil
	}
}

func (s *session) Set(key, value []byte) error { return s.engine.db.Set(key, value, s.engine.write) }

// Batches only fail when they are indexed or were committed.
func (s *session) BatchSet(key, value []byte) { _ = s.batch.Set(key, value, nil) }
func (s *session) BatchDelete(key []byte)     { _ = s.batch.Delete(key, nil) }

func (s *session) Commit() error {
	err := s.batch.Commit(s.engine.write)
	s.batch.Reset()
	return err
}

func (s *session) Iter(start, end []byte, prefix int) (kv.Iterator, error) {
	// Missing rows are frequent among those that are probed with a prefix, so
	// the filters of the last level are worth asking too.
	it, err := s.engine.db.NewIter(&pebble.IterOptions{LowerBound: start, UpperBound: end, UseL6Filters: prefix > 0})
	if err != nil {
		return nil, err
	}
	s.iter = iterator{it: it}
	s.iter.first(start, prefix)
	return &s.iter, nil
}

func (s *session) Close() error { return s.batch.Close() }

type iterator struct {
	it     *pebble.Iterator
	prefix bool
	valid  bool
}

func (i *iterator) first(start []byte, prefix int) {
	if i.prefix = prefix > 0; i.prefix {
		i.valid = i.it.SeekPrefixGE(start)
	} else {
		i.valid = i.it.First()
	}
}

func (i *iterator) Restart(start, end []byte, prefix int) {
	i.it.SetBounds(start, end)
	i.first(start, prefix)
}

func (i *iterator) Valid() bool { return i.valid }
func (i *iterator) Next()       { i.valid = i.it.Next() }
func (i *iterator) Key() []byte { return i.it.Key() }

func (i *iterator) Seek(key []byte) {
	if i.prefix {
		i.valid = i.it.SeekPrefixGE(key)
	} else {
		i.valid = i.it.SeekGE(key)
	}
}

func (i *iterator) Value() ([]byte, error) { return i.it.ValueAndErr() }
func (i *iterator) Close() error           { return i.it.Close() }
