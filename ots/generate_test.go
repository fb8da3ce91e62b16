package ots

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	flagstone "github.com/flagstone-db/flagstone"
	"github.com/flagstone-db/flagstone/internal/clock/clocktest"
	"github.com/flagstone-db/flagstone/internal/seams"
	"github.com/flagstone-db/flagstone/internal/vfs"
	"github.com/flagstone-db/flagstone/row"
)

// generatedTable requests table "t" with the key "pk", a string, and the generated column "id".
func generatedTable() *CreateTableRequest {
	req := tableRequest("t", "pk", row.TypeString, "id", row.TypeInteger)
	req.PrimaryKey[1].AutoIncrement = true
	return req
}

// auto is a key whose id will be generated.
func auto(partition string) []KeyValue {
	return append(pk(partition), KeyValue{Name: "id", AutoIncrement: true})
}

func (c RowChange) returningKey() RowChange { c.Return = ReturnPK; return c }

// id returns the generated value from the row that a write returned.
func id(tb testing.TB, r *Row) int64 {
	tb.Helper()
	if r == nil || len(r.Key) != 2 || r.Key[1].Name != "id" || r.Key[1].Value.Type() != row.TypeInteger || len(r.Cells) > 0 {
		tb.Fatalf("no generated key: %+v", r)
	}
	return r.Key[1].Value.Int64()
}

func TestGeneratedKeysRise(t *testing.T) {
	f := openFixture(t, Limits{})
	f.create(generatedTable())
	last := int64(0)
	for i := range 20 {
		change := putOf(auto("a"), cellAt("c", i, startMillis))
		switch i % 4 {
		case 1:
			change = updateOf(auto("a"), cellAt("c", i, startMillis))
		case 2:
			change = updateOf(auto("a"), increment("c", int64(i)))
		case 3: // deleted keys are not given out again
			f.mustWrite(deleteOf(append(pk("a"), KeyValue{Name: "id", Value: row.Integer(last)})))
			f.clock.SetWall(startMillis - int64(i)*3_600_000)
		}
		res, err := f.write(change.returningKey())
		if err != nil {
			t.Fatal(err)
		}
		got := id(t, res.Row)
		if got <= last {
			t.Fatalf("key %d after %d", got, last)
		}
		last = got
		if shown := f.show(append(pk("a"), KeyValue{Name: "id", Value: row.Integer(got)}), Selection{MaxVersions: ptr(int32(1)), ColumnsToGet: []string{"c"}}); shown == "none" {
			t.Errorf("row %d is missing", got)
		}
	}
	res, err := f.write(putOf(auto("b"), cell("c", 1)))
	if err != nil || res.Row != nil {
		t.Errorf("without RT_PK: %v, %v", res, err)
	}
}

// TestAGeneratedKeyNeverMeetsARow has clients write rows under keys of their own choice.
func TestAGeneratedKeyNeverMeetsARow(t *testing.T) {
	f := openFixture(t, Limits{})
	f.create(generatedTable())
	res, err := f.write(putOf(auto("a")).returningKey())
	if err != nil {
		t.Fatal(err)
	}
	first := id(t, res.Row)
	own := func(n int64) []KeyValue { return append(pk("a"), KeyValue{Name: "id", Value: row.Integer(n)}) }
	f.mustWrite(putOf(own(first+1), cellAt("c", 1, startMillis)), putOf(own(first+2), cellAt("c", 2, startMillis)))
	if res, err = f.write(putOf(auto("a"), cellAt("c", 3, startMillis)).returningKey()); err != nil || id(t, res.Row) != first+3 {
		t.Errorf("got %v, %v, want %d", res, err, first+3)
	}
	f.mustWrite(putOf(own(first+5), cellAt("c", 5, startMillis)))
	resp, err := f.BatchWriteRow(context.Background(), testInstance, &BatchWriteRowRequest{Atomic: true, Tables: []TableChanges{{Table: "t", Changes: []RowChange{
		putOf(auto("a"), cellAt("c", 6, startMillis)).returningKey(), putOf(auto("a"), cellAt("c", 7, startMillis)).returningKey()}}}})
	if err != nil {
		t.Fatal(err)
	}
	a, b := id(t, resp.Tables[0].Rows[0].Row), id(t, resp.Tables[0].Rows[1].Row)
	if a <= first+3 || b <= a || a == first+5 || b == first+5 {
		t.Errorf("an atomic batch got %d and %d", a, b)
	}
	for n := range int64(2) {
		if got, want := f.show(own(first+1+n), all()), fmt.Sprintf(`"a",%d | c@0=%d`, first+1+n, n+1); got != want {
			t.Errorf("a client's row is %s, want %s", got, want)
		}
	}
}

