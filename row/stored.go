package row

// Stored is how a table file keeps the values of one row, all of them and one
// behind the other, if it keeps them apart from those of other rows. Who writes the
// row to another file may take them so, and need not compress them once more. The
// zero value says that they are not kept so.
type Stored struct {
	Form uint8 // type of a block of the table file, see docs/format-sstable.md
	// Tried is the type that the writer of the file tried, and Form if that makes the
	// values smaller; the type of what is not compressed if it is not known.
	Tried uint8
	Bytes []byte // valid as long as the cells are that were read with them
}
