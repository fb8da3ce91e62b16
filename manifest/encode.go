package manifest

import (
	"bytes"
	"encoding/binary"
)

// The encoding of edits and snapshots, the payloads of the log's records:
//
//	payload = format field*
//	format  = 1 byte, 1
//	field   = tag length body
//	tag     = uvarint; length = uvarint, of the body in bytes
//
// Tags ascend within a message; only those marked * may be repeated. A field whose value is 0,
// false or empty is left out, unless marked +. Varints are as in encoding/binary, in their
// shortest form: u is unsigned, s zig-zag. So each edit has one encoding. A reader may skip an
// unknown tag with bit 6 (0x40) set; it refuses any other unknown tag.
//
//	edit       1 NextFile u   2 MinLog u   3 LastSeq u   4+ Issued s
//	           5* seq time (seq u, millis s)   6* created table
//	           7* altered (table u, options, annotations)   8* dropped table u
//	           9* replacement   10* deleted file (partition u, level u, number u)
//	           11* added file (partition u, level u, file)
//	           12* flushed (partition u, seq u)   13* watermark (table u, cutoff s)
//	           14* past limit (table u, versions s, seq u)
//	           15* added value file (table u, value file)
//	           16* end of a change log (table u, seq u)
//	           17+ trusted clock (millis s, ahead s, stood s)
//	           19 end of the log (segment u, offset u, records u, chain u)
//	snapshot   1 NextFile u   2 NextTable u   3 NextPartition u   4 MinLog u
//	           5 LastSeq u   6 Issued s   7* seq time   8* table
//	           9* value file of a table (table u, value file)
//	           10 trusted clock (millis s, ahead s, stood s)
//	           12 end of the log (segment u, offset u, records u, chain u)
//	table      1 ID u   2 name   3* key column (type 1 byte, auto-increment
//	           1 byte, name)   4 options   5 LargestOffset s   6 Watermark s
//	           7 CreatedMillis s   8 annotations   9* partition
//	           10* past limit (versions s, seq u)   11 change log
//	change log 1 table u   2 After u   3 Until u   4* column of Before
//	options    max versions s, time to live s, max version offset s
//	partition  1 ID u   2 Start   3 End   4 Epoch u   5 FlushedSeq u
//	           6* file of a level (level u, file)
//	replacement 1 table u   2* old partition u   3* new partition
//	file       1 Number u   2 UniqueID 16 bytes   3 Size s   4 Checksum 8 bytes
//	           little endian   5 Smallest   6 Largest   7 SmallestSeq u
//	           8 LargestSeq u   9 MinVersion s   10 MaxVersion s
//	           11 Permanent 1 byte, 1   12 NewestTombstone u   13 Rows u
//	           14 Cells u   15 Puts u   16 Tombstones u   17 CreatedMillis s
//	           18* use of a value file (number u, values u, bytes u)
//	value file 1 Number u   2 UniqueID 16 bytes   3 Size s   4 Checksum 8 bytes
//	           little endian   5 Values u   6 Bytes u   7 CreatedMillis s
//
// Worked example: an edit that raises LastSeq to 300 and drops table 7:
//
//	01   03 02 AC02   08 01 07

const (
	encodingFormat = 1
	ignorableBit   = 1 << 6
)

const (
	editNextFile = 1 + iota
	editMinLog
	editLastSeq
	editIssued
	editSeqTime
	editCreated
	editAltered
	editDropped
	editReplaced
	editDeleted
	editAdded
	editFlushed
	editWatermark
	editPastLimit
	editValueFile
	editLogEnd
	editClock

	editNewestLog = 19
)

const (
	stateNextFile = 1 + iota
	stateNextTable
	stateNextPartition
	stateMinLog
	stateLastSeq
	stateIssued
	stateSeqTime
	stateTable
	stateValueFile
	stateClock

	stateNewestLog = 12
)

const (
	tableID = 1 + iota
	tableName
	tableKeyColumn
	tableOptions
	tableLargestOffset
	tableWatermark
	tableCreated
	tableAnnotations
	tablePartition
	tablePastLimit
	tableLog
)

const (
	partitionID = 1 + iota
	partitionStart
	partitionEnd
	partitionEpoch
	partitionFlushed
	partitionFile
)

const (
	replacementTable = 1 + iota
	replacementOld
	replacementNew
)

const (
	fileNumber = 1 + iota
	fileUniqueID
	fileSize
	fileChecksum
	fileSmallest
	fileLargest
	fileSmallestSeq
	fileLargestSeq
	fileMinVersion
	fileMaxVersion
	filePermanent
	fileNewestTombstone
	fileRows
	fileCells
	filePuts
	fileTombstones
	fileCreated
	fileValues
)

const (
	valueNumber = 1 + iota
	valueUniqueID
	valueSize
	valueChecksum
	valueValues
	valueBytes
	valueCreated
)

func appendField(dst []byte, tag uint64, body []byte) []byte {
	dst = binary.AppendUvarint(dst, tag)
	dst = binary.AppendUvarint(dst, uint64(len(body)))
	return append(dst, body...)
}

