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

// tagged are the engines that need a build tag, and have it.
var tagged []func() rowstore.Engine

// All returns every engine of this build, Flagstone first. RocksDB and LMDB are there
// only when built with -tags rocksdb,lmdb.
func All() []rowstore.Engine {
	all := []rowstore.Engine{flagstone.Engine(), pebble.Engine(), badger.Engine(), goleveldb.Engine(), bbolt.Engine()}
	for _, engine := range tagged {
		all = append(all, engine())
	}
	return all
}
