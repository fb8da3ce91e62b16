// Package row is the data model of Flagstone: the values, keys, cells and mutations that all
// other packages use, and their encodings.
//
// A program that embeds the engine meets these names, which are part of the engine's API:
//
//   - Value, and its constructors String, StringBytes, Binary, Integer, Double and Boolean, in keys, puts and
//     rows; Min and Max in the bounds of scans; Type in the key columns of a table;
//   - Cell and Kind in what a stream records, and Cell in flagstone.Row.Cells; PayloadValue, which makes a Value of
//     the Type and Value of a Cell. flagstone.Row.Versions and Value do that for a column;
//   - MaxKeyColumns, MaxKeyColumnBytes, MaxColumnBytes and MaxValueBytes, the limits.
//
// All else, mutations, batches and encodings, is open to read, and not promised to importers.
//
// # The model
//
// A row is identified by a primary key of one to four columns and holds any number of attribute
// cells. Everything that is stored, in memory and on disk, is a cell, and cells have one logical
// order:
//
//	(row key asc, column asc, version desc, sequence number desc, kind asc)
//
// The row key is the order-preserving encoding of the primary-key tuple (see
// AppendKey), so it is compared with bytes.Compare.
//
// Cells that concern the whole row (a delete of the row, the marker that says that the row
// exists) have an empty column name and therefore sort before all attribute cells of the row.
// Attribute column names are never empty.
//
// # Mutations and batches
//
// A Mutation is everything that one request does to one row; it is applied at one sequence
// number. A Batch is an ordered list of mutations over any rows and tables; it is atomic as a
// whole. The log carries the same bytes that are applied. They hold every decision (versions,
// trims) that was made when the batch was built.
package row
