package manifest

// Edit is a version edit: a list of changes that take effect together. It is one record of the
// log, and a crash leaves all of it or nothing. The zero Edit is empty and ready to use.
//
// The order in which its methods are called does not matter. Apply takes value files first and
// the other changes in the order of Edit's fields. In a level, it deletes files before it adds
// files, so that one edit can move a file between levels.
//
// An Edit keeps the slices and pointers it is given: they become part of the State and must not
// be modified afterwards.
type Edit struct {
	nextFile uint64
	minLog   uint64
	newest   LogEnd
	lastSeq  uint64
	issued   *int64
	seqTimes []SeqTime

	created    []*Table
	altered    []alteration
	dropped    []uint64
	replaced   []*replacement
	deleted    []deletion
	added      []addition
	flushed    []flush
	watermarks []watermark
	pastLimits []pastLimit
	values     []valueAddition
	ended      []logEnd

	clock *TrustedClock
}

type alteration struct {
	table       uint64
	options     TableOptions
	annotations []byte
}

type replacement struct {
	table uint64
	old   []uint64
	new   []*Partition
}

type deletion struct {
	partition uint64
	level     int
	number    uint64
}

type addition struct {
	partition uint64
	level     int
	file      *FileMeta
}

type valueAddition struct {
	table uint64
	file  *ValueFile
}

type flush struct {
	partition uint64
	seq       uint64
}

type watermark struct {
	table  uint64
	cutoff int64
}

type pastLimit struct {
	table uint64
	limit PastLimit
}

// setNextFile raises the next file number to at least n. Commit does so itself for numbers from
// Log.NewFileNumber.
func (e *Edit) setNextFile(n uint64) { e.nextFile = max(e.nextFile, n) }

// SetMinLog says that log segments below n are not needed any more. The largest n ever given
// counts.
func (e *Edit) SetMinLog(n uint64) { e.minLog = max(e.minLog, n) }

// SetNewestLog says where the log ends. An end in a segment older than the state's is ignored.
func (e *Edit) SetNewestLog(end LogEnd) { e.newest = end }

// SetLastSeq raises the floor for the last sequence number to at least seq.
func (e *Edit) SetLastSeq(seq uint64) { e.lastSeq = max(e.lastSeq, seq) }

// SetIssued raises the floor for the hybrid clock to at least millis.
func (e *Edit) SetIssued(millis int64) {
	if e.issued == nil || millis > *e.issued {
		e.issued = &millis
	}
}

// SetClock replaces the trusted clock.
func (e *Edit) SetClock(c TrustedClock) { e.clock = &c }

// AddSeqTime records that every write with a sequence number up to seq was made at or before the
// clock reading millis. A point that is not above the newest recorded one in both is dropped,
// which is always safe.
func (e *Edit) AddSeqTime(seq uint64, millis int64) {
	e.seqTimes = append(e.seqTimes, SeqTime{Seq: seq, Millis: millis})
}

// CreateTable adds a table. Its id and those of its partitions must be at or above
// State.NextTable and State.NextPartition, which rise above them.
func (e *Edit) CreateTable(t *Table) { e.created = append(e.created, t) }

// AlterTable replaces the options and the annotations of a table.
func (e *Edit) AlterTable(id uint64, options TableOptions, annotations []byte) {
	e.altered = append(e.altered, alteration{table: id, options: options, annotations: annotations})
}

// DropTable removes a table and all its references to files. The same edit must drop the table's
// change logs.
func (e *Edit) DropTable(id uint64) { e.dropped = append(e.dropped, id) }

// ReplacePartitions replaces neighbouring partitions of a table by others that cover the same
// range: a split replaces one by two, a merge two by one. The new partitions have new ids (at or
// above State.NextPartition), larger epochs, and a FlushedSeq of at most the smallest of those
// they replace. Where an old and a new partition share keys they must list the same files at the
// same levels. So a merge is refused if its partitions still share a file that one of them has
// compacted away, since the file would bring back what that partition has dropped: compact
// first.
func (e *Edit) ReplacePartitions(table uint64, old []uint64, replacements []*Partition) {
	e.replaced = append(e.replaced, &replacement{table: table, old: old, new: replacements})
}

// AddFile adds a file to a level of a partition. Another partition of the table may refer to the
// same file, with an equal description.
func (e *Edit) AddFile(partition uint64, level int, file *FileMeta) {
	e.added = append(e.added, addition{partition: partition, level: level, file: file})
}

// AddValueFile adds a value file to a table. The same edit must add a table file that refers to
// it. The value file is removed with the last such table file.
func (e *Edit) AddValueFile(table uint64, file *ValueFile) {
	e.values = append(e.values, valueAddition{table: table, file: file})
}

// DeleteFile removes a file from a level of a partition. The file stays live while another
// partition refers to it, see State.File.
func (e *Edit) DeleteFile(partition uint64, level int, number uint64) {
	e.deleted = append(e.deleted, deletion{partition: partition, level: level, number: number})
}

// SetFlushed says that the partition's files, including those this edit adds, hold all its
// writes up to seq.
func (e *Edit) SetFlushed(partition uint64, seq uint64) {
	e.flushed = append(e.flushed, flush{partition: partition, seq: seq})
}

// SetWatermark raises the expiry watermark of a table to at least cutoff, in seconds. It belongs
// in the same edit as the first drop that used the cutoff.
func (e *Edit) SetWatermark(table uint64, cutoff int64) {
	e.watermarks = append(e.watermarks, watermark{table: table, cutoff: cutoff})
}

// AddPastLimit says that mutations with sequence numbers up to lastSeq may have been made while
// the table showed up to maxVersions versions. It belongs in the edit that lowers the table's
// limit.
func (e *Edit) AddPastLimit(table uint64, maxVersions int64, lastSeq uint64) {
	e.pastLimits = append(e.pastLimits, pastLimit{table: table, limit: PastLimit{MaxVersions: maxVersions, LastSeq: lastSeq}})
}
