package sstable

import (
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/flagstone-db/flagstone/internal/cache"
	"github.com/flagstone-db/flagstone/internal/offheap/offheaptest"
	"github.com/flagstone-db/flagstone/internal/vfs"
)

// jumpyClock makes one access in ten slow, so that readers change between mapping and calls.
func jumpyClock(seed uint64) func() time.Duration {
	var mu sync.Mutex
	rng, now := rand.New(rand.NewPCG(seed, 5)), time.Duration(0)
	return func() time.Duration {
		mu.Lock()
		defer mu.Unlock()
		now += time.Microsecond
		if rng.IntN(20) == 0 {
			now += time.Millisecond
		}
		return now
	}
}

func TestDamageIsFoundThroughAMapping(t *testing.T) {
	for _, compression := range []Compression{CompressNone, CompressS2, CompressZstd} {
		table, data := damageFile(t, compression)
		c := NewBlockCache(cache.Options{Capacity: 1 << 20, Memory: offheaptest.New(t)})
		for at := int64(0); at < openFile(t, &memFile{data: data}, nil).footer.dataLength; at += 11 {
			r, err := Open(&memFile{data: data}, ReaderOptions{FileName: damagedName, Cache: c, Mapped: true})
			if err != nil {
				t.Fatal(err)
			}
			data[at] ^= 0x10
			for _, opts := range []IterOptions{{}, {NoCacheFill: true}} {
				it := r.NewIterator(opts)
				err := table.checkAll(it)
				if !errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), damagedName) {
					t.Fatalf("%v, byte %d: %v", compression, at, err)
				}
				it.Close()
			}
			data[at] ^= 0x10
			it := r.NewIterator(IterOptions{})
			if err := table.checkAll(it); err != nil {
				t.Fatalf("undamaged again: %v", err)
			}
			it.Close()
			if err := r.Close(); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// If a file is cut while it is mapped, exactly the reads of the missing part fail, with every
// compression.
func TestAPageThatCannotBeReadIsAnErrorOfTheRead(t *testing.T) {
	for _, compression := range []Compression{CompressNone, CompressS2, CompressZstd} {
		table := sortedBenchTable(2000)
		f := &memFile{}
		table.write(t, f, WriterOptions{Compression: compression})
		name := filepath.Join(t.TempDir(), damagedName)
		if err := os.WriteFile(name, f.data, 0o600); err != nil {
			t.Fatal(err)
		}
		file, err := vfs.OS().Open(name, vfs.OpenOptions{})
		if err != nil {
			t.Fatal(err)
		}
		r, err := Open(file, ReaderOptions{FileName: name, Mapped: true, Cache: NewBlockCache(cache.Options{Capacity: 8 << 10})})
		if err != nil {
			t.Fatal(err)
		}
		const kept = 64 << 10
		if err := os.Truncate(name, kept); err != nil {
			t.Fatal(err)
		}
		it := r.NewIterator(IterOptions{})
		for range 2 {
			rows := 0
			for ok := it.First(); ok; ok = it.NextRow() {
				rows++
			}
			if err := it.Error(); err == nil || !strings.Contains(err.Error(), damagedName) || rows == 0 || rows == len(table) {
				t.Fatalf("%v: error %v after %d rows", compression, err, rows)
			}
			if r.mapping != nil && !errors.Is(it.Error(), vfs.ErrFault) {
				t.Fatalf("%v: error %v", compression, it.Error())
			}
		}
		if err := os.WriteFile(name, f.data, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := table.checkAll(it); err != nil {
			t.Fatalf("%v: after the file was restored: %v", compression, err)
		}
		it.Close()
		if err := r.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
