// Package flagstone is the engine that the others are compared with, through
// its public API and nothing else.
package flagstone

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/flagstone-db/flagstone"
	"github.com/flagstone-db/flagstone/bench/peers/rowstore"
	"github.com/flagstone-db/flagstone/row"
)

// Engine describes Flagstone.
func Engine() rowstore.Engine {
	return rowstore.Engine{
		Name: "flagstone", Module: "github.com/flagstone-db/flagstone",
		Encodings: []rowstore.Encoding{rowstore.Native, rowstore.Plain},
		Tunings:   []rowstore.Tuning{verify, packed, plainLog},
		LSM:       true, Parks: true, Factor: 1,
		Unsynced: "A prefix: a write is acknowledged when it is in the log's buffer in memory, so what the log has not written " +
			"yet is lost with a killed process.",
		IsLog: func(name string) bool { return strings.HasSuffix(name, ".log") }, // spares included
		Open:  open,
	}
}

// verify: nothing is believed because it was verified a while ago.
var verify = rowstore.Tuning{
	Name: "verify", About: "values are verified at each load of their block, also in mapped files; the default believes those " +
		"of scans, and large ones, for ten seconds",
}

// packed: large values are compressed, which is Flagstone's default. Badger cannot do that, and RocksDB
// does not by default.
var packed = rowstore.Tuning{
	Name: "packed", About: "large values are compressed; the others leave those of Badger, RocksDB and Flagstone as they are",
}

var plainLog = rowstore.Tuning{Name: "plain-log", About: "the log is not compressed on a slow device"}

func open(cfg rowstore.Config) (rowstore.Store, error) {
	opts := flagstone.Options{
		Sync:         flagstone.SyncNone,
		MemtableSize: cfg.Memtable,
		MemoryBudget: 3 * cfg.Memtable, // the others may have four memtables waiting
		CacheSize:    cfg.Cache,
		PlainValues:  cfg.Tuning != packed.Name,
	}
	if cfg.Sync {
		opts.Sync = flagstone.SyncAlways
	}
	if cfg.Tuning == plainLog.Name {
		opts.LogCompression = flagstone.LogCompressionNever
	}
	if cfg.Tuning == verify.Name {
		opts.VerifyInterval = -1
	}
	clock := &stepped{now: cfg.NowMillis}
	if cfg.NowMillis != nil {
		clock.origin = cfg.NowMillis()
		clock.behind.Store(believed)
		opts.Seams.Clock = clock
	}
	db, err := flagstone.Open(cfg.Dir, opts)
	if err != nil {
		return nil, err
	}
	table, err := db.Table("rows")
	if errors.Is(err, flagstone.ErrTableNotFound) {
		spec := flagstone.TableSpec{
			Name: "rows", Key: []flagstone.KeyColumn{{Name: "id", Type: row.TypeBinary}},
			Options: flagstone.TableOptions{MaxVersions: int64(max(cfg.MaxVersions, 1))},
		}
		if cfg.TTL > 0 {
			spec.Options.TTLSeconds = int64(cfg.TTL / time.Second)
		}
		table, err = db.CreateTable(context.Background(), spec)
	}
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	for clock.behind.Load() > 0 {
		clock.behind.Add(-time.Minute.Milliseconds())
		if err := table.Alter(context.Background(), flagstone.TableChange{}); err != nil { // the store looks at its clock
			return nil, errors.Join(err, db.Close())
		}
	}
	return &store{db: db, table: table, expires: cfg.TTL > 0}, nil
}

// believed is for how long, in milliseconds, a store has run when it drops
// expired data by its clock.
const believed = int64(61 * time.Minute / time.Millisecond)

// stepped is a clock whose monotonic readings follow its wall clock, so that
// what has expired by it may be collected at once.
type stepped struct {
	now    func() int64
	origin int64
	behind atomic.Int64 // milliseconds
}

func (c *stepped) NowMillis() int64 { return c.now() - c.behind.Load() }
func (c *stepped) NowMicros() int64 { return 1000 * c.NowMillis() }

func (c *stepped) Elapsed() time.Duration {
	return time.Duration(c.NowMillis()-c.origin+believed) * time.Millisecond
}

// AfterFunc paces work by real time.
func (c *stepped) AfterFunc(d time.Duration, f func()) (stop func() bool) {
	return time.AfterFunc(d, f).Stop
}

type store struct {
	db      *flagstone.Store
	table   *flagstone.Table
	expires bool // there is a Time To Live
}

func (s *store) Session() (rowstore.Session, error) {
	n := &session{store: s, key: make([]row.Value, 1), batch: s.db.NewBatch()}
	n.update = func(_ context.Context, tx *flagstone.RowTx) error {
		n.putCells(&tx.RowChange, n.cells)
		return nil
	}
	// Also in the key-value shape: a put replaces the value. An update of the column
	// would add to the row, and a reader would look for its other columns in older
	// files.
	n.put = func(_ context.Context, tx *flagstone.RowTx) error {
		tx.PutRow()
		return n.update(context.Background(), tx)
	}
	return n, nil
}

// Settle needs no questions: the store says when it has settled.
func (s *store) Settle() (rowstore.Asking, error) {
	ctx := context.Background()
	if err := s.db.Flush(ctx); err != nil {
		return rowstore.Asking{}, err
	}
	return rowstore.Asking{}, s.db.Settle(ctx)
}

// Reclaim waits until the store has given back what expired, as it does by
// itself: files as a whole, and others where enough of them is to be had. Surplus
// versions it drops when it merges, so it is asked to.
func (s *store) Reclaim() error {
	if s.expires {
		_, err := s.Settle()
		return err
	}
	return s.Compact()
}

