package manifest

// What a store remembers of a log that it keeps for restores to a moment: see docs/backup.md.

import "slices"

const (
	// maxNotes and maxNoteBytes bound State.Kept.Notes, which every manifest repeats.
	maxNotes     = 4096
	maxNoteBytes = 256 << 10
)

// KeptLog says which part of the log is kept although the store does not need it any more.
type KeptLog struct {
	// From is the first segment that is kept; 0: the log is not kept.
	From uint64
	// Limit bounds the closed segments that are kept, in bytes.
	Limit int64
	// Changes counts the changes that the log does not carry. It never falls, also while the log is not kept.
	Changes uint64
	// Notes are of the last of these changes, ascending. The older ones were dropped.
	Notes []*LogNote
}

// LogNote is a change that the log does not carry.
type LogNote struct {
	Number uint64 // Changes, with this one
	Micros int64  // the time of the change, in microseconds; no commit that follows it is earlier
	What   string // for people
	Edit   []byte // the change as an edit; empty if only a copy of files could repeat it
}

// LogOrigin says which store made a checkpoint, and where its log goes on. It has no meaning in a store that was
// written to since.
type LogOrigin struct {
	StoreID [16]byte
	// Segment has, or comes before, the first record that the checkpoint lacks; 0: the log is not kept.
	Segment uint64
	// Changes is KeptLog.Changes of the checkpoint.
	Changes uint64
}

// LogKeeping changes what is kept.
type LogKeeping struct {
	// From raises KeptLog.From to at least this.
	From uint64
	// Limit replaces KeptLog.Limit, and begins to keep the log. A negative one ends that; 0 changes nothing.
	Limit int64
	// Noted drops the notes up to this number.
	Noted uint64
}

// keep changes what is kept. From the end of keeping to its next beginning no notes were made: the beginning counts as
// a change without a note.
func (a *applier) keep(k *LogKeeping) {
	kept := &a.next.Kept
	switch {
	case k == nil:
		return
	case k.Limit < 0:
		*kept = KeptLog{Changes: kept.Changes}
		return
	case kept.From == 0 && k.Limit == 0:
		return
	case kept.From == 0:
		kept.Changes++
	}
	kept.From = max(kept.From, k.From)
	if k.Limit > 0 {
		kept.Limit = k.Limit
	}
	kept.Notes = slices.DeleteFunc(slices.Clone(kept.Notes), func(n *LogNote) bool { return n.Number <= k.Noted })
}

// note makes a note of an edit that a replay of the log would not repeat, if the log is kept.
func (a *applier) note(e *Edit) {
	kept := &a.next.Kept
	if kept.From == 0 {
		return
	}
	what, files := a.beside(e)
	if what == "" {
		return
	}
	kept.Changes++
	n := &LogNote{Number: kept.Changes, Micros: a.next.IssuedMillis * 1000, What: what}
	if !files {
		n.Edit = AppendEdit(nil, &Edit{
			LastSeq: e.LastSeq, Issued: e.Issued, Created: e.Created, Altered: e.Altered, Dropped: e.Dropped, PastLimits: e.PastLimits, Ended: e.Ended,
			Watermarks: a.watermarksOf(e.Altered),
		})
	}
	kept.Notes = append(slices.Clone(kept.Notes), n)
	size := 0
	for i, n := range slices.Backward(kept.Notes) {
		if size += len(n.What) + len(n.Edit); size > maxNoteBytes || len(kept.Notes)-i > maxNotes {
			kept.Notes = kept.Notes[i+1:]
			break
		}
	}
}

// watermarksOf returns the expiry watermarks of tables that are altered: under another Time To Live, what had expired
// before must not come back.
func (a *applier) watermarksOf(altered []Alteration) (watermarks []Watermark) {
	for i := range altered {
		if t := a.next.Table(altered[i].Table); t != nil && t.Watermark != NoWatermark {
			watermarks = append(watermarks, Watermark{t.ID, t.Watermark})
		}
	}
	return watermarks
}

// beside names what an edit changes beside the log, "" if nothing; files says that it brings files which no edit can
// repeat. Splits, merges and cuts of partitions change no row.
func (a *applier) beside(e *Edit) (what string, files bool) {
	switch {
	case len(e.Created) > 0:
		filled := func(t *Table) bool { return slices.ContainsFunc(t.Partitions, (*Partition).hasFiles) }
		what, files = "the creation of table "+e.Created[0].Name, slices.ContainsFunc(e.Created, filled)
	case len(e.Dropped) > 0:
		what = "the deletion of table " + a.tableName(e.Dropped[0])
	case len(e.Altered) > 0:
		what = "an alteration of table " + a.tableName(e.Altered[0].Table)
	case len(e.Ended) > 0:
		what = "the end of a stream"
	case len(e.Added) > 0 && len(e.Flushed) == 0 && len(e.Deleted) == 0: // neither a flush nor a compaction
		t, _ := a.next.Partition(e.Added[0].Partition)
		what, files = "a bulk load into table "+t.Name, true
	}
	for _, r := range e.Replaced {
		gone := func(id uint64) bool { _, p := a.before.Partition(id); return p.detached() }
		if slices.ContainsFunc(r.New, (*Partition).detached) || slices.ContainsFunc(r.Old, gone) {
			what, files = "a move of a partition of table "+a.tableName(r.Table), true
		}
	}
	return what, files
}

func (a *applier) tableName(id uint64) string {
	for _, s := range []*State{a.before, a.next} {
		if t := s.Table(id); t != nil {
			return t.Name
		}
	}
	return "" // only of an edit that Apply refuses
}
