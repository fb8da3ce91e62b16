package flagstone

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/flagstone-db/flagstone/cdc"
	"github.com/flagstone-db/flagstone/row"
)

// TestStreamsChangeUnderWriters enables and disables a stream, and at last drops the table, while
// others write and read: each stream has all that each writer wrote between two moments, in order
// and once.
func TestStreamsChangeUnderWriters(t *testing.T) {
	store, err := Open(t.TempDir(), Options{Sync: SyncNone, MemtableSize: 32 << 10, TableFileSize: 32 << 10, WALSegmentSize: 64 << 10})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	r := &rig{t: t, store: store}
	table := r.table("t", TableOptions{})
	const writers = 4
	var stopped atomic.Bool
	var group sync.WaitGroup
	for w := range writers {
		group.Go(func() {
			for i := 0; ; i++ {
				err := table.Put(ctx(), Key(fmt.Sprint("writer", w), i%5), "c", startMillis, row.Integer(int64(i)))
				if err != nil {
					if !stopped.Load() || !errors.Is(err, ErrTableNotFound) {
						t.Error(err)
					}
					return
				}
			}
		})
	}
	streams, total := 0, 0
	for range 25 {
		spec := &StreamSpec{RetentionSeconds: 3600}
		if streams%3 == 0 {
			spec.Before = []string{"c"}
		}
		wantError(t, "enable", table.Alter(ctx(), TableChange{Stream: &StreamChange{Enable: spec}}), nil)
		st := table.Stream()
		pos := oldest(t, st)
		done := make(chan int)
		go func() { done <- follow(t, st, pos) }()
		for range 3 {
			if _, _, err := st.barrier(ctx()); err != nil {
				t.Error(err)
			}
		}
		if err := store.Flush(ctx()); err != nil {
			t.Error(err)
		}
		if streams == 24 {
			stopped.Store(true)
			wantError(t, "drop", store.DropTable(ctx(), "t"), nil)
		} else {
			wantError(t, "disable", table.Alter(ctx(), TableChange{Stream: &StreamChange{}}), nil)
		}
		streams++
		total += <-done
	}
	group.Wait()
	if total == 0 {
		t.Error("no stream had a record")
	}
	if n := len(store.Metrics().Tables); n != 0 {
		t.Errorf("%d tables are left", n)
	}
}

// follow reads a stream until it is gone, and returns how many records it had.
func follow(t *testing.T, st *Stream, pos StreamPosition) (n int) {
	next := map[string]int64{}
	for {
		page, err := st.Read(ctx(), pos, StreamLimits{Records: 100})
		if err != nil {
			if !errors.Is(err, ErrStreamNotFound) {
				t.Error(err)
			}
			return n
		}
		for i := range page.Records {
			rec := &page.Records[i]
			v, err := row.PayloadValue(rec.Cells[0].Type, rec.Cells[0].Value)
			if err != nil {
				t.Error(err)
				return n
			}
			writer := rec.Key[0].Text()
			if want, seen := next[writer]; seen && v.Int64() != want {
				t.Errorf("%s: record of write %d, want %d", writer, v.Int64(), want)
				return n
			}
			if want := v.Int64() - 5; len(rec.Before) > 0 {
				if before, _ := row.PayloadValue(rec.Before[0].Type, rec.Before[0].Value); before.Int64() != want {
					t.Errorf("%s: before write %d the row held %d", writer, v.Int64(), before.Int64())
				}
			}
			next[writer] = v.Int64() + 1
		}
		n += len(page.Records)
		pos = page.Next
	}
}

// TestADamagedPackedValueOfARecordIsReported as what is wrong with a change log is.
func TestADamagedPackedValueOfARecordIsReported(t *testing.T) {
	r := newRig(t, Options{})
	st := r.streamed("t", StreamSpec{RetentionSeconds: 3600}).Stream()
	key, err := row.AppendKey(nil, len(st.table.core.Key), row.String("p"), row.Integer(1))
	c := row.Change{Key: key}
	if err := errors.Join(err, c.PutPacked("c", 1, row.TypeBinary, []byte("no packed value"))); err != nil {
		t.Fatal(err)
	}
	var m row.Mutation
	if err := cdc.NewRecord(&c).Change(st.log.core.ID, 0, 7, 0).Mutation(&m); err != nil {
		t.Fatal(err)
	}
	from := Row{cells: m.Cells, key: cdc.Key(0, 7)}
	if _, err := st.decode(&from); !isErr(err, ErrCorrupt) || !strings.Contains(err.Error(), "sequence number 7") {
		t.Errorf("%v", err)
	}
}
