// Package rowstore says what a store of wide, versioned rows is to this
// programme: one interface that Flagstone implements with its own rows, and each
// peer with an encoding of rows over its keys and values. What all of them
// answer is fixed by package model and held by the conformance test in package
// engines.
package rowstore

import "time"

// Encoding is how rows lie in an engine.
type Encoding string

const (
	// Native rows are the engine's own (Flagstone).
	Native Encoding = "native"
	// RowValue keeps a row as one value: its key holds all columns with all
	// kept versions. An update reads, changes and writes the row.
	RowValue Encoding = "row"
	// CellKeys keeps a key per cell: row, column, inverted version. An update is
	// blind; a put of a row deletes the cells it finds and writes its own.
	CellKeys Encoding = "cell"
	// Plain is the key-value shape: one column, PlainColumn, whose value is the
	// value of the key as it is. One version, which may read as 0, no expiry; who
	// writes a key again does it with a higher version.
	Plain Encoding = "plain"
)

// PlainColumn is the name of the one column that Plain rows have.
const PlainColumn = "v"

// Config is what every engine is opened with. All sizes are bytes.
type Config struct {
	Dir      string
	Encoding Encoding
	// Tuning is the name of one of the engine's tunings, "" for what its own authors
	// recommend.
	Tuning string
	// Sync: a write is acknowledged when it is durable.
	Sync bool
	// Memtable, Cache: size of a memtable, of the block cache.
	Memtable, Cache int64
	// Workers are how many flushes, and how many compactions, may run at once in engines
	// that let us choose.
	Workers int
	// FilterBits per key, BlockSize of table files.
	FilterBits, BlockSize int
	// MaxVersions kept per column (0: 1), TTL of a cell (0: for ever; whole
	// seconds).
	MaxVersions int
	TTL         time.Duration
	// NowMillis is the clock that cells expire by; nil is the wall clock. It
	// never goes back.
	NowMillis func() int64
	// KeyBytes is the length of the shortest row key (shorter ones are refused by
	// CellKeys), for filters of prefixes of fixed length (RocksDB); 0 is unknown.
	KeyBytes int
	// Writers is how many sessions will write at once, for engines that want to
	// know (bbolt); 0 is one.
	Writers int
	// MemoryLimit is what the whole process may use, 0 for no limit.
	MemoryLimit int64
}

// Defaults are the settings that every comparison uses unless its workload says
// otherwise.
func Defaults(dir string, encoding Encoding) Config {
	return Config{
		Dir: dir, Encoding: encoding,
		Memtable: 64 << 20, Cache: 256 << 20, Workers: 2, FilterBits: 10, BlockSize: 4 << 10,
		MaxVersions: 1, KeyBytes: 16,
	}
}

// Tuning is a set of an engine's settings.
type Tuning struct {
	Name  string `json:"name"`
	About string `json:"about"`
}

// DeepLevel0 is the tuning that leaves level 0 as deep as Flagstone does: merged at
// Level0Merged overlapping files, writers stopped at Level0Stopped.
var DeepLevel0 = Tuning{"deep0", "level 0 as deep as Flagstone's: merged at 12 files or runs, writers stopped at 40"}

// The depths of Flagstone's level 0.
const (
	Level0Merged  = 12
	Level0Stopped = 40
)

// Engine is one engine that can be opened.
type Engine struct {
	// Name is short: "flagstone", "pebble".
	Name string
	// Module is the Go module of the engine, by which its version is found.
	Module string
	// Build says which build of a library this is that does not come with the module; "".
	Build string
	// Encodings it has, the first one being the usual one for rows; Plain, which
	// all have, is among them.
	Encodings []Encoding
	// Tunings are settings beside those that its own authors recommend; each of them is
	// run on every encoding.
	Tunings []Tuning
	// LSM: a log-structured merge tree, so it takes part in "the best LSM peer".
	LSM bool
	// Parks: a goroutine whose read waits for the device leaves its processor of Go's to others.
	// In an engine that waits in a call, the thread keeps it for 20 us and more.
	Parks bool
	// Factor is by what its throughput is to be multiplied when it stands for
	// the best peer; 1 for all but Debian's RocksDB.
	Factor float64
	// Unsynced says which bytes of an acknowledged write survive when the process
	// is killed, without Config.Sync.
	Unsynced string
	// IsLog says whether a file of that name belongs to the engine's write-ahead log,
	// files prepared for it included; nil if there is none.
	IsLog func(name string) bool
	// Open opens the store in Config.Dir and makes it if it is not there. The
	// directory exists.
	Open func(Config) (Store, error)
}

// Store is an open store. Its methods are safe for concurrent use, except that
// Close comes last and alone.
//
// To measure with cold caches, call DropPageCache before it is opened and after.
type Store interface {
	// Session makes what one goroutine works with.
	Session() (Session, error)
	// Settle returns when everything written is in table files, as far as the
	// engine can be told, and background work is over; and what it took to learn
	// that.
	Settle() (Asking, error)
	// Compact merges all table files with what the engine offers for it, and
	// settles: then reads do not depend on how much is yet to be merged.
	Compact() error
	// Reclaim gives the space of expired, surplus and deleted data back by
	// whatever the engine offers, and settles.
	Reclaim() error
	// SplitPoints returns row keys, ascending, that divide the store into pieces
	// of about so many bytes.
	SplitPoints(pieceBytes int64) ([][]byte, error)
	Stats() Stats
	Close() error
}

// Stats are the engine's own figures, 0 where it has none.
type Stats struct {
	Flushed                int64 // bytes of table files written by flushes
	Compacted              int64 // bytes of table files written by compactions
	Logged                 int64 // bytes written to the log
	CacheHits, CacheMisses int64
}

// Cell is one version of a column.
type Cell struct {
	Column  []byte
	Version int64 // milliseconds
	Value   []byte
}

// Query selects what a read wants of a row.
type Query struct {
	// Columns, ascending; nil is all.
	Columns [][]byte
	// MaxVersions is how many of the newest versions of each column; 0 is all
	// that are kept.
	MaxVersions int
}

// Session is what one goroutine reads and writes with. It may keep buffers,
// batches and iterators. What a call takes is not modified and not kept; what it
// returns in a Row is valid until the next call on the same Session.
//
// Rows exist while they have a visible cell. Cells are sorted by column, then by
// version, descending, in what calls take and in what they return. Every byte
// of a returned cell has been copied out of the engine's memory.
type Session interface {
	// Put replaces the row.
	Put(key []byte, cells []Cell) error
	// Update adds cells to the row: a cell of the same column and version is
	// replaced. It does not read where the encoding allows that.
	Update(key []byte, cells []Cell) error
	// PutBatch puts rows with different keys, atomically.
	PutBatch(rows []Row) error
	// Get reads a row; false if none of its cells is selected.
	Get(key []byte, q Query, into *Row) (bool, error)
	// Scan visits rows from start, inclusive, to end, exclusive (nil: no bound),
	// at most limit of them (0: no limit), until visit returns false. Rows
	// without a selected cell are left out and not counted. visit must not use
	// the session.
	Scan(start, end []byte, q Query, limit int, visit func(*Row) bool) error
	// GetPage reads the newest cell of each of the first limit columns from
	// fromColumn, inclusive, on. An empty answer is the end of the row.
	GetPage(key, fromColumn []byte, limit int, into *Row) error
	// Delete deletes the row.
	Delete(key []byte) error
	Close() error
}
