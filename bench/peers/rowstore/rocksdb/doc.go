// Package rocksdb compares RocksDB, through grocksdb. It needs the library
// (Debian: apt-get install librocksdb-dev) and the build tag rocksdb; without
// the tag the package is empty.
package rocksdb
