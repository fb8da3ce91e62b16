package manifest

// The immutable State: tables, partitions and files at one moment.

import (
	"bytes"
	"cmp"
	"iter"
	"math"
	"slices"
	"sort"

	"github.com/flagstone-db/flagstone/row"
)

// NumLevels is the number of levels of a partition. Level 0 holds flushed
// files, which may overlap; the files of a deeper level are disjoint.
const NumLevels = 7

const (
	// maxTableNameBytes bounds the name of a table; front ends allow less.
	maxTableNameBytes = 512
	// maxKeyColumnNameBytes bounds the name of a primary-key column.
	maxKeyColumnNameBytes = 512
	// MaxSeqTimes bounds State.SeqTimes.
	MaxSeqTimes = 1024
	// maxPastLimits bounds Table.PastLimits.
	maxPastLimits = 8
	// MaxReasonBytes bounds Partition.Reason.
	MaxReasonBytes = 512
	// NoWatermark is the Watermark of a table of which nothing was dropped as expired, and the
	// IssuedMillis of a store whose clock never ran.
	NoWatermark int64 = math.MinInt64
	// NeverExpires is the TTLSeconds of a table whose cells do not expire.
	NeverExpires int64 = -1
)

// State is everything the manifest knows at one moment. It is immutable: Apply returns a new
// State that shares what did not change, so a reader may keep a State as long as it likes.
// Callers must not modify anything reachable from it.
type State struct {
	StoreID [16]byte // made once, when the store is created
	// NextFile, NextTable and NextPartition are above every number ever used.
	NextFile      uint64
	NextTable     uint64
	NextPartition uint64
	// MinLog is the first log segment that is still needed.
	MinLog uint64
	// NewestLog is what is known about the end of the log.
	NewestLog LogEnd
	// External is set if the log of the store belongs to another program.
	External *External
	// Kept says what is kept of the log beyond that.
	Kept KeptLog
	// Origin is set in a checkpoint.
	Origin LogOrigin
	// LastSeq is a floor for the last sequence number assigned: at least that of every file,
	// flush and SeqTime.
	LastSeq uint64
	// IssuedMillis is a floor for the hybrid clock.
	IssuedMillis int64
	// Clock decides what data may be dropped as expired.
	Clock TrustedClock
	// SeqTimes is a coarse map from sequence numbers to time, ascending in both, with at most
	// MaxSeqTimes points. Older points are sparser.
	SeqTimes []SeqTime
	// Tables are in ascending order of their ids.
	Tables []*Table

	files  index[fileRef] // by file number
	owners index[owner]   // by partition id
	values index[ValueUsage]
}

// LogEnd is what the store remembers about the end of its log, so that it notices the loss of
// the newest segment, or of the end of a closed one.
type LogEnd struct {
	Segment uint64 // the newest segment known to be part of the log; 0: none
	// Offset is where the segment ends, in bytes, if the log was closed properly, else 0.
	// Records and Chain are its number of records and the checksum over its frames.
	Offset         int64
	Records, Chain uint64
}

// LogPoint is a place behind an entry of an external log, with what follows from all entries up to it.
type LogPoint struct {
	Index  uint64 // of the entry; 0 is before the first one
	Seq    uint64 // the last sequence number
	Micros int64  // the time of the log, in microseconds
	Fence  uint64 // index of the last entry behind which writes had to be worked out again
}

// External is what a store knows of the log that another program keeps for it.
type External struct {
	LogPoint // the table files hold everything up to it
	// Highest is the largest index of an entry of which the catalogue or the table files may have
	// something. The catalogue has the effects of every entry up to it.
	Highest uint64
}

// raise returns the later knowledge of two, either of which may be partly older.
func (x External) raise(other *External) *External {
	if other.Index > x.Index {
		x.LogPoint = other.LogPoint
	}
	x.Highest = max(x.Highest, other.Highest)
	return &x
}

// check refuses knowledge that no store has.
func (x *External) check(lastSeq uint64) error {
	if x.Index > x.Highest || x.Fence > x.Index || x.Seq > lastSeq {
		return invalid("the external log at index %d with fence %d, highest %d, sequence number %d", x.Index, x.Fence, x.Highest, x.Seq)
	}
	return nil
}

// KnownSegment is the log segment that must exist, 0 if none was ever recorded: a new store may
// have crashed before its first segment.
func (s *State) KnownSegment() uint64 {
	if s.MinLog <= 1 {
		return 0
	}
	return s.MinLog
}

