package ots

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/flagstone-db/flagstone/keydesign"
	"github.com/flagstone-db/flagstone/row"
)

// TestAPartitionKeyHasItsUnitsPerSecond checks that requests are refused when the units of the
// second are used up, but not for another partition key, in the next second, or without
// enforcement.
func TestAPartitionKeyHasItsUnitsPerSecond(t *testing.T) {
	limits := Documented()
	limits.EnforceThroughput = true
	f := openFixture(t, limits)
	f.create(tableRequest("t", "p", row.TypeString, "k", row.TypeInteger))
	key := func(p string, k int) []KeyValue { return keyOf("p", p, "k", k) }
	big := func(p string, k int) RowChange {
		return putOf(key(p, k), cell("a", strings.Repeat("x", 2*megabyte)), cell("b", strings.Repeat("x", 2*megabyte-4096)))
	}
	const full = 1024 // units of such a row, with its key and names
	for k := range 9 {
		f.mustWrite(big("a", k))
	}
	used := int64(9 * full)
	for ; used < limits.PartitionKeyUnits-1; used++ {
		f.mustWrite(deleteOf(key("a", 100)))
	}
	const exhausted = "Capacity unit is not enough."
	ranged := func() error {
		_, err := f.rangeOf(GetRangeRequest{Start: Row{Key: keyOf("p", "a", "k", row.Min())}, End: Row{Key: keyOf("p", "a", "k", row.Max())}, Selection: all("none")})
		return err
	}
	read := func(p string) error { _, err := f.get(key(p, 100), all()); return err }
	wantError(t, read("a"), "", "") // the last unit
	for name, call := range map[string]func() error{
		"read": func() error { return read("a") }, "range": ranged,
		"write": func() error { _, err := f.write(deleteOf(key("a", 1))); return err },
		"batch": func() error {
			resp, err := f.BatchWriteRow(context.Background(), testInstance, &BatchWriteRowRequest{Tables: []TableChanges{{Table: "t", Changes: []RowChange{deleteOf(key("a", 1)), deleteOf(key("b", 1))}}}})
			if err == nil && resp.Tables[0].Rows[1].Err != nil {
				t.Error("another partition key: ", resp.Tables[0].Rows[1].Err)
			}
			return asErr(resp.Tables[0].Rows[0].Err)
		},
		"atomic batch": func() error { return asErr(f.atomic(deleteOf(key("a", 1)), deleteOf(key("a", 2)))[1].Err) },
	} {
		t.Log(name)
		wantError(t, call(), CodeCapacityUnitExhausted, exhausted)
	}
	wantError(t, read("b"), "", "")
	f.clock.Advance(time.Second)
	wantError(t, read("a"), "", "")
	wantError(t, ranged(), "", "")
	f.limits.EnforceThroughput = false
	for range 11 {
		f.mustWrite(big("a", 1))
	}
}

