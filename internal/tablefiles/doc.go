// Package tablefiles keeps the open table and value files of one store: who refers to them, which
// descriptors they have, and whether they are read through a mapping or by system calls.
//
// A table file is opened once, on first use, and shared by all versions of all trees that refer
// to it. It pins the value files that its cells refer to, so a reader with a pinned version can
// read every value of its cells. When the last reference to a file is gone, the file is closed.
// If the manifest does not name it any more, the owner is told that it may be deleted.
//
// The package decides neither which files there are (the manifest) nor when one is made, merged
// or deleted (package partition and the owner).
package tablefiles
