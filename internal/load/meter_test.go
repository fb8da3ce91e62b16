package load

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"
	"unsafe"

	"github.com/flagstone-db/flagstone/row"
)

// key returns the encoded key of a table with two columns.
func key(t testing.TB, partition row.Value, second int64) []byte {
	t.Helper()
	k, err := row.AppendKey(nil, 2, partition, row.Integer(second))
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// bound returns the encoded first column of key.
func bound(t testing.TB, partition row.Value) []byte {
	t.Helper()
	k, err := row.AppendKey(nil, 2, partition)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// near fails the test if a figure is not within part of want.
func near(t *testing.T, what string, got, want, part float64) {
	t.Helper()
	if math.Abs(got-want) > part*want {
		t.Errorf("%s is %.2f, want %.2f within %.0f%%", what, got, want, 100*part)
	}
}

func TestASteadyLoadIsShownAsItIs(t *testing.T) {
	for _, every := range []time.Duration{50 * time.Millisecond, time.Second, 7 * time.Second, time.Hour} {
		m := New(2, time.Minute)
		k := key(t, row.String("a"), 1)
		now := time.Minute
		var f Figures
		n := 0
		for now < time.Minute+20*HalfLife || f == (Figures{}) {
			now += every
			for i := range int(every / (10 * time.Millisecond)) { // 100 reads and 50 writes a second
				m.Read(uint32(i), k, 3, 5000)
				if n++; n%2 == 0 {
					m.Write(uint32(i), k, 100)
				}
			}
			f = m.Look(now)
		}
		near(t, "rows read", f.Read.Rows, 300, 0.01)
		near(t, "bytes read", f.Read.Bytes, 500_000, 0.01)
		near(t, "units read", f.Read.Units, 200, 0.01)
		near(t, "rows written", f.Write.Rows, 50, 0.05)
		near(t, "bytes written", f.Write.Bytes, 5000, 0.05)
		near(t, "units", f.Units(), 250, 0.02)
	}
}

func TestARateHalvesInAHalfLife(t *testing.T) {
	m := New(1, 0)
	for range 1000 {
		m.Write(0, []byte{0x20}, 10)
	}
	first := m.Look(time.Second).Write.Rows
	near(t, "the rate", m.Look(time.Second+HalfLife).Write.Rows, first/2, 1e-9)
	now := time.Second + HalfLife
	for range 30 { // many looks are as one
		now += HalfLife / 10
		m.Look(now)
	}
	near(t, "the rate", m.Look(now).Write.Rows, first/16, 1e-9)
}

func TestLooksAtOneMomentLoseNothing(t *testing.T) {
	m := New(1, time.Second)
	m.Look(time.Second)
	m.Read(0, []byte{0x20}, 1, 10)
	if f := m.Look(time.Second); f != (Figures{}) {
		t.Errorf("load after no time: %+v", f)
	}
	m.Look(0) // a clock that went back
	if f := m.Look(2 * time.Second); f.Read.Rows == 0 {
		t.Error("the read was lost")
	}
}

// TestUnitsAreThoseOfTableStore has sizes around the bounds of a unit and of a counter.
func TestUnitsAreThoseOfTableStore(t *testing.T) {
	for size, want := range map[int]int64{
		0: 1, 1: 1, 4096: 1, 4097: 2, 8192: 2, 65_535: 16, 65_536: 16, 65_537: 17, 1 << 20: 256, 3 << 30: 3 << 18,
	} {
		m := New(1, 0)
		m.Read(5, []byte{0x20}, 2000, size)
		m.Write(5, []byte{0x20}, size)
		if read, want := m.sum(reading), (counts{2000, int64(size), want}); read != want {
			t.Errorf("%d bytes: read %+v, want %+v", size, read, want)
		}
		if written, want := m.sum(writing), (counts{1, int64(size), want}); written != want {
			t.Errorf("%d bytes: wrote %+v, want %+v", size, written, want)
		}
	}
}

func TestManyRowsAtOnceAreCounted(t *testing.T) {
	for _, rows := range []int{0, 1024, 1025, 100_000, 1 << 30} {
		m := New(1, 0)
		for range 1000 {
			m.Read(3, []byte{0x20}, rows, 70)
		}
		if got, want := m.sum(reading), (counts{int64(rows) * 1000, 70_000, 1000}); got != want {
			t.Errorf("%d rows: %+v, want %+v", rows, got, want)
		}
	}
}

// TestNothingIsLostBetweenGoroutines counts while other goroutines look, sample and divide, with
// operations of all sizes in few stripes.
func TestNothingIsLostBetweenGoroutines(t *testing.T) {
	const writers, each = 4, 20_000
	m := New(2, 0)
	var rows, units [writers]int64
	var wg, lookers sync.WaitGroup
	done := make(chan struct{})
	for w := range writers {
		wg.Add(1)
		go func() {
			defer wg.Done()
			rng := rand.New(rand.NewPCG(uint64(w), 1))
			for i := range each {
				n, size := rng.IntN(1100), rng.IntN(70_000)
				m.Read(uint32(w/2), key(t, row.Integer(int64(w)), int64(i)), n, size)
				rows[w] += int64(n)
				units[w] += max(int64(size+4095)/4096, 1)
			}
		}()
	}
	lookers.Add(1)
	go func() {
		defer lookers.Done()
		for now := time.Duration(1); ; now++ {
			m.Sample()
			m.Divide(bound(t, row.Integer(2)), now)
			m.Look(now)
			select {
			case <-done:
				return
			default:
			}
		}
	}()
	wg.Wait()
	close(done)
	lookers.Wait()
	m.Look(time.Hour)
	var want counts
	for w := range writers {
		want.rows, want.units = want.rows+rows[w], want.units+units[w]
	}
	if got := m.sum(reading); got.rows != want.rows || got.units != want.units {
		t.Errorf("%+v, want %+v", got, want)
	}
	if m.seen[reading] != m.sum(reading) {
		t.Errorf("Look has seen %+v of %+v", m.seen[reading], m.sum(reading))
	}
	// Beside the others all keys may have been forgotten: see touch.
	for i := range maxSample {
		m.Read(0, key(t, row.Integer(1), int64(i)), maxRows+1, 1)
	}
	if n := m.Sample().Len(); n != maxSample {
		t.Errorf("%d keys in the sample, want %d", n, maxSample)
	}
}

func TestAMeterIsSmallAndCountsWithoutAllocations(t *testing.T) {
	if size := unsafe.Sizeof(Meter{}); size > 1024 {
		t.Errorf("a meter takes %d bytes", size)
	}
	if size := unsafe.Sizeof(stripe{}); size != 64 {
		t.Errorf("a stripe takes %d bytes", size)
	}
	m := New(2, 0)
	keys := make([][]byte, 1000)
	for i := range keys {
		keys[i] = key(t, row.String(fmt.Sprint("a device with a number, ", i)), 0)
	}
	n := 0
	use := func() {
		k := keys[n%len(keys)]
		m.Read(uint32(n), k, 1, 100)
		m.Write(uint32(n), k, 100_000)
		m.Look(time.Duration(n) * time.Millisecond)
		n++
	}
	for range 100_000 {
		use() // until no buffer of the sample has to grow
	}
	if allocs := testing.AllocsPerRun(10_000, use); allocs != 0 {
		t.Errorf("%v allocations per operation", allocs)
	}
}

// use makes a meter count reads of a second, each of a key that pick chooses, and look.
func use(m *Meter, second *time.Duration, reads int, pick func() []byte) {
	for i := range reads {
		m.Read(uint32(i), pick(), 1, 100)
	}
	*second += time.Second
	m.Look(*second)
}

func TestHalfDividesTheLoadAndNotTheKeys(t *testing.T) {
	for seed := range uint64(20) {
		rng := rand.New(rand.NewPCG(seed, 0))
		m, now := New(2, 0), time.Duration(0)
		// Partition keys 900 to 999 get 80 % of the operations, so half of all is below 937.
		for range 60 {
			use(m, &now, 1000, func() []byte {
				p := rng.Int64N(1000)
				if rng.IntN(100) < 78 {
					p = 900 + rng.Int64N(100)
				}
				return key(t, row.Integer(p), rng.Int64N(10))
			})
		}
		s := m.Sample()
		if s.Len() != maxSample {
			t.Fatalf("%d keys in the sample", s.Len())
		}
		at, below := s.Half()
		near(t, "the part below by the sample", below, 0.5, 0.06)
		v, err := row.DecodeKey(at, 2)
		if err != nil || len(v) != 1 {
			t.Fatalf("%x is no bound: %v, %v", at, v, err)
		}
		p := float64(v[0].Int64())
		near(t, "the part below", 0.22*p/1000+0.78*(p-900)/100, 0.5, 0.35)
		if got := s.Below(at); got != below {
			t.Errorf("Below is %v, Half says %v", got, below)
		}
	}
}

func TestThePartOfAKeyInTheSampleIsItsPartOfTheLoad(t *testing.T) {
	for _, part := range []int{10, 30, 60, 95, 100} {
		rng := rand.New(rand.NewPCG(uint64(part), 0))
		m, now := New(2, 0), time.Duration(0)
		for range 60 {
			use(m, &now, 1000, func() []byte {
				if rng.IntN(100) < part {
					return key(t, row.String("hot"), rng.Int64N(1e6))
				}
				return key(t, row.String(fmt.Sprint(rng.Uint32())), 0)
			})
		}
		hot, got := m.Sample().Heaviest()
		if !bytes.Equal(hot, bound(t, row.String("hot"))) || math.Abs(got-float64(part)/100) > 0.12 {
			t.Errorf("%d%%: %x has %.2f", part, hot, got)
		}
	}
}

// TestLargeOperationsWeighMore has a key with few large reads and one with many small ones, at equal
// units.
func TestLargeOperationsWeighMore(t *testing.T) {
	for _, size := range []int{40_000, 400_000} { // one is counted in a stripe, the other past it
		m, now := New(2, 0), time.Duration(0)
		small, large := key(t, row.String("small"), 0), key(t, row.String("large"), 0)
		units := (size + 4095) / 4096
		n := 0
		for range 60 {
			use(m, &now, 20*(units+1), func() []byte {
				n++
				if n%(units+1) == 0 {
					m.Read(0, large, 1, size)
				}
				return small
			})
		}
		if _, part := m.Sample().Heaviest(); part > 0.65 {
			t.Errorf("of two equal keys one has %.2f, with reads of %d bytes", part, size)
		}
	}
}

// TestAnOperationIsSampledByItsWeight offers as many heavy operations as light ones.
func TestAnOperationIsSampledByItsWeight(t *testing.T) {
	var s sample
	for i := range int64(10_000) {
		s.offer(reading, key(t, row.String("light"), i), 2, 10, 0)
		s.offer(writing, key(t, row.String("heavy"), i), 2, 90, 0)
	}
	sampled := s.copy(2)
	if hot, part := sampled.Heaviest(); !bytes.Equal(hot, bound(t, row.String("heavy"))) || math.Abs(part-0.9) > 0.1 {
		t.Errorf("%x has %.2f, want the heavy one at 0.9", hot, part)
	}
}

func TestTheSampleForgets(t *testing.T) {
	m, now := New(2, 0), time.Duration(0)
	for range 60 {
		use(m, &now, 2000, func() []byte { return key(t, row.String("early"), 0) })
	}
	for range 40 { // two half-lives at the same rate
		use(m, &now, 2000, func() []byte { return key(t, row.String("late"), 0) })
	}
	hot, part := m.Sample().Heaviest()
	if !bytes.Equal(hot, bound(t, row.String("late"))) || math.Abs(part-0.75) > 0.13 {
		t.Errorf("%x has %.2f, want the late one at 0.75", hot, part)
	}
	if newest := m.Sample().Newest(); newest.Below(bound(t, row.String("late"))) != 0 || newest.Len() < maxSample/4 {
		t.Errorf("the newer half of the sample has %d keys, %.2f of them early", newest.Len(),
			newest.Below(bound(t, row.String("late"))))
	}
}

func TestASlowPartitionIsSampledToo(t *testing.T) {
	m, now := New(2, 0), time.Duration(0)
	n := int64(0)
	for range 200 {
		use(m, &now, 20, func() []byte { n++; return key(t, row.Integer(n%100), 0) })
	}
	if m.Sample().Len() < 16 {
		t.Errorf("%d keys after 4000 reads", m.Sample().Len())
	}
}

func TestADividedMeterGoesOn(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 0))
	m, now := New(2, 0), time.Duration(0)
	for range 200 {
		use(m, &now, 1000, func() []byte { return key(t, row.Integer(rng.Int64N(1000)), 0) })
	}
	at := bound(t, row.Integer(250))
	left, right := m.Divide(at, now+time.Second)
	l, r, whole := left.Look(now+time.Second), right.Look(now+time.Second), m.Look(now+time.Second)
	near(t, "the units of both", l.Units()+r.Units(), whole.Units(), 1e-9)
	near(t, "the units on the left", l.Units(), 0.25*whole.Units(), 0.4)
	if n := left.Sample().Len() + right.Sample().Len(); n != maxSample || left.Sample().Below(at) != 1 || right.Sample().Below(at) != 0 {
		t.Errorf("%d keys in both samples, %.2f and %.2f below the bound", n, left.Sample().Below(at), right.Sample().Below(at))
	}
	before := m.Sample()
	joined := Join(left, right, now+time.Second)
	near(t, "the units of the joined", joined.Look(now+time.Second).Units(), whole.Units(), 1e-9)
	after := joined.Sample()
	for i := range before.list {
		if !bytes.Equal(before.list[i].key, after.list[i].key) || before.list[i].priority != after.list[i].priority {
			t.Fatalf("key %d is %x, was %x", i, after.list[i].key, before.list[i].key)
		}
	}
	// A sample that is full keeps the highest priorities of both.
	for range 200 {
		use(left, &now, 1000, func() []byte { return key(t, row.Integer(1), 0) })
		use(right, &now, 1000, func() []byte { return key(t, row.Integer(900), 0) })
	}
	if s := Join(left, right, now).Sample(); s.Len() != maxSample || math.Abs(s.Below(at)-0.5) > 0.2 {
		t.Errorf("%d keys, %.2f of them of the left one", s.Len(), s.Below(at))
	}
}

