package main

// This file reads everything back and compares: every row by its key, the rows
// of a card and of a till by short ranges, and whole tables in both directions.
// What a row must be and where it must stand follows from the records alone.

import (
	"bytes"
	"fmt"
	"slices"
	"sync"

	"github.com/aliyun/aliyun-tablestore-go-sdk/tablestore"
)

// differences collects what is not as it should be; the tour goes on, to show
// all that is wrong.
type differences struct {
	mu  sync.Mutex
	all []string
}

func (d *differences) add(format string, args ...any) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.all = append(d.all, fmt.Sprintf(format, args...))
}

// compare notes whether a row is that of a purchase, in key and columns.
func (d *differences) compare(how string, l *layout, p *purchase, key *tablestore.PrimaryKey, got []*tablestore.AttributeColumn) {
	if len(key.PrimaryKeys) == 0 {
		d.add("%s, %s: %v is missing", l.table, how, p)
		return
	}
	for i, v := range l.key(p) {
		if k := key.PrimaryKeys[i]; k.ColumnName != l.schema[i].name || k.Value != v {
			d.add("%s, %s: the row of %v has the key %s=%v; want %s=%v", l.table, how, p, k.ColumnName, k.Value, l.schema[i].name, v)
			return
		}
	}
	want := l.columns(p)
	if len(got) != len(want) {
		d.add("%s, %s: %v has %d columns; want %d", l.table, how, p, len(got), len(want))
		return
	}
	for i, c := range want {
		if got[i].ColumnName != c.name || !equal(got[i].Value, c.value) {
			d.add("%s, %s: %v has %s=%v; want %s=%v", l.table, how, p, got[i].ColumnName, got[i].Value, c.name, c.value)
			return
		}
	}
}

func equal(a, b any) bool {
	if x, ok := a.([]byte); ok {
		y, ok := b.([]byte)
		return ok && bytes.Equal(x, y)
	}
	return a == b
}

// readByKey reads every record of a table by its key.
func (t *tour) readByKey(l *layout) error {
	batches := (len(t.records) + rowsPerRead - 1) / rowsPerRead
	return t.parallel(batches, func(i int) error {
		records := t.records[i*rowsPerRead : min((i+1)*rowsPerRead, len(t.records))]
		query := &tablestore.MultiRowQueryCriteria{TableName: l.table, MaxVersion: 1}
		for j := range records {
			query.AddRow(l.rowKey(&records[j]))
		}
		response, err := t.client.BatchGetRow(&tablestore.BatchGetRowRequest{MultiRowQueryCriteria: []*tablestore.MultiRowQueryCriteria{query}})
		if err != nil {
			return fmt.Errorf("read from %s: %w", l.table, err)
		}
		results := response.TableToRowsResult[l.table]
		if len(results) != len(records) {
			return fmt.Errorf("read from %s: %d answers for %d keys", l.table, len(results), len(records))
		}
		for j, r := range results {
			if !r.IsSucceed {
				return fmt.Errorf("read %v from %s: %s %s", &records[j], l.table, r.Error.Code, r.Error.Message)
			}
			t.wrong.compare("by key", l, &records[j], &r.PrimaryKey, r.Columns)
		}
		return nil
	})
}

// readSingly reads some records of a table by GetRow, and as many that were
// never written: their order numbers come after the last of their day.
func (t *tour) readSingly(l *layout, n int) error {
	return t.parallel(n, func(i int) error {
		p := t.records[i*len(t.records)/n]
		never := p
		never.OrderNumber += 500_000
		for _, p := range []*purchase{&p, &never} {
			r, err := t.client.GetRow(&tablestore.GetRowRequest{SingleRowQueryCriteria: &tablestore.SingleRowQueryCriteria{
				TableName: l.table, PrimaryKey: l.rowKey(p), MaxVersion: 1}})
			switch {
			case err != nil:
				return fmt.Errorf("read %v from %s: %w", p, l.table, err)
			case p == &never:
				if len(r.PrimaryKey.PrimaryKeys) > 0 {
					t.wrong.add("%s: there is a row for %v, which was never written", l.table, p)
				}
			default:
				t.wrong.compare("by GetRow", l, p, &r.PrimaryKey, r.Columns)
			}
		}
		return nil
	})
}

