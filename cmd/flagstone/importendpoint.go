package main

// This file imports into a table at an endpoint, in batches of BatchWriteRow.

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/aliyun/aliyun-tablestore-go-sdk/tablestore"
	"github.com/cespare/xxhash/v2"

	"github.com/flagstone-db/flagstone/cmd/flagstone/bulkio"
	"github.com/flagstone-db/flagstone/cmd/flagstone/rowfile"
	"github.com/flagstone-db/flagstone/internal/clock"
	"github.com/flagstone-db/flagstone/internal/spread"
	"github.com/flagstone-db/flagstone/ots"
	"github.com/flagstone-db/flagstone/row"
)

// endpointWorkers is the default of --workers at an endpoint.
const endpointWorkers = 16

// endpointTarget puts rows into a table at an endpoint. Workers send batches; all rows of one key go to one worker.
type endpointTarget struct {
	client  *tablestore.TableStoreClient
	table   string
	columns []rowfile.Column
	named   string
	workers int
	merge   bool // a row keeps what the file does not have
	waiting waiting
	rejects *bulkio.Rejects
	writer  *spread.Writer[*endpointBatch]
	encoded []byte                  // key of the newest row
	end     context.CancelCauseFunc // ends requests that wait to be sent again
}

func (m *importCommand) endpointTarget(c *output) (*endpointTarget, error) {
	t := &endpointTarget{waiting: waiting{out: c.err}, table: m.Table, workers: m.workers(endpointWorkers), merge: m.Merge}
	described, err := m.describeServed()
	if err != nil {
		return nil, err
	}
	t.named = m.named(described.CreatedMillis)
	if t.columns, err = keyOf(described); err == nil {
		t.client, err = m.client(t.workers)
	}
	return t, err
}

func (t *endpointTarget) key() []rowfile.Column { return t.columns }
func (t *endpointTarget) name() string          { return t.named }

// errRefused is what a batch returns of which the endpoint refuses a row.
var errRefused = errors.New("the endpoint refuses a row")

// errHeld is what no batch returns: send repeats rows that another writer holds.
var errHeld = errors.New("a row is held")

func (t *endpointTarget) begin(ctx context.Context, rejects *bulkio.Rejects) error {
	t.rejects = rejects
	ctx, t.end = context.WithCancelCause(ctx)
	t.writer = spread.New(ctx, spread.Options[*endpointBatch]{
		Workers: t.workers, Bytes: 1 << 20, Clock: clock.System(),
		New:  func() *endpointBatch { return &endpointBatch{target: t, keys: map[string]bool{}} },
		Held: errHeld, Never: []error{errRefused}, Closed: errors.New("the import is over"),
		Refused: func(b *endpointBatch, n int, _ error) error {
			err := rejects.RefuseRow(b.rows[n].at, b.rows[n].refused)
			if err != nil {
				t.end(err)
			}
			return err
		},
		Sync: func() error { return nil }, // the endpoint acknowledges what is durable
	})
	return nil
}

// Put gives a row to the worker of its key.
func (t *endpointTarget) Put(r *rowfile.Row, at bulkio.Place) (err error) {
	if t.encoded, err = row.AppendKey(t.encoded[:0], len(r.Key), r.Key...); err != nil {
		return t.rejects.RefuseRow(at, err)
	}
	if t.merge && len(r.Cells) == 0 {
		return t.rejects.RefuseRow(at, errNothingToMerge)
	}
	for i := range r.Cells {
		if r.Cells[i].Version == 0 {
			return t.rejects.RefuseRow(at, fmt.Errorf("column %s has version 0, which the SDK cannot send", r.Cells[i].Name))
		}
	}
	return t.writer.Add(uint32(xxhash.Sum64(t.encoded)), func(b *endpointBatch) bool { return b.add(t, r, at) })
}

// Flush waits for the workers.
func (t *endpointTarget) Flush() error { return t.writer.Flush() }

// Finish ends the workers. After an error they send nothing again.
func (t *endpointTarget) Finish(_ context.Context, failed error) error {
	if failed != nil {
		t.end(failed)
	}
	defer t.end(nil)
	return t.writer.Close()
}

// endpointBatch is a batch of rows. It implements spread.Batch and spread.Commit.
type endpointBatch struct {
	target *endpointTarget
	rows   []endpointRow
	keys   map[string]bool
	sent   bool
}

type endpointRow struct {
	change  tablestore.RowChange
	at      bulkio.Place
	bytes   int64
	refused error
}

