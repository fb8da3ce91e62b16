package load

import (
	"math"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/flagstone-db/flagstone/internal/prefetch"
)

// HalfLife is the time in which an operation loses half of its weight in the rates and in the
// sample.
const HalfLife = 20 * time.Second

// UnitBytes is how much one capacity unit reads or writes.
const UnitBytes = 4096

const (
	// stripes is the number of cache lines that count. A caller that stays in one stripe while it
	// stays on one processor takes no cache line from another processor.
	stripes = 8
	// sampleUnits is about how many capacity units of a stripe are counted before a key is sampled.
	sampleUnits = 1 << sampleBits
	sampleBits  = 6

	// A counter holds the capacity units, rows and bytes of operations in one word. It is emptied
	// at 2*sampleUnits units or earlier. Operations above one of the maxima go past it, so it has
	// room for hundreds more, which may come at the same moment.
	unitsShift = 48
	rowsShift  = 28
	maxUnits   = 16
	maxRows    = 1024
)

// Meter measures the load of one partition. Its methods are safe for concurrent use. It takes 0.75
// KiB, and once it is used another 6 KiB and the sampled keys, maxSample times maxKept at most.
type Meter struct {
	striped [stripes]stripe
	counts  [kinds]totals
	passed  atomic.Int64
	columns int // of the table's key

	mu      sync.Mutex
	looked  time.Duration // when Look was called last
	seen    [kinds]counts // by Look
	skipped int64         // the same, of passed
	figures Figures
	sample  sample
}

// kind is what an operation does.
type kind int

const (
	reading kind = iota
	writing
	kinds
)

// stripe is one cache line of counters.
type stripe struct {
	counted [kinds]atomic.Uint64
	random  atomic.Uint64 // decides when a counter is emptied
	_       [40]byte
}

// totals are what counters were emptied into.
type totals struct{ rows, bytes, units atomic.Int64 }

// counts are operations counted.
type counts struct{ rows, bytes, units int64 }

// Rate is a decayed average per second.
type Rate struct {
	Rows  float64
	Bytes float64
	Units float64 // capacity units
}

// Figures are the load of a partition.
type Figures struct {
	Read, Write Rate
	// Passed is how many rows that do not exist scans pass per second. They have no units: their number is not what a
	// client asks for.
	Passed float64
}

// Units is the load in capacity units per second.
func (f Figures) Units() float64 { return f.Read.Units + f.Write.Units }

// New returns the meter of a partition whose keys have so many columns. now is a reading of a
// monotonic clock, as everywhere in this package.
func New(columns int, now time.Duration) *Meter { return &Meter{columns: columns, looked: now} }

// Read counts a read of so many rows, which may be none, and bytes. key is one of the rows, or the
// row that was sought; it is not kept. stripe is any number; goroutines that read at the same time
// should have different ones. A scan calls Read for every few units, so that the keys tell where it
// reads.
func (m *Meter) Read(stripe uint32, key []byte, rows, bytes int) {
	m.count(reading, stripe, key, rows, bytes)
}

// Pass counts rows that a scan passed since they do not exist.
func (m *Meter) Pass(rows int) {
	if rows > 0 {
		m.passed.Add(int64(rows))
	}
}

// Write counts a write of one row; otherwise it is as Read.
func (m *Meter) Write(stripe uint32, key []byte, bytes int) { m.count(writing, stripe, key, 1, bytes) }

// Expect prefetches what a call with the stripe changes. It takes no address by &: Go would read the Meter first.
func (m *Meter) Expect(stripe uint32) {
	at := unsafe.Offsetof(m.striped) + uintptr(stripe%stripes)*unsafe.Sizeof(m.striped[0])
	prefetch.Range(uintptr(unsafe.Pointer(m))+at, 1)
}

func (m *Meter) count(k kind, stripe uint32, key []byte, rows, bytes int) {
	units := max(uint(bytes+UnitBytes-1)/UnitBytes, 1)
	if units > maxUnits || rows > maxRows {
		m.counts[k].add(int64(rows), int64(bytes), int64(units))
		m.touch(k, key, int64(units))
		return
	}
	s := &m.striped[stripe%stripes]
	counted := s.counted[k].Add(uint64(units)<<unitsShift | uint64(rows)<<rowsShift | uint64(bytes))
	if counted>>unitsShift > s.random.Load()>>(64-sampleBits-1) {
		m.empty(s, k, key)
	}
}

