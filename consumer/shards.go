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
		return r.discover(ctx)
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
	case r.From != nil && hasCode(err, codeMissing):
		return "", fmt.Errorf("%w: table %s was dropped: %w", ErrLost, r.Table, err)
	case err != nil:
		return "", fmt.Errorf("table %s: %w", r.Table, err)
	case len(list.Streams) > 0:
		return string(*list.Streams[0].Id), nil
	case r.From != nil:
		return "", fmt.Errorf("%w: the stream of table %s was disabled", ErrLost, r.Table)
	}
	return "", fmt.Errorf("table %s has no stream", r.Table)
}

// discover takes shards into the position whose parents are consumed, those of r.ended included, and takes those out that
// the endpoint has forgotten. A shard stays in r.ended until a child of it is listed. No turn is under way.
func (r *run) discover(ctx context.Context) error {
	shards, err := r.shards(ctx)
	if err != nil {
		return fmt.Errorf("stream of table %s: %w", r.Table, err)
	}
	next := maps.Clone(r.at.Shards)
	listed := make(map[string]bool, len(shards))
	for _, s := range shards {
		listed[string(*s.SelfShard)] = true
		for _, parent := range parents(s) {
			if r.ended[parent] {
				next[parent] = ""
			}
		}
	}
	needed, err := r.enter(ctx, shards, listed, next)
	if err != nil {
		return err
	}
	for shard := range r.ended {
		if next[shard] != "" {
			continue
		}
		// Records of a child can expire before its iterator is there, which then begins behind them. All of them are
		// later than the parent, so none has expired if the parent can still be read.
		if _, err := r.page(ctx, r.at.Shards[shard], new(int32(1))); err != nil {
			return inShard(shard, err)
		}
	}
	maps.DeleteFunc(r.ended, func(shard string, _ bool) bool { return next[shard] == "" })
	maps.DeleteFunc(next, func(id, place string) bool { return place == "" && !listed[id] && !needed[id] })
	r.mu.Lock()
	defer r.mu.Unlock()
	r.changed = r.changed || !maps.Equal(r.at.Shards, next)
	r.at.Shards = next
	return nil
}

// enter adds the shards to next whose parents are consumed there. It returns the parents of those that it did not find
// there.
func (r *run) enter(ctx context.Context, shards []*tablestore.StreamShard, listed map[string]bool, next map[string]string) (needed map[string]bool, err error) {
	first := len(r.at.Shards) == 0
	needed = map[string]bool{}
	for again := true; again; { // a child may be listed before its parent
		again = false
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
					return nil, fmt.Errorf("%w: shard %s of the stream was forgotten before it was read", ErrLost, parent)
				}
			}
			if ready {
				if next[id], err = r.iterator(ctx, *s.SelfShard, first); err != nil {
					return nil, inShard(id, err)
				}
				again = true
			}
		}
	}
	return needed, nil
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
