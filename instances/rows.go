package instances

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/flagstone-db/flagstone/ots"
	"github.com/flagstone-db/flagstone/row"
)

// Row is a row as JSON.
type Row struct {
	Key     []KeyValue `json:"key"`
	Columns []Cell     `json:"columns"`
}

// KeyValue is a column of a row's key.
type KeyValue struct {
	Name  string `json:"name"`
	Value Value  `json:"value"`
}

// Cell is a version of an attribute column.
type Cell struct {
	Name    string `json:"name"`
	Version int64  `json:"version"` // milliseconds; 0 in a change: the time of the change
	Value   Value  `json:"value"`
}

// Query asks for the rows of a table whose key begins with the values of Prefix. Text is as Value.Text writes it.
type Query struct {
	Table  string   `json:"table"`
	Prefix []string `json:"prefix,omitempty"` // of the first key columns
	// From and To bound the next key column, in the direction of the query: From is included, To is not. Nil is
	// unbounded. They stay nil where Prefix is a whole key.
	From        *string  `json:"from,omitempty"`
	To          *string  `json:"to,omitempty"`
	Backward    bool     `json:"backward,omitempty"`
	Next        []Value  `json:"next,omitempty"`         // Page.Next: where to go on
	Limit       int32    `json:"limit,omitempty"`        // rows of a page, 0: as many as the service gives at once
	Columns     []string `json:"columns,omitempty"`      // attribute columns; none: all
	KeysOnly    bool     `json:"keys_only,omitempty"`    // no attribute columns
	MaxVersions int32    `json:"max_versions,omitempty"` // of each column, the newest; 0: one
	Where       string   `json:"where,omitempty"`        // a filter, as in filter.go
}

// Page is a part of the answer to a query.
type Page struct {
	Rows []Row   `json:"rows"`
	Next []Value `json:"next,omitempty"` // the key at which the next page begins; nil: there is none
}

// Change is a change of a row.
type Change struct {
	Table string     `json:"table"`
	Kind  string     `json:"kind"` // put (the row has nothing but Set afterwards), update or delete
	Key   []string   `json:"key"`  // as Value.Text writes it; AutoValue for a column that the store numbers
	Set   List[Cell] `json:"set,omitempty"`
	Unset []string   `json:"unset,omitempty"` // columns to delete, all versions
	// Expect is exists or absent: what the row must be. If it is empty the row may be either.
	Expect string `json:"expect,omitempty"`
}

// maxCells bounds the cells of a row. The service allows fewer.
const maxCells = 10_000

// List is a JSON array of cells, or of other parts of a row: at most maxCells.
type List[T any] []T

// UnmarshalJSON reads an array, and stops at maxCells: an empty element takes few bytes of text, and many more in
// memory.
func (l *List[T]) UnmarshalJSON(text []byte) error {
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	switch begin, err := decoder.Token(); {
	case err != nil:
		return err
	case begin != json.Delim('['):
		return fmt.Errorf("key and cells are arrays, not %v", begin)
	}
	for decoder.More() {
		if len(*l) == maxCells {
			return fmt.Errorf("more than %d cells", maxCells)
		}
		var element T
		if err := decoder.Decode(&element); err != nil {
			return err
		}
		*l = append(*l, element)
	}
	return nil
}

// AutoValue stands for the value of an auto-increment column of a row that is put.
const AutoValue = "auto"

