package ots

import (
	"context"
	"fmt"
	"testing"
	"time"
)

// readersOf returns the readers of the stream of table t.
func (f *fixture) readersOf() []StreamReader {
	f.tb.Helper()
	list, err := f.LookAtReaders(testInstance, "t")
	if err != nil {
		f.tb.Fatal(err)
	}
	return list
}

// TestReadersOfAStreamAreKnownByWhatTheyWereGiven has two senders read a shard, one of them to its end.
func TestReadersOfAStreamAreKnownByWhatTheyWereGiven(t *testing.T) {
	ctx := context.Background()
	f := openStream(t, Limits{}, StreamSpecification{})
	if list := f.readersOf(); len(list) != 0 {
		t.Errorf("before a read: %+v", list)
	}
	_, shard := f.only()
	begin := f.iteratorSince(nil)
	read := func(sender, iterator string, limit *int32) string {
		t.Helper()
		page, err := f.GetStreamRecord(ctx, testInstance, &GetStreamRecordRequest{Iterator: iterator, Limit: limit, Sender: sender})
		if err != nil {
			t.Fatal(err)
		}
		return page.Next
	}
	micros := func() int64 { return f.store.WallMillis() * 1000 }
	f.mustWrite(putOf(pk("a")))
	first := micros()
	f.clock.Advance(time.Second)
	f.mustWrite(putOf(pk("b")))
	second := micros()
	f.clock.Advance(time.Second)
	next := read("anna", begin, ptr(int32(1)))
	read("", begin, nil)
	f.clock.Advance(time.Second)
	read("bert", begin, nil)
	want := []StreamReader{
		{Sender: "bert", Shard: shard, GivenMicros: second, AskedMillis: micros() / 1000, All: true},
		{Sender: "anna", Shard: shard, GivenMicros: first, AskedMillis: micros()/1000 - 1000},
	}
	if list := f.readersOf(); fmt.Sprint(list) != fmt.Sprint(want) {
		t.Errorf("%+v, want %+v", list, want)
	}
	f.split("m")
	f.clock.Advance(time.Second)
	read("anna", next, nil)
	if list := f.readersOf(); len(list) != 2 || list[0].Sender != "anna" || !list[0].Ended || list[1].Ended {
		t.Errorf("at the end of a shard: %+v", list)
	}
	for _, spec := range []StreamSpecification{{}, {Enable: true, ExpirationHours: ptr(int32(1))}} {
		if _, err := f.UpdateTable(ctx, testInstance, &UpdateTableRequest{Table: "t", Stream: &spec}); err != nil {
			t.Fatal(err)
		}
	}
	if list := f.readersOf(); len(list) != 0 {
		t.Errorf("of another stream: %+v", list)
	}
}

// TestReadersThatAskNoMoreAreForgotten has more readers than are remembered, one of which goes on asking.
func TestReadersThatAskNoMoreAreForgotten(t *testing.T) {
	var r readers
	note := func(n int) {
		sender := fmt.Sprint("key", n)
		r.note(7, uint64(n), StreamReader{Sender: sender, AskedMillis: int64(n)})
		r.note(8, 1, StreamReader{Sender: "steady", AskedMillis: int64(n)})
	}
	const many = 3 * mostReaders
	for n := range many {
		note(n)
	}
	list := r.of(7)
	if len(list) < mostReaders/2-1 || len(list)+1 > mostReaders || list[0].AskedMillis != many-1 {
		t.Errorf("%d readers are remembered, first %+v", len(list), list[:1])
	}
	if list := r.of(8); len(list) != 1 || list[0].AskedMillis != many-1 {
		t.Errorf("who asks is forgotten: %+v", list)
	}
}
