package main

// This file reads the rows of an export: those of a folder, and those of a table at an endpoint.

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"

	"github.com/aliyun/aliyun-tablestore-go-sdk/tablestore"

	"github.com/flagstone-db/flagstone/cmd/flagstone/rowfile"
	"github.com/flagstone-db/flagstone/instances"
	"github.com/flagstone-db/flagstone/row"
)

// nextPage reads the next rows. After the last of them it returns io.EOF.
type nextPage func(ctx context.Context) ([]rowfile.Row, error)

// rowSource is where the rows of an export come from.
type rowSource interface {
	key() []rowfile.Column
	name() string // of the table, for a state file
	// ranges divides the rows of a query into ranges that may be read beside each other, in the order of their keys.
	ranges(ctx context.Context, q *instances.Query) ([]nextPage, marks, error)
	close() error
}

// marks are encoded keys, or the beginnings of some, that divide a whole table into pieces of about equal size. There are
// none if the query is for a part of the table.
type marks [][]byte

// share is about how much of the table lies before an encoded key and at it; 0 if it is unknown.
func (m marks) share(key []byte) float64 {
	n, found := slices.BinarySearchFunc(m, key, bytes.Compare)
	if found {
		n++
	}
	return float64(n) / float64(len(m)+1)
}

// after is the share after a page of rows, which is the one before it if the page is empty.
func (m marks) after(before float64, page []rowfile.Row) (float64, error) {
	if len(page) == 0 {
		return before, nil
	}
	last := page[len(page)-1].Key
	key, err := row.AppendKey(nil, len(last), last...)
	return m.share(key), err
}

// isPart reports whether a query is not for a whole table.
func isPart(q *instances.Query) bool { return len(q.Prefix) > 0 || q.From != nil || q.To != nil }

// source opens the table.
func (e *ofFiles) source(ctx context.Context, c *output) (rowSource, error) {
	if e.Endpoint != "" {
		described, err := e.describeServed()
		if err != nil {
			return nil, err
		}
		key, err := keyOf(described)
		if err != nil {
			return nil, err
		}
		client, err := e.client(rangesAhead)
		if err != nil {
			return nil, err
		}
		fmt.Fprintln(c.err, "flagstone: the rows of an endpoint are not of one moment; those that change meanwhile are as they were when their page was read")
		return &endpointSource{client: client, columns: key, named: e.named(described.CreatedMillis), waiting: waiting{out: c.err}}, nil
	}
	home, release, err := e.folder(ctx, true)
	if err != nil {
		return nil, err
	}
	t, err := home.Table(ctx, e.Instance, e.Table)
	if err != nil {
		return nil, errors.Join(err, release())
	}
	s := &folderSource{home: home, release: release, instance: e.Instance, named: e.named(t.CreatedMillis)}
	s.columns, err = keyOf(t)
	return s, err
}

const (
	// rangesAhead is how many ranges are read at a time, and pagesAhead how many pages of each wait until those before
	// them are written. A page is up to 4 MiB.
	rangesAhead, pagesAhead = 4, 2
	// rangeBytes is about the size of a range, so that most of it is read while it waits.
	rangeBytes = 8 << 20
)

// readPage is a page, or the error that ends its range.
type readPage struct {
	rows []rowfile.Row
	err  error
}

// eachPage calls do with the pages of ranges, in order. Some ranges are read ahead.
func eachPage(ctx context.Context, ranges []nextPage, do func(page []rowfile.Row) error) error {
	ctx, end := context.WithCancel(ctx)
	var readers sync.WaitGroup
	defer readers.Wait()
	defer end()
	var ahead []chan readPage
	for len(ranges)+len(ahead) > 0 {
		for len(ranges) > 0 && len(ahead) < rangesAhead {
			pages, next := make(chan readPage, pagesAhead), ranges[0]
			readers.Go(func() { readRange(ctx, next, pages) })
			ahead, ranges = append(ahead, pages), ranges[1:]
		}
		for {
			var page readPage
			select {
			case page = <-ahead[0]:
			case <-ctx.Done():
				return ctx.Err()
			}
			if page.err == io.EOF {
				break
			}
			if page.err != nil {
				return page.err
			}
			if err := do(page.rows); err != nil {
				return err
			}
		}
		ahead = ahead[1:]
	}
	return nil
}

// readRange reads the pages of a range until the first error, which is the last page.
func readRange(ctx context.Context, next nextPage, pages chan<- readPage) {
	for {
		rows, err := next(ctx)
		select {
		case pages <- readPage{rows, err}:
		case <-ctx.Done():
			return
		}
		if err != nil {
			return
		}
	}
}

