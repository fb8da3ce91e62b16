package ots

import (
	"context"
	"encoding/base64"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	flagstone "github.com/flagstone-db/flagstone"
	"github.com/flagstone-db/flagstone/internal/seams"
	"github.com/flagstone-db/flagstone/internal/vfs"
	"github.com/flagstone-db/flagstone/manifest"
	"github.com/flagstone-db/flagstone/row"
)

const trimmedMessage = "Requested stream data is already trimmed or does not exist."

// openStream returns a fixture with a table t, of one key column pk, that has a stream.
func openStream(t *testing.T, limits Limits, spec StreamSpecification) *fixture {
	t.Helper()
	f := openFixtureOver(t, limits, flagstone.Options{})
	req := tableRequest("t", "pk", row.TypeString)
	req.Options.MaxVersions = ptr(int32(2))
	spec.Enable = true
	if spec.ExpirationHours == nil {
		spec.ExpirationHours = ptr(int32(24))
	}
	req.Stream = &spec
	f.create(req)
	return f
}

// streamID returns the single stream of table t.
func (f *fixture) streamID() string {
	f.tb.Helper()
	streams, err := f.ListStream(context.Background(), testInstance, "t")
	if err != nil || len(streams) != 1 {
		f.tb.Fatalf("streams %v, %v", streams, err)
	}
	return streams[0].StreamID
}

// only returns the single stream of table t, and its single shard.
func (f *fixture) only() (stream, shard string) {
	f.tb.Helper()
	stream = f.streamID()
	d, err := f.DescribeStream(context.Background(), testInstance, &DescribeStreamRequest{StreamID: stream})
	if err != nil || len(d.Shards) != 1 {
		f.tb.Fatalf("stream %+v, %v", d, err)
	}
	return stream, d.Shards[0].ID
}

func (f *fixture) iteratorSince(since *int64) string {
	f.tb.Helper()
	stream, shard := f.only()
	it, err := f.GetShardIterator(context.Background(), testInstance, &GetShardIteratorRequest{StreamID: stream, ShardID: shard, Timestamp: since})
	if err != nil {
		f.tb.Fatal(err)
	}
	return it
}

func (f *fixture) page(iterator string, limit *int32) (*GetStreamRecordResponse, error) {
	return f.GetStreamRecord(context.Background(), testInstance, &GetStreamRecordRequest{Iterator: iterator, Limit: limit})
}

// rest reads all remaining records; next is empty at the end of a closed shard.
func (f *fixture) rest(iterator string) (records []StreamRecord, next string) {
	f.tb.Helper()
	for {
		p, err := f.page(iterator, nil)
		if err != nil {
			f.tb.Fatal(err)
		}
		records = append(records, p.Records...)
		if p.Next == iterator || p.Next == "" {
			return records, p.Next
		}
		iterator = p.Next
	}
}

// told formats records, with versions relative to the start.
func told(records []StreamRecord) string {
	var lines []string
	for i := range records {
		r := &records[i]
		line := fmt.Sprintf("%s %s", [...]string{"", "put", "update", "delete"}[r.Type], r.Row.Key[0].Value)
		show := func(cells []Cell) {
			for _, c := range cells {
				line += " " + c.Name
				if c.HasVersion {
					line += fmt.Sprintf("@%d", c.Version-startMillis)
				}
				switch c.Op {
				case OpPut:
					line += "=" + c.Value.String()
				default:
					line += fmt.Sprintf(" op %d", c.Op)
				}
			}
		}
		show(r.Row.Cells)
		if r.Origin != nil {
			line += " origin"
			show(r.Origin.Cells)
		}
		lines = append(lines, line)
	}
	return strings.Join(lines, "\n")
}

