// Package model is the simplest store of rows that answers right: maps in
// memory, and every rule applied when a row is read. The conformance test holds
// every adapter to it.
package model

import (
	"bytes"
	"slices"
	"time"

	"github.com/flagstone-db/flagstone/bench/peers/rowstore"
)

// Store is the model. It implements what rowstore.Session does, for one
// goroutine.
type Store struct {
	MaxVersions int
	TTL         time.Duration
	NowMillis   func() int64

	rows map[string]map[string]map[int64][]byte // key, column, version
}

// New makes an empty model with the limits of a configuration.
func New(cfg rowstore.Config) *Store {
	return &Store{
		MaxVersions: max(cfg.MaxVersions, 1), TTL: cfg.TTL, NowMillis: cfg.NowMillis,
		rows: map[string]map[string]map[int64][]byte{},
	}
}

// Put replaces a row.
func (s *Store) Put(key []byte, cells []rowstore.Cell) {
	s.Delete(key)
	s.Update(key, cells)
}

// Update adds cells.
func (s *Store) Update(key []byte, cells []rowstore.Cell) {
	columns := s.rows[string(key)]
	if columns == nil {
		columns = map[string]map[int64][]byte{}
		s.rows[string(key)] = columns
	}
	for _, c := range cells {
		versions := columns[string(c.Column)]
		if versions == nil {
			versions = map[int64][]byte{}
			columns[string(c.Column)] = versions
		}
		versions[c.Version] = bytes.Clone(c.Value)
	}
}

// Delete deletes a row.
func (s *Store) Delete(key []byte) { delete(s.rows, string(key)) }

// Get reads a row; it has no cells if none is visible and selected.
func (s *Store) Get(key []byte, q rowstore.Query) rowstore.Row {
	row := rowstore.Row{Key: bytes.Clone(key)}
	columns := s.rows[string(key)]
	for _, name := range sorted(columns) {
		wanted := q.Columns == nil
		for _, c := range q.Columns {
			wanted = wanted || string(c) == name
		}
		if !wanted {
			continue
		}
		cells := s.visible(columns[name])
		if q.MaxVersions > 0 {
			cells = cells[:min(q.MaxVersions, len(cells))]
		}
		for _, c := range cells {
			row.Cells = append(row.Cells, rowstore.Cell{Column: []byte(name), Version: c.Version, Value: c.Value})
		}
	}
	return row
}

// visible returns the cells of a column that have not expired and are not
// surplus, newest first.
func (s *Store) visible(versions map[int64][]byte) []rowstore.Cell {
	var cells []rowstore.Cell
	for version, value := range versions {
		age := s.NowMillis()/1000 - version/1000
		if s.TTL == 0 || age <= int64(s.TTL/time.Second) {
			cells = append(cells, rowstore.Cell{Version: version, Value: value})
		}
	}
	slices.SortFunc(cells, func(a, b rowstore.Cell) int { return int(b.Version - a.Version) })
	return cells[:min(s.MaxVersions, len(cells))]
}

// Scan returns the rows from start to end, at most limit.
func (s *Store) Scan(start, end []byte, q rowstore.Query, limit int) []rowstore.Row {
	var rows []rowstore.Row
	for _, key := range sorted(s.rows) {
		if key < string(start) || end != nil && key >= string(end) {
			continue
		}
		if limit > 0 && len(rows) == limit {
			break
		}
		if row := s.Get([]byte(key), q); len(row.Cells) > 0 {
			rows = append(rows, row)
		}
	}
	return rows
}

// GetPage reads the newest cells of columns from fromColumn on.
func (s *Store) GetPage(key, fromColumn []byte, limit int) rowstore.Row {
	row := s.Get(key, rowstore.Query{MaxVersions: 1})
	row.Cells = slices.DeleteFunc(row.Cells, func(c rowstore.Cell) bool {
		return bytes.Compare(c.Column, fromColumn) < 0
	})
	row.Cells = row.Cells[:min(limit, len(row.Cells))]
	return row
}

func sorted[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
