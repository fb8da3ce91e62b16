package flagstone

// The partition keys and the memory that open transactions hold. A writer that holds its latches
// checks whether a transaction holds the partition key of its row. While there is no transaction,
// the check is one atomic load.

import (
	"encoding/binary"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/flagstone-db/flagstone/internal/share"
	"github.com/flagstone-db/flagstone/row"
)

// transactionShare divides Options.MemoryBudget: open transactions together may take that part,
// in addition to the budget.
const transactionShare = 4

// transactions are the open transactions of a store.
type transactions struct {
	open  atomic.Int64 // number of transactions, those in Begin included
	mu    sync.RWMutex
	held  map[string]*Transaction // by heldName
	bytes *share.Pool             // between owners
	limit int64
}

func (l *transactions) init(budget int64) {
	l.held = make(map[string]*Transaction)
	l.limit = max(budget/transactionShare, transactionBytes)
	l.bytes = share.NewPool(l.limit)
}

// heldName names a partition key of a table.
func heldName(dst []byte, table uint64, prefix []byte) []byte {
	return append(binary.BigEndian.AppendUint64(dst, table), prefix...)
}

// begin takes a transaction's partition key, and memory.
func (l *transactions) begin(tx *Transaction) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	name := string(heldName(nil, tx.table.id, tx.prefix))
	if l.held[name] != nil {
		return conflict(tx.table)
	}
	if !l.bytes.TryTake(tx.owner, transactionBytes) {
		return ErrTransactionMemory
	}
	tx.bytes = transactionBytes
	l.held[name] = tx
	l.open.Add(1)
	return nil
}

// charge takes memory for a transaction, or gives it back if bytes is below 0.
func (l *transactions) charge(tx *Transaction, bytes int64) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if bytes < 0 {
		l.bytes.Give(tx.owner, -bytes)
	} else if !l.bytes.TryTake(tx.owner, bytes) {
		return ErrTransactionMemory
	}
	tx.bytes += bytes
	return nil
}

// end gives back what a transaction holds.
func (l *transactions) end(tx *Transaction) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.held, string(heldName(nil, tx.table.id, tx.prefix)))
	l.bytes.Give(tx.owner, tx.bytes)
	l.open.Add(-1)
}

// all returns the open transactions.
func (l *transactions) all() []*Transaction {
	l.mu.RLock()
	defer l.mu.RUnlock()
	list := make([]*Transaction, 0, len(l.held))
	for _, tx := range l.held {
		list = append(list, tx)
	}
	return list
}

// admits returns ErrConflict if a transaction holds the partition key of a row. REQUIRES: the
// caller holds the row's latch, and keeps it until its write is applied.
func (l *transactions) admits(t *Table, key []byte) error {
	if l.open.Load() == 0 {
		return nil
	}
	prefix, _ := row.PartitionPrefix(key, t.columns)
	var buffer [64]byte
	name := heldName(buffer[:0], t.id, prefix)
	l.mu.RLock()
	defer l.mu.RUnlock()
	if l.held[string(name)] != nil {
		return conflict(t)
	}
	return nil
}

func conflict(t *Table) error {
	return fmt.Errorf("%w: a transaction of table %q holds the partition key", ErrConflict, t.name)
}
