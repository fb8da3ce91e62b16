package flagstone

// Change logs, the writing side: what package cdc derives from a mutation is applied to the tree
// of the change log.

import (
	"github.com/flagstone-db/flagstone/cdc"
	"github.com/flagstone-db/flagstone/manifest"
	"github.com/flagstone-db/flagstone/partition"
	"github.com/flagstone-db/flagstone/row"
)

// logTree is the only tree of a change log.
func (t *Table) logTree() *partition.Tree { return t.partitions().Trees()[0] }

// record is an entry on its way into a change log: a derived mutation.
type record struct {
	log *Table
	cdc.Entry
}

func (r *record) Tree() *partition.Tree { return r.log.logTree() }

// Change makes the change log's row of the mutation seq of a shard.
func (r *record) Change(shard, seq uint64, micros int64) *row.Change {
	return r.Entry.Change(r.log.id, shard, seq, micros)
}

// newLogMeta describes a new change log of a table, for the mutations above a sequence number.
func newLogMeta(id, partitionID, of, after uint64, spec *StreamSpec, millis int64) *manifest.Table {
	log := manifest.ChangeLog{Of: of, After: after, Before: spec.Before}
	return cdc.NewTable(id, partitionID, log, spec.RetentionSeconds, millis, spec.Annotations)
}

// dropEndedLogs drops the change logs that have ended and cannot be read any more. If a drop
// fails, the next Open repeats it. REQUIRES: tables is held, or the store is being opened.
func (s *Store) dropEndedLogs() {
	for _, t := range s.tables.current.Load().byID {
		if meta := t.meta(); meta == nil || meta.Log == nil || meta.Log.Until == 0 {
			continue
		}
		if err := s.dropTables([]*Table{t}); err != nil {
			s.opts.Logger.Warn("cannot drop the change log of a stream that was disabled", "id", t.id, "error", err)
		}
	}
}

// readBefore reads what columns hold before a change, if the stream records that. It goes into
// the log, because recovery could not read it again. REQUIRES: no other writer can change the
// row.
func (p *prepared) readBefore() error {
	p.before, p.beforeFor = nil, p.from.table.log.Load()
	if p.beforeFor == nil || len(p.beforeFor.before) == 0 {
		return nil
	}
	opts := ReadOptions{Columns: p.beforeFor.before, MaxVersions: 1}
	found, err := p.from.table.getEncoded(p.from.change.Key, &opts, p.from.written, true)
	if err != nil || len(found.Cells()) == 0 {
		return err
	}
	p.before, err = cdc.AppendBefore(nil, found.Cells())
	return err
}