// Rows answers a page of a query, under the rules of the service. Errors match ErrNotFound, ErrInvalid or ErrRefused.
func (h *Home) Rows(ctx context.Context, instance string, q *Query) (*Page, error) {
	engine, name, err := h.service(instance)
	if err != nil {
		return nil, err
	}
	d, err := engine.DescribeTable(ctx, name, q.Table)
	if err != nil {
		return nil, refusal(err, instance, q.Table)
	}
	key := d.PrimaryKey
	selection, err := q.selection(key)
	if err != nil {
		return nil, err
	}
	prefix, err := keyValues(key, q.Prefix)
	if err != nil {
		return nil, err
	}
	page := &Page{Rows: []Row{}}
	if len(prefix) == len(key) {
		if q.From != nil || q.To != nil {
			return nil, fmt.Errorf("%w: the key is whole, so there is no next column for bounds", ErrInvalid)
		}
		found, err := engine.GetRow(ctx, name, &ots.GetRowRequest{Table: q.Table, Row: ots.Row{Key: prefix}, Selection: selection})
		if err != nil {
			return nil, refusal(err, instance, q.Table)
		}
		if found.Row != nil {
			page.Rows = append(page.Rows, q.show(found.Row, prefix))
		}
		return page, nil
	}
	req := ots.GetRangeRequest{Table: q.Table, Backward: q.Backward, Selection: selection}
	if q.Limit != 0 {
		req.Limit = &q.Limit
	}
	low, high := row.Min(), row.Max()
	if q.Backward {
		low, high = high, low
	}
	if req.Start.Key, err = bound(key, prefix, q.From, low, low); err == nil {
		req.End.Key, err = bound(key, prefix, q.To, high, low)
	}
	if err != nil {
		return nil, err
	}
	if q.Next != nil {
		if len(q.Next) != len(key) {
			return nil, fmt.Errorf("%w: next has %d values, the key %d columns", ErrInvalid, len(q.Next), len(key))
		}
		for i := range q.Next {
			req.Start.Key[i].Value = q.Next[i].Value
		}
	}
	found, err := engine.GetRange(ctx, name, &req)
	if err != nil {
		return nil, refusal(err, instance, q.Table)
	}
	for i := range found.Rows {
		page.Rows = append(page.Rows, q.show(&found.Rows[i], found.Rows[i].Key))
	}
	for _, k := range found.Next {
		page.Next = append(page.Next, Value{k.Value})
	}
	return page, nil
}

// selection has the columns of the query and those that its filter looks at.
func (q *Query) selection(key []ots.KeyColumn) (s ots.Selection, err error) {
	s.MaxVersions = new(max(q.MaxVersions, 1))
	var filterColumns []string
	if q.Where != "" {
		if s.Filter, filterColumns, err = ParseFilter(q.Where); err != nil {
			return s, err
		}
	}
	if q.KeysOnly || len(q.Columns) > 0 {
		s.ColumnsToGet = slices.Concat(q.Columns, filterColumns)
		for _, k := range key {
			s.ColumnsToGet = append(s.ColumnsToGet, k.Name)
		}
	}
	return s, nil
}

// show leaves out the columns that only the filter looks at.
func (q *Query) show(r *ots.Row, key []ots.KeyValue) Row {
	shown := showRow(r, key)
	if q.KeysOnly || len(q.Columns) > 0 {
		shown.Columns = slices.DeleteFunc(shown.Columns, func(c Cell) bool { return !slices.Contains(q.Columns, c.Name) })
	}
	return shown
}

// keyValues reads the first columns of a key.
func keyValues(key []ots.KeyColumn, text []string) ([]ots.KeyValue, error) {
	if len(text) > len(key) {
		return nil, fmt.Errorf("%w: %d values for a key of %d columns", ErrInvalid, len(text), len(key))
	}
	var values []ots.KeyValue
	for i, s := range text {
		v, err := ParseValue(key[i].Type, s)
		if err != nil {
			return nil, fmt.Errorf("key column %s: %w", key[i].Name, err)
		}
		values = append(values, ots.KeyValue{Name: key[i].Name, Value: v})
	}
	return values, nil
}

// bound is a bound of a range: a prefix, then a value of the next column and rest, or open where there is no value.
func bound(key []ots.KeyColumn, prefix []ots.KeyValue, text *string, open, rest row.Value) ([]ots.KeyValue, error) {
	at := append([]ots.KeyValue(nil), prefix...)
	for i := len(prefix); i < len(key); i++ {
		k := ots.KeyValue{Name: key[i].Name, Value: open}
		switch {
		case text == nil:
		case i > len(prefix):
			k.Value = rest
		default:
			v, err := ParseValue(key[i].Type, *text)
			if err != nil {
				return nil, fmt.Errorf("key column %s: %w", key[i].Name, err)
			}
			k.Value = v
		}
		at = append(at, k)
	}
	return at, nil
}