// folderSource reads a folder that this process has opened to read. So nothing changes in it, and all pages are of one
// moment.
type folderSource struct {
	home     *instances.Home
	release  func() error
	instance string
	columns  []rowfile.Column
	named    string
}

func (s *folderSource) key() []rowfile.Column { return s.columns }
func (s *folderSource) name() string          { return s.named }
func (s *folderSource) close() error          { return s.release() }

// folderMarks is how many marks a folder has: each costs the read of a block.
const folderMarks = 200

func (s *folderSource) ranges(ctx context.Context, q *instances.Query) ([]nextPage, marks, error) {
	var at marks
	if !isPart(q) {
		sample, err := s.home.Sample(ctx, s.instance, q.Table, folderMarks)
		if err != nil {
			return nil, nil, err
		}
		for _, r := range sample {
			key, err := row.AppendKey(nil, len(r.Key), r.Key...)
			if err != nil {
				return nil, nil, err
			}
			at = append(at, key)
		}
	}
	query, ended := *q, false
	next := func(ctx context.Context) ([]rowfile.Row, error) {
		if ended {
			return nil, io.EOF
		}
		page, err := s.home.Rows(ctx, s.instance, &query)
		if err != nil {
			return nil, err
		}
		query.Next, ended = page.Next, page.Next == nil
		rows := make([]rowfile.Row, len(page.Rows))
		for i := range page.Rows {
			in := &page.Rows[i]
			rows[i].Key, rows[i].Cells = make([]row.Value, len(in.Key)), make([]rowfile.Cell, len(in.Columns))
			for j, k := range in.Key {
				rows[i].Key[j] = k.Value.Value
			}
			for j, c := range in.Columns {
				rows[i].Cells[j] = rowfile.Cell{Name: c.Name, Version: c.Version, Value: c.Value.Value}
			}
		}
		return rows, nil
	}
	return []nextPage{next}, at, nil
}

// endpointSource reads a table at an endpoint.
type endpointSource struct {
	client  *tablestore.TableStoreClient
	columns []rowfile.Column
	named   string
	waiting waiting
}

func (s *endpointSource) key() []rowfile.Column { return s.columns }
func (s *endpointSource) name() string          { return s.named }
func (s *endpointSource) close() error          { return nil }

func (s *endpointSource) ranges(_ context.Context, q *instances.Query) (ranges []nextPage, at marks, err error) {
	var filter tablestore.ColumnFilter
	columns := q.Columns
	if q.Where != "" {
		parsed, looksAt, err := instances.ParseFilter(q.Where)
		if err != nil {
			return nil, nil, err
		}
		filter = sdkFilter(parsed)
		if len(columns) > 0 {
			columns = slices.Concat(columns, looksAt)
		}
	}
	if len(columns) > 0 {
		for _, k := range s.columns { // or else rows without these columns would be left out
			columns = append(columns[:len(columns):len(columns)], k.Name)
		}
	}
	splits, at, err := s.splits(q)
	for _, split := range splits {
		ranges = append(ranges, s.pages(&tablestore.RangeRowQueryCriteria{
			TableName: q.Table, Direction: tablestore.FORWARD, MaxVersion: q.MaxVersions, ColumnsToGet: columns,
			StartPrimaryKey: split.LowerBound, EndPrimaryKey: split.UpperBound, Filter: filter,
		}, q.Columns))
	}
	return ranges, at, err
}

// splits divides a table by size, unless the query is for a part of it.
func (s *endpointSource) splits(q *instances.Query) ([]*tablestore.Split, marks, error) {
	if !isPart(q) {
		unit := int64(rangeBytes)
		response, err := s.client.ComputeSplitPointsBySize(&tablestore.ComputeSplitPointsBySizeRequest{
			TableName: q.Table, SplitSize: 1, SplitSizeUnitInByte: &unit,
		})
		if err != nil {
			return nil, nil, err
		}
		at, err := marksOf(response.Splits)
		return splitsFrom(response.Splits, s.columns, q.Next), at, err
	}
	low, err := s.bound(q, q.From, true)
	if err != nil {
		return nil, nil, err
	}
	high, err := s.bound(q, q.To, false)
	if err != nil {
		return nil, nil, err
	}
	return splitsFrom([]*tablestore.Split{{LowerBound: low, UpperBound: high}}, s.columns, q.Next), nil, nil
}