// owner says where a partition is.
type owner struct {
	table uint64
	start []byte // of the partition
}

// fileRef is an entry of the index of live files.
type fileRef struct {
	meta  *FileMeta
	table uint64
	refs  int // partitions that refer to the file, at least 1
}

// SeqTime says that every write with a sequence number up to Seq was made at
// or before the clock reading Millis.
type SeqTime struct {
	Seq    uint64
	Millis int64
}

// TrustedClock is the time by which data may be dropped, and the wall clock's probation, if that
// clock is ahead. All values are in milliseconds.
type TrustedClock struct {
	// Millis is the trusted time since the epoch. It begins at 0, and falls when the wall clock
	// does.
	Millis int64
	// Ahead is the least lead of the wall clock over Millis during its probation; 0 if there is
	// none.
	Ahead int64
	// Stood is how long the store has run in that probation.
	Stood int64
}

// Table is one table of the catalogue.
type Table struct {
	ID      uint64 // never used again, even after the table is dropped
	Name    string // 1 to maxTableNameBytes bytes of UTF-8 without NUL
	Key     []KeyColumn
	Options TableOptions
	// LargestOffset is the largest MaxVersionOffsetSeconds that the table ever had. It bounds
	// the versions of cells written in the past.
	LargestOffset int64
	// Watermark is the largest expiry cutoff, in seconds, ever used to drop anything of this
	// table; NoWatermark if nothing was dropped.
	Watermark     int64
	CreatedMillis int64
	// PastLimits are larger limits of versions that the table had, falling in MaxVersions and
	// rising in LastSeq; at most maxPastLimits.
	PastLimits []PastLimit
	// Annotations belong to the front end; the engine only stores them.
	Annotations []byte
	// Log is set if the table is the change log of another one.
	Log *ChangeLog
	// Partitions cover the key space exactly once, in ascending order.
	Partitions []*Partition
}

// PastLimit says that mutations with sequence numbers up to LastSeq may have been made while a
// table showed up to MaxVersions versions. A compaction below such mutations keeps as many: a
// delete of one version, made under a larger limit, counts on more versions below it than the
// present limit shows.
type PastLimit struct {
	MaxVersions int64
	LastSeq     uint64
}

// KeyColumn is one column of a primary key.
type KeyColumn struct {
	Name          string
	Type          row.Type // integer, string or binary
	AutoIncrement bool
}

// TableOptions are the properties of a table that can be altered.
type TableOptions struct {
	MaxVersions             int64 // at least 1
	TTLSeconds              int64 // above 0, or NeverExpires
	MaxVersionOffsetSeconds int64 // at least 0
}

// Partition is one key range of a table, the unit of the LSM tree.
type Partition struct {
	ID uint64 // never used again
	// Start and End bound the row keys, Start included, End excluded; nil is unbounded. No bound
	// lies inside a partition-key value.
	Start, End []byte
	// Epoch rises with every split or merge of the range, and whenever its Service changes.
	Epoch uint64
	// FlushedSeq says that the partition's files hold all its writes up to this sequence number.
	FlushedSeq uint64
	// Cut says that a user asked for a cut at Start. UserCut is what counts.
	Cut bool
	// Service says what the partition serves, and Reason why it does not serve all: text for people of at
	// most MaxReasonBytes.
	Service Service
	Reason  string
	// Levels hold the files: level 0 ascending by (LargestSeq, Number), every other level
	// disjoint and ascending by key. A file that is shared with a neighbour after a split
	// reaches beyond the partition; only its rows inside [Start, End) count.
	Levels [NumLevels][]*FileMeta
}

// Service is what a partition serves.
type Service int

const (
	// Serving: reads and writes.
	Serving Service = iota
	// Frozen: reads, and no writes.
	Frozen
	// Detached: nothing. Another store has the rows; the partition has no files.
	Detached
)

// FileMeta describes one table file.
type FileMeta struct {
	Number   uint64
	UniqueID [16]byte // stored in the file, part of its block checksums
	Size     int64
	Checksum uint64 // xxhash64 of all bytes of the file
	// Smallest and Largest are the first and the last row key.
	Smallest, Largest []byte
	// SmallestSeq and LargestSeq bound the sequence numbers.
	SmallestSeq, LargestSeq uint64
	// MinVersion and MaxVersion bound the finite versions. Permanent says that there are row
	// markers that never expire.
	MinVersion, MaxVersion int64
	Permanent              bool
	// NewestTombstone is the largest sequence number of a tombstone, or 0.
	NewestTombstone uint64
	// Counts of what the file holds; Puts and Tombstones are among Cells.
	Rows, Cells, Puts, Tombstones uint64
	CreatedMillis                 int64
	// Values say which value files the cells refer to, in ascending order.
	Values []ValueUse
	// SeqOffset is what a reader adds to each sequence number that the file holds: a file that was written
	// before its rows had a place among the writes has small ones. SmallestSeq, LargestSeq and NewestTombstone
	// include it.
	SeqOffset uint64
}

