// Package row is the data model of Flagstone: the values, keys, cells and mutations that all
// other packages use, and their encodings.
//
// Value, Type, Cell and Kind, with their constructors, bounds and PayloadValue, are part of the API
// of the engine: programs that embed it write them in keys and puts, and find them in rows. All
// else, mutations, batches and encodings, is open to read, and not promised to importers.
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
