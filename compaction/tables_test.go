package compaction_test

// Tables in memory: mvcctest runs, with the metadata of files.

import (
	"bytes"
	"fmt"
	"math"

	"github.com/flagstone-db/flagstone/compaction"
	"github.com/flagstone-db/flagstone/manifest"
	"github.com/flagstone-db/flagstone/mvcc/mvcctest"
	"github.com/flagstone-db/flagstone/row"
)

// tables is an Output that keeps the tables it is given.
type tables struct {
	done      []mvcctest.Run
	open      *table
	abandoned int
}

type table struct {
	out  *tables
	run  mvcctest.Run
	size int64
}

func (o *tables) NewTable() (compaction.TableWriter, error) {
	o.open = &table{out: o}
	return o.open, nil
}

func (t *table) StartRow(key []byte) error {
	if n := len(t.run); n > 0 && bytes.Compare(t.run[n-1].Key, key) >= 0 {
		return fmt.Errorf("row %q after %q", key, t.run[n-1].Key)
	}
	t.run = append(t.run, mvcctest.Row{Key: bytes.Clone(key)})
	t.size += int64(len(key))
	return nil
}

func (t *table) AddCell(c *row.Cell) error {
	r := &t.run[len(t.run)-1]
	if n := len(r.Cells); n > 0 && row.CompareCells(&r.Cells[n-1], c) >= 0 {
		return fmt.Errorf("cell %s after %s", c.String(), r.Cells[n-1].String())
	}
	r.Cells = append(r.Cells, c.Clone())
	t.size += int64(8 + len(c.Column) + len(c.Value))
	return nil
}

func (t *table) NoteStored(row.Stored) {}

func (t *table) EstimatedSize() int64 { return t.size }

func (t *table) Finish() error {
	for _, r := range t.run {
		if len(r.Cells) == 0 {
			return fmt.Errorf("row %q is empty", r.Key)
		}
	}
	t.out.done = append(t.out.done, t.run)
	return nil
}

func (t *table) Abandon() { t.out.abandoned++ }

// describe makes the metadata of a file, as the table writer does.
func describe(number uint64, run mvcctest.Run) *manifest.FileMeta {
	f := &manifest.FileMeta{
		Number: number, Smallest: run[0].Key, Largest: run[len(run)-1].Key, Rows: uint64(len(run)),
		SmallestSeq: math.MaxUint64, MinVersion: math.MaxInt64, MaxVersion: math.MinInt64,
	}
	for _, r := range run {
		f.Size += int64(len(r.Key))
		for _, c := range r.Cells {
			f.Size += int64(8 + len(c.Column) + len(c.Value))
			f.Cells++
			f.SmallestSeq, f.LargestSeq = min(f.SmallestSeq, c.Seq), max(f.LargestSeq, c.Seq)
			if c.Version != row.MaxVersion {
				f.MinVersion, f.MaxVersion = min(f.MinVersion, c.Version), max(f.MaxVersion, c.Version)
			} else if c.Kind == row.KindRowMarker {
				f.Permanent = true
			}
			if c.Kind.IsTombstone() {
				f.Tombstones++
				f.NewestTombstone = max(f.NewestTombstone, c.Seq)
			} else if c.Kind == row.KindPut {
				f.Puts++
			}
		}
	}
	return f
}
