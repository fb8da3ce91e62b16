package main

// This file has the tables that bench measures: one of a store within this process, and one at an endpoint, which the
// official SDK of Table Store asks.

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/aliyun/aliyun-tablestore-go-sdk/tablestore"

	"github.com/flagstone-db/flagstone"
	"github.com/flagstone-db/flagstone/cmd/flagstone/ycsb"
	"github.com/flagstone-db/flagstone/ots"
	"github.com/flagstone-db/flagstone/row"
)

// benchTable is a table that exists for a bench.
type benchTable interface {
	ycsb.Table
	// Close removes it.
	Close() error
}

// table makes the table that is to be measured.
func (b *benchCommand) table(ctx context.Context, c *output) (benchTable, error) {
	names := make([]string, b.Columns)
	for i := range names {
		names[i] = "field" + strconv.Itoa(i)
	}
	if b.Endpoint != "" {
		return b.remote(c, names)
	}
	return b.embedded(ctx, names)
}

// embeddedTable is a table of a store within this process.
type embeddedTable struct {
	dir     string
	store   *flagstone.Store
	table   *flagstone.Table
	names   []string
	batches sync.Pool // of *flagstone.Batch
	rows    sync.Pool // of *flagstone.Row
}

func (b *benchCommand) embedded(ctx context.Context, names []string) (benchTable, error) {
	dir, err := os.MkdirTemp(b.In, "flagstone-bench-")
	if err != nil {
		return nil, err
	}
	opts := flagstone.Options{}
	if b.Sync == "none" {
		opts.Sync = flagstone.SyncNone
	}
	store, err := flagstone.Open(dir, opts)
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	t := &embeddedTable{dir: dir, store: store, names: names}
	t.batches.New = func() any { return store.NewBatch() }
	t.rows.New = func() any { return new(flagstone.Row) }
	t.table, err = store.CreateTable(ctx, flagstone.TableSpec{Name: "bench", Key: []flagstone.KeyColumn{{Name: "key", Type: row.TypeString}}})
	if err != nil {
		return nil, errors.Join(err, t.Close())
	}
	return t, nil
}

func (t *embeddedTable) Put(ctx context.Context, rows []ycsb.Row) error {
	if len(rows) == 1 {
		return t.table.Update(ctx, flagstone.Key(rows[0].Key), func(_ context.Context, tx *flagstone.RowTx) error {
			t.put(&tx.RowChange, rows[0].Values)
			return nil
		})
	}
	batch := t.batches.Get().(*flagstone.Batch)
	defer t.batches.Put(batch)
	batch.Reset()
	for i := range rows {
		t.put(batch.Row(t.table, flagstone.Key(rows[i].Key)), rows[i].Values)
	}
	return t.store.Apply(ctx, batch)
}

// put makes a row what the values are.
func (t *embeddedTable) put(change *flagstone.RowChange, values [][]byte) {
	change.PutRow()
	for c, value := range values {
		change.Put(t.names[c], flagstone.Now, row.Binary(value))
	}
}

func (t *embeddedTable) Update(ctx context.Context, key string, column int, value []byte) error {
	return t.table.Put(ctx, flagstone.Key(key), t.names[column], flagstone.Now, row.Binary(value))
}

func (t *embeddedTable) Get(ctx context.Context, key string) (bool, error) {
	r := t.rows.Get().(*flagstone.Row)
	defer t.rows.Put(r)
	return t.table.GetInto(ctx, flagstone.Key(key), flagstone.ReadOptions{MaxVersions: 1}, r)
}

func (t *embeddedTable) Scan(ctx context.Context, key string, limit int) (rows int, err error) {
	for _, err := range t.table.Scan(ctx, flagstone.Key(key), nil, flagstone.ScanOptions{ReadOptions: flagstone.ReadOptions{MaxVersions: 1}}).All() {
		if err != nil {
			return rows, err
		}
		if rows++; rows == limit {
			break
		}
	}
	return rows, nil
}

func (t *embeddedTable) Close() error { return errors.Join(t.store.Close(), os.RemoveAll(t.dir)) }

// remoteTable is a table at an endpoint.
type remoteTable struct {
	client *tablestore.TableStoreClient
	name   string
	names  []string
}

// benchName matches the names of tables that bench makes at endpoints.
var benchName = regexp.MustCompile(`^bench_[a-z2-7]{12}$`)

const (
	benchKey      = "key"           // its primary key
	benchPatience = 5 * time.Second // the default of the SDK
)

