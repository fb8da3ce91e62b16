// Package instances keeps the instances of one endpoint: which there are, of
// which type, which access keys open them, and the stores that their tables lie
// in.
//
//	home.go      opening, looking up, closing
//	change.go    making and deleting instances, adding and removing keys
//	registry.go  the file that remembers them, docs/format-instances.md
//	admin        the same operations on a home that another process has open
//
// An instance is a namespace, not a store of its own: its tables carry its name
// before theirs, and instances of one type share a store. So ten instances cost
// one log, one sync for writers of all of them, one budget of memory and one
// set of background workers. What a type differs in, compression and the share
// of memory and cache, belongs to a store, so there is one store for each type:
// the directory itself for high-performance instances, which is what it was
// before there were types, and the directory "capacity" in it for the others,
// which is made with the first of them.
package instances
