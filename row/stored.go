package row

// Stored holds the values of one row, one after the other, as a table file keeps them if it keeps
// them apart from those of other rows. A writer of the row to another file may take them as they
// are, without compressing again. The zero value means that there are none.
type Stored struct {
	Form uint8 // type of a block of the table file, see docs/format-sstable.md
	// Tried is the type that the writer of the file tried; Form is the same if that made the
	// values smaller. If it is unknown, Tried is the type of uncompressed data.
	Tried uint8
	Bytes []byte // valid as long as the cells that were read with them
}