func (b *benchCommand) remote(c *output, names []string) (benchTable, error) {
	client, err := endpointClient(b.Endpoint, b.Instance, (&at{Dir: b.Dir}).usualKeys(), b.Workers, benchPatience)
	if err != nil {
		return nil, err
	}
	if tables, err := client.ListTable(); err == nil { // or else the next request says what is wrong
		for _, name := range tables.TableNames {
			if benchName.MatchString(name) {
				fmt.Fprintf(c.err, "flagstone: table %s is of another bench; if that was killed, 'flagstone table drop %s --yes' removes it\n", name, name)
			}
		}
	}
	t := &remoteTable{
		client: client, name: "bench_" + strings.ToLower(rand.Text()[:12]), names: names,
	}
	meta := &tablestore.TableMeta{TableName: t.name}
	meta.AddPrimaryKeyColumn(benchKey, tablestore.PrimaryKeyType_STRING)
	_, err = t.client.CreateTable(&tablestore.CreateTableRequest{
		TableMeta: meta, TableOption: tablestore.NewTableOption(-1, 1), ReservedThroughput: &tablestore.ReservedThroughput{},
	})
	if err != nil {
		_ = t.Close() // it may have been made, and the answer lost
		return nil, fmt.Errorf("make table %s at %s: %w", t.name, b.Endpoint, err)
	}
	return t, nil
}

func (t *remoteTable) key(value string) *tablestore.PrimaryKey {
	key := new(tablestore.PrimaryKey)
	key.AddPrimaryKeyColumn(benchKey, value)
	return key
}

// put is the change that puts a row.
func (t *remoteTable) put(r *ycsb.Row) *tablestore.PutRowChange {
	change := &tablestore.PutRowChange{TableName: t.name, PrimaryKey: t.key(r.Key)}
	for c, value := range r.Values {
		change.AddColumn(t.names[c], value)
	}
	change.SetCondition(tablestore.RowExistenceExpectation_IGNORE)
	return change
}

func (t *remoteTable) Put(ctx context.Context, rows []ycsb.Row) error {
	if len(rows) == 1 {
		_, err := t.client.PutRow(&tablestore.PutRowRequest{PutRowChange: t.put(&rows[0])})
		return err
	}
	request := &tablestore.BatchWriteRowRequest{}
	for i := range rows {
		request.AddRowChange(t.put(&rows[i]))
	}
	response, err := t.client.BatchWriteRow(request)
	if err != nil {
		return err
	}
	for _, result := range response.TableToRowsResult[t.name] {
		if !result.IsSucceed {
			return fmt.Errorf("a row of a batch: %s: %s", result.Error.Code, result.Error.Message)
		}
	}
	return nil
}

func (t *remoteTable) Update(_ context.Context, key string, column int, value []byte) error {
	change := &tablestore.UpdateRowChange{TableName: t.name, PrimaryKey: t.key(key)}
	change.PutColumn(t.names[column], value)
	change.SetCondition(tablestore.RowExistenceExpectation_IGNORE)
	_, err := t.client.UpdateRow(&tablestore.UpdateRowRequest{UpdateRowChange: change})
	return err
}

func (t *remoteTable) Get(_ context.Context, key string) (bool, error) {
	response, err := t.client.GetRow(&tablestore.GetRowRequest{SingleRowQueryCriteria: &tablestore.SingleRowQueryCriteria{
		TableName: t.name, PrimaryKey: t.key(key), MaxVersion: 1,
	}})
	return err == nil && len(response.Columns) > 0, err
}

func (t *remoteTable) Scan(_ context.Context, key string, limit int) (rows int, err error) {
	end := new(tablestore.PrimaryKey)
	end.AddPrimaryKeyColumnWithMaxValue(benchKey)
	for from := t.key(key); from != nil && rows < limit; {
		response, err := t.client.GetRange(&tablestore.GetRangeRequest{RangeRowQueryCriteria: &tablestore.RangeRowQueryCriteria{
			TableName: t.name, StartPrimaryKey: from, EndPrimaryKey: end, Direction: tablestore.FORWARD, MaxVersion: 1, Limit: int32(limit - rows),
		}})
		if err != nil {
			return rows, err
		}
		rows += len(response.Rows)
		from = response.NextStartPrimaryKey
	}
	return rows, nil
}

// Close deletes the table.
func (t *remoteTable) Close() error {
	_, err := t.client.DeleteTable(&tablestore.DeleteTableRequest{TableName: t.name})
	if refused, ok := errors.AsType[*tablestore.OtsError](err); err == nil || ok && refused.Code == ots.CodeObjectNotExist {
		return nil
	}
	return fmt.Errorf("table %s is left at the endpoint; 'flagstone table drop --yes' removes it: %w", t.name, err)
}
