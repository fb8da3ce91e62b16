package flagstone

// Change logs, the writing side: what package cdc derives from a mutation is applied to the tree
// of the change log.

import (
	"github.com/flagstone-db/flagstone/cdc"
	"github.com/flagstone-db/flagstone/manifest"
)

// newLogMeta describes a new change log of a table, for the mutations above a sequence number.
func newLogMeta(id, partitionID, of, after uint64, spec *StreamSpec, millis int64) *manifest.Table {
	log := manifest.ChangeLog{Of: of, After: after, Before: spec.Before}
	return cdc.NewTable(id, partitionID, log, spec.RetentionSeconds, millis, spec.Annotations)
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
