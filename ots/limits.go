package ots

// This file holds every limit of the protocol (PROTOCOL section 12), in the two editions in
// use.

// Limits are the numbers that requests are checked against. Zero means "not limited" where a
// field says so.
type Limits struct {
	// Instances.
	Instances            int // per account
	InstanceNameMinBytes int
	InstanceNameMaxBytes int

	// Tables.
	Tables                int // per instance
	TableNameBytes        int
	KeyColumns            int
	DefinedColumns        int
	ReservedUnits         int32 // largest reserved throughput of a table, read or write
	DefaultVersionOffset  int64 // seconds; for tables that do not set it
	MaxVersionOffset      int64 // seconds
	ThroughputInterval    int64 // seconds between two changes of reserved throughput; see EnforceRates
	TableOperationsPerSec int   // see EnforceRates
	Partitions            int   // of a table, as CreateTable asks for them
	PartitionBoundBytes   int   // of a string or binary value between two such partitions
	// EnforceRates turns on the two rate limits above. They protect a shared service; on a
	// local one they only make test suites wait.
	EnforceRates bool

	// EnforceThroughput turns on the limit of PartitionKeyUnits.
	EnforceThroughput bool
	// InstanceUnits are the capacity units per second of an instance; 0: not limited.
	InstanceUnits int64
	// ReservedOnly refuses requests to a table that has used up its reserved units of a second,
	// if it has any. Otherwise the excess counts as additional.
	ReservedOnly bool

	// Rows.
	ColumnNameLength int // bytes, or characters with LooseColumnNames
	// LooseColumnNames allows all valid UTF-8 without control characters in column names,
	// except for a leading '#', instead of letters, digits and underscores only.
	LooseColumnNames bool
	KeyColumnBytes   int // of one string or binary key column
	AttributeBytes   int // of one string or binary attribute
	ColumnsPerWrite  int // distinct attribute columns in one row change
	WriteRowBytes    int // data of one PutRow or UpdateRow; 0: not limited
	ColumnsToGet     int // distinct names

	// DoubleIncrements allows atomic increments of DOUBLE columns by DOUBLE values.
	DoubleIncrements bool

	// Batches and ranges. The row limit of a batch also bounds its table entries.
	BatchGetRows    int
	BatchWriteRows  int
	BatchWriteBytes int
	RangeRows       int // rows scanned for one page of GetRange
	RangeBytes      int // bytes scanned for one page
	// RangeCells bounds the cells examined for one page, visible or not. So a range full of
	// deleted data answers with a page and a position to continue from, instead of a timeout.
	// It is this server's own limit.
	RangeCells int64
	// ReadRowBytes bounds the memory of one row that is read: the names and values of its
	// selected cells, and about a hundred bytes for each. A larger row is refused with
	// OTSOutOfRowSizeLimit; a client can read it in parts, by columns. 0: not limited.
	ReadRowBytes int64
	// BatchGetBytes bounds the answer of one BatchGetRow: rows beyond it get OTSServerBusy, and
	// SDKs ask again for just these.
	BatchGetBytes int64

	// Requests.
	RequestBytes int // of an HTTP body

	// Filters and conditions.
	FilterConditions int // comparisons in one filter; 0: only FilterNodes limits
	FilterNodes      int // comparisons and composites of one filter, at most MaxFilterNodes
	FilterRegexBytes int // of a value transfer rule

	// Streams, throughput, transactions.
	StreamExpirationHours int32
	// StreamRecords and StreamBytes (of memory of keys and cells) bound one answer of
	// GetStreamRecord. They are this server's own limits.
	StreamRecords      int
	StreamBytes        int64
	PartitionKeyUnits  int64 // capacity units per second of one partition key; see EnforceThroughput
	TransactionSeconds int64 // lifetime of a local transaction
	TransactionBytes   int
}

const (
	kilobyte = 1 << 10
	megabyte = 1 << 20
)

// MaxBatchGetRows and MaxBatchWriteRows are the largest numbers of rows, and of table entries,
// of batches in every edition of the limits. Decoders may stop there.
const (
	MaxBatchGetRows   = 100
	MaxBatchWriteRows = 200
)

// Documented returns the limits of the documents that define the product, the default.
func Documented() Limits {
	return Limits{
		Instances:            10,
		InstanceNameMinBytes: 3,
		InstanceNameMaxBytes: 16,

		Tables:                64,
		TableNameBytes:        255,
		KeyColumns:            4,
		DefinedColumns:        32,
		ReservedUnits:         5000,
		DefaultVersionOffset:  86400,
		MaxVersionOffset:      maxTimestamp / 1000,
		ThroughputInterval:    120,
		TableOperationsPerSec: 10,
		Partitions:            10,
		PartitionBoundBytes:   64,

		ColumnNameLength: 255,
		KeyColumnBytes:   1 * kilobyte,
		AttributeBytes:   2 * megabyte,
		ColumnsPerWrite:  1024,
		ColumnsToGet:     128,

		BatchGetRows:    MaxBatchGetRows,
		BatchWriteRows:  MaxBatchWriteRows,
		BatchWriteBytes: 4 * megabyte,
		RangeRows:       5000,
		RangeBytes:      4 * megabyte,
		RangeCells:      1_000_000,
		ReadRowBytes:    32 * megabyte,
		BatchGetBytes:   32 * megabyte,

		RequestBytes: 5 * megabyte,

		FilterConditions: 10,
		FilterNodes:      MaxFilterNodes,
		FilterRegexBytes: 256,

		StreamExpirationHours: 24,
		StreamRecords:         1000,
		StreamBytes:           4 * megabyte,
		PartitionKeyUnits:     10000,
		TransactionSeconds:    60,
		TransactionBytes:      4 * megabyte,
	}
}

// Current returns the limits of the service as its newer documentation and the official SDK
// test suites show them.
func Current() Limits {
	l := Documented()
	l.ReservedUnits = 100000
	l.LooseColumnNames = true
	l.WriteRowBytes = 4 * megabyte
	l.DoubleIncrements = true
	l.ColumnsToGet = 1024
	l.FilterConditions = 0
	l.StreamExpirationHours = 168
	return l
}
