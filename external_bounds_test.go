package flagstone

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/flagstone-db/flagstone/internal/vfs"
	"github.com/flagstone-db/flagstone/row"
)

// TestS6_WhatIsAppliedMeanwhileDoesNotHoldAFlushBack applies an entry while FlushUpTo writes.
func TestS6_WhatIsAppliedMeanwhileDoesNotHoldAFlushBack(t *testing.T) {
	lr, l := newLeader(t, Options{})
	table := lr.table("t", TableOptions{})
	for i := range 20 {
		put(t, table, "p", i, "c", Now, "x")
	}
	r, fault := faultRig(t, Options{External: new(External)})
	half := len(l.entries) / 2
	r.apply(l.entries[:half]...)
	next := half
	fault.Observe(vfs.Observer{Before: func(c vfs.Call) {
		if c.Op == vfs.OpCreate && next == half {
			next++
			r.apply(l.entries[half])
		}
	}})
	upTo := l.entries[half-1].Index
	wantError(t, "FlushUpTo", r.store.FlushUpTo(ctx(), upTo), nil)
	if d := r.store.DurableIndex(); d < upTo || next == half {
		t.Errorf("FlushUpTo(%d) made durable up to %d; an entry came in between: %v", upTo, d, next > half)
	}
}

// TestS6_EntriesThatChangeNothingHoldNothingBack gives a store entries that are void, and then alterations: the log in
// front of what it needs must not grow without end.
func TestS6_EntriesThatChangeNothingHoldNothingBack(t *testing.T) {
	r, l := newLeader(t, Options{MemoryBudget: 64 << 10, MemtableSize: 16 << 10})
	table := r.table("t", TableOptions{})
	put(t, table, "p", 1, "c", Now, strings.Repeat("y", 4<<10))
	void := l.entries[len(l.entries)-1].Payload
	wantError(t, "Split", table.Split(ctx(), row.String("q")), nil)
	put(t, table, "p", 1, "c", Now, "x")
	grows := func(what string, add func()) {
		t.Helper()
		first := r.store.DurableIndex()
		for range 300 {
			add()
			r.exec.RunAll()
		}
		if r.store.DurableIndex() == first {
			t.Errorf("%s: nothing became durable", what)
		}
	}
	grows("void entries", func() {
		if result, err := l.add(ctx(), void); result == nil || err != nil {
			t.Fatal(result, err)
		}
	})
	put(t, table, "p", 1, "c", Now, "x")
	grows("alterations", func() {
		note := []byte(strings.Repeat("n", 4<<10))
		wantError(t, "Alter", table.Alter(ctx(), TableChange{Annotations: note}), nil)
	})
}

func TestS3_OddIndexesAreRefused(t *testing.T) {
	_, l := newLeader(t, Options{})
	_, err := l.leader.CreateTable(ctx(), TableSpec{Name: "t", Key: externalKey})
	wantError(t, "CreateTable", err, nil)
	f := newFollower(t, Options{})
	for _, index := range []uint64{0, row.MaxSequence + 1, 1 << 63} {
		_, err := f.store.ApplyEntries(ctx(), []Entry{{Index: index, Payload: l.entries[0].Payload}})
		wantError(t, fmt.Sprint("index ", index), err, ErrInvalid)
	}
	f.apply(l.entries...)
}

// TestATransactionThatBeginsBesideAForeignEntryIsNotLost lets another store write a counter, in a large batch that is
// being applied here while a transaction begins.
func TestATransactionThatBeginsBesideAForeignEntryIsNotLost(t *testing.T) {
	var l ownedLog
	var stores [2]*Store
	apply := func(of int, payload []byte) (answer error) {
		l.mu.Lock()
		defer l.mu.Unlock()
		n := uint64(len(l.entries))
		l.entries = append(l.entries, Entry{Index: n + 1, Prev: n, Payload: payload})
		for i, s := range stores {
			results, err := s.ApplyEntries(context.Background(), l.entries[n:])
			if err != nil {
				return err
			}
			if i == of {
				answer = results[0]
			}
		}
		return answer
	}
	var after func() // a fence of store 0
	for i := range stores {
		stores[i] = newRig(t, Options{External: &External{Propose: func(_ context.Context, payload []byte) error {
			err := apply(i, payload)
			if f := after; i == 0 && payload[1] == 7 && f != nil {
				after = nil
				f()
			}
			return err
		}}}).store
	}
	tables := [2]*Table{createAnyhow(t, stores[0]), createAnyhow(t, stores[1])}
	wantError(t, "count", countUp(tables[0], 0, 0), nil)
	wantError(t, "count", countUp(tables[1], 0, 1), nil)
	var other sync.WaitGroup
	after = func() {
		wantError(t, "count", countUp(tables[1], 9, 2), nil) // now the other store is sure
		before := stores[0].pipeline.At().Index
		other.Go(func() {
			b := stores[1].NewBatch()
			for i := range 20_000 {
				b.Row(tables[1], Key("z", i)).Put("c", Now, row.Integer(1))
			}
			b.Row(tables[1], Key("p", 0)).Put("n", Now, row.Integer(100))
			wantError(t, "Apply", stores[1].Apply(ctx(), b), nil)
		})
		for stores[0].pipeline.At().Index == before {
			<-time.After(10 * time.Microsecond)
		}
	}
	tx, err := tables[0].Begin(ctx(), row.String("p"), TransactionOptions{})
	wantError(t, "Begin", err, nil)
	seen := int64(0)
	err = tx.Update(ctx(), Key("p", 0), func(_ context.Context, tx *RowTx) error {
		r, err := tx.Get(ReadOptions{})
		seen = r.Int64("n")
		tx.Put("n", Now, row.Integer(seen+1))
		return err
	})
	wantError(t, "Update", err, nil)
	other.Wait()
	err = tx.Commit(ctx())
	r, _ := tables[0].Get(ctx(), Key("p", 0), ReadOptions{})
	if n := r.Int64("n"); err == nil && n != 101 || err != nil && n != 100 {
		t.Errorf("the transaction saw %d, its commit is %v, and the counter is %d", seen, err, n)
	}
}

