package main

// This file is the command archive: an export of old cells, which are deleted when the file is durable and was read back.

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"io"
	"math"
	"os"
	"time"

	"github.com/aliyun/aliyun-tablestore-go-sdk/tablestore"
	"github.com/cespare/xxhash/v2"

	"github.com/flagstone-db/flagstone"
	"github.com/flagstone-db/flagstone/cmd/flagstone/bulkio"
	"github.com/flagstone-db/flagstone/cmd/flagstone/rowfile"
	"github.com/flagstone-db/flagstone/internal/vfs"
	"github.com/flagstone-db/flagstone/row"
)

type archiveCommand struct {
	ofFiles
	File      string `arg:"" type:"path" help:"The file, JSON Lines or Parquet, which must not exist."`
	OlderThan inDays `name:"older-than" required:"" placeholder:"DURATION" help:"The age of a cell by its version, such as 36h or 30d."`
}

// Help is the long help of the command.
func (archiveCommand) Help() string {
	return `Cells whose version is older than the age are written to the file, the file is made durable and read back, and only then they are deleted from the table. A cell that has another value by then stays; one that was written again with the same version and value is deleted. A row of which nothing is left is deleted; rows without cells stay. 'flagstone import --merge' puts the cells of archives back, also into the table that they come from; an import without --merge would replace its rows. Raise the table's Max Version Offset before, as far as the cells are old: 'flagstone table alter orders --version-offset 4000000000'.

If the command is interrupted, each cell is in the table or in a complete file. Run it again with another name: what it had not deleted goes to that one.

At an endpoint each row is deleted in a local transaction, which the table must allow. It keeps other writers from all rows of the partition key meanwhile; if the command is killed, for up to 60 seconds.

  flagstone archive orders old.parquet --older-than 720h`
}

// Run archives.
func (a *archiveCommand) Run(ctx context.Context, c *output) (err error) {
	if err := a.locate(ctx, c); err != nil {
		return err
	}
	if format, err := a.format(a.File); err != nil || a.File == stdio || format == rowfile.CSV {
		return misuse("an archive is a file of JSON Lines or Parquet: give a name ending in .jsonl or .parquet")
	}
	e := exportCommand{ofFiles: a.ofFiles, File: a.File}
	p, err := e.plan()
	switch {
	case err != nil:
		return err
	case a.OlderThan <= 0:
		return misuse("--older-than is %s; give a time above 0", a.OlderThan)
	case exists(a.File):
		return fmt.Errorf("%s exists; give another name", a.File)
	}
	written := newRowSum()
	cutoff := time.Now().Add(-time.Duration(a.OlderThan)).UnixMilli()
	p.pick = func(page []rowfile.Row) []rowfile.Row {
		page = olderCells(page, cutoff)
		for i := range page {
			written.add(&page[i])
		}
		return page
	}
	key, err := a.export(ctx, c, &e, p)
	if err != nil {
		return err
	}
	// Both passes read one open file: another one that gets its name deletes nothing.
	file, err := os.Open(a.File)
	if err != nil {
		return err
	}
	defer file.Close()
	read, err := a.each(ctx, file, p.format, key, func(*rowfile.Row) error { return nil })
	if err != nil {
		return leaving(err, "%s is kept, and nothing is deleted", a.File)
	}
	if !read.equals(&written) {
		return fmt.Errorf("%s does not hold the %d rows that were written to it; nothing was deleted", a.File, written.rows)
	}
	if written.rows == 0 {
		fmt.Fprintf(c.err, "flagstone: no cell is older than %s, so %s is not kept\n", a.OlderThan, a.File)
		return errors.Join(file.Close(), os.Remove(a.File))
	}
	return a.remove(ctx, c, file, p.format, key, &written)
}

// export writes the file, and returns the key of the table.
func (a *archiveCommand) export(ctx context.Context, c *output, e *exportCommand, p *plan) (key []rowfile.Column, err error) {
	source, err := a.source(ctx, c)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, source.close()) }()
	if err := a.tryTransaction(ctx, c, source.key()[0]); err != nil {
		return nil, err
	}
	return source.key(), vfs.MakeFile(a.File, false, func(out io.Writer) error {
		buffered := bufio.NewWriterSize(out, 256<<10)
		if err := e.write(ctx, c, buffered, source, p, &rowfile.Layout{Key: source.key()}, 0); err != nil {
			return err
		}
		return buffered.Flush()
	})
}

// tryTransaction finds whether a table at an endpoint takes the transactions that delete the cells, before anything is done.
func (a *archiveCommand) tryTransaction(ctx context.Context, c *output, partition rowfile.Column) error {
	if a.Endpoint == "" {
		return nil
	}
	client, err := a.client(1)
	if err != nil {
		return err
	}
	t := &endpointArchive{client: client, table: a.Table, waiting: waiting{out: c.err}}
	key := new(tablestore.PrimaryKey)
	key.AddPrimaryKeyColumn(partition.Name, map[row.Type]any{
		row.TypeInteger: int64(math.MinInt64), row.TypeString: "flagstone archive", row.TypeBinary: []byte("flagstone archive"),
	}[partition.Type])
	err = t.transaction(ctx, key, func(*string) error { return errTried })
	if errors.Is(err, errTried) {
		return nil
	}
	return fmt.Errorf("table %s takes no local transaction, and nothing was done: %w", a.Table, err)
}

