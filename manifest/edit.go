package manifest

// Edit is a version edit: a list of changes that take effect together. It is one record of the
// log, and a crash leaves all of it or nothing. The zero Edit is empty and ready to use.
//
// Apply takes the changes in the order of the fields. In a level, it deletes files before it adds
// files, so that one edit can move a file between levels.
//
// The slices and pointers of an Edit become part of the State and must not be modified afterwards.
type Edit struct {
	nextFile uint64 // raises State.NextFile to at least this; set by Commit
	// MinLog says that log segments below it are not needed any more. The largest one ever given
	// counts.
	MinLog uint64
	// NewestLog says where the log ends. An end in a segment older than the state's is ignored.
	NewestLog LogEnd
	// LastSeq raises the floor for the last sequence number to at least this.
	LastSeq uint64
	// Clock replaces the trusted clock; nil leaves it.
	Clock *TrustedClock
	// Issued raises the floor for the hybrid clock to at least this; nil leaves it.
	Issued *int64
	// SeqTimes are more points of the map from sequence numbers to time. A point that is not above
	// the newest recorded one in both is dropped, which is always safe.
	SeqTimes []SeqTime
	// Values are new value files. The same edit must add a table file that refers to each. A
	// value file is removed with the last such table file.
	Values []ValueAddition
	// Created are new tables. Their ids and those of their partitions must be at or above
	// State.NextTable and State.NextPartition, which rise above them.
	Created []*Table
	Altered []Alteration
	// Dropped are the ids of tables that are removed, with all their references to files. The
	// same edit must drop a table's change logs.
	Dropped  []uint64
	Replaced []*Replacement
	// Cuts are the ids of partitions whose starts become cuts that a user asked for.
	Cuts    []uint64
	Deleted []Deletion
	Added   []Addition
	Flushed []Flush
	// Services freeze partitions and let them serve again.
	Services []ServiceChange
	// Watermarks raise the expiry watermarks of tables. A watermark belongs in the same edit as
	// the first drop that used it.
	Watermarks []Watermark
	// PastLimits belong in the edit that lowers the table's limit.
	PastLimits []TableLimit
	Ended      []LogEnding
	// External raises what a store with an external log knows of it; nil leaves it. Other stores refuse
	// it.
	External *External
	// Keep changes which part of the log is kept; nil leaves it.
	Keep *LogKeeping
}

// Alteration replaces the options and the annotations of a table.
type Alteration struct {
	Table       uint64
	Options     TableOptions
	Annotations []byte
}

// Replacement replaces neighbouring partitions of a table by others that cover the same range: a
// split replaces one by two, a merge two by one. The new partitions have new ids (at or above
// State.NextPartition), larger epochs, and a FlushedSeq of at most the smallest of those they
// replace. Where an old and a new partition share keys they must list the same files at the same
// levels. So a merge is refused if its partitions still share a file that one of them has
// compacted away, since the file would bring back what that partition has dropped: compact first.
//
// A partition that is Detached shares no files with those that it replaces or that replace it: its data
// has gone to another store, or comes from one. Data that comes leaves one point in State.SeqTimes,
// at its edit, because its sequence numbers were given out by the other store at other times.
type Replacement struct {
	Table uint64
	Old   []uint64
	New   []*Partition
	// After is the sequence number at which the old partitions end: mutations of the table up to
	// it went to them, and those above it go to the new ones. It raises the floor for the last
	// sequence number. The shards of the table's change log are cut there.
	After uint64
}

// ServiceChange makes a partition Serving or Frozen, for a reason. Partitions are detached, and get their
// data back, by a Replacement.
type ServiceChange struct {
	Partition uint64
	Service   Service
	Reason    string
}

// Deletion removes a file from a level of a partition. The file stays live while another
// partition refers to it, see State.File.
type Deletion struct {
	Partition uint64
	Level     int
	Number    uint64
}

// Addition adds a file to a level of a partition. Another partition of the table may refer to the
// same file, with an equal description.
type Addition struct {
	Partition uint64
	Level     int
	File      *FileMeta
}

// ValueAddition adds a value file to a table.
type ValueAddition struct {
	Table uint64
	File  *ValueFile
}

// Flush says that a partition's files, including those the same edit adds, hold all its writes up
// to a sequence number.
type Flush struct{ Partition, Seq uint64 }

// Watermark raises the expiry watermark of a table to at least Cutoff, in seconds.
type Watermark struct {
	Table  uint64
	Cutoff int64
}

// TableLimit adds to a table's past limits.
type TableLimit struct {
	Table uint64
	PastLimit
}

// LogEnding ends a change log: mutations of its table above Until do not belong to it.
type LogEnding struct{ Log, Until uint64 }
