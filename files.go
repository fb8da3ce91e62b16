package flagstone

// What a table's trees look like: their files, and the keys that are in use.

import (
	"github.com/flagstone-db/flagstone/partition"
	"github.com/flagstone-db/flagstone/row"
)

// File describes what one partition has in a table file. After a split, files are listed by both
// partitions until compactions have divided them; sizes and counts are estimates then, and First and Last
// may be the bounds of the partition, without the later key columns.
type File struct {
	Partition               uint64
	Level                   int
	Number                  uint64
	Bytes                   int64
	ValueBytes              int64 // in value files, of the values that it refers to
	Rows, Cells, Tombstones uint64
	First, Last             []row.Value // row keys
	CreatedMillis           int64
}

// Files lists the table's files by partition, level and first key. In level 0 the newest come first.
func (t *Table) Files() ([]File, error) {
	var list []File
	err := t.core.Steady(func(trees []*partition.Tree) error {
		list = nil
		for _, tree := range trees {
			for level, files := range tree.Levels() {
				for _, f := range files {
					file := File{
						Partition: tree.ID(), Level: level, Number: f.Number, Bytes: f.Size, Rows: f.Rows, Cells: f.Cells,
						Tombstones: f.Tombstones, CreatedMillis: f.CreatedMillis,
					}
					for _, use := range f.Values {
						file.ValueBytes += int64(use.Bytes)
					}
					var err error
					if file.First, err = decodeKey(nil, f.Smallest, len(t.core.Key)); err != nil {
						return err
					}
					if file.Last, err = decodeKey(nil, f.Largest, len(t.core.Key)); err != nil {
						return err
					}
					list = append(list, file)
				}
			}
		}
		return t.core.Gone()
	})
	return list, t.store.describe(err)
}

// LoadedKey is a partition-key value with its part of the load, as a sample shows it.
type LoadedKey struct {
	Key           row.Value
	Reads, Writes float64 // capacity units per second
}

// idleUnits is the load in capacity units per second below which a partition counts as not in use.
const idleUnits = 0.05

// LoadedKeys returns the partition-key values of a random sample of the operations of the last half minute or
// so, in key order: at most 128 operations of each partition, chosen by their capacity units. Each operation of a
// partition's sample stands for the same part of its load, so all add up to the Units of Partitions. What has
// less than a hundredth of a partition's load is often missing. Values beyond 512 bytes are cut.
func (t *Table) LoadedKeys() []LoadedKey {
	var list []LoadedKey
	now := t.store.clock.Elapsed()
	_ = t.core.Steady(func(trees []*partition.Tree) error {
		list = nil
		for _, tree := range trees {
			units := tree.Load().Look(now).Units()
			if units < idleUnits {
				continue
			}
			sample := tree.Load().Sample()
			for key, write := range sample.Keys() {
				k := LoadedKey{Key: t.partitionValue(key)}
				if write {
					k.Writes = units / float64(sample.Len())
				} else {
					k.Reads = units / float64(sample.Len())
				}
				if last := len(list) - 1; last >= 0 && list[last].Key.Equal(k.Key) {
					list[last].Reads += k.Reads
					list[last].Writes += k.Writes
					continue
				}
				list = append(list, k)
			}
		}
		return nil
	})
	return list
}
