// Package table is one table as its readers, writers and transactions see it: its key, its
// partitions, its change log, and the eras in which its options stay as they are.
package table

import (
	"errors"
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/flagstone-db/flagstone/internal/clock"
	"github.com/flagstone-db/flagstone/internal/commit"
	"github.com/flagstone-db/flagstone/internal/storeclock"
	"github.com/flagstone-db/flagstone/internal/tablefiles"
	"github.com/flagstone-db/flagstone/manifest"
	"github.com/flagstone-db/flagstone/partition"
	"github.com/flagstone-db/flagstone/row"
)

var (
	// ErrClosed: the store of the table was closed.
	ErrClosed = errors.New("flagstone: closed")
	// ErrNotFound: the table was dropped.
	ErrNotFound = errors.New("flagstone: table not found")
	// ErrFrozen: the partition takes no writes for now.
	ErrFrozen = errors.New("flagstone: the partition is frozen")
	// ErrDetached: the partition is held elsewhere.
	ErrDetached = errors.New("flagstone: the partition is held elsewhere")
)

// Env is what the tables of a store have in common.
type Env struct {
	State    func() *manifest.State
	Pipeline *commit.Pipeline
	Files    *tablefiles.Registry
	Clock    clock.Clock
	Issued   *storeclock.Issued
	Closed   *atomic.Bool // whether the store is
	// PackFrom is the length from which values put into a table are packed.
	PackFrom int
}

// Table is a table, or the change log of one. Its methods are safe for concurrent use.
type Table struct {
	*Env
	ID   uint64
	Name string
	Key  []manifest.KeyColumn
	// Partitions covers the key space of the table.
	Partitions atomic.Pointer[partition.Map]
	Dropped    atomic.Bool

	// Era is replaced between two writes, and the options only between two eras.
	Era atomic.Pointer[Era]
	// Log is the change log that takes the records of the table's mutations, nil if there is none;
	// it changes between two eras.
	Log atomic.Pointer[Table]
	// LogOf is the table whose change log this is, 0 if it is no change log. LogAfter is as in the
	// manifest.
	LogOf, LogAfter uint64
	before          [][]byte // the columns whose old values the change log records, ascending
}

// Init sets a zero Table to a table of the manifest; trees are its partitions.
func (t *Table) Init(env *Env, meta *manifest.Table, trees []*partition.Tree) {
	t.Env, t.ID, t.Name, t.Key = env, meta.ID, meta.Name, meta.Key
	t.Partitions.Store(partition.NewMap(trees))
	t.Era.Store(&Era{Options: meta.Options})
	if l := meta.Log; l != nil {
		t.LogOf, t.LogAfter = l.Of, l.After
		for _, name := range slices.Compact(slices.Sorted(slices.Values(l.Before))) {
			t.before = append(t.before, []byte(name))
		}
	}
}

// Trees are the partitions, ascending.
func (t *Table) Trees() []*partition.Tree { return t.Partitions.Load().Trees() }

// Steady calls look with the partitions, and again if some were replaced meanwhile: a replaced tree is
// empty.
func (t *Table) Steady(look func(trees []*partition.Tree) error) error {
	for {
		m := t.Partitions.Load()
		if err := look(m.Trees()); err != nil || t.Partitions.Load() == m {
			return err
		}
	}
}

// LogTree is the only tree of a change log.
func (t *Table) LogTree() *partition.Tree { return t.Trees()[0] }

// Meta is the table's entry in the manifest, nil if it was dropped.
func (t *Table) Meta() *manifest.Table { return t.State().Table(t.ID) }

// Gone returns why a tree that was just pinned may have been empty: the store was closed, or the
// table dropped. Then a row that was not found may still exist.
func (t *Table) Gone() error {
	switch {
	case t.Closed.Load():
		return ErrClosed
	case t.Dropped.Load():
		return fmt.Errorf("%w: %q was dropped", ErrNotFound, t.Name)
	}
	return nil
}

// Writable returns why a partition takes no writes, an error that matches ErrFrozen or ErrDetached. It is
// nil if the partition takes them.
func (t *Table) Writable(tree *partition.Tree) error {
	switch held := tree.Held(); {
	case held == nil:
		return nil
	case held.Service == manifest.Frozen:
		return fmt.Errorf("%w: %s: %s", ErrFrozen, t.describe(tree), held.Reason)
	default:
		return fmt.Errorf("%w: %s: %s", ErrDetached, t.describe(tree), held.Reason)
	}
}

// Readable returns why a read at a sequence number must not use a partition that it has pinned, an error
// that matches ErrDetached: the rows are not here, or came from another store behind that number.
func (t *Table) Readable(tree *partition.Tree, seq uint64) error {
	if tree.Shows(seq) {
		return nil
	}
	if err := t.Writable(tree); errors.Is(err, ErrDetached) {
		return err
	}
	return fmt.Errorf("%w at the time of the read: %s came from another store later", ErrDetached, t.describe(tree))
}

// describe names a partition for people.
func (t *Table) describe(tree *partition.Tree) string {
	start, end := tree.Bounds()
	first, next := "the beginning", "the end"
	if v, ok := row.PartitionValueAt(start, len(t.Key)); ok {
		first = v.String()
	}
	if v, ok := row.PartitionValueAt(end, len(t.Key)); ok {
		next = v.String()
	}
	return fmt.Sprintf("table %q, partition %d from %s to %s", t.Name, tree.ID(), first, next)
}

// NewGetter pins the partition that holds a key, for a read that the caller closes.
func (t *Table) NewGetter(key []byte) *partition.Getter {
	for {
		if g := t.Find(key).NewGetter(); g != nil {
			return g
		}
	}
}

// Find is the partition that holds a key.
func (t *Table) Find(key []byte) *partition.Tree { return t.Partitions.Load().Find(key) }

// EncodeKey encodes a full primary key after checking it against the schema.
func (t *Table) EncodeKey(dst []byte, key []row.Value) ([]byte, error) {
	if len(key) != len(t.Key) {
		return nil, fmt.Errorf("%w: table %q: %d key values, the key has %d columns", commit.ErrInvalid, t.Name, len(key), len(t.Key))
	}
	for i, v := range key {
		if v.Type() != t.Key[i].Type {
			return nil, t.wrongType(i, v)
		}
	}
	return t.EncodeBound(dst, key)
}

// DecodeKey decodes an encoded key for a message. The values share memory with key. One that cannot be
// decoded is shown as it is.
func (t *Table) DecodeKey(key []byte) []row.Value {
	tuple, err := row.DecodeKey(key, len(t.Key))
	if err != nil {
		return []row.Value{row.Binary(key)}
	}
	return tuple
}

// EncodeBound encodes a bound: a key or a prefix of its values, in which any value may be row.Min
// or row.Max.
func (t *Table) EncodeBound(dst []byte, key []row.Value) ([]byte, error) {
	for i, v := range key {
		if i < len(t.Key) && v.Type().IsKeyType() && v.Type() != t.Key[i].Type {
			return nil, t.wrongType(i, v)
		}
	}
	b, err := row.AppendKey(dst, len(t.Key), key...)
	if err != nil {
		return nil, fmt.Errorf("%w: table %q: %w", commit.ErrInvalid, t.Name, err)
	}
	return b, nil
}

func (t *Table) wrongType(column int, v row.Value) error {
	return fmt.Errorf("%w: table %q: key column %q is %s, got %s",
		commit.ErrInvalid, t.Name, t.Key[column].Name, t.Key[column].Type, v.Type())
}
