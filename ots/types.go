package ots

import (
	"context"

	"github.com/flagstone-db/flagstone/row"
)

// Service is the API that a protocol front end (package server) calls: one method per operation
// of PROTOCOL sections 2.3 to 2.5. Every error for a request is an *Error; rows that fail
// inside a batch carry their own. Methods are safe for concurrent use.
type Service interface {
	CreateTable(ctx context.Context, instance string, req *CreateTableRequest) error
	ListTable(ctx context.Context, instance string) ([]string, error)
	DescribeTable(ctx context.Context, instance, table string) (*TableDescription, error)
	UpdateTable(ctx context.Context, instance string, req *UpdateTableRequest) (*TableDescription, error)
	DeleteTable(ctx context.Context, instance, table string) error
	ComputeSplitPointsBySize(ctx context.Context, instance string, req *SplitPointsRequest) (*SplitPointsResponse, error)

	GetRow(ctx context.Context, instance string, req *GetRowRequest) (*ReadResult, error)
	GetRange(ctx context.Context, instance string, req *GetRangeRequest) (*GetRangeResponse, error)
	BatchGetRow(ctx context.Context, instance string, req *BatchGetRowRequest) (*BatchGetRowResponse, error)
	// WriteRow is PutRow, UpdateRow or DeleteRow, by the change's type.
	WriteRow(ctx context.Context, instance string, req *WriteRowRequest) (*WriteResult, error)
	BatchWriteRow(ctx context.Context, instance string, req *BatchWriteRowRequest) (*BatchWriteRowResponse, error)

	// StartLocalTransaction returns the id that requests name to join the transaction.
	StartLocalTransaction(ctx context.Context, instance string, req *StartTransactionRequest) (string, error)
	CommitTransaction(ctx context.Context, instance, id string) error
	AbortTransaction(ctx context.Context, instance, id string) error

	// ListStream lists the streams of a table, or of all tables if the name is empty.
	ListStream(ctx context.Context, instance, table string) ([]StreamSummary, error)
	DescribeStream(ctx context.Context, instance string, req *DescribeStreamRequest) (*StreamDescription, error)
	// GetShardIterator returns an opaque string.
	GetShardIterator(ctx context.Context, instance string, req *GetShardIteratorRequest) (string, error)
	GetStreamRecord(ctx context.Context, instance string, req *GetStreamRecordRequest) (*GetStreamRecordResponse, error)

	TunnelService
}

// CapacityUnit is the cost of an operation (PROTOCOL section 13), in units of 4096 bytes.
type CapacityUnit struct{ Read, Write int32 }

// KeyColumn is one column of a table's primary key. Type is row.TypeNone for a type that the
// protocol knows but keys may not have.
type KeyColumn struct {
	Name          string
	Type          row.Type
	AutoIncrement bool
}

// DefinedColumn is a predefined attribute column. It is stored and described, and not enforced.
type DefinedColumn struct {
	Name string
	Type row.Type
}

// TableOptions are the options of a request; a nil field was not given.
type TableOptions struct {
	TimeToLive       *int32 // seconds, -1 never
	MaxVersions      *int32
	MaxVersionOffset *int64 // seconds; deviation_cell_version_in_sec
	AllowUpdate      *bool
	UpdateFullRow    *bool
	BloomFilterType  *int32 // accepted and described, no effect
	BlockSize        *int32 // the same
}

// ReservedThroughput is in capacity units; a nil field was not given.
type ReservedThroughput struct{ Read, Write *int32 }

// StreamSpecification asks for a change stream.
type StreamSpecification struct {
	Enable          bool
	ExpirationHours *int32
	ColumnsToGet    []string
}

// CreateTableRequest is PROTOCOL 2.3 CreateTable.
type CreateTableRequest struct {
	Table              string
	PrimaryKey         []KeyColumn
	DefinedColumns     []DefinedColumn
	Options            *TableOptions
	ReservedThroughput ReservedThroughput
	Stream             *StreamSpecification
	EnableLocalTxn     *bool
	Partitions         []PartitionRange // of the new table, ascending; none stands for one that has all keys
	HasIndexes         bool             // secondary indexes were asked for: not offered
	HasSSE             bool             // encryption was asked for: not offered
}

// PartitionRange is a partition by the values of the first key column: Begin included, End excluded.
// They may be row.Min and row.Max.
type PartitionRange struct{ Begin, End row.Value }

// UpdateTableRequest is PROTOCOL 2.3 UpdateTable; a nil part stays unchanged.
type UpdateTableRequest struct {
	Table              string
	Options            *TableOptions
	ReservedThroughput *ReservedThroughput
	Stream             *StreamSpecification
}

// TableDescription is the full state of a table.
type TableDescription struct {
	Table              string
	PrimaryKey         []KeyColumn
	DefinedColumns     []DefinedColumn
	TimeToLive         int32
	MaxVersions        int32
	MaxVersionOffset   int64
	AllowUpdate        bool
	UpdateFullRow      bool
	BloomFilterType    *int32
	BlockSize          *int32
	ReservedRead       int32
	ReservedWrite      int32
	LastIncreaseTime   int64 // seconds
	LastDecreaseTime   int64 // seconds, 0: never
	CreationTimeMicros int64
	EnableLocalTxn     *bool
	Stream             *StreamDetails // nil: no stream
	Splits             [][]KeyValue   // where the table is divided into partitions, ascending
}

// SplitPointsRequest is PROTOCOL section 10.
type SplitPointsRequest struct {
	Table      string
	SplitSize  int64
	UnitBytes  *int64
	PointLimit *int32
}

