package flagstonetest_test

import (
	"fmt"
	"net"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aliyun/aliyun-tablestore-go-sdk/tablestore"
	"go.uber.org/goleak"

	"github.com/flagstone-db/flagstone/flagstonetest"
	"github.com/flagstone-db/flagstone/server/faults"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m)
}

// orders is a client of the server, which has a table whose rows live for a day.
func orders(t testing.TB, s *flagstonetest.Server) *tablestore.TableStoreClient {
	t.Helper()
	config := tablestore.NewDefaultTableStoreConfig()
	config.RetryTimes = 0
	client := tablestore.NewClientWithConfig(s.Endpoint, s.Instance, s.AccessKeyID, s.AccessKeySecret, "", config)
	if _, err := client.CreateTable(ordersTable()); err != nil {
		t.Fatal(err)
	}
	return client
}

func ordersTable() *tablestore.CreateTableRequest {
	meta := &tablestore.TableMeta{TableName: "orders"}
	meta.AddPrimaryKeyColumn("id", tablestore.PrimaryKeyType_STRING)
	return &tablestore.CreateTableRequest{
		TableMeta: meta, TableOption: tablestore.NewTableOption(86400, 1), ReservedThroughput: &tablestore.ReservedThroughput{},
	}
}

func put(client *tablestore.TableStoreClient, id string) error {
	key := new(tablestore.PrimaryKey)
	key.AddPrimaryKeyColumn("id", id)
	change := &tablestore.PutRowChange{TableName: "orders", PrimaryKey: key}
	change.AddColumn("state", "new")
	change.SetCondition(tablestore.RowExistenceExpectation_IGNORE)
	_, err := client.PutRow(&tablestore.PutRowRequest{PutRowChange: change})
	return err
}

// has reports whether there is a row.
func has(t testing.TB, client *tablestore.TableStoreClient, id string) bool {
	t.Helper()
	key := new(tablestore.PrimaryKey)
	key.AddPrimaryKeyColumn("id", id)
	r, err := client.GetRow(&tablestore.GetRowRequest{SingleRowQueryCriteria: &tablestore.SingleRowQueryCriteria{
		TableName: "orders", PrimaryKey: key, MaxVersion: 1,
	}})
	if err != nil {
		t.Fatal(err)
	}
	return len(r.Columns) > 0
}

func TestAServerHasAClockAndFaultsAndIsReset(t *testing.T) {
	s := flagstonetest.New(t)
	client := orders(t, s)
	if err := put(client, "1"); err != nil || !has(t, client, "1") {
		t.Fatal(err)
	}
	before := s.Clock.Now()
	if err := s.Clock.Advance(25 * time.Hour); err != nil {
		t.Fatal(err)
	}
	if has(t, client, "1") || s.Clock.Now().Sub(before) < 25*time.Hour {
		t.Error("a row whose day is over is there")
	}
	if err := s.Clock.Set(time.Now().Add(-time.Hour)); err != nil {
		t.Fatal(err)
	}
	if s.Clock.Set(time.Time{}) == nil || s.Clock.Advance(-100*365*24*time.Hour) == nil {
		t.Error("a time before 1970")
	}
	if behind := time.Since(s.Clock.Now()); behind < 59*time.Minute || behind > 61*time.Minute {
		t.Errorf("the clock is %s behind", behind)
	}
	s.Clock.Reset()
	if err := s.Faults.Add(faults.Rule{Operation: "PutRow", Code: "OTSServerBusy", Rate: 1}); err != nil {
		t.Fatal(err)
	}
	if err := put(client, "2"); err == nil || !strings.Contains(err.Error(), "OTSServerBusy") {
		t.Errorf("with a fault: %v", err)
	}
	if err := s.Reset(); err != nil {
		t.Fatal(err)
	}
	if tables, err := client.ListTable(); err != nil || len(tables.TableNames) > 0 {
		t.Errorf("after a reset: %v, %v", tables, err)
	}
	client = orders(t, s)
	if err := put(client, "3"); err != nil || !has(t, client, "3") || has(t, client, "1") {
		t.Errorf("after a reset: %v", err)
	}
}

// TestAHundredServersSideBySide opens a hundred at once, and gives each its own row.
func TestAHundredServersSideBySide(t *testing.T) {
	var clients []*tablestore.TableStoreClient
	for range 100 {
		clients = append(clients, orders(t, flagstonetest.New(t)))
	}
	for i, client := range clients {
		if err := put(client, fmt.Sprint("row ", i)); err != nil {
			t.Fatal(err)
		}
	}
	for i, client := range clients {
		if !has(t, client, fmt.Sprint("row ", i)) || has(t, client, fmt.Sprint("row ", (i+1)%100)) {
			t.Errorf("server %d has not its row alone", i)
		}
	}
}