func TestGeneratedKeysAreRefusedWhereTheyMeanNothing(t *testing.T) {
	f := openFixture(t, Limits{})
	with := func(change func([]KeyColumn) []KeyColumn) *CreateTableRequest {
		req := generatedTable()
		req.PrimaryKey = change(req.PrimaryKey)
		return req
	}
	for _, c := range []struct {
		req     *CreateTableRequest
		message string
	}{
		{with(func(k []KeyColumn) []KeyColumn { k[0].AutoIncrement = true; return k }), "First primary key can't be auto increment, table: t."},
		{with(func(k []KeyColumn) []KeyColumn { k[1].Type = row.TypeString; return k }), "AUTO_INCREMENT primary key must be integer."},
		{with(func(k []KeyColumn) []KeyColumn {
			return append(k, KeyColumn{Name: "x", Type: row.TypeInteger, AutoIncrement: true})
		}), "AUTO_INCREMENT primary key count must <= 1."},
	} {
		wantError(t, f.CreateTable(context.Background(), testInstance, c.req), CodeParameterInvalid, c.message)
	}
	f.create(generatedTable())
	d, err := f.DescribeTable(context.Background(), testInstance, "t")
	if err != nil || d.PrimaryKey[0].AutoIncrement || !d.PrimaryKey[1].AutoIncrement {
		t.Errorf("described as %+v, %v", d, err)
	}
	conditional := putOf(auto("a"))
	conditional.ColumnCondition = where("c", CompareEqual, 1)
	const condition = "Can't set condition when modify row with pk auto increment."
	for _, c := range []struct {
		change        RowChange
		code, message string
	}{
		{putOf(auto("a")).expecting(ExistenceExpectNot), CodeParameterInvalid, condition},
		{updateOf(auto("a"), cell("c", 1)).expecting(ExistenceExpect), CodeParameterInvalid, condition},
		{conditional, CodeParameterInvalid, condition},
		{deleteOf(auto("a")), CodeParameterInvalid, "PKAutoIncr can't be used for delete operations."},
		{putOf([]KeyValue{{Name: "pk", AutoIncrement: true}, {Name: "id", Value: row.Integer(1)}}), CodeInvalidPK, "Validate PK type fail. Input: VT_AUTO_INCREMENT, Meta: VT_STRING."},
		{putOf(pk("a")), CodeInvalidPK, "Validate PK size fail. Input: 1, Meta: 2."},
	} {
		_, err := f.write(c.change)
		wantError(t, err, c.code, c.message)
	}
	_, err = f.get(auto("a"), all())
	wantError(t, err, CodeParameterInvalid, "PKAutoIncr can't be used for read operations.")
}

