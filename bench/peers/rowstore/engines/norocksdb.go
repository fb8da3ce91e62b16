//go:build !rocksdb

package engines

import "github.com/flagstone-db/flagstone/bench/peers/rowstore"

// tagged are the engines that need a build tag.
func tagged() []rowstore.Engine { return nil }
