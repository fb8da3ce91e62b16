package manifest

import (
	"bytes"
	"cmp"
	"maps"
	"slices"
)

// Apply returns the state after the edit. It is a pure function and modifies neither the
// receiver nor the edit. An edit that breaks a rule gives an error that matches ErrInvalidEdit.
func (s *State) Apply(e *Edit) (*State, error) {
	a := newApplier(s)
	a.counters(e)
	a.external(e.External)
	each(a, e.Values, a.addValueFile)
	each(a, e.Created, a.createTable)
	each(a, e.Altered, a.alterTable)
	each(a, e.Dropped, a.dropTable)
	each(a, e.Dropped, a.checkDropped)
	each(a, e.Replaced, a.replacePartitions)
	each(a, e.Cuts, a.markCut)
	each(a, e.Deleted, a.deleteFile)
	each(a, e.Added, a.addFile)
	each(a, e.Flushed, a.setFlushed)
	each(a, e.Services, a.changeService)
	each(a, e.Watermarks, a.raiseWatermark)
	each(a, e.PastLimits, a.addPastLimit)
	each(a, e.Ended, a.endLog)
	if a.err == nil {
		a.keep(e.Keep)
		a.note(e)
	}
	return a.finish()
}

// each takes one step for each item, until one fails.
func each[T any](a *applier, items []T, step func(T) error) {
	for i := 0; i < len(items) && a.err == nil; i++ {
		a.err = step(items[i])
	}
}

// applier makes the next state. It copies what the edit touches, once, and shares the rest.
type applier struct {
	before     *State
	next       *State
	err        error                 // of the first step that failed
	lists      map[*Table]bool       // those whose lists of partitions are copies
	partitions map[*Partition]bool   // those that are copies
	levels     map[*[]*FileMeta]bool // those of partitions that are copies
	removed    map[uint64]*FileMeta  // files that lost their last reference
	recounted  map[uint64]bool       // value files whose usage changed
}

func newApplier(s *State) *applier {
	next := *s
	next.Tables = slices.Clone(s.Tables)
	next.files, next.owners, next.values = s.files.edit(), s.owners.edit(), s.values.edit()
	return &applier{
		before: s, next: &next,
		lists:      map[*Table]bool{},
		partitions: map[*Partition]bool{},
		levels:     map[*[]*FileMeta]bool{},
		removed:    map[uint64]*FileMeta{},
		recounted:  map[uint64]bool{},
	}
}

func (a *applier) finish() (*State, error) {
	each(a, slices.Sorted(maps.Keys(a.recounted)), a.dropUnused)
	if a.err != nil {
		return nil, a.err
	}
	n := max(a.next.LastSeq, a.next.NextFile, a.next.NextTable, a.next.NextPartition, a.next.MinLog, a.next.NewestLog.Segment)
	if x := a.next.External; x != nil {
		n = max(n, x.Highest)
	}
	if n > maxNumber {
		return nil, invalid("number %d is above the largest, %d", n, uint64(maxNumber))
	}
	return a.next, nil
}

// counters raises the counters, which never fall: two edits prepared at the same time may be
// committed in either order.
func (a *applier) counters(e *Edit) {
	a.next.NextFile = max(a.next.NextFile, e.nextFile)
	a.next.MinLog = max(a.next.MinLog, e.MinLog)
	if e.NewestLog.Segment > 0 && e.NewestLog.Segment >= a.next.NewestLog.Segment {
		a.next.NewestLog = e.NewestLog
	}
	a.next.LastSeq = max(a.next.LastSeq, e.LastSeq)
	if e.Clock != nil {
		a.next.Clock = *e.Clock
	}
	if e.Issued != nil {
		a.next.IssuedMillis = max(a.next.IssuedMillis, *e.Issued)
	}
	for _, point := range e.SeqTimes {
		a.next.SeqTimes = withSeqTime(a.next.SeqTimes, point)
		a.next.LastSeq = max(a.next.LastSeq, point.Seq)
	}
}

// external raises what is known of an external log.
func (a *applier) external(x *External) {
	switch {
	case x == nil:
	case a.next.External == nil:
		a.err = invalid("an edit of an external log, the store has its own")
	default:
		a.next.External = a.next.External.raise(x)
		a.next.LastSeq = max(a.next.LastSeq, x.Seq)
		a.err = a.next.External.check(a.next.LastSeq)
	}
}