func TestThroughputIsReservedUpToTheTablesUnitsPerSecond(t *testing.T) {
	f := openFixture(t, Limits{})
	f.createPlain(1, -1)
	ctx := context.Background()
	if _, err := f.UpdateTable(ctx, testInstance, &UpdateTableRequest{Table: "t", ReservedThroughput: &ReservedThroughput{Read: ptr(int32(5)), Write: ptr(int32(3))}}); err != nil {
		t.Fatal(err)
	}
	big := putOf(pk("a"), cell("c", strings.Repeat("x", 2*unitBytes-4))) // with key and name, two units
	conditional := deleteOf(pk("a")).expecting(ExistenceExpectNot)
	for _, step := range []struct {
		name    string
		advance time.Duration
		do      func() error
		want    Throughput
	}{
		{"two write units", 0, func() error { _, err := f.write(big); return err }, Throughput{ReservedWrite: 2}},
		{"two more, of which one is above", 0, func() error { _, err := f.write(big); return err }, Throughput{ReservedWrite: 3, AdditionalWrite: 1}},
		{"two read units", 0, func() error { _, err := f.get(pk("a"), all()); return err }, Throughput{ReservedRead: 2, ReservedWrite: 3, AdditionalWrite: 1}},
		{"a row that is missing", 0, func() error { _, err := f.get(pk("b"), all()); return err }, Throughput{ReservedRead: 3, ReservedWrite: 3, AdditionalWrite: 1}},
		{"a condition that fails, a unit of each", 0, func() error {
			_, err := f.write(conditional)
			wantError(t, err, CodeConditionCheckFail, "Condition check failed.")
			return nil
		}, Throughput{ReservedRead: 4, ReservedWrite: 3, AdditionalWrite: 2}},
		{"a range", 0, func() error { _, err := f.rangeOf(everything()); return err }, Throughput{ReservedRead: 5, AdditionalRead: 1, ReservedWrite: 3, AdditionalWrite: 2}},
		{"the next second", time.Second, func() error {
			_, err := f.BatchWriteRow(ctx, testInstance, &BatchWriteRowRequest{Tables: []TableChanges{{Table: "t", Changes: []RowChange{big, big}}}})
			return err
		}, Throughput{ReservedRead: 5, AdditionalRead: 1, ReservedWrite: 6, AdditionalWrite: 3}},
		{"a batch of reads", 0, func() error {
			_, err := f.BatchGetRow(ctx, testInstance, &BatchGetRowRequest{Tables: []TableGets{{Table: "t", Rows: []Row{{Key: pk("a")}, {Key: pk("x")}}, Selection: all()}}})
			return err
		}, Throughput{ReservedRead: 8, AdditionalRead: 1, ReservedWrite: 6, AdditionalWrite: 3}},
		{"split points", 0, func() error {
			_, err := f.ComputeSplitPointsBySize(ctx, testInstance, &SplitPointsRequest{Table: "t", SplitSize: 1})
			return err
		}, Throughput{ReservedRead: 9, AdditionalRead: 1, ReservedWrite: 6, AdditionalWrite: 3}},
		{"what is refused costs nothing", 0, func() error {
			_, err := f.write(putOf(pk("a"), cell("#", 1)))
			wantError(t, err, CodeParameterInvalid, "Invalid column name: '#'.")
			return nil
		}, Throughput{ReservedRead: 9, AdditionalRead: 1, ReservedWrite: 6, AdditionalWrite: 3}},
	} {
		f.clock.Advance(step.advance)
		if err := step.do(); err != nil {
			t.Fatalf("%s: %v", step.name, err)
		}
		if got, err := f.Throughput(testInstance, "t"); err != nil || got != step.want {
			t.Errorf("%s: %+v, %v; want %+v", step.name, got, err, step.want)
		}
	}
	if err := f.DeleteTable(ctx, testInstance, "t"); err != nil {
		t.Fatal(err)
	}
	_, err := f.Throughput(testInstance, "t")
	wantError(t, err, CodeObjectNotExist, "Requested table does not exist.")
	f.createPlain(1, -1)
	if got, err := f.Throughput(testInstance, "t"); err != nil || got != (Throughput{}) {
		t.Errorf("a new table: %+v, %v", got, err)
	}
}