func showRow(r *ots.Row, key []ots.KeyValue) Row {
	shown := Row{Columns: []Cell{}}
	for _, k := range key {
		shown.Key = append(shown.Key, KeyValue{k.Name, Value{k.Value}})
	}
	for _, c := range r.Cells {
		shown.Columns = append(shown.Columns, Cell{c.Name, c.Version, Value{c.Value}})
	}
	return shown
}

// Change changes a row, under the rules of the service, durably. It returns the key of the row, with the value of an
// auto-increment column. Errors match ErrNotFound, ErrInvalid or ErrRefused.
func (h *Home) Change(ctx context.Context, instance string, c *Change) ([]KeyValue, error) {
	engine, name, err := h.service(instance)
	if err != nil {
		return nil, err
	}
	d, err := engine.DescribeTable(ctx, name, c.Table)
	if err != nil {
		return nil, refusal(err, instance, c.Table)
	}
	change, err := c.rowChange(d.PrimaryKey)
	if err != nil {
		return nil, err
	}
	done, err := engine.WriteRow(ctx, name, &ots.WriteRowRequest{Table: c.Table, Change: *change})
	if err != nil {
		return nil, refusal(err, instance, c.Table)
	}
	if done.Row != nil {
		return showRow(done.Row, done.Row.Key).Key, nil
	}
	return showRow(&ots.Row{}, change.Row.Key).Key, nil
}

var (
	changeKinds  = map[string]ots.ChangeType{"put": ots.ChangePut, "update": ots.ChangeUpdate, "delete": ots.ChangeDelete}
	expectations = map[string]ots.RowExistence{
		"": ots.ExistenceIgnore, "exists": ots.ExistenceExpect, "absent": ots.ExistenceExpectNot,
	}
)

func (c *Change) rowChange(key []ots.KeyColumn) (*ots.RowChange, error) {
	kind, known := changeKinds[c.Kind]
	if !known {
		return nil, fmt.Errorf("%w: a change is a put, an update or a delete, not %q", ErrInvalid, c.Kind)
	}
	expect, known := expectations[c.Expect]
	if !known {
		return nil, fmt.Errorf("%w: a row is expected to be exists or absent, not %q", ErrInvalid, c.Expect)
	}
	if len(c.Unset) > maxCells {
		return nil, fmt.Errorf("%w: more than %d columns to delete", ErrInvalid, maxCells)
	}
	if len(c.Key) != len(key) {
		return nil, fmt.Errorf("%w: %d values for a key of %d columns", ErrInvalid, len(c.Key), len(key))
	}
	change := &ots.RowChange{Type: kind, Existence: expect, Row: ots.Row{DeleteMarker: kind == ots.ChangeDelete}}
	for i, text := range c.Key {
		k := ots.KeyValue{Name: key[i].Name, AutoIncrement: key[i].AutoIncrement && text == AutoValue}
		if k.AutoIncrement {
			change.Return = ots.ReturnPK
		} else if v, err := ParseValue(key[i].Type, text); err != nil {
			return nil, fmt.Errorf("key column %s: %w", k.Name, err)
		} else {
			k.Value = v
		}
		change.Row.Key = append(change.Row.Key, k)
	}
	for _, cell := range c.Set {
		change.Row.Cells = append(change.Row.Cells, ots.Cell{
			Name: cell.Name, Value: cell.Value.Value, Version: cell.Version, HasVersion: cell.Version != 0,
		})
	}
	for _, name := range c.Unset {
		change.Row.Cells = append(change.Row.Cells, ots.Cell{Name: name, Op: ots.OpDeleteAllVersion})
	}
	return change, nil
}
