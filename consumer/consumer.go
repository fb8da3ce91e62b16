// Package consumer reads the changes of a table's stream at a Table Store endpoint, this server or another, and gives
// them to a function at least once. It reads a shard after its parents, so the changes of a row come in their order,
// also when partitions are split and merged. Shards that do not depend on each other are read by several workers.
//
//	err := consumer.Run(ctx, client, consumer.Options{
//		Table: "orders", From: position, Save: save, Follow: true,
//		Handle: func(ctx context.Context, shard string, records []*tablestore.StreamRecord) error { ... },
//	})
//
// It speaks through the client of the official Go SDK, and not to a store of this process: a consumer mostly runs apart
// from the server, and outlives it. A program that embeds a store reads flagstone.Stream itself.
//
//	consumer.go  what a caller gives, the rounds, and the turns of shards
//	shards.go    which shards there are, and where each begins
//
// docs/streams.md says what is promised.
package consumer

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/aliyun/aliyun-tablestore-go-sdk/tablestore"
)

// ErrLost says that changes can no longer be read: they expired before they were consumed, or the stream was disabled.
// The caller reads the table again, and begins without a position.
var ErrLost = errors.New("consumer: changes are lost")

// Client are the requests that a consumer sends. A *tablestore.TableStoreClient is one.
type Client interface {
	ListStream(*tablestore.ListStreamRequest) (*tablestore.ListStreamResponse, error)
	DescribeStream(*tablestore.DescribeStreamRequest) (*tablestore.DescribeStreamResponse, error)
	GetShardIterator(*tablestore.GetShardIteratorRequest) (*tablestore.GetShardIteratorResponse, error)
	GetStreamRecord(*tablestore.GetStreamRecordRequest) (*tablestore.GetStreamRecordResponse, error)
}

var _ Client = (*tablestore.TableStoreClient)(nil)

// Position is a place in a stream. A caller keeps it as JSON, for example, and begins there later.
type Position struct {
	Stream string `json:"stream"`
	Since  int64  `json:"since"` // Options.Since, in microseconds since the epoch; 0 if it was not set
	// Shards has the iterator of the next record of each shard, "" if the shard was consumed to its end. A shard that is
	// not there waits for its parents.
	Shards map[string]string `json:"shards"`
}

// Options say what is read, and who gets it.
type Options struct {
	Table string
	// Handle gets changes of a shard in their order, up to a page of the endpoint: 1,000 records, or 4 MiB and the record
	// that exceeds it. Several calls run at a time if there are several workers, for different shards. An error ends
	// Run; the changes come again in the next one. Shards have turns of a few pages, so a slow call delays the other
	// shards by no more than its own turn.
	Handle func(ctx context.Context, shard string, records []*tablestore.StreamRecord) error
	// From is where an earlier run was, as its Save got it. Nil begins anew.
	From *Position
	// Since leaves out earlier changes, by the clock of the server. The zero time begins at the oldest change there is.
	// It is not used if From is given.
	Since time.Time
	// Save keeps the position: about every second while changes come, before each pause, and when Run ends. Calls do not
	// overlap. The position is valid during the call. An error ends Run. Nil keeps none.
	Save func(*Position) error
	// Follow waits for further changes. Otherwise Run ends when it has read all there are.
	Follow bool
	// Workers is how many shards are read at a time; 0 is one. Each holds one page in memory.
	Workers int
	// Retry sends a request again until it succeeds or fails for good. Nil sends it once; the SDK's client repeats
	// requests by itself, for as long as its configuration says.
	Retry func(ctx context.Context, request func() error) error
}

const (
	// saveEvery is the time between two positions while changes come.
	saveEvery = time.Second
	// turnPages is how many pages of a shard are read before other shards have their turn.
	turnPages = 16
	// A reader that has read everything asks again after firstPause, and then after twice that, up to lastPause.
	firstPause, lastPause = 20 * time.Millisecond, time.Second
)

// run is the state of Run.
type run struct {
	Options
	client Client

	mu      sync.Mutex // of all below
	at      Position
	changed bool // since it was saved
	saved   time.Time
	ended   map[string]bool // shards that were read to their ends, and whose children are not in the position yet
}

