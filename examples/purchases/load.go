package main

// This file makes the tables and writes the records: many BatchWriteRow
// requests at a time, each with as many rows as the protocol allows.

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/aliyun/aliyun-tablestore-go-sdk/tablestore"
)

// rowsPerWrite and rowsPerRead are the limits of BatchWriteRow and BatchGetRow.
const (
	rowsPerWrite = 200
	rowsPerRead  = 100
)

// makeTables makes the four tables, empty: what a former run left is deleted.
func (t *tour) makeTables() error {
	if err := t.dropTables(); err != nil {
		return err
	}
	for i := range layouts {
		l := &layouts[i]
		meta := &tablestore.TableMeta{TableName: l.table}
		for _, c := range l.schema {
			meta.AddPrimaryKeyColumn(c.name, c.kind)
		}
		if _, err := t.client.CreateTable(&tablestore.CreateTableRequest{
			TableMeta:          meta,
			TableOption:        tablestore.NewTableOptionWithMaxVersion(1),
			ReservedThroughput: &tablestore.ReservedThroughput{},
		}); err != nil {
			return fmt.Errorf("create %s: %w", l.table, err)
		}
	}
	return nil
}

// dropTables deletes those of the four tables that exist.
func (t *tour) dropTables() error {
	for i := range layouts {
		_, err := t.client.DeleteTable(&tablestore.DeleteTableRequest{TableName: layouts[i].table})
		var own *tablestore.OtsError
		if err != nil && !(errors.As(err, &own) && own.Code == "OTSObjectNotExist") {
			return fmt.Errorf("delete %s: %w", layouts[i].table, err)
		}
	}
	return nil
}

// load writes all records to one table.
func (t *tour) load(l *layout) error {
	batches := (len(t.records) + rowsPerWrite - 1) / rowsPerWrite
	return t.parallel(batches, func(i int) error {
		records := t.records[i*rowsPerWrite : min((i+1)*rowsPerWrite, len(t.records))]
		request := new(tablestore.BatchWriteRowRequest)
		for j := range records {
			request.AddRowChange(l.put(&records[j]))
		}
		response, err := t.client.BatchWriteRow(request)
		if err != nil {
			return fmt.Errorf("write to %s: %w", l.table, err)
		}
		results := response.TableToRowsResult[l.table]
		if len(results) != len(records) {
			return fmt.Errorf("write to %s: %d outcomes for %d rows", l.table, len(results), len(records))
		}
		// A batch succeeds as a whole even if rows of it fail.
		for j, r := range results {
			if !r.IsSucceed {
				return fmt.Errorf("write %v to %s: %s %s", &records[j], l.table, r.Error.Code, r.Error.Message)
			}
		}
		return nil
	})
}

// put is the request that writes a purchase's row.
func (l *layout) put(p *purchase) *tablestore.PutRowChange {
	change := &tablestore.PutRowChange{TableName: l.table, PrimaryKey: l.rowKey(p)}
	for _, c := range l.columns(p) {
		change.AddColumn(c.name, c.value)
	}
	change.SetCondition(tablestore.RowExistenceExpectation_IGNORE)
	return change
}

// parallel does n jobs on the tour's workers. It returns the first error, after
// which no more jobs are begun.
func (t *tour) parallel(n int, job func(i int) error) error {
	var (
		next   atomic.Int64
		failed = make(chan error, t.workers)
		wg     sync.WaitGroup
	)
	for range min(t.workers, n) {
		wg.Go(func() {
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				if err := job(i); err != nil {
					next.Store(int64(n))
					failed <- err
					return
				}
			}
		})
	}
	wg.Wait()
	select {
	case err := <-failed:
		return err
	default:
		return nil
	}
}