// ValueUse says how much of a value file one table file's cells refer to.
type ValueUse struct {
	File   uint64 // number of the value file
	Values uint64
	Bytes  uint64 // of their records
}

// ValueFile describes one value file. It lives as long as a live table file refers to it: the
// edit that removes the last such table file removes it too.
type ValueFile struct {
	Number        uint64
	UniqueID      [16]byte // stored in the file, part of its checksums
	Size          int64
	Checksum      uint64 // of the file's footer, which covers everything
	Values        uint64
	Bytes         uint64 // of all its records
	CreatedMillis int64
}

// ValueUsage is a value file and how much of it is alive.
type ValueUsage struct {
	*ValueFile
	Table uint64
	Files int // live table files that refer to it
	// Live is how many bytes these files refer to. After a split of a partition two files may
	// refer to one value, so it may be too large, never too small.
	Live uint64
}

// Garbage is how many bytes of records no live table file refers to.
func (u ValueUsage) Garbage() uint64 { return u.Bytes - min(u.Live, u.Bytes) }

// NewState returns the state of a store that holds nothing.
func NewState(storeID [16]byte) *State {
	return &State{
		StoreID: storeID, NextFile: 1, NextTable: 1, NextPartition: 1,
		MinLog: 1, IssuedMillis: NoWatermark,
	}
}

// Table returns the table with this id, or nil.
func (s *State) Table(id uint64) *Table {
	if i, ok := s.tableIndex(id); ok {
		return s.Tables[i]
	}
	return nil
}

func (s *State) tableIndex(id uint64) (int, bool) {
	return slices.BinarySearchFunc(s.Tables, id, func(t *Table, id uint64) int {
		return cmp.Compare(t.ID, id)
	})
}

// File returns the description of a live file, to which at least one partition refers. It
// returns nil for any other number.
func (s *State) File(number uint64) *FileMeta {
	ref, _ := s.files.get(number)
	return ref.meta
}

// ValueFile returns a live value file and its usage; false for any other number.
func (s *State) ValueFile(number uint64) (ValueUsage, bool) {
	return s.values.get(number)
}

// ValueFiles walks the live value files in ascending order of their numbers.
func (s *State) ValueFiles() iter.Seq[ValueUsage] { return s.values.all() }

// SeqAtOrBefore returns a sequence number up to which every write was made at or before the
// clock reading millis: the largest recorded one, or 0. It errs on the small side, since the
// record is coarse.
func (s *State) SeqAtOrBefore(millis int64) uint64 {
	i := sort.Search(len(s.SeqTimes), func(i int) bool { return s.SeqTimes[i].Millis > millis })
	if i == 0 {
		return 0
	}
	return s.SeqTimes[i-1].Seq
}

// Partition returns the partition with this id and its table, or nils.
func (s *State) Partition(id uint64) (*Table, *Partition) {
	found, ok := s.owners.get(id)
	if !ok {
		return nil, nil
	}
	t := s.Table(found.table)
	return t, t.Partitions[t.partitionAt(found.start)]
}

// partitionAt returns the place of the partition that begins at a key.
func (t *Table) partitionAt(start []byte) int {
	at, _ := slices.BinarySearchFunc(t.Partitions, start, func(p *Partition, start []byte) int {
		return bytes.Compare(p.Start, start)
	})
	return at
}

// Overlaps reports whether the partition's range holds any key of the closed
// range from smallest to largest.
func (p *Partition) Overlaps(smallest, largest []byte) bool {
	return bytes.Compare(p.Start, largest) <= 0 && endsAbove(p.End, smallest)
}

// Holds reports whether all keys of the file lie in the partition's range.
func (p *Partition) Holds(f *FileMeta) bool {
	return bytes.Compare(p.Start, f.Smallest) <= 0 && endsAbove(p.End, f.Largest)
}

// endsAbove reports whether a partition with this end reaches above the key.
func endsAbove(end, key []byte) bool { return len(end) == 0 || bytes.Compare(end, key) > 0 }