// Run reads until ctx ends, and then returns its cause, or until all changes are read if Follow is not set. It ends
// earlier with an error of Handle, Save or a request, or with one that matches ErrLost.
func Run(ctx context.Context, client Client, o Options) error {
	r := &run{Options: o, client: client, saved: time.Now(), ended: map[string]bool{}}
	if err := r.begin(ctx); err != nil {
		return err
	}
	pause := firstPause
	for {
		read, err := r.round(ctx)
		if err != nil {
			return errors.Join(err, r.save())
		}
		switch {
		case read:
			pause = firstPause
			continue
		case !r.Follow:
			return r.save()
		}
		if err := r.save(); err != nil {
			return err
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		pause = min(2*pause, lastPause)
	}
}

// round gives each open shard a turn. It reports whether a record was read or a shard has ended.
func (r *run) round(ctx context.Context) (read bool, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	shards := make(chan string)
	var workers sync.WaitGroup
	for range max(r.Workers, 1) {
		workers.Go(func() {
			for shard := range shards {
				some, end, err := r.turn(ctx, shard)
				if err != nil {
					cancel(err) // only the first one stays
				}
				r.mu.Lock()
				read = read || some
				if end {
					r.ended[shard] = true
				}
				r.mu.Unlock()
			}
		})
	}
	for _, shard := range r.open() {
		shards <- shard
	}
	close(shards)
	workers.Wait()
	if before := len(r.ended); before > 0 && ctx.Err() == nil {
		if err := r.discover(ctx); err != nil {
			return read, err
		}
		read = read || len(r.ended) < before
	}
	return read, context.Cause(ctx)
}

// open lists the shards that have not ended, in ascending order.
func (r *run) open() (shards []string) {
	for _, shard := range slices.Sorted(maps.Keys(r.at.Shards)) {
		if r.at.Shards[shard] != "" && !r.ended[shard] {
			shards = append(shards, shard)
		}
	}
	return shards
}

// turn reads some pages of a shard. It reports whether there were records, and whether the shard has ended. The position
// of a shard that has ended stays before its last page until those of its children are known.
func (r *run) turn(ctx context.Context, shard string) (some, ended bool, err error) {
	r.mu.Lock()
	iterator := r.at.Shards[shard]
	r.mu.Unlock()
	for range turnPages {
		page, err := r.page(ctx, iterator, nil)
		if err != nil {
			return some, false, inShard(shard, err)
		}
		if len(page.Records) > 0 {
			some = true
			if err := r.Handle(ctx, shard, page.Records); err != nil {
				return some, false, inShard(shard, err)
			}
		}
		if page.NextShardIterator == nil {
			return some, true, nil
		}
		iterator = string(*page.NextShardIterator)
		if err := r.move(shard, iterator); err != nil {
			return some, false, err
		}
		more := len(page.Records) > 0
		if page.MayMoreRecord != nil {
			more = *page.MayMoreRecord
		}
		if !more {
			break
		}
	}
	return some, false, nil
}

func inShard(shard string, err error) error {
	return fmt.Errorf("shard %s of the stream: %w", shard, err)
}

// page reads the records at an iterator, at most limit if it is not nil.
func (r *run) page(ctx context.Context, iterator string, limit *int32) (page *tablestore.GetStreamRecordResponse, err error) {
	at := tablestore.ShardIterator(iterator)
	err = r.ask(ctx, func() (err error) {
		page, err = r.client.GetStreamRecord(&tablestore.GetStreamRecordRequest{ShardIterator: &at, Limit: limit})
		return err
	})
	if hasCode(err, codeTrimmed, codeMissing) {
		err = fmt.Errorf("%w: records expired before they were read: %w", ErrLost, err)
	}
	return page, err
}

// ask sends a request, unless ctx has ended.
func (r *run) ask(ctx context.Context, request func() error) error {
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case r.Retry != nil:
		return r.Retry(ctx, request)
	}
	return request()
}

// move notes that a shard was consumed up to an iterator.
func (r *run) move(shard, iterator string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.at.Shards[shard] != iterator {
		r.at.Shards[shard], r.changed = iterator, true
	}
	if time.Since(r.saved) < saveEvery {
		return nil
	}
	return r.keep()
}

// save saves the position, if it has changed.
func (r *run) save() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.keep()
}

// keep is save. REQUIRES: mu is held.
func (r *run) keep() error {
	if !r.changed || r.Save == nil {
		return nil
	}
	if err := r.Save(&r.at); err != nil {
		return fmt.Errorf("consumer: the position in the stream of table %s: %w", r.Table, err)
	}
	r.changed, r.saved = false, time.Now()
	return nil
}
