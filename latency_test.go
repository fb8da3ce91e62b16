package flagstone

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/flagstone-db/flagstone/row"
)

func TestMetricsHaveTheLatenciesOfEachTable(t *testing.T) {
	r := newRig(t, Options{})
	table := r.table("t", TableOptions{})
	r.table("another", TableOptions{})
	took := func(_ context.Context, tx *RowTx) error {
		r.clock.Advance(time.Millisecond)
		tx.Put("c", 1, row.String("v"))
		return nil
	}
	const n = 3000 // none is timed in one of 10^20 runs
	batch := r.store.NewBatch()
	for range n {
		r.ok(table.Update(ctx(), Key("a", 1), took))
		c, err := table.UpdateAsync(ctx(), Key("a", 1), took)
		r.ok(err)
		r.clock.Advance(time.Millisecond)
		r.ok(c.Wait(ctx()))
		r.ok(c.Wait(ctx())) // does not count
		_, err = table.Get(ctx(), Key("a", 1), ReadOptions{})
		r.ok(err)
		for _, err := range table.Scan(ctx(), nil, nil, ScanOptions{}).All() {
			r.ok(err)
			r.clock.Advance(time.Microsecond)
		}
		batch.Reset()
		batch.Row(table, Key("a", 2)).Put("c", 1, row.String("v"))
		r.ok(r.store.Apply(ctx(), batch))
		tx, err := table.Begin(ctx(), row.String("a"), TransactionOptions{})
		r.ok(err)
		r.ok(tx.Commit(ctx()))
	}
	m := r.store.Metrics()
	for _, of := range m.Tables {
		wanted := of.Name == table.Name()
		for kind, l := range map[string]Latency{"gets": of.Gets, "scans": of.Scans, "updates": of.Updates, "commits": of.Commits} {
			if got := l.Timed(); (got > 0) != wanted || got > 2*n {
				t.Errorf("%s of table %s: %d timed", kind, of.Name, got)
			}
		}
		if u := of.Updates; wanted && (u.Quantile(0) < time.Millisecond || u.Quantile(1) < 2*time.Millisecond || u.Quantile(1) > 3*time.Millisecond) {
			t.Errorf("updates took from %v to %v", u.Quantile(0), u.Quantile(1))
		}
	}
	if m.LogGroups == 0 || m.LogRecords < m.LogGroups || m.LogSyncs.Timed() == 0 || m.LogSyncs.Timed() > m.LogGroups {
		t.Errorf("%d records of the log in %d groups, %d syncs", m.LogRecords, m.LogGroups, m.LogSyncs.Timed())
	}
	if got := m.Batches.Timed(); got == 0 || got > n {
		t.Errorf("batches: %d timed", got)
	}
	text, err := json.Marshal(m)
	r.ok(err)
	var read Metrics
	r.ok(json.Unmarshal(text, &read))
	was, is := m.Tables[0].Updates, read.Tables[0].Updates
	if is.Timed() != was.Timed() || is.Total() != was.Total() || is.Quantile(0.5) != was.Quantile(0.5) || is.Since(was).Timed() != 0 {
		t.Errorf("%s was read as %d in %s", text, is.Timed(), is.Total())
	}
	if none := m.Tables[0].Updates.Since(Latency{}); none.Timed() != was.Timed() {
		t.Errorf("%d since none, of %d", none.Timed(), was.Timed())
	}
}