// appendBytes, appendUint and appendInt leave out an empty or zero value.
func appendBytes(dst []byte, tag uint64, value []byte) []byte {
	if len(value) == 0 {
		return dst
	}
	return appendField(dst, tag, value)
}

func appendUint(dst []byte, tag, value uint64) []byte {
	if value == 0 {
		return dst
	}
	return appendNumbers(dst, tag, value)
}

func appendInt(dst []byte, tag uint64, value int64) []byte {
	return appendUint(dst, tag, zigzag(value))
}

// appendNumbers appends a field whose body is a few uvarints.
func appendNumbers(dst []byte, tag uint64, values ...uint64) []byte {
	var body [4 * binary.MaxVarintLen64]byte
	b := body[:0]
	for _, v := range values {
		b = binary.AppendUvarint(b, v)
	}
	return appendField(dst, tag, b)
}

func zigzag(v int64) uint64   { return uint64(v)<<1 ^ uint64(v>>63) }
func unzigzag(v uint64) int64 { return int64(v>>1) ^ -int64(v&1) }

// appendEdit appends the encoding of an edit.
func appendEdit(dst []byte, e *Edit) []byte {
	dst = append(dst, encodingFormat)
	dst = appendUint(dst, editNextFile, e.nextFile)
	dst = appendUint(dst, editMinLog, e.minLog)
	dst = appendUint(dst, editLastSeq, e.lastSeq)
	if e.issued != nil {
		dst = appendNumbers(dst, editIssued, zigzag(*e.issued))
	}
	for _, p := range e.seqTimes {
		dst = appendNumbers(dst, editSeqTime, p.Seq, zigzag(p.Millis))
	}
	for _, t := range e.created {
		dst = appendField(dst, editCreated, appendTable(nil, t))
	}
	for _, c := range e.altered {
		body := appendOptions(binary.AppendUvarint(nil, c.table), c.options)
		dst = appendField(dst, editAltered, append(body, c.annotations...))
	}
	for _, id := range e.dropped {
		dst = appendNumbers(dst, editDropped, id)
	}
	for _, r := range e.replaced {
		body := appendUint(nil, replacementTable, r.table)
		for _, id := range r.old {
			body = appendNumbers(body, replacementOld, id)
		}
		for _, p := range r.new {
			body = appendField(body, replacementNew, appendPartition(nil, p))
		}
		dst = appendField(dst, editReplaced, body)
	}
	for _, d := range e.deleted {
		dst = appendNumbers(dst, editDeleted, d.partition, uint64(d.level), d.number)
	}
	for _, d := range e.added {
		body := binary.AppendUvarint(nil, d.partition)
		body = binary.AppendUvarint(body, uint64(d.level))
		dst = appendField(dst, editAdded, appendFile(body, d.file))
	}
	for _, f := range e.flushed {
		dst = appendNumbers(dst, editFlushed, f.partition, f.seq)
	}
	for _, w := range e.watermarks {
		dst = appendNumbers(dst, editWatermark, w.table, zigzag(w.cutoff))
	}
	for _, p := range e.pastLimits {
		dst = appendNumbers(dst, editPastLimit, p.table, zigzag(p.limit.MaxVersions), p.limit.LastSeq)
	}
	for _, d := range e.values {
		dst = appendField(dst, editValueFile, appendValueFile(binary.AppendUvarint(nil, d.table), d.file))
	}
	for _, end := range e.ended {
		dst = appendNumbers(dst, editLogEnd, end.log, end.until)
	}
	if e.clock != nil {
		dst = appendClock(dst, editClock, *e.clock)
	}
	return appendNewestLog(dst, editNewestLog, e.newest)
}

func appendNewestLog(dst []byte, tag uint64, end LogEnd) []byte {
	if end == (LogEnd{}) {
		return dst
	}
	return appendNumbers(dst, tag, end.Segment, uint64(end.Offset), end.Records, end.Chain)
}

// appendSnapshot appends the encoding of a state without its StoreID, which is in the file
// header.
func appendSnapshot(dst []byte, s *State) []byte {
	dst = append(dst, encodingFormat)
	dst = appendUint(dst, stateNextFile, s.NextFile)
	dst = appendUint(dst, stateNextTable, s.NextTable)
	dst = appendUint(dst, stateNextPartition, s.NextPartition)
	dst = appendUint(dst, stateMinLog, s.MinLog)
	dst = appendUint(dst, stateLastSeq, s.LastSeq)
	dst = appendInt(dst, stateIssued, s.IssuedMillis)
	for _, p := range s.SeqTimes {
		dst = appendNumbers(dst, stateSeqTime, p.Seq, zigzag(p.Millis))
	}
	for _, t := range s.Tables {
		dst = appendField(dst, stateTable, appendTable(nil, t))
	}
	for u := range s.ValueFiles() {
		dst = appendField(dst, stateValueFile, appendValueFile(binary.AppendUvarint(nil, u.Table), u.ValueFile))
	}
	if s.Clock != (TrustedClock{}) {
		dst = appendClock(dst, stateClock, s.Clock)
	}
	return appendNewestLog(dst, stateNewestLog, s.NewestLog)
}

