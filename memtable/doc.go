// Package memtable holds the newest rows of a partition in memory, sorted, for
// many concurrent readers and writers, until they are flushed to a table file.
//
// The package is open to read and promises importers nothing: programs use the root
// package, and what is exported here changes whenever the engine needs it.
//
// # Shape
//
//	hash ─────────────┐ point reads and updates: two cache misses
//	                  ▼
//	row list:  head → row → row → row → nil        (skiplist, CAS inserts) ◄─ pending rows, in groups
//	                   │ │
//	            packed ┘ └ index → cell → cell → nil   (skiplist of the row)
//
// A row is one node of a skiplist. New rows that do not come in order pend until there is a group
// of them, or until an ordered read needs the list (pending.go).
//
// The first mutation of a row is packed behind it in one piece: a row that is written once costs
// one insertion and is read sequentially. Later mutations of the row go, cell by cell, to the row's
// own index, so that a row updated 100,000 times is still read in O(log n). Readers merge the two.
//
// All data is in an arena of slabs that hold no pointers: the garbage collector has nothing to
// scan in a memtable of any size. Links between nodes are 32-bit arena addresses. Nothing is ever
// removed or moved; a memtable is dropped as a whole.
//
// # Concurrency
//
// Writers of different rows and readers of any row run at the same time. There are two locks: a
// short one when the arena grows, and one that writers share while they put a group of rows into
// the list, and that an ordered read takes alone if rows are pending. The caller serialises the
// writers of one row by the row latch; their sequence numbers rise. Readers see cells of every
// sequence number; package mvcc decides which of them are visible.
package memtable