// add adds a row; false if the batch has one of its key, or was sent.
func (b *endpointBatch) add(t *endpointTarget, r *rowfile.Row, at bulkio.Place) bool {
	if b.keys[string(t.encoded)] {
		return false
	}
	b.keys[string(t.encoded)] = true
	in, key := endpointRow{at: at}, new(tablestore.PrimaryKey)
	for i, k := range t.columns {
		key.AddPrimaryKeyColumn(k.Name, sdkValue(r.Key[i]))
		in.bytes += int64(len(k.Name) + r.Key[i].Size())
	}
	for i := range r.Cells {
		in.bytes += int64(len(r.Cells[i].Name) + r.Cells[i].Value.Size())
	}
	if t.merge {
		change := &tablestore.UpdateRowChange{TableName: t.table, PrimaryKey: key}
		for i := range r.Cells {
			change.PutColumnWithTimestamp(r.Cells[i].Name, sdkValue(r.Cells[i].Value), r.Cells[i].Version)
		}
		change.SetCondition(tablestore.RowExistenceExpectation_IGNORE)
		in.change = change
	} else {
		change := &tablestore.PutRowChange{TableName: t.table, PrimaryKey: key, Columns: make([]tablestore.AttributeColumn, len(r.Cells))}
		for i := range r.Cells {
			c := &r.Cells[i]
			change.Columns[i] = tablestore.AttributeColumn{ColumnName: c.Name, Value: sdkValue(c.Value), Timestamp: c.Version}
		}
		change.SetCondition(tablestore.RowExistenceExpectation_IGNORE)
		in.change = change
	}
	b.rows = append(b.rows, in)
	return true
}

func (b *endpointBatch) Len() int                   { return len(b.rows) }
func (b *endpointBatch) Bytes(n int) int64          { return b.rows[n].bytes }
func (b *endpointBatch) Wait(context.Context) error { return nil }

func (b *endpointBatch) Reset() {
	clear(b.rows)
	clear(b.keys)
	b.rows, b.sent = b.rows[:0], false
}

// Write sends the batch, if it was not sent yet. The writer asks for rows one by one only to find those that were refused.
func (b *endpointBatch) Write(ctx context.Context, from, to int) (spread.Commit, error) {
	if !b.sent {
		all := make([]int, len(b.rows))
		for i := range all {
			all[i] = i
		}
		if err := b.send(ctx, all); err != nil {
			b.target.end(err)
			return nil, err
		}
		b.sent = true
	}
	if slices.ContainsFunc(b.rows[from:to], func(r endpointRow) bool { return r.refused != nil }) {
		return nil, errRefused
	}
	return b, nil
}

// send puts rows until each of them is written or refused. A request without an answer is sent again: the same puts with
// the same versions change nothing. But an endpoint may carry out the first of the two requests late, after a later
// batch, and then an earlier row of a key stays. docs/importing.md says so.
func (b *endpointBatch) send(ctx context.Context, rows []int) error {
	begun := time.Now()
	for pause := firstPause; ; pause = min(2*pause, lastPause) {
		left, why, err := b.request(rows)
		switch {
		case err == nil && len(left) == 0:
			return nil
		case err == nil:
		case transient(err):
			left, why = rows, err
		case refusesAll(codeOf(err)):
			return err
		case len(rows) == 1:
			b.rows[rows[0]].refused = err
			return nil
		default: // one of the rows is refused, and all of them with it
			half := len(rows) / 2
			if err := b.send(ctx, rows[:half]); err != nil {
				return err
			}
			return b.send(ctx, rows[half:])
		}
		if len(left) < len(rows) {
			begun, pause = time.Now(), firstPause
		} else if time.Since(begun) > endpointPatience {
			return fmt.Errorf("the endpoint has taken no row for %s: %w", endpointPatience, why)
		}
		b.target.waiting.say(begun, why)
		rows = left
		if err := wait(ctx, pause); err != nil {
			return err
		}
	}
}

// request sends a request. It returns the rows that are to be sent again and why, and the error of the request as a whole.
func (b *endpointBatch) request(rows []int) (left []int, why, err error) {
	request := &tablestore.BatchWriteRowRequest{}
	for _, n := range rows {
		request.AddRowChange(b.rows[n].change)
	}
	response, err := b.target.client.BatchWriteRow(request)
	if err != nil {
		return nil, nil, err
	}
	results := response.TableToRowsResult[b.target.table]
	if len(results) != len(rows) {
		return nil, nil, fmt.Errorf("the endpoint answers %d of %d rows", len(results), len(rows))
	}
	for i := range results {
		refusal := &results[i].Error
		switch {
		case results[i].IsSucceed:
		case retryable(refusal.Code):
			left, why = append(left, rows[i]), &ots.Error{Code: refusal.Code, Message: refusal.Message}
		case refusesAll(refusal.Code):
			return nil, nil, &tablestore.OtsError{Code: refusal.Code, Message: refusal.Message}
		default:
			b.rows[rows[i]].refused = &ots.Error{Code: refusal.Code, Message: refusal.Message}
		}
	}
	return left, why, nil
}
