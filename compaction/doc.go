// Package compaction decides what to compact, and compacts it.
//
// The package is open to read and promises importers nothing: programs use the root
// package, and what is exported here changes whenever the engine needs it.
//
// The files of a partition lie in levels. Level 0 holds flushed files, which may overlap,
// ordered by age. Every deeper level is one sorted sequence of files. Everything rests on two
// invariants:
//
//   - A row lies in at most one file of each level but level 0.
//   - For each row, a newer run holds only larger sequence numbers than an older
//     run. The runs are, newest first: the memtables, the files of level 0 from the
//     newest to the oldest, level 1, level 2, ...
//
// So a compaction never takes a newer run of a row without every older one down to the output
// level. Several compactions of a partition may run at once as long as they share no file.
//
// Reading order: shape.go (how large levels should be, and how far they are from it), pick.go
// (the choice, by urgency), downwards.go (all files of a range of keys), values.go (which value files
// are worth emptying), overlap.go (key ranges, and what lies below a compaction), merge.go (the merge
// itself). All but the merge are pure functions over the manifest's file metadata.
package compaction