// TestRecordsTellWhatRequestsDid expects increments as puts, complete generated keys, no
// refused changes, and all changes of batches and transactions.
func TestRecordsTellWhatRequestsDid(t *testing.T) {
	f := openStream(t, Limits{}, StreamSpecification{ColumnsToGet: []string{"n"}})
	it := f.iteratorSince(nil)
	f.mustWrite(putOf(pk("a"), cell("s", "x"), cell("n", 1)))
	f.mustWrite(RowChange{Type: ChangeUpdate, Row: Row{Key: pk("a"), Cells: []Cell{
		{Name: "n", Op: OpIncrement, Value: row.Integer(4)},
		{Name: "s", Op: OpDeleteOneVersion, Version: startMillis, HasVersion: true},
		{Name: "all", Op: OpDeleteAllVersion},
		{Name: "v", Value: row.Boolean(true), Version: startMillis - 5, HasVersion: true},
	}}})
	refused := putOf(pk("a"), cell("s", "never"))
	refused.Existence = ExistenceExpectNot
	if _, err := f.write(refused); err == nil {
		t.Fatal("a condition that fails was accepted")
	}
	f.mustWrite(putOf(pk("b")))
	f.mustWrite(RowChange{Type: ChangeDelete, Row: Row{Key: pk("a"), DeleteMarker: true}})
	resp, err := f.BatchWriteRow(context.Background(), testInstance, &BatchWriteRowRequest{Tables: []TableChanges{{Table: "t", Changes: []RowChange{
		putOf(pk("c"), cell("s", 1)), putOf(pk("c"), cell("s", 2)), refused,
	}}}})
	if err == nil {
		t.Logf("%+v", resp)
	}
	records, _ := f.rest(it)
	want := strings.Join([]string{
		`put "a" n@0=1 s@0="x"`,
		`update "a" all op 1 n@0=5 s@0 op 3 v@-5=true origin n@0=1`,
		`put "b"`,
		`delete "a" origin n@0=5`,
	}, "\n")
	got := told(records)
	if !strings.HasPrefix(got, want) {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	for i := range records {
		if !records[i].Row.DeleteMarker != (records[i].Type != ChangeDelete) {
			t.Errorf("record %d: delete marker %v", i, records[i].Row.DeleteMarker)
		}
		if i == 0 {
			continue
		}
		a, b := &records[i-1], &records[i]
		if b.Epoch < a.Epoch || b.Epoch == a.Epoch && (b.Timestamp < a.Timestamp || b.Timestamp == a.Timestamp && b.RowIndex <= a.RowIndex) {
			t.Errorf("record %d: (%d, %d, %d) after (%d, %d, %d)", i, b.Epoch, b.Timestamp, b.RowIndex, a.Epoch, a.Timestamp, a.RowIndex)
		}
	}
}

func TestStreamsAreDescribed(t *testing.T) {
	f := openStream(t, Limits{}, StreamSpecification{ColumnsToGet: []string{"n", "m"}})
	stream, shard := f.only()
	d, err := f.DescribeTable(context.Background(), testInstance, "t")
	if err != nil {
		t.Fatal(err)
	}
	want := StreamDetails{StreamID: stream, ExpirationHours: 24, LastEnableMicros: startMillis * 1000, ColumnsToGet: []string{"n", "m"}}
	if fmt.Sprint(*d.Stream) != fmt.Sprint(want) {
		t.Errorf("the stream is %+v, want %+v", *d.Stream, want)
	}
	f.create(tableRequest("without", "pk", row.TypeString))
	with := tableRequest("also_", "pk", row.TypeString)
	with.Stream = &StreamSpecification{Enable: true, ExpirationHours: ptr(int32(1))}
	f.create(with)
	for name, n := range map[string]int{"": 2, "t": 1, "without": 0, "also_": 1} {
		streams, err := f.ListStream(context.Background(), testInstance, name)
		if err != nil || len(streams) != n {
			t.Errorf("streams of %q: %v, %v", name, streams, err)
		}
		for _, s := range streams {
			if _, err := f.DescribeStream(context.Background(), testInstance, &DescribeStreamRequest{StreamID: s.StreamID}); err != nil {
				t.Errorf("%s: %v", s.StreamID, err)
			}
		}
	}
	_, err = f.ListStream(context.Background(), testInstance, "missing")
	wantError(t, err, CodeObjectNotExist, "Requested table does not exist.")
	_, err = f.ListStream(context.Background(), testInstance, "#")
	wantError(t, err, CodeParameterInvalid, "Invalid table name: '#'.")
	for _, c := range []struct {
		req           DescribeStreamRequest
		code, message string
	}{
		{DescribeStreamRequest{StreamID: stream, StartShard: &shard, ShardLimit: ptr(int32(1))}, "", ""},
		{DescribeStreamRequest{StreamID: stream, StartShard: ptr("x")}, CodeObjectNotExist, "Requested stream shard does not exist."},
		{DescribeStreamRequest{StreamID: stream, ShardLimit: ptr(int32(0))}, CodeParameterInvalid, "The shard limit must be greater than 0."},
		{DescribeStreamRequest{StreamID: stream + "0"}, CodeObjectNotExist, "Requested stream does not exist."},
		{DescribeStreamRequest{StreamID: "x" + stream}, CodeObjectNotExist, "Requested stream does not exist."},
		{DescribeStreamRequest{StreamID: "t"}, CodeObjectNotExist, "Requested stream does not exist."},
		{DescribeStreamRequest{}, CodeObjectNotExist, "Requested stream does not exist."},
	} {
		_, err := f.DescribeStream(context.Background(), testInstance, &c.req)
		wantError(t, err, c.code, c.message)
	}
	_, err = f.DescribeStream(context.Background(), "other", &DescribeStreamRequest{StreamID: stream})
	wantError(t, err, CodeObjectNotExist, "Requested stream does not exist.")
}

// TestStreamsAreEnabledAndDisabled as documented: a different expiration needs a new stream.
func TestStreamsAreEnabledAndDisabled(t *testing.T) {
	for _, c := range []struct {
		limits Limits
		hours  int32
	}{{Documented(), 24}, {Current(), 168}} {
		f := openFixture(t, c.limits)
		f.createPlain(1, -1)
		update := func(spec StreamSpecification) (*StreamDetails, error) {
			d, err := f.UpdateTable(context.Background(), testInstance, &UpdateTableRequest{Table: "t", Stream: &spec})
			if err != nil {
				return nil, err
			}
			return d.Stream, nil
		}
		on := func(hours int32) StreamSpecification {
			return StreamSpecification{Enable: true, ExpirationHours: &hours}
		}
		outside := fmt.Sprintf("The expiration time of stream must be in range: [1, %d].", c.hours)
		for _, hours := range []int32{-1, 0, c.hours + 1} {
			_, err := update(on(hours))
			wantError(t, err, CodeParameterInvalid, outside)
		}
		bad := on(1)
		bad.ColumnsToGet = []string{"a", "a"}
		_, err := update(bad)
		wantError(t, err, CodeParameterInvalid, "Duplicated column name: 'a'.")
		bad.ColumnsToGet = []string{"#"}
		_, err = update(bad)
		wantError(t, err, CodeParameterInvalid, "Invalid column name: '#'.")
		bad.ColumnsToGet = make([]string, c.limits.ColumnsToGet+1)
		_, err = update(bad)
		wantError(t, err, CodeParameterInvalid, fmt.Sprintf(
			"The number of columns from the request exceeds the limit, limit count: %d, column count: %d.", c.limits.ColumnsToGet, c.limits.ColumnsToGet+1))
		first, err := update(on(c.hours))
		if err != nil || first == nil || first.ExpirationHours != c.hours {
			t.Fatalf("%+v, %v", first, err)
		}
		it := f.iteratorSince(nil)
		same, err := update(on(c.hours))
		if err != nil || same.StreamID != first.StreamID {
			t.Errorf("the same again: %+v, %v", same, err)
		}
		_, err = update(on(1))
		wantError(t, err, CodeParameterInvalid, "The stream of the table is enabled. Disable it before it is enabled with other parameters.")
		f.mustWrite(putOf(pk("a"), cell("c", 1)))
		for range 2 {
			if off, err := update(StreamSpecification{}); err != nil || off != nil {
				t.Errorf("disabled: %+v, %v", off, err)
			}
		}
		_, err = f.page(it, nil)
		wantError(t, err, CodeTrimmedDataAccess, trimmedMessage)
		second, err := update(on(1))
		if err != nil || second.StreamID == first.StreamID {
			t.Errorf("enabled again: %+v, %v", second, err)
		}
		_, err = f.page(it, nil)
		wantError(t, err, CodeTrimmedDataAccess, trimmedMessage)
		if records, _ := f.rest(f.iteratorSince(nil)); len(records) != 0 {
			t.Errorf("the new stream has old records: %s", told(records))
		}
		if err := f.DeleteTable(context.Background(), testInstance, "t"); err != nil {
			t.Fatal(err)
		}
		f.createPlain(1, -1)
		if streams, err := f.ListStream(context.Background(), testInstance, ""); err != nil || len(streams) != 0 {
			t.Errorf("streams of a new table: %v, %v", streams, err)
		}
	}
}

func TestIteratorsThatThisServerDidNotMakeAreRefused(t *testing.T) {
	f := openStream(t, Limits{}, StreamSpecification{})
	it := f.iteratorSince(nil)
	raw, err := base64.RawURLEncoding.DecodeString(it)
	if err != nil {
		t.Fatal(err)
	}
	for i := range raw {
		bad := []byte(string(raw))
		bad[i] ^= 1
		if _, err := f.page(base64.RawURLEncoding.EncodeToString(bad), nil); err == nil {
			t.Errorf("byte %d may be changed", i)
		}
	}
	for n := range it {
		if _, err := f.page(it[:n], nil); err == nil {
			t.Errorf("the first %d characters are an iterator", n)
		}
	}
	for _, bad := range []string{"", it + "=", " " + it, strings.Repeat("A", 100_000)} {
		_, err := f.page(bad, nil)
		wantError(t, err, CodeParameterInvalid, "The shard iterator is invalid.")
	}
	stream, shard := f.only()
	for _, c := range []struct {
		req           GetShardIteratorRequest
		code, message string
	}{
		{GetShardIteratorRequest{StreamID: "t_1_1", ShardID: shard}, CodeObjectNotExist, "Requested stream does not exist."},
		{GetShardIteratorRequest{StreamID: stream, ShardID: "00000000000000ff"}, CodeObjectNotExist, "Requested stream shard does not exist."},
		{GetShardIteratorRequest{StreamID: stream, ShardID: "+" + shard[1:]}, CodeObjectNotExist, "Requested stream shard does not exist."},
		{GetShardIteratorRequest{StreamID: stream, ShardID: shard, Timestamp: ptr(int64(-1))}, CodeParameterInvalid, "The timestamp must be greater than or equal to 0."},
		{GetShardIteratorRequest{StreamID: stream, ShardID: shard, Token: "x"}, CodeParameterInvalid, "The token is invalid."},
	} {
		_, err := f.GetShardIterator(context.Background(), testInstance, &c.req)
		wantError(t, err, c.code, c.message)
	}
	_, err = f.page(it, ptr(int32(0)))
	wantError(t, err, CodeParameterInvalid, "The limit must be greater than 0.")
	_, err = f.GetStreamRecord(context.Background(), testInstance, &GetStreamRecordRequest{Iterator: it, Table: ptr("other")})
	wantError(t, err, CodeParameterInvalid, "The shard iterator is not of table 'other'.")
	_, err = f.GetStreamRecord(context.Background(), "other", &GetStreamRecordRequest{Iterator: it})
	wantError(t, err, CodeTrimmedDataAccess, trimmedMessage)
}

// TestPagesOfStreamsAreBounded by the request, by number and by size, and cost what they
// return.
func TestPagesOfStreamsAreBounded(t *testing.T) {
	f := openStream(t, Limits{}, StreamSpecification{})
	it := f.iteratorSince(nil)
	if p, err := f.page(it, nil); err != nil || p.Next != it || p.More || p.Consumed != (CapacityUnit{Read: 1}) {
		t.Errorf("nothing: %+v, %v", p, err)
	}
	for i := range 1001 {
		f.mustWrite(putOf(pk(fmt.Sprint(i)), cell("c", 1)))
	}
	for _, c := range []struct {
		limit *int32
		want  int
	}{{nil, 1000}, {ptr(int32(1)), 1}, {ptr(int32(1000)), 1000}, {ptr(int32(1 << 30)), 1000}} {
		p, err := f.page(it, c.limit)
		if err != nil || len(p.Records) != c.want || !p.More {
			t.Errorf("limit %v: %d records, more %v, %v", c.limit, len(p.Records), p.More, err)
		}
	}
	_, it = f.rest(it)
	value := strings.Repeat("x", 1_000_000)
	for range 6 {
		f.mustWrite(putOf(pk("big"), cell("c", value)))
	}
	p, err := f.page(it, nil)
	if size := int64(2 + 3 + 1 + len(value)); err != nil || len(p.Records) != 5 || !p.More || p.Consumed != readCost(5*size) {
		t.Errorf("%d records of a megabyte, more %v, consumed %+v, %v", len(p.Records), p.More, p.Consumed, err)
	}
	if p, err = f.page(p.Next, nil); err != nil || len(p.Records) != 1 || p.More {
		t.Errorf("the rest: %d records, more %v, %v", len(p.Records), p.More, err)
	}
}

// TestAStreamFollowsASplitAndAMerge edits the manifest between two runs of the engine.
func TestAStreamFollowsASplitAndAMerge(t *testing.T) {
	fs := vfs.NewSim(vfs.SimOptions{})
	open := func() *fixture {
		return openFixtureOver(t, Limits{}, flagstone.Options{Seams: seams.Seams{FS: fs}})
	}
	f := open()
	req := tableRequest("t", "pk", row.TypeString)
	req.Stream = &StreamSpecification{Enable: true, ExpirationHours: ptr(int32(24))}
	f.create(req)
	begin := f.iteratorSince(nil)
	f.mustWrite(putOf(pk("a"), cell("c", 1)), putOf(pk("z"), cell("c", 1)))
	replace := func(old []uint64, bounds ...string) {
		t.Helper()
		if err := f.store.Close(); err != nil {
			t.Fatal(err)
		}
		replacePartitions(t, fs, old, bounds)
		f = open()
	}
	replace([]uint64{1}, "m")
	f.mustWrite(putOf(pk("a"), cell("c", 2)), putOf(pk("z"), cell("c", 2)))
	replace([]uint64{3, 4})
	f.mustWrite(putOf(pk("a"), cell("c", 3)))

	stream := f.streamID()
	id := func(n uint64) string { return fmt.Sprintf("%016x", n) }
	want := []StreamShard{{ID: id(1)}, {ID: id(3), Parent: id(1)}, {ID: id(4), Parent: id(1)}, {ID: id(5), Parent: id(3), ParentSibling: id(4)}}
	var shards []StreamShard
	for start := (*string)(nil); ; {
		d, err := f.DescribeStream(context.Background(), testInstance, &DescribeStreamRequest{StreamID: stream, StartShard: start, ShardLimit: ptr(int32(3))})
		if err != nil {
			t.Fatal(err)
		}
		if shards = append(shards, d.Shards...); d.NextShard == "" {
			break
		}
		start = &d.NextShard
	}
	if !slices.Equal(shards, want) {
		t.Errorf("the shards are %+v, want %+v", shards, want)
	}
	for shard, want := range map[string][2]string{
		id(1): {"put \"a\" c@0=1\nput \"z\" c@0=1", "closed"}, id(3): {"put \"a\" c@0=2", "closed"},
		id(4): {"put \"z\" c@0=2", "closed"}, id(5): {"put \"a\" c@0=3", ""},
	} {
		it, err := f.GetShardIterator(context.Background(), testInstance, &GetShardIteratorRequest{StreamID: stream, ShardID: shard})
		if err != nil {
			t.Fatal(err)
		}
		if records, next := f.rest(it); told(records) != want[0] || (next == "") != (want[1] != "") {
			t.Errorf("shard %s: %s, next %q", shard, told(records), next)
		}
	}
	if p, err := f.page(begin, ptr(int32(1))); err != nil || p.Next == "" || !p.More {
		t.Errorf("the first record of a closed shard: %+v, %v", p, err)
	}
	if records, next := f.rest(begin); len(records) != 2 || next != "" {
		t.Errorf("an iterator from before the split: %d records, next %q", len(records), next)
	}
	future := (startMillis + 3_600_000_000) * 1000
	it, err := f.GetShardIterator(context.Background(), testInstance, &GetShardIteratorRequest{StreamID: stream, ShardID: id(3), Timestamp: &future})
	if err != nil {
		t.Fatal(err)
	}
	if records, next := f.rest(it); len(records) != 0 || next != "" {
		t.Errorf("a closed shard in the future: %s, next %q", told(records), next)
	}
}

// replacePartitions replaces partitions of the only table of a store that is closed, by partitions
// between some bounds.
func replacePartitions(t *testing.T, fs vfs.FS, old []uint64, bounds []string) {
	t.Helper()
	log, state, err := manifest.Open(fs, "/store", nil)
	if err != nil {
		t.Fatal(err)
	}
	r := &manifest.Replacement{Old: old, After: state.LastSeq + 100}
	var start []byte
	for i := range len(bounds) + 1 {
		table, was := state.Partition(old[0])
		r.Table = table.ID
		p := &manifest.Partition{ID: state.NextPartition + uint64(i), Start: start, Epoch: was.Epoch + 1}
		if i < len(bounds) {
			if p.End, err = row.AppendKey(nil, 1, row.String(bounds[i])); err != nil {
				t.Fatal(err)
			}
		}
		start, r.New = p.End, append(r.New, p)
	}
	if _, err = log.Commit(&manifest.Edit{Replaced: []*manifest.Replacement{r}}); err == nil {
		err = log.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestStreamRecordsExpireByTheClock checks that an iterator is valid as long as the records
// after it, and that using one at the end renews it.
func TestStreamRecordsExpireByTheClock(t *testing.T) {
	f := openStream(t, Limits{}, StreamSpecification{ExpirationHours: ptr(int32(1))})
	begin := f.iteratorSince(nil)
	f.mustWrite(putOf(pk("a"), cell("c", 1)))
	f.clock.Advance(40 * time.Minute)
	between := (startMillis + 20*60_000) * 1000
	f.mustWrite(putOf(pk("b"), cell("c", 1)))
	if records, _ := f.rest(f.iteratorSince(&between)); told(records) != `put "b" c@2400000=1` {
		t.Errorf("since then: %s", told(records))
	}
	future := (startMillis + 3_600_000_000) * 1000
	if records, _ := f.rest(f.iteratorSince(&future)); len(records) != 0 {
		t.Errorf("of the future: %s", told(records))
	}
	records, end := f.rest(begin)
	if len(records) != 2 {
		t.Fatalf("%d records", len(records))
	}
	f.clock.Advance(20*time.Minute + time.Second)
	_, err := f.page(begin, nil)
	wantError(t, err, CodeTrimmedDataAccess, trimmedMessage)
	if records, _ := f.rest(f.iteratorSince(nil)); told(records) != `put "b" c@2400000=1` {
		t.Errorf("what is left: %s", told(records))
	}
	for range 10 {
		f.clock.Advance(35 * time.Minute)
		_, end = f.rest(end)
	}
	f.mustWrite(putOf(pk("c"), cell("c", 1)))
	if records, _ := f.rest(end); len(records) != 1 {
		t.Errorf("after a long rest: %s", told(records))
	}
}

// TestAPageOfAStreamTakesItsTurn, also one of a few records: each may be large.
func TestAPageOfAStreamTakesItsTurn(t *testing.T) {
	f := openStream(t, Documented(), StreamSpecification{})
	f.mustWrite(putOf(pk("a"), cell("c", 1)))
	turn := new(testTurn)
	req := &GetStreamRecordRequest{Iterator: f.iteratorSince(nil), Limit: ptr(int32(1))}
	if _, err := f.GetStreamRecord(WithTurn(context.Background(), turn), testInstance, req); err != nil || turn.taken.Load() == 0 {
		t.Errorf("%d turns: %v", turn.taken.Load(), err)
	}
}
