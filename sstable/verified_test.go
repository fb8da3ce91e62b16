package sstable

import (
	"bytes"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/flagstone-db/flagstone/internal/cache"
)

// readAll touches every cell of the file.
func readAll(it *Iterator) error {
	for ok := it.First(); ok; ok = it.NextRow() {
		for ok := it.FirstCell(); ok; ok = it.NextCell() {
			_ = it.Cell()
		}
	}
	return it.Error()
}

// believing is a mapped file, with a clock of its own, of which iterators may believe values
// for an interval.
type believing struct {
	*Reader
	t    *testing.T
	data []byte
	now  time.Duration
}

func openBelieving(t *testing.T, table modelTable, interval time.Duration, cacheBytes int64) *believing {
	t.Helper()
	f := &memFile{}
	table.write(t, f, WriterOptions{})
	b := &believing{t: t, data: f.data, now: time.Hour}
	opts := ReaderOptions{
		FileName: damagedName, Mapped: true, VerifyInterval: interval, Elapsed: func() time.Duration { return b.now },
	}
	if cacheBytes > 0 {
		opts.Cache = NewBlockCache(cache.Options{Capacity: cacheBytes})
	}
	var err error
	b.Reader, err = Open(f, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.Close() })
	return b
}

func (b *believing) read(opts IterOptions) error {
	it := b.NewIterator(opts)
	defer it.Close()
	return readAll(it)
}

// lastOf returns where the last byte of the head, or of the first segment, of a block lies.
func (b *believing) lastOf(number int, head bool) int64 {
	b.t.Helper()
	begin, end := b.index.blockRange(number)
	if head {
		return end - headLengthSize - trailerSize - 1
	}
	it := b.NewIterator(IterOptions{})
	defer it.Close()
	if !it.load(number, number) {
		b.t.Fatal(it.Error())
	}
	return begin + int64(it.blocks.block.partEnd.at(it.blocks.block.data, 0)) - trailerSize - 1
}

// A scan may believe values for less than the interval after a verification. After that it
// finds damage. Gets, compactions and readers that believe nothing find it at once.
func TestScansBelieveValuesForTheIntervalAndOthersNever(t *testing.T) {
	for _, interval := range []time.Duration{5 * time.Second, 0} {
		b := openBelieving(t, sortedBenchTable(2000), interval, 0)
		for range 2 {
			if err := b.read(IterOptions{Believe: true}); err != nil {
				t.Fatal(err)
			}
			b.now += interval - 2*time.Millisecond // belief does not renew the verification
		}
		b.now -= interval - 3*time.Millisecond
		b.data[b.lastOf(3, false)] ^= 1
		if err := b.read(IterOptions{Believe: true}); interval > 0 && err != nil || interval == 0 && !errors.Is(err, ErrCorrupt) {
			t.Fatalf("interval %v: %v", interval, err)
		}
		for _, opts := range []IterOptions{{}, {NoCacheFill: true}} {
			if err := b.read(opts); !errors.Is(err, ErrCorrupt) {
				t.Fatalf("interval %v, %+v: %v", interval, opts, err)
			}
		}
		b.now += time.Millisecond
		if err := b.read(IterOptions{Believe: true}); !errors.Is(err, ErrCorrupt) {
			t.Fatalf("interval %v is over: %v", interval, err)
		}
	}
}

// Values that go to the cache are verified again, however lately that was done. So damage
// does not outlive its cause in the file.
func TestNothingUnverifiedGoesToTheCache(t *testing.T) {
	const number = 3
	for _, head := range []bool{true, false} {
		b := openBelieving(t, wordTable(200, true), time.Hour, 8<<20)
		at := b.lastOf(number, head)
		if err := b.read(IterOptions{Believe: true}); err != nil {
			t.Fatal(err)
		}
		b.cached.Evict(number)
		b.data[at] ^= 1
		if err := b.read(IterOptions{Believe: true}); !errors.Is(err, ErrCorrupt) {
			t.Errorf("damage in the head %t: %v", head, err)
		}
		b.data[at] ^= 1
		if err := b.read(IterOptions{Believe: true}); err != nil {
			t.Errorf("undamaged again: %v", err)
		}
	}
}

// If two accesses verify at once, the later may be noted first. Segments of the earlier one
// count from its own beginning.
func TestAVerificationIsBelievedFromTheBeginningOfItsAccess(t *testing.T) {
	now := time.Duration(0)
	v := verifications{elapsed: func() time.Duration { return now }, interval: 10 * time.Second, blocks: make([]atomic.Uint64, 1)}
	v.note(0, 2, 9*time.Second)
	v.note(0, 3, time.Second)
	for _, c := range []struct {
		segment int
		now     time.Duration
		want    bool
	}{{3, 10 * time.Second, true}, {3, 11 * time.Second, false}, {2, 11 * time.Second, false}, {4, 2 * time.Second, false}} {
		now = c.now
		if _, lately := v.begin(0); lately>>c.segment&1 != 0 != c.want {
			t.Errorf("segment %d at %v: not %t", c.segment, c.now, c.want)
		}
	}
}

// A verification that is noted after an access has read its bytes says nothing about them.
func TestAVerificationSaysNothingOfWhatWasReadBefore(t *testing.T) {
	const number = 3
	b := openBelieving(t, sortedBenchTable(2000), time.Hour, 0)
	at := b.lastOf(number, false)
	it := b.NewIterator(IterOptions{Believe: true})
	defer it.Close()
	if !it.load(number, number) {
		t.Fatal(it.Error())
	}
	from, _ := b.index.blockRange(number)
	to := at + 1 + trailerSize
	b.data[at] ^= 1
	stored, err := it.blocks.bytes.read(from, to, to)
	if err != nil || !it.blocks.bytes.mapped {
		t.Fatal(it.blocks.bytes.mapped, err)
	}
	b.data[at] ^= 1 // as if the page was read from the device again
	if err := b.read(IterOptions{Believe: true}); err != nil {
		t.Fatal(err)
	}
	if _, bad := it.blocks.split(0, stored, from, false); bad == "" {
		t.Error("bytes are believed that were never verified")
	}
}

// The bytes that access returns are a copy. Later changes of the file, even while the bytes
// are verified, do not reach it.
func TestWhatIsVerifiedIsACopy(t *testing.T) {
	f := &memFile{}
	sortedBenchTable(2000).write(t, f, WriterOptions{})
	r, err := Open(f, ReaderOptions{FileName: damagedName, Mapped: true})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	it := r.NewIterator(IterOptions{})
	defer it.Close()
	from, to := r.index.blockRange(3)
	stored, err := it.blocks.bytes.read(from, to, to)
	if err != nil || !it.blocks.bytes.mapped {
		t.Fatal(it.blocks.bytes.mapped, err)
	}
	want := bytes.Clone(f.data[from:to])
	clear(f.data[from:to])
	if !bytes.Equal(stored, want) {
		t.Fatal("a change of the file is seen in what was read before")
	}
}
