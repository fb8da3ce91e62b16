//go:build rocksdb

package rocksdb

// rocksdb.sh has the macro defined where its library is linked.

/*
#ifdef PEERS_ROCKSDB_RELEASE
enum { peers_release = 1 };
#else
enum { peers_release = 0 };
#endif
*/
import "C"

// build says which library this is, and by what its throughput is multiplied where it
// stands for the best peer. A release build measured 1.3 to 1.9 times the figures of
// Debian's.
func build() (name string, factor float64) {
	if C.peers_release == 1 {
		return "release build (rocksdb.sh: no assertions, -O2, native)", 1
	}
	return "Debian's build (portable, with assertions)", 1.6
}
