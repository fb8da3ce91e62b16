//go:build rocksdb

package engines

import (
	"github.com/flagstone-db/flagstone/bench/peers/rowstore"
	"github.com/flagstone-db/flagstone/bench/peers/rowstore/rocksdb"
)

// tagged are the engines that need a build tag.
func tagged() []rowstore.Engine { return []rowstore.Engine{rocksdb.Engine()} }
