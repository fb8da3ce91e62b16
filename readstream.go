package flagstone

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"

	"github.com/flagstone-db/flagstone/cdc"
	"github.com/flagstone-db/flagstone/row"
)

// Stream is the stream of changes of a table. It stays valid until the stream is
// disabled or the table dropped; then its methods return ErrStreamNotFound.
type Stream struct {
	table, log *Table
}

// StreamInfo describes a stream.
type StreamInfo struct {
	StreamSpec
	ID            uint64 // never used again in this store
	CreatedMillis int64
}

// StreamShard is a part of a stream with its own order: the changes of one partition of the
// table.
type StreamShard struct {
	ID uint64
	// Parents are the shards that this one came from: one if a partition was split, two if two
	// were merged. A reader that reads them to their ends first sees the changes of each row in
	// order. A parent whose records have all expired may be left out.
	Parents []uint64
}

// StreamAction says what a change did.
type StreamAction int

const (
	// StreamPut replaced the row: it holds the cells of the record and no others.
	StreamPut StreamAction = iota + 1
	// StreamUpdate changed the columns that the record names.
	StreamUpdate
	// StreamDelete deleted the row.
	StreamDelete
)

// They are those of package cdc.
const _, _ = uint(StreamDelete - StreamAction(cdc.Delete)), uint(StreamAction(cdc.Delete) - StreamDelete)

// StreamRecord is one change of one row.
type StreamRecord struct {
	// Sequence numbers the changes of a store, in the order of their commits.
	Sequence uint64
	// Micros is the time of the commit, in microseconds since the epoch. It does
	// not fall from one record of a shard to the next.
	Micros int64
	Action StreamAction
	Key    []row.Value
	// Cells are the operations in the order in which they act: columns ascending; in a column,
	// first its delete as a whole (row.KindTrim), then the single versions, descending, that were
	// put or deleted (row.KindDeleteVersion). A StreamPut without cells leaves a row without
	// columns.
	Cells []row.Cell
	// Before are the newest values of the columns StreamSpec.Before, as they were before the
	// change.
	Before []row.Cell
}

// StreamPosition is a place between two records of a shard. It stays valid across restarts.
type StreamPosition struct {
	Shard uint64
	After uint64 // the next record has a larger sequence number
	// AsOf is a time in microseconds since the epoch: every record after the position was
	// committed at this time or later. While it lies within the retention of the stream, nothing
	// after the position has expired.
	AsOf int64
	// End says that Read found the end of the shard: its partition was split or merged, and what
	// follows is in the shards that have this one as a parent.
	End bool
}

// StreamLimits bound what one Read returns; 0 is no limit.
type StreamLimits struct {
	Records int
	Bytes   int64 // of memory: keys and values, and 96 bytes for each cell; the last record may exceed it
}

// StreamPage is what Read found.
type StreamPage struct {
	Records []StreamRecord
	Next    StreamPosition // behind the last of them
	// More says that further records follow.
	More bool
}

// Stream returns the table's stream, nil if it has none.
func (t *Table) Stream() *Stream {
	if log := t.core.Log.Load(); log != nil {
		return &Stream{t, &Table{t.store, log, t.latencies}}
	}
	return nil
}

// Info describes the stream; the zero StreamInfo if it is gone.
func (st *Stream) Info() StreamInfo {
	meta := st.log.core.Meta()
	if meta == nil || meta.Log.Until != 0 {
		return StreamInfo{}
	}
	return StreamInfo{
		StreamSpec: StreamSpec{
			RetentionSeconds: meta.Options.TTLSeconds, Before: meta.Log.Before, Annotations: meta.Annotations,
		},
		ID: meta.ID, CreatedMillis: meta.CreatedMillis,
	}
}

// Shards returns the shards, ascending by id, so that parents come before their children: one for
// each partition, and one for each that was split or merged since the stream was enabled. Some time
// after the records of such a shard have expired it is forgotten. There are none if the stream is
// gone.
func (st *Stream) Shards() (shards []StreamShard) {
	state := st.table.store.state()
	log := state.Table(st.log.core.ID)
	if log == nil {
		return nil
	}
	for _, s := range state.Shards(log.Log) {
		shards = append(shards, StreamShard{ID: s.ID, Parents: slices.Clone(s.Parents)})
	}
	return shards
}

