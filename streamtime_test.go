package flagstone

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/flagstone-db/flagstone/row"
)

// TestRecordsExpire moves the clock: a reader that has not read expired records gets an error, a
// new reader does not see them, and a reader that has read everything never falls behind.
func TestRecordsExpire(t *testing.T) {
	r := newRig(t, Options{})
	table := r.streamed("t", StreamSpec{RetentionSeconds: 3600})
	st := table.Stream()
	begin := oldest(t, st)
	put(t, table, "p", 1, "c", startMillis, "x")
	r.clock.Advance(30 * time.Minute)
	put(t, table, "p", 2, "c", startMillis, "y")
	records, end := readStream(t, st, begin, StreamLimits{})
	if len(records) != 2 {
		t.Fatalf("%d records", len(records))
	}
	r.clock.Advance(30*time.Minute + 2*time.Second)
	if _, err := st.Read(ctx(), begin, StreamLimits{}); !isErr(err, ErrStreamTrimmed) {
		t.Errorf("a position before what has expired: %v", err)
	}
	if records, _ = readStream(t, st, oldest(t, st), StreamLimits{}); len(records) != 1 {
		t.Errorf("%d records are left", len(records))
	}
	idle := end
	for range 20 {
		page, err := st.Read(ctx(), idle, StreamLimits{})
		if err != nil || len(page.Records) > 0 || page.More {
			t.Fatalf("read at the end: %+v, %v", page, err)
		}
		if again, err := st.Read(ctx(), page.Next, StreamLimits{}); err != nil || again.Next != page.Next {
			t.Fatalf("at the end, the position went from %+v to %+v, %v", page.Next, again.Next, err)
		}
		idle = page.Next
		r.clock.Advance(20 * time.Minute)
	}
	if _, err := st.Read(ctx(), end, StreamLimits{}); !isErr(err, ErrStreamTrimmed) {
		t.Errorf("a position of long ago: %v", err)
	}
	put(t, table, "p", 3, "c", startMillis, "z")
	if records, _ = readStream(t, st, idle, StreamLimits{}); len(records) != 1 {
		t.Errorf("%d records after a long rest", len(records))
	}
	// The space of expired records is reclaimed.
	if err := r.store.Flush(ctx()); err != nil {
		t.Fatal(err)
	}
	r.clock.Advance(2 * time.Hour)
	r.exec.RunAll()
	r.clock.Advance(2 * time.Hour) // a jump is believed only after a probation
	r.exec.RunAll()
	if err := r.store.Compact(ctx()); err != nil {
		t.Fatal(err)
	}
	r.exec.RunAll()
	for _, m := range r.store.Metrics().Tables {
		if strings.Contains(m.Name, "stream") && m.Rows != 0 {
			t.Errorf("%s holds %d rows that have expired", m.Name, m.Rows)
		}
	}
}

func isErr(err, want error) bool {
	return err != nil && strings.Contains(fmt.Sprint(err), want.Error())
}

// TestAStreamBeginsWhereItIsAsked looks for records by time.
func TestAStreamBeginsWhereItIsAsked(t *testing.T) {
	r := newRig(t, Options{MemtableSize: 4 << 10})
	table := r.streamed("t", StreamSpec{RetentionSeconds: 1_000_000})
	st := table.Stream()
	seed := rand.Uint64()
	random := rand.New(rand.NewPCG(seed, 0))
	for i := range 300 {
		put(t, table, "p", i, "c", startMillis, "x")
		if random.IntN(3) == 0 {
			r.clock.Advance(time.Duration(random.IntN(3_000_000)) * time.Microsecond)
		}
		if i%50 == 0 {
			r.exec.RunAll()
		}
	}
	all, _ := readStream(t, st, oldest(t, st), StreamLimits{})
	if len(all) != 300 {
		t.Fatalf("%d records", len(all))
	}
	span := all[299].Micros - all[0].Micros
	for range 200 {
		since := all[0].Micros - 1000 + random.Int64N(span+2000)
		if i := random.IntN(600); i < 300 {
			since = all[i].Micros + random.Int64N(3) - 1
		}
		pos, err := st.Since(ctx(), st.Shards()[0].ID, since)
		if err != nil {
			t.Fatal(err)
		}
		records, _ := readStream(t, st, pos, StreamLimits{Records: 7})
		want := 0
		for want < 300 && all[want].Micros < since {
			want++
		}
		if len(records) != 300-want || len(records) > 0 && records[0].Sequence != all[want].Sequence {
			t.Errorf("seed %d: %d records since %d, want %d", seed, len(records), since, 300-want)
		}
	}
}

