package gosdk_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	ots "github.com/aliyun/aliyun-tablestore-go-sdk/tablestore"
)

func describe(t *testing.T, name string) *ots.DescribeTableResponse {
	t.Helper()
	d, err := client.DescribeTable(&ots.DescribeTableRequest{TableName: name})
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func TestATableIsDescribedAsItWasMade(t *testing.T) {
	before := time.Now()
	request := table{versions: 7, ttl: 86401, offset: 3600}.request("AsMade", "s", "i", "b", "i2")
	request.TableMeta.AddDefinedColumn("price", ots.DefinedColumn_DOUBLE)
	request.TableMeta.AddDefinedColumn("picture", ots.DefinedColumn_BINARY)
	request.ReservedThroughput = &ots.ReservedThroughput{Readcap: 3, Writecap: 5}
	if _, err := client.CreateTable(request); err != nil {
		t.Fatal(err)
	}
	defer client.DeleteTable(&ots.DeleteTableRequest{TableName: "AsMade"})

	d := describe(t, "AsMade")
	var schema []string
	for _, k := range d.TableMeta.SchemaEntry {
		schema = append(schema, fmt.Sprint(*k.Name, " ", *k.Type))
	}
	for _, c := range d.TableMeta.DefinedColumns {
		schema = append(schema, fmt.Sprint(c.Name, " ", c.ColumnType))
	}
	want(t, "schema", strings.Join(schema, ", "), "s 2, i 1, b 3, i2 1, price 2, picture 5")
	want(t, "name", d.TableMeta.TableName, "AsMade")
	want(t, "Time To Live", d.TableOption.TimeToAlive, 86401)
	want(t, "Max Versions", d.TableOption.MaxVersion, 7)
	want(t, "Max Version Offset", d.TableOption.DeviationCellVersionInSec, 3600)
	want(t, "allow update", *d.TableOption.AllowUpdate, true)
	want(t, "throughput", *d.ReservedThroughput, ots.ReservedThroughput{Readcap: 3, Writecap: 5})
	want(t, "stream", d.StreamDetails.EnableStream, false)
	if at := time.UnixMicro(d.CreationTime); at.Before(before.Add(-2*time.Second)) || at.After(time.Now().Add(2*time.Second)) {
		t.Errorf("made at %v, says the server; the test began at %v", at, before)
	}
}

func TestDefaultsOfATable(t *testing.T) {
	d := describe(t, create(t, table{}, "s"))
	want(t, "Time To Live", d.TableOption.TimeToAlive, -1)
	want(t, "Max Versions", d.TableOption.MaxVersion, 1)
	want(t, "Max Version Offset", d.TableOption.DeviationCellVersionInSec, 86400)
}

func TestTablesAreListedMadeAndDeletedByName(t *testing.T) {
	names := []string{"List_b", "List_a", "list_c", "_list"}
	for _, name := range names {
		if _, err := client.CreateTable(table{}.request(name, "s")); err != nil {
			t.Fatal(err)
		}
	}
	list := func() (found []string) {
		r, err := client.ListTable()
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range r.TableNames {
			if slices.Contains(names, name) {
				found = append(found, name)
			}
		}
		return found
	}
	want(t, "listed", strings.Join(list(), " "), "List_a List_b _list list_c")
	for _, name := range names {
		if _, err := client.DeleteTable(&ots.DeleteTableRequest{TableName: name}); err != nil {
			t.Error(err)
		}
	}
	want(t, "listed when deleted", strings.Join(list(), " "), "")
}

func TestATableOfTheSameNameStartsEmpty(t *testing.T) {
	name := create(t, table{}, "s")
	write(t, put(name, key("s", "a"), "c", 1))
	if _, err := client.DeleteTable(&ots.DeleteTableRequest{TableName: name}); err != nil {
		t.Fatal(err)
	}
	if _, err := client.CreateTable(table{}.request(name, "i")); err != nil {
		t.Fatal(err)
	}
	write(t, put(name, key("i", 1), "c", 2))
	r := get(t, name, key("i", 1))
	want(t, "the new table", text(&r.PrimaryKey, r.Columns), "(1) c=2")
}

func TestUpdateTableChangesWhatItNames(t *testing.T) {
	name := create(t, table{versions: 2, ttl: 100_000}, "s")
	change := func(request *ots.UpdateTableRequest) *ots.UpdateTableResponse {
		request.TableName = name
		r, err := client.UpdateTable(request)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	r := change(&ots.UpdateTableRequest{TableOption: ots.NewTableOption(-1, 5)})
	want(t, "options answered", fmt.Sprint(r.TableOption.TimeToAlive, r.TableOption.MaxVersion, r.TableOption.DeviationCellVersionInSec), "-1 5 86400")
	r = change(&ots.UpdateTableRequest{ReservedThroughput: &ots.ReservedThroughput{Readcap: 10, Writecap: 20}})
	want(t, "throughput answered", *r.ReservedThroughput, ots.ReservedThroughput{Readcap: 10, Writecap: 20})
	want(t, "options kept", fmt.Sprint(r.TableOption.TimeToAlive, r.TableOption.MaxVersion), "-1 5")

	d := describe(t, name)
	want(t, "options described", fmt.Sprint(d.TableOption.TimeToAlive, d.TableOption.MaxVersion), "-1 5")
	want(t, "throughput described", *d.ReservedThroughput, ots.ReservedThroughput{Readcap: 10, Writecap: 20})
}

func TestTableRequestsThatAreRefused(t *testing.T) {
	name := create(t, table{}, "s")
	made := func(change func(*ots.CreateTableRequest)) func() error {
		return func() error {
			request := table{}.request("Refused", "s")
			change(request)
			_, err := client.CreateTable(request)
			return err
		}
	}
	updated := func(request ots.UpdateTableRequest) func() error {
		return func() error {
			request.TableName = name
			_, err := client.UpdateTable(&request)
			return err
		}
	}
	for _, c := range []struct {
		what       string
		call       func() error
		code, part string
	}{
		{"existing name", made(func(r *ots.CreateTableRequest) { r.TableMeta.TableName = name }), "OTSObjectAlreadyExist", "Requested table already exists."},
		{"bad name", made(func(r *ots.CreateTableRequest) { r.TableMeta.TableName = "1st" }), "OTSParameterInvalid", "Invalid table name: '1st'."},
		{"Time To Live 0", made(func(r *ots.CreateTableRequest) { r.TableOption.TimeToAlive = 0 }), "OTSParameterInvalid", "TimeToLive cannot be 0 or less than -1."},
		{"no versions", made(func(r *ots.CreateTableRequest) { r.TableOption.MaxVersion = 0 }), "OTSParameterInvalid", "The maximum versions cannot be less than or equal to 0."},
		{"a key column twice", made(func(r *ots.CreateTableRequest) { r.TableMeta.AddPrimaryKeyColumn("s", ots.PrimaryKeyType_STRING) }), "OTSParameterInvalid", "Duplicated primary key name: 's'."},
		{"five key columns", made(func(r *ots.CreateTableRequest) {
			for _, k := range []string{"a", "b", "c", "d"} {
				r.TableMeta.AddPrimaryKeyColumn(k, ots.PrimaryKeyType_STRING)
			}
		}), "OTSParameterInvalid", "The number of primary key columns must be in range: [1, 4]."},
		{"too much throughput", made(func(r *ots.CreateTableRequest) { r.ReservedThroughput.Readcap = 5001 }), "OTSParameterInvalid", "read capacity unit"},
		{"update to Time To Live 0", updated(ots.UpdateTableRequest{TableOption: ots.NewTableOption(0, 1)}), "OTSParameterInvalid", "TimeToLive"},
		{"update to no versions", updated(ots.UpdateTableRequest{TableOption: ots.NewTableOption(-1, 0)}), "OTSParameterInvalid", "maximum versions"},
		{"update of nothing", updated(ots.UpdateTableRequest{}), "OTSParameterInvalid", "No parameter is specified"},
		{"update of no table", func() error {
			_, err := client.UpdateTable(&ots.UpdateTableRequest{TableName: "Nowhere", TableOption: ots.NewTableOption(-1, 1)})
			return err
		}, "OTSObjectNotExist", "Requested table does not exist."},
		{"description of no table", func() error {
			_, err := client.DescribeTable(&ots.DescribeTableRequest{TableName: "Nowhere"})
			return err
		}, "OTSObjectNotExist", "Requested table does not exist."},
		{"deletion of no table", func() error {
			_, err := client.DeleteTable(&ots.DeleteTableRequest{TableName: "Nowhere"})
			return err
		}, "OTSObjectNotExist", "Requested table does not exist."},
	} {
		wantError(t, c.what, c.call(), c.code, c.part)
	}
}

func TestAnInstanceHolds64Tables(t *testing.T) {
	s, err := command.Start(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer s.Kill()
	c := connect(s)
	for i := range 64 {
		if _, err := c.CreateTable(table{}.request(fmt.Sprintf("T%d", i), "s")); err != nil {
			t.Fatalf("table %d: %v", i, err)
		}
	}
	_, err = c.CreateTable(table{}.request("OneMore", "s"))
	wantError(t, "table 65", err, "OTSQuotaExhausted", "Number of tables exceeds the quota:64.")
	if _, err := c.DeleteTable(&ots.DeleteTableRequest{TableName: "T7"}); err != nil {
		t.Fatal(err)
	}
	_, err = c.CreateTable(table{}.request("OneMore", "s"))
	wantError(t, "table 64 again", err, "", "")
}
