package gosdk_test

import (
	"slices"
	"testing"

	ots "github.com/aliyun/aliyun-tablestore-go-sdk/tablestore"
)

// follower reads the stream of a table while its partitions are split and merged: of a shard only when it
// has read all of the shard's parents. So it sees the changes of each row in their order.
type follower struct {
	t      *testing.T
	stream *ots.StreamId
	shards map[ots.ShardId]*followed
}

// followed is a shard that is being read.
type followed struct {
	next *ots.ShardIterator // nil at the end of a shard that was split or merged
	last [3]int64           // place of the last record
}

func newFollower(t *testing.T, c *ots.TableStoreClient, table string) follower {
	t.Helper()
	streams, err := c.ListStream(&ots.ListStreamRequest{TableName: &table})
	if err != nil || len(streams.Streams) != 1 {
		t.Fatal(streams, err)
	}
	return follower{t, streams.Streams[0].Id, map[ots.ShardId]*followed{}}
}

// page reads a page of each shard that may be read. more says that there may be more to read.
func (f *follower) page(c *ots.TableStoreClient, limit int32, do func(*ots.StreamRecord)) (more bool, err error) {
	listed, err := f.list(c)
	if err != nil {
		return false, err
	}
	for _, shard := range listed {
		s := f.shards[*shard.SelfShard]
		if s == nil {
			if f.unread(shard.FatherShard, listed) || f.unread(shard.MotherShard, listed) {
				continue
			}
			it, err := c.GetShardIterator(&ots.GetShardIteratorRequest{StreamId: f.stream, ShardId: shard.SelfShard})
			if err != nil {
				return false, err
			}
			s = &followed{next: it.ShardIterator}
			f.shards[*shard.SelfShard] = s
		}
		for s.next != nil {
			resp, err := c.GetStreamRecord(&ots.GetStreamRecordRequest{ShardIterator: s.next, Limit: &limit})
			if err != nil {
				return false, err
			}
			for _, record := range resp.Records {
				place := [3]int64{int64(record.Info.Epoch), record.Info.Timestamp, int64(record.Info.RowIndex)}
				if slices.Compare(place[:], s.last[:]) <= 0 {
					f.t.Errorf("shard %s: a record at %v after one at %v", *shard.SelfShard, place, s.last)
				}
				s.last = place
				do(record)
			}
			same := resp.NextShardIterator != nil && *resp.NextShardIterator == *s.next
			more = more || !same
			if s.next = resp.NextShardIterator; same || len(resp.Records) > 0 {
				break
			}
		}
	}
	return more, nil
}

// unread reports whether a parent, which may be nil, is still to be read. One that is not listed has expired.
func (f *follower) unread(parent *ots.ShardId, listed []*ots.StreamShard) bool {
	if parent == nil {
		return false
	}
	s := f.shards[*parent]
	return s != nil && s.next != nil ||
		s == nil && slices.ContainsFunc(listed, func(l *ots.StreamShard) bool { return *l.SelfShard == *parent })
}

// list lists all shards of the stream.
func (f *follower) list(c *ots.TableStoreClient) (all []*ots.StreamShard, err error) {
	for from := (*ots.ShardId)(nil); ; {
		resp, err := c.DescribeStream(&ots.DescribeStreamRequest{StreamId: f.stream, InclusiveStartShardId: from})
		if err != nil {
			return nil, err
		}
		all = append(all, resp.Shards...)
		if from = resp.NextShardId; from == nil {
			return all, nil
		}
	}
}
