// Package engines lists the engines that can be compared.
package engines

import (
	"github.com/flagstone-db/flagstone/bench/peers/rowstore"
	"github.com/flagstone-db/flagstone/bench/peers/rowstore/badger"
	"github.com/flagstone-db/flagstone/bench/peers/rowstore/bbolt"
	"github.com/flagstone-db/flagstone/bench/peers/rowstore/flagstone"
	"github.com/flagstone-db/flagstone/bench/peers/rowstore/goleveldb"
	"github.com/flagstone-db/flagstone/bench/peers/rowstore/pebble"
)

// All returns every engine of this build, Flagstone first. RocksDB is there
// only when built with -tags rocksdb.
func All() []rowstore.Engine {
	return append([]rowstore.Engine{
		flagstone.Engine(), pebble.Engine(), badger.Engine(), goleveldb.Engine(), bbolt.Engine(),
	}, tagged()...)
}
