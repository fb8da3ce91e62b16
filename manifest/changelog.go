package manifest

import "github.com/flagstone-db/flagstone/row"

// ChangeLog makes a table the change log of another one. It holds a record of each mutation of
// that table with a sequence number above After and, once the log has ended, at most Until. A
// table is dropped together with its log.
type ChangeLog struct {
	Of           uint64 // id of the table whose changes it holds
	After, Until uint64 // Until is 0 while the log goes on
	// Before are columns whose old values are part of a change's record.
	Before []string
	// Shards say where the partitions of the table came from, since the log began; empty if none
	// was split or merged. A log that has ended has none.
	Shards Lineage
}

// maxBefore bounds the number of columns of ChangeLog.Before.
const maxBefore = 1024

// openLog returns the change log of a table that has not ended, or nil.
func (s *State) openLog(table uint64) *Table {
	for _, t := range s.Tables {
		if t.Log != nil && t.Log.Of == table && t.Log.Until == 0 {
			return t
		}
	}
	return nil
}

func (a *applier) endLog(end LogEnding) error {
	t, err := a.table(end.Log)
	switch {
	case err != nil:
		return err
	case t.Log == nil:
		return invalid("table %q is no change log", t.Name)
	case t.Log.Until != 0:
		return invalid("change log %d has ended at %d", t.ID, t.Log.Until)
	}
	log := *t.Log
	log.Until, log.Shards = max(end.Until, 1), nil
	t.Log = &log
	a.next.LastSeq = max(a.next.LastSeq, log.Until)
	return a.checkLog(t)
}

// checkLog checks the settings of a change log.
func (a *applier) checkLog(t *Table) error {
	l := t.Log
	of, other := a.next.Table(l.Of), a.next.openLog(l.Of)
	switch {
	case l.Of >= t.ID || of == nil:
		return invalid("change log %d of table %d, which is not there", t.ID, l.Of)
	case of.Log != nil:
		return invalid("change log %d of another change log, %d", t.ID, l.Of)
	case l.After > maxNumber || l.Until > maxNumber || l.Until != 0 && l.Until < l.After:
		return invalid("change log %d from %d to %d", t.ID, l.After, l.Until)
	case len(l.Before) > maxBefore:
		return invalid("change log %d with %d columns, at most %d", t.ID, len(l.Before), maxBefore)
	case l.Until == 0 && other != nil && other.ID != t.ID:
		return invalid("table %d has two change logs, %d and %d", l.Of, other.ID, t.ID)
	}
	for _, c := range l.Before {
		if len(c) < 1 || len(c) > row.MaxColumnBytes {
			return invalid("change log %d with a column name of %d bytes", t.ID, len(c))
		}
	}
	return a.checkShards(t.ID, l)
}

// checkDropped checks that a dropped table left no change log behind.
func (a *applier) checkDropped(id uint64) error {
	for _, t := range a.next.Tables {
		if t.Log != nil && t.Log.Of == id {
			return invalid("table %d is dropped without its change log, %d", id, t.ID)
		}
	}
	return nil
}