// end returns the sequence number up to which a shard has records, row.MaxSequence while its
// partition is there, or why the shard cannot be read.
func (st *Stream) end(ctx context.Context, shard uint64) (until uint64, err error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	state := st.table.store.state()
	log := state.Table(st.log.core.ID)
	if log == nil || st.table.core.Log.Load() != st.log.core || st.table.core.Dropped.Load() {
		return 0, fmt.Errorf("%w: of table %q", ErrStreamNotFound, st.table.core.Name)
	}
	until, known := state.ShardEnd(log.Log, shard)
	switch {
	case known:
		return until, st.describe(st.table.core.Gone()) // it may have been dropped just now
	case len(log.Log.Shards) > 0 && shard < state.NextPartition:
		return 0, fmt.Errorf("%w: table %q: shard %d was forgotten", ErrStreamTrimmed, st.table.core.Name, shard)
	}
	return 0, fmt.Errorf("%w: of table %q: no shard %d", ErrStreamNotFound, st.table.core.Name, shard)
}

// Oldest is the position before the oldest record of a shard that has not
// expired.
func (st *Stream) Oldest(ctx context.Context, shard uint64) (StreamPosition, error) {
	return st.Since(ctx, shard, 0)
}

// Since is the position before the first record of a shard that was committed at micros, in
// microseconds since the epoch, or later. For a time in the future it is the present end. Errors
// match ErrStreamTrimmed if the shard was forgotten.
func (st *Stream) Since(ctx context.Context, shard uint64, micros int64) (StreamPosition, error) {
	until, err := st.end(ctx, shard)
	if err != nil {
		return StreamPosition{}, err
	}
	// Later commits have times of now or later.
	last, now, err := st.barrier(ctx)
	if err != nil {
		return StreamPosition{}, err
	}
	last = min(last, until)
	end := StreamPosition{Shard: shard, After: last, AsOf: now}
	if micros > now {
		return end, nil
	}
	found, err := cdc.FirstSince(micros, last, func(after uint64) (*cdc.Row, error) { return st.first(ctx, shard, after, last) })
	if err == nil {
		_, err = st.end(ctx, shard)
	}
	if err != nil || found == nil {
		return end, err
	}
	return StreamPosition{Shard: shard, After: found.Sequence - 1, AsOf: found.Micros}, nil
}

// first returns the first row with after < sequence number <= upTo, nil if there is none.
func (st *Stream) first(ctx context.Context, shard, after, upTo uint64) (*cdc.Row, error) {
	rows := st.scan(ctx, shard, after, upTo)
	defer rows.Close()
	if !rows.Next() {
		return nil, st.describe(rows.Err())
	}
	return st.decode(rows.Row())
}

// describe maps the error of a change log to that of its stream.
func (st *Stream) describe(err error) error {
	if errors.Is(err, ErrTableNotFound) {
		return fmt.Errorf("%w: of table %q: it was disabled", ErrStreamNotFound, st.table.core.Name)
	}
	return err
}

// scan scans the rows of the records with after < sequence number <= upTo.
func (st *Stream) scan(ctx context.Context, shard, after, upTo uint64) *Rows {
	return st.log.Scan(ctx, cdc.Key(shard, after+1), cdc.Key(shard, upTo+1), ScanOptions{})
}

// Read returns the records after a position. What it returns is durable, also with SyncNone.
// Errors match ErrStreamTrimmed if the position is older than the stream's retention or lies ahead of
// a store that was restored from a checkpoint, or if the shard was forgotten. A reader that has read
// everything keeps a valid position if it reads again each time before half of the retention is over.
func (st *Stream) Read(ctx context.Context, pos StreamPosition, limits StreamLimits) (StreamPage, error) {
	until, err := st.end(ctx, pos.Shard)
	if err != nil {
		return StreamPage{}, err
	}
	s := st.table.store
	upTo, now := s.pipeline.Visible(), int64(0)
	if st.ageing(pos.AsOf / 1000) {
		upTo, now, err = st.barrier(ctx)
	} else {
		err = s.describe(s.pipeline.SyncVisible())
	}
	if err != nil {
		return StreamPage{}, err
	}
	if pos.After > upTo && !s.opts.ReadOnly { // a store returns only positions of its past
		return StreamPage{}, fmt.Errorf("%w: table %q, position after %d, the last sequence number is %d: the store is an older copy",
			ErrStreamTrimmed, st.table.core.Name, pos.After, upTo)
	}
	upTo = min(upTo, until)
	page, err := st.read(ctx, pos, limits, upTo)
	if err != nil {
		return StreamPage{}, err
	}
	page.Next.End = upTo == until && !page.More
	if page.Next.End || !page.More && now > page.Next.AsOf {
		page.Next.AsOf = max(page.Next.AsOf, now) // nothing else was committed up to then
		page.Next.After = max(page.Next.After, upTo)
	}
	_, err = st.end(ctx, pos.Shard)
	return page, err
}

