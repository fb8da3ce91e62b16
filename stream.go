package flagstone

// Streams are the change feeds of tables: one record for each change, in commit order. This file
// enables and disables them, and readstream.go reads them. What a change adds to the tree of its
// change log is derived by package cdc.

import (
	"fmt"

	"github.com/flagstone-db/flagstone/cdc"
	"github.com/flagstone-db/flagstone/manifest"
)

// StreamSpec says what stream of changes a table is to have.
type StreamSpec struct {
	// RetentionSeconds is how long after its commit a record can be read, at least 1.
	RetentionSeconds int64
	// Before are at most 1024 columns. Their newest values before a change are recorded with it,
	// which costs a read of the row for each change.
	Before []string
	// Annotations are bytes that the store keeps for a front end and does not read.
	Annotations []byte
}

// StreamChange enables or disables the stream of a table.
type StreamChange struct {
	// Enable makes a stream of the changes from then on; it is ErrStreamExists if the table has
	// one. Nil disables the stream, if there is one: its records are gone at once.
	Enable *StreamSpec
}

// check returns what is wrong with a spec, which may be nil. Errors are
// ErrInvalid.
func (s *StreamSpec) check() error {
	if s == nil {
		return nil
	}
	if s.RetentionSeconds < 1 {
		return fmt.Errorf("%w: StreamSpec.RetentionSeconds is %d, want at least 1", ErrInvalid, s.RetentionSeconds)
	}
	return nil
}

// streamSpec describes the table's stream, nil if it has none.
func (t *Table) streamSpec() *StreamSpec {
	if st := t.Stream(); st != nil {
		if info := st.Info(); info.ID != 0 {
			return &info.StreamSpec
		}
	}
	return nil
}

// checkStream returns why a table's stream cannot be changed so.
func (t *Table) checkStream(change *StreamChange) error {
	if change == nil || change.Enable == nil {
		return nil
	}
	if err := change.Enable.check(); err != nil {
		return fmt.Errorf("table %q: %w", t.core.Name, err)
	}
	if t.core.Log.Load() != nil {
		return fmt.Errorf("%w: %q", ErrStreamExists, t.core.Name)
	}
	return nil
}

// alterStream completes the change of the table's stream in an edit that alteration describes. The
// caller must call install with the resulting state. REQUIRES: tables is held, the table is between two eras, and its mutations
// up to lastSeq have their places.
func (t *Table) alterStream(e *manifest.Edit, lastSeq uint64) (install func(*manifest.State)) {
	s, log := t.store, t.core.Log.Load()
	switch {
	case len(e.Ended) > 0 && log == nil:
		e.Ended = nil
	case len(e.Ended) > 0:
		// The change log ends now and is dropped in the next era: dropping waits for compactions,
		// and writers should not wait for these.
		e.Ended = []manifest.LogEnding{{Log: log.ID, Until: lastSeq}}
		return func(*manifest.State) { t.core.Log.Store(nil) }
	case len(e.Created) > 0:
		state := s.state()
		meta := newLogMeta(state.NextTable, state.NextPartition, t.core.ID, lastSeq, specOf(e.Created[0]), s.changeMillis())
		e.Created[0] = meta
		return func(state *manifest.State) {
			s.tables.change(func(c *catalog) { c.add(newTable(s, state.Table(meta.ID))) })
		}
	}
	return func(*manifest.State) {}
}

// newLogMeta describes a new change log of a table, for the mutations above a sequence number.
func newLogMeta(id, partitionID, of, after uint64, spec *StreamSpec, millis int64) *manifest.Table {
	log := manifest.ChangeLog{Of: of, After: after, Before: spec.Before}
	return cdc.NewTable(id, partitionID, log, spec.RetentionSeconds, millis, spec.Annotations)
}

// specOf is the inverse of newLogMeta.
func specOf(log *manifest.Table) *StreamSpec {
	return &StreamSpec{RetentionSeconds: log.Options.TTLSeconds, Before: log.Log.Before, Annotations: log.Annotations}
}

// dropEndedLogs drops the change logs that have ended and cannot be read any more. If a drop
// fails, the next Open repeats it. REQUIRES: tables is held, or the store is being opened.
func (s *Store) dropEndedLogs() {
	for _, t := range s.tables.current.Load().byID {
		if meta := t.core.Meta(); meta == nil || meta.Log == nil || meta.Log.Until == 0 {
			continue
		}
		if err := s.dropTables([]*Table{t}); err != nil {
			s.opts.Logger.Warn("cannot drop the change log of a stream that was disabled", "id", t.core.ID, "error", err)
		}
	}
}