func appendClock(dst []byte, tag uint64, c TrustedClock) []byte {
	return appendNumbers(dst, tag, zigzag(c.Millis), zigzag(c.Ahead), zigzag(c.Stood))
}

func appendTable(dst []byte, t *Table) []byte {
	dst = appendUint(dst, tableID, t.ID)
	dst = appendBytes(dst, tableName, []byte(t.Name))
	for _, c := range t.Key {
		body := []byte{byte(c.Type), 0}
		if c.AutoIncrement {
			body[1] = 1
		}
		dst = appendField(dst, tableKeyColumn, append(body, c.Name...))
	}
	dst = appendField(dst, tableOptions, appendOptions(nil, t.Options))
	dst = appendInt(dst, tableLargestOffset, t.LargestOffset)
	dst = appendInt(dst, tableWatermark, t.Watermark)
	dst = appendInt(dst, tableCreated, t.CreatedMillis)
	dst = appendBytes(dst, tableAnnotations, t.Annotations)
	for _, p := range t.Partitions {
		dst = appendField(dst, tablePartition, appendPartition(nil, p))
	}
	for _, p := range t.PastLimits {
		dst = appendNumbers(dst, tablePastLimit, zigzag(p.MaxVersions), p.LastSeq)
	}
	if t.Log != nil {
		dst = appendField(dst, tableLog, appendLog(nil, t.Log))
	}
	return dst
}

func appendOptions(dst []byte, o TableOptions) []byte {
	dst = binary.AppendVarint(dst, o.MaxVersions)
	dst = binary.AppendVarint(dst, o.TTLSeconds)
	return binary.AppendVarint(dst, o.MaxVersionOffsetSeconds)
}

func appendPartition(dst []byte, p *Partition) []byte {
	dst = appendUint(dst, partitionID, p.ID)
	dst = appendBytes(dst, partitionStart, p.Start)
	dst = appendBytes(dst, partitionEnd, p.End)
	dst = appendUint(dst, partitionEpoch, p.Epoch)
	dst = appendUint(dst, partitionFlushed, p.FlushedSeq)
	for level, files := range p.Levels {
		for _, f := range files {
			dst = appendField(dst, partitionFile, appendFile([]byte{byte(level)}, f))
		}
	}
	return dst
}

func appendFile(dst []byte, f *FileMeta) []byte {
	dst = appendUint(dst, fileNumber, f.Number)
	if f.UniqueID != [16]byte{} {
		dst = appendField(dst, fileUniqueID, f.UniqueID[:])
	}
	dst = appendInt(dst, fileSize, f.Size)
	if f.Checksum != 0 {
		dst = appendField(dst, fileChecksum, binary.LittleEndian.AppendUint64(nil, f.Checksum))
	}
	dst = appendBytes(dst, fileSmallest, f.Smallest)
	dst = appendBytes(dst, fileLargest, f.Largest)
	dst = appendUint(dst, fileSmallestSeq, f.SmallestSeq)
	dst = appendUint(dst, fileLargestSeq, f.LargestSeq)
	dst = appendInt(dst, fileMinVersion, f.MinVersion)
	dst = appendInt(dst, fileMaxVersion, f.MaxVersion)
	if f.Permanent {
		dst = appendNumbers(dst, filePermanent, 1)
	}
	dst = appendUint(dst, fileNewestTombstone, f.NewestTombstone)
	dst = appendUint(dst, fileRows, f.Rows)
	dst = appendUint(dst, fileCells, f.Cells)
	dst = appendUint(dst, filePuts, f.Puts)
	dst = appendUint(dst, fileTombstones, f.Tombstones)
	dst = appendInt(dst, fileCreated, f.CreatedMillis)
	for _, u := range f.Values {
		dst = appendNumbers(dst, fileValues, u.File, u.Values, u.Bytes)
	}
	return dst
}

func appendValueFile(dst []byte, f *ValueFile) []byte {
	dst = appendUint(dst, valueNumber, f.Number)
	if f.UniqueID != [16]byte{} {
		dst = appendField(dst, valueUniqueID, f.UniqueID[:])
	}
	dst = appendInt(dst, valueSize, f.Size)
	if f.Checksum != 0 {
		dst = appendField(dst, valueChecksum, binary.LittleEndian.AppendUint64(nil, f.Checksum))
	}
	dst = appendUint(dst, valueValues, f.Values)
	dst = appendUint(dst, valueBytes, f.Bytes)
	return appendInt(dst, valueCreated, f.CreatedMillis)
}

// equal compares the stored form of two descriptions.
func (f *FileMeta) equal(g *FileMeta) bool {
	return f == g || bytes.Equal(appendFile(nil, f), appendFile(nil, g))
}
