package gosdk_test

import (
	"fmt"
	"strings"
	"testing"

	ots "github.com/aliyun/aliyun-tablestore-go-sdk/tablestore"
)

// TestLimitsAtTheirEdges holds the numbers of PROTOCOL 12 that other tests do
// not: of each the last value that is allowed and the first that is refused.
func TestLimitsAtTheirEdges(t *testing.T) {
	s, err := command.Start(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer s.Kill()
	c := connect(s)
	long := func(n int) string { return strings.Repeat("x", n) }
	drop := func(name string) { _, _ = c.DeleteTable(&ots.DeleteTableRequest{TableName: name}) }
	made := func(change func(*ots.CreateTableRequest)) error {
		request := table{}.request("Made", "s")
		change(request)
		_, err := c.CreateTable(request)
		drop(request.TableMeta.TableName)
		return err
	}
	if _, err := c.CreateTable(table{}.request("T", "s")); err != nil {
		t.Fatal(err)
	}
	k := key("s", "r")
	written := func(row *ots.PutRowChange) error {
		_, err := c.PutRow(&ots.PutRowRequest{PutRowChange: row})
		return err
	}
	updated := func(request ots.UpdateTableRequest) error {
		request.TableName = "T"
		_, err := c.UpdateTable(&request)
		return err
	}
	option := func(ttl, versions int, offset int64) *ots.TableOption {
		o := ots.NewTableOption(ttl, versions)
		o.DeviationCellVersionInSec = offset
		return o
	}
	for _, l := range []struct {
		what    string
		call    func(n int) error
		allowed int
		refused int
		part    string
	}{
		{"bytes of a table name", func(n int) error {
			if n == 256 { // the SDK makes no table of such a name
				_, err := c.DescribeTable(&ots.DescribeTableRequest{TableName: long(n)})
				return err
			}
			return made(func(r *ots.CreateTableRequest) { r.TableMeta.TableName = long(n) })
		}, 255, 256, "Invalid table name: '"},
		{"bytes of a table name, at least", func(n int) error {
			return made(func(r *ots.CreateTableRequest) { r.TableMeta.TableName = long(n) })
		}, 1, 0, "Invalid table name: ''."},
		{"bytes of a column name", func(n int) error { return written(put("T", k, long(n), 1)) }, 255, 256, "Invalid column name: '"},
		{"bytes of a column name, at least", func(n int) error { return written(put("T", k, long(n), 1)) }, 1, 0, "Invalid column name: ''."},
		{"bytes of a key column's name", func(n int) error {
			return made(func(r *ots.CreateTableRequest) { *r.TableMeta.SchemaEntry[0].Name = long(n) })
		}, 255, 256, "Invalid column name: '"},
		{"key columns", func(n int) error {
			return made(func(r *ots.CreateTableRequest) {
				for i := range n - 1 {
					r.TableMeta.AddPrimaryKeyColumn(fmt.Sprint("k", i), ots.PrimaryKeyType_BINARY)
				}
			})
		}, 4, 5, "The number of primary key columns must be in range: [1, 4]."},
		{"bytes of a string in a key", func(n int) error { return written(put("T", key("s", long(n)))) }, 1024, 1025, "exceeds the MaxLength:1024 with CurrentLength:1025."},
		{"predefined columns", func(n int) error {
			return made(func(r *ots.CreateTableRequest) {
				for i := range n {
					r.TableMeta.AddDefinedColumn(fmt.Sprint("c", i), ots.DefinedColumn_STRING)
				}
			})
		}, 32, 33, "The number of defined columns must be in range: [0, 32]."},
		{"columns asked for", func(n int) error {
			q := &ots.SingleRowQueryCriteria{TableName: "T", PrimaryKey: k, MaxVersion: 1}
			for i := range n {
				q.AddColumnToGet(fmt.Sprint("c", i))
			}
			_, err := c.GetRow(&ots.GetRowRequest{SingleRowQueryCriteria: q})
			return err
		}, 128, 129, "The number of columns from the request exceeds the limit, limit count: 128, column count: 129."},
		{"reserved read units", func(n int) error {
			return updated(ots.UpdateTableRequest{ReservedThroughput: &ots.ReservedThroughput{Readcap: n}})
		}, 5000, 5001, "The value of read capacity unit can not be greater than 5000."},
		{"reserved read units, at least", func(n int) error {
			return updated(ots.UpdateTableRequest{ReservedThroughput: &ots.ReservedThroughput{Readcap: n}})
		}, 0, -1, "The value of read capacity unit can not be less than 0."},
		{"reserved write units", func(n int) error {
			return updated(ots.UpdateTableRequest{ReservedThroughput: &ots.ReservedThroughput{Writecap: n}})
		}, 5000, 5001, "The value of write capacity unit can not be greater than 5000."},
		{"seconds to live, at least", func(n int) error { return updated(ots.UpdateTableRequest{TableOption: option(n, 1, 0)}) }, 1, 0, "TimeToLive cannot be 0 or less than -1."},
		{"seconds to live, for ever", func(n int) error { return updated(ots.UpdateTableRequest{TableOption: option(n, 1, 0)}) }, -1, -2, "TimeToLive cannot be 0 or less than -1."},
		{"versions, at least", func(n int) error { return updated(ots.UpdateTableRequest{TableOption: option(-1, n, 0)}) }, 1, 0, "The maximum versions cannot be less than or equal to 0."},
		{"seconds of offset", func(n int) error {
			return updated(ots.UpdateTableRequest{TableOption: option(-1, 1, int64(n))})
		}, 9223372036854, 9223372036855, "The maximum deviation must be in range [0, INT64_MAX/1000000]."},
		{"rows of a limit, at least", func(n int) error {
			q := over("T", key("s", lowest), key("s", highest))
			q.Limit = int32(n) // the SDK does not send 0
			_, err := c.GetRange(&ots.GetRangeRequest{RangeRowQueryCriteria: &q})
			return err
		}, 1, -1, "The limit must be greater than 0."},
	} {
		wantError(t, fmt.Sprint(l.what, ": ", l.allowed), l.call(l.allowed), "", "")
		wantError(t, fmt.Sprint(l.what, ": ", l.refused), l.call(l.refused), "OTSParameterInvalid", l.part)
	}
}

// TestRatesAreEnforcedOnRequest: a server that is not told to does not limit
// them, see TestAnInstanceHolds64Tables.
func TestRatesAreEnforcedOnRequest(t *testing.T) {
	s, err := command.Start(t.TempDir(), "--enforce-rates")
	if err != nil {
		t.Fatal(err)
	}
	defer s.Kill()
	c := connect(s)
	failed := error(nil)
	for i := 0; i < 30 && failed == nil; i++ {
		if _, failed = c.CreateTable(table{}.request(fmt.Sprint("T", i), "s")); failed == nil && i >= 10 {
			// Slow machines may need more than a second for ten tables.
			t.Logf("table %d was made", i)
		}
	}
	wantError(t, "table after table", failed, "OTSQuotaExhausted", "Too frequent table operations.")
	for {
		_, err = c.UpdateTable(&ots.UpdateTableRequest{TableName: "T0", ReservedThroughput: &ots.ReservedThroughput{Readcap: 1}})
		if err == nil || !strings.Contains(err.Error(), "OTSQuotaExhausted") {
			break
		}
	}
	wantError(t, "throughput changed within two minutes of the creation", err, "OTSTooFrequentReservedThroughputAdjustment", "Capacity unit adjustment is too frequent.")
}

// TestThroughputIsEnforcedOnRequest reads one partition key until it has used
// its 10,000 units of the second: a megabyte is 256, also if a filter drops it.
func TestThroughputIsEnforcedOnRequest(t *testing.T) {
	s, err := command.Start(t.TempDir(), "--enforce-throughput")
	if err != nil {
		t.Fatal(err)
	}
	defer s.Kill()
	c := connect(s)
	if _, err := c.CreateTable(table{}.request("T", "s", "i")); err != nil {
		t.Fatal(err)
	}
	half := strings.Repeat("x", 2<<20)
	if _, err := c.PutRow(&ots.PutRowRequest{PutRowChange: put("T", key("s", "a", "i", 1), "a", half, "b", half[:2<<20-4096], "n", 1)}); err != nil {
		t.Fatal(err)
	}
	scan := func(partition string) error {
		q := over("T", key("s", partition, "i", lowest), key("s", partition, "i", highest))
		q.Filter = where("n", ots.CT_EQUAL, 2)
		_, err := c.GetRange(&ots.GetRangeRequest{RangeRowQueryCriteria: &q})
		return err
	}
	failed := error(nil)
	for i := 0; i < 1000 && failed == nil; i++ {
		failed = scan("a")
	}
	wantError(t, "a partition key", failed, "OTSCapacityUnitExhausted", "Capacity unit is not enough.")
	wantError(t, "another", scan("b"), "", "")
}

// TestUnitsOfAnInstanceAreLimitedOnRequest, all tables and keys together.
func TestUnitsOfAnInstanceAreLimitedOnRequest(t *testing.T) {
	s, err := command.Start(t.TempDir(), "--instance-units", "100")
	if err != nil {
		t.Fatal(err)
	}
	defer s.Kill()
	c := connect(s)
	if _, err := c.CreateTable(table{}.request("T", "s")); err != nil {
		t.Fatal(err)
	}
	// Half of the units in one write: whatever second it begins in, the third
	// of a second is refused.
	big := put("T", key("s", "a"), "c", strings.Repeat("x", 50*4096-10))
	failed := error(nil)
	for i := 0; i < 100 && failed == nil; i++ {
		_, failed = c.PutRow(&ots.PutRowRequest{PutRowChange: big})
	}
	wantError(t, "an instance", failed, "OTSCapacityUnitExhausted", "Capacity unit is not enough.")
}

// TestOnlyReservedUnitsAreServedOnRequest: the SDK repeats such requests by
// itself, so the client here does not.
func TestOnlyReservedUnitsAreServedOnRequest(t *testing.T) {
	s, err := command.Start(t.TempDir(), "--reserved-only")
	if err != nil {
		t.Fatal(err)
	}
	defer s.Kill()
	c := connect(s)
	reserving := table{}.request("T", "s")
	reserving.ReservedThroughput = &ots.ReservedThroughput{Readcap: 0, Writecap: 2}
	if _, err := c.CreateTable(reserving); err != nil {
		t.Fatal(err)
	}
	failed := error(nil)
	for i := 0; i < 10000 && failed == nil; i++ {
		_, failed = c.PutRow(&ots.PutRowRequest{PutRowChange: put("T", key("s", "a"), "c", 1)})
	}
	wantError(t, "writes", failed, "OTSNotEnoughCapacityUnit", "Remaining capacity unit is not enough.")
	q := &ots.SingleRowQueryCriteria{TableName: "T", PrimaryKey: key("s", "a"), MaxVersion: 1}
	for range 10 { // reads reserve nothing
		_, err := c.GetRow(&ots.GetRowRequest{SingleRowQueryCriteria: q})
		wantError(t, "a read", err, "", "")
	}
}

// TestReservedThroughputChangesOnceInTwoMinutes lets the minutes pass at once.
func TestReservedThroughputChangesOnceInTwoMinutes(t *testing.T) {
	s, err := command.Start(t.TempDir(), "--enforce-rates", "--test-clock")
	if err != nil {
		t.Fatal(err)
	}
	defer s.Kill()
	a := &aided{t: t, s: s, c: connect(s)}
	a.create("T", table{})
	units := 0
	adjust := func() error {
		units++
		_, err := a.c.UpdateTable(&ots.UpdateTableRequest{TableName: "T", ReservedThroughput: &ots.ReservedThroughput{Readcap: units}})
		return err
	}
	const refused, message = "OTSTooFrequentReservedThroughputAdjustment", "Capacity unit adjustment is too frequent."
	wantError(t, "after the creation", adjust(), refused, message)
	a.control("POST", "clock", `{"advance":"120s"}`)
	wantError(t, "after two minutes", adjust(), "", "")
	a.control("POST", "clock", `{"advance":"60s"}`)
	wantError(t, "after one more", adjust(), refused, message)
	_, err = a.c.UpdateTable(&ots.UpdateTableRequest{TableName: "T", TableOption: ots.NewTableOption(-1, 2)})
	wantError(t, "other options", err, "", "")
	a.control("POST", "clock", `{"advance":"60s"}`)
	wantError(t, "after two", adjust(), "", "")
}

// TestCurrentLimitsAtTheirEdges: those numbers that --limits current changes.
func TestCurrentLimitsAtTheirEdges(t *testing.T) {
	s, err := command.Start(t.TempDir(), "--limits", "current")
	if err != nil {
		t.Fatal(err)
	}
	defer s.Kill()
	c := connect(s)
	if _, err := c.CreateTable(table{}.request("T", "s")); err != nil {
		t.Fatal(err)
	}
	k := key("s", "r")
	reserved := func(read, write int) error {
		_, err := c.UpdateTable(&ots.UpdateTableRequest{TableName: "T", ReservedThroughput: &ots.ReservedThroughput{Readcap: read, Writecap: write}})
		return err
	}
	for _, l := range []struct {
		what    string
		call    func(n int) error
		allowed int
		refused int
		part    string
	}{
		{"columns asked for", func(n int) error {
			q := &ots.SingleRowQueryCriteria{TableName: "T", PrimaryKey: k, MaxVersion: 1}
			for i := range n {
				q.AddColumnToGet(fmt.Sprint("c", i))
			}
			_, err := c.GetRow(&ots.GetRowRequest{SingleRowQueryCriteria: q})
			return err
		}, 1024, 1025, "The number of columns from the request exceeds the limit, limit count: 1024, column count: 1025."},
		{"reserved read units", func(n int) error { return reserved(n, 0) }, 100000, 100001, "The value of read capacity unit can not be greater than 100000."},
		{"reserved write units", func(n int) error { return reserved(0, n) }, 100000, 100001, "The value of write capacity unit can not be greater than 100000."},
		{"bytes of a put", func(n int) error {
			// The key takes 2 bytes, the names of the columns 3.
			half := 2 << 20
			_, err := c.PutRow(&ots.PutRowRequest{PutRowChange: put("T", k, "a", strings.Repeat("x", half), "b", strings.Repeat("x", half-1024), "c", strings.Repeat("x", n-2*half+1024-5))})
			return err
		}, 4 << 20, 4<<20 + 1, ""},
		{"characters of a column name", func(n int) error {
			_, err := c.PutRow(&ots.PutRowRequest{PutRowChange: put("T", k, strings.Repeat("é", n), 1)})
			return err
		}, 255, 256, "Invalid column name: '"},
		{"hours of a stream", func(n int) error {
			request := table{}.request("S", "s")
			request.StreamSpec = &ots.StreamSpecification{EnableStream: true, ExpirationTime: int32(n)}
			_, err := c.CreateTable(request)
			return err
		}, 168, 169, ""},
		{"conditions of a filter", func(n int) error {
			q := &ots.SingleRowQueryCriteria{TableName: "T", PrimaryKey: k, MaxVersion: 1}
			all := ots.NewCompositeColumnCondition(ots.LO_AND)
			for range n {
				all.AddFilter(where("n", ots.CT_EQUAL, 1))
			}
			q.Filter = all
			_, err := c.GetRow(&ots.GetRowRequest{SingleRowQueryCriteria: q})
			return err
		}, 31, 32, "The count of filter exceeds the max: 32."},
	} {
		wantError(t, fmt.Sprint(l.what, ": ", l.allowed), l.call(l.allowed), "", "")
		wantError(t, fmt.Sprint(l.what, ": ", l.refused), l.call(l.refused), "OTSParameterInvalid", l.part)
	}
}