// Records returns the records after a position for a loop, up to the present end. It moves pos
// past each record when the loop comes back for the next one, and at the end as Read does. So a
// loop that ends early reads its last record again if it is repeated from pos. An error comes
// last, with a nil record; errors are those of Read.
func (st *Stream) Records(ctx context.Context, pos *StreamPosition) iter.Seq2[*StreamRecord, error] {
	return func(yield func(*StreamRecord, error) bool) {
		for more := true; more; {
			page, err := st.Read(ctx, *pos, StreamLimits{Records: 1000, Bytes: mib})
			if err != nil {
				yield(nil, err)
				return
			}
			for i := range page.Records {
				r := &page.Records[i]
				if !yield(r, nil) {
					return
				}
				pos.After, pos.AsOf = r.Sequence, r.Micros
			}
			*pos, more = page.Next, page.More
		}
	}
}

// barrier returns the last sequence number, once everything up to it is durable and visible, and a
// time in microseconds; no later commit has an earlier time.
func (st *Stream) barrier(ctx context.Context) (seq uint64, micros int64, err error) {
	s := st.table.store
	if s.external != nil && st.ageing(s.external.Millis()) {
		_ = s.external.Advance(ctx) // a store that cannot propose reads at the time that the log has
	}
	seq, micros, err = s.pipeline.Barrier(ctx, s.issued.Micros())
	return seq, micros, s.describe(err)
}

// ageing reports whether half of the retention has passed since a time in milliseconds.
func (st *Stream) ageing(millis int64) bool {
	return (st.table.store.clock.NowMillis()-millis)/500 >= st.Info().RetentionSeconds
}

func (st *Stream) read(ctx context.Context, pos StreamPosition, limits StreamLimits, upTo uint64) (StreamPage, error) {
	page := StreamPage{Next: pos}
	rows := st.scan(ctx, pos.Shard, pos.After, max(upTo, pos.After))
	defer rows.Close()
	// Checked against the cutoff of the scan itself, of the same clock and watermark.
	if rows.Err() == nil && pos.AsOf/1_000_000 < rows.walk.View.Cutoff {
		return StreamPage{}, fmt.Errorf("%w: table %q, position as of %d, oldest second is %d",
			ErrStreamTrimmed, st.table.core.Name, pos.AsOf, rows.walk.View.Cutoff)
	}
	var size int64
	for from, err := range rows.All() {
		if err != nil {
			return StreamPage{}, st.describe(err)
		}
		if n := len(page.Records); n > 0 && (limits.Records > 0 && n >= limits.Records || limits.Bytes > 0 && size >= limits.Bytes) {
			page.More = true
			return page, nil
		}
		found, err := st.decode(from)
		if err != nil {
			return StreamPage{}, err
		}
		r := StreamRecord{
			Sequence: found.Sequence, Micros: found.Micros, Action: StreamAction(found.Action),
			Key: found.Key, Cells: found.Cells, Before: found.Before,
		}
		page.Records = append(page.Records, r)
		page.Next.After, page.Next.AsOf = r.Sequence, r.Micros
		size += r.size()
	}
	return page, nil
}

// decode reads a row of the change log.
func (st *Stream) decode(from *Row) (*cdc.Row, error) {
	r, err := cdc.ReadRow(from.Key(), from.cells, len(st.table.core.Key))
	if err != nil {
		return nil, fmt.Errorf("%w: change log %d of table %q, sequence number %d: %w",
			ErrCorrupt, st.log.core.ID, st.table.core.Name, from.Key()[1].Int64(), err)
	}
	return &r, nil
}

// size is the size of a record in bytes: of its key, and of the names and values of its cells.
func (r *StreamRecord) size() (n int64) {
	for _, v := range r.Key {
		n += int64(v.Size())
	}
	for _, cells := range [][]row.Cell{r.Cells, r.Before} {
		for i := range cells {
			n += cells[i].Memory()
		}
	}
	return n
}