// TestAReaderOfAnIdleStreamKeepsItsPosition reads every 40 s of a retention of 100 s, while nothing is written.
func TestAReaderOfAnIdleStreamKeepsItsPosition(t *testing.T) {
	r, _ := newLeader(t, Options{})
	table, err := r.store.CreateTable(ctx(), TableSpec{Name: "t", Key: externalKey, Stream: &StreamSpec{RetentionSeconds: 100}})
	wantError(t, "CreateTable", err, nil)
	put(t, table, "p", 0, "c", Now, "x")
	st := table.Stream()
	pos, err := st.Oldest(ctx(), st.Shards()[0].ID)
	wantError(t, "Oldest", err, nil)
	records := 0
	read := func() {
		page, err := st.Read(ctx(), pos, StreamLimits{})
		wantError(t, "Read", err, nil)
		pos = page.Next
		records += len(page.Records)
		r.clock.Advance(40 * time.Second)
	}
	for range 20 {
		read()
	}
	put(t, table, "p", 1, "c", Now, "x")
	if read(); records != 2 {
		t.Errorf("%d records, want 2", records)
	}
}

// TestS5_NothingIsAppliedBehindAnEntryThatFailed lets an owner go on after an error.
func TestS5_NothingIsAppliedBehindAnEntryThatFailed(t *testing.T) {
	lr, l := newLeader(t, Options{})
	table := lr.table("t", TableOptions{})
	for i := range 3 {
		put(t, table, "p", i, "c", Now, "x")
	}
	r := newFollower(t, Options{})
	over, cancel := context.WithCancel(ctx())
	cancel()
	_, err := r.store.ApplyEntries(over, l.entries[:1])
	wantError(t, "an entry with a context that has ended", err, context.Canceled)
	next := l.entries[1]
	next.Prev = 0
	_, err = r.store.ApplyEntries(ctx(), []Entry{next})
	wantError(t, "the entry behind it", err, ErrLogHole)
	r.apply(l.entries...)
	if got, want := content(t, r.store), content(t, lr.store); got != want {
		t.Errorf("%s\nwant\n%s", got, want)
	}
}

// TestS5_AnEntryThatWasAppliedBeforeIsNotMissing lets a call fail that begins with entries that the store has.
func TestS5_AnEntryThatWasAppliedBeforeIsNotMissing(t *testing.T) {
	lr, l := newLeader(t, Options{})
	table := lr.table("t", TableOptions{})
	for i := range 4 {
		put(t, table, "p", i, "c", Now, "x")
	}
	r := newFollower(t, Options{})
	over, cancel := context.WithCancel(ctx())
	cancel()
	for applied := 2; applied < len(l.entries)-1; applied++ {
		r.apply(l.entries[:applied]...)
		for from := range applied + 1 {
			_, err := r.store.ApplyEntries(over, l.entries[from:])
			wantError(t, "entries with a context that has ended", err, context.Canceled)
		}
		behind := l.entries[applied+1]
		behind.Prev = 0
		_, err := r.store.ApplyEntries(ctx(), []Entry{behind})
		wantError(t, "the entry behind one that is missing", err, ErrLogHole)
	}
	r.apply(l.entries...)
	if got, want := content(t, r.store), content(t, lr.store); got != want {
		t.Errorf("%s\nwant\n%s", got, want)
	}
}

// TestS5_NothingIsAppliedBehindAnEntryThatFollowsAHole lets an owner go on that has forgotten what it gave last.
func TestS5_NothingIsAppliedBehindAnEntryThatFollowsAHole(t *testing.T) {
	lr, l := newLeader(t, Options{})
	table := lr.table("t", TableOptions{})
	for i := range 4 {
		put(t, table, "p", i, "c", Now, "x")
	}
	r := newFollower(t, Options{})
	r.apply(l.entries[:2]...)
	_, err := r.store.ApplyEntries(ctx(), l.entries[3:4])
	wantError(t, "an entry behind one that is missing", err, ErrLogHole)
	next := l.entries[4]
	next.Prev = 0
	_, err = r.store.ApplyEntries(ctx(), []Entry{next})
	wantError(t, "the entry behind it", err, ErrLogHole)
	r.apply(l.entries...)
	if got, want := content(t, r.store), content(t, lr.store); got != want {
		t.Errorf("%s\nwant\n%s", got, want)
	}
}