// TestAnInstanceHasItsUnitsPerSecond checks that all tables of an instance share its units, and
// that other instances do not.
func TestAnInstanceHasItsUnitsPerSecond(t *testing.T) {
	limits := Documented()
	limits.InstanceUnits = 5
	f := openFixture(t, limits)
	f.createPlain(1, -1)
	f.create(tableRequest("u", "pk", row.TypeString))
	ctx := context.Background()
	if err := f.CreateTable(ctx, "other", tableRequest("t", "pk", row.TypeString)); err != nil {
		t.Fatal(err)
	}
	read := func(instance, table string) error {
		_, err := f.GetRow(ctx, instance, &GetRowRequest{Table: table, Row: Row{Key: pk("x")}, Selection: all()})
		return err
	}
	for range 2 {
		for range 2 {
			wantError(t, read(testInstance, "t"), "", "")
			f.mustWrite(deleteOf(pk("a")))
		}
		wantError(t, read(testInstance, "u"), "", "") // the fifth
		for name, call := range map[string]func() error{
			"read":  func() error { return read(testInstance, "t") },
			"range": func() error { _, err := f.rangeOf(everything()); return err },
			"write": func() error { _, err := f.write(deleteOf(pk("b"))); return err },
			"split points": func() error {
				_, err := f.ComputeSplitPointsBySize(ctx, testInstance, &SplitPointsRequest{Table: "u", SplitSize: 1})
				return err
			},
		} {
			t.Log(name)
			wantError(t, call(), CodeCapacityUnitExhausted, "Capacity unit is not enough.")
		}
		wantError(t, read("other", "t"), "", "")
		f.clock.Advance(time.Second)
	}
}

// TestALateRequestDoesNotEndTheSecond: it read the clock, then a later request was counted
// first.
func TestALateRequestDoesNotEndTheSecond(t *testing.T) {
	var p partitionMeter
	id := partitionID{1, 1}
	for i, c := range []struct{ second, units, want int64 }{
		{5, 3, 3}, {6, 4, 4}, {5, 1, 5}, {6, 0, 5}, {7, 0, 0}, {7, 2, 2}, {3, 0, 0}, // the last: the clock was set back
	} {
		if got := p.add(id, c.second, c.units); got != c.want {
			t.Errorf("%d: %d units in second %d, want %d", i, got, c.second, c.want)
		}
	}
}

// TestReadingAStreamUsesTheUnitsOfItsInstance reads a stream until the units are used up.
func TestReadingAStreamUsesTheUnitsOfItsInstance(t *testing.T) {
	limits := Documented()
	limits.InstanceUnits = 3
	f := openStream(t, limits, StreamSpecification{})
	it := f.iteratorSince(nil)
	for range 2 {
		for range 3 {
			_, err := f.page(it, nil)
			wantError(t, err, "", "")
		}
		_, err := f.page(it, nil)
		wantError(t, err, CodeCapacityUnitExhausted, "Capacity unit is not enough.")
		f.clock.Advance(time.Second)
	}
}

// TestOnlyReservedUnitsAreServedIfSoAsked checks reads and writes separately. A side without
// reserved units is not limited.
func TestOnlyReservedUnitsAreServedIfSoAsked(t *testing.T) {
	limits := Documented()
	limits.ReservedOnly = true
	f := openFixture(t, limits)
	f.createPlain(1, -1)
	ctx := context.Background()
	reserve := func(read, write int32) {
		t.Helper()
		if _, err := f.UpdateTable(ctx, testInstance, &UpdateTableRequest{Table: "t", ReservedThroughput: &ReservedThroughput{Read: &read, Write: &write}}); err != nil {
			t.Fatal(err)
		}
	}
	read := func() error { _, err := f.get(pk("x"), all()); return err }
	write := func() error { _, err := f.write(deleteOf(pk("x"))); return err }
	ranged := func() error { _, err := f.rangeOf(everything()); return err }
	const exhausted = "Remaining capacity unit is not enough."
	for range 20 { // this side has no reserved units
		wantError(t, read(), "", "")
		wantError(t, write(), "", "")
	}
	reserve(3, 0)
	f.clock.Advance(time.Second)
	wantError(t, read(), "", "")
	wantError(t, ranged(), "", "")
	wantError(t, read(), "", "") // the third
	wantError(t, read(), CodeNotEnoughCapacityUnit, exhausted)
	wantError(t, ranged(), CodeNotEnoughCapacityUnit, exhausted)
	wantError(t, write(), "", "")
	reserve(0, 2)
	wantError(t, read(), "", "")
	f.clock.Advance(time.Second)
	wantError(t, write(), "", "")
	wantError(t, write(), "", "") // the second
	wantError(t, write(), CodeNotEnoughCapacityUnit, exhausted)
	f.clock.Advance(time.Second)
	wantError(t, write(), "", "")
	if got, err := f.Throughput(testInstance, "t"); err != nil || got.ReservedWrite != 3 {
		t.Errorf("%+v, %v", got, err)
	}
}

