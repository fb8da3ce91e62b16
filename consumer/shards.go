package consumer

// This file finds the shards of the stream. A shard enters the position when all its parents are consumed, in one step
// with their ends. So a position always holds an iterator from which every later change is reached, and an iterator that
// has expired tells that changes are lost.

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/aliyun/aliyun-tablestore-go-sdk/tablestore"
)

// Codes of the endpoint.
const (
	codeTrimmed = "OTSTrimmedDataAccess"
	codeMissing = "OTSObjectNotExist"
)

func hasCode(err error, codes ...string) bool {
	refusal, ok := errors.AsType[*tablestore.OtsError](err)
	return ok && slices.Contains(codes, refusal.Code)
}

// begin finds the stream, and makes the first position unless there is one.
func (r *run) begin(ctx context.Context) error {
	id, err := r.stream(ctx)
	if err != nil {
		return err
	}
	if r.From == nil {
		r.at = Position{Stream: id, Shards: map[string]string{}}
		if !r.Since.IsZero() {
			r.at.Since = max(r.Since.UnixMicro(), 1)
		}
		return r.discover(ctx, nil)
	}
	r.at = Position{Stream: r.From.Stream, Since: r.From.Since, Shards: maps.Clone(r.From.Shards)}
	if r.at.Stream != id || len(r.at.Shards) == 0 {
		return fmt.Errorf("%w: the position is in stream %q, and the stream of table %s is %q", ErrLost, r.at.Stream, r.Table, id)
	}
	return nil
}

// stream returns the id of the table's stream.
func (r *run) stream(ctx context.Context) (string, error) {
	var list *tablestore.ListStreamResponse
	err := r.ask(ctx, func() (err error) {
		list, err = r.client.ListStream(&tablestore.ListStreamRequest{TableName: &r.Table})
		return err
	})
	switch {
	case err != nil:
		return "", fmt.Errorf("table %s: %w", r.Table, err)
	case len(list.Streams) > 0:
		return string(*list.Streams[0].Id), nil
	case r.From != nil:
		return "", fmt.Errorf("%w: the stream of table %s was disabled", ErrLost, r.Table)
	}
	return "", fmt.Errorf("table %s has no stream", r.Table)
}

// discover takes shards into the position whose parents are consumed, those of ended included, and takes those out that
// the endpoint has forgotten. No turn is under way.
func (r *run) discover(ctx context.Context, ended []string) error {
	shards, err := r.shards(ctx)
	if err != nil {
		return fmt.Errorf("stream of table %s: %w", r.Table, err)
	}
	first := len(r.at.Shards) == 0
	next := maps.Clone(r.at.Shards)
	for _, shard := range ended {
		next[shard] = ""
	}
	listed := make(map[string]bool, len(shards))
	for _, s := range shards {
		listed[string(*s.SelfShard)] = true
	}
	needed := map[string]bool{} // parents of shards that wait
	for _, s := range shards {
		id := string(*s.SelfShard)
		if _, known := next[id]; known {
			continue
		}
		ready := true
		for _, parent := range parents(s) {
			needed[parent] = true
			place, known := next[parent]
			switch {
			case known:
				ready = ready && place == ""
			case listed[parent]:
				ready = false
			case !first:
				return fmt.Errorf("%w: shard %s of the stream was forgotten before it was read", ErrLost, parent)
			}
		}
		if ready {
			if next[id], err = r.iterator(ctx, *s.SelfShard, first); err != nil {
				return inShard(id, err)
			}
		}
	}
	maps.DeleteFunc(next, func(id, place string) bool { return place == "" && !listed[id] && !needed[id] })
	r.mu.Lock()
	defer r.mu.Unlock()
	r.at.Shards, r.changed = next, true
	return nil
}

// parents are the shards that a shard came from.
func parents(s *tablestore.StreamShard) (ids []string) {
	for _, parent := range [...]*tablestore.ShardId{s.FatherShard, s.MotherShard} {
		if parent != nil {
			ids = append(ids, string(*parent))
		}
	}
	return ids
}

// shards lists the shards of the stream.
func (r *run) shards(ctx context.Context) (shards []*tablestore.StreamShard, err error) {
	id := tablestore.StreamId(r.at.Stream)
	request := &tablestore.DescribeStreamRequest{StreamId: &id}
	for {
		var described *tablestore.DescribeStreamResponse
		err := r.ask(ctx, func() (err error) {
			described, err = r.client.DescribeStream(request)
			return err
		})
		if hasCode(err, codeMissing) {
			err = fmt.Errorf("%w: the stream was disabled: %w", ErrLost, err)
		}
		if err != nil {
			return nil, err
		}
		shards = append(shards, described.Shards...)
		if request.InclusiveStartShardId = described.NextShardId; described.NextShardId == nil {
			return shards, nil
		}
	}
}

// iterator returns the iterator with which a shard begins; "" if the endpoint forgot it since it was listed for the first
// position, which promises nothing yet.
func (r *run) iterator(ctx context.Context, shard tablestore.ShardId, first bool) (string, error) {
	id := tablestore.StreamId(r.at.Stream)
	request := &tablestore.GetShardIteratorRequest{StreamId: &id, ShardId: &shard}
	if r.at.Since > 0 {
		request.Timestamp = &r.at.Since
	}
	var found *tablestore.GetShardIteratorResponse
	err := r.ask(ctx, func() (err error) {
		found, err = r.client.GetShardIterator(request)
		return err
	})
	switch {
	case err == nil:
		return string(*found.ShardIterator), nil
	case first && hasCode(err, codeMissing):
		return "", nil
	case hasCode(err, codeMissing, codeTrimmed):
		err = fmt.Errorf("%w: it was forgotten before it was read: %w", ErrLost, err)
	}
	return "", err
}
