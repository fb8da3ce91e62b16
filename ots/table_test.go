package ots

import (
	"context"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	flagstone "github.com/flagstone-db/flagstone"
	"github.com/flagstone-db/flagstone/row"
)

func TestCreateTableIsCheckedWithTheServicesMessages(t *testing.T) {
	five := tableRequest("t", "a", row.TypeString, "b", row.TypeString, "c", row.TypeString, "d", row.TypeString)
	four := tableRequest("t", "a", row.TypeString, "b", row.TypeInteger, "c", row.TypeBinary, "d", row.TypeString)
	five.PrimaryKey = append(five.PrimaryKey, KeyColumn{Name: "e", Type: row.TypeString})
	with := func(change func(r *CreateTableRequest)) *CreateTableRequest {
		r := tableRequest("t", "pk", row.TypeString)
		change(r)
		return r
	}
	option := func(change func(o *TableOptions)) *CreateTableRequest {
		return with(func(r *CreateTableRequest) { change(r.Options) })
	}
	defined := func(columns ...DefinedColumn) *CreateTableRequest {
		return with(func(r *CreateTableRequest) { r.DefinedColumns = columns })
	}
	many := func(n int) (columns []DefinedColumn) {
		for i := range n {
			columns = append(columns, DefinedColumn{Name: fmt.Sprintf("d%d", i), Type: row.TypeString})
		}
		return columns
	}
	reserve := func(read, write int32) *CreateTableRequest {
		return with(func(r *CreateTableRequest) { r.ReservedThroughput = ReservedThroughput{Read: &read, Write: &write} })
	}
	split := func(typ row.Type, points ...row.Value) *CreateTableRequest {
		return withPartitions(tableRequest("t", "pk", typ), points...)
	}
	ranges := func(ranges ...PartitionRange) *CreateTableRequest {
		return with(func(r *CreateTableRequest) { r.Partitions = ranges })
	}
	const gap = "The partition ranges must follow each other from INF_MIN to INF_MAX."
	a, b, long := row.String("a"), row.String("b"), strings.Repeat("Z", 65)
	both(t, func(t *testing.T, f *fixture) {
		limit := map[bool]int32{false: 5000, true: 100000}[f.limits.LooseColumnNames]
		for _, c := range []struct {
			req     *CreateTableRequest
			message string
		}{
			{tableRequest("9t", "pk", row.TypeString), "Invalid table name: '9t'."},
			{tableRequest(strings.Repeat("t", 256), "pk", row.TypeString), "Invalid table name: '" + strings.Repeat("t", 256) + "'."},
			{tableRequest("t"), "The number of primary key columns must be in range: [1, 4]."},
			{four, ""},
			{five, "The number of primary key columns must be in range: [1, 4]."},
			{tableRequest("t", "a", row.TypeString, "a", row.TypeString), "Duplicated primary key name: 'a'."},
			{tableRequest("t", "#a", row.TypeString), "Invalid column name: '#a'."},
			{tableRequest("t", "a", row.TypeDouble), "DOUBLE is an invalid type for the primary key."},
			{tableRequest("t", "a", row.TypeBoolean), "BOOLEAN is an invalid type for the primary key."},
			{tableRequest("t", "a", row.TypeNone), "Invalid column type, only STRING,INTEGER,BINARY is allowed."},
			{with(func(r *CreateTableRequest) { r.PrimaryKey[0].AutoIncrement = true }), "First primary key can't be auto increment, table: t."},
			{with(func(r *CreateTableRequest) { r.Options = nil }), "Time-to-live is missing while creating table."},
			{option(func(o *TableOptions) { o.TimeToLive = nil }), "Time-to-live is missing while creating table."},
			{option(func(o *TableOptions) { o.MaxVersions = nil }), "MaxVersions is missing while creating table."},
			{option(func(o *TableOptions) { o.TimeToLive = ptr(int32(1)) }), ""},
			{option(func(o *TableOptions) { o.TimeToLive = ptr(int32(math.MaxInt32)) }), ""},
			{option(func(o *TableOptions) { o.TimeToLive = ptr(int32(0)) }), "TimeToLive cannot be 0 or less than -1."},
			{option(func(o *TableOptions) { o.TimeToLive = ptr(int32(-2)) }), "TimeToLive cannot be 0 or less than -1."},
			{option(func(o *TableOptions) { o.MaxVersions = ptr(int32(math.MaxInt32)) }), ""},
			{option(func(o *TableOptions) { o.MaxVersions = ptr(int32(0)) }), "The maximum versions cannot be less than or equal to 0."},
			{option(func(o *TableOptions) { o.MaxVersionOffset = ptr(int64(1)) }), ""},
			{option(func(o *TableOptions) { o.MaxVersionOffset = ptr(int64(math.MaxInt64 / 1000000)) }), ""},
			{option(func(o *TableOptions) { o.MaxVersionOffset = ptr(int64(math.MaxInt64/1000000 + 1)) }), "The maximum deviation must be in range [0, INT64_MAX/1000000]."},
			{option(func(o *TableOptions) { o.MaxVersionOffset = ptr(int64(-1)) }), "The maximum deviation must be in range [0, INT64_MAX/1000000]."},
			{option(func(o *TableOptions) { o.MaxVersionOffset = ptr(int64(0)) }), "The maximum deviation cannot be 0."},
			{reserve(0, 0), ""},
			{reserve(limit, limit), ""},
			{reserve(limit+1, 0), fmt.Sprintf("The value of read capacity unit can not be greater than %d.", limit)},
			{reserve(0, limit+1), fmt.Sprintf("The value of write capacity unit can not be greater than %d.", limit)},
			{reserve(-1, 0), "The value of read capacity unit can not be less than 0."},
			{reserve(0, -1), "The value of write capacity unit can not be less than 0."},
			{defined(many(32)...), ""},
			{defined(many(33)...), "The number of defined columns must be in range: [0, 32]."},
			{defined(DefinedColumn{Name: "pk", Type: row.TypeString}), "Duplicated attribute column name with primary key column: 'pk'."},
			{defined(DefinedColumn{Name: "d", Type: row.TypeString}, DefinedColumn{Name: "d", Type: row.TypeString}), "Duplicated attribute column name: 'd'."},
			{defined(DefinedColumn{Name: "d"}), "Invalid type for attribute column"},
			{defined(DefinedColumn{Name: "#d", Type: row.TypeString}), "Invalid column name: '#d'."},
			{split(row.TypeString), ""},
			{split(row.TypeString, row.String(long[1:]), a, b), ""},
			{split(row.TypeInteger, row.Integer(math.MinInt64+1), row.Integer(-1), row.Integer(0), row.Integer(math.MaxInt64-1)), ""},
			{split(row.TypeBinary, row.Binary([]byte{0}), row.Binary([]byte{0, 0})), ""},
			{split(row.TypeString, digits(9)...), ""},
			{split(row.TypeString, digits(10)...), "The count of partitions cannot be greater than 10"},
			{split(row.TypeString, a, row.Integer(5)), "The value type of partition does not match with primary key."},
			{split(row.TypeString, a, row.Max()), "The value type of partition does not match with primary key."},
			{split(row.TypeInteger, row.Integer(math.MinInt64), row.Integer(5)), "The value of partition range can not be INT64_MIN or INT64_MAX."},
			{split(row.TypeInteger, row.Integer(math.MaxInt64)), "The value of partition range can not be INT64_MIN or INT64_MAX."},
			{split(row.TypeString, row.String("")), "The value of partition range can not be empty string."},
			{split(row.TypeBinary, row.Binary(nil)), "The value of partition range can not be empty binary."},
			{split(row.TypeString, a, row.String(long)), "The value of partition range exceeds the MaxLength:64 with CurrentLength:65."},
			{split(row.TypeString, b, a), gap},
			{split(row.TypeString, a, a), gap},
			{ranges(PartitionRange{a, row.Max()}), gap},
			{ranges(PartitionRange{row.Min(), a}), gap},
			{ranges(PartitionRange{row.Min(), a}, PartitionRange{b, row.Max()}), gap},
			{ranges(PartitionRange{row.Min(), a}, PartitionRange{a, b}), gap},
			{with(func(r *CreateTableRequest) { r.HasIndexes = true }), "Secondary indexes are not supported yet by this server."},
			{with(func(r *CreateTableRequest) { r.HasSSE = true }), "Server-side encryption (sse_spec) is not supported yet by this server."},
			{with(func(r *CreateTableRequest) { r.Stream = &StreamSpecification{Enable: true} }), "Expiration time is missing while enabling stream."},
			{with(func(r *CreateTableRequest) { r.Stream = &StreamSpecification{} }), ""},
		} {
			err := f.CreateTable(context.Background(), testInstance, c.req)
			if c.message != "" {
				wantError(t, err, CodeParameterInvalid, c.message)
				continue
			}
			wantError(t, err, "", "")
			if err := f.DeleteTable(context.Background(), testInstance, c.req.Table); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// withPartitions asks for partitions that are divided at points.
func withPartitions(req *CreateTableRequest, points ...row.Value) *CreateTableRequest {
	begin := row.Min()
	for _, p := range append(points, row.Max()) {
		req.Partitions = append(req.Partitions, PartitionRange{begin, p})
		begin = p
	}
	return req
}

// digits are n strings, ascending.
func digits(n int) (points []row.Value) {
	for i := range n {
		points = append(points, row.String(string(rune('0'+i))))
	}
	return points
}

// TestATableIsMadeWithPartitions: each is a shard of the stream, and rows of all are found.
func TestATableIsMadeWithPartitions(t *testing.T) {
	f := openFixture(t, Limits{})
	req := withPartitions(tableRequest("t", "pk", row.TypeString, "n", row.TypeInteger), row.String("b"), row.String("f"))
	req.Stream = &StreamSpecification{Enable: true, ExpirationHours: ptr(int32(1))}
	f.create(req)
	described, err := f.DescribeTable(context.Background(), testInstance, "t")
	want := [][]KeyValue{{{Name: "pk", Value: row.String("b")}}, {{Name: "pk", Value: row.String("f")}}}
	if err != nil || !reflect.DeepEqual(described.Splits, want) {
		t.Fatalf("described with %v, %v", described, err)
	}
	if table, err := f.store.Table(testInstance + "/t"); err != nil || table.Info().Partitions != 3 {
		t.Errorf("%v, %v", table, err)
	}
	stream, err := f.DescribeStream(context.Background(), testInstance, &DescribeStreamRequest{StreamID: described.Stream.StreamID})
	if err != nil || len(stream.Shards) != 3 {
		t.Errorf("the stream is %+v, %v", stream, err)
	}
}

func TestATableIsDescribedAsItWasMadeAndChanged(t *testing.T) {
	f := openFixture(t, Limits{})
	ctx := context.Background()
	req := tableRequest("t", "k", row.TypeInteger, "s", row.TypeString, "x", row.TypeBinary)
	req.DefinedColumns = []DefinedColumn{{Name: "d", Type: row.TypeDouble}, {Name: "e", Type: row.TypeBoolean}}
	req.Options.BlockSize, req.Options.BloomFilterType = ptr(int32(32)), ptr(int32(3))
	req.Options.MaxVersionOffset = ptr(int64(1000))
	req.ReservedThroughput = ReservedThroughput{Read: ptr(int32(5)), Write: ptr(int32(6))}
	req.EnableLocalTxn = ptr(true)
	f.create(req)
	want := TableDescription{
		Table: "t", PrimaryKey: req.PrimaryKey, DefinedColumns: req.DefinedColumns,
		TimeToLive: -1, MaxVersions: 1, MaxVersionOffset: 1000, AllowUpdate: true,
		BlockSize: ptr(int32(32)), BloomFilterType: ptr(int32(3)), ReservedRead: 5, ReservedWrite: 6,
		LastIncreaseTime: startMillis / 1000, CreationTimeMicros: startMillis * 1000, EnableLocalTxn: ptr(true),
	}
	check := func(what string, got *TableDescription, err error) {
		t.Helper()
		if err != nil || !reflect.DeepEqual(*got, want) {
			t.Errorf("%s: %v\n got %+v\nwant %+v", what, err, *got, want)
		}
	}
	describe := func(what string) {
		t.Helper()
		got, err := f.DescribeTable(ctx, testInstance, "t")
		check(what, got, err)
	}
	describe("after CreateTable")
	update := func(what string, change UpdateTableRequest) {
		t.Helper()
		change.Table = "t"
		f.clock.Advance(time.Minute)
		got, err := f.UpdateTable(ctx, testInstance, &change)
		check(what, got, err)
		describe(what)
	}
	want.TimeToLive = 3600
	update("time to live alone", UpdateTableRequest{Options: &TableOptions{TimeToLive: ptr(int32(3600))}})
	want.MaxVersions, want.MaxVersionOffset, want.AllowUpdate = 7, 5, false
	want.BlockSize, want.BloomFilterType = ptr(int32(64)), ptr(int32(1))
	update("other options", UpdateTableRequest{Options: &TableOptions{
		MaxVersions: ptr(int32(7)), MaxVersionOffset: ptr(int64(5)), AllowUpdate: ptr(false),
		BlockSize: ptr(int32(64)), BloomFilterType: ptr(int32(1))}})
	want.ReservedRead, want.LastIncreaseTime = 10, startMillis/1000+180
	update("more reads", UpdateTableRequest{ReservedThroughput: &ReservedThroughput{Read: ptr(int32(10))}})
	update("the same again", UpdateTableRequest{ReservedThroughput: &ReservedThroughput{Read: ptr(int32(10)), Write: ptr(int32(6))}})
	want.ReservedWrite, want.LastDecreaseTime = 0, startMillis/1000+300
	update("fewer writes", UpdateTableRequest{ReservedThroughput: &ReservedThroughput{Write: ptr(int32(0))}})
	want.ReservedRead, want.ReservedWrite = 0, 1
	want.LastIncreaseTime, want.LastDecreaseTime = startMillis/1000+360, startMillis/1000+360
	update("up and down", UpdateTableRequest{ReservedThroughput: &ReservedThroughput{Read: ptr(int32(0)), Write: ptr(int32(1))}})
	update("a stream that stays off", UpdateTableRequest{Stream: &StreamSpecification{}})
}

func TestATableHasDefaultsForWhatCreateTableLeavesOut(t *testing.T) {
	f := openFixture(t, Limits{})
	f.createPlain(3, 86400)
	got, err := f.DescribeTable(context.Background(), testInstance, "t")
	if err != nil {
		t.Fatal(err)
	}
	want := TableDescription{
		Table: "t", PrimaryKey: []KeyColumn{{Name: "pk", Type: row.TypeString}}, DefinedColumns: []DefinedColumn{},
		TimeToLive: 86400, MaxVersions: 3, MaxVersionOffset: 86400, AllowUpdate: true,
		LastIncreaseTime: startMillis / 1000, CreationTimeMicros: startMillis * 1000,
	}
	if !reflect.DeepEqual(*got, want) {
		t.Errorf("got %+v\nwant %+v", *got, want)
	}
}

func TestATableOfTheEngineIsServedWithDefaults(t *testing.T) {
	f := openFixture(t, Limits{})
	_, err := f.store.CreateTable(context.Background(), flagstone.TableSpec{
		Name: testInstance + "/t", Key: []flagstone.KeyColumn{{Name: "pk", Type: row.TypeString}},
		Options: flagstone.TableOptions{MaxVersions: math.MaxInt64, TTLSeconds: math.MaxInt64 / 10000, MaxVersionOffsetSeconds: 86400},
	})
	if err != nil {
		t.Fatal(err)
	}
	got, err := f.DescribeTable(context.Background(), testInstance, "t")
	if err != nil || !got.AllowUpdate || got.MaxVersions != math.MaxInt32 || got.TimeToLive != math.MaxInt32 {
		t.Errorf("%+v, %v", got, err)
	}
	f.mustWrite(updateOf(pk("a"), cellAt("c", 1, startMillis)))
	if got := f.show(pk("a"), all()); got != `"a" | c@0=1` {
		t.Errorf("got %s", got)
	}
}

func TestAnnotationsOfANewerVersionAreRefused(t *testing.T) {
	for _, annotations := range []string{`{"version":2}`, `{"version":0}`, `{"version":`} {
		info := flagstone.TableInfo{TableSpec: flagstone.TableSpec{Name: "demo/t", Annotations: []byte(annotations)}}
		if a, err := decodeAttributes(&info); err == nil {
			t.Errorf("%s decoded to %+v", annotations, a)
		}
	}
}

func TestUpdateTableIsCheckedWithTheServicesMessages(t *testing.T) {
	f := openFixture(t, Limits{})
	f.createPlain(1, -1)
	p := CodeParameterInvalid
	options := func(o TableOptions) UpdateTableRequest { return UpdateTableRequest{Options: &o} }
	for _, c := range []struct {
		req     UpdateTableRequest
		message string
	}{
		{UpdateTableRequest{}, "No parameter is specified in table options."},
		{options(TableOptions{}), "No parameter is specified in table options."},
		{options(TableOptions{UpdateFullRow: ptr(false)}), "The table options of UpdateTable cannot contain updateFullRow."},
		{options(TableOptions{TimeToLive: ptr(int32(0))}), "TimeToLive cannot be 0 or less than -1."},
		{options(TableOptions{MaxVersions: ptr(int32(-1))}), "The maximum versions cannot be less than or equal to 0."},
		{options(TableOptions{MaxVersionOffset: ptr(int64(-1))}), "The maximum deviation must be in range [0, INT64_MAX/1000000]."},
		{UpdateTableRequest{ReservedThroughput: &ReservedThroughput{Read: ptr(int32(-1))}}, "The value of read capacity unit can not be less than 0."},
		{UpdateTableRequest{ReservedThroughput: &ReservedThroughput{Write: ptr(int32(5001))}}, "The value of write capacity unit can not be greater than 5000."},
		{UpdateTableRequest{Stream: &StreamSpecification{Enable: true}}, "Expiration time is missing while enabling stream."},
	} {
		c.req.Table = "t"
		_, err := f.UpdateTable(context.Background(), testInstance, &c.req)
		wantError(t, err, p, c.message)
	}
	_, err := f.UpdateTable(context.Background(), testInstance, &UpdateTableRequest{
		Table: "missing", Options: &TableOptions{MaxVersions: ptr(int32(1))}})
	wantError(t, err, CodeObjectNotExist, "Requested table does not exist.")
}

func TestTablesAreListedDeletedAndMadeAgain(t *testing.T) {
	f := openFixture(t, Limits{})
	ctx := context.Background()
	for _, name := range []string{"b", "a", "B", "t"} {
		f.create(tableRequest(name, "pk", row.TypeString))
	}
	list := func(want ...string) {
		t.Helper()
		if got, err := f.ListTable(ctx, testInstance); err != nil || !slices.Equal(got, want) {
			t.Errorf("got %v, %v, want %v", got, err, want)
		}
	}
	list("B", "a", "b", "t")
	err := f.CreateTable(ctx, testInstance, tableRequest("t", "id", row.TypeInteger))
	wantError(t, err, CodeObjectAlreadyExist, "Requested table already exists.")
	f.mustWrite(putOf(pk("a"), cell("c", 1)))
	for _, name := range []string{"b", "t"} {
		if err := f.DeleteTable(ctx, testInstance, name); err != nil {
			t.Fatal(err)
		}
	}
	list("B", "a")
	missing := "Requested table does not exist."
	wantError(t, f.DeleteTable(ctx, testInstance, "t"), CodeObjectNotExist, missing)
	_, err = f.DescribeTable(ctx, testInstance, "t")
	wantError(t, err, CodeObjectNotExist, missing)
	f.create(tableRequest("t", "pk", row.TypeString))
	list("B", "a", "t")
	if got := f.show(pk("a"), all()); got != "none" {
		t.Errorf("a table of the same name shows the old row %s", got)
	}
}

func TestAnInstanceHoldsSixtyFourTables(t *testing.T) {
	both(t, func(t *testing.T, f *fixture) {
		ctx := context.Background()
		for i := range 64 {
			f.create(tableRequest(fmt.Sprintf("t%d", i), "pk", row.TypeString))
		}
		err := f.CreateTable(ctx, testInstance, tableRequest("more", "pk", row.TypeString))
		wantError(t, err, CodeQuotaExhausted, "Number of tables exceeds the quota:64.")
		err = f.CreateTable(ctx, testInstance, tableRequest("t1", "pk", row.TypeString))
		wantError(t, err, CodeObjectAlreadyExist, "Requested table already exists.")
		wantError(t, f.CreateTable(ctx, "other", tableRequest("more", "pk", row.TypeString)), "", "")
		wantError(t, f.DeleteTable(ctx, testInstance, "t7"), "", "")
		wantError(t, f.CreateTable(ctx, testInstance, tableRequest("more", "pk", row.TypeString)), "", "")
	})
}

func TestConcurrentCreationsKeepTheQuotaAndTheName(t *testing.T) {
	limits := Documented()
	limits.Tables = 3
	f := openFixture(t, limits)
	var wg sync.WaitGroup
	errs := make([]error, 12)
	for i := range errs {
		wg.Go(func() {
			errs[i] = f.CreateTable(context.Background(), testInstance, tableRequest(fmt.Sprintf("t%d", i%6), "pk", row.TypeString))
		})
	}
	wg.Wait()
	made := 0
	for _, err := range errs {
		if err == nil {
			made++
		}
	}
	if names, _ := f.ListTable(context.Background(), testInstance); made != 3 || len(names) != 3 {
		t.Errorf("%d creations succeeded, the instance has %v", made, names)
	}
}

func TestRatesAreLimitedOnlyIfTheyAreEnforced(t *testing.T) {
	for _, enforced := range []bool{false, true} {
		limits := Documented()
		limits.EnforceRates = enforced
		f := openFixture(t, limits)
		want := func(err error, code, message string) {
			t.Helper()
			if !enforced {
				code, message = "", ""
			}
			wantError(t, err, code, message)
		}
		for i := range 10 {
			f.create(tableRequest(fmt.Sprintf("t%d", i), "pk", row.TypeString))
		}
		f.clock.Advance(999 * time.Millisecond)
		err := f.CreateTable(context.Background(), testInstance, tableRequest("t", "pk", row.TypeString))
		want(err, CodeQuotaExhausted, "Too frequent table operations.")
		f.clock.Advance(time.Millisecond)
		if err != nil {
			f.create(tableRequest("t", "pk", row.TypeString))
		}
		adjust := func(units int32) error {
			_, err := f.UpdateTable(context.Background(), testInstance, &UpdateTableRequest{
				Table: "t", ReservedThroughput: &ReservedThroughput{Read: &units}})
			return err
		}
		f.clock.Advance(119 * time.Second)
		want(adjust(1), CodeTooFrequentAdjustment, "Capacity unit adjustment is too frequent.")
		f.clock.Advance(time.Second)
		wantError(t, adjust(2), "", "")
		f.clock.Advance(119 * time.Second)
		wantError(t, adjust(2), "", "") // changes nothing
		want(adjust(1), CodeTooFrequentAdjustment, "Capacity unit adjustment is too frequent.")
		f.clock.Advance(time.Second)
		wantError(t, adjust(0), "", "")
	}
}

func TestSplitPointRequestsAreCheckedAtTheirEdges(t *testing.T) {
	f := openFixture(t, Limits{})
	f.createPlain(1, -1)
	p := CodeParameterInvalid
	for _, c := range []struct {
		req           SplitPointsRequest
		code, message string
	}{
		{SplitPointsRequest{Table: "t", SplitSize: 0}, p, "The split_size should be greater than 0."},
		{SplitPointsRequest{Table: "t", SplitSize: -1}, p, "The split_size should be greater than 0."},
		{SplitPointsRequest{Table: "t", SplitSize: 1}, "", ""},
		{SplitPointsRequest{Table: "t", SplitSize: math.MaxInt64}, "", ""},
		{SplitPointsRequest{Table: "t", SplitSize: 1, UnitBytes: ptr(int64(1048575))}, p, "The split_size_unit_in_byte should be greater equal than: 1048576"},
		{SplitPointsRequest{Table: "t", SplitSize: 1, UnitBytes: ptr(int64(1048576))}, "", ""},
		{SplitPointsRequest{Table: "t", SplitSize: 1, PointLimit: ptr(int32(0))}, p, "The split_point_limit should be greater than 0."},
		{SplitPointsRequest{Table: "t", SplitSize: 1, PointLimit: ptr(int32(1))}, "", ""},
		{SplitPointsRequest{Table: "missing", SplitSize: 1}, CodeObjectNotExist, "Requested table does not exist."},
	} {
		_, err := f.ComputeSplitPointsBySize(context.Background(), testInstance, &c.req)
		wantError(t, err, c.code, c.message)
	}
}

func TestSplitsCoverTheTableInKeyOrder(t *testing.T) {
	f := openFixture(t, Limits{})
	f.create(tableRequest("t", "pk", row.TypeString, "n", row.TypeInteger))
	for i := range 400 {
		f.mustWrite(putOf(keyOf("pk", fmt.Sprintf("%03d", i/2), "n", i), cell("c", text(15*kilobyte))))
	}
	compute := func(limit *int32) *SplitPointsResponse {
		resp, err := f.ComputeSplitPointsBySize(context.Background(), testInstance, &SplitPointsRequest{
			Table: "t", SplitSize: 1, UnitBytes: ptr(int64(megabyte)), PointLimit: limit})
		if err != nil {
			t.Fatal(err)
		}
		return resp
	}
	resp := compute(nil)
	if n := len(resp.Points); n < 2 {
		t.Fatalf("6 MB in splits of 1 MB: %d points", n)
	}
	before := ""
	for _, p := range resp.Points {
		if len(p) != 1 || p[0].Name != "pk" || p[0].Value.Text() <= before {
			t.Errorf("split point %v after %q", p, before)
		}
		before = p[0].Value.Text()
	}
	if len(resp.PrimaryKey) != 2 || resp.PrimaryKey[1] != (KeyColumn{Name: "n", Type: row.TypeInteger}) {
		t.Errorf("schema %v", resp.PrimaryKey)
	}
	repeats := int64(0)
	for _, l := range resp.Locations {
		repeats += l.Repeat
		if len(l.Location) != 32 || strings.Trim(l.Location, "0123456789abcdef") != "" {
			t.Errorf("location %q", l.Location)
		}
	}
	if repeats != int64(len(resp.Points)+1) {
		t.Errorf("locations sum to %d, there are %d splits", repeats, len(resp.Points)+1)
	}
	if n := len(compute(ptr(int32(2))).Points); n > 2 {
		t.Errorf("%d points, the limit is 2", n)
	}
	if len(resp.Locations) != 1 {
		t.Errorf("%d locations in one partition", len(resp.Locations))
	}

	stored, bad := f.table(testInstance, "t")
	if bad != nil {
		t.Fatal(bad)
	}
	var points [][]row.Value
	for _, p := range resp.Points {
		points = append(points, []row.Value{p[0].Value})
	}
	for _, p := range [][]row.Value{points[0], points[2]} {
		if err := stored.engine.Split(context.Background(), p[0]); err != nil {
			t.Fatal(err)
		}
	}
	divided := locations(stored, points)
	if want := []int64{1, 2, int64(len(points) - 2)}; len(divided) != 3 || divided[0].Repeat != want[0] || divided[1].Repeat != want[1] || divided[2].Repeat != want[2] {
		t.Errorf("the splits of three partitions have the locations %v, want %v of each", divided, want)
	}
	if again := locations(stored, points); !slices.Equal(again, divided) || divided[0].Location == divided[1].Location {
		t.Errorf("the locations were %v, now they are %v", divided, again)
	}
}

// TestRequestsWaitNoLongerThanTheirTimeForOthers, for operations on tables and for generated key values.
func TestRequestsWaitNoLongerThanTheirTimeForOthers(t *testing.T) {
	f := openFixture(t, Documented())
	f.create(generatedTable())
	f.mustWrite(putOf(auto("a"), cell("c", 1)))
	counter, _ := f.generators.tables.Load(mustTable(t, f).info.ID)
	g := counter.(*generator)
	put := putOf(auto("a"), cell("c", 1))
	write := func(ctx context.Context) error { return f.writeOne(ctx, put) }
	atomic := func(ctx context.Context) error {
		resp, err := f.BatchWriteRow(ctx, testInstance, &BatchWriteRowRequest{
			Atomic: true, Tables: []TableChanges{{Table: "t", Changes: []RowChange{put}}},
		})
		if err == nil {
			err = asErr(resp.Tables[0].Rows[0].Err)
		}
		return err
	}
	for _, c := range map[string]struct {
		held exclusive
		do   func(ctx context.Context) error
	}{
		"a generated value":              {f.generation(mustTable(t, f), row.String("a")), write},
		"the same in an atomic batch":    {f.generation(mustTable(t, f), row.String("a")), atomic},
		"the counter of a table":         {g.turn, write},
		"the durable bound of a counter": {f.tableOps, func(ctx context.Context) error { g.next = g.ceiling; return write(ctx) }},
		"UpdateTable": {f.tableOps, func(ctx context.Context) error {
			_, err := f.UpdateTable(ctx, testInstance, &UpdateTableRequest{Table: "t", Options: &TableOptions{MaxVersions: ptr(int32(2))}})
			return err
		}},
		"CreateTable": {f.tableOps, func(ctx context.Context) error {
			return f.CreateTable(ctx, testInstance, tableRequest("u", "pk", row.TypeString))
		}},
	} {
		if bad := c.held.enter(context.Background()); bad != nil {
			t.Fatal(bad)
		}
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
		wantError(t, c.do(ctx), CodeTimeout, "Operation timeout.")
		cancel()
		c.held.leave()
	}
	wantError(t, write(context.Background()), "", "")
}
