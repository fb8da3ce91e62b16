// Package txn is transactions of one partition key: changes that are gathered over several calls,
// seen meanwhile by the transaction alone, and applied as one write. A transaction holds its
// partition key, whose rows no other writer may change meanwhile, and memory.
package txn

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/flagstone-db/flagstone/internal/change"
	"github.com/flagstone-db/flagstone/internal/commit"
	"github.com/flagstone-db/flagstone/internal/pressure"
	"github.com/flagstone-db/flagstone/internal/share"
	"github.com/flagstone-db/flagstone/internal/table"
	"github.com/flagstone-db/flagstone/partition"
	"github.com/flagstone-db/flagstone/row"
)

var (
	// ErrConflict: a transaction holds the partition key of a row that another writer wants to change.
	ErrConflict = errors.New("flagstone: conflict with another writer")
	// ErrMemory: open transactions together, or those of one owner, hold too much memory.
	ErrMemory = errors.New("flagstone: open transactions hold too much memory")
)

// Set is the open transactions of a store, and the ranges that are held for other work. A writer that
// holds its latches asks Admits whether one of them holds its row. While there are none, that is one
// atomic load.
type Set struct {
	Parts
	open   atomic.Int64 // number of transactions and ranges
	mu     sync.RWMutex
	held   map[string]*Transaction // by name
	ranges []*keyRange
}

// keyRange is a range of row keys of a table, low included and end excluded; a nil end is unbounded.
type keyRange struct {
	table    uint64
	low, end []byte
}

// meets reports whether a range of keys of a table overlaps r.
func (r *keyRange) meets(t *table.Table, low, end []byte) bool {
	return r.table == t.ID && (end == nil || bytes.Compare(r.low, end) < 0) && (r.end == nil || bytes.Compare(low, r.end) < 0)
}

// Parts are the objects of the store that transactions work with.
type Parts struct {
	Latches  *commit.Latches
	Pipeline *commit.Pipeline
	Gate     *pressure.Gate
	Memory   *share.Pool // between the owners of transactions
}

// NewSet makes an empty set.
func NewSet(parts Parts) *Set { return &Set{Parts: parts, held: make(map[string]*Transaction)} }

// appendName appends the name of a partition key of a table.
func appendName(dst []byte, table uint64, prefix []byte) []byte {
	return append(binary.BigEndian.AppendUint64(dst, table), prefix...)
}

// take takes the partition key and memory. Errors match ErrConflict and ErrMemory; then nothing is
// held.
func (tx *Transaction) take(size int64) error {
	s := tx.set
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.held[tx.name] != nil {
		return conflict(tx.table)
	}
	if s.inRanges(tx.table, tx.prefix, tx.end) {
		return busy(tx.table)
	}
	if !s.Memory.TryTake(tx.user, size) {
		return ErrMemory
	}
	tx.bytes = size
	s.held[tx.name] = tx
	s.open.Add(1)
	return nil
}

// charge takes more memory, or gives memory back if bytes is below 0. The error is ErrMemory.
func (tx *Transaction) charge(bytes int64) error {
	if bytes < 0 {
		tx.set.Memory.Give(tx.user, -bytes)
	} else if !tx.set.Memory.TryTake(tx.user, bytes) {
		return ErrMemory
	}
	tx.bytes += bytes
	return nil
}

// release gives back the partition key and the memory. REQUIRES: take has returned nil, and release
// was not called since.
func (tx *Transaction) release() {
	s := tx.set
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.held, tx.name)
	s.Memory.Give(tx.user, tx.bytes)
	s.open.Add(-1)
}

// HoldRange keeps other writers from the rows of a table from low, included, to end, excluded, until
// release is called: they and new transactions fail with ErrConflict. A nil end is unbounded. HoldRange
// waits, within ctx, for all callers that hold a latch. Then everything that was ever written to these
// rows is applied. Errors match ErrConflict if a transaction or another call holds some of the rows.
func (s *Set) HoldRange(ctx context.Context, t *table.Table, low, end []byte) (release func(), err error) {
	r := &keyRange{t.ID, low, end}
	if err := s.takeRange(t, r); err != nil {
		return nil, err
	}
	release = func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.ranges = slices.DeleteFunc(s.ranges, func(other *keyRange) bool { return other == r })
		s.open.Add(-1)
	}
	if err := s.Latches.Pass(ctx); err != nil {
		release()
		return nil, err
	}
	return release, nil
}

func (s *Set) takeRange(t *table.Table, r *keyRange) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, tx := range s.held {
		if r.meets(tx.table, tx.prefix, tx.end) {
			return conflict(t)
		}
	}
	if s.inRanges(t, r.low, r.end) {
		return busy(t)
	}
	s.ranges = append(s.ranges, r)
	s.open.Add(1)
	return nil
}

// inRanges reports whether a range of keys of a table overlaps one that is held. REQUIRES: mu is held.
func (s *Set) inRanges(t *table.Table, low, end []byte) bool {
	return slices.ContainsFunc(s.ranges, func(r *keyRange) bool { return r.meets(t, low, end) })
}

// End ends the transactions of a partition of a table.
func (s *Set) End(t *table.Table, tree *partition.Tree, why error) {
	for _, tx := range s.All() {
		if tx.table == t && tree.Contains(tx.prefix) {
			tx.Terminate(why)
		}
	}
}

// All returns the transactions.
func (s *Set) All() []*Transaction {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return slices.Collect(maps.Values(s.held))
}

// Admits returns an error that matches ErrConflict if a transaction or HoldRange holds a changed row.
// REQUIRES: the caller holds the row's latch, and keeps it until its write is applied.
func (s *Set) Admits(c *change.Change) error {
	if s.open.Load() == 0 {
		return nil
	}
	prefix, _ := row.PartitionPrefix(c.Key(), len(c.Table.Key))
	var buffer [64]byte
	name := appendName(buffer[:0], c.Table.ID, prefix)
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.held[string(name)] != nil {
		return conflict(c.Table)
	}
	if len(s.ranges) > 0 && s.inRanges(c.Table, c.Key(), append(bytes.Clone(c.Key()), 0)) {
		return busy(c.Table)
	}
	return nil
}

func conflict(t *table.Table) error {
	return fmt.Errorf("%w: a transaction of table %q holds the partition key", ErrConflict, t.Name)
}

func busy(t *table.Table) error {
	return fmt.Errorf("%w: table files are being installed in table %q", ErrConflict, t.Name)
}
