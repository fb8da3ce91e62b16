package main

// This file reads the rows of an export: those of a folder, and those of a table at an endpoint.

import (
	"context"
	"errors"
	"fmt"
	"io"

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
	// pages begins to read the rows of a query in the order of their keys.
	pages(q *instances.Query) nextPage
	close() error
}

// source opens the table.
func (e *exportCommand) source(ctx context.Context, c *output) (rowSource, error) {
	if e.Endpoint != "" {
		client, err := endpointClient(e.Endpoint, e.Instance, e.Dir, 1, endpointPatience)
		if err != nil {
			return nil, err
		}
		key, err := endpointKey(client, e.Table)
		fmt.Fprintln(c.err, "flagstone: an export from an endpoint is not of one moment; rows that change meanwhile are as they were when their page was read")
		return &endpointSource{client, key}, err
	}
	home, err := e.openFolder(ctx, true)
	if err != nil {
		return nil, err
	}
	t, err := home.Table(ctx, e.Instance, e.Table)
	if err != nil {
		return nil, errors.Join(err, home.Close())
	}
	s := &folderSource{home: home, instance: e.Instance}
	s.columns, err = keyOf(t)
	return s, err
}

// eachPage calls do with the pages. The next page is read meanwhile.
func eachPage(ctx context.Context, next nextPage, do func(page []rowfile.Row) error) error {
	ctx, end := context.WithCancel(ctx)
	type result struct {
		page []rowfile.Row
		err  error
	}
	read := make(chan result, 1)
	go func() {
		defer close(read)
		for {
			page, err := next(ctx)
			select {
			case read <- result{page, err}:
			case <-ctx.Done():
				return
			}
			if err != nil {
				return
			}
		}
	}()
	defer func() { // the reader has ended when eachPage returns
		end()
		for range read {
		}
	}()
	for r := range read {
		if r.err == io.EOF {
			return nil
		}
		if r.err != nil {
			return r.err
		}
		if err := do(r.page); err != nil {
			return err
		}
	}
	return errors.New("interrupted")
}

// folderSource reads a folder that this process has opened to read. So nothing changes in it, and all pages are of one
// moment.
type folderSource struct {
	home     *instances.Home
	instance string
	columns  []rowfile.Column
}

func (s *folderSource) key() []rowfile.Column { return s.columns }
func (s *folderSource) close() error          { return s.home.Close() }

func (s *folderSource) pages(q *instances.Query) nextPage {
	query, ended := *q, false
	return func(ctx context.Context) ([]rowfile.Row, error) {
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
}

// endpointSource reads a table at an endpoint.
type endpointSource struct {
	client  *tablestore.TableStoreClient
	columns []rowfile.Column
}

func (s *endpointSource) key() []rowfile.Column { return s.columns }
func (s *endpointSource) close() error          { return nil }

func (s *endpointSource) pages(q *instances.Query) nextPage {
	criteria := &tablestore.RangeRowQueryCriteria{
		TableName: q.Table, Direction: tablestore.FORWARD, MaxVersion: q.MaxVersions, ColumnsToGet: q.Columns,
	}
	if len(q.Columns) > 0 {
		for _, k := range s.columns { // or else rows without these columns would be left out
			criteria.ColumnsToGet = append(criteria.ColumnsToGet, k.Name)
		}
	}
	var err error
	if criteria.StartPrimaryKey, err = s.bound(q, q.From, true); err == nil {
		criteria.EndPrimaryKey, err = s.bound(q, q.To, false)
	}
	return func(ctx context.Context) ([]rowfile.Row, error) {
		switch {
		case err != nil:
			return nil, err
		case criteria.StartPrimaryKey == nil:
			return nil, io.EOF
		case ctx.Err() != nil:
			return nil, ctx.Err()
		}
		response, err := s.client.GetRange(&tablestore.GetRangeRequest{RangeRowQueryCriteria: criteria})
		if err != nil {
			return nil, err
		}
		criteria.StartPrimaryKey = response.NextStartPrimaryKey
		rows := make([]rowfile.Row, len(response.Rows))
		for i, in := range response.Rows {
			if rows[i], err = fromSDKRow(in); err != nil {
				return nil, err
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
