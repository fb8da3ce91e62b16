// Package commit puts writes into one order and makes them durable and visible. A write is a set
// of mutations, each of one row, that become visible together. The package knows rows, trees and
// the log, but neither tables nor streams nor transactions.
//
// A write passes through these stages:
//
//	latch    the caller takes the latches of the rows; a read-modify-write reads
//	admit    there is room for the write in the memory budget
//	order    under one mutex: sequence numbers, the log's buffer, a place in each memtable;
//	         writes leave this stage in sequence order. A write with a table that was altered
//	         since it was worked out goes back
//	apply    the mutations enter the memtables, concurrently and invisible
//	unlatch
//	sync     the log is made durable up to the write (group commit)
//	publish  the visible sequence number moves past the write, in sequence order; from here
//	         on readers see it
//	pause    the writer waits for what it owes while the store is behind (package pressure)
//
// With Options.Sync a write is visible only when it is durable, so no reader sees what a crash
// could take back. A read-modify-write may read what is applied but not yet durable: its own
// record comes later in the same log, so if it survives, what it read survives. Only a refusal,
// an answer that writes nothing, could leak such a state; so it waits until that state is
// durable (Pipeline.Refuse).
//
// If the log belongs to another program, the order of the stages is: latch, admit, propose; then, when the owner
// of the log says that the entry is committed, order, apply and publish; then unlatch. See external.go.
//
// Applying a write decides nothing: versions and trims are in its bytes. A write that the log
// refused never enters a memtable.
package commit