// withSeqTime returns the points with one more. A full list loses every other point of its older
// half, so that old times become coarser.
func withSeqTime(points []SeqTime, point SeqTime) []SeqTime {
	n := len(points)
	if n > 0 && (point.Seq <= points[n-1].Seq || point.Millis <= points[n-1].Millis) {
		return points
	}
	kept := make([]SeqTime, 0, n+1)
	for i, p := range points {
		if n < MaxSeqTimes || i >= n/2 || i%2 == 0 {
			kept = append(kept, p)
		}
	}
	return append(kept, point)
}

// meetForeignRows replaces the map from sequence numbers to time when rows of another store come, whose numbers
// were given out at other times. Points below the one that is left, which another edit may still bring, do not count.
func (a *applier) meetForeignRows() {
	a.next.SeqTimes = []SeqTime{{Seq: a.next.LastSeq, Millis: a.next.IssuedMillis}}
}

func (a *applier) createTable(t *Table) error {
	if t.ID < a.next.NextTable {
		return invalid("table id %d was used, the next is %d", t.ID, a.next.NextTable)
	}
	if slices.ContainsFunc(a.next.Tables, func(other *Table) bool { return other.Name == t.Name }) {
		return invalid("table %q exists", t.Name)
	}
	if err := a.checkNew(t.Partitions); err != nil {
		return err
	}
	if slices.ContainsFunc(t.Partitions, (*Partition).hasFiles) { // of another store
		a.meetForeignRows()
	}
	created := *t
	created.LargestOffset = max(t.LargestOffset, t.Options.MaxVersionOffsetSeconds)
	return a.addTable(&created)
}

// checkNew refuses partitions with ids that were used.
func (a *applier) checkNew(partitions []*Partition) error {
	for _, p := range partitions {
		if p.ID < a.next.NextPartition {
			return invalid("partition id %d was used, the next is %d", p.ID, a.next.NextPartition)
		}
	}
	return nil
}

// addTable adds a table, with an id above those of all others and a name of its own, its partitions
// and their files.
func (a *applier) addTable(t *Table) error {
	if err := checkSchema(t); err != nil {
		return err
	}
	if err := checkCover(t, t.Partitions, nil, nil); err != nil {
		return err
	}
	a.next.Tables = append(a.next.Tables, t)
	a.next.NextTable = max(a.next.NextTable, t.ID+1)
	if t.Log != nil {
		if err := a.checkLog(t); err != nil {
			return err
		}
	}
	return a.addPartitions(t, t.Partitions)
}

func (a *applier) addPartitions(t *Table, partitions []*Partition) error {
	for _, p := range partitions {
		if _, exists := a.next.owners.get(p.ID); exists {
			return invalid("partition id %d twice", p.ID)
		}
		if err := cmp.Or(checkCut(p), checkService(p)); err != nil {
			return err
		}
		a.next.owners.set(p.ID, owner{t.ID, p.Start})
		a.next.NextPartition = max(a.next.NextPartition, p.ID+1)
		a.next.LastSeq = max(a.next.LastSeq, p.FlushedSeq)
		seen := map[uint64]bool{}
		for level, files := range p.Levels {
			for _, f := range files {
				if seen[f.Number] {
					return invalid("partition %d lists file %d twice", p.ID, f.Number)
				}
				seen[f.Number] = true
				if err := a.reference(t.ID, p, f); err != nil {
					return err
				}
			}
			if err := checkOrder(p, level, files); err != nil {
				return err
			}
		}
	}
	return nil
}

func (a *applier) removePartition(p *Partition) {
	for _, f := range slices.Concat(p.Levels[:]...) {
		a.release(f.Number)
	}
	a.next.owners.remove(p.ID)
}

