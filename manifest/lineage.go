package manifest

import (
	"bytes"
	"cmp"
	"math"
	"slices"

	"github.com/flagstone-db/flagstone/row"
)

// Shard is one partition of a table as its change log knows it. The partition took the mutations of
// its range with sequence numbers above After, up to the After of the shards that came from it.
type Shard struct {
	ID uint64 // that of the partition
	// Parents are the shards that it came from, ascending. Those that were forgotten are not among
	// them.
	Parents    []uint64
	Start, End []byte // of the partition
	After      uint64
}

// Lineage is the shards of a change log, ascending by id, so that parents come before children. An
// empty one stands for the present partitions: none was split or merged since the log began.
type Lineage []*Shard

// find returns the place of a shard.
func (l Lineage) find(id uint64) (int, bool) {
	return slices.BinarySearchFunc(l, id, func(s *Shard, id uint64) int { return cmp.Compare(s.ID, id) })
}

// until returns the sequence number up to which a shard has mutations: row.MaxSequence while its
// partition is there.
func (l Lineage) until(id uint64) uint64 {
	for _, s := range l {
		if slices.Contains(s.Parents, id) {
			return s.After
		}
	}
	return row.MaxSequence
}

// ShardOf returns the shard of a mutation of a row; partition holds the row's key now. It is 0 if the
// shard was forgotten: then the change log's files held its records.
func (l Lineage) ShardOf(partition uint64, key []byte, seq uint64) uint64 {
	for {
		at, found := l.find(partition)
		if !found || seq > l[at].After {
			return partition
		}
		parents := l[at].Parents
		of := slices.IndexFunc(parents, func(id uint64) bool {
			at, _ := l.find(id)
			return l[at].contains(key)
		})
		if of < 0 {
			return 0
		}
		partition = parents[of]
	}
}

func (s *Shard) contains(key []byte) bool {
	return bytes.Compare(s.Start, key) <= 0 && endsAbove(s.End, key)
}

// Shards returns the shards of a change log, ascending by id. REQUIRES: its table is in the state.
func (s *State) Shards(log *ChangeLog) Lineage {
	if len(log.Shards) > 0 {
		return log.Shards
	}
	return s.partitionShards(log)
}

// partitionShards makes a shard of each present partition.
func (s *State) partitionShards(log *ChangeLog) (shards Lineage) {
	for _, p := range s.Table(log.Of).Partitions {
		shards = append(shards, &Shard{ID: p.ID, Start: p.Start, End: p.End, After: log.After})
	}
	slices.SortFunc(shards, func(a, b *Shard) int { return cmp.Compare(a.ID, b.ID) })
	return shards
}

// ShardEnd returns the sequence number up to which a shard of a change log has records:
// row.MaxSequence while its partition is there. ok is false if the log does not know the shard.
func (s *State) ShardEnd(log *ChangeLog, id uint64) (until uint64, ok bool) {
	if len(log.Shards) == 0 {
		of, _ := s.owners.get(id)
		return row.MaxSequence, of.table == log.Of
	}
	_, ok = log.Shards.find(id)
	return log.Shards.until(id), ok
}

// replaceShards lets the change log of a table follow a replacement of its partitions, if the log
// goes on. old are the partitions that are replaced, and still in the table.
func (a *applier) replaceShards(r *Replacement, old []*Partition) error {
	open := a.next.openLog(r.Table)
	if open == nil {
		return nil
	}
	shards := slices.Clone(a.next.Shards(open.Log))
	for _, o := range old {
		at, known := shards.find(o.ID)
		if !known || r.After < max(shards[at].After, o.FlushedSeq) {
			return invalid("partition %d is replaced after %d, but took later mutations", o.ID, r.After)
		}
	}
	for _, p := range r.New {
		s := &Shard{ID: p.ID, Start: p.Start, End: p.End, After: r.After}
		for _, o := range old {
			if endsAbove(o.End, p.Start) && endsAbove(p.End, o.Start) {
				s.Parents = append(s.Parents, o.ID)
			}
		}
		slices.Sort(s.Parents)
		shards = append(shards, s)
	}
	slices.SortFunc(shards, func(a, b *Shard) int { return cmp.Compare(a.ID, b.ID) })
	t, err := a.table(open.ID)
	if err != nil {
		return err
	}
	log := *t.Log
	log.Shards = shards.without(a.expired(t))
	t.Log = &log
	return nil
}