func (s *store) Compact() error {
	ctx := context.Background()
	if err := s.db.Compact(ctx); err != nil {
		return err
	}
	return s.db.Settle(ctx)
}

func (s *store) SplitPoints(pieceBytes int64) ([][]byte, error) {
	points, err := s.table.SplitPoints(context.Background(), pieceBytes, 0)
	if err != nil {
		return nil, err
	}
	out := make([][]byte, len(points))
	for i, p := range points {
		out[i] = p[0].Bytes()
	}
	return out, nil
}

func (s *store) Stats() rowstore.Stats {
	m := s.db.Metrics()
	return rowstore.Stats{
		Flushed: m.FlushedBytes, Compacted: m.CompactedOut, Logged: m.LogBytes,
		CacheHits: int64(m.CacheHits), CacheMisses: int64(m.CacheMisses),
	}
}

func (s *store) Close() error { return s.db.Close() }

type session struct {
	store  *store
	key    []row.Value
	cells  []rowstore.Cell
	put    func(context.Context, *flagstone.RowTx) error
	update func(context.Context, *flagstone.RowTx) error
	batch  *flagstone.Batch
	found  flagstone.Row
	row    rowstore.Row

	columns []string
}

func (s *session) setKey(key []byte) []row.Value {
	s.key[0] = row.Binary(key)
	return s.key
}

func (s *session) putCells(c *flagstone.RowChange, cells []rowstore.Cell) {
	for i := range cells {
		cell := &cells[i]
		c.Put(shared(cell.Column), cell.Version, row.Binary(cell.Value))
	}
}

func (s *session) Put(key []byte, cells []rowstore.Cell) error {
	s.cells = cells
	return s.store.table.Update(context.Background(), s.setKey(key), s.put)
}

func (s *session) Update(key []byte, cells []rowstore.Cell) error {
	s.cells = cells
	return s.store.table.Update(context.Background(), s.setKey(key), s.update)
}

func (s *session) PutBatch(rows []rowstore.Row) error {
	s.batch.Reset()
	for i := range rows {
		c := s.batch.Row(s.store.table, s.setKey(rows[i].Key))
		c.PutRow()
		s.putCells(c, rows[i].Cells)
	}
	return s.store.db.Apply(context.Background(), s.batch)
}

func (s *session) Delete(key []byte) error {
	return s.store.table.Delete(context.Background(), s.setKey(key))
}

// options makes read options of a query, with its names as they are: like the other
// engines, this one looks at them during the call and keeps none.
func (s *session) options(q rowstore.Query) flagstone.ReadOptions {
	opts := flagstone.ReadOptions{MaxVersions: q.MaxVersions}
	if q.Columns == nil {
		return opts
	}
	s.columns = s.columns[:0]
	for _, c := range q.Columns {
		s.columns = append(s.columns, shared(c))
	}
	opts.Columns = s.columns
	return opts
}

// shared is a name as a string, without a copy: for calls that do not keep it.
func shared(name []byte) string { return unsafe.String(unsafe.SliceData(name), len(name)) }

// take makes r the contents of into: the engine has copied its bytes.
func take(into *rowstore.Row, key []byte, r *flagstone.Row) {
	into.Reset(key)
	cells := r.Cells()
	for i := range cells {
		c := &cells[i]
		into.Cells = append(into.Cells, rowstore.Cell{Column: c.Column, Version: c.Version, Value: c.Value})
	}
}

func (s *session) get(key []byte, opts flagstone.ReadOptions, into *rowstore.Row) error {
	if _, err := s.store.table.GetInto(context.Background(), s.setKey(key), opts, &s.found); err != nil {
		return err
	}
	take(into, key, &s.found)
	return nil
}

func (s *session) Get(key []byte, q rowstore.Query, into *rowstore.Row) (bool, error) {
	err := s.get(key, s.options(q), into)
	return err == nil && len(into.Cells) > 0, err
}

func (s *session) Scan(start, end []byte, q rowstore.Query, limit int, visit func(*rowstore.Row) bool) error {
	var from, to []row.Value
	if start != nil {
		from = s.setKey(start)
	}
	if end != nil {
		to = []row.Value{row.Binary(end)}
	}
	rows := s.store.table.Scan(context.Background(), from, to, flagstone.ScanOptions{ReadOptions: s.options(q)})
	for n := 0; rows.Next(); {
		r := rows.Row()
		if len(r.Cells()) == 0 {
			continue
		}
		// The rows of a scan point into blocks: the bytes are copied here, as in
		// the other adapters.
		copyRow(&s.row, r)
		if n++; !visit(&s.row) || n == limit {
			break
		}
	}
	return errors.Join(rows.Err(), rows.Close())
}

// copyRow makes into a copy of a row, in one piece of memory.
func copyRow(into *rowstore.Row, r *flagstone.Row) {
	into.Reset(r.Key()[0].Bytes())
	size, from := 0, r.Cells()
	for i := range from {
		size += len(from[i].Column) + len(from[i].Value)
	}
	memory := into.Bytes(size)
	cells := slices.Grow(into.Cells, len(from))[:len(from)]
	for i := range from {
		c, to := &from[i], &cells[i]
		n := copy(memory, c.Column)
		m := n + copy(memory[n:], c.Value)
		to.Column, to.Version, to.Value = memory[:n:n], c.Version, memory[n:m:m]
		memory = memory[m:]
	}
	into.Cells = cells
}

func (s *session) GetPage(key, fromColumn []byte, limit int, into *rowstore.Row) error {
	return s.get(key, flagstone.ReadOptions{
		StartColumn: shared(fromColumn), MaxColumns: limit, MaxVersions: 1,
	}, into)
}

func (s *session) Close() error { return nil }