// reference checks a file that a partition of a table lists, and counts the reference.
func (a *applier) reference(table uint64, p *Partition, f *FileMeta) error {
	if err := checkFile(p, f); err != nil {
		return err
	}
	if f.Number >= a.next.NextFile {
		return invalid("file %d was never allocated, the next is %d", f.Number, a.next.NextFile)
	}
	ref, live := a.next.files.get(f.Number)
	known := ref.meta
	if !live {
		known = a.removed[f.Number] // moved, or its number used again?
	}
	switch {
	case live && ref.table != table:
		return invalid("file %d belongs to table %d, not to %d", f.Number, ref.table, table)
	case known != nil && !known.equal(f):
		return invalid("file %d is known by another description", f.Number)
	case !live:
		if err := a.use(table, f); err != nil {
			return err
		}
	}
	a.next.files.set(f.Number, fileRef{meta: f, table: table, refs: ref.refs + 1})
	a.next.LastSeq = max(a.next.LastSeq, f.LargestSeq)
	return nil
}

func (a *applier) release(number uint64) {
	ref, _ := a.next.files.get(number)
	if ref.refs--; ref.refs > 0 {
		a.next.files.set(number, ref)
		return
	}
	a.next.files.remove(number)
	a.removed[number] = ref.meta
	a.count(ref.meta, -1)
}

// table returns the writable copy of a table.
func (a *applier) table(id uint64) (*Table, error) {
	at, ok := a.next.tableIndex(id)
	if !ok {
		return nil, invalid("there is no table with id %d", id)
	}
	if a.next.Tables[at] == a.before.Table(id) {
		t := *a.next.Tables[at]
		a.next.Tables[at] = &t
	}
	return a.next.Tables[at], nil
}

// partition returns the writable copy of a partition, which shares its levels.
func (a *applier) partition(id uint64) (*Partition, error) {
	found, ok := a.next.owners.get(id)
	if !ok {
		return nil, invalid("there is no partition with id %d", id)
	}
	t, err := a.table(found.table)
	if err != nil {
		return nil, err
	}
	at := t.partitionAt(found.start)
	if !a.partitions[t.Partitions[at]] {
		p := *t.Partitions[at]
		if !a.lists[t] {
			t.Partitions, a.lists[t] = slices.Clone(t.Partitions), true
		}
		t.Partitions[at], a.partitions[&p] = &p, true
	}
	return t.Partitions[at], nil
}

// level returns the partition with a writable copy of one level.
func (a *applier) level(id uint64, level int) (*Partition, error) {
	if level < 0 || level >= NumLevels {
		return nil, invalid("partition %d has no level %d", id, level)
	}
	p, err := a.partition(id)
	if err != nil {
		return nil, err
	}
	if files := &p.Levels[level]; !a.levels[files] {
		a.levels[files] = true
		*files = slices.Clone(*files)
	}
	return p, nil
}

func (a *applier) alterTable(c Alteration) error {
	t, err := a.table(c.Table)
	if err != nil {
		return err
	}
	t.Options, t.Annotations = c.Options, c.Annotations
	t.LargestOffset = max(t.LargestOffset, c.Options.MaxVersionOffsetSeconds)
	return checkProperties(t)
}

func (a *applier) dropTable(id uint64) error {
	t, err := a.table(id)
	if err != nil {
		return err
	}
	for _, p := range t.Partitions {
		a.removePartition(p)
	}
	a.next.Tables = slices.DeleteFunc(a.next.Tables, func(other *Table) bool { return other == t })
	return nil
}

func (a *applier) replacePartitions(r *Replacement) error {
	t, err := a.table(r.Table)
	if err != nil {
		return err
	}
	at := slices.IndexFunc(t.Partitions, func(p *Partition) bool { return slices.Contains(r.Old, p.ID) })
	end := min(at+len(r.Old), len(t.Partitions))
	if at < 0 || !slices.EqualFunc(t.Partitions[at:end], r.Old, func(p *Partition, id uint64) bool { return p.ID == id }) {
		return invalid("table %q has no neighbouring partitions %v", t.Name, r.Old)
	}
	old := t.Partitions[at:end]
	if err := checkCover(t, r.New, old[0].Start, old[len(old)-1].End); err != nil {
		return err
	}
	if err := a.checkNew(r.New); err != nil {
		return err
	}
	for _, p := range r.New {
		for _, o := range old {
			if err := checkReplacement(o, p); err != nil {
				return err
			}
		}
	}
	if err := a.replaceShards(r, old); err != nil {
		return err
	}
	a.next.LastSeq = max(a.next.LastSeq, r.After)
	if slices.ContainsFunc(old, (*Partition).detached) && slices.ContainsFunc(r.New, (*Partition).hasFiles) {
		a.meetForeignRows()
	}
	t.Partitions = slices.Concat(t.Partitions[:at], r.New, t.Partitions[end:])
	if err := a.addPartitions(t, r.New); err != nil {
		return err
	}
	for _, p := range old {
		a.removePartition(p)
	}
	return nil
}