// TestRefusalsAreCountedAndSaid has a partition key that takes two units per second and is asked for more.
func TestRefusalsAreCountedAndSaid(t *testing.T) {
	limits := Documented()
	limits.EnforceThroughput, limits.PartitionKeyUnits = true, 2
	f := openFixture(t, limits)
	f.createPlain(1, -1)
	var log bytes.Buffer
	f.logger = slog.New(slog.NewTextHandler(&log, nil))
	table, err := f.Table(testInstance, "t")
	if err != nil {
		t.Fatal(err)
	}
	for second := range 70 {
		for n := range 5 {
			want := CodeCapacityUnitExhausted
			if n < 2 {
				want = ""
			}
			if _, err := f.write(deleteOf(pk("hot"))); want == "" && err != nil || want != "" && !isCode(err, want) {
				t.Fatalf("second %d, request %d: %v", second, n, err)
			}
		}
		f.clock.Advance(time.Second)
	}
	used, err := f.Throughput(testInstance, "t")
	if err != nil || used.Refused != 210 {
		t.Errorf("%+v, %v", used, err)
	}
	key, code, rate := f.Refusals(table)
	if key.Text() != "hot" || code != CodeCapacityUnitExhausted || rate < 2.5 || rate > 3.5 {
		t.Errorf("%v, %s, %.2f per second", key, code, rate)
	}
	st, err := f.KeyStatistics(context.Background(), testInstance, "t", 100)
	if err != nil || st.Refused != (keydesign.Refusals{Rate: rate, Code: code, Key: key.String()}) {
		t.Errorf("%+v, %v", st, err)
	}
	if text := log.String(); strings.Count(text, "requests are refused") != 2 || strings.Contains(text, "hot") {
		t.Errorf("in 70 seconds the log has %s", text)
	}
	f.clock.Advance(time.Minute)
	if _, _, rate := f.Refusals(table); rate != 0 {
		t.Errorf("%.2f per second, more than a minute ago", rate)
	}
}

// TestRefusalsAreToldApartByKeyAndCode: a key is not blamed for a limit of the table, whichever was met last.
func TestRefusalsAreToldApartByKeyAndCode(t *testing.T) {
	hot := row.String("hot")
	for _, c := range []struct {
		ofKey, ofTable, ofInstance int
		key                        row.Value
		code                       string
		count                      float64
	}{
		{20, 9, 9, hot, CodeCapacityUnitExhausted, 20},
		{9, 20, 9, row.Value{}, CodeNotEnoughCapacityUnit, 20},
		{9, 19, 20, row.Value{}, CodeCapacityUnitExhausted, 20},
	} {
		f := openFixture(t, Documented())
		f.createPlain(1, -1)
		table, bad := f.table(testInstance, "t")
		if bad != nil {
			t.Fatal(bad)
		}
		for n := range 20 {
			if n < c.ofInstance {
				_ = f.refuse(table, row.Value{}, CodeCapacityUnitExhausted, "")
			}
			if n < c.ofTable {
				_ = f.refuse(table, row.Value{}, CodeNotEnoughCapacityUnit, "")
			}
			if n < c.ofKey {
				_ = f.refuse(table, hot, CodeCapacityUnitExhausted, "")
			}
		}
		key, code, rate := f.Refusals(table.engine)
		if !key.Equal(c.key) || code != c.code || rate != c.count { // within a second
			t.Errorf("%+v: %v, %s, %.2f per second", c, key, code, rate)
		}
	}
}

func isCode(err error, code string) bool {
	var own *Error
	return errors.As(err, &own) && own.Code == code
}
