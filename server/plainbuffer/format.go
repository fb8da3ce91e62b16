// Package plainbuffer encodes and decodes rows in the PlainBuffer format of
// the OTS protocol, which the row fields of its protobuf messages hold.
package plainbuffer

// The format; all integers are little endian, len32 is a uint32:
//
//	blob      = header row*                     header = 75 00 00 00
//	row       = 01 cell+ [ 02 cell+ ] [ 08 ] [ extension ] 09 crc8
//	cell      = 03 name [ value ] [ op ] [ timestamp ] 0A crc8
//	name      = 04 len32 utf8-bytes
//	value     = 05 len32 variant                len32 counts the variant
//	variant   = type payload
//	op        = 06 byte
//	timestamp = 07 int64                        version in milliseconds
//	extension = 0B len32(=24) 0C len32(=19) 0D epoch:int32 0E timestamp:int64 0F row_index:int32
//
//	type             payload
//	00 INTEGER       int64
//	01 DOUBLE        IEEE-754 bits, 8 bytes
//	02 BOOLEAN       00 or 01
//	03 STRING        len32 UTF-8 bytes
//	07 BINARY        len32 bytes
//	09 minimum, 0A maximum, 0B auto-increment placeholder: none
//
// The first section (01) holds the key columns: a name and a value each. The
// second (02) holds attribute cells. Zero rows are zero bytes, not a header.
//
// A cell's checksum is the CRC-8 of name, variant, timestamp and op, in this
// order (on the wire the op precedes the timestamp), without tags and without
// the lengths of name and value. A row's checksum is the CRC-8 of the
// checksums of its cells in order, then 01 if it has a delete marker, else 00;
// the extension is not covered.
//
// Worked example, key column uid = STRING "6555", no attributes:
//
//	75000000                            header
//	01 03 04 03000000 756964            key section, cell, name "uid"
//	   05 09000000 03 04000000 36353535 value of 9 bytes: STRING "6555"
//	   0A 40                            cell checksum
//	09 5B                               row checksum
//
// The encoding of a row is unique: what decodes also encodes to the same
// bytes.

const header = 0x75

const (
	tagRowKey        = 0x01
	tagRowData       = 0x02
	tagCell          = 0x03
	tagCellName      = 0x04
	tagCellValue     = 0x05
	tagCellOp        = 0x06
	tagCellTimestamp = 0x07
	tagDeleteMarker  = 0x08
	tagRowChecksum   = 0x09
	tagCellChecksum  = 0x0A
	tagExtension     = 0x0B
	tagSeqInfo       = 0x0C
	tagSeqEpoch      = 0x0D
	tagSeqTimestamp  = 0x0E
	tagSeqRowIndex   = 0x0F
)

const (
	typeInteger       = 0x00
	typeDouble        = 0x01
	typeBoolean       = 0x02
	typeString        = 0x03
	typeNull          = 0x06 // in a SimpleRowMatrix only
	typeBinary        = 0x07
	typeMin           = 0x09
	typeMax           = 0x0A
	typeAutoIncrement = 0x0B
)

const (
	seqInfoSize   = 1 + 4 + 1 + 8 + 1 + 4 // 19: epoch, timestamp, row index with their tags
	extensionSize = 1 + 4 + seqInfoSize   // 24
)

// Extension is the position of a stream record in its stream. The triple rises strictly within
// a shard.
type Extension struct {
	Epoch     int32 // as in ots.StreamRecord
	Timestamp int64 // of the commit, microseconds
	RowIndex  int32 // as in ots.StreamRecord
}