// TestGeneratedKeysAreNeverRepeated kills the store at random moments, loses unsynced data,
// sets the clock back, and goes on. A returned key must exist and never be returned again, and
// the keys of a partition must rise.
func TestGeneratedKeysAreNeverRepeated(t *testing.T) {
	disk := vfs.NewSim(vfs.SimOptions{})
	last := map[string]int64{}
	for round := range 12 {
		manual := clocktest.NewManual(startMillis - int64(round)*1_000_000)
		store, err := flagstone.Open("/store", flagstone.Options{Seams: seams.Seams{FS: disk, Clock: manual}})
		if err != nil {
			t.Fatal(err)
		}
		engine, err := New(store, Options{Instances: []string{testInstance}})
		if err != nil {
			t.Fatal(err)
		}
		f := &fixture{Engine: engine, tb: t, clock: manual}
		if round == 0 {
			f.create(generatedTable())
		}
		for partition, n := range last {
			if shown := f.show(append(pk(partition), KeyValue{Name: "id", Value: row.Integer(n)}), all()); shown == "none" {
				t.Errorf("round %d: row %s %d was returned and is gone", round, partition, n)
			}
		}
		for i := range 30 {
			partition := fmt.Sprint(i % 3)
			res, err := f.write(putOf(auto(partition), cell("c", i)).returningKey())
			if err != nil {
				t.Fatal(err)
			}
			if got := id(t, res.Row); got <= last[partition] {
				t.Fatalf("round %d: key %d after %d", round, got, last[partition])
			} else {
				last[partition] = got
			}
			manual.Advance(time.Millisecond)
		}
		if round == 5 { // as if that many had been generated already
			counter, _ := f.generators.tables.Load(mustTable(t, f).info.ID)
			g := counter.(*generator)
			g.next = g.ceiling
			if res, err := f.write(putOf(auto("0")).returningKey()); err != nil || id(t, res.Row) <= last["0"] {
				t.Fatalf("at the ceiling: %v, %v", res, err)
			} else {
				last["0"] = id(t, res.Row)
			}
		}
		next := disk.Crash(vfs.CrashPolicy(round%3), uint64(round))
		_ = store.Close() // on the old disk, where all operations fail
		disk = next
	}
}

func mustTable(tb testing.TB, f *fixture) *table {
	tb.Helper()
	found, err := f.table(testInstance, "t")
	if err != nil {
		tb.Fatal(err)
	}
	return found
}

// TestReadersNeverSeeAGeneratedKeyBelowOneTheyKnow reads along a partition key, always from the
// last row on, and must miss no row.
func TestReadersNeverSeeAGeneratedKeyBelowOneTheyKnow(t *testing.T) {
	f := openFixture(t, Limits{})
	f.create(generatedTable())
	const writers, each = 4, 100
	var mu sync.Mutex
	var written []int64
	var all sync.WaitGroup
	for range writers {
		all.Go(func() {
			for range each {
				res, err := f.write(putOf(auto("a"), cell("c", 1)).returningKey())
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				written = append(written, res.Row.Key[1].Value.Int64())
				mu.Unlock()
			}
		})
	}
	done := make(chan struct{})
	go func() { all.Wait(); close(done) }()
	var read []int64
	from := row.Min()
	for last := false; ; {
		resp, err := f.rangeOf(GetRangeRequest{
			Start: Row{Key: append(pk("a"), KeyValue{Name: "id", Value: from})}, End: Row{Key: append(pk("a"), KeyValue{Name: "id", Value: row.Max()})},
			Selection: Selection{MaxVersions: ptr(int32(1))},
		})
		if err != nil {
			t.Fatal(err)
		}
		for i := range resp.Rows {
			n := resp.Rows[i].Key[1].Value.Int64()
			read = append(read, n)
			from = row.Integer(n + 1)
		}
		if last {
			break
		}
		select {
		case <-done:
			last = true
		default:
		}
	}
	slices.Sort(written)
	if len(written) != writers*each || !slices.Equal(read, written) {
		t.Errorf("%d keys were written, %d read along", len(written), len(read))
	}
}

// TestAKeyThatWasTakenInAnEarlierRunIsNotTakenInTheLast runs the function of an update twice;
// the second run finds another row, and the changes must be made once.
func TestAKeyThatWasTakenInAnEarlierRunIsNotTakenInTheLast(t *testing.T) {
	f := openFixture(t, Limits{})
	if err := f.CreateTable(context.Background(), testInstance, generatedTable()); err != nil {
		t.Fatal(err)
	}
	tab := mustTable(t, f)
	change := putOf(auto("a"), cell("c", 1))
	pending := []pendingWrite{f.newWrite(tab, nil, &change)}
	taken := true
	commit, err := tab.engine.UpdateRowsAsync(context.Background(), [][]row.Value{{row.String("a"), row.Integer(1)}},
		func(ctx context.Context, rows []*flagstone.RowTx) error {
			return f.applyAll(ctx, pending, rows, &taken)
		})
	if err != nil || commit.Wait(context.Background()) != nil || taken {
		t.Errorf("%v; taken: %v", err, taken)
	}
}