// scan reads a range page by page and compares its rows with the records that
// it must hold, in the table's order. Backward it goes from end to start, and
// start itself is left out.
func (t *tour) scan(l *layout, how string, start, end *tablestore.PrimaryKey, want []*purchase, direction tablestore.Direction) error {
	query := &tablestore.RangeRowQueryCriteria{TableName: l.table, MaxVersion: 1,
		StartPrimaryKey: start, EndPrimaryKey: end, Direction: direction}
	if direction == tablestore.BACKWARD {
		query.StartPrimaryKey, query.EndPrimaryKey = end, start
		want = slices.Clone(want)
		slices.Reverse(want)
		how += " backward"
	}
	rows := 0
	for query.StartPrimaryKey != nil {
		page, err := t.client.GetRange(&tablestore.GetRangeRequest{RangeRowQueryCriteria: query})
		if err != nil {
			return fmt.Errorf("scan %s: %w", l.table, err)
		}
		for _, row := range page.Rows {
			if rows < len(want) {
				t.wrong.compare(fmt.Sprintf("%s, row %d", how, rows), l, want[rows], row.PrimaryKey, row.Columns)
			}
			rows++
		}
		query.StartPrimaryKey = page.NextStartPrimaryKey
	}
	if rows != len(want) {
		t.wrong.add("%s, %s: %d rows; want %d", l.table, how, rows, len(want))
	}
	return nil
}

// sorted returns the records in the order of a table.
func (t *tour) sorted(l *layout) []*purchase {
	out := make([]*purchase, len(t.records))
	for i := range t.records {
		out[i] = &t.records[i]
	}
	slices.SortFunc(out, l.compare)
	return out
}

// scanAll reads a whole table in both directions.
func (t *tour) scanAll(l *layout, want []*purchase) error {
	return t.parallel(2, func(i int) error {
		return t.scan(l, "whole table", l.primaryKey(lowest), l.primaryKey(highest), want, []tablestore.Direction{tablestore.FORWARD, tablestore.BACKWARD}[i])
	})
}

// group is a run of records that one short range must return.
type group struct {
	layout     *layout
	start, end *tablestore.PrimaryKey
	records    []*purchase
}

// groups cuts the sorted records of a table where a part of the key changes.
func groups[K comparable](l *layout, sorted []*purchase, part func(*purchase) K, bounds func(K) (start, end *tablestore.PrimaryKey)) (out []group) {
	for len(sorted) > 0 {
		k, n := part(sorted[0]), 1
		for n < len(sorted) && part(sorted[n]) == k {
			n++
		}
		start, end := bounds(k)
		out = append(out, group{l, start, end, sorted[:n]})
		sorted = sorted[n:]
	}
	return out
}

// cardRanges are the purchases of each card: by key columns.
func cardRanges(sorted []*purchase) []group {
	l := &byCard
	return groups(l, sorted, func(p *purchase) int64 { return p.CardID }, func(card int64) (start, end *tablestore.PrimaryKey) {
		return l.primaryKey(lowest, card), l.primaryKey(highest, card)
	})
}

// splicedRanges are the same by a prefix of a string: all keys that begin with
// the card and the connector sort before the card and the next character.
func splicedRanges(sorted []*purchase) []group {
	l := &spliced
	return groups(l, sorted, func(p *purchase) int64 { return p.CardID }, func(card int64) (start, end *tablestore.PrimaryKey) {
		from := padded(card, cardWidth)
		return l.primaryKey(lowest, from+connector), l.primaryKey(lowest, from+string(connector[0]+1))
	})
}

// deviceDays are what each till sold on each day: order numbers begin with the
// day.
func deviceDays(sorted []*purchase) []group {
	type deviceDay struct{ device, day int64 }
	l := &byDevice
	return groups(l, sorted,
		func(p *purchase) deviceDay { return deviceDay{p.DeviceID, p.OrderNumber / ordersPerDay} },
		func(k deviceDay) (start, end *tablestore.PrimaryKey) {
			return l.primaryKey(lowest, k.device, k.day*ordersPerDay), l.primaryKey(lowest, k.device, (k.day+1)*ordersPerDay)
		})
}

// sample chooses at most n of the groups: the largest, and others from
// everywhere.
func sample(all []group, n int) []group {
	if len(all) <= n {
		return all
	}
	chosen := []group{slices.MaxFunc(all, func(a, b group) int { return len(a.records) - len(b.records) })}
	for i := range n - 1 {
		chosen = append(chosen, all[i*len(all)/(n-1)])
	}
	return chosen
}

// scanGroups reads groups in both directions and returns how many rows they
// have.
func (t *tour) scanGroups(how string, chosen []group) (rows int, err error) {
	for _, g := range chosen {
		rows += len(g.records)
	}
	return rows, t.parallel(2*len(chosen), func(i int) error {
		g := chosen[i/2]
		return t.scan(g.layout, how, g.start, g.end, g.records, []tablestore.Direction{tablestore.FORWARD, tablestore.BACKWARD}[i%2])
	})
}