// marksOf are the keys between splits, which are values of the first column.
func marksOf(splits []*tablestore.Split) (at marks, err error) {
	for _, split := range splits[:max(len(splits)-1, 0)] {
		v, err := fromSDK(split.UpperBound.PrimaryKeys[0].Value)
		if err != nil {
			return nil, err
		}
		key, err := row.AppendKey(nil, 1, v)
		if err != nil {
			return nil, err
		}
		at = append(at, key)
	}
	return at, nil
}

// splitsFrom leaves out what lies before a key; none if the key is nil.
func splitsFrom(splits []*tablestore.Split, columns []rowfile.Column, key []instances.Value) []*tablestore.Split {
	if key == nil {
		return splits
	}
	splits = slices.DeleteFunc(splits, func(split *tablestore.Split) bool { return compareBound(split.UpperBound, key) <= 0 })
	if len(splits) > 0 && compareBound(splits[0].LowerBound, key) < 0 {
		low := new(tablestore.PrimaryKey)
		for i, v := range key {
			low.AddPrimaryKeyColumn(columns[i].Name, sdkValue(v.Value))
		}
		splits[0].LowerBound = low
	}
	return splits
}

// compareBound compares a bound with a whole key, column by column.
func compareBound(bound *tablestore.PrimaryKey, key []instances.Value) int {
	for i, c := range bound.PrimaryKeys {
		switch c.PrimaryKeyOption {
		case tablestore.MIN:
			return -1
		case tablestore.MAX:
			return 1
		}
		v, err := fromSDK(c.Value)
		if err != nil {
			return -1 // it is read from here, and the read says what is wrong
		}
		a, _ := row.AppendKey(nil, 1, v)
		b, _ := row.AppendKey(nil, 1, key[i].Value)
		if order := bytes.Compare(a, b); order != 0 {
			return order
		}
	}
	return 0
}

// pages reads a range. Without columns, rows have all.
func (s *endpointSource) pages(criteria *tablestore.RangeRowQueryCriteria, columns []string) nextPage {
	return func(ctx context.Context) ([]rowfile.Row, error) {
		if criteria.StartPrimaryKey == nil {
			return nil, io.EOF
		}
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		var response *tablestore.GetRangeResponse
		err := s.waiting.retry(ctx, func() (err error) {
			response, err = s.client.GetRange(&tablestore.GetRangeRequest{RangeRowQueryCriteria: criteria})
			return err
		})
		if err != nil {
			return nil, err
		}
		criteria.StartPrimaryKey = response.NextStartPrimaryKey
		rows := make([]rowfile.Row, len(response.Rows))
		for i, in := range response.Rows {
			if rows[i], err = fromSDKRow(in); err != nil {
				return nil, err
			}
			if len(columns) > 0 { // the filter may look at others
				rows[i].Cells = slices.DeleteFunc(rows[i].Cells, func(c rowfile.Cell) bool { return !slices.Contains(columns, c.Name) })
			}
		}
		return rows, nil
	}
}

// bound is a bound of the range: the prefix, then text as a value of the next column, or no bound there.
func (s *endpointSource) bound(q *instances.Query, text *string, low bool) (*tablestore.PrimaryKey, error) {
	if len(q.Prefix) >= len(s.columns) {
		return nil, misuse("--prefix has %d values, and the key %d columns; give fewer, 'flagstone get' prints one row", len(q.Prefix), len(s.columns))
	}
	texts := q.Prefix
	if text != nil {
		texts = append(append([]string{}, texts...), *text)
	}
	bound := new(tablestore.PrimaryKey)
	for i, k := range s.columns {
		switch {
		case i < len(texts):
			v, err := instances.ParseValue(k.Type, texts[i])
			if err != nil {
				return nil, fmt.Errorf("key column %s: %w", k.Name, err)
			}
			bound.AddPrimaryKeyColumn(k.Name, sdkValue(v))
		case low || text != nil:
			bound.AddPrimaryKeyColumnWithMinValue(k.Name)
		default:
			bound.AddPrimaryKeyColumnWithMaxValue(k.Name)
		}
	}
	return bound, nil
}

func fromSDKRow(in *tablestore.Row) (r rowfile.Row, err error) {
	r = rowfile.Row{Key: make([]row.Value, len(in.PrimaryKey.PrimaryKeys)), Cells: make([]rowfile.Cell, len(in.Columns))}
	for i, k := range in.PrimaryKey.PrimaryKeys {
		if r.Key[i], err = fromSDK(k.Value); err != nil {
			return r, err
		}
	}
	for i, c := range in.Columns {
		r.Cells[i] = rowfile.Cell{Name: c.ColumnName, Version: c.Timestamp}
		if r.Cells[i].Value, err = fromSDK(c.Value); err != nil {
			return r, err
		}
	}
	return r, nil
}
