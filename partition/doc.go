// Package partition holds one LSM tree: the rows of one key range of one table. A tree is a
// mutable memtable, memtables that wait to be flushed, and levels of table files. It serves
// point reads and iterators, and it flushes and compacts itself when its owner asks for it.
//
// The package is open to read and promises importers nothing: programs use the root
// package, and what is exported here changes whenever the engine needs it.
//
// A tree does not decide the order of writes, their durability and visibility (the owner's
// commit pipeline), when background work runs (Scheduler), what must be kept (Retention), or what
// a view shows (package mvcc). Env is all that it asks of its owner.
//
// # Lifetimes
//
// A reader pins a state: a list of memtables, and a version, which is a set of table files.
// States are immutable and reference counted. A flush or a compaction installs a new state after
// the manifest holds its files. Package tablefiles counts the references to files, and tells the
// owner which ones may be deleted.
package partition
