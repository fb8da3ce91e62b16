package partition

import (
	"bytes"
	"slices"

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
// the data. Memtables are walked cell by cell; versions beyond the table's limit, and those that a delete of their
// row or column hides, do not count.
func (t *Tree) Anchors(apart int64) (*Anchors, error) {
	s := t.pin()
	defer s.unref()
	return anchors(s, t.span(), apart, 0, t.env.Retention.MaxVersions(t.table, row.MaxSequence))
}

// span is a range of keys: start <= key < end. A nil end is unbounded.
type span struct{ start, end []byte }

func (t *Tree) span() span { return span{t.start, t.end} }

func (r span) contains(key []byte) bool {
	return bytes.Compare(key, r.start) >= 0 && (r.end == nil || bytes.Compare(key, r.end) < 0)
}

// misses reports whether a file has no keys of the range: it need not be opened.
func (r span) misses(f *tablefiles.File) bool {
	return bytes.Compare(f.Meta.Largest, r.start) < 0 || r.end != nil && bytes.Compare(f.Meta.Smallest, r.end) >= 0
}

// within is the part of the range that lies in another one.
func (r span) within(o span) span {
	if bytes.Compare(r.start, o.start) < 0 {
		r.start = o.start
	}
	if r.end == nil || o.end != nil && bytes.Compare(o.end, r.end) < 0 {
		r.end = o.end
	}
	return r
}

// anchors is Anchors of what a pinned state has in a range; sampled and versions are those of addMemory.
func anchors(s *state, in span, apart, sampled int64, versions int) (*Anchors, error) {
	found := new(Anchors)
	for _, f := range s.version.files {
		if err := in.addFile(found, f, apart); err != nil {
			return nil, err
		}
	}
	for _, m := range s.memories {
		in.addMemory(found, m, apart, sampled, versions)
	}
	return found, nil
}

// addFile adds anchors of a file, clipped to the range, that are at least apart bytes from
// each other. The last one may be the range's end.
func (r span) addFile(to *Anchors, f *tablefiles.File, apart int64) error {
	if r.misses(f) {
		return nil
	}
	file, err := f.Reader()
	if err != nil {
		return err
	}
	rest := file.WalkIndex(r.start, r.end, func(key []byte, since int64) int64 {
		to.Add(key, since)
		return apart
	})
	last := f.Meta.Largest
	if r.end != nil && bytes.Compare(last, r.end) > 0 {
		last = r.end
	}
	if rest > 0 {
		to.Add(last, rest)
	}
	return nil
}

// addMemory adds anchors of a memtable, clipped to the range, that are about apart bytes from each
// other. An anchor's key is the last row of its bytes. It looks at one row in sampled bytes, at random; 0 is
// every row. versions are how many of a column count, 0 for all.
func (r span) addMemory(to *Anchors, m *memory, apart, sampled int64, versions int) {
	rows, used := int64(m.table.Rows()), m.table.Used()
	if rows == 0 {
		return
	}
	var since, total int64
	var last []byte
	first := len(to.list)
	m.table.Sample(min(sampled, used/leastSamples)/max(used/rows, 1), versions, func(key []byte, size int64) {
		total += size
		if !r.contains(key) {
			return
		}
		last = key
		if since += size; since >= apart {
			to.Add(key, since)
			since = 0
		}
	})
	if since > 0 {
		to.Add(last, since)
	}
	// The rest is what the memtable takes beside keys and values, and what chance has left out.
	factor := float64(used) / float64(max(total, 1))
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

const (
	// cutShare divides the size of a piece into how much of it may be counted without its exact
	// place when the piece is ended: all runs together.
	cutShare = 8
	// sampleShare divides it into how much of a memtable one sampled row stands for, about.
	sampleShare = 512
	// leastSamples is how many rows of a memtable are sampled at least, about.
	leastSamples = 32
)

// Cutter divides the data of a range of keys into pieces of about a given size. It is shown the places
// of all trees in key order. A piece ends at the first place where it is large enough, at a boundary
// between partition keys. So it is too large by at most the data between two places, or one partition
// key.
type Cutter struct {
	columns    int
	pieceBytes int64
	limit      int
	in         span
	points     []row.Value
	sizes      []int64 // of the pieces that end at the points
	size       int64   // of the piece under way
	last, next []byte  // encoded keys: the newest point's, and the buffer for the next
}

// NewCutter returns a cutter for keys of so many columns, from low to high, that finds at most limit
// points. A nil high is unbounded.
func NewCutter(columns int, low, high []byte, pieceBytes int64, limit int) *Cutter {
	return &Cutter{columns: columns, in: span{low, high}, pieceBytes: pieceBytes, limit: limit, last: bytes.Clone(low)}
}

// Points are the partition-key values between the pieces.
func (c *Cutter) Points() []row.Value { return c.points }

// Sizes are about how many bytes each piece has: one more than there are points. The last one is too
// small if the limit was reached.
func (c *Cutter) Sizes() []int64 { return append(c.sizes, c.size) }

// show shows the cutter a place, and how much data lies between it and the place before. It reports whether
// a piece ended, which is where the partition key of the place begins.
func (c *Cutter) show(key []byte, since int64) (ended bool) {
	if c.size += since; c.size < c.pieceBytes || len(c.points) >= c.limit {
		return false
	}
	v, ok := row.PartitionValueAt(key, c.columns)
	if !ok {
		return false
	}
	encoded, err := row.AppendKey(c.next[:0], c.columns, v)
	if err != nil || bytes.Compare(encoded, c.last) <= 0 || !c.in.contains(encoded) {
		return false
	}
	c.points = append(c.points, v.Clone()) // the key is the caller's
	c.sizes = append(c.sizes, c.size)
	c.next, c.last, c.size = c.last, encoded, 0
	return true
}

// carry says that so much of the piece that ended last lies behind its end.
func (c *Cutter) carry(size int64) {
	c.sizes[len(c.sizes)-1] -= size
	c.size += size
}

// apart is how much data may lie between a place and the next, negative when there are enough points.
func (c *Cutter) apart() int64 {
	switch {
	case len(c.points) >= c.limit:
		return -1
	case c.size < c.pieceBytes:
		return c.pieceBytes - c.size
	}
	return c.pieceBytes / cutShare // a partition key is as large as the piece
}

// Cut shows the tree's data to a cutter. It reads indexes of table files, and samples memtables. If the
// table files are one run, as in a settled tree, and the memtables hold little, then pieces end
// exactly to a block, and each end costs two looks at the index.
func (t *Tree) Cut(c *Cutter) error {
	if len(c.points) >= c.limit {
		return nil
	}
	s := t.pin()
	defer s.unref()
	in := t.span().within(c.in)
	if len(s.version.runs) == 1 && bytes.Equal(in.start, t.start) && bytes.Equal(in.end, t.end) {
		if memory := s.memoryBytes(); memory <= c.pieceBytes/(2*cutShare) {
			c.size += memory
			return in.cutRun(c, s.version.runs[0])
		}
	}
	runs := len(s.version.runs)
	for _, m := range s.memories {
		if !m.table.Empty() {
			runs++
		}
	}
	found, err := anchors(s, in, c.pieceBytes/int64(cutShare*max(runs, 2)), c.pieceBytes/sampleShare, 0)
	if err != nil {
		return err
	}
	i, list := 0, found.list
	for key, since := range found.All() {
		if c.show(key, since) {
			var behind int64
			for j := i; j > 0 && bytes.Compare(list[j-1].key, c.last) > 0; j-- {
				behind += list[j].bytes
			}
			c.carry(behind)
		}
		i++
	}
	return nil
}

// cutRun shows what a run of files has in the range.
func (r span) cutRun(c *Cutter, run []*tablefiles.File) error {
	for i, f := range run {
		if r.misses(f) {
			continue
		}
		if len(c.points) >= c.limit {
			return nil
		}
		file, err := f.Reader()
		if err != nil {
			return err
		}
		c.size += file.WalkIndex(r.start, r.end, func(key []byte, since int64) int64 {
			if c.show(key, since) {
				c.carry(span{c.last, key}.within(r).behind(run[:i+1]))
			}
			return c.apart()
		})
	}
	return nil
}

// behind is how much of a run lies in the range, without the block that holds its start.
func (r span) behind(run []*tablefiles.File) (size int64) {
	for _, f := range slices.Backward(run) {
		if bytes.Compare(f.Meta.Largest, r.start) < 0 {
			break
		}
		file, err := f.Reader()
		if err != nil {
			break // the caller has opened the others, and the next reader finds out
		}
		found := false
		rest := file.WalkIndex(r.start, r.end, func([]byte, int64) int64 {
			found = true
			return -1
		})
		if !found {
			break
		}
		size += rest
	}
	return size
}

// memoryBytes is about what the state has in memtables, of those that several trees hold a part.
func (s *state) memoryBytes() (size int64) {
	for _, m := range s.memories {
		if !m.table.Empty() {
			size += m.table.Used() / max(m.holders.Load(), 1)
		}
	}
	return size
}
