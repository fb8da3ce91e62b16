package flagstone

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"time"

	"github.com/flagstone-db/flagstone/internal/event"
	"github.com/flagstone-db/flagstone/internal/ingest"
	"github.com/flagstone-db/flagstone/internal/rebalance"
	"github.com/flagstone-db/flagstone/internal/transfer"
	"github.com/flagstone-db/flagstone/partition"
)

// EventKind says what an Event is about.
type EventKind string

// The kinds of events.
const (
	// EventFlush is a flush of memtables to table files of level 0.
	EventFlush = EventKind(event.Flush)
	// EventCompaction is a compaction of table files, for one of these reasons: "level 0" or "size" (a level is over
	// its target), "reads" (they look into several files), "expired" (files are dropped unread), "reclaim" (of
	// space, in table and value files), "tombstones", "trim" (after a split), "manual".
	EventCompaction = EventKind(event.Compaction)
	// EventStall is a time in which at least one writer waits until memtables are flushed or level 0 is compacted.
	// The short pauses by which writers are slowed before that are not reported: see Metrics.Stalled.
	EventStall = EventKind(event.Stall)
	// EventLogSegment says that a new segment of the log is on the device with all before it. With SyncNone that is not
	// so of each segment.
	EventLogSegment = EventKind(event.LogSegment)
	// EventSplit and EventMerge are a split and a merge of partitions. A merge begins with the flushes and compactions
	// that it needs. The first flushes and compactions of the partitions that it made can be reported before its end.
	EventSplit = EventKind(event.Split)
	EventMerge = EventKind(event.Merge)
	// EventLoad is the moment in which the files of a bulk load become part of a table, and EventIngest the adoption
	// of partitions of another store: see Store.Ingest. Of a table that EventIngest makes, only the end has the name.
	EventLoad   = EventKind(event.Load)
	EventIngest = EventKind(event.Ingest)
	// EventDetach is the removal of a partition's rows: see Table.Detach.
	EventDetach = EventKind(event.Detach)
	// EventFailure is a failure of background work, or of writing, or damage that Store.Check found. If Err matches ErrPoisoned, the store takes no
	// writes until it is opened again.
	EventFailure = EventKind(event.Failure)
)

// Event is something that a store did in the background, or that happened to it. Fields that a kind does not have
// are zero.
type Event struct {
	Kind EventKind
	// Job is the number of a job, whose beginning and end are events of their own. EventLogSegment and EventFailure
	// have none.
	Job   uint64
	Begun bool // the job begins; the fields from Written on are those of the end

	Table      string   // ends in " (stream)" for the change log of a table
	Partitions []uint64 // numbers of the partitions; of a split or merge, of those before it
	Made       []uint64 // of the partitions that a split or merge made
	Reason     string   // of a compaction; what a stall waits for: "memtables" or "level 0"; which work failed
	Level      int      // from which a compaction takes files
	Output     int      // level to which it writes
	Files      int      // how many table files a job takes, those of the output level included
	Moved      bool     // the compaction moves a file to a deeper level unchanged
	Input      int64    // bytes of what it takes: memtables or table files; of a load or ingest also value files
	Segment    uint64   // number of the log segment

	Written int64  // bytes of the table and value files that a flush or compaction wrote
	Dropped uint64 // cells that a merge left out: overwritten, deleted or expired
	// Took is how long the job was. For the time in which a split or merge holds writes back see Metrics.LongestPause.
	Took time.Duration
	// Cancelled says that the job ended early, because a partition was split or merged, the table's options
	// were changed, or the store was closed. What is left to do is done anew. A merge is cancelled if meanwhile
	// nothing was left to merge, or, unless a user asked for it, if the partitions were written all the time.
	Cancelled bool
	// Refused says that a job was not done, and why it is no failure of the store: what was asked for is not
	// possible now, or the context of the caller ended. Err says more.
	Refused bool
	Err     error // why the job or other work failed or was refused, nil if it was cancelled
}

// cancellations and refusals are the errors by which jobs end that are Cancelled or Refused.
var (
	cancellations = []error{partition.ErrReplaced, partition.ErrStale, rebalance.ErrCancelled, ErrClosed}
	refusals      = []error{
		ErrInvalid, ErrStreamExists, ErrTableNotFound, ErrFrozen, ErrDetached, ErrConflict, ingest.ErrNotEmpty,
		transfer.ErrRefused, rebalance.ErrBusy, context.Canceled, context.DeadlineExceeded,
	}
)

// happened hands an event to the log and to the listener.
func (s *Store) happened(e event.Event) {
	public := Event{
		Kind: EventKind(e.Kind), Job: e.Job, Begun: e.Begun, Partitions: e.Partitions, Made: e.Made,
		Reason: e.Reason, Level: e.Level, Output: e.Output, Files: e.Files, Moved: e.Moved, Input: e.Input,
		Segment: e.Segment, Written: e.Written, Dropped: e.Dropped, Took: e.Took,
	}
	if state := s.state(); e.Table != 0 && state.Table(e.Table) != nil {
		public.Table = nameIn(state, state.Table(e.Table))
	}
	matches := func(target error) bool { return errors.Is(e.Err, target) }
	public.Cancelled = slices.ContainsFunc(cancellations, matches)
	if !public.Cancelled {
		public.Err = s.describe(e.Err)
		public.Refused = slices.ContainsFunc(refusals, matches) && !matches(ErrOutcomeUnknown)
	}
	s.logEvent(&public)
	if s.opts.OnEvent != nil {
		s.opts.OnEvent(public)
	}
}

// logEvent logs the ends of jobs and new segments. The other events are logged where they happen, with more
// than an event has.
func (s *Store) logEvent(e *Event) {
	var attrs []slog.Attr
	switch {
	case e.Begun:
		return
	case e.Kind == EventLogSegment:
		attrs = []slog.Attr{slog.Uint64("segment", e.Segment)}
	case e.Kind == EventStall:
		attrs = []slog.Attr{slog.Uint64("job", e.Job), slog.Duration("took", e.Took)}
	case e.Kind == EventFlush || e.Kind == EventCompaction || e.Kind == EventLoad || e.Kind == EventIngest:
		attrs = []slog.Attr{
			slog.Uint64("job", e.Job), slog.Duration("took", e.Took), slog.String("table", e.Table), slog.Any("partitions", e.Partitions),
			slog.Int64("input", e.Input), slog.Int64("written", e.Written),
		}
	default:
		return
	}
	if e.Kind == EventCompaction {
		attrs = append(attrs, slog.String("reason", e.Reason), slog.Int("level", e.Level), slog.Int("output", e.Output),
			slog.Int("files", e.Files), slog.Uint64("cells dropped", e.Dropped))
	}
	if e.Cancelled {
		attrs = append(attrs, slog.Bool("cancelled", true))
	}
	if e.Refused {
		attrs = append(attrs, slog.Bool("refused", true))
	}
	if e.Err != nil {
		attrs = append(attrs, slog.Any("error", e.Err))
	}
	s.opts.Logger.LogAttrs(context.Background(), slog.LevelDebug, string(e.Kind), attrs...)
}
