package flagstone

// Change logs, the writing side. The change log of a table is a hidden table with one row for
// each mutation of the table, under (shard, sequence number), whose cells hold the record of the
// mutation. A commit writes the mutation to the log file only once. The record is derived when
// the mutation is applied, in the pipeline and again at recovery, from the batch and the change
// log's entry in the manifest alone. So a record exists exactly if its mutation does: both have
// one sequence number, become visible together, and are replayed unless the files of their trees
// hold them. Records expire as cells do, by their version, which is the time of their commit.
//
// A shard is a partition of the table. Partitions are not split yet. A split will have to flush
// the change log first: a record that is derived again at recovery must get the shard it had.

import (
	"context"
	"fmt"
	"slices"

	"github.com/flagstone-db/flagstone/cdc"
	"github.com/flagstone-db/flagstone/manifest"
	"github.com/flagstone-db/flagstone/memtable"
	"github.com/flagstone-db/flagstone/partition"
	"github.com/flagstone-db/flagstone/row"
)

// logKey is the schema of change logs.
var logKey = []manifest.KeyColumn{{Name: "shard", Type: row.TypeInteger}, {Name: "sequence", Type: row.TypeInteger}}

// Kinds of values in the row of a record, one letter each. A value may be long, so its pieces are
// in columns r00, r01, ...
const (
	recordCells = 'r' // the record
	beforeCells = 'b' // what columns held before
)

// logPiece is the length of a piece. A value that fits a batch has less than 100 pieces.
const logPiece = 4 << 20

// recordPlace is an upper bound of the memtable bytes that a piece takes besides its content.
var recordPlace = func() int64 {
	var c row.Change
	c.Key = logRow(nil, 0, 0)
	if err := c.Put(pieceName(recordCells, 0), row.MaxVersion-1, row.Binary(nil)); err != nil {
		panic(err) // it is a cell like any other
	}
	const lengths = 16 // a long value's length takes more than an empty one's, and sizes are rounded up
	return memtable.EstimateSize(&c) + lengths
}()

// logRow encodes the key of a record's row.
func logRow(dst []byte, shard, seq uint64) []byte {
	key, err := row.AppendKey(dst, len(logKey), row.Integer(int64(shard)), row.Integer(int64(seq)))
	if err != nil {
		panic(fmt.Sprintf("flagstone: the key of a change record does not encode: %v", err))
	}
	return key
}

// logTree is the only tree of a change log.
func (t *Table) logTree() *partition.Tree { return t.partitions().Trees()[0] }

// record is a record on its way into a change log: a derived mutation.
type record struct {
	log   *Table
	kind  byte
	bytes []byte // its encoding
	bound int64  // upper bound, in memtable bytes
}

// newRecord makes the record of a change.
func newRecord(log *Table, c *row.Change) *record {
	return newLogEntry(log, recordCells, cdc.Append(nil, c))
}

func newLogEntry(log *Table, kind byte, bytes []byte) *record {
	pieces := int64(len(bytes)/logPiece + 1)
	return &record{log: log, kind: kind, bytes: bytes, bound: pieces*recordPlace + int64(len(bytes))}
}

func (r *record) tree() *partition.Tree { return r.log.logTree() }

func (r *record) size() int64 { return r.bound }

// change makes the change log's row of the mutation seq of a shard.
func (r *record) change(shard, seq uint64, micros int64) *row.Change {
	if r.kind == recordCells {
		cdc.SetTime(r.bytes, micros)
	}
	c := &row.Change{Table: r.log.id, Key: logRow(nil, shard, seq)}
	err := putPieces(c, r.kind, max(micros/1000, 0), r.bytes)
	if err != nil {
		panic(fmt.Sprintf("flagstone: a change record cannot be stored: %v", err)) // it is within every limit
	}
	return c
}

// putPieces puts bytes into a change, in pieces; empty bytes are one empty piece.
func putPieces(c *row.Change, kind byte, version int64, bytes []byte) error {
	for i := 0; i == 0 || len(bytes) > 0; i++ {
		n := min(len(bytes), logPiece)
		if err := c.Put(pieceName(kind, i), version, row.Binary(bytes[:n])); err != nil {
			return err
		}
		bytes = bytes[n:]
	}
	return c.Normalize()
}