// olderCells leaves the cells of a page that are older than a version, and the rows that have such.
func olderCells(page []rowfile.Row, than int64) []rowfile.Row {
	left := page[:0]
	for _, r := range page {
		cells := r.Cells[:0]
		for _, c := range r.Cells {
			if c.Version < than {
				cells = append(cells, c)
			}
		}
		if r.Cells = cells; len(cells) > 0 {
			left = append(left, r)
		}
	}
	return left
}

// rowSum is the number of rows and a checksum of all they hold.
type rowSum struct {
	rows    int64
	of      hash.Hash64
	encoded []byte
}

func newRowSum() rowSum { return rowSum{of: xxhash.New()} }

func (s *rowSum) equals(other *rowSum) bool {
	return s.rows == other.rows && s.of.Sum64() == other.of.Sum64()
}

func (s *rowSum) add(r *rowfile.Row) {
	s.rows++
	s.encoded = s.encoded[:0]
	for _, v := range r.Key {
		s.encoded = binary.AppendUvarint(append(s.encoded, byte(v.Type())), uint64(v.Size()))
		s.encoded = v.AppendPayload(s.encoded)
	}
	s.encoded = appendRow(s.encoded, r, bulkio.Place{File: len(r.Cells)})
	_, _ = s.of.Write(s.encoded)
}

// each reads the rows of the file from its beginning.
func (a *archiveCommand) each(ctx context.Context, f *os.File, format rowfile.Format, key []rowfile.Column, do func(r *rowfile.Row) error) (sum rowSum, err error) {
	sum = newRowSum()
	st, err := f.Stat()
	if err != nil {
		return sum, err
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return sum, err
	}
	reader, err := rowfile.NewReader(f, st.Size(), &rowfile.ReadOptions{Format: format, Key: key})
	if err != nil {
		return sum, err
	}
	defer reader.Close()
	var r rowfile.Row
	for {
		err := reader.Next(&r)
		if err == io.EOF {
			return sum, nil
		}
		if err == nil {
			err = ctx.Err()
		}
		if err == nil {
			sum.add(&r)
			err = do(&r)
		}
		if err != nil {
			return sum, err
		}
	}
}

// remove deletes the cells that the file has.
func (a *archiveCommand) remove(ctx context.Context, c *output, file *os.File, format rowfile.Format, key []rowfile.Column, written *rowSum) (err error) {
	drop, closeTable, err := a.dropper(ctx, c, key)
	if err != nil {
		return leaving(err, "%s is kept, and nothing is deleted", a.File)
	}
	defer func() { err = errors.Join(err, closeTable()) }()
	progress := a.progress(c, "deleted cells of")
	progress.Begin(0, 0)
	rows, stayed := int64(0), 0
	deleted, err := a.each(ctx, file, format, key, func(r *rowfile.Row) error {
		progress.Show(rows, 0)
		rows++
		n, err := drop(ctx, r)
		stayed += len(r.Cells) - n
		return err
	})
	if err != nil {
		progress.Clear()
		return leaving(err, "%s is complete, and cells of %d rows at most are deleted: run the command again with another name", a.File, rows)
	}
	if !deleted.equals(written) {
		progress.Clear()
		return fmt.Errorf("%s was changed while its cells were deleted from the table: it may lack some of them", a.File)
	}
	progress.End(rows)
	if stayed > 0 {
		fmt.Fprintf(c.err, "flagstone: %d cells were changed or deleted meanwhile, and were not deleted\n", stayed)
	}
	return nil
}

// dropper returns what deletes the cells of a row, unless they were changed, and returns their number.
func (a *archiveCommand) dropper(ctx context.Context, c *output, key []rowfile.Column) (drop func(context.Context, *rowfile.Row) (int, error), closeTable func() error, err error) {
	if a.Endpoint != "" {
		client, err := a.client(1)
		t := &endpointArchive{client: client, table: a.Table, key: key, waiting: waiting{out: c.err}}
		return t.drop, func() error { return nil }, err
	}
	home, err := a.openFolder(ctx, false)
	if err != nil {
		return nil, nil, err
	}
	engine, instance, ok := home.Service(a.Instance)
	if !ok {
		return nil, nil, errors.Join(fmt.Errorf("instance %s is gone", a.Instance), home.Close())
	}
	table, err := engine.Table(instance, a.Table)
	if err != nil {
		return nil, nil, errors.Join(err, home.Close())
	}
	return func(ctx context.Context, r *rowfile.Row) (int, error) { return dropFromFolder(ctx, table, r) }, home.Close, nil
}