// TestAResetWaitsForRequests resets a server while clients scan it and make its table again.
func TestAResetWaitsForRequests(t *testing.T) {
	s := flagstonetest.New(t)
	done := make(chan struct{})
	var clients sync.WaitGroup
	for i := range 4 {
		clients.Go(func() {
			config := tablestore.NewDefaultTableStoreConfig()
			config.RetryTimes = 0
			client := tablestore.NewClientWithConfig(s.Endpoint, s.Instance, s.AccessKeyID, s.AccessKeySecret, "", config)
			for {
				select {
				case <-done:
					return
				default:
				}
				_, _ = client.CreateTable(ordersTable()) // another one has made it, or the server ends
				for n := range 20 {
					_ = put(client, fmt.Sprint(i, n))
				}
				key := new(tablestore.PrimaryKey)
				key.AddPrimaryKeyColumnWithMinValue("id")
				end := new(tablestore.PrimaryKey)
				end.AddPrimaryKeyColumnWithMaxValue("id")
				_, _ = client.GetRange(&tablestore.GetRangeRequest{RangeRowQueryCriteria: &tablestore.RangeRowQueryCriteria{
					TableName: "orders", StartPrimaryKey: key, EndPrimaryKey: end, Direction: tablestore.FORWARD, MaxVersion: 1, Limit: 100,
				}})
			}
		})
	}
	for range 20 {
		if err := s.Reset(); err != nil {
			t.Error(err)
		}
	}
	close(done)
	clients.Wait()
	if err := s.Reset(); err != nil {
		t.Error(err)
	}
	if client := orders(t, s); has(t, client, "00") {
		t.Error("a row is there after a reset")
	}
}

// TestCloseWaitsForNoClient closes a server to which a client has connected that sends nothing, and one that is answered
// in a minute.
func TestCloseWaitsForNoClient(t *testing.T) {
	s, err := flagstonetest.Start(flagstonetest.Options{})
	if err != nil {
		t.Fatal(err)
	}
	silent, err := net.Dial("tcp", strings.TrimPrefix(s.Endpoint, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	if err := s.Faults.Add(faults.Rule{Operation: "ListTable", Delay: time.Minute, Rate: 1}); err != nil {
		t.Fatal(err)
	}
	config := tablestore.NewDefaultTableStoreConfig()
	config.RetryTimes = 0
	client := tablestore.NewClientWithConfig(s.Endpoint, s.Instance, s.AccessKeyID, s.AccessKeySecret, "", config)
	answered := make(chan error, 1)
	go func() {
		_, err := client.ListTable()
		answered <- err
	}()
	for s.Faults.List()[0].Hit == 0 {
		runtime.Gosched()
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if err := <-answered; err == nil {
		t.Error("a request was answered after Close")
	}
}

func TestAServerOfTwoInstances(t *testing.T) {
	s, err := flagstonetest.Start(flagstonetest.Options{Instances: []string{"one", "two"}})
	if err != nil {
		t.Fatal(err)
	}
	client := orders(t, s)
	other := tablestore.NewClient(s.Endpoint, "two", s.AccessKeyID, s.AccessKeySecret)
	if tables, err := other.ListTable(); s.Instance != "one" || err != nil || len(tables.TableNames) > 0 {
		t.Errorf("%v, %v", tables, err)
	}
	if tables, err := client.ListTable(); err != nil || len(tables.TableNames) != 1 {
		t.Errorf("%v, %v", tables, err)
	}
	stranger := tablestore.NewClient(s.Endpoint, "one", s.AccessKeyID, "guessed")
	if _, err := stranger.ListTable(); err == nil {
		t.Error("a wrong secret opens the instance")
	}
	for range 2 {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
	if err := s.Reset(); err == nil {
		t.Error("a closed server was reset")
	}
	if _, err := flagstonetest.Start(flagstonetest.Options{Instances: []string{"no good name"}}); err == nil {
		t.Error("an instance with a malformed name")
	}
}

// BenchmarkNew starts and ends a server.
func BenchmarkNew(b *testing.B) {
	for b.Loop() {
		s, err := flagstonetest.Start(flagstonetest.Options{})
		if err == nil {
			err = s.Close()
		}
		if err != nil {
			b.Fatal(err)
		}
	}
}
