package txn

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"pgregory.net/rapid"

	"github.com/flagstone-db/flagstone/internal/change"
	"github.com/flagstone-db/flagstone/internal/share"
	"github.com/flagstone-db/flagstone/internal/table"
	"github.com/flagstone-db/flagstone/manifest"
	"github.com/flagstone-db/flagstone/partition"
	"github.com/flagstone-db/flagstone/row"
)

func key(t interface{ Fatal(...any) }, values ...row.Value) []byte {
	b, err := row.AppendKey(nil, len(values), values...)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// prefix is the partition key of a row with these values.
func prefix(t interface{ Fatal(...any) }, partition string) []byte {
	p, ok := row.PartitionPrefix(key(t, row.String(partition), row.Integer(0)), 2)
	if !ok {
		t.Fatal("no partition key")
	}
	return p
}

// holding makes a transaction of a partition key, which has not taken it yet.
func holding(set *Set, id uint64, prefix []byte) *Transaction {
	return &Transaction{set: set, table: &table.Table{ID: id}, name: string(appendName(nil, id, prefix))}
}

// admits reports whether a row with these key values can be changed.
func admits(t interface{ Fatal(...any) }, set *Set, id uint64, values ...row.Value) bool {
	of := &table.Table{ID: id, Key: make([]manifest.KeyColumn, len(values))}
	for i, v := range values {
		of.Key[i].Type = v.Type()
	}
	of.Partitions.Store(partition.NewMap([]*partition.Tree{new(partition.Tree)}))
	var c change.Change
	if c.Init(of, values); c.Err != nil {
		t.Fatal(c.Err)
	}
	return set.Admits(&c) == nil
}

// TestKeysAndMemoryAreHeldByOne compares any calls with a model.
func TestKeysAndMemoryAreHeldByOne(t *testing.T) {
	const total = 100
	type held struct {
		tx    *Transaction
		bytes int64
	}
	rapid.Check(t, func(t *rapid.T) {
		memory := share.NewPool(total)
		keys := NewSet(Parts{Memory: memory})
		model := map[string]*held{}
		used := int64(0)
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			table, partition := rapid.Uint64Range(1, 2).Draw(t, "table"), rapid.SampledFrom([]string{"a", "ab", ""}).Draw(t, "partition")
			name := fmt.Sprint(table, partition)
			bytes := rapid.Int64Range(1, 40).Draw(t, "bytes")
			have := model[name]
			var err, want error
			switch {
			case have == nil || rapid.IntRange(0, 3).Draw(t, "step") == 0:
				h := holding(keys, table, prefix(t, partition))
				if err = h.take(bytes); have != nil {
					want = ErrConflict
				} else if used+bytes > total {
					want = ErrMemory
				} else {
					model[name] = &held{h, bytes}
					used += bytes
				}
			case rapid.Bool().Draw(t, "charge"):
				if bytes = max(bytes-20, 1-have.bytes); used+bytes > total {
					want = ErrMemory
				} else {
					have.bytes += bytes
					used += bytes
				}
				err = have.tx.charge(bytes)
			default:
				have.tx.release()
				used -= have.bytes
				delete(model, name)
			}
			if !errors.Is(err, want) || memory.Used() != used || len(keys.All()) != len(model) {
				t.Fatalf("%v, want %v; %d bytes, want %d; %v of %d", err, want, memory.Used(), used, keys.All(), len(model))
			}
			for _, table := range []uint64{1, 2} {
				for _, partition := range []string{"a", "ab", "", "b"} {
					if got, want := admits(t, keys, table, row.String(partition), row.Integer(7)), model[fmt.Sprint(table, partition)] == nil; got != want {
						t.Fatalf("table %d admits %q: %v", table, partition, got)
					}
				}
			}
		}
	})
}

func TestAKeyOfOneColumnIsItsPartitionKey(t *testing.T) {
	keys := NewSet(Parts{Memory: share.NewPool(100)})
	h := holding(keys, 1, key(t, row.Integer(7)))
	if !admits(t, keys, 1, row.Integer(7)) {
		t.Error("a key is held before Take")
	}
	if err := h.take(10); err != nil {
		t.Fatal(err)
	}
	if admits(t, keys, 1, row.Integer(7)) || !admits(t, keys, 1, row.Integer(8)) || !slices.Equal(keys.All(), []*Transaction{h}) {
		t.Error("another key is held")
	}
	if h.release(); !admits(t, keys, 1, row.Integer(7)) {
		t.Error("a key is held after Release")
	}
}

// TestOneTransactionAtATimeHoldsAKey takes a key from several goroutines.
func TestOneTransactionAtATimeHoldsAKey(t *testing.T) {
	memory := share.NewPool(1000)
	keys := NewSet(Parts{Memory: memory})
	p := prefix(t, "p")
	var inside, taken atomic.Int64
	var group sync.WaitGroup
	for range 4 {
		group.Go(func() {
			for range 500 {
				h := holding(keys, 1, p)
				if h.take(1) != nil {
					continue
				}
				if n := inside.Add(1); n != 1 || admits(t, keys, 1, row.String("p"), row.Integer(7)) {
					t.Errorf("%d hold the key", n)
				}
				taken.Add(1)
				inside.Add(-1)
				h.release()
			}
		})
	}
	group.Wait()
	if taken.Load() == 0 || memory.Used() != 0 || len(keys.All()) != 0 {
		t.Errorf("taken %d times; in the end %d bytes, %v", taken.Load(), memory.Used(), keys.All())
	}
}
