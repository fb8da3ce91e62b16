// Package manifest keeps the catalogue of a store: its tables, the partitions of each table's
// key space, and the table files at each level of a partition. It is a log of edits (see log.go
// for the file, edit.go for the changes) over an immutable State.
//
// The package is open to read and promises importers nothing: programs use the root
// package, and what is exported here changes whenever the engine needs it.
//
// Reading order: state.go (the catalogue), edit.go and apply.go (how it changes, and what is
// refused), encode.go and codec.go (its bytes), log.go and replay.go (the file), current.go and
// names.go (the directory).
//
// The package knows files only by name and number; it never opens a table.
package manifest
