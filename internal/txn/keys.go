// Package txn is transactions of one partition key: changes that are gathered over several calls,
// seen meanwhile by the transaction alone, and applied as one write. It keeps what they hold: the
// partition keys, whose rows no other writer may change meanwhile, and memory.
package txn

import (
	"encoding/binary"
	"errors"
	"sync"
	"sync/atomic"

	"github.com/flagstone-db/flagstone/internal/share"
	"github.com/flagstone-db/flagstone/row"
)

var (
	// ErrHeld: another transaction holds the partition key.
	ErrHeld = errors.New("txn: another transaction holds the partition key")
	// ErrConflict: a transaction holds the partition key of a row that another writer wants to change.
	ErrConflict = errors.New("flagstone: conflict with another writer")
	// ErrMemory: open transactions together, or those of one owner, hold too much memory.
	ErrMemory = errors.New("flagstone: open transactions hold too much memory")
)

// Keys are the partition keys that open transactions of one store hold. T identifies a
// transaction. A writer that holds its latches asks Admits whether a transaction holds the
// partition key of its row. While there is no transaction, that is one atomic load.
type Keys[T any] struct {
	open   atomic.Int64 // number of keys held
	mu     sync.RWMutex
	held   map[string]*Hold[T] // by name
	memory *share.Pool         // between users
}

// NewKeys makes the keys of a store whose transactions share memory.
func NewKeys[T any](memory *share.Pool) *Keys[T] {
	return &Keys[T]{held: make(map[string]*Hold[T]), memory: memory}
}

// Hold is what one transaction holds once Take has returned nil, until Release.
type Hold[T any] struct {
	keys  *Keys[T]
	who   T
	name  string
	user  share.User
	bytes int64
}

// Hold makes the Hold of a transaction of a table's partition key; prefix is the encoded key. Its
// memory is charged to user.
func (k *Keys[T]) Hold(who T, table uint64, prefix []byte, user share.User) *Hold[T] {
	return &Hold[T]{keys: k, who: who, name: string(appendName(nil, table, prefix)), user: user}
}

// appendName appends the name of a partition key of a table.
func appendName(dst []byte, table uint64, prefix []byte) []byte {
	return append(binary.BigEndian.AppendUint64(dst, table), prefix...)
}

// Take takes the partition key and memory. Errors are ErrHeld and ErrMemory; then nothing is held.
func (h *Hold[T]) Take(bytes int64) error {
	k := h.keys
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.held[h.name] != nil {
		return ErrHeld
	}
	if !k.memory.TryTake(h.user, bytes) {
		return ErrMemory
	}
	h.bytes = bytes
	k.held[h.name] = h
	k.open.Add(1)
	return nil
}

// Charge takes more memory, or gives memory back if bytes is below 0. The error is ErrMemory.
func (h *Hold[T]) Charge(bytes int64) error {
	k := h.keys
	k.mu.Lock()
	defer k.mu.Unlock()
	if bytes < 0 {
		k.memory.Give(h.user, -bytes)
	} else if !k.memory.TryTake(h.user, bytes) {
		return ErrMemory
	}
	h.bytes += bytes
	return nil
}

// Release gives back the partition key and the memory. REQUIRES: Take has returned nil, and
// Release was not called since.
func (h *Hold[T]) Release() {
	k := h.keys
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.held, h.name)
	k.memory.Give(h.user, h.bytes)
	k.open.Add(-1)
}

// Total is the memory that all transactions may hold together, in bytes.
func (k *Keys[T]) Total() int64 { return k.memory.Total() }

// All returns the transactions that hold a key.
func (k *Keys[T]) All() []T {
	k.mu.RLock()
	defer k.mu.RUnlock()
	list := make([]T, 0, len(k.held))
	for _, h := range k.held {
		list = append(list, h.who)
	}
	return list
}

// Admits reports whether no transaction holds the partition key of a row; columns is the number of
// key columns of its table. REQUIRES: the caller holds the row's latch, and keeps it until its write
// is applied.
func (k *Keys[T]) Admits(table uint64, key []byte, columns int) bool {
	if k.open.Load() == 0 {
		return true
	}
	prefix, _ := row.PartitionPrefix(key, columns)
	var buffer [64]byte
	name := appendName(buffer[:0], table, prefix)
	k.mu.RLock()
	defer k.mu.RUnlock()
	return k.held[string(name)] == nil
}
