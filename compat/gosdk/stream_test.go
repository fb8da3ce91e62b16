package gosdk_test

// This file reads streams through the SDK: what records tell, and that the
// SDK's public sample for streams does what its comments say. Kills are in
// stream_kill_test.go.

import (
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aliyun/aliyun-tablestore-go-sdk/sample"
	ots "github.com/aliyun/aliyun-tablestore-go-sdk/tablestore"
	"github.com/flagstone-db/flagstone/compat/gosdk/endpoint"
)

// streamed makes a table of the shared server with a stream.
func streamed(t *testing.T, spec table, origin []string, keyColumns ...string) string {
	t.Helper()
	name := create(t, spec, keyColumns...)
	r, err := client.UpdateTable(&ots.UpdateTableRequest{TableName: name, StreamSpec: &ots.StreamSpecification{
		EnableStream: true, ExpirationTime: 24, OriginColumnsToGet: origin}})
	if err != nil {
		t.Fatal(err)
	}
	if !r.StreamDetails.EnableStream || r.StreamDetails.StreamId == nil || r.StreamDetails.ExpirationTime != 24 {
		t.Fatalf("the stream is %+v", r.StreamDetails)
	}
	return name
}

// shardOf returns the only stream of a table, and its only shard.
func shardOf(t *testing.T, c *ots.TableStoreClient, name string) (*ots.StreamId, *ots.ShardId) {
	t.Helper()
	list, err := c.ListStream(&ots.ListStreamRequest{TableName: &name})
	if err != nil {
		t.Fatal(err)
	}
	if len(list.Streams) != 1 || *list.Streams[0].TableName != name || list.Streams[0].CreationTime <= 0 {
		t.Fatalf("the table has %d streams: %+v", len(list.Streams), list.Streams)
	}
	d, err := c.DescribeStream(&ots.DescribeStreamRequest{StreamId: list.Streams[0].Id})
	if err != nil {
		t.Fatal(err)
	}
	if d.Status != ots.SS_Active || len(d.Shards) != 1 || *d.TableName != name || d.ExpirationTime != 24 || d.NextShardId != nil {
		t.Fatalf("the stream is %+v", d)
	}
	return d.StreamId, d.Shards[0].SelfShard
}

// iterator returns the iterator of a table's records since a time, nil: all.
func iterator(t *testing.T, c *ots.TableStoreClient, name string, since *int64) *ots.ShardIterator {
	t.Helper()
	stream, shard := shardOf(t, c, name)
	r, err := c.GetShardIterator(&ots.GetShardIteratorRequest{StreamId: stream, ShardId: shard, Timestamp: since})
	if err != nil {
		t.Fatal(err)
	}
	return r.ShardIterator
}

// consume reads records until there are none left.
func consume(t *testing.T, c *ots.TableStoreClient, it *ots.ShardIterator, limit int32) ([]*ots.StreamRecord, *ots.ShardIterator) {
	t.Helper()
	var records []*ots.StreamRecord
	for {
		request := &ots.GetStreamRecordRequest{ShardIterator: it}
		if limit > 0 {
			request.Limit = &limit
		}
		r, err := c.GetStreamRecord(request)
		if err != nil {
			t.Fatal(err)
		}
		records = append(records, r.Records...)
		if limit > 0 && len(r.Records) > int(limit) || r.NextShardIterator == nil || r.CapacityUnit.Read < 1 {
			t.Fatalf("%d records of at most %d, next %v, consumed %+v", len(r.Records), limit, r.NextShardIterator, r.CapacityUnit)
		}
		if *r.NextShardIterator == *it {
			return records, it
		}
		it = r.NextShardIterator
	}
}

// recordText shows a record, with versions only where they are deleted.
func recordText(r *ots.StreamRecord) string {
	columns := func(cs []*ots.RecordColumn) string {
		text := ""
		for _, c := range cs {
			switch c.Type {
			case ots.RCT_Put:
				text += fmt.Sprintf(" %s=%v", *c.Name, c.Value)
			case ots.RCT_DeleteOneVersion:
				text += fmt.Sprintf(" %s@%d deleted", *c.Name, *c.Timestamp-base)
			case ots.RCT_DeleteAllVersions:
				text += fmt.Sprintf(" %s deleted", *c.Name)
			}
		}
		return text
	}
	text := map[ots.ActionType]string{ots.AT_Put: "put", ots.AT_Update: "update", ots.AT_Delete: "delete"}[r.Type]
	for _, k := range r.PrimaryKey.PrimaryKeys {
		text += fmt.Sprintf(" %v", k.Value)
	}
	text += columns(r.Columns)
	if len(r.OriginColumns) > 0 {
		text += ", before" + columns(r.OriginColumns)
	}
	return text
}

