// Package transfer moves key ranges between stores as files: it exports the table files of a range, and makes
// files that came from another store a range of its own.
//
// An export is a directory with links to the files, and a manifest.Fragment that describes them. It costs no
// copy, and stays complete whatever the store does. A file's name is the id that is part of its checksums, so
// a later export can leave out what an earlier one has.
//
// A receiving store stages the files in a directory of its own, and believes nothing of what it is told: it
// verifies every block, and that the fragment describes what the files hold. The files keep their bytes and
// get other numbers, since no checksum covers a file's number. Only table files that refer to value files are
// written anew, because their references have the numbers of these. Package rebalance replaces the detached
// partitions of the range by those of the fragment.
package transfer