func (a *applier) markCut(id uint64) error {
	p, err := a.partition(id)
	if err != nil {
		return err
	}
	p.Cut = true
	return checkCut(p)
}

func (a *applier) deleteFile(d Deletion) error {
	p, err := a.level(d.Partition, d.Level)
	if err != nil {
		return err
	}
	files := p.Levels[d.Level]
	at := slices.IndexFunc(files, func(f *FileMeta) bool { return f.Number == d.Number })
	if at < 0 {
		return invalid("partition %d has no file %d at level %d", d.Partition, d.Number, d.Level)
	}
	p.Levels[d.Level] = slices.Delete(files, at, at+1)
	a.release(d.Number)
	return nil
}

func (a *applier) addFile(d Addition) error {
	p, err := a.level(d.Partition, d.Level)
	if err != nil {
		return err
	}
	same := func(f *FileMeta) bool { return f.Number == d.File.Number }
	if _, live := a.next.files.get(d.File.Number); live && slices.ContainsFunc(slices.Concat(p.Levels[:]...), same) {
		return invalid("partition %d already lists file %d", p.ID, d.File.Number)
	}
	found, _ := a.next.owners.get(p.ID)
	if err := a.reference(found.table, p, d.File); err != nil {
		return err
	}
	compare := compareL0
	if d.Level > 0 {
		compare = func(f, g *FileMeta) int { return bytes.Compare(f.Smallest, g.Smallest) }
	}
	at, _ := slices.BinarySearchFunc(p.Levels[d.Level], d.File, compare)
	files := slices.Insert(p.Levels[d.Level], at, d.File)
	p.Levels[d.Level] = files
	return cmp.Or(checkService(p), checkOrder(p, d.Level, files[max(at-1, 0):min(at+2, len(files))]))
}

func (a *applier) setFlushed(f Flush) error {
	p, err := a.partition(f.Partition)
	if err != nil {
		return err
	}
	if f.Seq < p.FlushedSeq {
		return invalid("partition %d is flushed up to %d, not %d", p.ID, p.FlushedSeq, f.Seq)
	}
	p.FlushedSeq = f.Seq
	a.next.LastSeq = max(a.next.LastSeq, f.Seq)
	return nil
}

func (a *applier) changeService(c ServiceChange) error {
	p, err := a.partition(c.Partition)
	if err != nil {
		return err
	}
	if p.detached() || c.Service == Detached {
		return invalid("partition %d is detached, or is to be", p.ID)
	}
	p.Cut, p.Epoch = p.UserCut(), p.Epoch+1
	p.Service, p.Reason = c.Service, c.Reason
	return checkService(p)
}

func (a *applier) raiseWatermark(w Watermark) error {
	t, err := a.table(w.Table)
	if err != nil {
		return err
	}
	t.Watermark = max(t.Watermark, w.Cutoff)
	return nil
}

func (a *applier) addPastLimit(p TableLimit) error {
	t, err := a.table(p.Table)
	if err != nil {
		return err
	}
	t.PastLimits = withPastLimit(t.PastLimits, p.PastLimit)
	return checkPastLimit(t, p.PastLimit)
}

// withPastLimit adds the limit that was in force last. It covers smaller limits before it. If
// there are too many, the two oldest are replaced by one that covers both.
func withPastLimit(limits []PastLimit, limit PastLimit) []PastLimit {
	var kept []PastLimit
	for _, l := range limits {
		limit.LastSeq = max(limit.LastSeq, l.LastSeq)
		if l.MaxVersions > limit.MaxVersions {
			kept = append(kept, l)
		}
	}
	if n := len(kept); n == 0 || kept[n-1].LastSeq < limit.LastSeq {
		kept = append(kept, limit)
	}
	if len(kept) > maxPastLimits {
		kept[1].MaxVersions = kept[0].MaxVersions
		kept = kept[1:]
	}
	return kept
}
