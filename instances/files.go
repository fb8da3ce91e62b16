package instances

import (
	"bytes"
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/flagstone-db/flagstone"
	"github.com/flagstone-db/flagstone/row"
)

// File is flagstone.File as JSON.
type File struct {
	Partition  uint64  `json:"partition"`
	Level      int     `json:"level"`
	Number     uint64  `json:"number"`
	Bytes      int64   `json:"bytes"`
	ValueBytes int64   `json:"value_bytes"`
	Rows       uint64  `json:"rows"`
	Cells      uint64  `json:"cells"`
	Tombstones uint64  `json:"tombstones"`
	First      []Value `json:"first"` // strings and binaries are cut after shownBytes
	Last       []Value `json:"last"`
	// From and To are the places of First and Last in a picture of the key range that gives each interval
	// between two bounds of files the same width: 0 is its start, 1 its end.
	From          float64 `json:"from"`
	To            float64 `json:"to"`
	CreatedMillis int64   `json:"created_millis"`
}

// Files lists the table files of a table, by partition, level and first key. Errors match ErrNotFound, or are those
// of the store.
func (h *Home) Files(_ context.Context, instance, table string) ([]File, error) {
	t, err := h.table(instance, table)
	if err != nil {
		return nil, err
	}
	files, err := t.Files()
	if err != nil {
		return nil, err
	}
	var bounds [][]row.Value
	for _, f := range files {
		bounds = append(bounds, f.First, f.Last)
	}
	slices.SortFunc(bounds, CompareKeys)
	bounds = slices.CompactFunc(bounds, func(a, b []row.Value) bool { return CompareKeys(a, b) == 0 })
	place := func(key []row.Value) float64 {
		i, _ := slices.BinarySearchFunc(bounds, key, CompareKeys)
		return float64(i) / float64(max(len(bounds)-1, 1))
	}
	list := []File{}
	for _, f := range files {
		list = append(list, File{
			Partition: f.Partition, Level: f.Level, Number: f.Number, Bytes: f.Bytes, ValueBytes: f.ValueBytes,
			Rows: f.Rows, Cells: f.Cells, Tombstones: f.Tombstones, First: shown(f.First), Last: shown(f.Last),
			From: place(f.First), To: place(f.Last), CreatedMillis: f.CreatedMillis,
		})
	}
	return list, nil
}

// shownBytes is how much of a key is shown of each column, where there are many keys.
const shownBytes = 64

// Shortened is a value of a key without what is beyond shownBytes. It is a copy.
func Shortened(v row.Value) row.Value {
	b := v.Bytes()
	switch {
	case len(b) <= shownBytes:
		return v.Clone()
	case v.Type() == row.TypeString:
		return row.String(strings.ToValidUTF8(string(b[:shownBytes]), ""))
	default:
		return row.Binary(slices.Clone(b[:shownBytes]))
	}
}

func shown(key []row.Value) []Value {
	list := make([]Value, len(key))
	for i, v := range key {
		list[i] = Value{Shortened(v)}
	}
	return list
}

// CompareKeys orders keys of one table. The beginning of a key comes before the key.
func CompareKeys(a, b []row.Value) int {
	return slices.CompareFunc(a, b, func(a, b row.Value) int {
		return cmp.Or(cmp.Compare(a.Int64(), b.Int64()), bytes.Compare(a.Bytes(), b.Bytes()))
	})
}

// LoadedKeys returns a sample of the keys that are in use, by the name of the table, "instance/table". Tables that are
// not in use, or of no instance, are left out.
func (h *Home) LoadedKeys() map[string][]flagstone.LoadedKey {
	sampled := make(map[string][]flagstone.LoadedKey)
	for _, store := range h.view.Load().stores {
		for _, t := range store.Tables() {
			if keys := t.LoadedKeys(); len(keys) > 0 && strings.Contains(t.Name(), "/") {
				sampled[t.Name()] = keys
			}
		}
	}
	return sampled
}