func TestAStreamTellsWhatWasDone(t *testing.T) {
	name := streamed(t, table{versions: 3}, []string{"n"}, "s", "i")
	k := key("s", "r", "i", 1)
	it := iterator(t, client, name, nil)
	records, it := consume(t, client, it, 0)
	want(t, "records before any write", len(records), 0)
	write(t, put(name, k, "b@5", true, "a@5", "x", "n@5", 1))
	write(t, update(name, k, "a@5", removal{}, "b", removal{}, "n@6", 2))
	write(t, remove(name, k))
	records, it = consume(t, client, it, 1)
	var got []string
	last := [3]int64{}
	for i, r := range records {
		got = append(got, recordText(r))
		place := [3]int64{int64(r.Info.Epoch), r.Info.Timestamp, int64(r.Info.RowIndex)}
		if i > 0 && (place[0] < last[0] || place[0] == last[0] && (place[1] < last[1] || place[1] == last[1] && place[2] <= last[2])) {
			t.Errorf("record %d at %v comes after %v", i, place, last)
		}
		if age := time.Since(time.UnixMicro(r.Info.Timestamp)); age < -time.Second || age > time.Minute {
			t.Errorf("record %d is %v old", i, age)
		}
		last = place
	}
	want(t, "records", strings.Join(got, "; "),
		"put r 1 a=x b=true n=1; update r 1 a@5 deleted b deleted n=2, before n=1; delete r 1, before n=2")
	// Who asks for what was written since a moment gets all of that.
	for i := range 20 {
		since := time.Now().UnixMicro()
		write(t, put(name, key("s", "r", "i", 100+i), "c", i))
		records, _ = consume(t, client, iterator(t, client, name, &since), 0)
		if len(records) != 1 || records[0].Info.Timestamp < since {
			t.Fatalf("%d records since %d", len(records), since)
		}
	}
	records, _ = consume(t, client, it, 0)
	want(t, "records later", len(records), 20)
}

func TestStreamsAreEnabledAndDisabled(t *testing.T) {
	name := streamed(t, table{}, []string{"x", "y"}, "s")
	d, err := client.DescribeTable(&ots.DescribeTableRequest{TableName: name})
	if err != nil {
		t.Fatal(err)
	}
	stream, shard := shardOf(t, client, name)
	if *d.StreamDetails.StreamId != *stream || d.StreamDetails.LastEnableTime <= 0 || fmt.Sprint(d.StreamDetails.OriginColumnsToGet) != "[x y]" {
		t.Errorf("the stream is %+v", d.StreamDetails)
	}
	alter := func(enable bool, hours int32) error {
		_, err := client.UpdateTable(&ots.UpdateTableRequest{TableName: name, StreamSpec: &ots.StreamSpecification{EnableStream: enable, ExpirationTime: hours}})
		return err
	}
	it := iterator(t, client, name, nil)
	wantError(t, "another expiration", alter(true, 12), "OTSParameterInvalid", "Disable it before")
	wantError(t, "disable", alter(false, 0), "", "")
	_, err = client.GetStreamRecord(&ots.GetStreamRecordRequest{ShardIterator: it})
	wantError(t, "an iterator of a disabled stream", err, "OTSTrimmedDataAccess", "Requested stream data is already trimmed or does not exist.")
	_, err = client.GetShardIterator(&ots.GetShardIteratorRequest{StreamId: stream, ShardId: shard})
	wantError(t, "a disabled stream", err, "OTSObjectNotExist", "")
	_, err = client.DescribeStream(&ots.DescribeStreamRequest{StreamId: stream})
	wantError(t, "a disabled stream", err, "OTSObjectNotExist", "")
	list, err := client.ListStream(&ots.ListStreamRequest{TableName: &name})
	if err != nil || len(list.Streams) != 0 {
		t.Errorf("streams %v, %v", list, err)
	}
	write(t, put(name, key("s", "r"), "c", 1))
	wantError(t, "25 hours", alter(true, 25), "OTSParameterInvalid", "[1, 24]")
	wantError(t, "0 hours", alter(true, 0), "OTSParameterInvalid", "[1, 24]")
	wantError(t, "enable again", alter(true, 24), "", "")
	again, _ := shardOf(t, client, name)
	if *again == *stream {
		t.Error("the new stream has the old id")
	}
	records, _ := consume(t, client, iterator(t, client, name, nil), 0)
	want(t, "records of the time without a stream", len(records), 0)
	forged := ots.ShardIterator(string(*it)[:len(*it)-2] + "AA")
	_, err = client.GetStreamRecord(&ots.GetStreamRecordRequest{ShardIterator: &forged})
	wantError(t, "an iterator of another stream", err, "OTSTrimmedDataAccess", "")
	forged = "nonsense"
	_, err = client.GetStreamRecord(&ots.GetStreamRecordRequest{ShardIterator: &forged})
	wantError(t, "no iterator", err, "OTSParameterInvalid", "The shard iterator is invalid.")
}

