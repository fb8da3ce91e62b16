package partition

import (
	"bytes"

	"github.com/flagstone-db/flagstone/internal/tablefiles"
	"github.com/flagstone-db/flagstone/row"
)

// AnchorShare is how many anchors a run has for each piece of the size that the caller of
// Anchors wants.
const AnchorShare = 16

// Anchors describes how the tree's data is spread over its keys. It reads the indexes of the
// table files and no data block. Table files count with their stored, compressed size, including
// values in value files. Anchors of one table file are apart bytes or one block from each other,
// whichever is more, so the cost depends on the number of pieces and files, not on the size of
// the data. Memtables are walked cell by cell.
func (t *Tree) Anchors(apart int64) (*Anchors, error) {
	s := t.pin()
	defer s.unref()
	return t.anchors(s, apart, t.weighMemory)
}

// anchors is Anchors of a pinned state; memory adds those of a memtable.
func (t *Tree) anchors(s *state, apart int64, memory func(to *Anchors, m *memory, apart int64)) (*Anchors, error) {
	found := new(Anchors)
	files := s.version.files
	for _, f := range files {
		if err := t.addFile(found, f, apart); err != nil {
			return nil, err
		}
	}
	for _, m := range s.memories {
		memory(found, m, apart)
	}
	return found, nil
}

// addFile adds anchors of a file, clipped to the tree's range, that are at least apart bytes from
// each other. The last one may be the range's end.
func (t *Tree) addFile(to *Anchors, f *tablefiles.File, apart int64) error {
	r, err := f.Reader()
	if err != nil {
		return err
	}
	rest := r.WalkIndex(t.start, t.end, func(key []byte, since int64) int64 {
		to.Add(key, since)
		return apart
	})
	last := f.Meta.Largest
	if t.end != nil && bytes.Compare(last, t.end) > 0 {
		last = t.end
	}
	to.Add(last, rest)
	return nil
}

// add adds an anchor if its key is in the tree's range: memtables of a tree that was divided can
// reach beyond it.
func (t *Tree) add(to *Anchors, key []byte, size int64) {
	if t.Contains(key) {
		to.Add(key, size)
	}
}

// addMemory adds random anchors that are about apart bytes from each other. A memtable knows
// only the average size of its rows.
func (t *Tree) addMemory(to *Anchors, m *memory, apart int64) {
	rows := int64(m.table.Rows())
	if rows == 0 {
		return
	}
	used := m.table.Used()
	first, found := len(to.list), int64(0)
	m.table.Sample(apart/max(used/rows, 1), func(key []byte) {
		found++
		t.add(to, key, 0)
	})
	sampled := to.list[first:]
	for i := range sampled {
		sampled[i].bytes = used / found
	}
}

// weighMemory adds anchors that are about apart bytes from each other. An anchor's key is the
// last row of its bytes.
func (t *Tree) weighMemory(to *Anchors, m *memory, apart int64) {
	var since, total int64
	var key []byte
	first := len(to.list)
	it := m.table.NewIterator()
	for ok := it.First(); ok; ok = it.NextRow() {
		size := int64(len(it.RowKey()))
		for ok := it.FirstCell(); ok; ok = it.NextCell() {
			c := it.Cell()
			size += int64(len(c.Column) + len(c.Value))
		}
		total += size
		if !t.Contains(it.RowKey()) {
			continue
		}
		key = it.RowKey()
		if since += size; since >= apart {
			to.Add(key, since)
			since = 0
		}
	}
	if since > 0 {
		to.Add(key, since)
	}
	// The rest is what the memtable takes beside keys and values.
	factor := max(float64(m.table.Used())/float64(max(total, 1)), 1)
	weighed := to.list[first:]
	for i := range weighed {
		weighed[i].bytes = int64(float64(weighed[i].bytes) * factor)
	}
}

// Sizes is about what the tree holds in memory and on disk: the bytes and rows that a scan reads
// without value files, and the bytes in these.
func (t *Tree) Sizes() (scanned, rows, values int64) {
	s := t.pin()
	defer s.unref()
	for _, m := range s.memories {
		holders := max(m.holders.Load(), 1)
		scanned, rows = scanned+m.table.Used()/holders, rows+int64(m.table.Rows())/holders
	}
	for _, f := range allFiles(s.version.levels()) {
		scanned, rows = scanned+f.Size, rows+int64(f.Rows)
		for _, use := range f.Values {
			values += int64(use.Bytes)
		}
	}
	return scanned, rows, values
}

// ApproximateSize is about how many bytes the tree holds, in memory and on disk.
func (t *Tree) ApproximateSize() int64 {
	scanned, _, values := t.Sizes()
	return scanned + values
}

// Cutter divides data into pieces of about a given size. It is shown the places of all trees in
// key order. A piece ends at the first place where it is large enough, at a boundary between
// partition keys. So it is too large by at most the data between two places plus one partition
// key.
type Cutter struct {
	columns    int
	pieceBytes int64
	limit      int
	points     []row.Value
	size       int64  // of the piece under way
	last, next []byte // encoded keys: the newest point's, and the buffer for the next
}

// NewCutter returns a cutter for keys of so many columns that finds at most limit points.
func NewCutter(columns int, pieceBytes int64, limit int) *Cutter {
	return &Cutter{columns: columns, pieceBytes: pieceBytes, limit: limit}
}

// Points are the partition-key values between the pieces.
func (c *Cutter) Points() []row.Value { return c.points }

// show shows the cutter a place, and how much data lies between it and the place before. apart
// is how much data may lie between it and the next, and negative when there are enough points.
func (c *Cutter) show(key []byte, since int64) (apart int64) {
	if c.size += since; c.size >= c.pieceBytes && len(c.points) < c.limit {
		if v, ok := row.PartitionValueAt(key, c.columns); ok {
			encoded, err := row.AppendKey(c.next[:0], c.columns, v)
			if err == nil && bytes.Compare(encoded, c.last) > 0 {
				c.points = append(c.points, v.Clone()) // the key is the caller's
				c.next, c.last, c.size = c.last, encoded, 0
			}
		}
	}
	if len(c.points) >= c.limit {
		return -1
	}
	return max(c.pieceBytes-c.size, c.share())
}

// share is how much data may be counted without its exact place.
func (c *Cutter) share() int64 { return c.pieceBytes / AnchorShare }

// Cut shows the tree's data to a cutter. It reads what Anchors reads. If the table files are one
// run, as in a settled tree, and the memtables hold little, then pieces end exactly to a block,
// and each end costs one look at the index.
func (t *Tree) Cut(c *Cutter) error {
	s := t.pin()
	defer s.unref()
	run, little, ok := s.onlyRun(c.share())
	if !ok {
		found, err := t.anchors(s, c.share(), t.addMemory)
		if err != nil {
			return err
		}
		for key, since := range found.All() {
			if c.show(key, since) < 0 {
				return nil
			}
		}
		return nil
	}
	for _, f := range run {
		if len(c.points) >= c.limit {
			return nil
		}
		r, err := f.Reader()
		if err != nil {
			return err
		}
		c.size += r.WalkIndex(t.start, t.end, c.show)
	}
	c.size += little
	return nil
}

// onlyRun returns the only run of files, and the bytes in the memtables, if there is one run and
// the memtables take at most limit.
func (s *state) onlyRun(limit int64) (run []*tablefiles.File, memory int64, ok bool) {
	for _, m := range s.memories {
		if !m.table.Empty() {
			memory += m.table.Used()
		}
	}
	if len(s.version.runs) != 1 || memory > limit {
		return nil, 0, false
	}
	return s.version.runs[0], memory, true
}