// pieceName is the column of a piece.
func pieceName(kind byte, i int) string {
	return string([]byte{kind, '0' + byte(i/10), '0' + byte(i%10)})
}

// newLogMeta describes a new change log of a table, for the mutations above a
// sequence number.
func newLogMeta(id, partitionID, of, after uint64, spec *StreamSpec, millis int64) *manifest.Table {
	return &manifest.Table{
		ID: id, Name: fmt.Sprintf("%schange log %d", hiddenPrefix, id), Key: slices.Clone(logKey),
		Options: manifest.TableOptions{
			MaxVersions: 1, TTLSeconds: spec.RetentionSeconds,
			MaxVersionOffsetSeconds: defaultOffset,
		},
		LargestOffset: defaultOffset,
		Watermark:     manifest.NoWatermark, CreatedMillis: millis,
		Annotations: slices.Clone(spec.Annotations),
		Log:         &manifest.ChangeLog{Of: of, After: after, Before: slices.Clone(spec.Before)},
		Partitions:  []*manifest.Partition{{ID: partitionID, FlushedSeq: after}},
	}
}

// hiddenPrefix begins the names of tables that callers do not see. No other
// table may have such a name.
const hiddenPrefix = "\x01"

// logsOf returns the change logs of a table.
func (c *catalog) logsOf(table uint64) (logs []*Table) {
	for _, t := range c.byID {
		if t.logOf == table {
			logs = append(logs, t)
		}
	}
	return logs
}

// dropEndedLogs drops the change logs that have ended and cannot be read any more. If a drop
// fails, the next Open repeats it. REQUIRES: tables is held, or the store is being opened.
func (s *Store) dropEndedLogs() {
	for _, t := range s.catalog().byID {
		if meta := t.meta(); meta == nil || meta.Log == nil || meta.Log.Until == 0 {
			continue
		}
		if err := s.dropTables([]*Table{t}); err != nil {
			s.opts.Logger.Warn("cannot drop the change log of a stream that was disabled", "id", t.id, "error", err)
		}
	}
}

// readBefore reads what columns hold before a change, if the stream records that. It goes into
// the log, because recovery could not read it again. REQUIRES: no other writer can change the
// row.
func (p *prepared) readBefore() error {
	p.before, p.beforeFor = nil, p.from.table.log.Load()
	if p.beforeFor == nil || len(p.beforeFor.before) == 0 {
		return nil
	}
	opts := ReadOptions{Columns: p.beforeFor.before, MaxVersions: 1}
	found, err := p.from.table.getEncoded(p.from.change.Key, &opts, p.from.written, true)
	if err != nil || len(found.Cells()) == 0 {
		return err
	}
	p.before, err = cdc.AppendBefore(nil, found.Cells())
	return err
}

// beforeChange is the mutation in a batch that carries what columns held before the preceding
// mutation.
func beforeChange(log *Table, bytes []byte) (*row.Change, error) {
	c := &row.Change{Table: log.id, Key: logRow(nil, 0, 0)}
	return c, putPieces(c, beforeCells, 0, bytes)
}

// beforeBytes is the inverse of beforeChange.
func beforeBytes(c *row.Change) ([]byte, error) {
	var m row.Mutation
	if err := c.Mutation(&m); err != nil {
		return nil, err
	}
	var bytes []byte
	for i := range m.Cells {
		bytes = append(bytes, m.Cells[i].Value...)
	}
	return bytes, nil
}

// barrier returns a sequence number up to which everything is durable and visible, and a time in
// microseconds; no later commit has an earlier time.
func (s *Store) barrier(ctx context.Context) (seq uint64, micros int64, err error) {
	p := &s.pipeline
	p.order.Lock()
	if !s.opts.ReadOnly {
		p.lastMicros = max(p.lastMicros, s.issued.nowMicros())
	}
	seq, micros = p.nextSeq-1, p.lastMicros
	lsn := p.lastLSN
	p.order.Unlock()
	if err := s.await(ctx, lsn, seq); err != nil {
		return 0, 0, err
	}
	return seq, micros, s.syncVisible()
}

// syncVisible makes durable what is visible: a crash must not lose a record that was returned to
// a reader.
func (s *Store) syncVisible() error {
	if s.opts.Sync == SyncAlways || s.opts.ReadOnly {
		return nil
	}
	return s.syncLog()
}