// expired returns the sequence number below which shards of a change log may have ended to be
// forgotten. Recovery does not derive one of their records again, because the log's files hold them.
// No reader sees one, because the watermark is past a time that was recorded after the shard had
// ended: any larger sequence number was assigned later. So a reader also had the retention of the
// stream to find the end.
func (a *applier) expired(log *Table) (below uint64) {
	if cutoff := log.Watermark; cutoff > 0 && cutoff < math.MaxInt64/1000 {
		below = a.next.SeqAtOrBefore(cutoff*1000 - 1)
	}
	for _, p := range log.Partitions {
		below = min(below, p.FlushedSeq+1)
	}
	return below
}

// without forgets the shards that ended below a sequence number. A shard ends no later than its
// children, so the parents of a forgotten shard are forgotten too.
func (l Lineage) without(below uint64) Lineage {
	ended := map[uint64]bool{}
	for _, s := range l {
		for _, parent := range s.Parents {
			ended[parent] = s.After < below
		}
	}
	var kept Lineage
	for _, s := range l {
		if ended[s.ID] {
			continue
		}
		if len(s.Parents) > 0 && ended[s.Parents[0]] { // all parents of a shard ended at once
			rest := *s
			rest.Parents = nil
			s = &rest
		}
		kept = append(kept, s)
	}
	return kept
}

// checkShards checks the lineage of a change log: shards that have not ended are the partitions of its
// table, and every other one ended where its children begin.
func (a *applier) checkShards(id uint64, log *ChangeLog) error {
	if len(log.Shards) == 0 {
		return nil
	}
	if log.Until != 0 {
		return invalid("change log %d has ended, and has shards", id)
	}
	ends := map[uint64]uint64{}
	for i, s := range log.Shards {
		switch {
		case s.ID == 0 || i > 0 && s.ID <= log.Shards[i-1].ID:
			return invalid("change log %d: shard %d is out of order", id, s.ID)
		case len(s.End) != 0 && bytes.Compare(s.Start, s.End) >= 0:
			return invalid("change log %d: shard %d starts at %x and ends at %x", id, s.ID, s.Start, s.End)
		case s.After < log.After || s.After > maxNumber:
			return invalid("change log %d: shard %d begins after %d", id, s.ID, s.After)
		}
		for j, parent := range s.Parents {
			at, known := log.Shards[:i].find(parent)
			if !known || j > 0 && parent <= s.Parents[j-1] {
				return invalid("change log %d: shard %d comes from %d, which is not before it", id, s.ID, parent)
			}
			p := log.Shards[at]
			end, ended := ends[parent]
			if p.After > s.After || ended && end != s.After || !endsAbove(p.End, s.Start) || !endsAbove(s.End, p.Start) {
				return invalid("change log %d: shard %d after %d cannot come from %d", id, s.ID, s.After, parent)
			}
			ends[parent] = s.After
		}
	}
	going := slices.DeleteFunc(slices.Clone(log.Shards), func(s *Shard) bool {
		_, ended := ends[s.ID]
		return ended
	})
	if !slices.EqualFunc(going, a.next.partitionShards(log), func(s, p *Shard) bool {
		return s.ID == p.ID && bytes.Equal(s.Start, p.Start) && bytes.Equal(s.End, p.End)
	}) {
		return invalid("change log %d: the shards that go on are not the partitions of table %d", id, log.Of)
	}
	return nil
}
