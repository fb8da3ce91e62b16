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

// ErrLost says that changes can no longer be read: they expired before they were consumed, the stream was disabled, or the
// table was dropped.
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
	// Save keeps the position: about every second while changes come, when there are no more, and when Run ends. Calls do
	// not overlap. The position is valid during the call. An error ends Run. Nil keeps none.
	Save func(*Position) error
	// Follow waits for further changes. Otherwise Run ends when each shard had no more at some moment of the run, also if
	// the table is written meanwhile.
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
	// ended are the shards that were read to their ends, and whose children are not in the position yet.
	ended map[string]bool
	// finished are the shards of which this run has read what there was, unless it follows them.
	finished map[string]bool
}

// Run reads until ctx ends, and then returns its cause, or until all changes are read if Follow is not set. It ends
// earlier with an error of Handle, Save or a request, or with one that matches ErrLost. If the last position cannot be
// saved after ctx has ended, it returns that error alone.
func Run(ctx context.Context, client Client, o Options) error {
	r := &run{Options: o, client: client, saved: time.Now(), ended: map[string]bool{}, finished: map[string]bool{}}
	err := r.read(ctx)
	interrupted := endedBy(ctx, err)
	switch unsaved := r.save(); {
	case unsaved != nil && interrupted:
		return unsaved
	case unsaved != nil:
		return errors.Join(err, unsaved)
	case interrupted:
		return context.Cause(ctx)
	}
	return err
}

// endedBy reports whether err tells no more than that ctx has ended.
func endedBy(ctx context.Context, err error) bool {
	return ctx.Err() != nil && (errors.Is(err, context.Cause(ctx)) || errors.Is(err, ctx.Err()))
}

// read is Run without the last position.
func (r *run) read(ctx context.Context) error {
	if err := r.begin(ctx); err != nil {
		return err
	}
	pause := firstPause
	for {
		found, err := r.round(ctx)
		switch {
		case err != nil:
			return err
		case !r.Follow && len(r.open()) == 0:
			return nil
		case found.some:
			pause = firstPause
		default: // no changes come
			if err := r.save(); err != nil {
				return err
			}
		}
		if found.more || found.ended {
			continue
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		pause = min(2*pause, lastPause)
	}
}

// progress is what turns have found.
type progress struct {
	some  bool // there were records
	more  bool // there are further ones
	ended bool // a shard has ended
}

// round gives each open shard a turn. Its error is the first one of a turn, or the cause if the context has ended.
func (r *run) round(parent context.Context) (all progress, err error) {
	ctx, cancel := context.WithCancelCause(parent)
	defer cancel(nil)
	shards := make(chan string)
	var workers sync.WaitGroup
	for range max(r.Workers, 1) {
		workers.Go(func() {
			for shard := range shards {
				found, failed := r.turn(ctx, shard)
				r.mu.Lock()
				switch {
				case failed != nil:
					if err == nil && !endedBy(parent, failed) {
						err = failed
					}
					cancel(failed)
				case found.ended:
					r.ended[shard] = true
				case !found.more && !r.Follow:
					r.finished[shard] = true
				}
				all.some, all.more = all.some || found.some, all.more || found.more
				r.mu.Unlock()
			}
		})
	}
	for _, shard := range r.open() {
		shards <- shard
	}
	close(shards)
	workers.Wait()
	if err == nil {
		err = context.Cause(parent)
	}
	if before := len(r.ended); err == nil && before > 0 {
		err = r.discover(parent)
		all.ended = len(r.ended) < before
	}
	return all, err
}

// open lists the shards that are to be read, in ascending order.
func (r *run) open() (shards []string) {
	for _, shard := range slices.Sorted(maps.Keys(r.at.Shards)) {
		if r.at.Shards[shard] != "" && !r.ended[shard] && !r.finished[shard] {
			shards = append(shards, shard)
		}
	}
	return shards
}

// turn reads some pages of a shard. The position of a shard that has ended stays before its last page until those of its
// children are known.
func (r *run) turn(ctx context.Context, shard string) (found progress, err error) {
	r.mu.Lock()
	iterator := r.at.Shards[shard]
	r.mu.Unlock()
	for range turnPages {
		page, err := r.page(ctx, iterator, nil)
		if err != nil {
			return found, inShard(shard, err)
		}
		if len(page.Records) > 0 {
			found.some = true
			if err := r.Handle(ctx, shard, page.Records); err != nil {
				return found, inShard(shard, err)
			}
		}
		if found.ended = page.NextShardIterator == nil; found.ended {
			found.more = false
			return found, nil
		}
		iterator = string(*page.NextShardIterator)
		if err := r.move(shard, iterator); err != nil {
			return found, err
		}
		found.more = len(page.Records) > 0
		if page.MayMoreRecord != nil {
			found.more = *page.MayMoreRecord
		}
		if !found.more {
			break
		}
	}
	return found, nil
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
		r.changed = false // Run ends, and reports this once
		return fmt.Errorf("consumer: the position in the stream of table %s: %w", r.Table, err)
	}
	r.changed, r.saved = false, time.Now()
	return nil
}
