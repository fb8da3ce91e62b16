// Package engines lists the engines that can be compared.
package engines

import "github.com/flagstone-db/flagstone/bench/peers/rowstore"

// All returns every engine of this build, Flagstone first. RocksDB is there
// only when built with -tags rocksdb.
func All() []rowstore.Engine {
	return nil
}
