package manifest

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/flagstone-db/flagstone/row"
)

// The rules that every State obeys. Apply checks them for what an edit touches, and replay
// checks everything: a faulty program can write wrong bytes with a right checksum.

// ErrInvalidEdit reports an edit that breaks a rule of the catalogue. The state is unchanged and
// the log can still be used.
var ErrInvalidEdit = errors.New("manifest: invalid edit")

func invalid(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{ErrInvalidEdit}, args...)...)
}

// maxNumber bounds every number and id, so that none overflows.
const maxNumber = row.MaxSequence

// maxAnnotations bounds a front end's annotations, in bytes.
const maxAnnotations = 1 << 20

// checkSchema checks a table without its partitions.
func checkSchema(t *Table) error {
	switch {
	case t.ID == 0 || t.ID > maxNumber:
		return invalid("table %q has id %d", t.Name, t.ID)
	case len(t.Name) == 0 || len(t.Name) > maxTableNameBytes:
		return invalid("table %d has a name of %d bytes, want 1 to %d", t.ID, len(t.Name), maxTableNameBytes)
	case !utf8.ValidString(t.Name) || strings.IndexByte(t.Name, 0) >= 0:
		return invalid("table %d: the name %q is not UTF-8 without NUL", t.ID, t.Name)
	case len(t.Key) < 1 || len(t.Key) > row.MaxKeyColumns:
		return invalid("table %q has %d key columns, want 1 to %d", t.Name, len(t.Key), row.MaxKeyColumns)
	case len(t.PastLimits) > maxPastLimits:
		return invalid("table %q: %d past limits, at most %d", t.Name, len(t.PastLimits), maxPastLimits)
	}
	for i, c := range t.Key {
		switch {
		case len(c.Name) == 0 || len(c.Name) > maxKeyColumnNameBytes || !utf8.ValidString(c.Name):
			return invalid("table %q: key column %d has a name of %d bytes, want 1 to %d of UTF-8",
				t.Name, i+1, len(c.Name), maxKeyColumnNameBytes)
		case !c.Type.IsKeyType():
			return invalid("table %q: key column %q has type %s", t.Name, c.Name, c.Type)
		case c.AutoIncrement && (i == 0 || c.Type != row.TypeInteger):
			return invalid("table %q: key column %q cannot be auto-increment: it is the first or no integer", t.Name, c.Name)
		case slices.ContainsFunc(t.Key[:i], func(d KeyColumn) bool { return d.Name == c.Name }):
			return invalid("table %q has two key columns %q", t.Name, c.Name)
		case c.AutoIncrement && slices.ContainsFunc(t.Key[:i], func(d KeyColumn) bool { return d.AutoIncrement }):
			return invalid("table %q has two auto-increment columns", t.Name)
		}
	}
	for i, l := range t.PastLimits {
		if err := checkPastLimit(t, l); err != nil {
			return err
		}
		if i > 0 && (l.MaxVersions >= t.PastLimits[i-1].MaxVersions || l.LastSeq <= t.PastLimits[i-1].LastSeq) {
			return invalid("table %q: past limit %d is out of order", t.Name, i)
		}
	}
	return checkProperties(t)
}

func checkPastLimit(t *Table, l PastLimit) error {
	if l.MaxVersions < 1 || l.LastSeq > maxNumber {
		return invalid("table %q: past limit of %d versions up to sequence number %d", t.Name, l.MaxVersions, l.LastSeq)
	}
	return nil
}

// checkProperties checks what AlterTable can change.
func checkProperties(t *Table) error {
	o := t.Options
	switch {
	case t.LargestOffset < o.MaxVersionOffsetSeconds:
		return invalid("table %q: largest version offset %d below the present %d", t.Name, t.LargestOffset, o.MaxVersionOffsetSeconds)
	case o.MaxVersions < 1:
		return invalid("table %q: max versions %d, want at least 1", t.Name, o.MaxVersions)
	case o.TTLSeconds < 1 && o.TTLSeconds != NeverExpires:
		return invalid("table %q: time to live %d, want %d or above 0", t.Name, o.TTLSeconds, NeverExpires)
	case o.MaxVersionOffsetSeconds < 0:
		return invalid("table %q: max version offset %d, want at least 0", t.Name, o.MaxVersionOffsetSeconds)
	case len(t.Annotations) > maxAnnotations:
		return invalid("table %q: annotations of %d bytes, at most %d", t.Name, len(t.Annotations), maxAnnotations)
	}
	return nil
}

// checkCover checks that partitions follow each other from start to end without gap or overlap,
// and are cut only between partition keys.
func checkCover(t *Table, partitions []*Partition, start, end []byte) error {
	if len(partitions) == 0 {
		return invalid("table %q: no partitions", t.Name)
	}
	for i, p := range partitions {
		// A bound with more than the first column lies inside the rows of one partition key.
		prefix, ok := row.PartitionPrefix(p.Start, len(t.Key))
		last := i == len(partitions)-1
		switch {
		case p.ID == 0 || p.ID > maxNumber:
			return invalid("table %q: partition with id %d", t.Name, p.ID)
		case !bytes.Equal(p.Start, start):
			return invalid("table %q: partition %d starts at %x, want %x", t.Name, p.ID, p.Start, start)
		case len(p.Start) > row.MaxKeyBytes:
			return invalid("table %q: partition %d has a bound of %d bytes", t.Name, p.ID, len(p.Start))
		case ok && len(prefix) != len(p.Start):
			return invalid("table %q: partition %d starts at %x, inside of one partition key", t.Name, p.ID, p.Start)
		case last && !bytes.Equal(p.End, end):
			return invalid("table %q: partition %d ends at %x, want %x", t.Name, p.ID, p.End, end)
		case !last && len(p.End) == 0:
			return invalid("table %q: partition %d is unbounded, but others follow", t.Name, p.ID)
		case len(p.End) != 0 && bytes.Compare(p.Start, p.End) >= 0:
			return invalid("table %q: partition %d starts at %x and ends at %x", t.Name, p.ID, p.Start, p.End)
		}
		start = p.End
	}
	return nil
}

