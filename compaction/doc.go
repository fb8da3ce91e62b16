// Package compaction decides what to merge, and merges it.
//
// The package is open to read and promises importers nothing: programs use the root
// package, and what is exported here changes whenever the engine needs it.
//
// The files of a partition lie in levels. Level 0 holds what was flushed, in
// files that may overlap, ordered by age. Every deeper level is one sorted
// sequence of files. Two invariants carry everything:
//
//   - A row lies in at most one file of a level below 0.
//   - Of one row, a newer run holds only larger sequence numbers than an older
//     run, where the runs are, newest first: the memtables, the files of
//     level 0 from the newest to the oldest, level 1, level 2, ...
//
// So a merge never takes a newer run of a row without every older one down to
// where the output goes. Several merges of a partition may run at once as long
// as they share no file.
//
// Reading order: shape.go (how large levels should be, and how far they are
// from it), pick.go (the choice, in order of urgency), overlap.go (key ranges,
// and what lies below a merge), merge.go (the merge itself). All but the merge
// are pure functions over the file metadata of the manifest.
package compaction