// TestWhatAStreamCosts writes the same to a table without a stream and to one with: the log takes
// the same bytes, the files of the change log are written once, and compactions do not write them
// again.
func TestWhatAStreamCosts(t *testing.T) {
	type cost struct{ log, flushed, merged int64 }
	write := func(spec *StreamSpec) (c cost, tables []TableMetrics) {
		r := newRig(t, Options{MemtableSize: 32 << 10, TableFileSize: 32 << 10, WALSegmentSize: 256 << 10})
		table, err := r.store.CreateTable(ctx(), TableSpec{
			Name: "t", Stream: spec,
			Key: []KeyColumn{{Name: "pk", Type: row.TypeString}, {Name: "n", Type: row.TypeInteger}},
		})
		if err != nil {
			t.Fatal(err)
		}
		random := rand.New(rand.NewPCG(1, 2))
		for range 8000 {
			put(t, table, fmt.Sprint("p", random.IntN(1000)), random.IntN(3), "c", startMillis, fmt.Sprintf("%016x%016x", random.Uint64(), random.Uint64()))
			r.exec.RunAll()
		}
		if err := r.store.Flush(ctx()); err != nil {
			t.Fatal(err)
		}
		r.exec.RunAll()
		m := r.store.Metrics()
		return cost{m.LogBytes, m.FlushedBytes, m.CompactedOut}, m.Tables
	}
	without, _ := write(nil)
	with, tables := write(&StreamSpec{RetentionSeconds: 3600})
	var size int64
	for _, m := range tables {
		if strings.Contains(m.Name, "stream") {
			for _, n := range m.Bytes {
				size += n
			}
		}
	}
	t.Logf("without %+v, with %+v, change log of %d bytes", without, with, size)
	if with.log != without.log {
		t.Errorf("the log took %d bytes with a stream, %d without", with.log, without.log)
	}
	if more := with.flushed + with.merged - without.flushed - without.merged; size == 0 || more > size*3/2 {
		t.Errorf("%d bytes more in files were written for a change log of %d", more, size)
	}
}

// TestWhoHasReadEverythingKeepsItsPlace reads a record shortly before it expires,
// the last one there is, and rests for less than half of the retention.
func TestWhoHasReadEverythingKeepsItsPlace(t *testing.T) {
	r := newRig(t, Options{})
	table := r.streamed("t", StreamSpec{RetentionSeconds: 3600})
	st := table.Stream()
	put(t, table, "p", 1, "c", startMillis, "x")
	r.clock.Advance(59 * time.Minute)
	records, end := readStream(t, st, oldest(t, st), StreamLimits{Records: 1})
	if len(records) != 1 {
		t.Fatalf("%d records", len(records))
	}
	if again, err := st.Read(ctx(), end, StreamLimits{}); err != nil || again.Next != end {
		t.Errorf("at the end, the position went from %+v to %+v, %v", end, again.Next, err)
	}
	put(t, table, "p", 2, "c", startMillis, "y")
	r.clock.Advance(25 * time.Minute)
	if records, _ = readStream(t, st, end, StreamLimits{}); len(records) != 1 {
		t.Errorf("%d records after a short rest", len(records))
	}
}