// checkService checks what a partition serves.
func checkService(p *Partition) error {
	switch {
	case p.Service < Serving || p.Service > Detached || len(p.Reason) > MaxReasonBytes:
		return invalid("partition %d: service %d, with a reason of %d bytes", p.ID, p.Service, len(p.Reason))
	case p.Service == Serving && p.Reason != "":
		return invalid("partition %d serves all, and has a reason not to", p.ID)
	case p.detached() && p.hasFiles():
		return invalid("partition %d is detached, and has files", p.ID)
	}
	return nil
}

// checkCut checks that a partition without a start is not marked as cut there.
func checkCut(p *Partition) error {
	if p.Cut && len(p.Start) == 0 {
		return invalid("partition %d has no start and is marked as cut there", p.ID)
	}
	return nil
}

// checkFile checks a file's description, and that it has keys of the partition.
func checkFile(p *Partition, f *FileMeta) error {
	switch {
	case f.Number == 0:
		return invalid("file number 0")
	case f.Size <= 0:
		return invalid("file %d has size %d", f.Number, f.Size)
	case len(f.Smallest) == 0 || len(f.Smallest) > row.MaxKeyBytes || len(f.Largest) > row.MaxKeyBytes:
		return invalid("file %d has bounds of %d and %d bytes", f.Number, len(f.Smallest), len(f.Largest))
	case bytes.Compare(f.Smallest, f.Largest) > 0:
		return invalid("file %d: smallest key %x above largest %x", f.Number, f.Smallest, f.Largest)
	case f.SmallestSeq > f.LargestSeq || f.LargestSeq > row.MaxSequence:
		return invalid("file %d: sequence numbers %d to %d", f.Number, f.SmallestSeq, f.LargestSeq)
	case f.SeqOffset > 0 && f.SeqOffset >= f.SmallestSeq:
		return invalid("file %d: sequence numbers from %d on, with an offset of %d", f.Number, f.SmallestSeq, f.SeqOffset)
	case f.NewestTombstone > f.LargestSeq:
		return invalid("file %d: newest tombstone %d above sequence number %d", f.Number, f.NewestTombstone, f.LargestSeq)
	case f.Rows == 0 || f.Cells < f.Rows:
		return invalid("file %d: %d rows, %d cells", f.Number, f.Rows, f.Cells)
	case f.Puts > f.Cells || f.Tombstones > f.Cells-f.Puts:
		return invalid("file %d: %d puts and %d tombstones among %d cells", f.Number, f.Puts, f.Tombstones, f.Cells)
	case !p.Overlaps(f.Smallest, f.Largest):
		return invalid("file %d with keys from %x to %x is outside of partition %d", f.Number, f.Smallest, f.Largest, p.ID)
	}
	return checkValues(f)
}

// checkOrder checks the order of neighbouring files of a level.
func checkOrder(p *Partition, level int, files []*FileMeta) error {
	for i := 1; i < len(files); i++ {
		f, g := files[i-1], files[i]
		switch {
		case level == 0 && compareL0(f, g) >= 0:
			return invalid("level 0: file %d (sequence number %d) before file %d (%d) (partition %d)",
				f.Number, f.LargestSeq, g.Number, g.LargestSeq, p.ID)
		case level > 0 && bytes.Compare(f.Largest, g.Smallest) >= 0:
			return invalid("level %d: file %d, which ends at %x, overlaps file %d, which starts at %x (partition %d)",
				level, f.Number, f.Largest, g.Number, g.Smallest, p.ID)
		}
	}
	return nil
}

func compareL0(f, g *FileMeta) int {
	return cmp.Or(cmp.Compare(f.LargestSeq, g.LargestSeq), cmp.Compare(f.Number, g.Number))
}

// checkReplacement checks that a split or merge of partitions neither loses nor brings back a
// row: where an old and a new partition share keys, they list the same files at the same levels.
func checkReplacement(old, replacement *Partition) error {
	if !endsAbove(old.End, replacement.Start) || !endsAbove(replacement.End, old.Start) {
		return nil // they share no keys
	}
	if replacement.Epoch <= old.Epoch {
		return invalid("partition %d has epoch %d, it replaces %d with epoch %d", replacement.ID, replacement.Epoch, old.ID, old.Epoch)
	}
	switch {
	case old.detached() || replacement.detached():
		return nil
	case old.Service != replacement.Service:
		return invalid("partition %d is frozen, or %d, which replaces it", old.ID, replacement.ID)
	}
	if replacement.FlushedSeq > old.FlushedSeq {
		return invalid("partition %d claims to be flushed up to %d, it replaces %d, flushed up to %d",
			replacement.ID, replacement.FlushedSeq, old.ID, old.FlushedSeq)
	}
	for level := range old.Levels {
		// A file with keys of both partitions has keys of what they share.
		was := filesIn(replacement, old.Levels[level])
		is := filesIn(old, replacement.Levels[level])
		if !slices.EqualFunc(was, is, func(f, g *FileMeta) bool { return f.Number == g.Number }) {
			return invalid("level %d: partitions %d and %d share keys, but list different files for them",
				level, old.ID, replacement.ID)
		}
	}
	return nil
}

func filesIn(p *Partition, files []*FileMeta) []*FileMeta {
	return slices.DeleteFunc(slices.Clone(files), func(f *FileMeta) bool { return !p.Overlaps(f.Smallest, f.Largest) })
}
