package txn_test

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"pgregory.net/rapid"

	"github.com/flagstone-db/flagstone/internal/share"
	"github.com/flagstone-db/flagstone/internal/txn"
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

// TestKeysAndMemoryAreHeldByOne compares any calls with a model.
func TestKeysAndMemoryAreHeldByOne(t *testing.T) {
	const total = 100
	type held struct {
		hold  *txn.Hold[int]
		bytes int64
	}
	rapid.Check(t, func(t *rapid.T) {
		memory := share.NewPool(total)
		keys := txn.NewKeys[int](memory)
		model := map[string]*held{}
		used := int64(0)
		for n := range rapid.IntRange(1, 40).Draw(t, "steps") {
			table, partition := rapid.Uint64Range(1, 2).Draw(t, "table"), rapid.SampledFrom([]string{"a", "ab", ""}).Draw(t, "partition")
			name := fmt.Sprint(table, partition)
			bytes := rapid.Int64Range(1, 40).Draw(t, "bytes")
			have := model[name]
			var err, want error
			switch {
			case have == nil || rapid.IntRange(0, 3).Draw(t, "step") == 0:
				h := keys.Hold(n, table, prefix(t, partition), share.User{})
				if err = h.Take(bytes); have != nil {
					want = txn.ErrHeld
				} else if used+bytes > total {
					want = txn.ErrMemory
				} else {
					model[name] = &held{h, bytes}
					used += bytes
				}
			case rapid.Bool().Draw(t, "charge"):
				if bytes = max(bytes-20, 1-have.bytes); used+bytes > total {
					want = txn.ErrMemory
				} else {
					have.bytes += bytes
					used += bytes
				}
				err = have.hold.Charge(bytes)
			default:
				have.hold.Release()
				used -= have.bytes
				delete(model, name)
			}
			if !errors.Is(err, want) || memory.Used() != used || len(keys.All()) != len(model) {
				t.Fatalf("%v, want %v; %d bytes, want %d; %v of %d", err, want, memory.Used(), used, keys.All(), len(model))
			}
			for _, table := range []uint64{1, 2} {
				for _, partition := range []string{"a", "ab", "", "b"} {
					row := key(t, row.String(partition), row.Integer(7))
					if got, want := keys.Admits(table, row, 2), model[fmt.Sprint(table, partition)] == nil; got != want {
						t.Fatalf("table %d admits %q: %v", table, partition, got)
					}
				}
			}
		}
	})
}

func TestAKeyOfOneColumnIsItsPartitionKey(t *testing.T) {
	keys := txn.NewKeys[string](share.NewPool(100))
	row7 := key(t, row.Integer(7))
	h := keys.Hold("tx", 1, row7, share.User{})
	if !keys.Admits(1, row7, 1) {
		t.Error("a key is held before Take")
	}
	if err := h.Take(10); err != nil {
		t.Fatal(err)
	}
	if keys.Admits(1, row7, 1) || !keys.Admits(1, key(t, row.Integer(8)), 1) || !slices.Equal(keys.All(), []string{"tx"}) {
		t.Error("another key is held")
	}
	if h.Release(); !keys.Admits(1, row7, 1) {
		t.Error("a key is held after Release")
	}
}

// TestOneTransactionAtATimeHoldsAKey takes a key from several goroutines.
func TestOneTransactionAtATimeHoldsAKey(t *testing.T) {
	memory := share.NewPool(1000)
	keys := txn.NewKeys[int](memory)
	p, row7 := prefix(t, "p"), key(t, row.String("p"), row.Integer(7))
	var inside, taken atomic.Int64
	var group sync.WaitGroup
	for who := range 4 {
		group.Go(func() {
			for range 500 {
				h := keys.Hold(who, 1, p, share.User{})
				if h.Take(1) != nil {
					continue
				}
				if n := inside.Add(1); n != 1 || keys.Admits(1, row7, 2) {
					t.Errorf("%d hold the key", n)
				}
				taken.Add(1)
				inside.Add(-1)
				h.Release()
			}
		})
	}
	group.Wait()
	if taken.Load() == 0 || memory.Used() != 0 || len(keys.All()) != 0 {
		t.Errorf("taken %d times; in the end %d bytes, %v", taken.Load(), memory.Used(), keys.All())
	}
}