// unchanged returns the cells of an archived row that the table has as they are, each once, whatever a file repeats: the
// row is deleted if their number is that of its cells.
func unchanged(archived, present []rowfile.Cell) (same []rowfile.Cell) {
	text := func(c rowfile.Cell) string {
		return string(appendRow(nil, &rowfile.Row{Cells: []rowfile.Cell{c}}, bulkio.Place{}))
	}
	there := make(map[string]bool, len(present))
	for _, c := range present {
		there[text(c)] = true
	}
	for _, c := range archived {
		if t := text(c); there[t] {
			delete(there, t)
			same = append(same, c)
		}
	}
	return same
}

func dropFromFolder(ctx context.Context, table *flagstone.Table, r *rowfile.Row) (dropped int, err error) {
	err = table.Update(ctx, r.Key, func(_ context.Context, tx *flagstone.RowTx) error {
		found, err := tx.Get(flagstone.ReadOptions{MaxVersions: math.MaxInt32})
		if err != nil {
			return err
		}
		var present []rowfile.Cell
		for _, c := range found.Cells() {
			v, err := row.PayloadValue(c.Type, c.Value)
			if err != nil {
				return err
			}
			present = append(present, rowfile.Cell{Name: string(c.Column), Version: c.Version, Value: v})
		}
		same := unchanged(r.Cells, present)
		dropped = len(same)
		if dropped > 0 && dropped == len(present) {
			tx.DeleteRow()
			return nil
		}
		for _, c := range same {
			tx.DeleteVersion(c.Name, c.Version)
		}
		return nil
	})
	return dropped, err
}

// endpointArchive deletes cells of a table at an endpoint. A local transaction keeps other writers from the row meanwhile.
type endpointArchive struct {
	client  *tablestore.TableStoreClient
	table   string
	key     []rowfile.Column
	waiting waiting
}

// versionsAtOnce is how many cells one UpdateRow deletes; the service takes 1,024.
const versionsAtOnce = 1000

func (t *endpointArchive) drop(ctx context.Context, r *rowfile.Row) (dropped int, err error) {
	key, partition := new(tablestore.PrimaryKey), new(tablestore.PrimaryKey)
	for i, v := range r.Key {
		key.AddPrimaryKeyColumn(t.key[i].Name, sdkValue(v))
	}
	partition.PrimaryKeys = key.PrimaryKeys[:1]
	err = t.transaction(ctx, partition, func(id *string) (err error) {
		dropped, err = t.change(id, key, r)
		return err
	})
	if err != nil {
		err = fmt.Errorf("row %v: %w", r.Key, err)
	}
	return dropped, err
}

// errTried ends a transaction that tries whether there can be one.
var errTried = &tablestore.OtsError{Code: "Tried", Message: "the transaction was a trial"}

// transaction makes changes in a local transaction, and aborts it if they fail.
func (t *endpointArchive) transaction(ctx context.Context, partition *tablestore.PrimaryKey, change func(id *string) error) error {
	return t.waiting.retry(ctx, func() error {
		begun, err := t.client.StartLocalTransaction(&tablestore.StartLocalTransactionRequest{TableName: t.table, PrimaryKey: partition})
		if err != nil {
			return err
		}
		if err := change(begun.TransactionId); err != nil {
			_, _ = t.client.AbortTransaction(&tablestore.AbortTransactionRequest{TransactionId: begun.TransactionId}) // err is what matters
			return err
		}
		_, err = t.client.CommitTransaction(&tablestore.CommitTransactionRequest{TransactionId: begun.TransactionId})
		return err
	})
}

// change deletes cells in a transaction.
func (t *endpointArchive) change(id *string, key *tablestore.PrimaryKey, r *rowfile.Row) (int, error) {
	found, err := t.client.GetRow(&tablestore.GetRowRequest{SingleRowQueryCriteria: &tablestore.SingleRowQueryCriteria{
		TableName: t.table, PrimaryKey: key, MaxVersion: math.MaxInt32, TransactionId: id,
	}})
	if err != nil {
		return 0, err
	}
	present, err := fromSDKRow(&tablestore.Row{PrimaryKey: &found.PrimaryKey, Columns: found.Columns})
	if err != nil {
		return 0, err
	}
	same := unchanged(r.Cells, present.Cells)
	if len(same) > 0 && len(same) == len(present.Cells) {
		gone := &tablestore.DeleteRowChange{TableName: t.table, PrimaryKey: key, TransactionId: id}
		gone.SetCondition(tablestore.RowExistenceExpectation_IGNORE)
		_, err := t.client.DeleteRow(&tablestore.DeleteRowRequest{DeleteRowChange: gone})
		return len(same), err
	}
	for left := same; len(left) > 0; {
		some := left[:min(len(left), versionsAtOnce)]
		left = left[len(some):]
		change := &tablestore.UpdateRowChange{TableName: t.table, PrimaryKey: key, TransactionId: id}
		change.SetCondition(tablestore.RowExistenceExpectation_IGNORE)
		for _, c := range some {
			change.DeleteColumnWithTimestamp(c.Name, c.Version)
		}
		if _, err := t.client.UpdateRow(&tablestore.UpdateRowRequest{UpdateRowChange: change}); err != nil {
			return 0, err
		}
	}
	return len(same), nil
}