const (
	// sampleURL is set in the process that runs the SDK's sample, to the endpoint.
	sampleURL   = "FLAGSTONE_SAMPLE_URL"
	sampleTable = "StreamSample"
)

// runStreamSample is that process. The sample's 300 writers end with it.
func runStreamSample(url string) {
	config := noRetries()
	config.Transport = &firstPuts{Transport: http.Transport{MaxIdleConnsPerHost: 300}}
	c := ots.NewClientWithConfig(url, endpoint.Instance, endpoint.KeyID, endpoint.KeySecret, "", config)
	sample.GetStreamRecordSample(c, sampleTable)
	fmt.Println("since a day ago:")
	sample.GetStreamRecordWithTimestampSample(c, sampleTable)
}

// firstPuts lets 30,000 puts through. The sample makes ten times as many, and prints each change twice.
type firstPuts struct {
	http.Transport
	puts atomic.Int64
}

func (p *firstPuts) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.URL.Path == "/PutRow" && p.puts.Add(1) > 30_000 {
		select {} // until the process ends
	}
	return p.Transport.RoundTrip(r)
}

// TestTheStreamSample runs the SDK's sample, which writes with 300 goroutines and
// reads meanwhile, and then all that was written since a day ago: it prints
// records and ends at an iterator that does not change.
func TestTheStreamSample(t *testing.T) {
	t.Parallel()
	self := exec.Command(os.Args[0], "-test.run=^$")
	self.Env = append(os.Environ(), sampleURL+"="+shared.URL)
	printed, err := self.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%.3000s", err, printed)
	}
	if _, err := client.DeleteTable(&ots.DeleteTableRequest{TableName: sampleTable}); err != nil {
		t.Error(err)
	}
	first, second, _ := strings.Cut(string(printed), "since a day ago:")
	for _, part := range []string{"Create table finished", "DescribeStreamResponse", "StreamShard", "#records: ", "next iterator: "} {
		if !strings.Contains(first, part) {
			t.Errorf("the sample did not print %q:\n%.3000s", part, first)
		}
	}
	n := strings.Count(second, `"Type":`)
	t.Logf("%d records while they were written, %d later", strings.Count(first, `"Type":`), n)
	if !strings.Contains(second, "iterator is") || n == 0 || strings.Contains(second, "hit err") {
		t.Errorf("the sample printed\n%.3000s", second)
	}
}

// TestStreamRecordsExpire moves the clock of a server: records are dated by it,
// and gone a day later.
func TestStreamRecordsExpire(t *testing.T) {
	a := startAided(t)
	request := table{}.request("t", "s")
	request.StreamSpec = &ots.StreamSpecification{EnableStream: true, ExpirationTime: 24}
	if _, err := a.c.CreateTable(request); err != nil {
		t.Fatal(err)
	}
	begin := iterator(t, a.c, "t", nil)
	if err := a.put("t", "today", "c", 1); err != nil {
		t.Fatal(err)
	}
	a.control("POST", "clock", `{"advance":"23h"}`)
	if err := a.put("t", "tomorrow", "c", 1); err != nil {
		t.Fatal(err)
	}
	records, _ := consume(t, a.c, begin, 0)
	if len(records) != 2 || records[1].Info.Timestamp-records[0].Info.Timestamp < 23*3_600_000_000 {
		t.Fatalf("records %v", records)
	}
	a.control("POST", "clock", `{"advance":"1h5m"}`)
	_, err := a.c.GetStreamRecord(&ots.GetStreamRecordRequest{ShardIterator: begin})
	wantError(t, "an iterator of a day ago", err, "OTSTrimmedDataAccess", "Requested stream data is already trimmed or does not exist.")
	records, _ = consume(t, a.c, iterator(t, a.c, "t", nil), 0)
	if len(records) != 1 || keyText(records[0].PrimaryKey) != "tomorrow" {
		t.Errorf("what is left is %v", records)
	}
}