// SplitPointsResponse holds n-1 points for n splits. A point is a key prefix; its missing
// columns stand for the minimum.
type SplitPointsResponse struct {
	PrimaryKey []KeyColumn
	Points     [][]KeyValue
	Locations  []SplitLocation // run-length list; Repeat sums to n
	Consumed   CapacityUnit
}

// SplitLocation says where Repeat neighbouring splits are stored.
type SplitLocation struct {
	Location string // 32 hexadecimal characters
	Repeat   int64
}

// KeyValue is one named primary-key column of a request or an answer. Besides the key types,
// Value may be Min or Max (bounds), or none if AutoIncrement is set. A type that keys may not
// have is kept, to be refused later.
type KeyValue struct {
	Name          string
	Value         row.Value
	AutoIncrement bool
}

// CellOp is the operation of a cell in a row change; the numbers are the protocol's (3.1).
type CellOp uint8

// Cell operations.
const (
	OpPut              CellOp = 0
	OpDeleteAllVersion CellOp = 1
	OpDeleteOneVersion CellOp = 3
	OpIncrement        CellOp = 4
)

// Cell is an attribute cell of a request or a response.
type Cell struct {
	Name       string
	Value      row.Value // TypeNone: no value was given
	Op         CellOp
	Version    int64 // milliseconds
	HasVersion bool
}

// Row is a decoded row: of a request, with operations, or of a response.
type Row struct {
	Key          []KeyValue
	Cells        []Cell
	DeleteMarker bool
}

// RowExistence is the condition of a write on the row's existence (PROTOCOL section 4.6).
type RowExistence uint8

// Row existence expectations; the numbers are the protocol's.
const (
	ExistenceIgnore    RowExistence = 0
	ExistenceExpect    RowExistence = 1
	ExistenceExpectNot RowExistence = 2
)

// ChangeType says what a row change is; the numbers are the protocol's.
type ChangeType uint8

// Change types.
const (
	ChangePut    ChangeType = 1
	ChangeUpdate ChangeType = 2
	ChangeDelete ChangeType = 3
)

// ReturnType says what a write returns (PROTOCOL section 4.7).
type ReturnType uint8

// Return types; the numbers are the protocol's.
const (
	ReturnNone        ReturnType = 0
	ReturnPK          ReturnType = 1
	ReturnAfterModify ReturnType = 2
)

// RowChange is one write of one row.
type RowChange struct {
	Type            ChangeType
	Row             Row
	Existence       RowExistence
	ColumnCondition *Filter // nil: none
	Return          ReturnType
	ReturnColumns   []string

	condition *predicate // compiled from ColumnCondition by the check
}

// WriteRowRequest is PutRow, UpdateRow or DeleteRow.
type WriteRowRequest struct {
	Table         string
	Change        RowChange
	TransactionID *string
}

// WriteResult is the outcome of one write.
type WriteResult struct {
	Consumed CapacityUnit
	Row      *Row // as Return asks; nil: nothing
}

// BatchWriteRowRequest is PROTOCOL 6.7.
type BatchWriteRowRequest struct {
	Tables        []TableChanges
	TransactionID *string
	Atomic        bool
}

// TableChanges are the changes of one table entry of a batch.
type TableChanges struct {
	Table   string
	Changes []RowChange
}

// BatchWriteRowResponse mirrors the request: same tables, same rows.
type BatchWriteRowResponse struct{ Tables []TableWriteResults }

// TableWriteResults mirrors one TableChanges.
type TableWriteResults struct {
	Table string
	Rows  []RowWriteResult
}

// RowWriteResult is a result or, if Err is set, a refusal.
type RowWriteResult struct {
	WriteResult
	Err *Error
}

// TimeRange is in milliseconds; a nil field was not given.
type TimeRange struct{ Start, End, Specific *int64 }

// Selection is the part that GetRow, BatchGetRow and GetRange share.
type Selection struct {
	ColumnsToGet  []string
	MaxVersions   *int32
	TimeRange     *TimeRange
	StartColumn   *string
	EndColumn     *string
	Filter        *Filter // nil: none
	Token         []byte
	TransactionID *string
}

// GetRowRequest is PROTOCOL 2.4 GetRow.
type GetRowRequest struct {
	Table string
	Row   Row // the key and nothing else
	Selection
}

// ReadResult is the result of reading one row; Row is nil if there is none.
type ReadResult struct {
	Row      *Row
	Consumed CapacityUnit
}

// BatchGetRowRequest is PROTOCOL 5.7.
type BatchGetRowRequest struct{ Tables []TableGets }

// TableGets are the rows to read of one table entry of a batch.
type TableGets struct {
	Table string
	Rows  []Row
	Selection
}

// BatchGetRowResponse mirrors the request: same tables, same rows.
type BatchGetRowResponse struct{ Tables []TableReadResults }

// TableReadResults mirrors one TableGets.
type TableReadResults struct {
	Table string
	Rows  []RowReadResult
}

// RowReadResult is a result or, if Err is set, a refusal.
type RowReadResult struct {
	ReadResult
	Err *Error
}

// GetRangeRequest is PROTOCOL 5.6.
type GetRangeRequest struct {
	Table                   string
	Backward                bool
	Limit                   *int32
	Start, End              Row // inclusive start, exclusive end
	ReturnEntirePrimaryKeys *bool
	Selection
}

// GetRangeResponse is one page. Next is nil when the range is exhausted.
type GetRangeResponse struct {
	Rows     []Row
	Next     []KeyValue
	Consumed CapacityUnit
}