// empty empties a counter into the totals, and samples the key. The distances between these moments
// are random, so that no pattern of operations escapes the sample.
func (m *Meter) empty(s *stripe, k kind, key []byte) {
	s.random.Store(s.random.Load()*6364136223846793005 + 1442695040888963407)
	c := split(s.counted[k].Swap(0))
	if c.units > 0 {
		m.counts[k].add(c.rows, c.bytes, c.units)
		m.touch(k, key, c.units)
	}
}

// split returns what a counter holds.
func split(counted uint64) counts {
	return counts{
		rows:  int64(counted >> rowsShift & (1<<(unitsShift-rowsShift) - 1)),
		bytes: int64(counted & (1<<rowsShift - 1)),
		units: int64(counted >> unitsShift),
	}
}

func (t *totals) add(rows, bytes, units int64) {
	t.rows.Add(rows)
	t.bytes.Add(bytes)
	t.units.Add(units)
}

// sum is all that was counted. It may be too low or too high for a moment, by what is in a counter
// that is being emptied.
func (m *Meter) sum(k kind) counts {
	t := &m.counts[k]
	sum := counts{t.rows.Load(), t.bytes.Load(), t.units.Load()}
	for i := range m.striped {
		c := split(m.striped[i].counted[k].Load())
		sum = counts{sum.rows + c.rows, sum.bytes + c.bytes, sum.units + c.units}
	}
	return sum
}

// touch offers a key to the sample. While another goroutine holds the sample, the key is forgotten.
func (m *Meter) touch(k kind, key []byte, units int64) {
	if m.mu.TryLock() {
		m.sample.offer(k, key, m.columns, units, m.looked)
		m.mu.Unlock()
	}
}

// Look returns the load up to now. The times between the calls need not be equal. Keys that are
// sampled until the next call count as touched now.
func (m *Meter) Look(now time.Duration) Figures {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.look(now)
	return m.figures
}

// look is Look. REQUIRES: mu is held.
func (m *Meter) look(now time.Duration) {
	since := now - m.looked
	if since <= 0 {
		return
	}
	m.looked = now
	kept := math.Exp2(-float64(since) / float64(HalfLife))
	part := (1 - kept) / since.Seconds()
	for k, rate := range []*Rate{reading: &m.figures.Read, writing: &m.figures.Write} {
		sum, seen := m.sum(kind(k)), &m.seen[k]
		rate.Rows = kept*rate.Rows + part*rise(&seen.rows, sum.rows)
		rate.Bytes = kept*rate.Bytes + part*rise(&seen.bytes, sum.bytes)
		rate.Units = kept*rate.Units + part*rise(&seen.units, sum.units)
	}
	m.figures.Passed = kept*m.figures.Passed + part*rise(&m.skipped, m.passed.Load())
}

// rise sets what was seen of a sum to its present value, and returns the difference.
func rise(seen *int64, sum int64) float64 {
	more := max(sum-*seen, 0)
	*seen += more
	return float64(more)
}

// Sample returns the keys of a few of the last operations.
func (m *Meter) Sample() Sample {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.sample.copy(m.columns)
}

// Divide returns meters for the two parts of a partition that is split at a key. They begin with
// the load and the sample that the partition had on their sides of the key, so that a split does
// not look like a loss of load. What is counted in m later is in neither of them.
func (m *Meter) Divide(at []byte, now time.Duration) (left, right *Meter) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.look(now)
	left, right = New(m.columns, now), New(m.columns, now)
	below := m.sample.divide(at, &left.sample, &right.sample)
	left.figures = m.figures.times(below)
	right.figures = m.figures.times(1 - below)
	return left, right
}

// Join returns a meter for a partition that is merged from two. It begins with the load and the
// samples of both.
func Join(left, right *Meter, now time.Duration) *Meter {
	joined := New(left.columns, now)
	for _, m := range []*Meter{left, right} {
		m.mu.Lock()
		m.look(now)
		joined.figures = joined.figures.plus(m.figures)
		joined.sample.join(&m.sample)
		m.mu.Unlock()
	}
	return joined
}

func (f Figures) times(part float64) Figures {
	return Figures{f.Read.times(part), f.Write.times(part), f.Passed * part}
}

func (f Figures) plus(g Figures) Figures {
	return Figures{f.Read.plus(g.Read), f.Write.plus(g.Write), f.Passed + g.Passed}
}

func (r Rate) times(part float64) Rate { return Rate{r.Rows * part, r.Bytes * part, r.Units * part} }

func (r Rate) plus(s Rate) Rate { return Rate{r.Rows + s.Rows, r.Bytes + s.Bytes, r.Units + s.Units} }
