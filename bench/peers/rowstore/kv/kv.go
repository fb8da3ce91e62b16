// Package kv lays rows over engines of ordered keys and values: each row as one
// value, a key per cell, or plain. An engine implements Engine; Open makes a
// rowstore.Store of it.
package kv

import (
	"bytes"
	"errors"
	"fmt"
	"hash/maphash"
	"slices"
	"sync"
	"time"

	"github.com/flagstone-db/flagstone/bench/peers/rowstore"
)

// Engine is an ordered key-value engine.
type Engine interface {
	Session() (Session, error)
	// Settle: see rowstore.Store.
	Settle() (rowstore.Asking, error)
	// Compact rewrites everything, so that what is deleted is gone.
	Compact() error
	Stats() rowstore.Stats
	Close() error
}

// Sizer is implemented by engines that estimate the size of a range of keys.
type Sizer interface {
	// Size returns about how many bytes on disk the keys from start, inclusive,
	// to end, exclusive, take.
	Size(start, end []byte) (int64, error)
	// Last returns the last key, nil if there is none.
	Last() ([]byte, error)
}

// Divider is implemented by engines that divide their keys by themselves.
type Divider interface {
	// Divide returns keys that divide the store into pieces of about so many
	// bytes; false if what it divides by is too coarse for that.
	Divide(pieceBytes int64) (keys [][]byte, ok bool)
}

// Session is what one goroutine uses. It does one thing at a time: a Get until
// Done, an iterator until its Close, a batch until Commit.
type Session interface {
	// Get finds a value, valid until Done, which is called after every Get.
	Get(key []byte) (value []byte, found bool, err error)
	Done()
	// Set writes one key.
	Set(key, value []byte) error
	// BatchSet and BatchDelete gather a batch of copies, Commit writes it; later
	// calls win.
	BatchSet(key, value []byte)
	BatchDelete(key []byte)
	Commit() error
	// Iter makes an iterator over the keys from start, inclusive, to end,
	// exclusive (nil: no bound), that stands at the first one. prefix > 0
	// promises that only keys that share so many bytes with start are wanted, so
	// that a filter of prefixes may be asked.
	Iter(start, end []byte, prefix int) (Iterator, error)
	Close() error
}

// Iterator walks keys upwards. What it returns is valid until it moves.
type Iterator interface {
	Valid() bool
	Next()
	// Seek moves forward to the first key at or above key.
	Seek(key []byte)
	// Restart does what Session.Iter does, on the moment that the iterator sees.
	Restart(start, end []byte, prefix int)
	Key() []byte
	Value() ([]byte, error)
	// Close ends the iteration and returns the error that ended it early.
	Close() error
}

// Open makes a store of an engine.
func Open(e Engine, cfg rowstore.Config) (rowstore.Store, error) {
	if cfg.NowMillis == nil {
		cfg.NowMillis = func() int64 { return time.Now().UnixMilli() }
	}
	cfg.MaxVersions = max(cfg.MaxVersions, 1)
	s := &store{engine: e, cfg: cfg, seed: maphash.MakeSeed()}
	switch cfg.Encoding {
	case rowstore.RowValue, rowstore.CellKeys:
	case rowstore.Plain:
		if cfg.MaxVersions > 1 || cfg.TTL > 0 {
			return nil, errors.Join(errors.New("plain values have no versions and do not expire"), e.Close())
		}
	default:
		return nil, errors.Join(fmt.Errorf("no encoding %q", cfg.Encoding), e.Close())
	}
	return s, nil
}

// stripes is the number of locks that updates of one row exclude each other
// with.
const stripes = 1 << 12

type store struct {
	engine Engine
	cfg    rowstore.Config
	seed   maphash.Seed
	locks  [stripes]sync.Mutex
}

func (s *store) Session() (rowstore.Session, error) {
	kv, err := s.engine.Session()
	if err != nil {
		return nil, err
	}
	base := session{store: s, kv: kv}
	switch s.cfg.Encoding {
	case rowstore.RowValue:
		return &rowSession{session: base}, nil
	case rowstore.CellKeys:
		return &cellSession{session: base}, nil
	default:
		return &plainSession{session: base}, nil
	}
}

func (s *store) Settle() (rowstore.Asking, error) { return s.engine.Settle() }
func (s *store) Stats() rowstore.Stats            { return s.engine.Stats() }
func (s *store) Close() error                     { return s.engine.Close() }

// limits are what is visible at a moment.
type limits struct {
	cutoff   int64 // seconds: versions before it have expired
	versions int   // of each column
}

func (s *store) limits(versions int) limits {
	l := limits{cutoff: -1 << 62, versions: s.cfg.MaxVersions}
	if s.cfg.TTL > 0 {
		l.cutoff = s.cfg.NowMillis()/1000 - int64(s.cfg.TTL/time.Second)
	}
	if versions > 0 {
		l.versions = min(l.versions, versions)
	}
	return l
}

func (l limits) expired(version int64) bool { return version/1000 < l.cutoff }

func (s *store) stripe(key []byte) uint32 {
	return uint32(maphash.Bytes(s.seed, key)) % stripes
}

func (s *store) lock(key []byte) *sync.Mutex {
	mu := &s.locks[s.stripe(key)]
	mu.Lock()
	return mu
}

// session is what the sessions of all encodings have in common.
type session struct {
	store   *store
	kv      Session
	buf     []byte // of an encoded key or value
	row     rowstore.Row
	stripes []uint32
}

// lockAll locks the rows of a batch, in one order for everybody.
func (s *session) lockAll(rows []rowstore.Row) {
	s.stripes = s.stripes[:0]
	for i := range rows {
		s.stripes = append(s.stripes, s.store.stripe(rows[i].Key))
	}
	slices.Sort(s.stripes)
	s.stripes = slices.Compact(s.stripes)
	for _, i := range s.stripes {
		s.store.locks[i].Lock()
	}
}

func (s *session) unlockAll() {
	for _, i := range s.stripes {
		s.store.locks[i].Unlock()
	}
}

func (s *session) Close() error { return s.kv.Close() }

// wants reports whether a column is asked for. from is where to begin in q's
// columns when columns are asked about in ascending order; it is moved.
func wants(q *rowstore.Query, column []byte, from *int) bool {
	if q.Columns == nil {
		return true
	}
	for ; *from < len(q.Columns); *from++ {
		if c := bytes.Compare(q.Columns[*from], column); c >= 0 {
			return c == 0
		}
	}
	return false
}