func TestAMeterWithoutOperationsDividesInHalves(t *testing.T) {
	m := New(1, 0)
	left, right := m.Divide([]byte{0x20, 5}, 1)
	if left.Look(2) != (Figures{}) || right.Look(2) != (Figures{}) || Join(left, right, 3).Sample().Len() != 0 {
		t.Error("load from nothing")
	}
	s := m.Sample()
	if at, below := s.Half(); at != nil || below != 0 {
		t.Errorf("half of nothing is at %x, %v", at, below)
	}
	if k, part := s.Heaviest(); k != nil || part != 0 {
		t.Errorf("the heaviest of nothing is %x, %v", k, part)
	}
	if s.Newest().Len() != 0 || s.Below([]byte{1}) != 0 {
		t.Error("an empty sample has a newest half")
	}
	m.touch(reading, []byte{0x99, 1}, 1) // not a key
	m.touch(reading, nil, 1)
	if m.Sample().Len() != 0 {
		t.Error("something that is not a key is sampled")
	}
}

// TestLongPartitionKeysAreCutToBounds has keys of one and of two columns whose encodings are cut
// everywhere, within an escaped byte also.
func TestLongPartitionKeysAreCutToBounds(t *testing.T) {
	for _, columns := range []int{1, 2} {
		for length := maxKept - 8; length < maxKept+4; length++ {
			for _, ending := range []string{"\x00\x00\x00", "abc", "\xff\x00\x01"} {
				m := New(columns, 0)
				for _, first := range []string{"a", "b"} {
					v := row.String(first + strings.Repeat("x", length) + ending)
					k, err := row.AppendKey(nil, columns, v)
					if err != nil {
						t.Fatal(err)
					}
					if columns == 2 {
						k, _ = row.AppendKey(nil, columns, v, row.Integer(3))
					}
					m.touch(reading, k, 1)
				}
				for _, sampled := range m.sample.list {
					if len(sampled.key) > maxKept {
						t.Fatalf("%d bytes of a key are kept", len(sampled.key))
					}
				}
				at, below := m.Sample().Half()
				prefix, ok := row.PartitionPrefix(at, columns)
				a, _ := row.AppendKey(nil, columns, row.String("b"))
				b, _ := row.AppendKey(nil, columns, row.String("b"+strings.Repeat("x", length)+ending))
				if !ok || len(prefix) != len(at) || below != 0.5 || bytes.Compare(a, at) >= 0 || bytes.Compare(at, b) > 0 {
					t.Fatalf("%d columns, %d bytes and %q: bound %x with %.2f below", columns, length, ending, at, below)
				}
			}
		}
	}
	if b := Bound([]byte{0x99}, 2); b != nil {
		t.Errorf("the bound of what is no key is %x", b)
	}
}
