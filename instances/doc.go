// Package instances keeps the instances of one endpoint: their names and types, their access
// keys, and the stores that hold their tables.
//
//	home.go      opening, looking up, closing
//	change.go    making and deleting instances, adding and removing keys
//	checkpoint.go  copies of everything, for backups
//	registry.go  the file that remembers them, docs/format-instances.md
//	admin        the same operations on a home that another process has open
//
// An instance is a namespace, not a store of its own: it is a prefix of its tables' names, and
// instances of one type share a store. So ten instances cost one log, one sync for the writers
// of all of them, one memory budget and one set of background workers. Types differ in
// compression and in their share of memory and cache, which are properties of a store, so each
// type has a store. For high-performance instances it is the directory itself, as before there
// were types. For capacity instances it is the directory "capacity" in it, made with the first
// of them.
package instances
