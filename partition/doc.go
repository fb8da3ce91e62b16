// Package partition holds one LSM tree: the rows of one key range of one
// table. A tree is a mutable memtable, memtables that wait to be flushed, and
// levels of table files; it serves point reads and iterators over them, and it
// flushes and compacts itself when its owner says so.
//
// The package is open to read and promises importers nothing: programs use the root
// package, and what is exported here changes whenever the engine needs it.
//
// What a tree does not decide: the order of writes, durability and visibility
// (the owner's commit pipeline), when background work runs (the owner's
// scheduler), and what is visible (package mvcc).
//
// # Lifetimes
//
// A reader pins a state: one list of memtables and one version, that is, one
// set of table files. States are immutable and reference counted. A flush or a
// compaction installs a new state after the manifest holds it; a file that no
// version refers to any more is handed to the owner to be deleted.
package partition
