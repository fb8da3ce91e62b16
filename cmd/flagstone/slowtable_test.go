package main

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/aliyun/aliyun-tablestore-go-sdk/tablestore"
	"github.com/mattn/go-shellwords"

	"github.com/flagstone-db/flagstone/ots"
)

// TestAHotKeyIsFoundInAShell plants a key that gets half of the requests to a table, and does what docs/console.md says.
func TestAHotKeyIsFoundInAShell(t *testing.T) {
	text, err := os.ReadFile("../../docs/console.md")
	if err != nil {
		t.Fatal(err)
	}
	t.Chdir(t.TempDir())
	url, stop := serving(t, "--sync", "none", "--enforce-throughput")
	defer stop()
	for _, name := range []string{"users", "orders", "photos", "queue"} {
		done(t, "table", "create", name, "--key", "customer:string", "--key", "n:integer")
	}
	client, err := endpointClient(url, "demo", (&at{Dir: "flagstone-data"}).usualKeys(), 1, requestPatience)
	if err != nil {
		t.Fatal(err)
	}
	put := new(tablestore.BatchWriteRowRequest)
	for n := range 100 {
		change := &tablestore.PutRowChange{TableName: "orders", PrimaryKey: orderOf(n)}
		change.AddColumn("state", "new")
		change.SetCondition(tablestore.RowExistenceExpectation_IGNORE)
		put.AddRowChange(change)
	}
	if _, err := client.BatchWriteRow(put); err != nil {
		t.Fatal(err)
	}
	for batch := range 120 {
		for name, rows := range map[string]int{"users": 5, "orders": 50} {
			get := &tablestore.MultiRowQueryCriteria{TableName: name, MaxVersion: 1}
			for n := range rows {
				get.AddRow(orderOf(batch*50 + n))
			}
			if _, err := client.BatchGetRow(&tablestore.BatchGetRowRequest{MultiRowQueryCriteria: []*tablestore.MultiRowQueryCriteria{get}}); err != nil {
				t.Fatal(err)
			}
		}
	}
	readDeletedRows(t, client)
	readLargeRows(t, client)
	_, section, _ := strings.Cut(string(text), "## Why is my table slow?")
	section, _, _ = strings.Cut(section, "\n## ")
	finds := map[string]string{
		"top --count 1": "demo/orders", "partition list demo/orders": "customer-0815 ", "advise demo/orders": `units/s  "customer-0815"`,
		"partition list demo/photos": "requests refused: OTSCapacityUnitExhausted customer-0815: ", "advise demo/photos": "Rows: LARGE",
		"partition list demo/queue": passedOver + ": ", "advise demo/queue": "flagstone table compact demo/queue",
	}
	for line := range strings.Lines(section) {
		line, isCommand := strings.CutPrefix(strings.TrimRight(line, "\n"), "    $ flagstone ")
		if !isCommand {
			continue
		}
		args, err := shellwords.Parse(line)
		if err != nil {
			t.Fatal(err)
		}
		status, out, errOut := command(t, args...)
		if want := finds[line]; want == "" || status != 0 || !strings.Contains(out, want) {
			t.Errorf("%s: status %d, %s\n%s; want %q", line, status, errOut, out, want)
		}
		delete(finds, line)
	}
	_, out, _ := command(t, "top", "--count", "1", "--json")
	var now figures
	if err := json.Unmarshal([]byte(out), &now); err != nil {
		t.Fatal(err)
	}
	for _, table := range now[ots.HighPerformance].Tables {
		if refuses := table.Name == "demo/photos"; refuses != (table.Refused > 0) || refuses && table.ByteRate < 1e6*table.RowRate {
			t.Errorf("%+v", table)
		}
	}
	if len(finds) > 0 {
		t.Errorf("the page lacks %v", finds)
	}
}

// readLargeRows reads rows of one partition key until that has no capacity units left.
func readLargeRows(t *testing.T, client *tablestore.TableStoreClient) {
	const rows = 4
	get := &tablestore.MultiRowQueryCriteria{TableName: "photos", MaxVersion: 1}
	for n := range rows {
		put := &tablestore.PutRowChange{TableName: "photos", PrimaryKey: orderOf(2*n + 1)}
		put.AddColumn("picture", strings.Repeat("white ", 200_000))
		put.SetCondition(tablestore.RowExistenceExpectation_IGNORE)
		if _, err := client.PutRow(&tablestore.PutRowRequest{PutRowChange: put}); err != nil {
			t.Fatal(err)
		}
		get.AddRow(put.PrimaryKey)
	}
	for range 1000 {
		answer, err := client.BatchGetRow(&tablestore.BatchGetRowRequest{MultiRowQueryCriteria: []*tablestore.MultiRowQueryCriteria{get}})
		if err != nil {
			t.Fatal(err)
		}
		for _, of := range answer.TableToRowsResult["photos"] {
			if of.Error.Code == "OTSCapacityUnitExhausted" {
				return
			}
		}
	}
	t.Fatal("no request was refused")
}

// passedOver is a finding.
const passedOver = "reads pass over deleted rows"

// readDeletedRows puts rows, deletes them, and reads the range that they were in until that is a finding.
func readDeletedRows(t *testing.T, client *tablestore.TableStoreClient) {
	for from := 0; from < 2000; from += 200 {
		put, del := new(tablestore.BatchWriteRowRequest), new(tablestore.BatchWriteRowRequest)
		for n := from; n < from+200; n++ {
			change := &tablestore.PutRowChange{TableName: "queue", PrimaryKey: orderOf(n)}
			change.SetCondition(tablestore.RowExistenceExpectation_IGNORE)
			put.AddRowChange(change)
			gone := &tablestore.DeleteRowChange{TableName: "queue", PrimaryKey: orderOf(n)}
			gone.SetCondition(tablestore.RowExistenceExpectation_IGNORE)
			del.AddRowChange(gone)
		}
		for _, request := range []*tablestore.BatchWriteRowRequest{put, del} {
			if _, err := client.BatchWriteRow(request); err != nil {
				t.Fatal(err)
			}
		}
	}
	all := &tablestore.RangeRowQueryCriteria{TableName: "queue", MaxVersion: 1, Direction: tablestore.FORWARD}
	all.StartPrimaryKey, all.EndPrimaryKey = new(tablestore.PrimaryKey), new(tablestore.PrimaryKey)
	for _, column := range []string{"customer", "n"} {
		all.StartPrimaryKey.AddPrimaryKeyColumnWithMinValue(column)
		all.EndPrimaryKey.AddPrimaryKeyColumnWithMaxValue(column)
	}
	for !strings.Contains(done(t, "partition", "list", "demo/queue"), passedOver) { // the store looks every ten seconds
		for range 100 {
			if _, err := client.GetRange(&tablestore.GetRangeRequest{RangeRowQueryCriteria: all}); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// orderOf is the key of an order: every other one is of the same customer.
func orderOf(n int) *tablestore.PrimaryKey {
	customer := "customer-0815"
	if n%2 == 0 {
		customer = fmt.Sprintf("customer-%04d", n*7919%3000)
	}
	key := new(tablestore.PrimaryKey)
	key.AddPrimaryKeyColumn("customer", customer)
	key.AddPrimaryKeyColumn("n", int64(n))
	return key
}
