// Package txn is transactions of one partition key: changes that are gathered over several calls,
// seen meanwhile by the transaction alone, and applied as one write. A transaction holds its
// partition key, whose rows no other writer may change meanwhile, and memory.
package txn

import (
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
	"github.com/flagstone-db/flagstone/row"
)

var (
	// ErrConflict: a transaction holds the partition key of a row that another writer wants to change.
	ErrConflict = errors.New("flagstone: conflict with another writer")
	// ErrMemory: open transactions together, or those of one owner, hold too much memory.
	ErrMemory = errors.New("flagstone: open transactions hold too much memory")
)

// Set is the open transactions of a store. A writer that holds its latches asks Admits whether one
// of them holds the partition key of its row. While there is no transaction, that is one atomic
// load.
type Set struct {
	Parts
	open atomic.Int64 // number of transactions
	mu   sync.RWMutex
	held map[string]*Transaction // by name
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
func (tx *Transaction) take(bytes int64) error {
	s := tx.set
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.held[tx.name] != nil {
		return conflict(tx.table)
	}
	if !s.Memory.TryTake(tx.user, bytes) {
		return ErrMemory
	}
	tx.bytes = bytes
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

// All returns the transactions.
func (s *Set) All() []*Transaction {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return slices.Collect(maps.Values(s.held))
}

// Admits returns an error that matches ErrConflict if a transaction holds the partition key of a
// changed row. REQUIRES: the caller holds the row's latch, and keeps it until its write is applied.
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
	return nil
}

func conflict(t *table.Table) error {
	return fmt.Errorf("%w: a transaction of table %q holds the partition key", ErrConflict, t.Name)
}
